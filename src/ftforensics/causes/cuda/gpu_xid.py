"""The GPU reported an error under this process.

## What it means

The NVIDIA driver writes such events into the kernel's log as "Xid" with a number. Some say that the program's own GPU
code did something that it may not (13, 31: an access out of bounds; 43 and 45 are what follows). Others say that the
hardware or the driver failed: memory errors (48, 63, 64, 94, 95), a broken link (74), a GPU that is gone from the bus
(79), firmware that does not answer (119, 120).

## How it is told apart

The kernel's log names this process's pid, and the process ended within two minutes: likely. It is never proven: an Xid
ends no process by itself. The program meets it as a CUDA error, and then ends by an exception or gives up. Possible are
an event of long before; one of a GPU without a process's name, or with another's, when it is one of the hardware; one
whose time cannot be compared, unless the process itself spoke of the GPU at its end; one before a segmentation fault in
code that has nothing to do with CUDA, or before an end for which the program itself named another reason; and one of a
process that a signal from outside ended. An Xid 45 alone follows every end of a program that used the GPU: it is no
reason.

## What to do

1. 13, 31, 43: look for the mistake in the program. Run it once under `compute-sanitizer`, or with
   `CUDA_LAUNCH_BLOCKING=1`, which makes the Python line the right one. Several pids or nodes with the same number in
   one job speak for the program, one GPU over many jobs for that GPU.
2. 48, 63, 64, 79, 94, 95, 119, 120: take the node out, reset the GPU, run `dcgmi diag -r 3`.
3. 45: look for the Xid or the error before it.

## Seen in the field

- `torch.embedding` with an index past the table: Xid 31 or 13, then "an illegal memory access was encountered".
- 79 under load, with power or temperature behind it; the process then waits for the GPU until a watchdog ends it.

## References

- NVIDIA, "XID Errors" (https://docs.nvidia.com/deploy/xid-errors/)
- open-gpu-kernel-modules, kernel_rc.c: the pid is that of whoever made the channel
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ftforensics.causes.cuda_stack import elsewhere
from ftforensics.causes.cuda_text import about_ending
from ftforensics.causes.ending import (
    ended_badly,
    ended_from_outside,
    is_about_gpu,
    is_unseen,
    other_reason,
    rank_of,
    says_gpu,
    shortly_before,
    strength,
    weaker,
)
from ftforensics.causes.registry import Kind
from ftforensics.causes.sizes import time_text
from ftforensics.facts.xid import XidMeaning, xid_meaning
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.death import Death, Tie, XidMatch
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

ID = "gpu-xid"
KIND = Kind.CIRCUMSTANCE
ORDER = 38  # it is seldom known what made the GPU fail: what is known to be wrong in the process speaks first
REFINES = ("uncaught-cxx-exception", "python-exception", "cuda-error")
CHANGES = ("gpu", "driver", "kernel")
_LONG = 3600.0  # seconds from the event to the end; a program meets it at its next wait for the GPU
_CLEARED_AWAY = 45
_FOLLOWING = (43, 45, 154)  # what comes after another event
_APPLICATION, _HARDWARE, _DRIVER = "application", "hardware", "driver"


class _Weighed(msgspec.Struct, frozen=True):
    match: XidMatch
    meaning: XidMeaning | None
    confidence: Confidence
    against: list[Cite]
    unknown: list[Gap]


def check_death(death: Death) -> Iterator[Finding]:
    if not ended_badly(death):
        return
    weighed = [found for match in death.xids if (found := _weigh(death, match)) is not None]
    off_bus = [one for one in death.driver_notes if one.note.kind == "fallen-off-bus" and shortly_before(one.before)]
    if not weighed:
        if off_bus:
            yield _off_bus(death, [one.cite for one in off_bus])
        return
    best = min(weighed, key=_order)
    others = [one for one in weighed if one is not best and rank_of(one.confidence) <= rank_of(best.confidence)]
    yield Finding(
        cause=ID,
        confidence=best.confidence,
        summary=_summary(best),
        supports=[
            best.match.cite,
            *(best.match.match.why if best.match.match else []),
            *(one.match.cite for one in others[:3]),
            *(one.cite for one in off_bus[:1]),
            *death.ending,
        ],
        against=best.against,
        unknown=best.unknown,
        remedies=_remedies(best.meaning),
    )


def _order(weighed: _Weighed) -> tuple[int, bool, bool, float]:
    number = weighed.match.xid.number
    before = weighed.match.before
    # Of several the first one is the reason, and what follows another event comes last.
    return (
        rank_of(weighed.confidence),
        number in _FOLLOWING,
        weighed.match.match is None,
        -before if before is not None else 0.0,
    )


def _weigh(death: Death, found: XidMatch) -> _Weighed | None:
    meaning = xid_meaning(found.xid.number) if found.xid.number is not None and not found.xid.switch else None
    if found.match is None:
        return _of_the_machine(found, meaning)
    if found.before is not None and found.before > _LONG:
        return None
    sent = ended_from_outside(death)
    if sent and found.xid.number in _FOLLOWING:
        return None  # a killed process leaves them
    confidence = weaker(strength(found.match.tie, found.match.against), Confidence.LIKELY)
    against, unknown = list(found.match.against), []
    doubts = [*_doubts(death, found, meaning)]
    if sent:
        doubts.append(about_ending(death, "somebody sent the signal that ended it; an Xid does not"))
    if found.before is None:
        unknown.append(Gap("kmsg", "how long before the end that was"))
        # Pids are given out again; what bears an Xid out is no signal but the process's own words about the GPU.
        if found.match.tie is not Tie.EXACT and not (found.match.sure and _speaks_of_gpu(death)):
            confidence = Confidence.POSSIBLE
    if is_unseen(death):
        unknown.append(Gap("launcher", "how the process ended"))
        confidence = Confidence.POSSIBLE
    if doubts or found.xid.line.forgeable:
        confidence = Confidence.POSSIBLE
    return _Weighed(found, meaning, confidence, [*against, *doubts], unknown)


def _speaks_of_gpu(death: Death) -> bool:
    raised = any(is_about_gpu(one) for one in death.exceptions)
    return raised or any(says_gpu(one.message or "") for one in death.texts)


def _doubts(death: Death, found: XidMatch, meaning: XidMeaning | None) -> Iterator[Cite]:
    if found.before is not None and not shortly_before(found.before):
        when = f"{time_text(abs(found.before))} {'before' if found.before > 0 else 'after'} the end"
        yield Cite(found.cite.source, found.cite.locator, f"that was {when}")
    if meaning is None:
        yield Cite("facts", "Xid", "what this number means is not known here")
    elif found.xid.number == _CLEARED_AWAY:
        yield Cite("facts", "Xid 45", "it follows the end of any program that used the GPU")
    elif not meaning.ends:
        yield Cite("facts", f"Xid {meaning.number}", "it ends no program")
    away = elsewhere(death.crash) if death.crash is not None else None
    # The program meets its own mistake as an error of CUDA's; of broken hardware it may learn in many ways.
    if away is None and meaning is not None and meaning.blame == _APPLICATION:
        away = other_reason(death)
    if away is not None:
        yield away


def _of_the_machine(found: XidMatch, meaning: XidMeaning | None) -> _Weighed | None:
    """An event that is not tied to this process: of another one, or of a GPU that nobody is named for."""
    hardware = found.xid.switch or (meaning is not None and meaning.blame != _APPLICATION and meaning.ends)
    if not hardware or not shortly_before(found.before) or found.xid.number in _FOLLOWING:
        return None
    whose = f"it names pid {found.xid.pid}" if found.xid.pid is not None else "it names no process"
    return _Weighed(found, meaning, Confidence.POSSIBLE, [Cite(found.cite.source, found.cite.locator, whose)], [])


def _summary(weighed: _Weighed) -> str:
    number, meaning = weighed.match.xid.number, weighed.meaning
    tied = "under this process" if weighed.match.match is not None else "on this machine"
    if weighed.match.xid.switch:
        return f"An NVSwitch of this machine reported an error (SXid {number})."
    if meaning is None:
        return f"The GPU driver reported an error {tied}{f' (Xid {number})' if number is not None else ''}."
    said = f"{meaning.title} (Xid {number})"
    if meaning.blame == _APPLICATION:
        return f"The GPU stopped this program's work: {said}; as a rule a mistake in its GPU code, no broken hardware."
    if meaning.blame == _HARDWARE:
        return f"The GPU's hardware failed {tied}: {said}."
    if meaning.blame == _DRIVER:
        return f"The GPU's driver or firmware failed {tied}: {said}."
    return f"The GPU reported an error {tied}: {said}."


def _remedies(meaning: XidMeaning | None) -> list[Remedy]:
    advice = [Remedy(meaning.advice.rstrip("."))] if meaning is not None else []
    if meaning is not None and meaning.blame == _APPLICATION:
        return [
            Remedy("Run once so that each kernel is waited for", "CUDA_LAUNCH_BLOCKING=1 python ..."),
            *advice,
            Remedy(
                "Run a small input under NVIDIA's checker: it names the kernel and the address; if it finds nothing, "
                "try another GPU",
                "compute-sanitizer --tool memcheck python ...",
                settles=True,
            ),
        ]
    return [
        *advice,
        Remedy(
            "Have the GPU tested: if it passes and the error stays with the program on another GPU, it was not the "
            "hardware",
            "nvidia-smi -q -d ECC,ROW_REMAPPER; dcgmi diag -r 3",
            settles=True,
        ),
    ]


def _off_bus(death: Death, cites: list[Cite]) -> Finding:
    return Finding(
        cause=ID,
        confidence=Confidence.POSSIBLE,
        summary="A GPU of this machine fell off the PCIe bus.",
        supports=[*cites[:2], *death.ending],
        against=[Cite(cites[0].source, cites[0].locator, "it names no process")],
        remedies=_remedies(xid_meaning(79)),
    )
