"""What `ftforensics run` saw of the processes below it: their wait statuses and times.

Several runs may have written into one folder, on one machine and at once. A process belongs to the run that reaped it,
or below whose command it stood; what another run saw is not about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ftforensics.diagnose.clocks import Clocks, clocks_of_run
from ftforensics.diagnose.joining.draft import Draft, Drafts
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.run import Died, RunEvidence
from ftforensics.parsers.cgroup_path import memory_path
from ftforensics.sources.identity_here import INITIAL_PID_NAMESPACE

SIGKILL = 9
_TRACE = "as root, without --no-trace: ftforensics run -- COMMAND"
_OUR_PROCESSES = ("ftf-copier", "ftf-log", "ftf-witness")  # of `run`: supervise/{copier,launcher_log,witness}.py
_DATA_WORKER = "pt_data_worker"  # torch/utils/data/_utils/worker.py names its process so


def add_runs(drafts: Drafts, runs: Sequence[RunEvidence]) -> None:
    # One whose first line is lost names no boot: what is then left is its own.
    for run in sorted(runs, key=lambda run: run.started is None):
        _add_run(drafts, run)
    for run in runs:
        if run.started is not None:
            several = sum(_boot(other) == _boot(run) for other in runs) > 1
            _claim(drafts, run, several)


def _add_run(drafts: Drafts, run: RunEvidence) -> None:
    started = run.started
    clocks = clocks_of_run(run)
    initial = None
    if started is not None and started.pid_namespace is not None:
        initial = started.pid_namespace == INITIAL_PID_NAMESPACE
    group = memory_path(started.cgroup) if started else None
    for died in run.died:
        if _is_ours(died):
            continue
        draft = _of_died(drafts, died, run)
        bad = died.signal is not None or died.code not in (None, 0)
        if draft is None:
            if not bad:
                continue
            draft = drafts.add(Draft(pid=died.pid))
        elif not bad and died.status is not None and draft.crash is None:
            drafts.remove(draft)  # it ended well, whatever its ring lacks
            continue
        _apply_died(draft, died, run, clocks)
        draft.run = run.path
        draft.boot_id = draft.boot_id or _boot(run)
        draft.host = draft.host or (started.host if started else None)
        draft.initial = initial if initial is not None else draft.initial
        draft.traced = _was_traced(run, died.at)
        if died.signal == SIGKILL and not draft.traced and not any(gap.source == "trace" for gap in run.gaps):
            draft.gaps.append(Gap("trace", "signals were not traced: who sent it is not seen", _TRACE))
        draft.run_group = group
        if not draft.groups and group is not None:
            draft.place(died.cgroup or (started.cgroup if started else []))
        drafts.learnt(draft)


def _claim(drafts: Drafts, run: RunEvidence, several: bool) -> None:
    """The rings of processes whose end this run did not see. several: there are runs besides it on that boot, so that
    only what stood below its command is its own."""
    started, group = run.started, None
    assert started is not None
    group = memory_path(started.cgroup)
    below = _Below(drafts, run)
    for draft in drafts:
        if draft.ring is None or draft.watched or draft.run is not None or draft.boot_id != started.boot_id:
            continue
        if several and draft not in below:
            continue
        draft.run = run.path
        draft.run_group = draft.run_group or group
        draft.traced = draft.traced or _was_traced(run, draft.ring.last)


class _Below:
    """The processes below a run's command, by the parents that rings and the run itself name."""

    def __init__(self, drafts: Drafts, run: RunEvidence) -> None:
        self._drafts = drafts
        started = run.started
        own = (started.pid, started.child) if started is not None else ()
        self._pids = {pid for pid in own if pid is not None}
        self._pids |= {died.pid for died in run.died}
        self._boot = _boot(run)

    def __contains__(self, draft: Draft) -> bool:
        seen = set[int]()
        waiting = [draft]
        while waiting:
            one = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if one.ppid in self._pids or one.pid in self._pids:
                return True
            waiting += [parent for parent in self._drafts.of_pid(one.ppid) if parent.boot_id == self._boot]
        return False


def _boot(run: RunEvidence) -> str | None:
    return run.started.boot_id if run.started else None


def _is_ours(died: Died) -> bool:
    """One of the processes that this tool starts beside a job (capture.reporter.command): the supervisor inherits what
    has no parent, and a slow one ends by its own alarm. A run inside the run ends its own."""
    if not died.direct and died.comm in _OUR_PROCESSES:
        return True
    if died.direct or len(died.argv) < 4 or died.argv[1] != "-I":
        return False
    return died.argv[2:4] == ["-m", "ftforensics"] or "from ftforensics.cli import main" in died.argv[3]


def _was_traced(run: RunEvidence, at: float | None) -> bool:
    """Were senders of signals traced at that time? Arming takes a moment, in which a short job may be over."""
    started = run.started
    if started is None or not started.traced or at is None:
        return False
    return started.at is not None and at > started.at


def _of_died(drafts: Drafts, died: Died, run: RunEvidence) -> Draft | None:
    """By a number that the process itself knows: the supervisor sees its number outside, and those inside. The same
    start says more than that nothing speaks against it."""
    fitting = None
    for pid in dict.fromkeys((died.pid, *died.nspid)):
        for draft in drafts.of_pid(pid):
            if draft.pid not in (died.pid, *died.nspid):
                continue
            if not draft.may_be_of(run.started.host if run.started else None, _boot(run)):
                continue
            if None not in (draft.start_ticks, died.start_ticks):
                if draft.start_ticks == died.start_ticks:
                    return draft
            elif not draft.watched and fitting is None:  # a wait status is collected once, for each use of a number
                fitting = draft
    return fitting


def _apply_died(draft: Draft, died: Died, run: RunEvidence, clocks: Clocks) -> None:
    draft.nspid = list(died.nspid) or draft.nspid
    if died.pid not in draft.nspid:
        draft.nspid = [died.pid, *draft.nspid]
    draft.watched = died.status is not None
    draft.start_ticks = draft.start_ticks or died.start_ticks
    draft.ppid = draft.ppid or died.ppid
    draft.uid = died.uid if draft.uid is None else draft.uid
    draft.rank = died.rank if draft.rank is None else draft.rank
    draft.local_rank = died.local_rank if draft.local_rank is None else draft.local_rank
    draft.attempt = died.attempt if draft.attempt is None else draft.attempt
    draft.names(died.comm)
    if died.comm == _DATA_WORKER:
        draft.worker = True
        adopted = run.started is not None and died.ppid == run.started.pid  # it outlived its rank
        draft.worker_of = draft.worker_of or (None if adopted else died.ppid)
    if died.cgroup:
        draft.place(died.cgroup)
    draft.usage = died.usage
    if len(died.cpu_limit) == 2:
        draft.cpu_soft, draft.cpu_hard = (limit if limit >= 0 else None for limit in died.cpu_limit)
    draft.direct = died.direct
    draft.when = clocks.at(died.at)
    if died.status is not None:
        draft.contradict(died.signal, died.code, "its parent")
        draft.signal, draft.code, draft.presumed = died.signal, died.code, False
        how = f"signal {died.signal}" if died.signal is not None else f"status {died.code}"
        draft.ending.insert(0, Cite("run", f"{run.path or 'evidence.jsonl'} pid {died.pid}", f"it ended with {how}"))
