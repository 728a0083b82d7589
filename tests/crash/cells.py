"""The crash matrix as data: which deaths there are and what each must leave behind.

A cell is one way to die: a fault in a context, with a condition around it. Everything that a test asserts about a
death stands here; how a cell is run stands in `harness`.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace

X86 = platform.machine() == "x86_64"


@dataclass(frozen=True)
class Fault:
    """mechanism: the word of the analyser; function: the symbol that must be among the crashing thread's native
    frames; library: the file under the build folder that holds it; kernel_line: the kernel writes one (SIGSEGV, and
    SIGILL, SIGBUS and SIGFPE as traps)."""

    mechanism: str
    function: str
    library: str = "crashers.so"
    kernel_line: bool = True


FAULTS = {
    "null_read": Fault("null-read", "crash_null_read"),
    "null_write": Fault("null-write", "crash_null_write"),
    "null_call": Fault("null-call", "crash_null_call"),
    "wild_read": Fault("wild-read", "crash_wild_read"),
    "wild_write": Fault("wild-write", "crash_wild_write"),
    "wild_call": Fault("wild-call", "crash_wild_call"),
    # aarch64 reports such an address as a plain translation fault (man 2 sigaction; arch/arm64/mm/fault.c).
    "non_canonical": Fault("non-canonical", "crash_non_canonical"),
    "write_to_readonly": Fault("write-to-readonly", "crash_write_to_readonly"),
    "execute_data": Fault("execute-data", "crash_execute_data"),
    "wild_stack_pointer": Fault("wild-write", "crash_wild_stack_pointer"),
    "stack_overflow": Fault("stack-overflow", "crash_stack_overflow_level"),
    "double_free": Fault("abort-heap", "crash_double_free", kernel_line=False),
    "malloc_locked": Fault("wild-read", "crash_malloc_locked"),
    "cxx_exception": Fault("abort-cxx-exception", "crash_cxx_exception", kernel_line=False),
    "assert": Fault("abort-assert", "crash_assert", kernel_line=False),
    "bus_truncated_file": Fault("bus-truncated-file", "crash_bus_truncated_file", kernel_line=False),
    "bus_shm_full": Fault("bus-shm-full", "crash_bus_shm_full", kernel_line=False),
    "illegal_instruction": Fault("illegal-instruction", "crash_illegal_instruction"),
    "integer_division": Fault("integer-division", "crash_integer_division"),
    "sent_segv": Fault("sent-by-process", "crash_wait_signal", kernel_line=False),
    "sent_abrt": Fault("sent-by-process", "crash_wait_signal", kernel_line=False),
    "ctor": Fault("null-write", "crash_in_ctor", "ftf_ctor.so"),
    "dtor": Fault("null-write", "crash_in_dtor", "ftf_dtor.so"),
    "forked_child": Fault("null-read", "crash_null_read"),
}
if not X86:
    del FAULTS["integer_division"]  # the instruction gives 0 there
CONTEXTS = ("main", "thread", "c_thread", "300_threads")


@dataclass(frozen=True)
class Cell:
    """setup: the condition of die.py; python: text that the crashing thread's Python stack must hold, None = this
    thread has no Python state; partial: why no record can be expected, None = everything is; proof: what die.py must
    have proven about its own condition; says: texts that must stand in stderr exactly once."""

    fault: str
    context: str
    setup: str = "none"
    python: str | None = "pull_trigger"
    partial: str | None = None
    proof: object = None
    says: tuple[str, ...] = ()
    settle: bool = False
    helper: str = "none"
    hooks: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [self.fault, self.context]
        words += [self.setup] if self.setup != "none" else []
        words += ["settled"] if self.settle else []
        words += ["helper"] if self.helper != "none" else []
        return "-".join([*words, *self.hooks])

    @property
    def needs_root(self) -> bool:
        return self.fault == "bus_shm_full" or self.setup in ("disk_full", "nproc_0")

    @property
    def expected(self) -> Fault:
        return FAULTS[self.fault]


NO_ALTERNATE_STACK = "no alternate stack on a thread that C started without the pthread_create shim"
STARTED_BEFORE = "no alternate stack on a thread that was started before install()"


def plain(fault: str, context: str) -> Cell:
    cell = Cell(fault, context)
    if context == "c_thread":
        cell = replace(cell, python=None)
        # A signal frame does not fit on a stack that is full, nor on one that is not there.
        if fault in ("stack_overflow", "wild_stack_pointer"):
            cell = replace(cell, partial=NO_ALTERNATE_STACK)
    if fault == "dtor":
        # exit() by main runs destructors when the interpreter is finalized; by a thread, while it still runs.
        cell = replace(cell, python="_bootstrap" if context == "thread" else None)
    if fault == "forked_child" and context != "c_thread":
        cell = replace(cell, python="die_in_forked_child")
    return cell


PLAIN = [plain(fault, context) for fault in FAULTS for context in CONTEXTS]

FAULTHANDLER_TEXT = "Fatal Python error: Segmentation fault"
SPECIAL = [
    *(Cell("null_read", f"{n}_at_once", python="pull_trigger_at_barrier") for n in (2, 16)),
    *(Cell("null_read", f"{n}_c_at_once", python=None) for n in (2, 16)),
    Cell("double_free", "16_at_once", python="pull_trigger_at_barrier"),
    *(Cell("null_read", context, "no_fds", proof="EMFILE") for context in ("main", "thread")),
    *(Cell("null_read", context, "fd_reused") for context in ("main", "thread")),
    *(Cell(fault, "main", "disk_full", proof="ENOSPC") for fault in ("null_read", "double_free", "stack_overflow")),
    Cell("null_read", "300_threads", "disk_full", proof="ENOSPC"),
    *(Cell("null_read", context, "cwd_gone", proof="ENOENT") for context in ("main", "thread")),
    *(Cell("null_read", context, "nproc_0", proof="EAGAIN") for context in ("main", "early_thread")),
    *(Cell("null_read", context, "no_ptrace", proof="EPERM") for context in ("main", "thread")),
    *(
        Cell("null_read", context, "pirate_sigaction", proof="stolen", says=("pirate: chaining",), settle=settle)
        for context in ("main", "thread")
        for settle in (False, True)
    ),
    Cell(
        "null_read",
        "main",
        "pirate_signal",
        proof="stolen",
        partial="a thief that resets the signal and is met before the watcher's next look, under a second later",
    ),
    *(
        Cell("null_read", context, "pirate_signal", proof="stolen", says=("pirate: signal",), settle=True)
        for context in ("main", "thread")
    ),
    Cell("null_read", "main", "pirate_exit0", proof="stolen", says=("pirate: exit 0",), settle=True),
    *(
        Cell("null_read", context, f"faulthandler_{when}", says=(FAULTHANDLER_TEXT,))
        for context in ("main", "thread", "300_threads")
        for when in ("before", "after")
    ),
    *(
        Cell("double_free", "main", f"faulthandler_{when}", says=("Fatal Python error: Aborted",))
        for when in ("before", "after")
    ),
    *(
        Cell("stack_overflow", "main", f"faulthandler_{when}", says=(FAULTHANDLER_TEXT,))
        for when in ("before", "after")
    ),
    *(Cell(fault, how, python=None) for fault in ("null_read", "double_free") for how in ("main_exits", "main__exits")),
    Cell("null_read", "early_thread"),
    Cell("stack_overflow", "early_thread", partial=STARTED_BEFORE),
]
