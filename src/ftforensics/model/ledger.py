"""The environment ledger: what each run on this machine ran on, and how it ended. Schema `ftforensics.ledger/1`.

One JSON object a line, appended: `begun` when a run starts, `ended` when it is known how it ended. A run without an end
is "unseen" until a record or the next start tells more.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.software import Package

# The one setting of a configuration file that is not understood: its size and checksum.
NOT_UNDERSTOOD = "(content)"


class Setting(msgspec.Struct, frozen=True):
    """One fact with a name: an environment variable, a key of a configuration file ("zero_optimization.stage")."""

    name: str
    value: str


class ConfigFile(msgspec.Struct, frozen=True):
    """A JSON or YAML file named on the command line; settings: its keys, dotted, values redacted and shortened."""

    path: str
    settings: list[Setting] = []


class Fingerprint(msgspec.Struct, frozen=True):
    """What a run ran on. memory: bytes of the machine; memory_limit: bytes of the job's own limit, None: none;
    elsewhere: names of the packages that came from a folder, a repository or a URL instead of an index."""

    host: str | None = None
    python: str | None = None
    prefix: str | None = None
    packages: list[Package] = []
    elsewhere: list[str] = []
    torch: str | None = None  # with its CUDA: "2.9.1+cu128"
    driver: str | None = None  # the kernel module's version
    libcuda: str | None = None
    kernel: str | None = None
    glibc: str | None = None
    gpus: list[str] = []  # names
    cpu: str | None = None
    cores: int | None = None
    memory: int | None = None
    memory_limit: int | None = None
    shm: int | None = None  # bytes of /dev/shm
    world_size: int | None = None
    variables: list[Setting] = []
    image: str | None = None  # of the container, where something names it
    argv: list[str] = []  # redacted
    cwd: str | None = None
    files: list[ConfigFile] = []


class Begun(msgspec.Struct, frozen=True, tag="begun", tag_field="type"):
    """at: seconds since the epoch; run: the run folder's id; job: what makes two runs comparable (program and folder);
    folder: where records of a bad end lie."""

    run: str
    at: float
    job: str
    fingerprint: Fingerprint
    folder: str | None = None
    pid: int | None = None
    boot_id: str | None = None
    start_ticks: int | None = None
    version: str | None = None


class Ended(msgspec.Struct, frozen=True, tag="ended", tag_field="type"):
    """how: "ok", "signal", "code"; cause: of the verdict, when somebody asked. host: whose run it was, for state
    directories that several machines share; pid: of the process that ended, where that is known."""

    run: str
    at: float
    how: str
    signal: int | None = None
    code: int | None = None
    cause: str | None = None
    host: str | None = None
    pid: int | None = None


class Snapshot(msgspec.Struct, frozen=True):
    """What `ftforensics env snapshot` writes: one fingerprint, taken now."""

    at: float
    fingerprint: Fingerprint
    schema: str = "ftforensics.snapshot/1"


class LedgerRun(msgspec.Struct, frozen=True):
    """One run, joined. ended None: nobody saw its end; running: it still runs."""

    begun: Begun
    ended: Ended | None = None
    running: bool = False

    @property
    def good(self) -> bool:
        return self.ended is not None and self.ended.how == "ok"


class Change(msgspec.Struct, frozen=True):
    """One difference between two fingerprints. kind: "package", "driver", "kernel", "gpu", "cpu", "memory-limit",
    "variable", "config", "python", "image", "world-size", "argv", ...; name: of the package, variable or key; before,
    after: None when it was not there."""

    kind: str
    name: str
    before: str | None = None
    after: str | None = None


class Changes(msgspec.Struct, frozen=True):
    """since: when the run that is compared with began, seconds since the epoch; run: its id; good: it had ended well.
    same_job: it was a run of the same program (else: the last good one of any job in this environment)."""

    since: float
    run: str
    good: bool = True
    same_job: bool = True
    items: list[Change] = []
