"""Addresses to library, offset and function, checked against the files on disk.

    symbolizer = Symbolizer(record.modules or [], Host(), SymbolCache.of_user())
    locations = symbolizer.frames(record.native.frames)     # in the same order
    gaps = symbolizer.gaps()                                # replaced, missing, unchecked files

Ask for many addresses at once: a symbol table is read from start to end for each question (6 ms for libtorch's half a
million symbols), however many addresses it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import msgspec

from ftforensics.host.host import Host
from ftforensics.model.basics import Address, Gap
from ftforensics.model.crash import Module, RawFrame
from ftforensics.symbols.cache import Entry, SymbolCache
from ftforensics.symbols.demangle import demangle
from ftforensics.symbols.elf import WORD
from ftforensics.symbols.library import FileState, Library, LibraryFile, library_path, open_library


class Location(msgspec.Struct, frozen=True):
    """Where an address lies. Everything is None for an address in no module.

    library: the module's path, or the kernel's name in brackets ("[vdso]"); offset: address minus the module's base, as
    the kernel's own lines print it; function: demangled; function_offset: address minus the function's start.
    """

    address: Address
    library: str | None = None
    offset: Address | None = None
    function: str | None = None
    function_offset: Address | None = None
    mangled: str | None = None


class _Question(msgspec.Struct, frozen=True):
    """One address of the caller's. looked_up: the instruction, relative to the base; differs for return addresses."""

    position: int
    offset: int
    looked_up: int


class _Asked(NamedTuple):
    """A question about one library, wherever it was mapped."""

    path: str
    deleted: bool | None
    build_id: str | None
    inode: int | None
    offsets: tuple[int, ...]


Answered = dict[_Asked, tuple[LibraryFile, dict[int, Entry]]]
"""What one analysis has asked already. Ranks that end in the same way ask the same, thousands of them."""


class Symbolizer:
    """Names addresses of one process. modules: what was mapped; host: where the files are; cache: earlier answers;
    answered: those of the processes before it, whose are added."""

    def __init__(
        self,
        modules: Iterable[Module],
        host: Host,
        cache: SymbolCache | None = None,
        answered: Answered | None = None,
    ) -> None:
        self._modules = sorted(modules, key=lambda module: module.base)
        self._bases = [int(module.base) for module in self._modules]
        self._host = host
        self._cache = cache if cache is not None else SymbolCache(None)
        self._files: dict[int, LibraryFile] = {}
        self._answered: Answered = answered if answered is not None else {}

    def frames(self, frames: Sequence[RawFrame]) -> list[Location]:
        """Locations of stack frames, innermost first or in any other order.

        Every frame but the interrupted one ("context") holds a return address: the instruction after the call, which
        may be the first one of the next function when the call does not return (abort, __cxa_throw). So the byte before
        is looked up; offsets stay those of the address itself. A signal trampoline is no return address and may lose
        its name by this.
        """
        return self._locate([(int(frame.pc), frame.trust != "context") for frame in frames])

    def addresses(self, addresses: Sequence[int]) -> list[Location]:
        """Locations of addresses that point at an instruction: handlers, registers."""
        return self._locate([(int(address), False) for address in addresses])

    def files(self) -> list[LibraryFile]:
        """What was found out about every library asked for so far, in the order of their bases."""
        return [self._files[index] for index in sorted(self._files)]

    def gaps(self) -> list[Gap]:
        return [gap for file in self.files() if (gap := file.gap()) is not None]

    def _locate(self, addresses: Sequence[tuple[int, bool]]) -> list[Location]:
        locations = [Location(Address(address)) for address, _ in addresses]
        by_module: defaultdict[int, list[_Question]] = defaultdict(list)
        for position, (address, is_return) in enumerate(addresses):
            instruction = address - 1 if is_return else address
            index = self._module_at(instruction)
            if index is not None:
                base = self._bases[index]
                by_module[index].append(_Question(position, (address - base) & WORD, instruction - base))
        for index, questions in by_module.items():
            module = self._modules[index]
            answers = self._answers(index, module, sorted({question.looked_up for question in questions}))
            for question in questions:
                address = Address(addresses[question.position][0])
                locations[question.position] = _location(module, address, question, answers[question.looked_up])
        return locations

    def _module_at(self, address: int) -> int | None:
        """Index of the module whose mappings hold the address: the highest base wins where ranges overlap."""
        for index in range(bisect_right(self._bases, address) - 1, -1, -1):
            end = self._modules[index].end
            if end is None:  # reaches to the next module at most
                end = Address(self._bases[index + 1]) if index + 1 < len(self._bases) else Address(WORD)
            if address < end:
                return index
        return None

    def _answers(self, index: int, module: Module, offsets: list[int]) -> dict[int, Entry]:
        asked = _Asked(module.path, module.deleted, module.build_id, module.inode, tuple(offsets))
        before = self._answered.get(asked)
        if before is None:
            before = self._answered[asked] = self._looked_up(module, offsets)
        self._files[index], answers = before
        return answers

    def _looked_up(self, module: Module, offsets: list[int]) -> tuple[LibraryFile, dict[int, Entry]]:
        with ExitStack() as stack:
            library = open_library(self._host, module, stack)
            known = self._cached(library)
            unknown = [offset for offset in offsets if offset not in known]
            fresh: list[Entry] = []
            if unknown and library.sources:
                try:
                    fresh = _look_up(library, unknown)
                except (OSError, ValueError, ImportError) as error:
                    file = msgspec.structs.replace(
                        library.file, state=FileState.UNREADABLE, why=str(error), source=None
                    )
                    library = Library(file)
        build_id, source = module.build_id, library.file.source
        if fresh and build_id is not None and source is not None:
            self._cache.write(build_id, source, known.values(), fresh)
        answers = {offset: Entry(offset) for offset in offsets} | known | {entry.offset: entry for entry in fresh}
        return library.file, answers

    def _cached(self, library: Library) -> dict[int, Entry]:
        """Earlier answers. Without any file left those of an earlier analysis still hold: the build-id says so."""
        file = library.file
        if file.recorded is None:
            return {}
        for source in (file.source,) if file.source is not None else ("debug", "symtab", "dynsym"):
            if known := self._cache.read(file.recorded, source):
                return known
        return {}


def _look_up(library: Library, offsets: list[int]) -> list[Entry]:
    answers = [Entry(offset) for offset in offsets]
    for source in library.sources:
        for i, found in enumerate(source.look_up(offsets)):
            best = answers[i].start
            if found.start is not None and (best is None or found.start > best):
                answers[i] = found
    return answers


def _location(module: Module, address: Address, question: _Question, answer: Entry) -> Location:
    library, offset = library_path(module), Address(question.offset)
    if answer.start is None or answer.name is None:
        return Location(address, library, offset)
    mangled = answer.name.decode("utf-8", "backslashreplace")
    function_offset = Address((question.offset - answer.start) & WORD)
    return Location(address, library, offset, demangle(mangled), function_offset, mangled)
