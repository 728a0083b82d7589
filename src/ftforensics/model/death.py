"""One process's end with everything that is known about it, joined from all sources: what a cause looks at.

`diagnose.deaths` builds it. The joining (which kernel line is about which process) is done there, once; a cause weighs.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.exception import ExceptionRecord
from ftforensics.model.kernel import CpuLimit, DriverNote, Fault, KernelEvent, MemoryFailure, OomKill, Oops, Xid
from ftforensics.model.launcher import ExceptionSeen, NativeText, Peer, StackText
from ftforensics.model.mechanism import MechanismReading
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.model.reading import Reading
from ftforensics.model.ring import Ring, RingSignal
from ftforensics.model.run import Sent, Usage


class Tie(str, Enum):
    """How an outside record is tied to this process.

    EXACT: it names this very process and nothing is left to guess (same pid in the same namespace and boot, container
    id and one candidate, NSpid seen from outside); TEXT: the exact pid in two texts, status and name fitting, one
    record, nothing against it; STRONG: name, user, sizes and time fit and there is one candidate; WEAK: it may be.
    """

    EXACT = "exact"
    TEXT = "text"
    STRONG = "strong"
    WEAK = "weak"


class Match(msgspec.Struct, frozen=True):
    """why: what ties the record to this process; against: what speaks against it."""

    tie: Tie
    why: list[Cite] = []
    against: list[Cite] = []

    @property
    def sure(self) -> bool:
        return self.tie in (Tie.EXACT, Tie.TEXT) and not self.against


class OomMatch(msgspec.Struct, frozen=True):
    """kill: the record; own_group: did the limit belong to this process's own group or its unit (True), to a group
    above (False), None when the record does not say; cite: the `Killed process` line; cites: it and its block."""

    kill: OomKill
    match: Match
    cite: Cite
    cites: list[Cite] = []
    own_group: bool | None = None


class FaultMatch(msgspec.Struct, frozen=True):
    fault: Fault
    match: Match
    cite: Cite


class KernelMatch(msgspec.Struct, frozen=True):
    """Another kernel event about this process (Oops, MemoryFailure, CpuLimit)."""

    event: Oops | MemoryFailure | CpuLimit
    match: Match
    cite: Cite


class XidMatch(msgspec.Struct, frozen=True):
    """A GPU event of the driver's in the kernel log. match: how it is tied to this process, None: only by its time;
    before: seconds before the end, None when the clocks cannot be compared."""

    xid: Xid
    cite: Cite
    match: Match | None = None
    before: float | None = None


class DriverNoteMatch(msgspec.Struct, frozen=True):
    """Another driver line of the kernel log (versions that differ), about the machine; before: as above."""

    note: DriverNote
    cite: Cite
    before: float | None = None


class SentMatch(msgspec.Struct, frozen=True):
    """A traced signal that reached this process. by_kernel: code 128."""

    sent: Sent
    match: Match
    cite: Cite
    by_kernel: bool = False
    sender_role: str | None = None  # "launcher", "parent", "supervisor", "sibling": what the sender was to the job


class SignalMatch(msgspec.Struct, frozen=True):
    """A signal that the recorder saw arriving."""

    signal: RingSignal
    cite: Cite
    before: float | None = None  # seconds before the end
    sender_role: str | None = None
    sender_comm: str | None = None


class NoticeMatch(msgspec.Struct, frozen=True):
    notice: Notice
    match: Match
    alone: bool = True  # the only process of `unit` that died with SIGKILL (or as many as the notice counts)
    above: bool = False  # it stands above what tells of the end in the same log


class CounterChange(msgspec.Struct, frozen=True):
    """A counter before and after the death. bracketing: `after` was read after the end and `before` before it;
    counter: "oom_kill", "oom", "local_oom", "oom_group_kill", "failcnt", "vmstat oom_kill"."""

    counter: str
    group: str | None  # cgroup path; None: the whole machine
    before: int
    after: int
    bracketing: bool
    cite: Cite
    own: bool = False  # the process's own group

    @property
    def delta(self) -> int:
        return self.after - self.before


class Outside(msgspec.Struct, frozen=True):
    """Somebody responsible says that it ended this process itself, with `signal`: a launcher's teardown."""

    cite: Cite
    by: str  # "torchrun", "deepspeed", "lightning", "run", "slurm"
    signal: int | None = None
    everybody: bool = False  # it says so of every process of the job, of one that had died before too (DeepSpeed)
    number: int | None = None  # of the line in the log of path `path`
    path: str | None = None


class Behind(msgspec.Struct, frozen=True):
    """rank had enqueued `enqueued` collectives of a process group when another one waited in `sequence`; enqueued None:
    it says nothing of itself, while all the others do."""

    rank: int
    sequence: int
    enqueued: int | None = None
    cites: list[Cite] = []


class Death(msgspec.Struct, frozen=True, weakref=True):
    """One process's end.

    pid: as its own launcher and record see it; host_pids: pids that the kernel's log may use for it (NSpid, or `pid`
    itself when it is in the initial namespace); initial_namespace: True when known to be in it, None when not known.
    signal, code: how it ended, from `ending`; both None = not known (a ring without an end mark is "ended unseen").
    when: the best time of the end; earliest: it was alive then; failed: when what ended it began, where its own record
    or the kernel says so: its way out may have taken longer than another's.
    """

    pid: int | None = None
    host: str | None = None
    boot_id: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    worker_of: int | None = None
    comms: list[str] = []  # its and its threads' names
    uid: int | None = None
    host_pids: list[int] = []
    initial_namespace: bool | None = None
    container: str | None = None
    groups: list[str] = []  # cgroup paths, own first, then upwards
    start_ticks: int | None = None
    signal: int | None = None
    code: int | None = None
    ending: list[Cite] = []  # who says how it ended
    given: bool = False  # only the person's own word for it (--exit-code)
    watched: bool = False  # a parent (`run`) saw the wait status
    when: Moment = Moment()
    earliest: Moment = Moment()
    failed: Moment = Moment()
    wall: float | None = None  # date and time without a zone that a launcher gives the end, read as if in UTC
    told_wall: float | None = None  # the same of a later line in that log, where none is given for the end
    told_day: float | None = None  # the same without its year: seconds since the beginning of a leap year
    usage: Usage | None = None
    ppid: int | None = None
    worker: bool = False  # a launcher says that it was a data worker
    first: bool = False  # a launcher calls it the first failure; its opinion
    direct: bool = False  # the command that `run` was given
    run: str | None = None  # evidence file of the run that it was part of
    from_kernel: bool = False  # known from a kernel log alone; whose process it is, nobody says
    crash: Crash | None = None
    ring: Ring | None = None
    ring_path: str | None = None
    alive: bool = False
    reading: MechanismReading = MechanismReading()  # from the record, else from the kernel's fault line or a text
    last_reading: Reading | None = None  # the last counters before the end
    oom: list[OomMatch] = []  # best first
    others_oom: list[KernelEvent] = []  # OOM kills around that time that are NOT this process
    faults: list[FaultMatch] = []
    kernel: list[KernelMatch] = []
    sent: list[SentMatch] = []
    signals: list[SignalMatch] = []  # in time order
    notices: list[NoticeMatch] = []
    counters: list[CounterChange] = []
    ended_by: list[Outside] = []
    exceptions: list[ExceptionSeen] = []  # from logs
    unowned: list[ExceptionSeen] = []  # from logs: nobody is named, and it is one of several that may have raised them
    raised: ExceptionRecord | None = None  # by its own record, or torchrun's error file
    raised_path: str | None = None
    texts: list[NativeText] = []
    stack_texts: list[StackText] = []
    xids: list[XidMatch] = []  # nearest to the end first
    driver_notes: list[DriverNoteMatch] = []
    died_together: int = 1  # processes of the case that ended by SIGKILL within a second of this one, itself included
    parent_died: Moment | None = None
    parent_cite: Cite | None = None
    kernel_log_covers: bool | None = None  # a readable kernel log covers the end without a gap; None: not known
    traced: bool = False  # SIGKILL senders were traced during the whole run
    gaps: list[Gap] = []
    role: str = "unknown"
    cpu_limit_soft: int | None = None  # RLIMIT_CPU, seconds; None: unlimited or not known
    cpu_limit_hard: int | None = None
    rebooted: Cite | None = None  # its machine has another boot id now, and the end was not seen
    attempt: int | None = None  # torchrun's restart count
    world_size: int | None = None  # ranks of the job
    missing: list[int] = []  # ranks of the job of which this input knows nothing, when it knows how many there are
    behind: list[Behind] = []  # ranks that had not come to the collective in which this one waited
    missing_on: list[str] = []  # where those ran, as far as somebody says: "node 0 (10.0.0.1)"
    peers: list[Peer] = []  # whom its exceptions name as gone, those first that the input does not know
    rebooted_after: float | None = None  # seconds from the last sign of life to that boot, where both are known
