"""An installed release is known to crash like this.

## What it means

Some releases of compiled packages have a fault that their authors found and mended: numba before 0.63 with a driver of
branch 580 or later, sentencepiece 0.1.92, pyarrow 17.0.0 on aarch64. Nothing in the job is wrong; another release cures
it.

## How it is told apart

By a table of releases, each with its source. It is likely the cause when the stack shows the function or the library
that the report names, and the report leaves no other explanation; otherwise it is possible. A stack that is known as a
whole and does not show it excludes it. An entry that depends on the driver counts only where the driver is known.

## What to do

1. Install a release outside the range that the finding names.
2. `ftforensics check` lists such releases before a run.

## Seen in the field

- numba/numba#10188: `cuCtxGetDevice_v2` called through ctypes dies on driver 580; a new driver and an old package.
- google/sentencepiece#505: an address near 0x7fff00000000 in c10's LogAPIUsageFakeReturn, sentencepiece 0.1.92.
- apache/arrow#44342: jemalloc in pyarrow 17.0.0 on aarch64.

## References

- `ftforensics facts known-bad`: the table, with the source of every row
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.library_evidence import (
    find_frame,
    frames,
    likely_if,
    no_stack,
    own_fault,
    signal_name_of,
    where,
)
from ftforensics.causes.library_set import is_cuda_or_torch
from ftforensics.causes.registry import Kind
from ftforensics.facts.known_bad import KnownBad, matching
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash, PythonFrame
from ftforensics.model.diagnosis import Confidence, Finding, Frame, Remedy
from ftforensics.model.software import Package

KIND = Kind.CIRCUMSTANCE
ORDER = 32
CHANGES = ("package:numba", "package:sentencepiece", "package:pyarrow", "package:triton", "package:nvidia-nccl*")
_LONGEST = 200  # characters of a version; more is no version, and costs time to compare


def check(crash: Crash) -> Iterator[Finding]:
    if not own_fault(crash):
        return
    driver = crash.record.driver.module_version if crash.record.driver else None
    driver = driver if driver and len(driver) <= _LONGEST else None
    machine = crash.record.job.machine if crash.record.job else None
    found = [
        _finding(crash, package, entry, shown)
        for package in _packages(crash)
        for entry in matching(package.name, package.version, driver=driver, machine=machine)
        if (shown := _shown(crash, entry.module)) is not None or not _excluded(crash, entry)
    ]
    yield from sorted(found, key=lambda one: one.confidence is not Confidence.LIKELY)[:1]


def _packages(crash: Crash) -> list[Package]:
    """What is installed; where that is not known, the packages of the mapped libraries."""
    listed = crash.record.software.packages if crash.record.software else []
    if listed:
        return [one for one in listed if len(one.version) <= _LONGEST]
    pairs = {(one.package, one.version) for one in crash.record.libraries or [] if one.how == "record"}
    return [
        Package(name, version)
        for name, version in sorted(pairs, key=str)
        if name and version and len(version) <= _LONGEST
    ]


def _excluded(crash: Crash, entry: KnownBad) -> bool:
    """The whole stack is known, and what the report shows is not in it. A frame without a name could be the one that is
    meant only in a library of CUDA's or torch's."""
    cut = crash.record.native is not None and crash.record.native.complete is False
    # Where a null or wild pointer led lies in no library.
    named = all(one.function or not is_cuda_or_torch(one.library) for one in crash.native if one.library)
    return entry.module is not None and bool(crash.native) and not cut and named


def _finding(crash: Crash, package: Package, entry: KnownBad, shown: Cite | None) -> Finding:
    against = []
    if entry.module and shown is None and frames(crash):
        against.append(Cite("crash", "native.frames", f"{entry.module} is not in the stack"))
    unknown = [] if entry.module else [Gap("facts", "whether this crash is that one: no frame would tell")]
    return Finding(
        cause="known-bad-version",
        confidence=likely_if(shown is not None and entry.sure),
        summary=f"{signal_name_of(crash)}; {package.name} {package.version} is known for it: {entry.symptom}.",
        supports=[
            Cite("software", f"packages[{package.name}]", f"{package.name} {package.version} is installed"),
            Cite(
                "facts", f"known_bad[{entry.id}]", f"{entry.package} {entry.versions}: {entry.symptom} ({entry.source})"
            ),
            *([Cite("crash", "driver.module_version", _driver(crash, entry))] if entry.driver else []),
            *([shown] if shown is not None else []),
            *where(crash),
        ],
        against=[*crash.reading.against, *against],
        unknown=[*crash.reading.unknown, *unknown, *(no_stack(crash) if entry.module else [])],
        remedies=[
            Remedy(f"Use {entry.fix}", entry.command),
            Remedy(
                f"Run once with another release of {package.name}. If it still dies, this was not the cause",
                settles=True,
            ),
        ],
    )


def _driver(crash: Crash, entry: KnownBad) -> str:
    return f"driver {crash.record.driver.module_version if crash.record.driver else '?'} is in {entry.driver}"


def _shown(crash: Crash, module: str | None) -> Cite | None:
    """A frame whose function or file has `module` in it."""
    if module is None:
        return None

    def fits(frame: Frame) -> bool:
        return module in (frame.function or "") or module in (frame.library or "")

    native = find_frame(crash, fits)
    if native is not None:
        return native
    for index, line in enumerate(crash.python):
        if _python_shows(line, module):
            return Cite("crash", f"python.frames[{index}]", f"{line.file}:{line.line} in {line.function}")
    return None


def _python_shows(line: PythonFrame, module: str) -> bool:
    return module in (line.file or "") or module == line.function
