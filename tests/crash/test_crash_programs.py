"""The programs of the matrix die for the reason that their name says, shown without any code of ours.

A matrix over deaths that are not what they claim proves nothing: a fault that the compiler optimised away, a
"malloc with the lock held" that holds no lock. Each program runs here with a handler of its own that prints the
kernel's siginfo, or with one that calls malloc().
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from cells import CONTEXTS, FAULTS, NO_ALTERNATE_STACK, plain
from conditions import needs_root, needs_x86_64
from harness import Workplace, die

SEGV, BUS, ILL, FPE, ABRT = signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT
MAPERR, ACCERR, KERNEL, USER, TKILL = 1, 2, 128, 0, -6

# (signal, si_code, si_addr or None where it is not a constant), from man 2 sigaction and the x86-64 kernel.
SIGINFO = {
    "null_read": (SEGV, MAPERR, 0x28),
    "null_write": (SEGV, MAPERR, 0x10),
    "null_call": (SEGV, MAPERR, 0),
    "wild_read": (SEGV, MAPERR, 0x123456789000),
    "wild_write": (SEGV, MAPERR, 0x123456789000),
    "wild_call": (SEGV, MAPERR, 0x123456789000),
    "non_canonical": (SEGV, KERNEL, 0),
    "write_to_readonly": (SEGV, ACCERR, None),
    "execute_data": (SEGV, ACCERR, None),
    "wild_stack_pointer": (SEGV, MAPERR, 0x12345677FFF8),
    "stack_overflow": (SEGV, MAPERR, None),
    "double_free": (ABRT, TKILL, None),
    "malloc_locked": (SEGV, MAPERR, 0x123456789010),
    "cxx_exception": (ABRT, TKILL, None),
    "assert": (ABRT, TKILL, None),
    "bus_truncated_file": (BUS, 2, None),  # BUS_ADRERR
    "bus_shm_full": (BUS, 2, None),
    "illegal_instruction": (ILL, 2, None),  # ILL_ILLOPN
    "integer_division": (FPE, 1, None),  # FPE_INTDIV
    "sent_segv": (SEGV, USER, None),
    "sent_abrt": (ABRT, USER, None),
    "ctor": (SEGV, MAPERR, 0x10),
    "dtor": (SEGV, MAPERR, 0x10),
    "forked_child": (SEGV, MAPERR, 0x28),
}

PRINTED = re.compile(
    r"^siginfo signo=(\d+) code=(-?\d+) address=(\S+) pid=(-?\d+) tid=(\d+) main=([01])$", re.MULTILINE
)


@needs_x86_64
@needs_root
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_siginfo(fault: str, context: str, place: Workplace) -> None:
    # An instrument's alternate stack is the main thread's only.
    silent = context != "main" and fault in ("stack_overflow", "wild_stack_pointer")
    death = die(plain(fault, context), "printer", place)
    number, code, address = SIGINFO[fault]
    assert death.status == -number, death.stderr
    found = PRINTED.findall(death.stderr)
    assert len(found) == (0 if silent else 1), death.stderr
    for signo, si_code, si_addr, _, _, main in found:
        if fault in ("sent_segv", "sent_abrt") and context != "main":
            code = TKILL  # a process can choose the thread only by tgkill
        assert (int(signo), int(si_code)) == (number, code)
        if address is not None:
            assert int(si_addr.replace("(nil)", "0"), 16) == address
        on_main = context == "main" or (fault == "dtor" and context == "300_threads")
        # The only thread of a forked child is its main thread.
        on_main = on_main or (fault == "forked_child" and context != "c_thread")
        assert main == str(int(on_main))


@pytest.mark.parametrize("context", CONTEXTS)
def test_malloc_cell_holds_the_heap_lock(context: str, place: Workplace) -> None:
    """A handler that allocates never returns from malloc: the alarm of the handler ends the process."""
    death = die(plain("malloc_locked", context), "allocator", place)
    assert death.stderr == "malloc?\n"
    assert death.status == -signal.SIGALRM


def test_malloc_in_a_handler_works_when_no_lock_is_held(place: Workplace) -> None:
    """The instrument of the test above can answer the other way."""
    death = die(plain("null_read", "thread"), "allocator", place)
    assert death.stderr == "malloc?\nmalloc!\n"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("double_free", "double free"),  # "detected in tcache 2", or "or corruption (fasttop)" when the tcache is full
        ("cxx_exception", "what():  ftf matrix: shard 3 has 7 rows, 8 wanted"),
        ("assert", "Assertion `ranks_seen == 8' failed."),
    ],
)
def test_abort_text(fault: str, text: str, place: Workplace) -> None:
    assert text in die(plain(fault, "main"), "none", place).stderr


def test_partial_cells_are_the_stated_ones() -> None:
    from cells import PLAIN, SPECIAL

    partial = sorted(str(cell) for cell in PLAIN if cell.partial == NO_ALTERNATE_STACK)
    assert partial == ["stack_overflow-c_thread", "wild_stack_pointer-c_thread"]
    assert sorted(str(cell) for cell in SPECIAL if cell.partial) == [
        "null_read-main-pirate_signal",
        "stack_overflow-early_thread",
    ]


def test_workplace_is_open_to_other_users(place: Workplace) -> None:
    folder = place.fresh()
    assert all(path.stat().st_mode & 0o005 == 0o005 for path in [place.root, folder, *Path(folder).iterdir()])
