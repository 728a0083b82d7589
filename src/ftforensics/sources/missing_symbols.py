"""Extensions that need what the torch beside them does not export, told from their symbol tables.

A name counts as missing when torch's own libraries do not define it, nor anything else that is loaded or that the
extension is linked with: other projects live in namespaces of torch's, too (torch::executor).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.crash import Library
from ftforensics.model.software import MissingSymbols, Software
from ftforensics.parsers import library_name
from ftforensics.parsers.torch_name import is_torch_name, string_abi
from ftforensics.sources.dynamic_loader import DynamicLoader, SearchEnvironment
from ftforensics.symbols.dynamic import Dynamic, read_dynamic
from ftforensics.symbols.elf import Elf, ElfError, read_elf
from ftforensics.symbols.exports import Exports, dynamic_strings, undefined_names

NAMES_TOLD = 20  # as `MissingSymbols.names` promises

# Every process has them, and no name of torch's is in them. In a copy of some files they may not be found.
_RUNTIME = (
    "libc.so",
    "libm.so",
    "libdl.so",
    "libpthread.so",
    "librt.so",
    "libutil.so",
    "libgcc_s.so",
    "ld-linux",
    "libpython",
)


class _Open(msgspec.Struct, frozen=True):
    """A library whose file is the one that was mapped. fd: open as long as the stack that was given."""

    path: str
    fd: int
    elf: Elf
    dynamic: Dynamic

    def exports(self) -> Exports:
        return Exports(self.fd, self.elf, self.dynamic)


def missing_symbols(host: Host, extensions: Iterable[Library], libraries: Iterable[Library]) -> list[MissingSymbols]:
    """Of each extension, the names of torch's that nobody gives it. libraries: all that are loaded, torch's among them.

    An extension whose file is no longer the mapped one is left out; with a torch whose files are no longer the mapped
    ones, or without libc10 and libtorch_cpu, nothing can be said about any. Files are told apart by build-id: one that
    has none, as the mapped one had none, is taken for it. About 2 ms an extension, 40 ms for one that needs 1,000
    names.
    """
    loaded = list(libraries)
    found = []
    with ExitStack() as stack:
        torch = _torch(host, loaded, stack)
        if not torch:
            return []
        given = [file.exports() for file in torch]
        abi = _abi_of_torch(torch)
        for extension in extensions:
            file = _mapped(host, extension, stack)
            if file is None:
                continue
            missing = _undefined(file)
            missing = [name for name in missing if not any(_defines(exports, name) for exports in given)]
            if missing:
                missing = _without_others(host, file, missing, torch, loaded, stack)
            if missing:
                found.append(_described(extension, missing, abi))
    return found


def complete_software(host: Host, software: Software, libraries: Iterable[Library]) -> Software:
    """`software` with `missing` filled in for the extensions among `libraries`, the loaded ones. Quick: symbol tables
    only."""
    loaded = list(libraries)
    extensions = [library for library in loaded if library.kind == "extension"]
    return msgspec.structs.replace(software, missing=missing_symbols(host, extensions, loaded))


def _torch(host: Host, libraries: list[Library], stack: ExitStack) -> list[_Open]:
    """torch's own libraries; none at all when one of them cannot be compared, or not even the CPU's part is there (a
    crash in the middle of `import torch`)."""
    found = []
    for library in libraries:
        if library_name.is_torch(library.kind):
            file = _mapped(host, library, stack)
            if file is None:
                return []
            found.append(file)
    kinds = {library_name.kind_of(file.path) for file in found}
    return found if {"libc10", "libtorch_cpu"} <= kinds else []


def _mapped(host: Host, library: Library, stack: ExitStack) -> _Open | None:
    """The library's file, when it is still the one that was mapped."""
    file = _opened(host, library.path, stack)
    if file is None or file.elf.build_id != library.build_id:
        return None
    # Without a build-id: one that is known to have been replaced. That it differs from RECORD does not matter.
    return file if file.elf.build_id or not library.drifted or "loaded" not in library.drifted else None


def _opened(host: Host, path: str, stack: ExitStack) -> _Open | None:
    try:
        fd = stack.enter_context(host.open(path)).fileno()
        elf = read_elf(fd)
        return _Open(path, fd, elf, read_dynamic(fd, elf))
    except (Refusal, ElfError, OSError):
        return None


def _undefined(file: _Open) -> list[str]:
    try:
        return [name for name in undefined_names(file.fd, file.elf) if is_torch_name(name)]
    except OSError:
        return []


def _defines(exports: Exports, name: str) -> bool:
    """A file that cannot be read, or whose table makes no sense, is given the benefit of the doubt."""
    try:
        return exports.defines(name)
    except (OSError, OverflowError):
        return True


def _without_others(
    host: Host, file: _Open, missing: list[str], torch: list[_Open], loaded: list[Library], stack: ExitStack
) -> list[str]:
    """The names that nothing else gives, either: what is loaded, and what the extension brings in itself."""
    loader = DynamicLoader(host, SearchEnvironment(), file.elf.machine)
    loader.assume(library.path for library in loaded if library.path != file.path)
    loader.load(file.path)
    for absent in loader.not_found:
        # What NVIDIA's and torch's own libraries give is known, wherever they come from. Of any other that is not found
        # it is not known what it would have given.
        if library_name.kind_of(absent.name) is None and not absent.name.startswith(_RUNTIME):
            return []
    own = {one.path for one in torch} | {file.path}
    for other in loader.loaded:
        if not missing:
            break
        if other.path in own:
            continue
        opened = _opened(host, other.path, stack)
        if opened is not None:
            exports = opened.exports()
            missing = [name for name in missing if not _defines(exports, name)]
    return missing


def _abi_of_torch(torch: list[_Open]) -> str | None:
    """Which std::string torch was compiled with, by the names in libc10: c10::Error takes one."""
    for file in torch:
        if library_name.kind_of(file.path) == "libc10":
            try:
                names = dynamic_strings(file.fd, file.elf).split(b"\0")
            except OSError:
                return None
            mine = (name.decode("utf-8", "backslashreplace") for name in names if b"3c10" in name)
            return next((abi for name in mine if is_torch_name(name) and (abi := string_abi(name))), None)
    return None


def _described(extension: Library, missing: list[str], torch_abi: str | None) -> MissingSymbols:
    shown = [name for name in missing if string_abi(name)]
    abis = {string_abi(name) for name in shown}
    abi = abis.pop() if len(abis) == 1 else None
    return MissingSymbols(
        path=extension.path,
        package=extension.package,
        version=extension.version,
        # Those that show the string come first: they are what the difference is about.
        names=sorted(missing, key=lambda name: string_abi(name) is None)[:NAMES_TOLD],
        count=len(missing),
        abi=abi if torch_abi and abi != torch_abi else None,
    )
