"""Joins what all sources say into one `Death` for each process that ended.

A crash record, a recorder ring, an exception record, the supervisor's `died`, a launcher's line and a kernel record may
be about the same process. They are joined by pid, start time, boot and rank (`diagnose.joining`); what cannot be joined
stays a death of its own. The cost grows with the number of traces: ten thousand ranks take seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from ftforensics.diagnose.counters import Counters
from ftforensics.diagnose.gpu_events import GpuEvents
from ftforensics.diagnose.joining.alone import add_given, add_told_launchers, add_whatever_is_known
from ftforensics.diagnose.joining.draft import Draft, Drafts
from ftforensics.diagnose.joining.family import Family, Together
from ftforensics.diagnose.joining.kernel import KernelWord, one_record_one_death
from ftforensics.diagnose.joining.launcher import add_ends_of_one, add_logs
from ftforensics.diagnose.joining.peers import with_peers
from ftforensics.diagnose.joining.records import add_crashes, add_error_files, add_exceptions, add_rings
from ftforensics.diagnose.joining.supervised import add_runs
from ftforensics.diagnose.joining.workers import attribute_workers
from ftforensics.diagnose.outside import Outsiders
from ftforensics.diagnose.roles import with_roles
from ftforensics.diagnose.stack_texts import with_stack_texts
from ftforensics.model.basics import Cite
from ftforensics.model.case import Case, Crash
from ftforensics.model.death import Death
from ftforensics.model.mechanism import MechanismReading

SIGKILL = 9


def build_deaths(case: Case, crashes: Sequence[Crash]) -> list[Death]:
    """Every death of the case, in the order in which they were found. A process that ended well is none."""
    drafts = Drafts()
    add_crashes(drafts, crashes)
    add_rings(drafts, case.rings)
    add_exceptions(drafts, case.exceptions)
    add_runs(drafts, case.runs)
    add_logs(drafts, case.launcher_logs)
    add_error_files(drafts, case.exceptions)
    attribute_workers(drafts, case.launcher_logs)
    kernel = KernelWord(case.kernel_logs)
    add_ends_of_one(drafts, case.launcher_logs, lambda draft, number: _is_named(kernel, draft, number))
    add_told_launchers(drafts, case.launcher_logs)
    add_given(drafts, case)
    add_whatever_is_known(drafts, case)
    return _finish(case, list(drafts), kernel)


def _is_named(kernel: KernelWord, draft: Draft, number: int) -> bool:
    """Does the kernel say of this process that it ended by that signal?"""
    ended = dataclasses.replace(draft, signal=number, code=None)
    told = kernel.tell(_death(ended), ended)
    return any(one.match.sure for one in told.oom) if number == SIGKILL else bool(told.faults)


def _finish(case: Case, drafts: Sequence[Draft], kernel: KernelWord) -> list[Death]:
    deaths = [_death(draft) for draft in drafts]
    family = Family(deaths)
    told = [kernel.tell(_orphaned(death, family), draft) for draft, death in zip(drafts, deaths, strict=True)]
    gpu_events = GpuEvents(case.kernel_logs)
    told = [gpu_events.tell(death) for death in one_record_one_death(told)]
    told = with_stack_texts(with_roles(told), case.launcher_logs)
    told = with_peers([_with_reboot(death, case) for death in told])
    outsiders = Outsiders(told, case.runs, case.notices)
    counters = Counters(case)
    together = Together(death for death in told if death.signal == SIGKILL)
    return [_with_surroundings(death, outsiders, counters, together) for death in told]


def _with_surroundings(death: Death, outsiders: Outsiders, counters: Counters, together: Together) -> Death:
    last, changes = counters.changes(death)
    return msgspec.structs.replace(
        death,
        signals=outsiders.signals(death),
        sent=outsiders.sent(death),
        notices=outsiders.notices(death),
        last_reading=last,
        counters=changes,
        died_together=max(together.count(death.when) + (death.signal != SIGKILL), 1),
    )


def _orphaned(death: Death, family: Family) -> Death:
    found = family.parent_that_died_before(death)
    return death if found is None else msgspec.structs.replace(death, parent_died=found[0], parent_cite=found[1])


def _death(draft: Draft) -> Death:
    pids = list(dict.fromkeys([pid for pid in (draft.pid, *draft.nspid) if pid is not None]))
    initial = draft.initial
    if initial is False:
        host_pids: list[int] = []  # the kernel's number for it is not known
    elif draft.watched and draft.nspid:
        host_pids = draft.nspid[:1]  # as seen from the supervisor's namespace: outermost first
    else:
        host_pids = pids
    if draft.from_kernel:
        initial, host_pids = True, pids
    return Death(
        pid=draft.pid,
        host=draft.host,
        boot_id=draft.boot_id,
        rank=draft.rank,
        local_rank=draft.local_rank,
        world_size=draft.world_size,
        attempt=draft.attempt,
        worker_of=draft.worker_of,
        comms=draft.comms,
        uid=draft.uid,
        host_pids=host_pids,
        initial_namespace=initial,
        container=draft.container,
        groups=draft.groups,
        start_ticks=draft.start_ticks,
        signal=draft.signal,
        code=draft.code,
        ending=list(dict.fromkeys(draft.ending)),
        given=draft.given,
        watched=draft.watched,
        when=draft.when,
        failed=draft.failed,
        earliest=draft.earliest,
        wall=draft.wall,
        told_wall=draft.told_wall,
        told_day=draft.told_day,
        usage=draft.usage,
        crash=draft.crash,
        ring=draft.ring,
        ring_path=draft.ring_path,
        raised=draft.raised,
        raised_path=draft.raised_path,
        alive=draft.alive,
        reading=draft.crash.reading if draft.crash else MechanismReading(),
        ended_by=draft.ended_by,
        exceptions=draft.exceptions,
        unowned=draft.unowned,
        texts=draft.texts,
        traced=draft.traced,
        worker=draft.worker,
        first=draft.first,
        direct=draft.direct,
        run=draft.run,
        ppid=draft.ppid,
        cpu_limit_soft=draft.cpu_soft,
        cpu_limit_hard=draft.cpu_hard,
        from_kernel=draft.from_kernel,
        gaps=draft.gaps,
    )


def _with_reboot(death: Death, case: Case) -> Death:
    """The machine it ran on has been started again, and nobody saw the end."""
    if death.signal is not None or death.code is not None or death.ring is None:
        return death
    if None in (death.boot_id, case.boot_id, case.host) or death.boot_id == case.boot_id or death.host != case.host:
        return death
    cite = Cite("boot", "/proc/sys/kernel/random/boot_id", f"{case.boot_id} now, {death.boot_id} then")
    after = None
    if case.booted is not None and death.earliest.realtime is not None:
        after = case.booted - death.earliest.realtime
    return msgspec.structs.replace(death, rebooted=cite, rebooted_after=after)
