"""Adds what this machine can still say about a case: its kernel log, counters, journal, scheduler.

Only where the case is of this machine's present boot (counters: of the same container too), and only where somebody
ended without a word: a crash record says itself how its process ended. Of a process with a GPU's driver loaded the
kernel's log is asked all the same: what the GPU met, only the driver's lines there tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.host.host import Host
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseRing
from ftforensics.model.kernel import KernelLog
from ftforensics.model.notice import Notice
from ftforensics.model.reading import Reading
from ftforensics.parsers.library_name import kind_of
from ftforensics.sources.containers import read_container
from ftforensics.sources.counters import read_counters
from ftforensics.sources.identity_here import Identity, read_identity, same_boot, same_groups, same_machine
from ftforensics.sources.journal import read_journal
from ftforensics.sources.kernel_log import read_kernel_logs
from ftforensics.sources.slurm import read_slurm_accounting

BEFORE = 10.0  # seconds before the last sign of life that a log must reach back
BEFORE_ON_GPU = 600.0  # the same for a process that used a GPU: a fault of the GPU may take minutes to end it
UNTIL = 120.0  # seconds after it in which somebody may have spoken about the end
_FEW_MACHINES = 4  # that are told one by one
END_OF_CALENDARS = 253402300800.0  # seconds since the epoch: the year 10000


class _Subject(msgspec.Struct, frozen=True):
    """One origin of evidence. last: seconds since the epoch of the last sign of life."""

    boot_id: str | None
    host: str | None
    container: str | None
    cgroup: list[str]
    cgroup_namespace: int | None
    last: float | None
    environment: list[str]


def with_live(case: Case, host: Host) -> Case:
    """The case with this machine's own evidence and the gaps of asking for it. Takes up to a minute where commands
    hang; nothing at all when every process of the case left a record and none used a GPU."""
    subjects = list(_subjects(case))
    on_gpu = list(_on_gpu(case))
    identity = read_identity(host)
    case = msgspec.structs.replace(case, boot_id=identity.boot_id, host=identity.host, booted=_booted(host))
    if not subjects and not on_gpu:
        return _said_why(case)
    logs: list[KernelLog] = []
    gaps: list[Gap] = []
    notices: list[Notice] = []
    here: list[_Subject] = []
    elsewhere: list[tuple[str | None, Gap]] = []
    restarted: list[_Subject] = []
    for one in subjects:
        gap = same_boot(identity, one.boot_id, one.host)
        if gap is None:
            here.append(one)
            continue
        elsewhere.append((one.host, gap))
        if one.boot_id and one.host == identity.host:
            restarted.append(one)
    gaps += _said_together(elsewhere)
    on_gpu = [one for one in on_gpu if same_boot(identity, one.boot_id, one.host) is None]
    for group in ([*here, *on_gpu], restarted):
        if group:
            found, refused = read_kernel_logs(host, boot_id=group[0].boot_id, since=_since(group))
            logs += found
            gaps += refused
    if here:
        since = _since(here)
        until = max(_last_signs(here), default=host.now()) + UNTIL
        said, refused = read_journal(host, since if since is not None else host.now() - 3600, min(until, host.now()))
        notices += said
        gaps += refused
    for container in dict.fromkeys(one.container for one in here):
        said, refused = read_container(host, container, identity)
        notices += said
        gaps += refused
    readings = _readings(here, identity, host, gaps)
    notices += _slurm(subjects, host, gaps)
    return msgspec.structs.replace(
        case,
        kernel_logs=[*case.kernel_logs, *logs],
        notices=[*case.notices, *notices],
        readings=[*case.readings, *readings],
        gaps=list(dict.fromkeys([*case.gaps, *gaps])),
    )


def _said_together(elsewhere: Sequence[tuple[str | None, Gap]]) -> list[Gap]:
    """One gap a machine, and of a job on a thousand machines one for all."""
    gaps = list(dict.fromkeys(gap for _, gap in elsewhere))
    if len(gaps) <= _FEW_MACHINES:
        return gaps
    hosts = [host for host in dict.fromkeys(host for host, _ in elsewhere) if host]
    named = ", ".join(hosts[:_FEW_MACHINES])
    why = f"it was written on {len(hosts) or len(gaps)} machines, none of them this one, or before this one's last boot"
    return [Gap("machine", f"{why}: {named} ..." if named else why, "run ftforensics analyze on the one concerned")]


def _booted(host: Host) -> float | None:
    """Seconds since the epoch; a time that the machine was suspended since makes it too late."""
    now = host.moment()
    return now.realtime - now.monotonic if now.realtime is not None and now.monotonic is not None else None


def _said_why(case: Case) -> Case:
    """Texts alone name no boot: nothing that is true here now says anything about them."""
    if case.records or case.rings or case.runs or not (case.launcher_logs or case.kernel_logs):
        return case
    gap = Gap("this machine", "the logs name no boot, so they may be another machine's; nothing live of it was used")
    return msgspec.structs.replace(case, gaps=[*case.gaps, gap])


def _subjects(case: Case) -> Iterator[_Subject]:
    recorded = {(one.record.process.pid, one.record.process.start_ticks) for one in case.records if one.record.process}
    for one in case.rings:
        process = one.ring.process
        if one.alive or one.ring.end.how is not None or (process.pid, process.start_ticks) in recorded:
            continue
        namespace, last = process.cgroup_namespace, _wall(one)
        yield _Subject(process.boot_id, process.host, process.container, process.cgroup, namespace, last, [])
    for run in case.runs:
        started = run.started
        if started is None or not any(died.signal is not None or died.code for died in run.died):
            continue
        last = run.ended.clocks.realtime if run.ended is not None else started.clocks.realtime
        namespace, environment = started.cgroup_namespace, list(started.environment)
        yield _Subject(started.boot_id, started.host, started.container, started.cgroup, namespace, last, environment)


def _on_gpu(case: Case) -> Iterator[_Subject]:
    """Crashed processes that had the driver loaded. For their kernel log only."""
    for one in case.records:
        time, job = one.record.time, one.record.job
        paths = [module.path for module in one.record.modules or []]
        paths += [library.path for library in one.record.libraries or []]
        if time is None or job is None or not any(kind_of(path) == "libcuda" for path in paths):
            continue
        last = time.realtime - BEFORE_ON_GPU + BEFORE if time.realtime is not None else None
        yield _Subject(time.boot_id, job.host, None, [], None, last, [])


def _wall(one: CaseRing) -> float | None:
    if one.ring.last is None or not one.ring.clocks:
        return None
    pair = one.ring.clocks[-1]
    return pair.realtime + (one.ring.last - pair.monotonic)


def _since(subjects: Sequence[_Subject]) -> float | None:
    known = _last_signs(subjects)
    return min(known) - BEFORE if known else None


def _last_signs(subjects: Sequence[_Subject]) -> list[float]:
    """A file that is damaged may name a time that is in no calendar: then it names none."""
    return [one.last for one in subjects if one.last is not None and 0 <= one.last < END_OF_CALENDARS]


def _readings(here: Sequence[_Subject], identity: Identity, host: Host, gaps: list[Gap]) -> list[Reading]:
    readings = []
    asked: set[tuple[str, ...]] = set()
    for one in here:
        if tuple(one.cgroup) in asked:
            continue
        asked.add(tuple(one.cgroup))
        elsewhere = same_machine(identity, one.boot_id, one.host, one.container)
        elsewhere = elsewhere or same_groups(identity, one.cgroup_namespace)
        # The machine's own counters are shared by all containers; a group's path means something in its own only.
        lines = one.cgroup if elsewhere is None else []
        moment = msgspec.structs.replace(host.moment(), boot_id=identity.boot_id)
        reading, refused = read_counters(host, lines, moment)
        readings.append(msgspec.structs.replace(reading, locator="read now"))
        gaps += [elsewhere] if elsewhere is not None else refused
    return readings


def _slurm(subjects: Sequence[_Subject], host: Host, gaps: list[Gap]) -> list[Notice]:
    jobs: dict[str, str | None] = {}
    for one in subjects:
        values = dict(pair.split("=", 1) for pair in one.environment if "=" in pair)
        job = values.get("SLURM_JOB_ID") or values.get("SLURM_JOBID")
        if job:
            jobs[job] = values.get("SLURM_STEP_ID")
    found: list[Notice] = []
    for job, step in jobs.items():
        said = read_slurm_accounting(host, job, step)
        if isinstance(said, Gap):
            gaps.append(said)
        else:
            found += said
    return found
