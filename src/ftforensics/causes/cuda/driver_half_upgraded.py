"""The driver was upgraded halfway: its kernel module and its libraries are of two versions.

## What it means

An NVIDIA driver is a kernel module and a set of libraries of exactly the same version. A package manager replaces the
libraries at once, but the old module stays in the kernel until it is unloaded or the machine restarts. In between no
new process can use the GPU; one that was running keeps the old libraries.

## How it is told apart

The version of the kernel's module differs from the one in the name of libcuda's or libnvidia-ml's file (and that is no
forward-compatibility package); or NVML said "Driver/library version mismatch"; or the kernel's log has
"NVRM: API mismatch" with both versions, near the end. That is likely; possible where the stack shows that the process
died in code that has nothing to do with CUDA, where a signal from outside ended it, or where the lines are older.

## What to do

1. Restart the machine, or stop everything that uses the GPU and load the modules anew:
   `rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia`.
2. Keep it from happening in the middle of a run: hold the driver's packages (`apt-mark hold`), or take them out of
   unattended upgrades.
3. In a container: the image must not bring driver libraries of its own; the container toolkit mounts the host's.

## Seen in the field

- Unattended upgrades overnight: running jobs go on, the next ones fail until the node restarts.
- Images with `libnvidia-compute` installed, on a node with another driver.

## References

- NVIDIA open-gpu-kernel-modules, "API mismatch"; NVML API, NVML_ERROR_LIB_RM_VERSION_MISMATCH (18)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_stack import elsewhere, is_fault
from ftforensics.causes.cuda_text import about_ending, said
from ftforensics.causes.driver_fit import half_upgraded
from ftforensics.causes.driver_notes import fits, mismatches
from ftforensics.causes.ending import ended_badly, ended_from_outside, is_about_gpu, line_cite, signal_of, weaker
from ftforensics.causes.registry import Kind
from ftforensics.causes.sizes import time_text
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death, DriverNoteMatch
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.launcher import StackText

ID = "driver-half-upgraded"
KIND = Kind.CIRCUMSTANCE
ORDER = 12
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("driver", "image")
_MISMATCH = 803


def check(crash: Crash) -> Iterator[Finding]:
    torn = half_upgraded(crash.record.driver, crash.record.libraries)
    if not is_fault(crash) or not torn:
        return
    away = elsewhere(crash)
    confidence = Confidence.POSSIBLE if away else Confidence.LIKELY
    yield _finding(confidence, torn, [away] if away else [])


def check_death(death: Death) -> Iterator[Finding]:
    record = death.crash.record if death.crash else None
    torn = half_upgraded(record.driver, record.libraries) if record else []
    notes = mismatches(death)
    text = said(death, _is_about_versions)
    if text is not None:
        torn += [one.cite for one in notes if fits(one) is not False]
        # Error 803 is a compatibility package's as well.
        plain = bool(torn) or any(one.kind == "driver-versions" for one in text.texts)
        confidence = text.confidence if plain else weaker(text.confidence, Confidence.POSSIBLE)
        gap = [] if plain else [Gap("driver", "the versions of its two halves", _COMPARE)]
        yield _finding(confidence, [*text.supports, *torn], text.against, [*text.unknown, *gap])
    elif notes and ended_badly(death):
        yield _noted(death, notes[0], torn)


def _is_about_versions(text: StackText) -> bool:
    return text.kind == "driver-versions" or (text.kind == "cuda-error" and text.code == _MISMATCH)


def _noted(death: Death, match: DriverNoteMatch, torn: list[Cite]) -> Finding:
    """The kernel's line names no process: monitoring that asks the GPU every minute is refused like everybody."""
    against: list[Cite] = []
    unknown: list[Gap] = []
    confidence = Confidence.LIKELY
    if match.before is None:
        unknown.append(Gap("kmsg", "when that was, compared with the end"))
        confidence = Confidence.POSSIBLE
    elif not fits(match):
        when = f"{time_text(abs(match.before))} {'before' if match.before > 0 else 'after'} the end"
        against.append(Cite(match.cite.source, match.cite.locator, f"that was {when}"))
        confidence = Confidence.POSSIBLE
    number = signal_of(death)
    if ended_from_outside(death):
        against.append(about_ending(death, "somebody sent the signal that ended it; no driver does that"))
        confidence = Confidence.POSSIBLE
    last = death.exceptions[-1] if death.exceptions and number is None else None
    if last is not None and not is_about_gpu(last):
        against.append(
            Cite("launcher", line_cite(last.line).locator, f"it ended after {last.type}: {last.message}"[:200])
        )
        confidence = Confidence.POSSIBLE
    if number is None and death.code is None:
        unknown.append(Gap("launcher", "how the process ended"))
        confidence = Confidence.POSSIBLE
    away = elsewhere(death.crash) if death.crash else None
    if away is not None:
        against.append(away)
        confidence = Confidence.POSSIBLE
    return _finding(confidence, [match.cite, *torn, *death.ending], against, unknown)


_COMPARE = "cat /sys/module/nvidia/version; ls -l /usr/lib/*/libcuda.so.* /usr/lib64/libcuda.so.*; nvidia-smi"


def _finding(
    confidence: Confidence, supports: list[Cite], against: list[Cite], unknown: list[Gap] | None = None
) -> Finding:
    return Finding(
        cause=ID,
        confidence=confidence,
        summary="The driver's kernel module and its libraries are of two versions: an upgrade is not finished.",
        supports=supports,
        against=against,
        unknown=unknown or [],
        remedies=[
            Remedy("Restart the machine: the module of the new version is loaded then", "sudo reboot"),
            Remedy(
                "Or load it anew while nothing uses the GPU",
                "sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
            ),
            Remedy(
                "In a container remove the driver libraries that the image brings; hold the driver's packages on nodes",
                "sudo apt-mark hold '*nvidia*'",
            ),
            Remedy("Compare the two versions: if they are equal, this was not the cause", _COMPARE, settles=True),
        ],
    )
