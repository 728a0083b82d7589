"""CPU faults of user programs that the kernel wrote down (arch/x86/mm/fault.c, traps.c; arch/arm64; kernel/signal.c).

The number in brackets is the thread, in the initial pid namespace, and the name is the thread's. `error` is hex.
The mapping is printed as [base+size], and since 6.10 or so (seen on 6.18) as [file offset,base+size].
"""

from __future__ import annotations

import re

import msgspec

from ftforensics.model.basics import Address
from ftforensics.model.kernel import Fault, LogLine

ANCHORS = (
    b" error",  # "segfault at ... error 4", "traps: ... error:0", and I/O errors of all kinds
    b"unhandled ",
    b"undefined instruction",
    b"unexpected fatal signal",
)

_HEX = r"(?:0x)?([0-9a-f]{1,16})"
_WHO = r"(.{0,64}?)\[(\d{1,10})\]"
_SEGFAULT = re.compile(rf"{_WHO}: segfault at {_HEX} [re]?ip:? ?{_HEX} [re]?sp:? ?{_HEX} error:? ?{_HEX}")
_TRAP = re.compile(
    rf"(?:traps: )?{_WHO} (?:trap )?([a-z][a-z0-9 -]{{1,40}}?) [re]?ip:{_HEX} [re]?sp:{_HEX} error:{_HEX}"
)
_ARM = re.compile(rf"{_WHO}: unhandled (.{{1,80}}? fault) \(\d+\) at {_HEX}, esr {_HEX}")
_ARM_NEW = re.compile(rf"{_WHO}: unhandled exception: [^,]{{1,80}}, ESR {_HEX}, (.{{1,80}}?)(?= in |\Z)")
_ARM_UNDEFINED = re.compile(rf"{_WHO}: (?:undefined instruction|undefinstr): pc={_HEX}")
_PLACE = re.compile(r",? in (.{1,255})\[(?:([0-9a-f]{1,16}),)?([0-9a-f]{1,16})\+([0-9a-f]{1,16})\]")
_CPU = re.compile(r" likely on CPU (\d{1,5}) ")
_FATAL = re.compile(
    r"(?:(.{1,255}?)/(\d{1,10}): |(?:.{1,255}?: )?(.{1,64}?): )?potentially unexpected fatal signal (\d{1,2})\."
)


class FatalSignal:
    """kernel.print-fatal-signals: the pid stands in the "CPU: ... PID: ... Comm: ..." line that follows."""

    __slots__ = ("comm", "line", "number", "tid")

    def __init__(self, line: LogLine, number: int, comm: str | None, tid: int | None) -> None:
        self.line, self.number, self.comm, self.tid = line, number, comm, tid


def fault(line: LogLine) -> Fault | FatalSignal | None:
    text = line.text
    if found := _SEGFAULT.match(text):
        at = Address(int(found[3], 16))
        return _placed(line, found, "segfault", at, found[4], found[5], found[6])
    if " ip:" in text and (found := _TRAP.match(text)):
        return _placed(line, found, found[3].removesuffix(" fault"), None, found[4], found[5], found[6])
    if "unhandled " in text:
        if found := _ARM.match(text):
            return _arm(line, found, found[3], found[4], found[5])
        if found := _ARM_NEW.match(text):
            return _arm(line, found, found[4], None, found[3])
        return None
    if found := _ARM_UNDEFINED.match(text):
        return Fault(line, int(found[2]), found[1], "undefined instruction", ip=Address(int(found[3], 16)))
    if "fatal signal" in text and (found := _FATAL.match(text)):
        return FatalSignal(line, int(found[4]), found[1] or found[3], int(found[2]) if found[2] else None)
    return None


def fatal_signal(seen: FatalSignal) -> Fault | None:
    """None as long as no line named the thread."""
    if seen.tid is None or seen.comm is None:
        return None
    return Fault(seen.line, seen.tid, seen.comm, f"fatal signal {seen.number}")


def _placed(
    line: LogLine, found: re.Match[str], kind: str, address: Address | None, ip: str, sp: str, error: str
) -> Fault:
    cpu = _CPU.search(line.text, found.end())
    plain = Fault(
        line,
        int(found[2]),
        found[1],
        kind,
        address,
        Address(int(ip, 16)),
        Address(int(sp, 16)),
        Address(int(error, 16)),
        cpu=int(cpu[1]) if cpu else None,
    )
    where = place(line.text, found.end())
    return plain if where is None else placed(plain, where)


def _arm(line: LogLine, found: re.Match[str], kind: str, address: str | None, esr: str) -> Fault:
    at = None if address is None else Address(int(address, 16))
    plain = Fault(line, int(found[2]), found[1], kind, address=at, esr=Address(int(esr, 16)))
    where = place(line.text, found.end())
    return plain if where is None else placed(plain, where)


class Place(msgspec.Struct, frozen=True):
    """ " in FILE[MAP]"; cpu from " likely on CPU N" behind it."""

    file: str
    base: Address
    size: int
    offset: Address | None
    cpu: int | None


def place(text: str, at: int = 0) -> Place | None:
    found = _PLACE.match(text, at)
    if found is None:
        return None
    cpu = _CPU.match(text, found.end())
    offset = None if found[2] is None else Address(int(found[2], 16))
    return Place(found[1], Address(int(found[3], 16)), int(found[4], 16), offset, int(cpu[1]) if cpu else None)


def placed(fault: Fault, where: Place) -> Fault:
    return msgspec.structs.replace(
        fault,
        file=where.file,
        map_base=where.base,
        map_size=where.size,
        map_offset=where.offset,
        cpu=fault.cpu if where.cpu is None else where.cpu,
    )
