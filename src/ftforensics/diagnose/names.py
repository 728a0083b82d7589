"""Frames with names: the one place where the diagnosis asks the symbols layer, behind a function that tests replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ftforensics.host.host import Host
from ftforensics.model.basics import Address, Gap
from ftforensics.model.crash import CrashRecord, Module, RawFrame
from ftforensics.model.diagnosis import Frame
from ftforensics.symbols.cache import SymbolCache
from ftforensics.symbols.resolve import Answered, Symbolizer


class Resolution(msgspec.Struct, frozen=True):
    """frames: one for each raw frame, in order; gaps: files that were replaced, missing or could not be checked."""

    frames: list[Frame] = []
    gaps: list[Gap] = []


Resolver = Callable[[CrashRecord, Sequence[RawFrame]], Resolution]


class DiskSymbols:
    """Names from the libraries on this machine's disk, checked against the record's build-ids."""

    def __init__(self, host: Host, cache: SymbolCache | None = None) -> None:
        self._host = host
        self._cache = cache
        self._answered: Answered = {}

    def __call__(self, record: CrashRecord, raw: Sequence[RawFrame]) -> Resolution:
        symbolizer = Symbolizer(record.modules or [], self._host, self._cache, self._answered)
        locations = symbolizer.frames(raw)
        frames = [
            Frame(
                function=location.function,
                library=location.library,
                offset=location.offset,
                function_offset=location.function_offset,
                trust=frame.trust,
            )
            for frame, location in zip(raw, locations, strict=True)
        ]
        return Resolution(frames, symbolizer.gaps())


def module_offsets(record: CrashRecord, raw: Sequence[RawFrame]) -> Resolution:
    """Library and offset from the record alone, without a look at any file."""
    modules = sorted(record.modules or [], key=lambda module: module.base)
    frames = []
    for frame in raw:
        module = _holding(modules, frame.pc)
        frames.append(
            Frame(library=module.path, offset=Address(frame.pc - module.base), trust=frame.trust)
            if module
            else Frame(offset=frame.pc, trust=frame.trust)
        )
    gaps = [] if not raw else [Gap("symbols", "function names were not looked up")]
    return Resolution(frames, gaps)


def _holding(modules: Sequence[Module], pc: int) -> Module | None:
    for module in reversed(modules):
        if module.base <= pc and (module.end is None or pc < module.end):
            return module
    return None
