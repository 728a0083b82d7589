"""Is this record of the kernel, a tracer or a scheduler about this process?

Names and numbers repeat: pids are used again and differ between namespaces, ranks of one job look alike, and another
job's process may have been killed seconds before ours. So every tie is argued: what fits, what does not, and how many
other processes it would fit as well. What is known to be of another boot or machine is no candidate at all.
"""

from __future__ import annotations

import contextlib
import os.path
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone

import msgspec

from ftforensics.diagnose.clocks import LARGEST_OFFSET, SMALLEST_OFFSET, seconds_after, seconds_between
from ftforensics.model.basics import Cite
from ftforensics.model.death import Death, Match, Tie
from ftforensics.model.kernel import Fault, KernelLog, LogLine, OomKill
from ftforensics.model.moment import Moment
from ftforensics.model.ring import Ring
from ftforensics.parsers.cgroup_path import container_id, is_at_or_below, unit_of
from ftforensics.parsers.kernel_log import EARLIER_BOOT

# kernel/pid.c, RESERVED_PIDS: once pids have wrapped, the initial namespace gives out none below. A container does.
SMALL_PID = 300
COMM_LENGTH = 15  # TASK_COMM_LEN without the NUL
SLACK = 2.0  # seconds between two clocks that are read by different programs
KILL_TO_END = 60.0  # seconds that a killed process may take to give its memory back, loaded and swapping
GROWTH = 0.10  # of slack above what the growth since the last sample explains
_LEAP_YEAR = datetime(2000, 1, 1, tzinfo=timezone.utc)  # as parsers.launcher_line.glog_time counts
_NO_NAME = re.compile(r"localhost\b|\(none\)$|[0-9a-f]{12}$|[\d.]+$|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*$|$")
# Names that a Python training process goes by in the kernel's log when the launcher only says "python".
_PYTHON_NAMES = ("python", "pt_", "ray::", "torchrun", "accelerate", "deepspeed")


def same_machine(log: KernelLog, death: Death) -> bool:
    """False when log and process are known to be of different boots or hosts: evidence that is never used."""
    if log.boot_id is not None and death.boot_id is not None:
        return log.boot_id == death.boot_id
    if log.live and death.boot_id is None:
        return False  # the caller reads a live log for a known boot only; this process is not known to be of it
    return not other_machine(log.host, death.host)


def other_machine(one: str | None, other: str | None) -> bool:
    """Are these names of two machines? Launchers also say "localhost", an address, or a container's own name."""
    if one is None or other is None or _NO_NAME.match(one) or _NO_NAME.match(other):
        return False
    return _short(one) != _short(other)


class Machines:
    """Of many names: may one more be another name of one of them? What other_machine() says of each."""

    def __init__(self, names: Iterable[str]) -> None:
        names = list(names)
        self._short = {_short(name) for name in names}
        self._nameless = any(_NO_NAME.match(name) for name in names)

    def may_have(self, name: str) -> bool:
        nameless = self._nameless or bool(self._short and _NO_NAME.match(name))
        return nameless or _short(name) in self._short


def match_line(line: LogLine, pid: int | None, comm: str | None, log: KernelLog, death: Death) -> Match | None:
    """A kernel line that names a process by pid (or thread id) and name. None: it is not about this one."""
    if not same_machine(log, death) or pid is None:
        return None
    place = locator(log, line)
    why: list[Cite] = []
    against: list[Cite] = []
    if pid not in death.host_pids:
        return None
    why.append(Cite(log.source, place, f"pid {pid} is this process"))
    strange = comm is not None and not (name_fits(comm, death) or _may_have_become(comm, death))
    if strange:
        against.append(Cite(log.source, place, f"the kernel calls it {comm!r}, not {' or '.join(death.comms[:3])}"))
    timing = _timing(line.moment, death, place, log.source)
    if timing is not None:
        if timing[0] is None:
            return None
        (why if timing[1] else against).append(timing[0])
    day = None if timing is not None else _another_day(line.moment, death, place, log.source)
    if day is not None:
        against.append(day)
    elif timing is None:
        against += _another_quarter(line.moment, death, place, log.source)
        against += _earlier_boot(line, death, place, log.source)
    known_boot = log.boot_id is not None and log.boot_id == death.boot_id
    if line.forgeable:
        against.append(Cite(log.source, place, "written by a program through /dev/kmsg, not by the kernel"))
    tie = Tie.EXACT if death.initial_namespace and known_boot and timing is not None else Tie.TEXT
    # A number is given out again: where neither name nor time bears it out, it alone says little.
    if timing is None and (day is not None or strange):
        tie = Tie.STRONG
    return Match(tie, why, against)


def match_oom(kill: OomKill, log: KernelLog, death: Death) -> Match | None:
    """None: the record is about another process, as far as anything here can tell."""
    if not same_machine(log, death):
        return None
    if death.signal not in (None, 9) or (death.code is not None and death.signal is None):
        return None  # the OOM killer's signal cannot be caught, and this process ended otherwise
    if kill.pid in death.host_pids:
        found = match_line(kill.line, kill.pid, kill.comm, log, death)
        if found is None:
            return None
        return _with_sizes(kill, log, death, found)
    if death.initial_namespace:
        return None  # its pid in the kernel's log would be the one we know
    return _by_looks(kill, log, death)


def _with_sizes(kill: OomKill, log: KernelLog, death: Death, found: Match) -> Match:
    why, against = list(found.why), list(found.against)
    place = locator(log, kill.line)
    for fits, text in _sizes(kill, death):
        (why if fits else against).append(Cite(log.source, place, text))
    user = _user_fits(kill, death)
    if user is False:
        against.append(Cite(log.source, place, f"the kernel says uid {kill.uid}, the process had {death.uid}"))
    if found.tie is not Tie.EXACT:
        against += containers_pid(kill.pid, death, log.source, place)
        if death.signal is None:
            return Match(Tie.STRONG, why, against)
    return Match(found.tie, why, against)


def containers_pid(pid: int, death: Death, source: str, place: str) -> list[Cite]:
    """What speaks against a pid that both sides name, where the process may have had another one outside."""
    if pid >= SMALL_PID or death.initial_namespace:
        return []
    return [Cite(source, place, f"pid {pid} looks like one of a container, where the kernel's log has another number")]


def _by_looks(kill: OomKill, log: KernelLog, death: Death) -> Match | None:
    """In a pid namespace the kernel's number is not the one we know. Container, name, user, sizes and time remain."""
    place = locator(log, kill.line)
    if not death.comms and death.ring is None:
        return None
    if death.comms and not name_fits(kill.comm, death):
        return None
    why = [Cite(log.source, place, f"the kernel calls it {kill.comm}, as this process was")]
    against: list[Cite] = []
    strong = False
    theirs = container_id(kill.victim_group or "") or container_id(kill.cpuset or "") or _bare_id(kill.cpuset)
    if death.container is not None and theirs is not None:
        if not _same_container(theirs, death.container):
            return None
        why.append(Cite(log.source, place, f"it was in container {theirs[:12]}, as this process"))
        strong = True
    elif kill.victim_group and death.groups and death.groups[0] not in ("/", kill.victim_group):
        if not kill.victim_group.endswith(death.groups[0]):
            return None  # another job's process
    elif kill.victim_group and death.groups and death.groups[0] == kill.victim_group != "/":
        why.append(Cite(log.source, place, f"it was in {kill.victim_group}, as this process"))
        strong = True
    if _user_fits(kill, death) is False or _limit_fits(kill, death) is False:
        return None
    timing = _timing(kill.line.moment, death, place, log.source)
    if timing is not None:
        if timing[0] is None or not timing[1]:
            return None
        why.append(timing[0])
    sizes = list(_sizes(kill, death))
    if any(not fits for fits, _ in sizes):
        return None
    why += [Cite(log.source, place, text) for _, text in sizes]
    if kill.line.forgeable:
        against.append(Cite(log.source, place, "written by a program through /dev/kmsg, not by the kernel"))
    if timing is None and not strong:
        return None if not sizes else Match(Tie.WEAK, why, against)
    # Without sizes the name and the time alone fit every sibling.
    return Match(Tie.STRONG if strong or sizes else Tie.WEAK, why, against)


def match_fault(fault: Fault, log: KernelLog, death: Death) -> Match | None:
    """By thread id: the kernel names the faulting thread. The main thread's is the pid; others need the record."""
    tids = [*death.host_pids]
    process = death.crash.record.process if death.crash else None
    if death.crash is not None and process is not None and process.tid is not None and death.initial_namespace:
        tids.append(process.tid)
    if fault.tid not in tids:
        return None
    if death.signal not in (None, 4, 5, 6, 7, 8, 11):
        return None
    known_by_thread = msgspec.structs.replace(death, host_pids=[*death.host_pids, fault.tid])
    return match_line(fault.line, fault.tid, fault.comm, log, known_by_thread)


def own_group(kill: OomKill, death: Death, run_group: str | None) -> bool | None:
    """Was the limit that of the process's own group or of its unit (True), or of a group above (False)?

    The unit is a Slurm job, a pod, a container, a systemd unit or the group that `run` was started in. With no
    recognised unit a strict path prefix decides.
    """
    limit = kill.limit_group
    victim = kill.victim_group or (death.groups[0] if death.groups else None)
    if limit is None or victim is None:
        return None
    if limit.rstrip("/") == victim.rstrip("/"):
        return True
    if not is_at_or_below(victim, limit):
        return None
    for unit in (unit_of(victim), run_group):
        if unit is not None and unit != "/" and is_at_or_below(limit, unit):
            return True
    return False


def name_fits(comm: str, death: Death) -> bool:
    """Could a process with these names have been called `comm` by the kernel?"""
    if comm in death.comms or not death.comms:
        return True
    known = [name[:COMM_LENGTH] for name in death.comms]
    if comm in known:
        return True
    python = any(name.startswith(_PYTHON_NAMES) for name in known)
    return python and comm.startswith(_PYTHON_NAMES)


def _may_have_become(comm: str, death: Death) -> bool:
    """A launcher names the program that it started, `run.sh`; a shell's `exec python` keeps the pid."""
    observed = death.ring is not None or death.crash is not None or death.watched
    return not observed and comm.startswith(_PYTHON_NAMES)


def comm_of_program(path: str) -> str:
    """What the kernel calls a program when nobody renames it (man 5 proc_pid_comm)."""
    return os.path.basename(path)[:COMM_LENGTH]


def locator(log: KernelLog, line: LogLine) -> str:
    """Where a person finds the line: in a file by its number, in the kernel's own ring by its time."""
    if log.source == "kmsg" and line.moment.monotonic is not None:
        return f"{line.moment.monotonic:.6f}"
    where = log.path or ""
    if line.number is not None:
        return f"{where}:{line.number}" if where else f"line {line.number}"
    if line.sequence is not None:
        return f"{where} record {line.sequence}".strip()
    if line.moment.monotonic is not None:
        return f"{where} {line.moment.monotonic:.6f}".strip()
    return where


def _timing(moment: Moment, death: Death, place: str, source: str) -> tuple[Cite | None, bool] | None:
    """(cite, fits), (None, False) when the record is certainly of another time, None when no clock tells."""
    after_alive = seconds_between(death.earliest, moment)
    before_end = seconds_between(moment, death.when)
    if after_alive is None and before_end is None:
        return None
    if after_alive is not None:
        seconds, error = after_alive
        if seconds < -(SLACK + error):
            return None, False  # it was alive later than that: an earlier process with this pid
    if before_end is not None:
        seconds, error = before_end
        if seconds < -(SLACK + error) or seconds > KILL_TO_END + error:
            return None, False
        return Cite(source, place, f"{max(seconds, 0.0):.2f} s before the end was seen"), True
    assert after_alive is not None
    if after_alive[0] > KILL_TO_END + after_alive[1]:
        # Nobody saw the end: between the last sample and this line the process may have ended otherwise.
        return Cite(source, place, f"{after_alive[0]:.0f} s after the last sign of life"), False
    return Cite(source, place, f"{max(after_alive[0], 0.0):.2f} s after the last sign of life"), True


def _another_day(moment: Moment, death: Death, place: str, source: str) -> Cite | None:
    """The launcher's date, whose zone nobody names, lies further from the kernel's than any zone explains."""
    apart = seconds_after(moment, death.wall if death.wall is not None else death.told_wall)
    if apart is None:
        return _another_day_of_the_year(moment, death, place, source)
    # A syslog's lines have no year of their own: a whole one between the two is no contradiction.
    years = min(abs(abs(apart[0]) - days * 86400) for days in (0, 365, 366))
    if years <= apart[1] + KILL_TO_END:
        return None
    return Cite(source, place, f"{abs(apart[0]) / 86400:.1f} days from the end that the launcher reports")


def _another_day_of_the_year(moment: Moment, death: Death, place: str, source: str) -> Cite | None:
    """The same by a prefix that names month and day alone, as torch's logger writes it."""
    if moment.realtime is None or death.told_day is None:
        return None
    told = _LEAP_YEAR + timedelta(seconds=death.told_day)
    year = datetime.fromtimestamp(moment.realtime, timezone.utc).year
    apart = []
    for near in (year - 1, year, year + 1):
        with contextlib.suppress(ValueError):  # no 29 February in that year, no year 0
            apart.append(abs(told.replace(year=near).timestamp() - moment.realtime))
    if not apart or min(apart) <= max(moment.accuracy, LARGEST_OFFSET) + KILL_TO_END:
        return None
    return Cite(source, place, f"{min(apart) / 86400:.0f} days from {told:%m-%d}, when the launcher reports the end")


def _another_quarter(moment: Moment, death: Death, place: str, source: str) -> list[Cite]:
    """Zones differ by whole quarters of an hour: what remains must be the time from the kill to its report."""
    apart = seconds_after(moment, death.wall)
    if apart is None:
        return []
    # `dmesg -T` converts by a clock that drifts from the wall's by up to minutes in months.
    rest = (apart[0] + KILL_TO_END) % SMALLEST_OFFSET - KILL_TO_END
    if rest <= 2 * KILL_TO_END:
        return []
    return [Cite(source, place, f"{rest / 60:.0f} min (or more, by the time zone) before the launcher reports the end")]


def _earlier_boot(line: LogLine, death: Death, place: str, source: str) -> list[Cite]:
    boot = line.moment.boot_id
    if death.boot_id is not None or boot is None or not boot.startswith(EARLIER_BOOT):
        return []
    if seconds_after(line.moment, death.wall) is not None:
        return []  # the dates tell
    return [Cite(source, place, "the machine was started again later in this log: the process may be of another boot")]


def _sizes(kill: OomKill, death: Death) -> Sequence[tuple[bool, str]]:
    """Do the kernel's sizes continue what the recorder saw? Nothing when there is no recorder."""
    ring = death.ring
    if ring is None:
        return []
    found = []
    slow = next((sample for sample in reversed(ring.slow) if sample.vm_size), None)
    if slow is not None and slow.vm_size and kill.total_vm:
        ratio = kill.total_vm / slow.vm_size
        # The address space changes with large allocations, which are what kills: it may only have grown or stayed.
        found.append((0.9 <= ratio <= 4.0, f"total-vm {_size(kill.total_vm)}, last seen {_size(slow.vm_size)}"))
    fast = next((sample for sample in reversed(ring.fast) if sample.rss_anon is not None), None)
    if fast is not None and fast.rss_anon is not None and kill.anon_rss is not None:
        age = None
        if kill.line.moment.monotonic is not None:
            age = kill.line.moment.monotonic - fast.at
        lowest = fast.rss_anon * 0.98 - (8 << 20)
        highest = fast.rss_anon * (1 + GROWTH) + (64 << 20) + _rate(ring) * min(max(age or 2.0, 0.5), 30.0) * 2
        fits = lowest <= kill.anon_rss <= highest
        found.append((fits, f"anon-rss {_size(kill.anon_rss)}, last sample {_size(fast.rss_anon)}"))
    return found


def _rate(ring: Ring) -> float:
    """Bytes a second over the last five seconds, at least what one thread can touch in a short while."""
    recent = [sample for sample in ring.fast if sample.rss_anon is not None and sample.at >= ring.fast[-1].at - 5.0]
    if len(recent) < 2 or recent[-1].at == recent[0].at:
        return 2e9
    grown = (recent[-1].rss_anon or 0) - (recent[0].rss_anon or 0)
    return max(grown / (recent[-1].at - recent[0].at), 2e9)


def _user_fits(kill: OomKill, death: Death) -> bool | None:
    """uids of the kernel are those of the initial user namespace; a mapped one cannot be compared here."""
    if kill.uid is None or death.uid is None:
        return None
    mapped = death.ring is not None and any(line.split()[:2] != ["0", "0"] for line in death.ring.process.uid_map)
    return None if mapped else kill.uid == death.uid


def _limit_fits(kill: OomKill, death: Death) -> bool | None:
    """A victim of its own group's limit had that limit when it was last seen. In a cgroup namespace of its own a
    process calls its group "/", so that the limit is what tells a neighbour's kill. None: not known."""
    if kill.scope != "memcg" or kill.limit is None or kill.limit_group is None or kill.limit_group != kill.victim_group:
        return None
    slow = death.ring.slow if death.ring is not None else []
    groups = next((one.reading.groups for one in reversed(slow) if one.reading and one.reading.groups), [])
    if not groups or not death.groups or groups[0].path != death.groups[0]:
        return None
    return groups[0].limit == kill.limit


def _same_container(one: str, other: str) -> bool:
    shorter = min(len(one), len(other))
    return shorter >= 12 and one[:shorter] == other[:shorter]


def _bare_id(cpuset: str | None) -> str | None:
    return cpuset if cpuset and len(cpuset) == 64 and all(char in "0123456789abcdef" for char in cpuset) else None


def _short(host: str) -> str:
    return host.partition(".")[0].lower()


def _size(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
