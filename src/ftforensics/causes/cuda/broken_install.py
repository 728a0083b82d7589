"""Files of torch or of a CUDA package are missing or are not what was installed.

## What it means

pip writes down every file that a package brings, with its size and checksum (RECORD). A file that is missing or differs
was damaged by an interrupted install, a full disk, a second package that brings the same path (nvidia packages for CUDA
11 and 12 do), or a cleanup of the image. Code that expects the old content then runs into the new.

## How it is told apart

The files were compared with RECORD, or a mapped library has another size than its package installed. It is likely the
cause when the stack leads into a damaged file (or could not be seen, and such a file was mapped), or when the loader
said that a file of the package is missing; otherwise possible, as it is after an abort, which says itself what went
wrong. Headers and other files that no process loads say nothing. Where every library of every package differs, somebody
rewrote them all (`strip`, `patchelf`, as image builders do), and it is possible at most.

## What to do

1. Install the package again: `pip install --force-reinstall --no-deps PACKAGE==VERSION`.
2. Where packages for two CUDA versions share files, uninstall both, then install the one that torch demands.
3. `ftforensics libraries PID --verify` compares all files of torch and the CUDA packages with what was installed.

## Seen in the field

- pytorch/pytorch#147001: nvidia packages for CUDA 11 and 12 install to the same paths and overwrite each other.
- pytorch/pytorch#188892: an incomplete nvidia-cudnn-cu13, "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH".

## References

- Python Packaging User Guide, "Recording installed projects", RECORD
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.library_evidence import (
    ended_by_exception,
    frame_in,
    frames,
    is_bad_pointer,
    likely_if,
    mapped,
    nearest,
    no_stack,
    not_in_the_stack,
    own_fault,
    reinstall,
    reinstall_torch,
    signal_name_of,
    software_texts,
    stem,
    text_cites,
    where,
)
from ftforensics.causes.library_set import brings, set_name
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.model.software import BrokenFile, Pin, Software

KIND = Kind.CIRCUMSTANCE
ORDER = 23
REFINES = ("python-exception",)
CHANGES = ("package:torch", "package:nvidia-*", "image")
_REWRITTEN = 4  # this many libraries of wheels, and all of them, differ: that is no damage
_MOST = 6  # cites


def check(crash: Crash) -> Iterator[Finding]:
    broken = _broken(crash)
    if not own_fault(crash) or not broken:
        return
    frame = frame_in(crash, [one.path for one in broken])
    rewritten = _all_rewritten(crash)
    first = nearest(crash, broken, lambda one: one.path)
    against = [] if frame is not None else not_in_the_stack(crash, "one of these files")
    if rewritten:
        against.append(
            Cite("libraries", "sizes", "every library of every package differs: they were rewritten together")
        )
    yield Finding(
        cause="broken-install",
        confidence=likely_if(is_bad_pointer(crash) and not rewritten and (frame is not None or _unseen(crash, broken))),
        summary=(
            f"{signal_name_of(crash)} {'in' if frame is not None else 'with'} a damaged file of {first.package} "
            f"{first.version}: {_name(first)} ({first.how})."
        ),
        supports=[*_cites(broken), *([frame] if frame is not None else []), *where(crash)],
        against=[*crash.reading.against, *against],
        unknown=[*crash.reading.unknown, *_not_compared(crash.record.software), *no_stack(crash)],
        remedies=_remedies(broken, crash.record.software),
    )


def _broken(crash: Crash) -> list[BrokenFile]:
    """Libraries that differ from what was installed. One that was replaced after it was loaded is another matter: its
    package is not known then (see `drifted-cuda-library`)."""
    software = crash.record.software
    found = {}
    if software is not None and software.verified:
        found = {one.path: one for one in software.broken if ".so" in _name(one)}
    for library in crash.record.libraries or []:
        owner = f"{library.package} {library.version or ''}" if library.package else library.vendored_by
        if library.drifted and owner and library.origin == "wheel":
            package, _, version = owner.strip().partition(" ")
            version = version or _installed(software, package) or ""
            found.setdefault(library.path, BrokenFile(package, version, library.path, library.drifted))
    return list(found.values())


def _unseen(crash: Crash, broken: list[BrokenFile]) -> bool:
    """The stack is not known, and a damaged library was mapped: nothing leads elsewhere."""
    return not frames(crash) and any(one.path in mapped(crash) for one in broken)


def _name(broken: BrokenFile) -> str:
    return broken.path.rpartition("/")[2]


def _installed(software: Software | None, package: str) -> str | None:
    packages = software.packages if software is not None else []
    return next((one.version for one in packages if one.name == package), None)


def _all_rewritten(crash: Crash) -> bool:
    wheels = [one for one in crash.record.libraries or [] if one.origin == "wheel" and one.kind != "extension"]
    return len(wheels) >= _REWRITTEN and all(one.drifted for one in wheels)


def _not_compared(software: Software | None) -> list[Gap]:
    if software is not None and software.verified:
        return []
    return [Gap("files", "whether other files differ: only sizes were compared", "ftforensics libraries PID --verify")]


def _cites(broken: list[BrokenFile]) -> list[Cite]:
    listed = [Cite("files", one.path, f"{one.package} {one.version}: {one.how}") for one in broken[:_MOST]]
    more = len(broken) - len(listed)
    return [*listed, Cite("files", "RECORD", f"and {more} more")] if more > 0 else listed


def _remedies(broken: list[BrokenFile], software: Software | None) -> list[Remedy]:
    remedies = []
    for package, version in dict.fromkeys((one.package, one.version) for one in broken):
        if package == "torch" and (anew := reinstall_torch(software.torch if software else None)) is not None:
            remedies.append(anew)
        elif version:
            remedies.append(Remedy(f"Install {package} again", reinstall(package, version)))
        else:
            remedies.append(Remedy(f"Install {package} again, in the version that torch demands"))
    settles = Remedy("Compare every file with what was installed", "ftforensics check --verify", settles=True)
    return [*remedies[:3], settles]


def check_death(death: Death) -> Iterator[Finding]:
    """The loader does not find a library that a CUDA package brings."""
    texts = [one for one in software_texts(death, "library-missing") if set_name(stem(one)) not in (None, "PyTorch")]
    if not texts:
        return
    text = texts[-1]
    software = death.crash.record.software if death.crash is not None else None
    absent = _absent(software, set_name(stem(text)) or "")
    name = (text.library or "").rpartition("/")[2]
    yield Finding(
        cause="broken-install",
        confidence=likely_if(absent is not None and ended_by_exception(death, text)),
        summary=f"{name} could not be found"
        + (f": {absent.package} {absent.version}, which {absent.by} demands, is not installed." if absent else "."),
        supports=text_cites(death, [text]),
        unknown=[]
        if absent is not None
        else [
            Gap("files", "whether its package is whole, or another program asks for it", "ftforensics check --verify")
        ],
        remedies=[
            *([Remedy("Install what is missing", reinstall(absent.package, absent.version))] if absent else []),
            Remedy("See what is missing or damaged in this environment", "ftforensics check --verify", settles=True),
        ],
    )


def _absent(software: Software | None, what: str) -> Pin | None:
    for pin in software.pins if software is not None else []:
        if pin.installed is None and brings(pin.package, what):
            return pin
    return None
