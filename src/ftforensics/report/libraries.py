"""The loaded libraries in a terminal: by folder, then the driver, then what does not fit and what could not be seen."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby

from rich.cells import cell_len, chop_cells, set_cell_size

from ftforensics.facts.driver import level_of_api
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Driver, Library
from ftforensics.model.software import Pin, Software
from ftforensics.model.stack import LoadedStack
from ftforensics.report.escape import printable, shortened

NARROWEST, WIDEST = 60, 118
MOST = 30  # damaged files, missing names; --json has all
_HOW = {
    "symbol": "its symbols",
    "text": "its own text",
    "file-name": "its file name",
    "sibling": "its neighbour",
    "version.py": "version.py",
}


def render(stack: LoadedStack, width: int) -> str:
    """width: columns. Ends with a line feed."""
    width = min(max(width, NARROWEST), WIDEST)
    lines = [*(line for text in _head(stack) for line in _wrapped(text, width, "")), ""]
    shown = [library for library in stack.libraries if library.kind != "extension"]
    if shown:
        lines += [*_table(shown, width), ""]
    if not stack.libraries and stack.pid is not None and stack.record is None:
        lines += ["no CUDA, torch, OpenMP or C++ runtime library is loaded", ""]
    if extensions := _extensions(stack.libraries):
        lines += [*(line for text in extensions for line in _wrapped(text, width, "")), ""]
    for title, part in (
        ("Torch demands", _pins(stack.software, stack.libraries)),
        ("Files", _files(stack.software)),
        ("Names that an extension misses", _missing(stack.software)),
        ("Driver", _driver(stack.driver)),
        ("Not seen", _gaps(stack.gaps)),
    ):
        body = [line for text in part for line in _wrapped(text, width)]
        lines += [title, *body, ""] if body else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(stack: LoadedStack) -> Iterator[str]:
    whose = f"pid {stack.pid}" if stack.pid is not None else "pid unknown"
    yield f"{whose}, from {stack.record}" if stack.record else whose
    software = stack.software
    torch = software.torch if software else None
    if torch:
        build = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "the CPU"
        known = f", known by {torch.how}" if torch.how and torch.how != "version.py" else ""
        build = build if torch.how else "a CUDA that nothing tells"
        yield f"torch {torch.version} for {build} ({torch.origin or 'origin unknown'}{known})"
    if software and software.python:
        yield f"Python {software.python}" + (f" in {software.prefix}" if software.prefix else "")
    yield from software.site_packages if software else []


def _table(libraries: list[Library], width: int) -> Iterator[str]:
    cells = {id(library): _cells(library) for library in libraries}
    widths = [max(cell_len(row[column]) for row in cells.values()) for column in range(4)]
    for column, head in enumerate(("file", "version", "demanded", "known by")):
        widths[column] = max(widths[column], len(head))
    widths[0] = max(12, min(widths[0], width - 2 - sum(min(other, 26) + 2 for other in widths[1:])))
    yield _row(("file", "version", "demanded", "known by"), widths, width)
    ordered = sorted(libraries, key=lambda one: (os.path.dirname(one.path), os.path.basename(one.path)))
    for folder, group in groupby(ordered, key=lambda one: os.path.dirname(one.path)):
        inside = list(group)
        origin = ", ".join(dict.fromkeys(library.origin or "?" for library in inside))
        by = next((library.searched for library in inside if library.searched), None)
        origin = _cut(printable(f"{origin}, by LD_LIBRARY_PATH" if by else origin), width // 2)
        room = width - cell_len(origin) - 1
        yield f"{set_cell_size(_cut(printable(folder), room), room)} {origin}"
        for library in inside:
            yield _row(cells[id(library)], widths, width)
            for note in _notes(library):
                yield from _wrapped(note, width, "      ")


def _row(cells: Iterable[str], widths: list[int], width: int) -> str:
    parts = [set_cell_size(_cut(cell, size), size) for cell, size in zip(cells, widths, strict=True)]
    return _cut("  " + "  ".join(parts).rstrip(), width)


def _cut(text: str, size: int) -> str:
    """At most `size` columns, cut in the middle; a character may take two of them."""
    limit = min(size, len(text))
    while limit > 0 and cell_len(shortened(text, limit)) > size:
        limit -= 1
    return shortened(text, limit)


def _cells(library: Library) -> tuple[str, str, str, str]:
    """file, version, what torch demands, how the version is known."""
    demanded = ""
    if library.pin:
        demanded = "the same" if library.pin == library.version else library.pin
    known = _HOW.get(library.how or "", library.package or "") if library.version else ""
    return (
        printable(os.path.basename(library.path)),
        printable(library.version or "?"),
        printable(demanded),
        printable(known or library.package or ""),
    )


def _notes(library: Library) -> Iterator[str]:
    if library.pin and library.version and library.pin != library.version:
        yield f"not the {library.package} that {library.pinned_by} demands"
    if library.drifted:
        yield f"the file is not what was loaded or installed: {library.drifted}"
    if (library.copies or 0) > 1:
        yield f"one of {library.copies} loaded {library.kind}"
    if library.vendored_by:
        yield f"brought by {library.vendored_by}, whose version is not the library's"
    if library.origin == "stubs":
        yield "a stub for linking: it does nothing"
    if library.kind == "libnccl" and library.cuda:
        yield f"built with CUDA {library.cuda}"


def _extensions(libraries: list[Library]) -> list[str]:
    """A scientific process has hundreds of them: told one by one only when something is wrong with it."""
    extensions = [library for library in libraries if library.kind == "extension"]
    packages = {library.package for library in extensions if library.package}
    if not extensions:
        return []
    wrong = [f"{library.path}: {note}" for library in extensions if library.drifted for note in _notes(library)]
    whose = f"of {_counted(len(packages), 'package')}" if packages else "of no package that is known"
    return [f"and {_counted(len(extensions), 'extension module')} {whose}", *wrong[:MOST]]


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _pins(software: Software | None, libraries: list[Library]) -> Iterator[str]:
    """What differs, whether it is loaded or not; when nothing does, that."""
    pins = software.pins if software else []
    wrong = [pin for pin in pins if pin.installed != pin.version]
    loaded = {library.package for library in libraries}
    for pin in wrong:
        there = f"{pin.installed} is installed" if pin.installed else "it is not installed"
        unused = ", not loaded" if pin.installed and pin.package not in loaded and pin.package != "torch" else ""
        yield f"{_whose(pin)}{pin.package} {pin.version}: {there}{unused}"
    if pins and not wrong:
        yield (
            f"all {len(pins)} packages that are demanded in one version are installed in it"
            if len(pins) > 1
            else "the one package that is demanded in one version is installed in it"
        )


def _whose(pin: Pin) -> str:
    return "" if pin.by.startswith(("torch ", "pytorch ")) else f"({pin.by}) "


def _files(software: Software | None) -> Iterator[str]:
    if software is None or not software.verified:
        return
    for broken in software.broken[:MOST]:
        yield f"{broken.package} {broken.version}: {broken.path}: {broken.how}"
    if len(software.broken) > MOST:
        yield f"and {len(software.broken) - MOST} more"
    intact = software.checked - len(software.broken)
    yield (
        f"{intact} of {software.checked} files are as installed"
        if software.broken
        else (f"all {software.checked} files of torch and of NVIDIA's packages are as installed")
    )


def _missing(software: Software | None) -> Iterator[str]:
    for one in software.missing[:MOST] if software else []:
        package = f" ({one.package} {one.version})" if one.package else ""
        abi = f", built with the {one.abi} string ABI" if one.abi else ""
        yield f"{one.path}{package}: {one.count} that this torch does not export{abi}, as {', '.join(one.names[:2])}"


def _driver(driver: Driver | None) -> Iterator[str]:
    if driver is None:
        return
    for name, value in (
        ("kernel module", driver.module_version),
        ("libcuda", driver.libcuda_path and f"{driver.libcuda_path} {driver.libcuda_version or ''}".strip()),
        ("reports CUDA", None if driver.api_level is None else level_of_api(driver.api_level)),
        ("NVML", driver.nvml_version),
        ("noted", driver.note),
    ):
        if value:
            yield f"{name}: {value}"
    for gpu in driver.gpus:
        kind = f", compute capability {gpu.capability}" if gpu.capability else ""
        split = ", split into instances (MIG)" if gpu.mig else ""
        memory = ""
        if gpu.memory_used is not None and gpu.memory_total is not None:
            memory = f", {gpu.memory_used >> 20} of {gpu.memory_total >> 20} MiB in use"
        yield f"GPU {gpu.index}: {gpu.name or '?'}{kind}{split}{memory}"


def _gaps(gaps: list[Gap]) -> Iterator[str]:
    for gap in gaps:
        yield f"{gap.source}: {gap.why}" + (f"; grant: {gap.grant}" if gap.grant else "")


def _wrapped(text: str, width: int, indent: str = "  ") -> Iterator[str]:
    """Lines of at most `width` columns; a word that is longer (a path) is cut into pieces. What follows the first line
    stands further in."""
    lines = [""]
    for word in printable(text).split(" "):
        further = indent if len(lines) == 1 else indent + "  "
        if lines[-1] and cell_len(further + lines[-1]) + 1 + cell_len(word) > width:
            lines.append("")
        pieces = chop_cells(word, width - len(indent) - 2) if cell_len(word) > width - len(indent) - 2 else [word]
        lines[-1] += f" {pieces[0]}" if lines[-1] else pieces[0]
        lines += pieces[1:]
    for number, line in enumerate(lines):
        yield (indent + "  " * bool(number)) + line
