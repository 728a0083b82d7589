"""Dies, on purpose and for real: `die.py --fault null_read --context thread --watch ours --dir DIR --build DIR`.

Runs on a bare CPython 3.10 or later: standard library and ftforensics (from PYTHONPATH) only. There is no sleep before
a death: threads hand over by barriers and pipes. One line of JSON on stdout says which process and thread is about to
die and which conditions were proven; `tests/crash/harness.py` reads it.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import signal
import struct
import sys
import threading
import time

FUNCTIONS = {
    "null_read": "crash_null_read",
    "null_write": "crash_null_write",
    "null_call": "crash_null_call",
    "wild_read": "crash_wild_read",
    "wild_write": "crash_wild_write",
    "wild_call": "crash_wild_call",
    "non_canonical": "crash_non_canonical",
    "write_to_readonly": "crash_write_to_readonly",
    "execute_data": "crash_execute_data",
    "wild_stack_pointer": "crash_wild_stack_pointer",
    "stack_overflow": "crash_stack_overflow",
    "double_free": "crash_double_free",
    "malloc_locked": "crash_malloc_locked",
    "cxx_exception": "crash_cxx_exception",
    "assert": "crash_assert",
    "bus_truncated_file": "crash_bus_truncated_file",
    "bus_shm_full": "crash_bus_shm_full",
    "illegal_instruction": "crash_illegal_instruction",
    "integer_division": "crash_integer_division",
    "sent_segv": "crash_wait_signal",
    "sent_abrt": "crash_wait_signal",
    "ctor": "crash_dlopen",
    "forked_child": "crash_null_read",
}
WAITING = 300
facts: dict[str, object] = {"pid": os.getpid()}


def tell() -> None:
    os.write(1, json.dumps(facts).encode() + b"\n")


class Crashers:
    """crashers.so and the small state that some of its functions need."""

    def __init__(self, build: str, fault: str) -> None:
        self.build = build
        self.lib = ctypes.CDLL(os.path.join(build, "crashers.so"))
        self.fault = fault
        self.sender_pipe = -1

    def function(self, name: str | None = None) -> object:
        function = getattr(self.lib, name or FUNCTIONS[self.fault])
        function.restype = None
        return function

    def prepare(self, directly: bool) -> None:
        """What must happen before any thread starts. directly: the signal goes to the process, not to a thread."""
        if self.fault == "bus_truncated_file":
            self.set_file(os.path.join(os.environ["FTF_TEST_TMP"], "shard.bin"))
        elif self.fault == "bus_shm_full":
            self.set_file("/dev/shm/torch_4242_batch")
        elif self.fault == "ctor":
            self.lib.set_dlopen_path(os.path.join(self.build, "ftf_ctor.so").encode())
        elif self.fault in ("sent_segv", "sent_abrt"):
            self.start_sender(signal.SIGSEGV if self.fault == "sent_segv" else signal.SIGABRT, directly)

    def set_file(self, path: str) -> None:
        (ctypes.c_char * 4096).in_dll(self.lib, "crash_file").value = path.encode()

    def start_sender(self, number: int, directly: bool) -> None:
        """A child that signals us as soon as the waiting C function has told its thread id."""
        read_end, write_end = os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            os.close(write_end)
            (tid,) = struct.unpack("q", os.read(read_end, 8))
            if directly:
                os.kill(parent, number)
            else:
                tgkill = {"x86_64": 234, "aarch64": 131}[os.uname().machine]
                ctypes.CDLL(None).syscall(ctypes.c_long(tgkill), parent, ctypes.c_int(tid), int(number))
            os._exit(0)
        os.close(read_end)
        facts["sender"] = child
        ctypes.c_int.in_dll(self.lib, "crash_ready_fd").value = write_end


def pull_trigger(crashers: Crashers) -> None:
    """The last Python frame: tests look for its name."""
    if crashers.fault == "forked_child":
        die_in_forked_child(crashers)
    elif crashers.fault == "ctor":
        sys.path.insert(0, crashers.build)
        import ftf_ctor  # noqa: F401
    else:
        crashers.function()()  # type: ignore[operator]


def die_in_forked_child(crashers: Crashers, on_c_thread: bool = False) -> None:
    child = os.fork()
    if child == 0:
        if on_c_thread:
            crashers.lib.die_on_c_thread(crashers.function())
        else:
            crashers.function()()  # type: ignore[operator]
        os._exit(90)
    _, status = os.waitpid(child, 0)
    facts.update(dying_pid=child, child_status=status)
    tell()


def die_on_main(crashers: Crashers) -> None:
    crashers.prepare(directly=True)
    tell()
    pull_trigger(crashers)


def die_on_thread(crashers: Crashers) -> None:
    crashers.prepare(directly=False)
    thread = threading.Thread(target=run_on_thread, args=(crashers,))
    thread.start()
    thread.join()


def run_on_thread(crashers: Crashers) -> None:
    facts["tid"] = threading.get_native_id()
    tell()
    pull_trigger(crashers)


def die_on_c_thread(crashers: Crashers) -> None:
    crashers.prepare(directly=False)
    tell()
    if crashers.fault == "forked_child":
        die_in_forked_child(crashers, on_c_thread=True)
    else:
        crashers.lib.die_on_c_thread(crashers.function())


def die_among_300(crashers: Crashers) -> None:
    crashers.prepare(directly=False)
    release = start_waiting_threads(WAITING)
    thread = threading.Thread(target=run_on_thread, args=(crashers,))
    thread.start()
    thread.join()
    release.set()


def start_waiting_threads(count: int) -> threading.Event:
    """Threads that sit in a lock until the event is set; all of them run when this returns."""
    release = threading.Event()
    started = threading.Barrier(count + 1)

    def wait_for_batch() -> None:
        started.wait()
        release.wait()

    for _ in range(count):
        threading.Thread(target=wait_for_batch, daemon=True).start()
    started.wait()
    return release


def die_twice(crashers: Crashers, count: int, python: bool) -> None:
    """`count` threads fault at the same moment."""
    crashers.prepare(directly=False)
    tell()
    if not python:
        crashers.lib.die_on_many_c_threads(crashers.function(), count)
        return
    crashers.lib.barrier_init(count)
    threads = [threading.Thread(target=pull_trigger_at_barrier, args=(crashers,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def pull_trigger_at_barrier(crashers: Crashers) -> None:
    crashers.lib.die_at_barrier(crashers.function())


def die_while_main_leaves(crashers: Crashers, how: str) -> None:
    """A C thread crashes; 5 ms later the main thread ends the process with status 0."""
    tell()
    crashers.lib.die_on_c_thread_and_return(crashers.function(), 5)
    if how == "_exit":
        os._exit(0)
    sys.exit(0)


def die_in_destructor(crashers: Crashers, context: str) -> None:
    """exit() runs the destructors of libraries on the thread that called it."""
    ctypes.CDLL(os.path.join(crashers.build, "ftf_dtor.so"))
    tell()
    if context == "thread":
        thread = threading.Thread(target=ctypes.CDLL(None).exit, args=(0,))
        thread.start()
        thread.join()
    elif context == "c_thread":
        crashers.lib.exit_on_c_thread()
    elif context == "300_threads":
        start_waiting_threads(WAITING)
    sys.exit(0)


# --- conditions around the death ------------------------------------------------------------------------------------


def exhaust_fds(crashers: Crashers, args: argparse.Namespace) -> None:
    import resource

    # As a leak does it: up to the limit, which lies above everything that is open already.
    limit = max(open_fds()) + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    try:
        while True:
            os.dup(0)
    except OSError as error:
        facts["proof"] = errno.errorcode[error.errno or 0]  # EMFILE


def reuse_our_fds(crashers: Crashers, args: argparse.Namespace) -> None:
    """Closes every descriptor that install() opened and puts a user's file on the same numbers."""
    path = os.path.join(os.environ["FTF_TEST_TMP"], "user.txt")
    user = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(user, b"the user's own line\n")
    ours = sorted(open_fds() - FDS_BEFORE - {user})
    for fd in ours:
        while True:
            try:
                os.dup2(user, fd)
                break
            except OSError as error:  # man 2 dup: EBUSY, another thread is just opening a file that gets this number
                if error.errno != errno.EBUSY:
                    raise
    facts["proof"] = ours
    facts["user_file"] = path


def open_fds() -> set[int]:
    listing = os.open("/proc/self/fd", os.O_RDONLY)
    try:
        return {int(name) for name in os.listdir(listing)} - {listing}
    finally:
        os.close(listing)


def fill_disk(crashers: Crashers, args: argparse.Namespace) -> None:
    filler = os.open(os.path.join(args.dir, "filler"), os.O_WRONLY | os.O_CREAT, 0o600)
    for size in (65536, 4096, 1):
        try:
            while True:
                os.write(filler, b"x" * size)
        except OSError as error:
            facts["proof"] = errno.errorcode[error.errno or 0]  # ENOSPC


def remove_cwd(crashers: Crashers, args: argparse.Namespace) -> None:
    gone = os.path.join(os.environ["FTF_TEST_TMP"], "gone")
    os.mkdir(gone)
    os.chdir(gone)
    os.rmdir(gone)
    try:
        os.getcwd()
    except OSError as error:
        facts["proof"] = errno.errorcode[error.errno or 0]  # ENOENT


NOBODY = 65534


def become_unprivileged() -> None:
    """RLIMIT_NPROC does not bind root (man 2 getrlimit). Root's home may hold the interpreter, so import first."""
    import fcntl  # noqa: F401
    import resource  # noqa: F401

    from ftforensics import _native  # noqa: F401

    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, which setuid cleared: as for any ordinary process


def forbid_fork(crashers: Crashers, args: argparse.Namespace) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        child = os.fork()
        if child == 0:
            os._exit(0)
        facts["proof"] = "fork worked"
    except OSError as error:
        facts["proof"] = errno.errorcode[error.errno or 0]  # EAGAIN


def refuse_ptrace() -> None:
    """A seccomp filter, as container runtimes install it: ptrace and process_vm_readv give EPERM."""
    numbers = {"x86_64": (101, 310), "aarch64": (117, 270)}[os.uname().machine]
    load, equal, give = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    program = [
        (load, 0, 0, 0),
        (equal, 1, 0, numbers[0]),
        (equal, 0, 1, numbers[1]),
        (give, 0, 0, 0x00050000 | errno.EPERM),
        (give, 0, 0, 0x7FFF0000),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    libc = ctypes.CDLL(None, use_errno=True)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    done = libc.prctl(22, 2, ctypes.byref(Program(len(program), ctypes.addressof(code))))  # PR_SET_SECCOMP
    if done != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    if libc.ptrace(16, os.getppid(), 0, 0) == 0:  # PTRACE_ATTACH
        facts["proof"] = "ptrace worked"
    else:
        facts["proof"] = errno.errorcode[ctypes.get_errno()]  # EPERM


def load_pirate(crashers: Crashers, args: argparse.Namespace) -> None:
    """A library takes the fault signals. With --settle, waits until the theft was answered (or 3 s are over)."""
    ours = crashers.lib.current_handler
    ours.restype = ctypes.c_size_t
    before = ours(signal.SIGSEGV)
    pirates = ctypes.CDLL(os.path.join(crashers.build, "pirates.so"))
    getattr(pirates, args.setup)()
    stolen = ours(signal.SIGSEGV)
    facts["proof"] = "stolen" if stolen != before else "not stolen"
    if args.settle and args.watch == "ours":
        start = time.monotonic()
        while ours(signal.SIGSEGV) == stolen and time.monotonic() < start + 3:
            time.sleep(0.01)
        facts["taken_back_after"] = round(time.monotonic() - start, 3)
        facts["taken_back"] = ours(signal.SIGSEGV) == before


AFTER_INSTALL = {
    "no_fds": exhaust_fds,
    "fd_reused": reuse_our_fds,
    "disk_full": fill_disk,
    "cwd_gone": remove_cwd,
    "nproc_0": forbid_fork,
    "pirate_sigaction": load_pirate,
    "pirate_signal": load_pirate,
    "pirate_exit0": load_pirate,
}
FDS_BEFORE: set[int] = set()


def install(args: argparse.Namespace, crashers: Crashers) -> None:
    if args.setup == "faulthandler_before":
        import faulthandler

        faulthandler.enable()
    if args.watch == "ours":
        import ftforensics

        ftforensics.install(dir=args.dir, helper=args.helper)
        for hook in args.hook or []:
            step, kind = hook.split(":")
            from ftforensics import _native

            _native.test_hook(step, kind)
    elif args.watch == "faulthandler":
        import faulthandler

        faulthandler.enable()
    elif args.watch == "printer":
        crashers.lib.install_printer()
    elif args.watch == "allocator":
        crashers.lib.install_allocator()
    if args.setup == "faulthandler_after":
        import faulthandler

        faulthandler.enable()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", required=True, choices=[*FUNCTIONS, "dtor"])
    parser.add_argument("--context", default="main")
    parser.add_argument("--setup", default="none")
    parser.add_argument("--watch", default="none", help="none, ours, faulthandler, printer, allocator")
    parser.add_argument("--helper", default="none")
    parser.add_argument("--hook", action="append", help="step:kind, for _native.test_hook")
    parser.add_argument("--settle", action="store_true")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--build", required=True)
    args = parser.parse_args()

    crashers = Crashers(args.build, "null_read" if args.fault == "dtor" else args.fault)
    early_trigger = threading.Event()
    early = threading.Thread(target=lambda: (early_trigger.wait(), run_on_thread(crashers)))
    if args.context == "early_thread":
        early.start()
    if args.setup == "nproc_0":
        become_unprivileged()  # before install(), which must work as this user
    if args.setup == "no_ptrace":
        refuse_ptrace()
    FDS_BEFORE.update(open_fds())
    install(args, crashers)
    if args.setup in AFTER_INSTALL:
        AFTER_INSTALL[args.setup](crashers, args)

    if args.fault == "dtor":
        die_in_destructor(crashers, args.context)
    elif args.context == "main":
        die_on_main(crashers)
    elif args.context == "thread":
        die_on_thread(crashers)
    elif args.context == "c_thread":
        die_on_c_thread(crashers)
    elif args.context == "300_threads":
        die_among_300(crashers)
    elif args.context == "early_thread":
        crashers.prepare(directly=False)
        early_trigger.set()
        early.join()
    elif args.context in ("2_at_once", "16_at_once"):
        die_twice(crashers, int(args.context.split("_")[0]), python=True)
    elif args.context in ("2_c_at_once", "16_c_at_once"):
        die_twice(crashers, int(args.context.split("_")[0]), python=False)
    elif args.context in ("main_exits", "main__exits"):
        die_while_main_leaves(crashers, "_exit" if args.context == "main__exits" else "exit")
    else:
        parser.error(f"unknown context {args.context}")


if __name__ == "__main__":
    main()
