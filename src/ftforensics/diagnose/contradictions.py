"""Does a record agree with itself?

A record may be torn, edited, or of a process in a state nobody thought of. What it says twice must be the same both
times before anything it says counts as proof.
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.model.basics import Cite
from ftforensics.model.crash import CrashRecord, Process, Signal, Time
from ftforensics.parsers.proc_maps import AddressSpace

_NUMBERS = {
    "SIGILL": 4,
    "SIGTRAP": 5,
    "SIGABRT": 6,
    "SIGBUS": 7,
    "SIGFPE": 8,
    "SIGKILL": 9,
    "SIGSEGV": 11,
    "SIGTERM": 15,
}
_CODES = {"SI_USER": 0, "SI_QUEUE": -1, "SI_TKILL": -6, "SI_KERNEL": 0x80}
_PREFIXES = {"SEGV_": "SIGSEGV", "BUS_": "SIGBUS", "ILL_": "SIGILL", "FPE_": "SIGFPE", "TRAP_": "SIGTRAP"}


def contradictions(record: CrashRecord) -> list[Cite]:
    """Every pair of members that cannot both be true; empty for a sound record."""
    found: list[Cite] = []
    if record.signal is not None:
        found += (Cite("crash", "signal", text) for text in _signal(record.signal))
    if record.process is not None:
        found += (Cite("crash", "process", text) for text in _process(record.process, record.status or []))
    if record.time is not None:
        found += (Cite("crash", "time", text) for text in _time(record.time))
    found += _pc(record)
    found += _code(record)
    return found


def _signal(signal: Signal) -> Iterator[str]:
    name, code, code_name = signal.name, signal.code, signal.code_name or ""
    if name in _NUMBERS and signal.number is not None and _NUMBERS[name] != signal.number:
        yield f"{name} is not signal {signal.number}"
    if code is not None and _CODES.get(code_name, code) != code:
        yield f"{code_name} is not si_code {code}"
    for prefix, owner in _PREFIXES.items():
        if code_name.startswith(prefix) and name in _NUMBERS and name != owner:
            yield f"{code_name} does not come with {name}"
    if code is not None and code > 0 and signal.sender is not None:
        yield "the kernel raised it, and yet a sender is named"
    if code is not None and code <= 0 and signal.address is not None:
        yield "it was sent, and yet a fault address is named"


def _process(process: Process, status: list[str]) -> Iterator[str]:
    pid = process.pid
    if pid is None:
        return
    if process.nspid and process.nspid[-1] != pid:
        yield f"pid {pid} is not the innermost of {' '.join(map(str, process.nspid))}"
    if process.ppid == pid:
        yield f"pid {pid} is its own parent"
    for line in status:
        name, _, value = line.partition(":")
        # /proc may belong to an outer pid namespace, whose number is in nspid then.
        if name == "Tgid" and value.strip().isdigit() and int(value) not in (pid, *process.nspid):
            yield f"/proc/self/status was of pid {value.strip()}, not {pid}"


def _time(time: Time) -> Iterator[str]:
    if time.monotonic is not None and time.installed is not None and time.monotonic < time.installed:
        yield "the crash is before install() on the same clock"
    # CLOCK_BOOTTIME also counts the time suspended; they are read one after the other.
    if time.monotonic is not None and time.boottime is not None and time.boottime < time.monotonic - 1:
        yield "the time since boot is shorter than the time awake"


def _pc(record: CrashRecord) -> Iterator[Cite]:
    walk, registers = record.native, record.registers
    first = walk.frames[0] if walk is not None and walk.frames else None
    if first is None or first.trust != "context" or registers is None or registers.pc is None:
        return
    if first.pc != registers.pc:
        yield Cite(
            "crash", "native.frames[0]", f"the stack begins at {first.pc}, the program counter was {registers.pc}"
        )


def _code(record: CrashRecord) -> Iterator[Cite]:
    """Code runs in executable mappings, but for a jump to somewhere else, which is a fault of its own."""
    signal, pc = record.signal, record.registers.pc if record.registers else None
    if signal is None or pc is None or not record.maps or signal.access == "exec" or signal.address == pc:
        return
    if signal.code == _CODES["SI_KERNEL"]:
        return
    mapping = AddressSpace(record.maps).at(int(pc))
    if mapping is None or mapping.permissions[2] != "x":
        yield Cite("maps", "maps", f"the program counter {pc} lies in no executable mapping, and yet code ran there")
