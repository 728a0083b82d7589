"""What an exception that nobody caught is worth as the reason of an end, and how a sentence tells of it: shared by
`python-exception` and the causes that refine it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ftforensics.causes.blame import is_library_code
from ftforensics.causes.ending import asked_to_end, rank_of, seconds_before_end, weaker
from ftforensics.causes.kept import kept
from ftforensics.causes.raised import (
    OWN_HOOKS,
    WENT_ON,
    OwnException,
    left_by,
    own_exception,
    place_text,
    said,
    short_type,
)
from ftforensics.causes.sizes import time_text
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.exception import Raised
from ftforensics.model.moment import Moment
from ftforensics.parsers.exception_subject import About, Subject, subject_of

REFINED = "python-exception"
_STATUS = 1  # of a Python that ends by an exception (Doc/library/sys.rst, sys.excepthook)
_SEEN_FROM_OUTSIDE = ("launcher", "run")  # whose word on the status counts; the record's own is no second witness


class Uncaught(msgspec.Struct, frozen=True):
    """An exception and what speaks for and against its having ended the process. confidence: of that."""

    own: OwnException
    subject: Subject
    confidence: Confidence
    supports: list[Cite]
    against: list[Cite] = []
    unknown: list[Gap] = []

    @property
    def failure(self) -> Raised:
        return self.own.failure


@kept
def uncaught(death: Death) -> Uncaught | None:
    """None where no exception ended this process, or only the news of another one's end did."""
    own = own_exception(death)
    if own is None or own.peer_lost:
        return None
    confidence, against, unknown = _weigh(death, own)
    if own.place is None:
        unknown.append(Gap("exception", "where it was raised", "ftforensics run -- COMMAND..."))
    return Uncaught(own, subject_of(own.failure), confidence, [*own.cites, *death.ending], against, unknown)


def _weigh(death: Death, own: OwnException) -> tuple[Confidence, list[Cite], list[Gap]]:
    against: list[Cite] = []
    unknown: list[Gap] = []
    confidence = Confidence.LIKELY
    if own.thread is not None:
        against.append(Cite("exception", own.cites[0].locator, f"it ended thread {own.thread}: others go on"))
        confidence = Confidence.POSSIBLE
    elif left_by(death) is not None:
        return confidence, against, unknown  # its main program was over: what came then is no other reason
    elif death.code is None:
        why = "the exit status: somebody may have caught the exception"
        unknown.append(Gap("launcher", why, "ftforensics run -- COMMAND..."))
        confidence = Confidence.LIKELY if own.recorded else Confidence.POSSIBLE
    elif death.code != _STATUS:
        told = death.ending[0] if death.ending else Cite("launcher", "ending", "")
        text = f"the status is {death.code}, and Python's after an exception that nobody caught is {_STATUS}"
        against.append(Cite(told.source, told.locator, text))
        confidence = Confidence.LIKELY if own.recorded else Confidence.POSSIBLE
    elif own.recorded and own.hook in OWN_HOOKS and _is_seen_from_outside(death):
        confidence = Confidence.PROVEN
    late = _went_on(death, own)
    if late is not None:
        against.append(late)
        confidence = weaker(confidence, Confidence.LIKELY if own.recorded else Confidence.POSSIBLE)
    told_to = _told_to_end(death)
    if told_to:
        # A program that handles SIGTERM may raise because of it.
        against += told_to
        confidence = weaker(confidence, Confidence.POSSIBLE)
    return confidence, against, unknown


def _is_seen_from_outside(death: Death) -> bool:
    if death.given or death.code != _STATUS:
        return False
    return death.watched or any(cite.source in _SEEN_FROM_OUTSIDE for cite in death.ending)


def _went_on(death: Death, own: OwnException) -> Cite | None:
    """Did the process live on for long after that?"""
    before = seconds_before_end(death, _moment(death, own))
    if before is None or before <= WENT_ON:
        return None
    return Cite(own.cites[-1].source, own.cites[-1].locator, f"it went on for {time_text(before)} after that")


def _moment(death: Death, own: OwnException) -> Moment:
    if own.recorded:
        time = death.raised.time if death.raised is not None else None
        return Moment(time.realtime, time.monotonic, 0.0, time.boot_id) if time is not None else Moment()
    last = next((one for one in reversed(death.exceptions) if not one.ignored), None)
    return last.line.moment if last is not None else Moment()


def _told_to_end(death: Death) -> list[Cite]:
    """Was it asked to end before it raised?"""
    asked = [one.cite for one in asked_to_end(death)]
    return asked[:1] or [one.cite for one in death.ended_by if one.signal is not None][:1]


def refinement(death: Death, about: About) -> Uncaught | None:
    """The exception, where it is about this. Words decide only together with who raised it: with no frame known they
    are possible at most."""
    found = uncaught(death)
    if found is None or found.subject.about is not about:
        return None
    confidence = found.confidence
    unknown = list(found.unknown)
    if found.subject.uncertain or (not found.subject.by_type and not found.failure.frames):
        confidence = weaker(confidence, Confidence.POSSIBLE)
    return msgspec.structs.replace(found, confidence=confidence, unknown=unknown)


def raised_by_own_code(raised: Raised) -> bool:
    """Is the innermost frame one of the program's own code?"""
    file = raised.frames[-1].file if raised.frames else None
    return file is not None and not is_library_code(file)


def raised_below(raised: Raised, *parts: str) -> bool:
    """Is the innermost frame in a file of one of these libraries ("/torch/")?"""
    file = (raised.frames[-1].file if raised.frames else None) or ""
    return any(part in file for part in parts)


def sentence(found: Uncaught) -> str:
    """ "RuntimeError: loss is NaN at step 5, raised at train.py:88 in train_step"."""
    own = found.own
    place = f", raised at {place_text(own.place)}" if own.place is not None else ""
    where = " in a data loader's worker" if own.of_worker else f" in thread {own.thread}" if own.thread else ""
    where = f" in Ray's worker process {own.task_pid}" if own.task_pid is not None else where
    after = f" (what it ended with then: {short_type(own.raised)})" if own.failure is not own.raised else ""
    return f"{said(own.failure).rstrip('.')}{place}{where}{after}"


def finding(
    found: Uncaught,
    cause: str,
    what: str | None = None,
    *,
    confidence: Confidence | None = None,
    against: Iterable[Cite] = (),
    unknown: Iterable[Gap] = (),
    remedies: Iterable[Remedy] = (),
) -> Finding:
    """what: a sentence's beginning that says it in plain words; behind it stands the exception."""
    chosen = found.confidence if confidence is None else max(confidence, found.confidence, key=rank_of)
    told = sentence(found)
    return Finding(
        cause=cause,
        confidence=chosen,
        summary=f"{what}: {told}." if what else f"{told}.",
        supports=list(found.supports),
        against=[*found.against, *against],
        unknown=[*found.unknown, *unknown],
        remedies=list(remedies),
    )
