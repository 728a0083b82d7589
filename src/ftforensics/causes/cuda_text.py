"""What CUDA's own error texts say about an end. An error number names the cause by its definition; whether the process
died of it depends on how it ended, and on whether the text was an exception or only a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ftforensics.causes.cuda_stack import cuda_frame, elsewhere, gave_up
from ftforensics.causes.ending import (
    SIGABRT,
    ended_badly,
    ended_from_outside,
    is_about_gpu,
    line_cite,
    other_reason,
    signal_of,
)
from ftforensics.causes.stack_said import stack_said
from ftforensics.facts.cuda_errors import cuda_error
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence
from ftforensics.model.launcher import NativeText, StackText, TextLine
from ftforensics.parsers.stack_message import in_native

Wanted = Callable[[StackText], bool]
_WENT_ON = "it went on after that"


class Said(msgspec.Struct, frozen=True):
    """Texts of one kind in this process's output, and what they are worth. confidence: LIKELY or POSSIBLE."""

    texts: list[StackText]
    confidence: Confidence
    supports: list[Cite]
    against: list[Cite] = []
    unknown: list[Gap] = []


def stands_for(cause: str) -> Wanted:
    """CUDA errors whose number stands for this cause."""

    def wanted(text: StackText) -> bool:
        error = cuda_error(text.code) if text.kind == "cuda-error" and text.code is not None else None
        return error is not None and error.cause == cause

    return wanted


def said(death: Death, wanted: Wanted, *, faults: bool = False) -> Said | None:
    """What the output of a process that ended badly says. faults: a library that goes on after this error may well end
    by a memory fault; of the others an exception or an abort is the way."""
    if not ended_badly(death):
        return None
    texts = [one for one in stack_said(death) if wanted(one)]
    return _weigh(death, texts, faults) if texts else None


def said_in_record(crash: Crash, wanted: Wanted) -> Said | None:
    """The same of the exception that the record holds: a C++ one that nobody caught ends the process by itself."""
    exception = crash.record.cxx_exception
    if exception is None or not exception.what or not gave_up(crash):
        return None
    line = TextLine(exception.what[:300], 0)
    texts = [one for one in in_native(NativeText(line, "cxx-exception", None, exception.what)) if wanted(one)]
    if not texts:
        return None
    return Said(texts, Confidence.LIKELY, [Cite("crash", "cxx_exception", line.text)])


def _weigh(death: Death, texts: list[StackText], faults: bool) -> Said:
    supports = [*_cites(texts), *death.ending]
    number = signal_of(death)
    if ended_from_outside(death):
        against = [about_ending(death, "somebody sent the signal that ended it; no error of CUDA's does that")]
        return Said(texts, Confidence.POSSIBLE, supports, against)
    if number is None and death.code is None:
        return Said(texts, Confidence.POSSIBLE, supports, unknown=[Gap("launcher", "how the process ended")])
    if number is None or number == SIGABRT:
        return _of_an_error(death, texts, supports)
    return _of_a_fault(death, texts, supports, faults)


def _of_an_error(death: Death, texts: list[StackText], supports: list[Cite]) -> Said:
    """It ended with a status of its own, or gave up. After a warning most programs go on, on the CPU, and after what a
    library printed some do: that is the reason where the exception that ended it is about the GPU too."""
    printed = any(one.form not in ("exception", "what", "warning") for one in texts)
    other = other_reason(death) if signal_of(death) is not None else None
    if other is not None and all(one.form != "what" for one in texts):
        return Said(texts, Confidence.POSSIBLE, supports, [other])
    last = death.exceptions[-1] if death.exceptions and signal_of(death) is None else None
    if any(one.form in ("exception", "what") for one in texts) or (printed and last is None):
        return Said(texts, Confidence.LIKELY, supports)
    if last is None:
        return Said(texts, Confidence.POSSIBLE, supports, [about_ending(death, _WENT_ON)])
    caught = any(one.line.number == last.line.number for one in texts)
    if is_about_gpu(last) and not caught:
        return Said(texts, Confidence.LIKELY, supports)
    text = _WENT_ON if caught else f"{_WENT_ON}, and ended after {last.type}: {last.message}"[:200]
    return Said(texts, Confidence.POSSIBLE, supports, [Cite("launcher", line_cite(last.line).locator, text)])


def _of_a_fault(death: Death, texts: list[StackText], supports: list[Cite], faults: bool) -> Said:
    crash = death.crash
    away = elsewhere(crash) if crash is not None else None
    if away is not None:
        return Said(texts, Confidence.POSSIBLE, supports, [away])
    inside = cuda_frame(crash) if crash is not None else None
    if inside is not None:
        return Said(texts, Confidence.LIKELY, [*supports, inside])
    unknown = [Gap("crash", "where it died", None if crash is not None else "ftforensics run -- COMMAND...")]
    if faults and any(one.form != "warning" for one in texts):
        return Said(texts, Confidence.LIKELY, supports, unknown=unknown)
    against = [about_ending(death, "such an error is reported as one; a memory fault is not how it shows")]
    return Said(texts, Confidence.POSSIBLE, supports, against, unknown)


def about_ending(death: Death, text: str) -> Cite:
    """What the way in which it ended says, with the place that tells it."""
    told = death.ending[0] if death.ending else Cite("launcher", "ending", "")
    return Cite(told.source, told.locator, text)


def _cites(texts: Iterable[StackText]) -> list[Cite]:
    """The first three of them: all ranks tend to print the same."""
    return [line_cite(one.line) for one in list(texts)[:3]]
