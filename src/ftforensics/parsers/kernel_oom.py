"""OOM killer reports, of every kernel from 2.6.18 to 6.18, as `OomKill`s.

A report is many messages (mm/oom_kill.c: dump_header, then oom_kill_process). Which of them exist depends on the
version, so each is optional here, and the task table is read by its column names:

    ... invoked oom-killer:        who asked for memory (not who dies)
    CPU: ... PID: ... Comm: ...    its pid, the kernel's release
    Task in A killed as a result of limit of B          memory cgroup, up to 4.19
    memory: usage ..., limit ...   memory cgroup
    [ pid ] uid tgid total_vm ...  one row a process, in pages
    oom-kill:constraint=...        since 5.0
    Kill process N (c) score ...   up to 5.0: the candidate; a child of it may be the victim
    Killed process N (c) ...       the victim
    Tasks in A are going to be killed due to memory.oom.group set       then every member, the first once more

All but the victim's line are rate limited (10 in 5 s), and a log may begin in the middle: a bare victim line is a kill,
rows without a header are a table. oom_lock lets one report print at a time, but lines of a lost and a following report,
or of two machines in one file, can mix: pids join them where a line has one; what cannot be joined is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import msgspec

from ftforensics.model.kernel import LogLine, OomKill, OomTask

ANCHORS = (
    b"oom-kill",  # "invoked oom-killer", "oom-kill:constraint="
    b"Kill",  # "Killed process", "Kill process", and "Killing" of a memory error
)
AFTER_HEADER = 150  # messages after a header that are read whatever they hold: stack, then the memory cgroup's limits
IN_DUMP = 60  # messages after one of a report's own lines, until its next: Mem-Info grows with nodes and zones
AFTER_VICTIM = 10  # "Tasks in ... oom.group set" follows at once

TABLE_SLACK = 50  # messages of others between two rows before the table counts as over
TASKS_KEPT = 200_000  # rows of all tables together
SAME_REPORT = 5.0  # seconds: a group's members die within milliseconds
NEAR = 40  # messages between a header and its CPU line
OPEN_REPORTS = 8
UNLIMITED_KB = 9007199254740992 - 65536  # PAGE_COUNTER_MAX in kB, which depends on page size and version

_HEADER = re.compile(r"(.{0,64}) invoked oom-killer: gfp_mask=0x[0-9a-f]+")
_CPU = re.compile(r"CPU: \d+ (?:UID: \d+ )?PID: (\d{1,10}) Comm: (.*)")
_CPU_2_6 = re.compile(r"Pid: (\d{1,10}), comm: (.*)")
# "<comm> [kdump: loaded ]Not tainted|Tainted: GOE <release> #1 ..."
_RELEASE = re.compile(
    r"(.{0,64}?) (?:Kdump: loaded )?(?:Not tainted|Tainted: [A-Za-z \[\]=,()]{0,200}?) *(\d+\.\d+\S{0,100})?(?: |\Z)"
)
_TASK_IN = re.compile(r"Task in (/.{0,4096}) killed as a result of limit of (/.{0,4096})\Z")
_LIMIT_REACHED = re.compile(r"Memory limit reached of cgroup (/.{0,4096})\Z")
_USAGE = re.compile(r"(memory|memory\+swap|swap|kmem): usage (\d{1,20})kB, limit (\d{1,20})kB, failcnt (\d{1,20})")
# Lines of a report that hold nothing for us, but say that it goes on (mm/show_mem.c, mm/page_alloc.c, mm/swap_state.c).
_DUMP = re.compile(
    r"Mem-Info:|Node \d|lowmem_reserve\[\]:| ?(?:active|inactive|isolated|slab|mapped|unevictable|free|kernel)\w*:|"
    r"\d+ (?:total )?page|Swap cache stats|(?:Free|Total) swap|Memory cgroup stats for|(?:total_)?\w+ \d+\Z|"
    r"Tasks state|Unreclaimable slab|\w+ +\d+KB +\d+KB|Call Trace"
)
_CPUSET_LINE = re.compile(r"(.{0,64}) cpuset=(\S{0,255}) mems_allowed=([\d,-]{0,255})\Z")
_TABLE = re.compile(r"\[ {1,3}pid {1,3}\] +(uid +tgid +total_vm +rss.{0,200}) name\Z")
_ROW_START = re.compile(r"\[ {0,8}(\d{1,10})\] +\d")
_CONSTRAINT = re.compile(r"oom-kill:constraint=(\w{1,64}),(.{0,8000})\Z")
_CONSTRAINT_TAIL = re.compile(r"(.*?)(?:^|,)task=(.*),pid=(\d{1,10}),uid=(\d{1,10})\Z", re.DOTALL)
# mm/oom_kill.c: "Out of memory", "Memory cgroup out of memory", "Out of memory (oom_kill_allocating_task)"
_REASON = r"(?:([^:\[\]]{0,40}[Oo]ut of [Mm]emory[^:\[\]]{0,40}): )?"
_CANDIDATE = re.compile(_REASON + r"Kill process (\d{1,10}) \((.{0,64})\) (score \d+ (?:or|and) |sharing same memory)")
_VICTIM = re.compile(
    _REASON + r"Killed process (\d{1,10})(?:, UID (\d{1,10}),)? \((.{0,64})\)"
    r"(?:,? (total-vm:.{0,300})|\.?\Z|, )"
)
_SIZES = re.compile(
    r"total-vm:(\d{1,20})kB, anon-rss:(\d{1,20})kB, file-rss:(\d{1,20})kB(?:, shmem-rss:(\d{1,20})kB)?"
    r"(?:,? UID:(\d{1,10}))?(?: pgtables:\d+\w{0,2})?(?: oom_score_adj:(-?\d{1,5}))?"
)
_GROUP = re.compile(r"Tasks in (/.{0,4096}) are going to be killed due to memory\.oom\.group set")
_EXITING = re.compile(r"(?:.{1,64}?): OOM victim (\d{1,10}) \(.{0,64}\) is already exiting")

_SCOPES = {"NONE": "host", "CPUSET": "cpuset", "MEMORY_POLICY": "mempolicy", "MEMCG": "memcg"}


class CpuLine(msgspec.Struct, frozen=True):
    """ "CPU: 1 PID: 7 Comm: python Not tainted 6.1.0 #1": who was running. kernel: the release."""

    pid: int
    comm: str
    kernel: str | None


def cpu_line(text: str) -> CpuLine | None:
    found = _CPU.match(text) or _CPU_2_6.match(text)
    if found is None:
        return None
    rest = _RELEASE.match(found[2])
    return CpuLine(int(found[1]), rest[1], rest[2]) if rest else CpuLine(int(found[1]), found[2].rstrip(), None)


class Row:
    """A table row, still in pages."""

    __slots__ = ("columns", "name", "pid")

    def __init__(self, pid: int, columns: dict[str, int], name: str) -> None:
        self.pid, self.columns, self.name = pid, columns, name


class Report:
    """One OOM report while it is being read."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.header: LogLine | None = None
        self.caller: str | None = None
        self.trigger_comm: str | None = None
        self.trigger_pid: int | None = None
        self.kernel: str | None = None
        self.limits: LogLine | None = None
        self.usages: dict[str, tuple[int, int | None, int]] = {}
        self.columns: list[str] | None = None
        self.rows: list[Row] = []
        self.whole_table = False  # its header was seen
        self.constraint: LogLine | None = None
        self.scope: str | None = None
        self.limit_group: str | None = None
        self.victim_group: str | None = None
        self.cpuset: str | None = None
        self.nodemask: str | None = None
        self.expected: int | None = None  # pid of the oom-kill line
        self.uid: int | None = None
        self.reason: str | None = None  # of the "Kill process" line
        self.kills: list[Kill] = []
        self.rivals: list[Report] = []  # that printed while this one did

    def joined_surely(self) -> bool:
        """Nothing of a rival's can have slipped in: whoever printed at the same time killed nobody."""
        return not any(rival.kills for rival in self.rivals)


class Kill:
    """A victim's line; becomes an `OomKill` once the whole log is read."""

    __slots__ = ("chosen", "comm", "group", "line", "pid", "reason", "report", "sizes", "uid")

    def __init__(self, line: LogLine, pid: int, comm: str, reason: str | None, sizes: re.Match[str] | None) -> None:
        self.line, self.pid, self.comm, self.reason, self.sizes = line, pid, comm, reason, sizes
        self.uid: int | None = None
        self.report: Report | None = None
        self.group: str | None = None
        self.chosen = True


class OomReports:
    """Feed it messages in order; `take` gives a `Kill` for each victim as soon as its line is there."""

    def __init__(self) -> None:
        self.blocks = 0
        self.rows_dropped = False
        self._open: list[Report] = []
        self._last: Report | None = None  # the newest report that has its victim
        self._last_kill: Kill | None = None
        self._group: str | None = None
        self._group_report: Report | None = None
        self._group_first: Kill | None = None
        self._slack = TABLE_SLACK  # a log may begin inside a table
        self._rows_kept = 0
        self._seen: dict[tuple[int, str, float], None] = {}

    @property
    def hungry(self) -> bool:
        """The next message may be a table row, which no word gives away."""
        return self._slack > 0

    def goes_on(self, text: str) -> bool:
        """One of the lines between a report's head and its table."""
        return bool(self._open) and (_DUMP.match(text) is not None or _USAGE.match(text) is not None)

    def take(self, line: LogLine, caller: str | None, ordinal: int) -> Kill | None:
        text = line.text
        if self._slack > 0:
            if self._row(text, ordinal, caller):
                self._slack = TABLE_SLACK
                return None
            self._slack -= 1
        if "Kill" in text:
            if found := _VICTIM.match(text):
                return self._victim(line, found, caller)
            if found := _CANDIDATE.match(text):
                return self._candidate(line, found, caller, ordinal)
        elif "oom-kill" in text:
            if found := _HEADER.match(text):
                self._header(line, found[1], caller, ordinal)
            elif found := _CONSTRAINT.match(text):
                self._constraint(line, found, caller, ordinal)
        elif found := _USAGE.match(text):
            self._usage(line, found, caller, ordinal)
        elif found := _TASK_IN.match(text):
            report = self._current(caller, ordinal)
            report.victim_group, report.limit_group = found[1], found[2]
            report.constraint, report.scope = line, "memcg"
        elif found := _LIMIT_REACHED.match(text):
            report = self._current(caller, ordinal)
            report.limit_group, report.constraint, report.scope = found[1], line, "memcg"
        elif found := _TABLE.match(text):
            self._table(found[1], caller, ordinal)
        elif found := _CPUSET_LINE.match(text):
            for report in self._open:
                if report.trigger_comm == found[1] and report.cpuset is None and ordinal - report.ordinal < NEAR:
                    report.cpuset = found[2]
                    break
        elif found := _GROUP.match(text):
            self._group_starts(found[1], line)
        elif found := _EXITING.match(text):
            report = self._current(caller, ordinal)
            self._close(report)
        return None

    # Which report a line belongs to.

    def _current(self, caller: str | None, ordinal: int) -> Report:
        """The report being printed: by the printing task where the log names it, else the newest without its end."""
        if caller is not None:
            for report in reversed(self._open):
                if report.caller == caller:
                    return report
        elif self._open:
            return self._open[-1]
        return self._start(caller, ordinal)

    def _start(self, caller: str | None, ordinal: int) -> Report:
        report = Report(ordinal)
        report.caller = caller
        self.blocks += 1
        if caller is None or any(other.caller is None for other in self._open):
            for other in self._open:
                other.rivals.append(report)
                report.rivals.append(other)
        self._open.append(report)
        if len(self._open) > OPEN_REPORTS:
            self._open.pop(0)
        return report

    def _close(self, report: Report) -> None:
        if report in self._open:
            self._open.remove(report)
        self._last = report
        self._slack = 0

    # The lines.

    def _header(self, line: LogLine, comm: str, caller: str | None, ordinal: int) -> None:
        self._group = None
        report = self._start(caller, ordinal)
        report.header, report.trigger_comm = line, comm

    def wants_cpu(self, cpu: CpuLine, caller: str | None, ordinal: int) -> Report | None:
        """The report that still lacks its CPU line and whose header names that line's program."""
        for report in self._open:
            if report.trigger_comm != cpu.comm or report.trigger_pid is not None or ordinal - report.ordinal >= NEAR:
                continue
            if caller is None or report.caller in (None, caller):
                return report
        return None

    def _usage(self, line: LogLine, found: re.Match[str], caller: str | None, ordinal: int) -> None:
        report = self._current(caller, ordinal)
        limit = int(found[3])
        name = found[1]
        if name in report.usages:
            return
        report.usages[name] = (int(found[2]) << 10, None if limit >= UNLIMITED_KB else limit << 10, int(found[4]))
        if name == "memory":
            report.limits = line

    def _table(self, names: str, caller: str | None, ordinal: int) -> None:
        report = self._current(caller, ordinal)
        report.columns = names.split()
        report.whole_table = not report.rows
        self._slack = TABLE_SLACK

    def _row(self, text: str, ordinal: int, caller: str | None) -> bool:
        if _ROW_START.match(text) is None:
            return False
        report = next((one for one in reversed(self._open) if one.columns is not None), None)
        if report is None or report.columns is None:
            return self._row_without_header(text, ordinal, caller)
        row = _row_of(text, report.columns)
        if row is None:
            return False
        self._keep(report, row)
        return True

    def _row_without_header(self, text: str, ordinal: int, caller: str | None) -> bool:
        """The log begins inside a table: the columns that all versions have are the first four and the last."""
        for names in _HEADLESS:
            row = _row_of(text, names)
            if row is not None:
                self._keep(self._current(caller, ordinal), row)
                return True
        return False

    def _keep(self, report: Report, row: Row) -> None:
        if self._rows_kept >= TASKS_KEPT:
            self.rows_dropped = True
            return
        self._rows_kept += 1
        report.rows.append(row)

    def _constraint(self, line: LogLine, found: re.Match[str], caller: str | None, ordinal: int) -> None:
        # The fixed order of the fields lets a comm hold commas: pid and uid are taken from the right.
        tail = _CONSTRAINT_TAIL.match(found[2])
        if tail is None:
            return
        report = self._current(caller, ordinal)
        if report.constraint is not None:  # the one it belongs to has lost its head
            report = self._start(caller, ordinal)
        word = found[1].removeprefix("CONSTRAINT_")
        report.constraint, report.scope = line, _SCOPES.get(word, word)
        report.expected, report.uid = int(tail[3]), int(tail[4])
        _constraint_fields(report, tail[1])
        self._slack = 0

    def _candidate(self, line: LogLine, found: re.Match[str], caller: str | None, ordinal: int) -> Kill | None:
        if found[4].startswith("sharing"):  # shares the victim's memory (vfork, CLONE_VM): killed as well
            kill = Kill(line, int(found[2]), found[3], found[1], None)
            kill.report, kill.chosen = self._last, False
            return kill
        self._current(caller, ordinal).reason = found[1] or "Out of memory"
        self._slack = 0
        return None

    def _victim(self, line: LogLine, found: re.Match[str], caller: str | None) -> Kill | None:
        sizes = _SIZES.match(found[5]) if found[5] else None
        kill = Kill(line, int(found[2]), found[4], found[1], sizes)
        kill.uid = int(found[3]) if found[3] else None
        if self._already(kill):
            return None
        report = self._report_of(kill, caller)
        if report is not None:
            self._group = None
            kill.report = report
            report.kills.append(kill)
            self._close(report)
        elif self._group is not None and self._is_member(kill):
            if self._group_first is not None and self._group_first.pid == kill.pid:
                return None  # the first victim, printed again as a member of its group
            kill.group, kill.chosen = self._group, self._group_first is None
            kill.report = self._group_report
            if kill.report is not None:
                if any(other.pid == kill.pid for other in kill.report.kills):
                    return None
                kill.report.kills.append(kill)
            return kill
        else:
            self._group = None
            self._last = None
        self._last_kill = kill
        return kill

    def _already(self, kill: Kill) -> bool:
        """The very same record again: a log that was pasted or shipped twice."""
        at = kill.line.moment.monotonic
        if at is None:
            return False
        key = (kill.pid, kill.line.text, at)
        if key in self._seen:
            return True
        if len(self._seen) >= 4096:
            self._seen.clear()
        self._seen[key] = None
        return False

    def _report_of(self, kill: Kill, caller: str | None) -> Report | None:
        for report in reversed(self._open):
            if report.expected == kill.pid:
                return report
        if self._group is not None and self._is_member(kill):
            return None
        for report in reversed(self._open):
            if report.expected is not None or (caller is not None and report.caller not in (None, caller)):
                continue
            if report.joined_surely():
                return report if _fits(report, kill) else None
        return None

    def _group_starts(self, group: str, line: LogLine) -> None:
        first = self._last_kill
        near = first is not None and _near(first.line, line)
        self._group, self._group_first = group, first if near else None
        self._group_report = self._last if near else None
        if near and first is not None:
            first.group = group

    def _is_member(self, kill: Kill) -> bool:
        first, report = self._group_first, self._group_report
        if kill.reason != "Memory cgroup out of memory" and kill.reason is not None:
            return False
        if first is not None and not _near(first.line, kill.line):
            return False
        if report is None or not report.whole_table or not report.rows or not report.joined_surely():
            return True
        return any(row.pid == kill.pid for row in report.rows)


def _near(earlier: LogLine, later: LogLine) -> bool:
    a, b = earlier.moment.monotonic, later.moment.monotonic
    return a is None or b is None or abs(b - a) <= SAME_REPORT


def _fits(report: Report, kill: Kill) -> bool:
    """A victim line that belongs to an unfinished report of another kind is a bare one."""
    if kill.reason is None or report.scope is None:
        return True
    return (kill.reason == "Memory cgroup out of memory") == (report.scope == "memcg")


# Columns after the pid when no header says: 6.8 and later; 4.14; 4.1; the rest. Those without a name here differ.
_HEADLESS = (
    ("uid", "tgid", "total_vm", "rss", "rss_anon", "rss_file", "rss_shmem", "", "swapents", "oom_score_adj"),
    ("uid", "tgid", "total_vm", "rss", "", "", "", "swapents", "oom_score_adj"),
    ("uid", "tgid", "total_vm", "rss", "", "", "swapents", "oom_score_adj"),
    ("uid", "tgid", "total_vm", "rss", "", "", "oom_score_adj"),
)


@cache
def _row_pattern(columns: int) -> re.Pattern[str]:
    return re.compile(r"\[ {0,8}(\d{1,10})\]" + r" +(-?\d{1,20})" * columns + r" (.{0,64})\Z", re.DOTALL)


def _row_of(text: str, columns: Sequence[str]) -> Row | None:
    """columns: their names after the pid, "" for one that does not matter."""
    found = _row_pattern(len(columns)).match(text)
    if found is None:
        return None
    pid, *numbers, name = found.groups()
    return Row(int(pid), {column: int(value) for column, value in zip(columns, numbers, strict=True) if column}, name)


def _constraint_fields(report: Report, text: str) -> None:
    """The fields before `task=`, whose order is fixed and some of which miss; a cgroup's name may hold commas."""
    at = [(text.find(f"{name}="), name) for name in ("nodemask", "cpuset", "mems_allowed", "oom_memcg", "task_memcg")]
    ends = sorted((start, name) for start, name in at if start >= 0)
    for index, (start, name) in enumerate(ends):
        stop = ends[index + 1][0] if index + 1 < len(ends) else len(text)
        value = text[start + len(name) + 1 : stop].rstrip(",").removesuffix(",global_oom")
        if name == "nodemask":
            report.nodemask = None if value == "(null)" else value
        elif name == "cpuset":
            report.cpuset = value
        elif name == "oom_memcg":
            report.limit_group = value
        elif name == "task_memcg":
            report.victim_group = value


def finished(kill: Kill, tables: dict[int, list[OomTask]]) -> OomKill:
    """`tables` keeps the converted table of a report, so that the members of a group share it."""
    report, sizes = kill.report, kill.sizes
    kb = [int(sizes[at]) << 10 if sizes is not None and sizes[at] is not None else None for at in range(1, 5)]
    uid = kill.uid if kill.uid is not None else (int(sizes[5]) if sizes is not None and sizes[5] else None)
    adj = int(sizes[6]) if sizes is not None and sizes[6] else None
    plain = OomKill(
        kill.line,
        kill.pid,
        kill.comm,
        scope="memcg" if kill.group is not None else _scope_of(kill.reason),
        uid=uid,
        total_vm=kb[0],
        anon_rss=kb[1],
        file_rss=kb[2],
        shmem_rss=kb[3],
        oom_score_adj=adj,
        group_kill=kill.group,
        chosen=kill.chosen,
    )
    if report is None:
        return plain
    sure = report.joined_surely()
    tasks = tables.get(id(report))
    if tasks is None:
        tasks = converted(report) if sure else []
        tables[id(report)] = tasks
    own = next((task for task in tasks if task.pid == kill.pid), None)
    main = report.expected is None or report.expected == kill.pid
    usage = report.usages.get("memory") if sure else None
    swap = _swap(report) if sure else (None, None)
    return msgspec.structs.replace(
        plain,
        scope=report.scope or plain.scope or _scope_of(report.reason),
        uid=uid if uid is not None else (report.uid if main and report.uid is not None else own and own.uid),
        oom_score_adj=adj if adj is not None else own and own.oom_score_adj,
        limit_group=report.limit_group,
        victim_group=report.victim_group if main or kill.group is None else None,
        cpuset=report.cpuset,
        usage=usage[0] if usage else None,
        limit=usage[1] if usage else None,
        failcnt=usage[2] if usage else None,
        swap_usage=swap[0],
        swap_limit=swap[1],
        trigger_pid=report.trigger_pid,
        trigger_comm=report.trigger_comm,
        kernel=report.kernel,
        tasks=tasks,
        header=report.header,
        limits=report.limits if sure else None,
        constraint=report.constraint,
        nodemask=report.nodemask,
    )


def _scope_of(reason: str | None) -> str | None:
    if reason is None:
        return None
    lowered = reason.lower()
    if lowered == "memory cgroup out of memory":
        return "memcg"
    return "host" if lowered.startswith("out of memory") else None


def _swap(report: Report) -> tuple[int | None, int | None]:
    """v2 prints swap itself; v1 memory and swap together, limits included."""
    if "swap" in report.usages:
        return report.usages["swap"][:2]
    both, memory = report.usages.get("memory+swap"), report.usages.get("memory")
    if both is None or memory is None:
        return None, None
    limit = None if both[1] is None or memory[1] is None else max(0, both[1] - memory[1])
    return max(0, both[0] - memory[0]), limit


def converted(report: Report) -> list[OomTask]:
    page = page_size(report)
    return [
        OomTask(
            row.pid,
            row.name,
            uid=row.columns.get("uid"),
            tgid=row.columns.get("tgid"),
            total_vm=_pages(row, "total_vm", page),
            rss=_pages(row, "rss", page),
            rss_anon=_pages(row, "rss_anon", page),
            rss_file=_pages(row, "rss_file", page),
            rss_shmem=_pages(row, "rss_shmem", page),
            swap=_pages(row, "swapents", page),
            oom_score_adj=row.columns.get("oom_score_adj"),
        )
        for row in report.rows
    ]


def _pages(row: Row, column: str, page: int) -> int | None:
    value = row.columns.get(column)
    return None if value is None else max(0, value) * page  # a per-CPU counter read late can be below 0


def page_size(report: Report) -> int:
    """From the victim, whose size stands in the table in pages and in its own line in kB; 4096 when neither says."""
    for kill in report.kills:
        row = next((row for row in report.rows if row.pid == kill.pid), None)
        if row is None or kill.sizes is None or row.columns.get("total_vm", 0) <= 0:
            continue
        size = (int(kill.sizes[1]) << 10) / row.columns["total_vm"]
        for page in (4096, 16384, 65536):
            if abs(size - page) <= page / 8:  # total_vm may move between the two lines
                return page
    return 4096
