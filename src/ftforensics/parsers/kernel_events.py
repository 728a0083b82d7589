"""The kernel's other words about a dead or stuck process: memory errors, NVIDIA driver, storage, kernel failures.

Some take several messages. Those are kept as drafts in the place of their first line and finished with the lines that
follow within a screenful.
"""

from __future__ import annotations

import re

from ftforensics.model.kernel import (
    CpuLimit,
    DriverNote,
    KernelEvent,
    LogLine,
    Lost,
    MemoryFailure,
    Oops,
    StorageError,
    Xid,
)

# Those of kernel_oom and kernel_fault hold too: " error" for storage, "Kill" for memory.
ANCHORS = (
    b"Memory failure: ",
    b"NVRM: ",
    b"nvidia-nvswitch",
    b"filesystem",  # "Remounting filesystem read-only", "Shutting down filesystem"
    b"nfs: server ",
    b" timeout, ",
    b"BUG",  # "BUG: ...", "kernel BUG at"
    b" [#",  # "Oops: 0002 [#1]", "general protection fault: 0000 [#1]"
    b"Kernel panic",
    b"for more than ",
    b"Watchdog Timeout",
    b"callbacks suppressed",
)

AFTER_OOPS = 60  # messages from an oops' first line to its RIP line

_KILLING = re.compile(
    r"(?:MCE(?: 0x[0-9a-f]+)?|Memory failure: 0x[0-9a-f]+|0x[0-9a-f]+): "
    r"(Killing|forcibly killing|Sending SIGBUS to) (.{0,64}):(\d{1,10}) (?:due to|because of|because)"
)
_SIGBUS = re.compile(r".{0,80}?0x[0-9a-f]+: Sending SIGBUS to (.{0,64}):(\d{1,10})(?: |\Z)")
_RECOVERY = re.compile(r"Memory failure: 0x[0-9a-f]+: recovery action for .{1,80}: \w+")
_UNCORRECTED = re.compile(r"(?:mce: )?(?:Memory error not recovered|Uncorrected hardware memory error)")

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{1,8}(?:[:.][0-9a-fA-F]{1,4}){1,3})[^)]{0,64}\): (\d{1,4})(?:, ?(.*))?\Z",
    re.DOTALL,
)
_XID_WHO = re.compile(r"pid='?(\d{1,10}|<unknown>)'?(?:, name=(.{1,64}?))?(?:, |\Z)")
_SXID = re.compile(
    r"(?:nvidia-nvswitch\d+: |NVRM: )?SXid \((?:PCI:)?([^)]{1,64})\): (\d{1,6})(?:, ?(.*))?\Z", re.DOTALL
)
_OFF_BUS = re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]{5,20}):? .{0,10}has fallen off the bus")
_OFF_BUS_FIRST = re.compile(r"NVRM: The NVIDIA GPU ([0-9a-fA-F:.]{5,20})")
_MISMATCH = re.compile(r"NVRM: API mismatch: ")
_VERSION = re.compile(r"\bversion:? (\d{2,4}\.\d{1,4}(?:\.\d{1,4}){0,2})")

_STORAGE = (
    ("io", re.compile(r"Buffer I/O error on dev(?:ice)? ([^\s,]{1,64}),")),
    ("io", re.compile(r"(?:blk_update_request: |print_req_error: )?[\w /]{1,40} error, dev ([^\s,]{1,64}), sector")),
    ("io", re.compile(r"XFS \(([^)]{1,64})\): .{0,40}I/O error")),
    ("io", re.compile(r"([^\s:]{1,64}): .{0,120}attempt to access beyond end of device")),
    ("filesystem", re.compile(r"(?:EXT[234]-fs|BTRFS|XFS|F2FS-fs) error \(device ([^)]{1,64}?)\)")),
    ("readonly", re.compile(r"[\w-]{1,20} \(([^)]{1,64})\): Remounting filesystem read-only")),
    ("shutdown", re.compile(r"XFS \(([^)]{1,64})\): .{0,200}[Ss]hutting down filesystem")),
    ("nfs-timeout", re.compile(r"nfs: server (\S{1,255}) not responding, (?:still trying|timed out)")),
    ("nfs-ok", re.compile(r"nfs: server (\S{1,255}) OK\b")),
    ("device-timeout", re.compile(r"nvme (\S{1,64}): I/O .{1,80}timeout, ")),
)

_OOPS = re.compile(
    r"(?:BUG: )?[Uu]nable to handle (?:kernel |page fault)|BUG: kernel NULL pointer dereference"
    r"|(?:Internal error: |#PF: )?Oops\b.{0,200}\[#\d+\]"
    r"|(?:general protection fault|invalid opcode|divide error|stack segment|int3|double fault)\b.{0,120}\[#\d+\]"
)
_KERNEL_BUG = re.compile(r"kernel BUG at \S")
_SOFT_LOCKUP = re.compile(
    r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#\d+ stuck for \d+s! \[(.{0,64}):(\d{1,10})\]"
)
_HARD_LOCKUP = re.compile(r"(?:NMI )?watchdog: Watchdog detected hard LOCKUP on cpu \d+")
_HUNG = re.compile(r"INFO: task (.{0,64}):(\d{1,10}) blocked .{0,80}?for more than \d+ seconds")
_PANIC = re.compile(r"Kernel panic - not syncing")
_RIP = re.compile(
    r"(?:RIP: 0010:|pc : )(?:\[<[0-9a-f]+>\] +)*([\w.$]{1,200})\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(\w{1,64})\])?"
)

_SUPPRESSED = re.compile(r"([\w.]{1,64}): (\d{1,10}) callbacks suppressed")
# Limits that can hide a line we look for; net_ratelimit and its like hide nothing of ours.
_OF_INTEREST = re.compile(r"show_signal|oom|dump_header|signal|fault|traps")
_DROPPED = re.compile(r"\*\* (\d{1,10}) printk messages? dropped")
_MISSED = re.compile(r"Missed (\d{1,10}) kernel messages")
_CPU_LIMIT = re.compile(r"(?:CPU|RT) Watchdog Timeout \(hard\): (.{0,64})\[(\d{1,10})\]")


class OopsDraft:
    """A kernel failure whose process and function stand in later lines."""

    __slots__ = ("caller", "comm", "function", "kind", "line", "module", "ordinal", "pid")

    def __init__(self, line: LogLine, kind: str, caller: str | None, ordinal: int) -> None:
        self.line, self.kind, self.caller, self.ordinal = line, kind, caller, ordinal
        self.pid: int | None = None
        self.comm: str | None = None
        self.function: str | None = None
        self.module: str | None = None

    def finished(self) -> Oops:
        return Oops(self.line, self.kind, self.pid, self.comm, self.function, self.module)


class MismatchDraft:
    """NVRM's API mismatch, whose two versions stand in up to four lines."""

    __slots__ = ("line", "ordinal", "text")

    def __init__(self, line: LogLine, ordinal: int) -> None:
        self.line, self.ordinal, self.text = line, ordinal, line.text

    def finished(self) -> DriverNote:
        versions = _VERSION.findall(self.text)
        return DriverNote(
            self.line,
            "api-mismatch",
            client=versions[0] if versions else None,
            module=versions[1] if len(versions) > 1 else None,
        )


class SingleEvents:
    """All but OOM reports and CPU faults."""

    def __init__(self) -> None:
        self._oops: OopsDraft | None = None
        self._mismatch: MismatchDraft | None = None
        self._lost_gpu: tuple[str, int] | None = None

    def take(self, line: LogLine, caller: str | None, ordinal: int) -> KernelEvent | OopsDraft | MismatchDraft | None:
        text = line.text
        if "NVRM" in text or "SXid" in text:
            return self._nvidia(line, ordinal)
        if (oops := self._kernel_failure(line, caller, ordinal)) is not None:
            return oops
        if (failure := memory_failure(line)) is not None:
            return failure
        for kind, pattern in _STORAGE:
            if found := pattern.match(text):
                return StorageError(line, kind, found[1])
        if found := _SUPPRESSED.match(text):
            return Lost(line, "suppressed", int(found[2]), found[1]) if _OF_INTEREST.search(found[1]) else None
        if found := (_DROPPED.match(text) or _MISSED.match(text)):
            return Lost(line, "overrun", int(found[1]))
        if found := _CPU_LIMIT.match(text):
            return CpuLimit(line, int(found[2]), found[1])
        return None

    def wants_cpu(self, caller: str | None, ordinal: int) -> int:
        """The ordinal of the failure that waits for its CPU line; -1 when none does."""
        oops = self._open_oops(ordinal)
        if oops is None or oops.pid is not None:
            return -1
        return -1 if caller is not None and oops.caller not in (None, caller) else oops.ordinal

    def cpu(self, pid: int, comm: str) -> None:
        if self._oops is not None:
            self._oops.pid, self._oops.comm = pid, comm

    def _open_oops(self, ordinal: int) -> OopsDraft | None:
        return self._oops if self._oops is not None and ordinal - self._oops.ordinal <= AFTER_OOPS else None

    def _kernel_failure(self, line: LogLine, caller: str | None, ordinal: int) -> Oops | OopsDraft | None:
        text = line.text
        oops = self._open_oops(ordinal)
        if oops is not None and oops.function is None and (found := _RIP.match(text)):
            oops.function, oops.module = found[1], found[2]
            return None
        if found := _SOFT_LOCKUP.match(text):
            return Oops(line, "soft-lockup", int(found[2]), found[1])
        if found := _HUNG.match(text):
            return Oops(line, "hung-task", int(found[2]), found[1])
        if _PANIC.match(text):
            return Oops(line, "panic")
        if _HARD_LOCKUP.match(text):
            return Oops(line, "hard-lockup")
        kind = "bug" if _KERNEL_BUG.match(text) else "oops" if _OOPS.match(text) else None
        if kind is None:
            return None
        if oops is not None and oops.pid is None:
            return None  # "BUG: unable to handle ..." and "Oops: 0002 [#1]" are one failure
        self._oops = OopsDraft(line, kind, caller, ordinal)
        return self._oops

    def _nvidia(self, line: LogLine, ordinal: int) -> Xid | DriverNote | MismatchDraft | None:
        text = line.text
        if found := _XID.match(text):
            return _xid(line, found, switch=False)
        if found := _SXID.match(text):
            return _xid(line, found, switch=True)
        if found := _OFF_BUS.match(text):
            return DriverNote(line, "fallen-off-bus", device=found[1].rstrip(":"))
        if found := _OFF_BUS_FIRST.match(text):
            self._lost_gpu = (found[1].rstrip(":."), ordinal)
            return None
        if text.startswith("NVRM: fallen off the bus"):
            device = self._lost_gpu[0] if self._lost_gpu is not None and ordinal - self._lost_gpu[1] < 10 else None
            return DriverNote(line, "fallen-off-bus", device=device)
        if _MISMATCH.match(text):
            self._mismatch = MismatchDraft(line, ordinal)
            return self._mismatch
        if self._mismatch is not None and ordinal - self._mismatch.ordinal <= 8 and len(self._mismatch.text) < 2048:
            self._mismatch.text += f" {text.removeprefix('NVRM:').strip()}"
        return None


def memory_failure(line: LogLine) -> MemoryFailure | None:
    text = line.text
    if found := _KILLING.match(text):
        return MemoryFailure(line, int(found[3]), found[2], "SIGKILL" if found[1].startswith("forcibly") else "SIGBUS")
    if found := _SIGBUS.match(text):
        return MemoryFailure(line, int(found[2]), found[1], "SIGBUS")
    return MemoryFailure(line) if _RECOVERY.match(text) or _UNCORRECTED.match(text) else None


def _xid(line: LogLine, found: re.Match[str], *, switch: bool) -> Xid:
    rest = found[3] or ""
    device = found[1].removeprefix("PCI:")
    who = None if switch else _XID_WHO.match(rest)
    if who is None:
        return Xid(line, int(found[2]), device, text=rest, switch=switch)
    pid = int(who[1]) if who[1].isdigit() else None
    comm = None if who[2] in (None, "<unknown>") else who[2]
    return Xid(line, int(found[2]), device, pid, comm, rest[who.end() :], switch)
