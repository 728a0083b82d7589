"""Names of signals, for x86-64 and aarch64 Linux (man 7 signal). Python's `signal` has them only where it runs."""

from __future__ import annotations

# fmt: off
_NAMES = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV",
    "USR2", "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU",
    "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
)
# fmt: on
_NUMBERS = {f"SIG{name}": number for number, name in enumerate(_NAMES, 1)}


def signal_name(number: int) -> str:
    """ "SIGKILL" for 9; "signal 34" for numbers without a name."""
    return f"SIG{_NAMES[number - 1]}" if 1 <= number <= len(_NAMES) else f"signal {number}"


def signal_number(name: str) -> int | None:
    """9 for "SIGKILL"; None for a name that is none."""
    return _NUMBERS.get(name)
