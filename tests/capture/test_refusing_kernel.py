"""Whatever the kernel refuses, the death is the job's own and the record tells the truth about it."""

from __future__ import annotations

import signal

import pytest

from conditions import Interpreter, needs_root, needs_unshare, needs_x86_64
from jobs import CRASH, Jobs
from seccomp import (
    CLONE,
    EINVAL,
    ENOSYS,
    EPERM,
    FILTER,
    LINKAT,
    PROCESS_VM_READV,
    RT_TGSIGQUEUEINFO,
    TGKILL,
    TIMER_CREATE,
)


@needs_x86_64
@pytest.mark.parametrize("errno", [EINVAL, ENOSYS, EPERM])
@pytest.mark.parametrize(
    "numbers", [[PROCESS_VM_READV], [CLONE], [TIMER_CREATE], [TGKILL], [LINKAT], [PROCESS_VM_READV, CLONE, TGKILL]]
)
def test_a_refused_system_call_costs_no_truth(numbers: list[int], errno: int, python: Interpreter, jobs: Jobs) -> None:
    done = jobs.run(python, FILTER + f"refuse({numbers}, {errno})\n{CRASH}\n")
    assert done.status == -signal.SIGSEGV
    assert done.record["signal"]["code_name"] == "SEGV_MAPERR"
    assert done.record["end"]["how"] == "refault"
    assert len(done.record["native"]["frames"]) > 3 and done.record["python"]


@needs_x86_64
def test_a_sent_signal_kills_where_it_cannot_be_queued_again(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import os, time
        refuse([{TGKILL}, {RT_TGSIGQUEUEINFO}], 1)
        if os.fork() == 0:
            os.kill(os.getppid(), 6)
            os._exit(0)
        time.sleep(20)
        """
    import textwrap

    done = jobs.run(python, FILTER + textwrap.dedent(code))
    assert done.status == -signal.SIGABRT
    assert len(done.records) == 1


@needs_x86_64
def test_a_crash_after_the_main_thread_ended_by_itself(python: Interpreter, jobs: Jobs) -> None:
    """Then /proc/self has no memory: neither maps nor process_vm_readv by the process's id."""
    code = """
        import _thread, ctypes, time
        def later():
            time.sleep(0.3)
            ctypes.string_at(0)
        _thread.start_new_thread(later, ())
        ctypes.CDLL(None).syscall(60, 0)  # exit(2) of this thread alone
        """
    done = jobs.run(python, code)
    assert done.status == -signal.SIGSEGV
    assert done.record["signal"]["code_name"] == "SEGV_MAPERR"
    assert done.record["maps"] and done.record["modules"]


FIRST = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


@needs_unshare
def test_the_first_process_of_a_container_ignores_what_it_ignored(python: Interpreter, jobs: Jobs) -> None:
    code = """
        import os, threading, time
        worker = threading.Thread(target=lambda: [time.sleep(0.01) for _ in range(50)])
        worker.start()
        for number in (11, 6, 15):
            if os.fork() == 0:
                os.kill(1, number)
                os._exit(0)
            os.wait()
        started = time.monotonic(); worker.join()
        print(os.getpid(), time.monotonic() - started < 3)
        """
    done = jobs.run(python, code, wrap=FIRST)
    assert (done.status, done.out, done.records) == (0, "1 True\n", [])


@needs_unshare
@pytest.mark.parametrize("death", [CRASH, "import os; os.abort()"])
def test_the_first_process_of_a_container_dies_once_and_as_before(death: str, python: Interpreter, jobs: Jobs) -> None:
    with_us = jobs.run(python, death, wrap=FIRST)
    assert with_us.status == jobs.run(python, death, install=None, wrap=FIRST).status
    assert len(with_us.records) == 1


@needs_root
def test_without_proc(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import ctypes
        libc = ctypes.CDLL(None)
        assert libc.unshare(0x20000) == 0 and libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None) == 0
        assert libc.umount2(b"/proc", 2) == 0
        {CRASH}
        """
    done = jobs.run(python, code)
    assert done.status == -signal.SIGSEGV
    assert done.record["maps"] and done.record["python"] and "end" in done.record
