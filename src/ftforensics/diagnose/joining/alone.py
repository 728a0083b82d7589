"""Ends of which one source alone tells: the person, a kernel's log, a container's own state, a log's last words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ftforensics.diagnose.joining.draft import Draft, Drafts
from ftforensics.diagnose.joining.log_texts import give_native, status_of
from ftforensics.diagnose.matching import locator
from ftforensics.model.basics import Cite
from ftforensics.model.case import Case
from ftforensics.model.exception import Raised
from ftforensics.model.kernel import Fault, KernelLog, OomKill
from ftforensics.model.launcher import ExceptionSeen, LauncherLog, SignalledBy
from ftforensics.model.notice import Notice
from ftforensics.parsers.cgroup_path import ancestry
from ftforensics.parsers.exception_subject import About, subject_of

SIGKILL, SIGSEGV = 9, 11
_OF_TERMINALS = ("1", "2")  # SIGHUP, SIGINT
_LONGEST_MESSAGE = 5  # lines of an exception's text below its first; torch adds four of advice to a CUDA error


def add_given(drafts: Drafts, case: Case) -> None:
    """What the person says about the end is taken for processes of which nothing else does."""
    if case.given_pid is not None and not drafts.of_pid(case.given_pid):
        drafts.add(Draft(pid=case.given_pid))
    alone = not len(drafts) and case.given_exit is not None
    if alone:
        # How it ended the person knows, and why its last words may say.
        last = _from_last_words(case) if case.given_exit == 1 else []
        for draft in [replace(one, code=None) for one in last] or [Draft()]:
            drafts.add(draft)
    _apply_given(drafts, case)
    for log in case.launcher_logs if alone else []:
        give_native(drafts, log)


def add_told_launchers(drafts: Drafts, logs: Sequence[LauncherLog]) -> None:
    """Where all that is known of the processes is that their launcher ended them: a terminal told torchrun's agent to,
    which names itself and raises (SignalException) what its main program does not catch. Not where anything else was
    raised, which may have come first; SIGTERM comes from whoever lost another process elsewhere, too."""
    if not len(drafts) or not all(draft.open and draft.ended_by and not draft.observed for draft in drafts):
        return
    raised = [(log, event) for log in logs for event in log.events if isinstance(event, ExceptionSeen)]
    if any(not event.peer_lost and not event.ignored and _signal_behind(event) is None for _, event in raised):
        return
    for log, event in raised:
        if event.line.writer is None or _signal_behind(event) not in _OF_TERMINALS or event.rank is not None:
            continue
        if not drafts.of_pid(event.line.writer):
            draft = drafts.add(Draft(pid=event.line.writer, code=status_of(event), exceptions=[event]))
            draft.when = event.line.moment
            # A traceback has no date; what the agent logged of ending its ranks, right before, may have.
            said = next((one.line for one in log.events if isinstance(one, SignalledBy)), event.line)
            draft.wall, draft.told_wall, draft.told_day = said.wall, said.wall, said.day
            draft.ending.append(Cite("launcher", f"{log.path or 'log'}:{event.line.number}", event.line.text))


def _signal_behind(event: ExceptionSeen) -> str | None:
    """Number of the signal that it was raised because of."""
    subject = subject_of(Raised(event.type, event.message))
    return subject.what if subject.about is About.SIGNAL else None


def add_whatever_is_known(drafts: Drafts, case: Case) -> None:
    """Where neither a process nor a launcher tells of an end."""
    if not len(drafts):
        last = _from_last_words(case)
        # A kernel's log is full of others: an exception that stopped the job, in its own log, tells more.
        own = last if any(not raised.peer_lost for one in last for raised in one.exceptions) else []
        known = (
            own
            or list(_from_kernel(case.kernel_logs, frozenset(case.of_other_attempts)))
            or _from_notices(case.notices)
            or last
        )
        for draft in known:
            drafts.add(draft)


def _apply_given(drafts: Iterable[Draft], case: Case) -> None:
    if case.given_exit is None:
        return
    unknown = [draft for draft in drafts if draft.open]
    if len(unknown) != 1:
        return
    draft = unknown[0]
    draft.given = True
    if case.given_exit < 0:
        draft.signal = -case.given_exit
        text = f"signal {-case.given_exit}"
    else:
        draft.code = case.given_exit
        text = f"status {case.given_exit}"
    draft.ending.append(Cite("given", "--exit-code", text))


def _from_kernel(logs: Sequence[KernelLog], others: frozenset[int]) -> Iterator[Draft]:
    """A kernel log alone: who it says was killed or faulted. others: pids of earlier attempts, which tell of them."""
    for log in logs:
        for event in log.events:
            if isinstance(event, OomKill) and event.pid not in others:
                draft = Draft(pid=event.pid, uid=event.uid, host=log.host, boot_id=log.boot_id, from_kernel=True)
                draft.signal = SIGKILL
                draft.groups = ancestry(event.victim_group) if event.victim_group else []
            elif isinstance(event, Fault) and event.tid not in others:
                draft = Draft(pid=event.tid, host=log.host, boot_id=log.boot_id, from_kernel=True)
                draft.signal = SIGSEGV if event.kind == "segfault" else None
            else:
                continue
            draft.names(event.comm)
            draft.when = event.line.moment
            draft.ending.append(Cite(log.source, locator(log, event.line), event.line.text[:200]))
            yield draft


def _from_last_words(case: Case) -> list[Draft]:
    """A job's output without a launcher in it that ends with a traceback: nobody caught that exception, and Python then
    ends with status 1 (Doc/library/sys.rst, sys.excepthook). Of several outputs each must say of which rank it is."""
    if case.left_out:
        return []
    found = [(log, raised) for log in case.launcher_logs if (raised := _last_raised(log)) is not None]
    if len(case.launcher_logs) > 1:
        found = [(log, raised) for log, raised in found if raised[-1].rank is not None]
    drafts = []
    for log, last, handed_on in (one for output, raised in found for one in _of_each_rank(output, raised)):
        draft = Draft(code=status_of(last), exceptions=[*handed_on, last], rank=last.rank)
        draft.when = last.line.moment
        where = f"{log.path or 'log'}:{last.line.number}"
        what = "a traceback" if draft.code == 1 else "a usage message"
        draft.ending.append(Cite("launcher", where, f"the log ends with {what}: {last.line.text}"))
        drafts.append(draft)
    return drafts


def _of_each_rank(
    log: LauncherLog, raised: Sequence[ExceptionSeen]
) -> Iterator[tuple[LauncherLog, ExceptionSeen, list[ExceptionSeen]]]:
    """The last exception, and where torch's hook wrote the rank before it, those that ended the other ranks: one that
    lost its peers may be the last to speak."""
    if raised[-1].rank is None:
        yield log, raised[-1], _before(raised[:-1], raised[-1])
        return
    for event in {event.rank: event for event in raised if event.rank is not None and not event.ignored}.values():
        own = [one for one in raised if one.rank == event.rank]
        yield log, event, _before(own[: own.index(event)], event)


def _before(printed: Sequence[ExceptionSeen], last: ExceptionSeen) -> list[ExceptionSeen]:
    """What `last` was raised from, and what a worker handed on."""
    found: list[ExceptionSeen] = []
    for before in reversed(printed):
        if not (last.chained or before.of_worker):
            break
        found.insert(0, before)
        last = before
    return found


def _last_raised(log: LauncherLog) -> list[ExceptionSeen] | None:
    seen = [event for event in log.events if isinstance(event, ExceptionSeen)]
    raised = [event for event in seen if event.peer_lost or not event.cut]
    ends = raised and not raised[-1].ignored and log.lines - raised[-1].line.number <= _LONGEST_MESSAGE
    return raised if ends else None


def _from_notices(notices: Sequence[Notice]) -> list[Draft]:
    """A container's or step's own end, where nothing else is known and only one ended badly."""
    bad = [one for one in notices if one.unit is not None and (one.exit_code or one.signal)]
    if len({one.unit for one in bad}) != 1:
        return []
    said = bad[-1]
    draft = Draft(host=said.host, signal=said.signal, code=None if said.signal else said.exit_code)
    draft.when = said.moment
    draft.ending.append(said.cite)
    return [draft]
