"""The crash record, schema `ftforensics.crash/1`, as typed values.

csrc/ftf_handler.c writes it (one top-level member per line), `wire.record` reads it. Every member may
be missing: a process can die in the middle of any line. Sizes are bytes, times seconds.
"""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Address
from ftforensics.model.software import Software


class Tool(msgspec.Struct, frozen=True):
    name: str | None = None
    version: str | None = None
    python: str | None = None  # interpreter version, "3.11.7"
    helper: str | None = None  # "auto" or "none", as given to install()
    raw_stack: bool | None = None


class Time(msgspec.Struct, frozen=True):
    realtime: float | None = None  # seconds since the epoch
    monotonic: float | None = None
    boottime: float | None = None
    installed: float | None = None  # monotonic time of install()
    boot_id: str | None = None


class Process(msgspec.Struct, frozen=True):
    pid: int | None = None
    tid: int | None = None
    ppid: int | None = None
    nspid: list[int] = []  # outermost visible namespace first (man proc_pid_status, NSpid)
    start_ticks: int | None = None  # field 22 of /proc/pid/stat
    fork_of: int | None = None  # pid that called install(), when this is a forked child of it
    thread_name: str | None = None
    main_thread: bool | None = None
    python: str | None = None  # "running", "exiting" (atexit has begun) or "finalized"


class Job(msgspec.Struct, frozen=True):
    """What was known at install: who this process is."""

    host: str | None = None
    exe: str | None = None
    argv: list[str] = []  # redacted
    cwd: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    environment: list[EnvironmentVariable] = []  # allow-listed names only, values redacted
    cgroup: list[str] = []  # lines of /proc/self/cgroup
    python_executable: str | None = None
    sys_prefix: str | None = None
    kernel: str | None = None  # uname release
    machine: str | None = None  # "x86_64", "aarch64"
    glibc: str | None = None
    cpu_flags: str | None = None  # "flags"/"Features" line of /proc/cpuinfo
    cpu_model: str | None = None


class EnvironmentVariable(msgspec.Struct, frozen=True):
    name: str
    value: str


class Sender(msgspec.Struct, frozen=True):
    pid: int
    uid: int


class Signal(msgspec.Struct, frozen=True):
    number: int | None = None
    name: str | None = None  # "SIGSEGV"
    code: int | None = None  # si_code
    code_name: str | None = None  # "SEGV_MAPERR"
    address: Address | None = None  # si_addr; None when the signal was sent
    address_lsb: int | None = None  # si_addr_lsb of BUS_MCEERR_*
    sender: Sender | None = None
    via: Address | None = None  # address of the foreign handler that raised it again
    trap: int | None = None  # x86 trapno
    error_code: Address | None = None  # x86 page fault error code
    esr: Address | None = None  # aarch64 ESR_EL1
    access: str | None = None  # "read", "write", "exec" as the hardware said


class Register(msgspec.Struct, frozen=True):
    name: str
    value: Address


class Registers(msgspec.Struct, frozen=True):
    arch: str | None = None
    pc: Address | None = None
    sp: Address | None = None
    fp: Address | None = None
    values: list[Register] = []


class Bytes(msgspec.Struct, frozen=True):
    """A piece of memory. data: base64 in the file. redacted: words that could be data were zeroed."""

    start: Address
    data: bytes
    redacted: bool = False
    note: str | None = None


class RawFrame(msgspec.Struct, frozen=True):
    """trust: "context" (from the saved registers), "cfi" (unwind tables), "fp" (frame-pointer walk),
    "scan" (a word on the stack that looks like a return address), in falling order."""

    pc: Address
    sp: Address | None = None
    trust: str | None = None


class NativeWalk(msgspec.Struct, frozen=True):
    unwinder: str | None = None  # "libgcc", "frame-pointer", "stack-scan"
    safety: str | None = None  # "lockfree" or "loader-lock"
    start: str | None = None  # "context", "popped-return-address", "link-register"
    frames: list[RawFrame] = []
    complete: bool | None = None  # False: cut by a fault, a deadline or the frame limit


class PythonText(msgspec.Struct, frozen=True):
    """The dump of CPython's own faulthandler, verbatim; `parsers.faulthandler_text` reads it."""

    text: str | None = None
    hex: str | None = None  # the same bytes, present only when they were not UTF-8
    truncated: bool | None = None


class ThreadEntry(msgspec.Struct, frozen=True):
    tid: int
    name: str | None = None
    held: bool | None = None  # kept from running on while the record was written


class Module(msgspec.Struct, frozen=True):
    path: str
    base: Address
    end: Address | None = None
    build_id: str | None = None  # lower-case hex of NT_GNU_BUILD_ID, from mapped memory
    deleted: bool | None = None  # the kernel says the mapped file is gone from its path
    inode: int | None = None


class Handler(msgspec.Struct, frozen=True):
    """Who owned a fatal signal when the process died, and what stands behind us in the chain."""

    signal: str
    ours: bool | None = None  # the kernel called us first
    current: Address | None = None  # the installed handler function (0 default, 1 ignore)
    previous: list[ChainedHandler] = []


class ChainedHandler(msgspec.Struct, frozen=True):
    address: Address
    library: str | None = None
    offset: Address | None = None  # address minus the library's base
    taken_back: bool | None = None  # it had replaced us and was put behind us
    at: float | None = None  # monotonic time we noticed


class SeenSignal(msgspec.Struct, frozen=True):
    name: str
    at: float  # monotonic
    sender: Sender | None = None


class Limits(msgspec.Struct, frozen=True):
    core: int | None = None  # bytes, soft; None unlimited
    nofile: int | None = None
    nproc: int | None = None
    stack: int | None = None
    address_space: int | None = None


class Core(msgspec.Struct, frozen=True):
    pattern: str | None = None
    filter: str | None = None  # /proc/self/coredump_filter


class Library(msgspec.Struct, frozen=True):
    """One loaded CUDA, torch or runtime library. origin: "wheel", "conda", "system", "compat" (a forward-compatibility
    package), "stubs" (a toolkit's link-time stubs), "other".
    how: which evidence gave the version: "record" (dist-info), "conda", "symbol", "text", "file-name", "sibling",
    "version.py". vendored_by: the distribution that ships its own copy of somebody else's library; `version` is then
    the library's own, never the distribution's. drifted: how the file differs from what was installed or mapped; no
    version is then taken from the package's files. pin: the version that the installed torch demands of `package`;
    cuda: the CUDA version that it was built for, where it says so; searched: the entry of LD_LIBRARY_PATH that it lies
    in."""

    path: str
    kind: str  # "libcudart", "libcudnn", "libnccl", "libtorch", "extension", ...
    package: str | None = None
    version: str | None = None
    how: str | None = None
    origin: str | None = None
    build_id: str | None = None
    copies: int | None = None  # how many libraries of this kind (same SONAME stem) are mapped
    vendored_by: str | None = None  # "ctranslate2 4.5.0"
    drifted: str | None = None
    pin: str | None = None
    pinned_by: str | None = None  # "torch 2.9.1"
    cuda: str | None = None
    searched: str | None = None


class Gpu(msgspec.Struct, frozen=True):
    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    capability: str | None = None  # compute capability, "8.0"
    mig: bool | None = None  # split into instances


class Driver(msgspec.Struct, frozen=True):
    module_version: str | None = None  # /sys/module/nvidia/version or /proc/driver/nvidia/version
    libcuda_path: str | None = None  # real path
    libcuda_version: str | None = None  # from the file name
    api_level: int | None = None  # cuDriverGetVersion, e.g. 12010
    nvml_version: str | None = None
    gpus: list[Gpu] = []
    note: str | None = None


class Stage(msgspec.Struct, frozen=True):
    """One step of the handler. error: "signal 7", "deadline", "ENOSPC", "not held: 3", ..."""

    name: str
    ok: bool | None = None
    ms: float | None = None
    error: str | None = None


class AbortMessage(msgspec.Struct, frozen=True):
    text: str | None = None
    source: str | None = None  # "glibc" (__abort_msg)


class CxxException(msgspec.Struct, frozen=True):
    type: str | None = None  # mangled type name, "St13runtime_error"
    what: str | None = None


class FaultFile(msgspec.Struct, frozen=True):
    """The file mapped at the fault address, asked at the crash (stat, statfs): truncated, or its file system full?"""

    path: str | None = None
    size: int | None = None  # bytes, st_size
    filesystem: int | None = None  # f_type of statfs; 0x01021994 is tmpfs
    free: int | None = None  # bytes, f_bavail * f_bsize


class Phase(msgspec.Struct, frozen=True):
    names: list[str] = []  # outermost first
    since: float | None = None  # monotonic, of the innermost


class End(msgspec.Struct, frozen=True):
    how: str | None = None  # "refault", "requeue", "chain", "abort" (inside Py_FatalError)
    next: Address | None = None  # the handler that gets the signal next; 0 = default action
    total_ms: float | None = None


class CrashRecord(msgspec.Struct, frozen=True):
    schema: str | None = None
    tool: Tool | None = None
    time: Time | None = None
    process: Process | None = None
    signal: Signal | None = None
    mechanism: str | None = None  # left null by the handler; the analyser decides
    registers: Registers | None = None
    phase: Phase | None = None
    step: int | None = None
    note: str | None = None
    abort_message: AbortMessage | None = None
    cxx_exception: CxxException | None = None
    fault_file: FaultFile | None = None
    native: NativeWalk | None = None
    python: PythonText | None = None  # the crashing thread
    code: Bytes | None = None  # 256 bytes around the pc, only when it lies in executable memory
    native_frame_pointer: NativeWalk | None = None
    native_scan: NativeWalk | None = None
    python_threads: PythonText | None = None
    stack: Bytes | None = None
    other_crashers: list[int] | None = None  # tids that crashed too while we wrote
    signals_seen: list[SeenSignal] | None = None
    handlers: list[Handler] | None = None
    job: Job | None = None
    limits: Limits | None = None
    core: Core | None = None
    driver: Driver | None = None
    libraries: list[Library] | None = None
    software: Software | None = None
    modules: list[Module] | None = None
    threads: list[ThreadEntry] | None = None
    status: list[str] | None = None  # lines of /proc/self/status
    maps: list[str] | None = None  # lines of /proc/self/maps
    recorder: str | None = None  # ring file, when there is one
    stages: list[Stage] | None = None
    end: End | None = None
