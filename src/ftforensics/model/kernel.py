"""What a kernel log says, as typed events. `parsers.kernel_log` makes them; nobody else knows the wording.

All pids and uids are those of the initial namespaces (kernel/pid.c, task_pid_nr). Sizes are bytes.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Address, Gap
from ftforensics.model.moment import Moment


class LogLine(msgspec.Struct, frozen=True):
    """Where an event stands. number: line of the file, from 1; sequence: record number of /dev/kmsg; facility: syslog
    facility, 0 = kernel, None when the format does not say; host: as the log's prefix names it."""

    text: str  # the message without its prefix
    number: int | None = None
    sequence: int | None = None
    facility: int | None = None
    moment: Moment = Moment()
    host: str | None = None

    @property
    def forgeable(self) -> bool:
        """Written by a program through /dev/kmsg: anybody who may write there can say anything."""
        return self.facility not in (None, 0)


class OomTask(msgspec.Struct, frozen=True):
    """One row of the task table. Values in bytes where the table has pages; None for columns this kernel lacks."""

    pid: int
    name: str
    uid: int | None = None
    tgid: int | None = None
    total_vm: int | None = None
    rss: int | None = None
    rss_anon: int | None = None
    rss_file: int | None = None
    rss_shmem: int | None = None
    swap: int | None = None
    oom_score_adj: int | None = None


class OomKill(msgspec.Struct, frozen=True):
    """One process killed by the OOM killer, with what the block around it said. A rate-limited kill is the bare
    `Killed process` line: then all but victim, sizes and `scope` are None.

    scope: "memcg", "host", "cpuset", "mempolicy", or another constraint's own word; None when no line says.
    limit_group: the cgroup whose limit was hit (oom_memcg); victim_group: the victim's own (task_memcg);
    group_kill: killed as a member of a memory.oom.group; chosen: False for the other members of a group kill.
    usage, limit: of the limit group; limit None = unlimited or not printed.
    """

    line: LogLine  # the `Killed process` line
    pid: int
    comm: str
    scope: str | None = None
    uid: int | None = None
    total_vm: int | None = None
    anon_rss: int | None = None
    file_rss: int | None = None
    shmem_rss: int | None = None
    oom_score_adj: int | None = None
    limit_group: str | None = None
    victim_group: str | None = None
    cpuset: str | None = None
    usage: int | None = None
    limit: int | None = None
    failcnt: int | None = None
    swap_usage: int | None = None
    swap_limit: int | None = None
    group_kill: str | None = None  # the cgroup named by "Tasks in ... are going to be killed"
    chosen: bool = True
    trigger_pid: int | None = None
    trigger_comm: str | None = None
    kernel: str | None = None  # release, from the CPU line
    tasks: list[OomTask] = []
    header: LogLine | None = None  # "... invoked oom-killer"
    limits: LogLine | None = None  # "memory: usage ..."
    constraint: LogLine | None = None  # "oom-kill:constraint=..." or "Task in ... killed as a result of limit of ..."
    nodemask: str | None = None


class Fault(msgspec.Struct, frozen=True):
    """A user-mode fault that the kernel wrote down. tid: thread id, initial namespace; kind: "segfault",
    "general protection", "invalid opcode", "divide error", "int3", or the kernel's own words.
    map_base, map_size, map_offset: of the mapping behind "in FILE[...]"; map_offset only from kernels that print it."""

    line: LogLine
    tid: int
    comm: str
    kind: str
    address: Address | None = None
    ip: Address | None = None
    sp: Address | None = None
    error: Address | None = None  # x86 page fault error code
    esr: Address | None = None  # aarch64
    file: str | None = None
    map_base: Address | None = None
    map_size: int | None = None
    map_offset: Address | None = None
    cpu: int | None = None


class MemoryFailure(msgspec.Struct, frozen=True):
    """Hardware memory corruption. pid None: a page was lost that nobody is named for."""

    line: LogLine
    pid: int | None = None
    comm: str | None = None
    signal: str | None = None  # "SIGBUS" or "SIGKILL" where the line says


class Xid(msgspec.Struct, frozen=True):
    """An NVIDIA driver event. number None: "fallen off the bus" without one. pid: who made the channel."""

    line: LogLine
    number: int | None
    device: str | None = None  # PCI address
    pid: int | None = None
    comm: str | None = None
    text: str = ""
    switch: bool = False  # SXid of an NVSwitch


class DriverNote(msgspec.Struct, frozen=True):
    """Another NVRM line that matters: kind "api-mismatch" (client, module versions) or "fallen-off-bus"."""

    line: LogLine
    kind: str
    client: str | None = None
    module: str | None = None
    device: str | None = None


class StorageError(msgspec.Struct, frozen=True):
    """kind: "io", "filesystem", "readonly", "shutdown", "nfs-timeout", "nfs-ok", "device-timeout"."""

    line: LogLine
    kind: str
    device: str | None = None


class Oops(msgspec.Struct, frozen=True):
    """The kernel itself failed while it worked for a process. pid, comm: of that process; module: of the function."""

    line: LogLine
    kind: str  # "oops", "bug", "soft-lockup", "hung-task", "panic"
    pid: int | None = None
    comm: str | None = None
    function: str | None = None
    module: str | None = None


class Lost(msgspec.Struct, frozen=True):
    """Records that are missing: kind "suppressed" (rate limit), "sequence" (a gap in record numbers), "overrun"."""

    line: LogLine
    kind: str
    count: int | None = None
    what: str | None = None  # function name of the rate limit


class CpuLimit(msgspec.Struct, frozen=True):
    """ "CPU Watchdog Timeout": the hard RLIMIT_CPU or RLIMIT_RTTIME ended the process."""

    line: LogLine
    pid: int | None
    comm: str | None = None


KernelEvent = OomKill | Fault | MemoryFailure | Xid | DriverNote | StorageError | Oops | Lost | CpuLimit


class KernelLog(msgspec.Struct, frozen=True):
    """One kernel log that was read. source: "kmsg", "dmesg", "journal", "file"; path: for the cites;
    live: read on this machine now; boot_id: of the log, when it says or when it is live;
    first, last: what it covers; gap_free: record numbers are continuous from first to last (never known from text);
    lines: how many messages; facilities: the format tells the kernel's own lines from forged ones."""

    source: str
    path: str | None = None
    live: bool = False
    boot_id: str | None = None
    host: str | None = None
    first: Moment | None = None
    last: Moment | None = None
    gap_free: bool = False
    lines: int = 0
    events: list[KernelEvent] = []
    oom_blocks: int = 0  # OOM blocks seen, also those whose victim line is missing
    gaps: list[Gap] = []
