"""The GPU driver is too old for the CUDA that torch was built for.

## What it means

A driver runs programs of its own CUDA version and of older ones, and within one major version also newer ones, from a
certain driver on (CUDA 11: 450.80.02; CUDA 12: 525.60.13; CUDA 13: 580). A torch of the next major version, or a driver
below that floor, does not work at all: CUDA's runtime refuses to start and says so.

## How it is told apart

torch or CUDA said it (error 35, "The NVIDIA driver on your system is too old (found version 12010)"), or the driver's
branch and the CUDA that torch was built for show it. The text makes it likely, where the process ended by an exception
or gave up; torch's warning only where the exception that ended the process is about the GPU too, because most programs
go on without one. The refusal is an error and no memory fault: a segmentation fault is explained by it only when it
happened inside CUDA's libraries, and otherwise it is possible at most. "found version 0" is no old driver but none
(`driver-library-missing`). A forward-compatibility package that raises the driver's level rules this out.

A driver that is older only within the major version is `driver-minor-window`.

## What to do

1. Install a torch that the driver can run; the report names the release, its companions and the index.
2. Or have the driver upgraded, to the version that the report names.
3. On data-center GPUs a forward-compatibility package (`cuda-compat-13-0`) does without a new kernel module.

## Seen in the field

- `pip install torch` since 2.11, which brings CUDA 13, on a driver of the 12 series (pytorch#162531, cugraph-gnn#410).

## References

- NVIDIA, "CUDA Compatibility"; CUDA Toolkit Release Notes, table of drivers
- c10/cuda/CUDAFunctions.cpp, the text; CUDA runtime API, cudaErrorInsufficientDriver (35)
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ftforensics.causes.cuda_stack import cuda_frame, elsewhere, gave_up, is_fault
from ftforensics.causes.cuda_text import Said, said, said_in_record, stands_for
from ftforensics.causes.driver_fit import (
    DriverFit,
    Fit,
    driver_fit,
    settling_run,
    torch_for_driver,
    uses_cuda,
)
from ftforensics.causes.ending import weaker
from ftforensics.causes.registry import Kind
from ftforensics.facts.driver import cuda_tuple
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord, Driver
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.launcher import StackText
from ftforensics.model.software import Software

ID = "driver-too-old"
KIND = Kind.CIRCUMSTANCE
ORDER = 40
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("driver", "package:torch")


def check(crash: Crash) -> Iterator[Finding]:
    if not is_fault(crash):
        return
    record = crash.record
    text = said_in_record(crash, _is_wanted)
    if text is not None:
        yield _said(text, record)
        return
    fit = driver_fit(record.software, record.driver, record.libraries)
    if not uses_cuda(record.driver, record.libraries):
        return
    if fit.bare is Fit.TOO_OLD and fit.compat and fit.fit is not Fit.TOO_OLD:
        cite = Cite("driver", "libcuda_path", f"a compatibility package in use raises the level to CUDA {fit.level}")
        yield _finding(record, fit, Confidence.RULED_OUT, list(fit.supports), [cite], [])
        return
    if fit.fit is not Fit.TOO_OLD:
        return
    inside, away = cuda_frame(crash), elsewhere(crash)
    supports = [*fit.supports, *([inside] if inside else [])]
    if inside is not None or (gave_up(crash) and away is None):
        yield _finding(record, fit, Confidence.LIKELY if inside else Confidence.POSSIBLE, supports, [], fit.unknown)
        return
    against = [away or Cite("crash", "signal", "CUDA refuses such a driver with an error, not by a memory fault")]
    yield _finding(record, fit, Confidence.POSSIBLE, supports, against, fit.unknown)


def check_death(death: Death) -> Iterator[Finding]:
    text = said(death, _is_wanted)
    if text is not None:
        yield _said(text, death.crash.record if death.crash else None)


def _is_wanted(text: StackText) -> bool:
    return stands_for(ID)(text) and (text.version is None or text.version > 0)


def _said(text: Said, record: CrashRecord | None) -> Finding:
    software, driver, libraries = (record.software, record.driver, record.libraries) if record else (None, None, None)
    found = next((one.version for one in text.texts if one.version), None)
    if found is not None and (driver is None or not driver.api_level):
        # The text is as good as asking libcuda: torch printed what cuDriverGetVersion said.
        driver = msgspec.structs.replace(driver or Driver(), api_level=found)
    fit = driver_fit(software, driver, libraries)
    confidence, against = text.confidence, list(text.against)
    if fit.fit in (Fit.EXACT, Fit.WINDOW):
        built = f"{fit.built} is of CUDA {fit.cuda} and {fit.driver_text}: that one is not refused, another one was"
        against.append(Cite("software", "torch", built))
        confidence = weaker(confidence, Confidence.POSSIBLE)
    unknown = [*text.unknown, *fit.unknown]
    return _finding(record, fit, confidence, [*text.supports, *fit.supports], against, unknown, driver)


def _finding(
    record: CrashRecord | None,
    fit: DriverFit,
    confidence: Confidence,
    supports: list[Cite],
    against: list[Cite],
    unknown: list[Gap],
    driver: Driver | None = None,
) -> Finding:
    software = record.software if record else None
    driver = driver or (record.driver if record else None)
    return Finding(
        cause=ID,
        confidence=confidence,
        summary=_summary(fit),
        supports=supports,
        against=against,
        unknown=unknown,
        remedies=_remedies(software, driver),
    )


def _summary(fit: DriverFit) -> str:
    name = f"The driver {fit.driver}" if fit.driver else "The driver"
    offers = f"{name} offers CUDA {fit.level}" if fit.level else f"{name} is too old"
    if fit.cuda is None:
        return f"{offers}, and torch was built for a newer CUDA." if fit.level else f"{offers} for torch's CUDA."
    if fit.level is None or cuda_tuple(fit.level)[0] == cuda_tuple(fit.cuda)[0]:
        floor = f", below the oldest driver for that ({fit.floor})" if fit.floor else ""
        return f"{offers}{floor}, and {fit.built} needs CUDA {fit.cuda}."
    return f"{offers}, and {fit.built} needs CUDA {fit.cuda}: another major version."


def _remedies(software: Software | None, driver: Driver | None) -> list[Remedy]:
    if driver is None:
        return [
            Remedy(
                "Install a torch that this driver can run: this prints the line for it",
                "ftforensics check --install torch",
            ),
            Remedy("Compare the driver's version with the CUDA that torch was built for", "nvidia-smi", settles=True),
        ]
    return [*torch_for_driver(software, driver), settling_run(software, driver)]
