"""A finished answer, schema `ftforensics.report/1`: what `diagnose` builds and `report` renders."""

from __future__ import annotations

from enum import Enum

import msgspec

from ftforensics.model.basics import Address, Cite, Gap
from ftforensics.model.exception import Raised
from ftforensics.model.ledger import Changes


class Confidence(str, Enum):
    """Ordinal, strongest first. `proven` needs an authority that names this very process (docs/confidence.md)."""

    PROVEN = "proven"
    LIKELY = "likely"
    POSSIBLE = "possible"
    RULED_OUT = "ruled_out"


class Remedy(msgspec.Struct, frozen=True):
    """settles: a cheap run or look that tells whether the verdict holds, rather than a cure."""

    text: str
    command: str | None = None
    settles: bool = False


class Finding(msgspec.Struct, frozen=True):
    """What one cause says about one case."""

    cause: str  # cause id, "thread-stack-overflow"
    confidence: Confidence
    summary: str  # one sentence, present when it becomes the verdict
    supports: list[Cite] = msgspec.field(default_factory=list, name="for")
    against: list[Cite] = []
    unknown: list[Gap] = []
    remedies: list[Remedy] = []


class Why(msgspec.Struct, frozen=True):
    cause: str
    confidence: Confidence
    supports: list[Cite] = msgspec.field(default_factory=list, name="for")


class Verdict(msgspec.Struct, frozen=True):
    outcome: str  # "failed", "succeeded", "unfinished", "unknown"
    cause: str | None
    kind: str | None
    confidence: str  # "proven", "likely", "undecided"
    summary: str
    mechanism: str | None = None
    why: list[Why] = []


class Frame(msgspec.Struct, frozen=True):
    """One line of the merged stack. A native frame has library/offset, a Python frame file/line."""

    function: str | None = None  # demangled
    library: str | None = None
    offset: Address | None = None  # pc minus the library's base
    function_offset: Address | None = None  # pc minus the function's start
    file: str | None = None
    line: int | None = None
    trust: str | None = None
    python: bool = False


class ThreadStack(msgspec.Struct, frozen=True):
    tid: int | None
    name: str | None
    crashed: bool
    frames: list[Frame]


class Exit(msgspec.Struct, frozen=True):
    signal: str | None = None
    code: int | None = None


class SignalHandler(msgspec.Struct, frozen=True):
    """A function that a signal went to, or would have gone to. kind: "ours", "library", "default" or "ignore";
    taken_back: it had replaced our handler and was put behind it."""

    kind: str
    function: str | None = None
    library: str | None = None
    offset: Address | None = None
    taken_back: bool = False


class SignalOwners(msgspec.Struct, frozen=True):
    """Who gets a fatal signal, in the order of the calls: the installed handler first."""

    signal: str
    handlers: list[SignalHandler] = []


class CurvePoint(msgspec.Struct, frozen=True):
    before: float  # seconds before the end
    used: int  # bytes


class Holder(msgspec.Struct, frozen=True):
    """Who held memory at the last sample. rss: bytes."""

    pid: int | None
    name: str | None
    rss: int
    rank: int | None = None
    cite: Cite | None = None


class MemoryHistory(msgspec.Struct, frozen=True):
    """The last minute before an end. quantity: what `points` show, as a person would say it ("memory of /slurm/job_1",
    "this process's memory"); limit: the limit that applies to it, bytes; growth: bytes/s over the final rise; since:
    seconds before the end at which that rise began; last_age: seconds between the last sample and the end, None when
    the end's time is not known; used: bytes at the last sample; rising: how many of `ranks` grew together.

    trend: "rising" (into the end, or up to `until` seconds before it, where it stood from then on), "flat" or
    "falling"; None when there are too few samples to say. page_cache: bytes of the group's usage that the kernel could
    have dropped, when they are much of it; full: `used` as a share of `limit`, when `points` show what is limited."""

    quantity: str
    points: list[CurvePoint] = []
    limit: int | None = None
    limit_of: str | None = None
    growth: float | None = None
    since: float | None = None
    started_at: int | None = None  # bytes when the final rise began
    used: int | None = None
    last_age: float | None = None
    ranks: int | None = None
    rising: int | None = None
    holders: list[Holder] = []  # largest first
    ring: str | None = None
    trend: str | None = None
    until: float | None = None
    page_cache: int | None = None
    full: float | None = None


class LastSample(msgspec.Struct, frozen=True):
    """One of the last fast samples. before: seconds before the end; sizes in bytes; usage: of the process's own memory
    group; available: MemAvailable of the machine."""

    before: float
    rss_anon: int | None = None
    rss_file: int | None = None
    rss_shmem: int | None = None
    usage: int | None = None
    available: int | None = None


class LastEvent(msgspec.Struct, frozen=True):
    """What the job said or received near its end. kind: "phase", "step", "note" or "signal"; sender: of a signal, as
    "pid 17987 (torchrun)"."""

    before: float
    kind: str
    text: str
    sender: str | None = None


class LastSecond(msgspec.Struct, frozen=True):
    """The end of a recorder's ring, in time order. events: those among the samples, and the last ones before them.
    end: how the ring says that the process went ("exit", "crash", "exec", "uninstall"), None when it does not say;
    recorder: why the recorder itself gave up; from_end: `before` counts from the end, not from the last sample."""

    samples: list[LastSample] = []
    events: list[LastEvent] = []
    end: str | None = None
    recorder: str | None = None
    from_end: bool = True


class ProcessReport(msgspec.Struct, frozen=True):
    host: str | None
    pid: int | None
    rank: int | None
    worker_of: int | None
    exit: Exit
    role: str  # "root", "collateral", "victim", "unknown"
    phase: str | None = None
    step: int | None = None
    time: float | None = None  # seconds since the epoch
    stack: list[Frame] = []  # merged, crashing thread, innermost first
    threads: list[ThreadStack] = []
    record: str | None = None  # path of the crash record
    handlers: list[SignalOwners] = []
    memory: MemoryHistory | None = None
    ring: str | None = None  # path of the recorder ring
    comm: str | None = None
    last_second: LastSecond | None = None
    by: str | None = None  # who sent the signal that ended it, as "17987 (torchrun)"
    alive: bool = False  # it still runs
    worker: bool = False  # a data worker; worker_of may be unknown
    reason: Cite | None = None  # why it has its role: the sender, the launcher's line, the exception's class
    raised: list[Raised] = []  # the exception that ended it, then what that came from; frames outermost first


class Event(msgspec.Struct, frozen=True):
    """kind: what a short report shows of a timeline: "failure" (the first one), "reaction" (the launcher's), "end";
    error: seconds by which `at` may be off against the clock of the first failure, None when it is the same clock."""

    at: float  # seconds since the epoch
    text: str
    cite: Cite | None = None
    kind: str | None = None
    error: float | None = None


class Attempt(msgspec.Struct, frozen=True):
    """An earlier attempt of the same job, in one line. name: "attempt 0", the run folder's name, or the lines of a log;
    root: the process that failed first, as "rank 3 (pid 18033)"; began, ended: seconds since the epoch; path: what
    `analyze` takes to show it in full."""

    name: str
    outcome: str
    cause: str | None
    confidence: str
    summary: str
    root: str | None = None
    began: float | None = None
    ended: float | None = None
    path: str | None = None


class Diagnosis(msgspec.Struct, frozen=True):
    """world_size: ranks of the job, where somebody says it; missing: those of which this input knows nothing;
    missing_on: where they ran, as far as somebody says: "node 0 (10.0.0.1)"."""

    verdict: Verdict
    hypotheses: list[Finding] = []
    processes: list[ProcessReport] = []
    attempts: list[Attempt] = []  # the earlier ones, oldest first
    remedies: list[Remedy] = []
    gaps: list[Gap] = []
    timeline: list[Event] = []
    changes: Changes | None = None  # since the last good run on this machine
    world_size: int | None = None
    missing: list[int] = []
    missing_on: list[str] = []
    schema: str = "ftforensics.report/1"
