"""The kernel's process events, byte by byte, and real ones."""

from __future__ import annotations

import os
import select
import struct
import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from conditions import needs_proc_events
from ftforensics.supervise import proc_events
from ftforensics.supervise.proc_events import EXEC, EXIT, FORK, ProcessEvent, decode, listen

HEADERS = struct.pack("=IHHII", 76, 3, 0, 0, 0) + struct.pack("=IIIIHH", 1, 1, 0, 0, 40, 0)


def event(what: int, *data: int) -> bytes:
    """struct proc_event of include/uapi/linux/cn_proc.h, 6.18."""
    return HEADERS + struct.pack("=IIQ", what, 0, 1_500_000_000) + struct.pack(f"={len(data)}I", *data) + bytes(16)


def test_a_fork() -> None:
    assert decode(event(FORK, 70, 71, 80, 80)) == ProcessEvent(FORK, 1.5, 80, parent=71)
    assert decode(event(FORK, 70, 71, 81, 80)) is None, "a thread"


def test_an_exit() -> None:
    assert decode(event(EXIT, 80, 80, 3 << 8, 17, 70, 70)) == ProcessEvent(EXIT, 1.5, 80, status=768)
    assert decode(event(EXIT, 80, 80, 9, 17, 70, 70)) == ProcessEvent(EXIT, 1.5, 80, status=9)
    assert decode(event(EXIT, 81, 80, 0, 17, 70, 70)) is None, "a thread"


def test_an_exec_and_others() -> None:
    assert decode(event(EXEC, 80, 80)) == ProcessEvent(EXEC, 1.5, 80)
    assert decode(event(0x200, 80, 80)) is None


@given(st.binary(max_size=120))
def test_any_bytes(data: bytes) -> None:
    decode(data)
    decode(HEADERS + data)


class Watched:
    """Everything."""

    def __contains__(self, pid: object) -> bool:
        return True


@needs_proc_events
def test_real_ones_without_those_of_threads() -> None:
    events = listen()
    try:
        begun = time.monotonic()
        threads = [threading.Thread(target=time.sleep, args=(0,)) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], os.environ)
        os.waitpid(pid, 0)
        found: list[ProcessEvent] = []
        while not any(one.pid == pid and one.kind == EXIT for one in found):
            assert select.select([events.fd], [], [], 10)[0]
            found += events.read(Watched())
        ours = [one for one in found if one.pid == pid]
        assert [one.kind for one in ours] == [FORK, EXEC, EXIT]
        assert ours[0].parent == os.getpid() and ours[2].status == 7 << 8
        assert begun <= ours[0].at <= ours[2].at <= time.monotonic()
        # The filter in the kernel: not one of the 50 threads came.
        assert not [one for one in found if one.pid == os.getpid()]
        assert not events.lost
    finally:
        events.close()


@needs_proc_events
def test_the_kernels_filter_and_decode_agree(monkeypatch) -> None:
    """Without the filter the events of threads come, and decode drops them: the same is left."""
    monkeypatch.setattr(proc_events, "_filter", lambda _: None)
    test_real_ones_without_those_of_threads()
