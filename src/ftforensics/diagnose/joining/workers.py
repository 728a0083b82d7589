"""A data worker's death is attributed to the rank that it worked for."""

from __future__ import annotations

from collections.abc import Sequence

from ftforensics.diagnose.joining.draft import Draft, Drafts
from ftforensics.model.basics import Cite
from ftforensics.model.launcher import ExceptionSeen, LauncherLog, ProcessDied
from ftforensics.parsers.launcher_dataloader import DataLoaderReader
from ftforensics.parsers.launcher_line import JobLine


def attribute_workers(drafts: Drafts, logs: Sequence[LauncherLog]) -> None:
    for log in logs:
        _by_traceback(drafts, log)
    for draft in [one for one in drafts if one.raised is not None]:
        _by_record(drafts, draft)
    for draft in drafts:
        if draft.worker and draft.worker_of is None and draft.ppid not in (None, 1):
            draft.worker_of = draft.ppid
        if draft.worker_of is not None:
            _of_parent(drafts, draft)


def _by_traceback(drafts: Drafts, log: LauncherLog) -> None:
    """The rank raises "DataLoader worker (pid 4711) is killed by signal", under its own label."""
    told: dict[int, list[int]] = {}
    for event in log.events:
        if isinstance(event, ProcessDied) and event.worker and event.pid is not None:
            told.setdefault(event.line.number, []).append(event.pid)
    if not told:
        return
    reports = [one for one in log.events if isinstance(one, ExceptionSeen) and one.worker_pid is not None]
    ranks = {event.line.number: event.rank for event in reports if event.rank is not None}
    here = {id(event) for event in reports}
    raisers: dict[int, Draft] = {}
    for draft in drafts:
        for raised in draft.exceptions:
            if id(raised) in here:
                raisers.setdefault(raised.line.number, draft)
    for number, pids in told.items():
        parent = raisers.get(number)
        for worker in (one for pid in pids for one in drafts.of_pid(pid) if one.worker and one is not parent):
            if parent is not None:
                _attribute(drafts, worker, parent)
            elif number in ranks and worker.rank is None:
                worker.rank = ranks[number]
                drafts.learnt(worker)


def _by_record(drafts: Drafts, parent: Draft) -> None:
    """torch's words for a worker's end, where the rank's own record has them and perhaps no log."""
    for link in parent.raised.exceptions if parent.raised is not None else []:
        for event in DataLoaderReader().read(JobLine(link.message, 0)):
            if not isinstance(event, ProcessDied):
                continue
            alike = [one for one in drafts.of_pid(event.pid) if one.may_be_of(parent.host, parent.boot_id)]
            worker = next((one for one in alike if one is not parent), None)
            if worker is None:
                worker = drafts.add(Draft(pid=event.pid, worker=True, boot_id=parent.boot_id, initial=parent.initial))
                worker.names("pt_data_worker", "python")
            worker.worker = True
            if worker.open:
                worker.signal, worker.code = event.signal, event.code
                worker.ending.append(Cite("exception", parent.raised_path or "", link.message[:300]))
            _attribute(drafts, worker, parent)


def _of_parent(drafts: Drafts, worker: Draft) -> None:
    for parent in drafts.of_pid(worker.worker_of):
        if parent is not worker and not parent.worker and parent.may_be_of(worker.host, worker.boot_id):
            _attribute(drafts, worker, parent)
            return


def _attribute(drafts: Drafts, worker: Draft, parent: Draft) -> None:
    if None not in (worker.rank, parent.rank) and worker.rank != parent.rank:
        return
    if worker.worker_of is None:
        worker.worker_of = parent.pid
    worker.rank = parent.rank if worker.rank is None else worker.rank
    worker.local_rank = parent.local_rank if worker.local_rank is None else worker.local_rank
    worker.host = worker.host or parent.host
    drafts.learnt(worker)
