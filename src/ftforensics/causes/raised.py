"""The Python exception that ended a process, whoever told of it: its own record, torchrun's error file, or the log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.blame import is_library_code
from ftforensics.causes.ending import FAULTS, SIGTERM, line_cite, seconds_before_end, signal_of
from ftforensics.causes.kept import kept
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death
from ftforensics.model.exception import ExceptionRecord, Raised, RaisedFrame
from ftforensics.model.launcher import ExceptionSeen
from ftforensics.model.moment import Moment
from ftforensics.parsers.exception_subject import About, subject_of
from ftforensics.parsers.launcher_dataloader import workers_of
from ftforensics.parsers.peer_lost import says_peer_lost
from ftforensics.parsers.quoted_traceback import is_of_data_worker, is_only_a_quotation, quoted_traceback

_THREAD = "threading.excepthook"
# What the process's main thread was seen with when it ended. torchrun's own file names a rank, not a process.
OWN_HOOKS = ("sys.excepthook", "torchrun record", "multiprocessing")
WENT_ON = 120.0  # seconds; a process that goes down is gone by then, unless it hangs at its end
_LAUNCHERS_SEND = (1, 2, 3, 9, 15)
_GOING_DOWN = ("exiting", "finalized")  # of a crash record's process.python
# What a process raises that was asked to end; SignalException is torchrun's agent's, SIGTERMException Lightning's.
_ASKED = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "SignalException", "SIGTERMException"})
# A launcher's exception about the process that it started says nothing of its own end.
_ABOUT_A_CHILD = frozenset({"ChildFailedError", "ProcessRaisedException", "ProcessExitedException"})
_LAUNCHERS = ("/torch/distributed/", "/accelerate/commands/", "/deepspeed/launcher/", "/torch/multiprocessing/")
# Looked up and not found: where something else was raised because of that, that says what was wanted.
_NOT_FOUND = frozenset({
    "KeyError", "AttributeError", "IndexError", "StopIteration", "StopAsyncIteration", "LookupError", "Empty", "Full",
})  # fmt: skip
# Tried, failed, and then done another way: such an exception is the occasion of what the other way raised.
_TRIED = frozenset({"ImportError", "ModuleNotFoundError", "EntryNotFoundError", "LocalEntryNotFoundError"})
_WITHIN = 200  # lines between the first failure and what a process's threads and handlers print on its way out
_LONGEST = 300  # characters of a message in a sentence


class OwnException(msgspec.Struct, frozen=True):
    """raised: what ended it; origin: what that came from ("cause" and "context"), nearest first, so that the first
    failure is the last; place: the innermost frame of the program's own code, else the innermost; recorded: by the
    process itself (an authority), not only read in a log; peer_lost: it only says that another process went away.

    failure: the one to name: the first failure, unless that was only the occasion for trying another way; hook: where
    the record saw it; cites: the record's or the log's lines, the failure's first."""

    raised: Raised
    origin: list[Raised] = []
    place: RaisedFrame | None = None
    recorded: bool = False
    peer_lost: bool = False
    of_worker: bool = False  # a DataLoader's worker raised it and the rank handed it on
    task_pid: int | None = None  # Ray's worker process whose task raised it; this process asked for the result
    cites: list[Cite] = []
    hook: str | None = None
    thread: str | None = None  # it ended this thread, and the process may have gone on

    @property
    def failure(self) -> Raised:
        return _failure([self.raised, *self.origin])

    @property
    def name(self) -> str:
        """The type of what ended it, without its module."""
        return short_type(self.raised)


def short_type(raised: Raised) -> str:
    """The type without its module, as Python's users know it."""
    return raised.type.rpartition(".")[2] or raised.type


@kept
def own_exception(death: Death) -> OwnException | None:
    """The exception with which this process ended: not caught, not only reported (a destructor's), not a launcher's
    about another process. Where a signal or a crash ended it, what was raised before that is context, unless the main
    program was over with it (`left_by`).

    The exit status is the caller's to weigh: Python ends with 1 after one that nobody caught, and a traceback before
    another status may be of one that somebody caught and logged.
    """
    if death.alive:
        return None
    if death.crash is not None or signal_of(death) is not None:
        return left_by(death)
    if death.code == 0 and death.signal is None:
        return None
    return raised_before_the_end(death)


def signal_answered(death: Death) -> tuple[int, list[Cite]] | None:
    """(the signal, who says so) that made the process end itself with a status: what it raised last is what Python or
    a launcher makes of a signal."""
    if death.alive or death.crash is not None or death.signal is not None or death.code in (None, 0):
        return None
    own = raised_before_the_end(death)
    subject = subject_of(own.raised) if own is not None and own.thread is None else None
    if own is None or subject is None or subject.about is not About.SIGNAL or subject.what is None:
        return None
    return int(subject.what), own.cites[-1:]


@kept
def left_by(death: Death) -> OwnException | None:
    """The exception with which the main program was over when a signal ended the process. Until a process is gone it
    waits for its threads, for as long as they like, and is taken down; then its launcher may have stopped it because
    the others miss it, or it may crash on the way. None where it may have raised because it was asked to end."""
    number = signal_of(death)
    if number is None or death.alive or death.oom:
        return None
    own = raised_before_the_end(death)
    if own is None or own.thread is not None or own.name in _ASKED:
        return None
    if number in FAULTS:
        return own if _is_going_down(death, own) and _nobody_caught(death, own) else None
    roles = [one.sender_role for one in death.sent] + [one.sender_role for one in death.signals]
    by_launcher = bool(death.ended_by) or "launcher" in roles
    if number not in _LAUNCHERS_SEND or not by_launcher or not _nobody_caught(death, own):
        return None
    return own if _was_raised_before_it_was_asked(death, own) else None


def _is_going_down(death: Death, own: OwnException) -> bool:
    """By the crash's record, else by the time: a program may call the hook to print something, and go on."""
    if death.crash is not None:
        process = death.crash.record.process
        return process is not None and process.python in _GOING_DOWN
    time = death.raised.time if own.recorded and death.raised is not None else None
    if not own.recorded:
        return True
    moment = Moment(time.realtime, time.monotonic, 0.0, time.boot_id) if time is not None else Moment()
    before = seconds_before_end(death, moment)
    return before is not None and 0 <= before <= WENT_ON


def _nobody_caught(death: Death, own: OwnException) -> bool:
    if own.recorded:
        return own.hook in OWN_HOOKS
    return any(one.uncaught and line_cite(one.line) == own.cites[-1] for one in death.exceptions)


def _was_raised_before_it_was_asked(death: Death, own: OwnException) -> bool:
    """By the clock, else by the order in a log that has both. Where neither tells: SIGTERM ends a process without a
    word, and one that answers it by an exception ends with a status."""
    time = death.raised.time if own.recorded and death.raised is not None else None
    asked = [one.sent.at for one in death.sent if not one.by_kernel and one.sent.signal in _LAUNCHERS_SEND]
    asked += [one.signal.at for one in death.signals if one.signal.number in _LAUNCHERS_SEND]
    if time is not None and time.monotonic is not None and asked:
        return time.monotonic < min(asked)
    raised = [one.line for one in death.exceptions if not one.ignored and one.type == own.raised.type]
    orders = [
        line.number < said.number
        for said in death.ended_by
        for line in raised
        if said.number is not None and said.path == line.path
    ]
    return all(orders) if orders else death.signal == SIGTERM


def raised_before_the_end(death: Death) -> OwnException | None:
    """The same of a process that something else may have ended afterwards."""
    recorded = _from_record(death.raised, death.raised_path) if death.raised is not None else None
    if recorded is not None and recorded.thread is None:
        return recorded
    seen = _from_log(death.exceptions)
    if recorded is None or (seen is not None and seen.raised.type != recorded.raised.type):
        return seen
    return recorded


def _from_record(record: ExceptionRecord, path: str | None) -> OwnException | None:
    chain = [one for one in record.exceptions if not is_only_a_quotation(one.type)]
    if not chain:
        return None
    of_worker = is_of_data_worker(chain[0].message)
    quoted = quoted_traceback(chain[0].message) if of_worker else []
    if not quoted:
        quotations = (one for one in record.exceptions if is_only_a_quotation(one.type))
        quoted = _same_exception(chain[0], [found for one in quotations for found in quoted_traceback(one.message)])
    if quoted:
        # The rank's own type is the qualified one; message and place are the worker's.
        chain = [msgspec.structs.replace(quoted[0], type=_qualified(chain[0], quoted[0])), *quoted[1:]]
    if any(_is_about_a_child(one) for one in chain):
        return None
    failure = _failure(chain)
    first = record.exceptions[0]
    judged = record.peer_lost if failure is first else None
    peer_lost = judged if judged is not None else _is_lost(failure) or _says_why(chain, failure)
    peer_lost = peer_lost or any(workers_of(one.message) for one in chain)
    where = path or "exception record"
    cites = [
        Cite("exception", f"{where} exceptions[{_index(record.exceptions, one)}]", _text(one))
        for one in (failure, chain[0])
    ]
    return OwnException(
        chain[0],
        chain[1:],
        _place_of(failure, chain),
        recorded=True,
        peer_lost=peer_lost,
        of_worker=of_worker,
        cites=list(dict.fromkeys(cites)),
        hook=record.hook,
        thread=record.thread or ("a thread" if record.hook == _THREAD else None),
    )


def _index(chain: Sequence[Raised], raised: Raised) -> int:
    return next((index for index, one in enumerate(chain) if one is raised), 0)


def _same_exception(raised: Raised, quoted: list[Raised]) -> list[Raised]:
    """What a pool's child raised, when that is what its parent raised again."""
    return quoted if quoted and short_type(quoted[0]) == short_type(raised) else []


def _qualified(raised: Raised, quoted: Raised) -> str:
    return raised.type if short_type(raised) == short_type(quoted) else quoted.type


def _from_log(exceptions: Sequence[ExceptionSeen]) -> OwnException | None:
    told = [one for one in exceptions if not one.ignored]
    groups = _chains(told)
    if not groups:
        return None
    group = _last_group(groups)
    if any(_is_about_a_child(_as_raised(one)) for one in group):
        return None
    of_worker = group[0].of_worker
    shown = [one for one in group if not is_only_a_quotation(one.type)] or group
    shown = shown[1:] if of_worker and len(shown) > 1 else shown
    chain = [_as_raised(one, after) for one, after in zip(reversed(shown), [None, *reversed(shown)], strict=False)]
    failure = _failure(chain)
    event = shown[len(shown) - 1 - _index(chain, failure)]
    cites = [line_cite(event.line), line_cite(shown[-1].line)]
    return OwnException(
        chain[0],
        chain[1:],
        _place_of(failure, chain),
        peer_lost=event.peer_lost or any(one.worker_pid is not None for one in group),
        of_worker=of_worker,
        task_pid=event.task_pid,
        cites=list(dict.fromkeys(cites)),
    )


def _last_group(groups: list[list[ExceptionSeen]]) -> list[ExceptionSeen]:
    """The one that ended the process: what torch's hook printed of it, which sees what nobody caught; else the last."""
    uncaught = [group for group in groups if group[-1].uncaught]
    if uncaught:
        return uncaught[-1]
    group = groups[-1]
    for earlier in reversed(groups[:-1]):
        # A thread that loses its connection while the process goes down prints after what took it down.
        if not _lost_in_log(group) or _lost_in_log(earlier) or group[0].line.number - earlier[-1].line.number > _WITHIN:
            break
        group = earlier
    return group


def _chains(told: Sequence[ExceptionSeen]) -> list[list[ExceptionSeen]]:
    """Tracebacks that belong together, in the order in which they were printed: the first failure first. One that
    hands on another's is followed by that."""
    groups: list[list[ExceptionSeen]] = []
    for one in told:
        before = groups[-1][-1] if groups else None
        if before is not None and before.line.path == one.line.path and (one.chained or _hands_on(before)):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _hands_on(seen: ExceptionSeen) -> bool:
    return seen.of_worker or short_type(_as_raised(seen)) == "ProcessRaisedException"


def _lost_in_log(group: list[ExceptionSeen]) -> bool:
    return all(one.peer_lost for one in group)


def _as_raised(seen: ExceptionSeen, after: ExceptionSeen | None = None) -> Raised:
    """after: the one that was raised from it."""
    known = seen.file is not None or seen.function is not None
    innermost = [RaisedFrame(seen.file, seen.file_line, seen.function)] if known else []
    frames = seen.frames or innermost
    link = None if after is None else "context" if after.handling else "cause"
    return Raised(seen.type, seen.message, frames, link)


def _is_about_a_child(raised: Raised) -> bool:
    if short_type(raised) in _ABOUT_A_CHILD:
        return True
    files = [frame.file or "" for frame in raised.frames]
    in_launcher = any(part in file for file in files for part in _LAUNCHERS)
    return short_type(raised) == "CalledProcessError" and in_launcher


def _innermost_file(raised: Raised) -> str | None:
    return raised.frames[-1].file if raised.frames else None


def _says_why(chain: Sequence[Raised], failure: Raised) -> bool:
    """Was an exception that exists to report another process's end raised from this failure on purpose? Then that is
    what the failure was, in the words of who knows. What came up while the failure was handled says nothing of it."""
    between = chain[1 : [one is failure for one in chain].index(True) + 1]
    return all(one.link == "cause" for one in between) and any(_is_lost(one) for one in chain[: len(between)])


def _is_lost(raised: Raised) -> bool:
    return says_peer_lost(raised.type, raised.message, _innermost_file(raised))


def _failure(chain: Sequence[Raised]) -> Raised:
    """The first failure of a chain (what ended the process stands first), unless that was only a question that had no
    for an answer, or a first try."""
    found = chain[0]
    for one in chain[1:]:
        name = short_type(one)
        if name not in _NOT_FOUND and (one.link != "context" or name not in _TRIED):
            found = one
    return found


def _place(raised: Raised) -> RaisedFrame | None:
    own = (frame for frame in reversed(raised.frames) if frame.file and not is_library_code(frame.file))
    return next(own, raised.frames[-1] if raised.frames else None)


def _place_of(failure: Raised, chain: Sequence[Raised]) -> RaisedFrame | None:
    place = _place(failure)
    if place is not None and not is_library_code(place.file or ""):
        return place
    return _caller(failure, chain) or place or _place(chain[0])


def _caller(failure: Raised, chain: Sequence[Raised]) -> RaisedFrame | None:
    """The program's own code that called the library in which the failure was caught. A traceback begins where its
    exception was caught; what was raised there instead went on through the callers, and its traceback has them."""
    caught = failure
    for one in reversed(chain[: [one is failure for one in chain].index(True)]):
        if not caught.frames:
            return None
        where = caught.frames[0]
        same = [
            at for at, frame in enumerate(one.frames) if (frame.file, frame.function) == (where.file, where.function)
        ]
        if not same:
            return None
        own = (frame for frame in reversed(one.frames[: same[0]]) if frame.file and not is_library_code(frame.file))
        found = next(own, None)
        if found is not None:
            return found
        caught = one
    return None


def _text(raised: Raised) -> str:
    return f"{raised.type}: {raised.message}"[:_LONGEST].rstrip(": ")


# --- words for a sentence ---------------------------------------------------------------------------------------------


def said(raised: Raised) -> str:
    """ "RuntimeError: loss is NaN at step 5", on one line and bounded; the type without its module. Of several lines
    the first one, and the next where that ends in a colon."""
    lines = [line for line in raised.message[:4096].split("\n") if line.strip()]
    first = lines[:2] if lines and lines[0].rstrip().endswith(":") else lines[:1]
    message = " ".join(" ".join(first).split())
    if len(message) > _LONGEST:
        message = message[: _LONGEST - 3].rstrip() + "..."
    name = " ".join(short_type(raised).split())[:200]
    return f"{name}: {message}" if message else name


def place_text(place: RaisedFrame) -> str:
    """ "train.py:88 in train_step", as far as known."""
    file = " ".join((place.file or "").rpartition("/")[2].split())[:200] or "?"
    line = f":{place.line}" if place.line is not None else ""
    function = " ".join((place.function or "").split())[:200]
    return f"{file}{line}" + (f" in {function}" if function and function != "<module>" else "")
