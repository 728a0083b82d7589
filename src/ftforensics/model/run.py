"""What `ftforensics run` saw, as the lines of `evidence.jsonl` (schema `ftforensics.evidence/1`).

One JSON object a line, each with a `type`, appended as it happens: the supervisor's own death loses nothing.
`at` is CLOCK_MONOTONIC in seconds.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.reading import Reading
from ftforensics.model.ring import ClockPair


class Started(msgspec.Struct, frozen=True, tag="started", tag_field="type"):
    """at: when tracing and following had been armed; clocks: when the command was about to start, a little before."""

    schema: str
    version: str
    clocks: ClockPair
    boot_id: str | None = None
    host: str | None = None
    pid: int | None = None  # of the supervisor
    child: int | None = None  # the direct child
    argv: list[str] = []  # of the job, redacted
    cwd: str | None = None
    uid: int | None = None
    cgroup: list[str] = []
    container: str | None = None
    pid_namespace: int | None = None
    cgroup_namespace: int | None = None
    nspid: list[int] = []
    environment: list[str] = []  # launcher and scheduler ids, NAME=value
    kernel: str | None = None
    traced: bool = False  # senders of SIGKILL are traced
    kernel_log: bool = False  # /dev/kmsg is followed
    preloaded: bool = False
    at: float | None = None


class Usage(msgspec.Struct, frozen=True):
    """rusage of one process with its waited-for children. maxrss: bytes; times: seconds."""

    maxrss: int | None = None
    user: float | None = None
    system: float | None = None
    major_faults: int | None = None


class Died(msgspec.Struct, frozen=True, tag="died", tag_field="type"):
    """A descendant ended and was reaped by the supervisor (direct) or by its own parent (seen by pidfd: no status).

    status: as waitpid(2); signal, code: taken from it; None when another process reaped it.
    ppid: its parent at the time; comm: last seen; cpu_limit: its RLIMIT_CPU (soft, hard) when readable."""

    at: float
    pid: int
    status: int | None = None
    signal: int | None = None
    code: int | None = None
    core: bool = False
    ppid: int | None = None
    start_ticks: int | None = None
    comm: str | None = None
    argv: list[str] = []  # redacted
    uid: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    cgroup: list[str] = []
    nspid: list[int] = []
    usage: Usage | None = None
    cpu_limit: list[int] = []
    direct: bool = False  # the command itself
    last_rss: int | None = None  # bytes
    attempt: int | None = None  # torchrun's restart count


class Sent(msgspec.Struct, frozen=True, tag="sent", tag_field="type"):
    """signal:signal_generate of tracefs: who sent a signal to whom. code: si_code, 0 = by a process, 128 = by the
    kernel (then the sender is just whoever ran). Pids and tids of the initial namespace."""

    at: float
    signal: int
    code: int
    sender_comm: str
    sender_tid: int
    target_comm: str
    target_tid: int
    result: int = 0
    sender_pid: int | None = None  # thread group of sender_tid, when it could still be looked up
    text: str = ""


class KernelLine(msgspec.Struct, frozen=True, tag="kernel", tag_field="type"):
    """One record of /dev/kmsg, raw ("prio,seq,usec,flag;text"), as read during the run."""

    at: float
    record: str


class Counted(msgspec.Struct, frozen=True, tag="counted", tag_field="type"):
    """why: "start", "death", "end"."""

    at: float
    why: str
    reading: Reading


class Forwarded(msgspec.Struct, frozen=True, tag="forwarded", tag_field="type"):
    """A signal that the supervisor itself got and what it did: "passed on" or "the terminal's, left alone"."""

    at: float
    signal: int
    sender_pid: int | None = None
    did: str = ""


class Orphan(msgspec.Struct, frozen=True, tag="orphan", tag_field="type"):
    """Still alive when the command had ended."""

    at: float
    pid: int
    comm: str | None = None
    argv: list[str] = []


class Refused(msgspec.Struct, frozen=True, tag="gap", tag_field="type"):
    gap: Gap


class Ended(msgspec.Struct, frozen=True, tag="ended", tag_field="type"):
    """The command's own end."""

    at: float
    clocks: ClockPair
    status: int | None = None
    signal: int | None = None
    code: int | None = None
    log_bytes: int | None = None
    log_cut: bool = False


RunEvent = Started | Died | Sent | KernelLine | Counted | Forwarded | Orphan | Refused | Ended


class RunEvidence(msgspec.Struct, frozen=True):
    """A whole evidence file. started None: the first line is lost. ended None: the supervisor did not see the end."""

    path: str | None = None
    started: Started | None = None
    died: list[Died] = []
    sent: list[Sent] = []
    kernel: list[KernelLine] = []
    counted: list[Counted] = []
    forwarded: list[Forwarded] = []
    orphans: list[Orphan] = []
    ended: Ended | None = None
    gaps: list[Gap] = []
