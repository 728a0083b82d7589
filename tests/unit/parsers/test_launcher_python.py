"""Tracebacks and last words of native code in a job's log."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import needs_torch
from ftforensics.model.launcher import ExceptionSeen, LauncherEvent, NativeText, ProcessDied
from ftforensics.parsers.launcher import read_launcher_log
from ftforensics.parsers.peer_lost import says_peer_lost


def events(text: str | bytes) -> list[LauncherEvent]:
    return read_launcher_log(text.encode() if isinstance(text, str) else text).events


def raised(text: str | bytes) -> list[tuple[int | None, str, str]]:
    return [(one.rank, one.type, one.message) for one in events(text) if isinstance(one, ExceptionSeen)]


def printed(code: str) -> bytes:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return done.stderr


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("raise KeyError('x')", "KeyError", "'x'"),
        ("1/0", "ZeroDivisionError", "division by zero"),
        ("raise MemoryError", "MemoryError", ""),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("import socket; raise socket.gaierror(1, 'a: b')", "socket.gaierror", "[Errno 1] a: b"),
        ("class Odd(Exception): pass\nraise Odd('two\\nlines')", "Odd", "two"),
        ("def f():\n class E(Exception): pass\n raise E('x')\nf()", "f.<locals>.E", "x"),
        ("def f(n): f(n + 1)\nf(0)", "RecursionError", "maximum recursion depth exceeded"),
        ("import json; json.loads('{')", "json.decoder.JSONDecodeError", None),
    ],
)
def test_cpythons_own(code: str, kind: str, message: str | None) -> None:
    ((_, found, said),) = raised(printed(code))
    assert found == kind
    assert message is None or said == message


def test_chained_exceptions_are_all_seen() -> None:
    text = printed("try:\n 1/0\nexcept ZeroDivisionError as e:\n raise RuntimeError('no') from e")
    assert [kind for _, kind, _ in raised(text)] == ["ZeroDivisionError", "RuntimeError"]
    other = printed("try:\n 1/0\nexcept ZeroDivisionError:\n raise RuntimeError('no')")
    for log, handling in ((text, False), (other, True)):
        found = [one for one in events(log) if isinstance(one, ExceptionSeen)]
        assert [(one.chained, one.handling) for one in found] == [(False, False), (True, handling)]


def test_innermost_frame() -> None:
    (event,) = events(printed("import json\ndef load():\n    return json.loads(3)\nload()"))
    assert isinstance(event, ExceptionSeen)
    assert event.file is not None
    assert event.file.endswith("json/__init__.py")
    assert (event.function, event.type) == ("loads", "TypeError")


def test_the_frames_of_a_traceback_are_kept_at_both_ends() -> None:
    frames = "".join(f'  File "/job/f{number}.py", line {number}, in f\n' for number in range(1, 101))
    (event,) = events(f"Traceback (most recent call last):\n{frames}ValueError: no\n")
    assert isinstance(event, ExceptionSeen)
    assert [frame.line for frame in event.frames] == [*range(1, 31), *range(71, 101)]
    assert (event.file, event.file_line) == ("/job/f100.py", 100)


def traceback(label: str, kind: str, line: int) -> list[str]:
    return [
        f"{label}Traceback (most recent call last):",
        f'{label}  File "a.py", line {line}, in f',
        f"{label}    f()",
        f"{label}{kind}",
    ]


@pytest.mark.parametrize(
    ("labels", "ranks"),
    [
        (("[rank0]: ", "[rank1]: "), (0, 1)),
        (("[1,0]<stderr>:", "[1,1]<stderr>:"), (0, 1)),
        (("[0]<stderr>:", "[1]<stderr>:"), (0, 1)),
        (("[default0]:[rank4]: ", "[default1]:[rank5]: "), (4, 5)),
        (("0: [rank0]: ", "1: [rank1]: "), (0, 1)),
        (("[default0]:", "[default1]:"), (None, None)),
        (("(Train pid=12, ip=10.0.0.1) ", "(Train pid=13, ip=10.0.0.2) "), (None, None)),
        (("worker-1: ", "worker-2: "), (None, None)),
    ],
)
def test_ranks_that_print_at_once(labels: tuple[str, str], ranks: tuple[int | None, int | None]) -> None:
    one, two = traceback(labels[0], "KeyError: 'a'", 11), traceback(labels[1], "ValueError: b", 22)
    text = "\n".join(line for pair in zip(one, two, strict=True) for line in pair) + "\n"
    found = [event for event in events(text) if isinstance(event, ExceptionSeen)]
    assert [(event.rank, event.type, event.file_line) for event in found] == [
        (ranks[0], "KeyError", 11),
        (ranks[1], "ValueError", 22),
    ]


def test_a_jobs_own_lines_between_are_no_exception() -> None:
    text = "\n".join(
        [
            "Traceback (most recent call last):", "Epoch: 3", '  File "a.py", line 1, in f', "loss: 0.5", "Epoch: 4",
            "    f()", "step 5", "RuntimeError: boom",
        ]
    )  # fmt: skip
    assert raised(text + "\n") == [(None, "RuntimeError", "boom")]


def test_a_traceback_that_is_cut_says_nothing() -> None:
    assert events('Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\n') == []
    assert events("RuntimeError: without a traceback\n") == []
    lost = "Traceback (most recent call last):\n" + "noise\n" * 500 + '  File "a.py", line 1, in f\nKeyError: 1\n'
    assert events(lost) == []


def test_the_summary_names_the_rank() -> None:
    text = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-29_14:02:50\n  host      : n1\n"
        "  rank      : 7 (local_rank: 3)\n  exitcode  : 1 (pid: 5)\n  error_file: /tmp/e.json\n"
        '  traceback : Traceback (most recent call last):\n    File "a.py", line 9, in f\n      g()\n'
        "  ValueError: bad\n  \n============================================================\n"
    )
    (found,) = [one for one in events(text) if isinstance(one, ExceptionSeen)]
    assert (found.rank, found.type, found.message, found.file_line) == (7, "ValueError", "bad", 9)


def test_rich_draws_a_frame_around_a_traceback(tmp_path: Path) -> None:
    long = "CUDA error: no kernel image is available for execution on the device"
    script = tmp_path / "job.py"
    script.write_text(
        f"import rich.traceback; rich.traceback.install()\ndef f():\n    raise RuntimeError({long!r})\nf()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=60)
    assert "\nRuntimeError: " in done.stderr and long not in done.stderr  # broken into two lines
    found = events(done.stderr + "E1129 14:29:08 next line\n")
    (event,) = [one for one in found if isinstance(one, ExceptionSeen)]
    assert (event.type, event.message) == ("RuntimeError", long)


def test_a_short_message_in_a_frame_ends_with_its_line() -> None:
    box = "╭─ Traceback (most recent call last) ─╮\n│ /job/t.py:3 in f │\n╰───╯\nValueError: bad shape\nstep 3\n"
    (event,) = events(box)
    assert isinstance(event, ExceptionSeen)
    assert (event.message, event.file, event.file_line, event.function) == ("bad shape", "/job/t.py", 3, "f")


def test_what_stands_below_a_colon_is_the_message() -> None:
    frames = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n    f()\n'
    for said, message in (
        ("AssertionError: \nThe driver is too old\nstep 3\n", "The driver is too old"),
        (
            "RuntimeError: because of this:\n\n/a.so: undefined symbol: f\nstep 3\n",
            "because of this:\n/a.so: undefined symbol: f",
        ),
        ("AssertionError\nstep 3\n", ""),
        ("KeyError: 'a:'\nstep 3\n", "'a:'"),
        ("RuntimeError: of this:\n", "of this:"),
    ):
        assert [found for _, _, found in raised(frames + said)] == [message]


def test_nccls_code_is_below_the_last_line() -> None:
    text = "\n".join(
        [
            *traceback(
                "[rank1]: ", "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error", 3
            ),
            "[rank1]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.",
            "[rank1]: Last error:",
            "[rank1]: socketProgress: Connection closed by remote peer n2<1.2.3.4>",
            "step 4",
        ]
    )
    (event,) = events(text + "\n")
    assert isinstance(event, ExceptionSeen)
    assert event.peer_lost
    assert "ncclRemoteError" in event.message
    own = text.replace("ncclRemoteError", "ncclUnhandledCudaError").split("[rank1]: Last")[0]
    (event,) = events(own.replace("possibly due to a network error or a remote process exiting", "in CUDA"))
    assert isinstance(event, ExceptionSeen)
    assert not event.peer_lost


GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
CONNECTION = "/usr/lib/python3.11/multiprocessing/connection.py"


@pytest.mark.parametrize(
    ("kind", "message", "file", "lost"),
    [
        ("RuntimeError", GLOO + "Connection closed by peer [127.0.0.1]:5504.", None, True),
        ("RuntimeError", GLOO + "Read error [::1]:1: Connection reset by peer.", None, True),
        ("RuntimeError", GLOO + "Timed out waiting 1800000ms for recv operation to complete", None, True),
        (
            "torch.distributed.DistBackendError",
            "[1] is setting up NCCL communicator: TCPStore: Broken pipe",
            None,
            True,
        ),
        (
            "torch.distributed.DistNetworkError",
            "failed to recv, got 0 bytes. Connection was likely closed.",
            None,
            True,
        ),
        (
            "RuntimeError",
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(...) ran for 600 ms",
            None,
            True,
        ),
        ("RuntimeError", "NCCL communicator was aborted on rank 1.", None, True),
        ("concurrent.futures.process.BrokenProcessPool", "A process in the pool was terminated", None, True),
        ("joblib.externals.loky.process_executor.TerminatedWorkerError", "", None, True),
        ("ray.exceptions.ActorDiedError", "The actor died unexpectedly", None, True),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", CONNECTION, True),
        ("EOFError", "", CONNECTION, True),
        ("EOFError", "Ran out of input", "/x/pickle.py", False),
        (
            "requests.exceptions.ConnectionError",
            "('Connection aborted.', ConnectionResetError(104, 'x'))",
            "/r/a.py",
            False,
        ),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", "/x/urllib3/connectionpool.py", False),
        ("OSError", "could not restore: Connection refused by the store", None, False),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", None, False),
        ("torch.OutOfMemoryError", "CUDA out of memory.", None, False),
        ("RuntimeError", "loss is NaN at step 5", None, False),
        ("MemoryError", "", None, False),
    ],
)
def test_peer_lost(kind: str, message: str, file: str | None, lost: bool) -> None:
    assert says_peer_lost(kind, message, file) is lost


@pytest.mark.parametrize(
    ("text", "kind", "type_", "message"),
    [
        (
            "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: x\nException raised y",
            "cxx-exception", "c10::Error", "CUDA error: x",
        ),
        ("terminate called after throwing an instance of 'int'\nAborting", "cxx-exception", "int", None),
        ("terminate called without an active exception", "cxx-exception", None, None),
        ("terminate called recursively", "cxx-exception", None, None),
        ("libc++abi: terminating due to uncaught exception of type std::E: boom", "cxx-exception", "std::E", "boom"),
        ("double free or corruption (!prev)", "heap", None, "double free or corruption (!prev)"),
        ("malloc(): corrupted top size", "heap", None, "malloc(): corrupted top size"),
        ("free(): invalid pointer", "heap", None, "free(): invalid pointer"),
        ("corrupted size vs. prev_size", "heap", None, "corrupted size vs. prev_size"),
        ("*** Error in `python': free(): invalid pointer: 0x00007f12 ***", "heap", None, "free(): invalid pointer"),
        ("*** stack smashing detected ***: x", "stack-smashed", None, "*** stack smashing detected ***: x"),
        ("x: a.c:12: run: Assertion `n > 0' failed.", "assertion", None, "x: a.c:12: run: Assertion `n > 0' failed."),
        ("x: malloc.c:2379: f: Assertion `x' failed.", "heap", None, "x: malloc.c:2379: f: Assertion `x' failed."),
        ("Fatal Python error: Segmentation fault", "fatal-python-error", None, "Segmentation fault"),
        ("[rank2]: Fatal Python error: Aborted", "fatal-python-error", None, "Aborted"),
        (
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory.",
            "worker-fault", None, "bus error",
        ),
    ],
)  # fmt: skip
def test_native_texts(text: str, kind: str, type_: str | None, message: str | None) -> None:
    (event,) = events(text + "\n")
    assert isinstance(event, NativeText)
    assert (event.kind, event.type, event.message) == (kind, type_, message)
    assert event.rank == (2 if "rank2" in text else None)


@pytest.mark.parametrize(
    "text",
    [
        "free: 12 GB, corrupted files: 0",
        "the test (): passed",
        "../aten/src/ATen/native/cuda/Index.cu:1: block: [1,0,0], thread: [3,0,0] Assertion `srcIndex < n` failed.",
        "we skipped corrupted samples",
        "AssertionError was expected here: Assertion failed",
    ],
)
def test_ordinary_lines(text: str) -> None:
    assert events(text + "\n") == []


def test_two_processes_throw_at_once() -> None:
    text = (
        "[default0]:terminate called after throwing an instance of 'A'\n"
        "[default1]:terminate called after throwing an instance of 'B'\n"
        "[default1]:  what():  b\n[default0]:  what():  a\n"
    )
    found = [(one.type, one.message) for one in events(text) if isinstance(one, NativeText)]
    assert found == [("A", "a"), ("B", "b")]


def chain(code: str) -> list[tuple[str, bool, bool]]:
    return [(one.type, one.chained, one.ignored) for one in events(printed(code)) if isinstance(one, ExceptionSeen)]


def test_what_an_exception_came_from() -> None:
    caught = "try:\n 1/0\nexcept ZeroDivisionError as e:\n"
    assert chain(f"{caught} raise RuntimeError('no') from e") == [
        ("ZeroDivisionError", False, False),
        ("RuntimeError", True, False),
    ]
    assert chain(f"{caught} int('x')") == [("ZeroDivisionError", False, False), ("ValueError", True, False)]
    printed_only = f"import traceback\n{caught} traceback.print_exc()\nint('x')"
    assert chain(printed_only) == [("ZeroDivisionError", False, False), ("ValueError", False, False)]


def test_what_python_only_reports() -> None:
    code = "class C:\n def __del__(self): 1/0\nx = C()\ndel x\nint('x')"
    assert chain(code) == [("ZeroDivisionError", False, True), ("ValueError", False, False)]


def spawned(quoted: str) -> str:
    """As multiprocessing.spawn's parent prints what its child raised."""
    return (
        'Traceback (most recent call last):\n  File "/job/spawn.py", line 19, in <module>\n    spawn(rank, nprocs=2)\n'
        '  File "/torch/multiprocessing/spawn.py", line 211, in join\n    raise ProcessRaisedException(msg)\n'
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n"
        f"{quoted}\n"
    )


def local_ranks(text: str) -> list[tuple[str, int | None, int | None]]:
    found = [one for one in events(text) if isinstance(one, ExceptionSeen)]
    return [(one.type.rpartition(".")[2], one.rank, one.local_rank) for one in found]


RAISED = 'Traceback (most recent call last):\n  File "/job/train.py", line 52, in f\n    g()\n'
DURING = "During handling of the above exception, another exception occurred:"


def test_what_spawn_quotes_is_the_childs() -> None:
    text = spawned(f"{RAISED}RuntimeError: shapes cannot be multiplied\n")
    assert local_ranks(text) == [("ProcessRaisedException", None, None), ("RuntimeError", None, 1)]
    (ended,) = [one for one in events(text) if isinstance(one, ProcessDied)]
    assert (ended.launcher, ended.local_rank, ended.code) == ("mp.spawn", 1, 1)


def test_a_chain_that_spawn_quotes() -> None:
    text = spawned(f"{RAISED}KeyError: 'a'\n\n{DURING}\n\n{RAISED}ValueError: b\n\n{DURING}\n\n{RAISED}OSError: c\n")
    assert local_ranks(text)[1:] == [("KeyError", None, 1), ("ValueError", None, 1), ("OSError", None, 1)]


def test_a_worker_of_the_child_that_spawn_quotes() -> None:
    handed = (
        f"{RAISED}ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal {RAISED}ValueError: bad\n"
    )
    assert local_ranks(spawned(handed))[1:] == [("ValueError", None, 1), ("ValueError", None, 1)]


def test_what_follows_the_quotation_is_the_parents() -> None:
    quoted = spawned(f"{RAISED}KeyError: 'a'\n")
    during = f"{quoted}\n{DURING}\n\n{RAISED}SystemError: the parent's\n"
    assert local_ranks(during)[1:] == [("KeyError", None, 1), ("SystemError", None, None)]
    assert local_ranks(f"{quoted}{RAISED}OSError: another\n")[1:] == [("KeyError", None, 1), ("OSError", None, None)]
    assert local_ranks(f"{quoted}step 1\n{RAISED}OSError: c\n")[1:] == [("KeyError", None, 1), ("OSError", None, None)]
    heading = "-- Process 1 terminated with the following error:\n"
    assert local_ranks(f"{heading}step 3\n{RAISED}OSError: c\n") == [("OSError", None, None)]


@needs_torch
def test_spawn_itself_prints_so(tmp_path: Path) -> None:
    """With the chain's announcements where this Python and torch's own text set them."""
    script = tmp_path / "job.py"
    script.write_text(
        "import torch.multiprocessing as mp\n"
        "def rank(index):\n"
        "    if index == 1:\n"
        "        try:\n            {}['a']\n"
        "        except KeyError:\n            raise ValueError('b')\n"
        "def main():\n"
        "    try:\n        mp.spawn(rank, nprocs=2)\n"
        "    except Exception:\n        raise OSError('of the parent')\n"
        "if __name__ == '__main__':\n    main()\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert local_ranks(done.stderr) == [
        ("KeyError", None, 1) if name == "KeyError" else (name, None, 1 if name == "ValueError" else None)
        for name in ("ProcessRaisedException", "KeyError", "ValueError", "OSError")
    ]


@pytest.mark.parametrize("end", ["", "\n", "\r", "\r\n"])
def test_a_line_without_its_end_may_be_cut(end: str) -> None:
    for label in ("", "[rank0]: "):
        text = "\n".join(traceback(label, "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection clo", 3)) + end
        (event,) = events(text)
        assert isinstance(event, ExceptionSeen)
        assert event.cut is (end == "")


def test_only_the_last_line_may_be_cut() -> None:
    text = "\n".join([*traceback("[rank0]: ", "KeyError: 'a'", 3), *traceback("[rank1]: ", "ValueErr", 3)])
    assert [one.cut for one in events(text) if isinstance(one, ExceptionSeen)] == [False, True]
    assert [one.cut for one in events(f"{text}\rstep 3") if isinstance(one, ExceptionSeen)] == [False, False]
    assert [one.cut for one in events(f"{text}\nstep 3") if isinstance(one, ExceptionSeen)] == [False, False]


def test_in_pieces_the_same_is_cut() -> None:
    text = "\n".join(traceback("", "KeyError: 'a'", 3)).encode()
    for size in (1, 7, 4096):
        for whole in (text, text + b"\n", text + b"\r"):
            pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
            (event,) = read_launcher_log(pieces).events
            assert isinstance(event, ExceptionSeen)
            assert event.cut is (whole == text)


def test_what_is_cut_names_no_peer_and_no_part_of_the_software() -> None:
    lost = f"RuntimeError: {GLOO}Connection closed by peer [10.0.0.1]:5504"
    for end, peers in (("", 0), ("\n", 1)):
        (event,) = events("\n".join(traceback("", lost, 3)) + end)
        assert isinstance(event, ExceptionSeen)
        assert (event.peer_lost, len(event.peers)) == (True, peers)
    symbol = "ImportError: /lib/libtorch_cuda.so: undefined symbol: ncclCommInitRank"
    kinds = [[type(one).__name__ for one in events("\n".join(traceback("", symbol, 3)) + end)] for end in ("\n", "")]
    assert kinds == [["ExceptionSeen", "StackText"], ["ExceptionSeen"]]


def test_a_message_whose_second_line_is_cut() -> None:
    text = "\n".join(traceback("", "RuntimeError: because of this:", 3)) + "\nthe driver is t"
    assert [one.cut for one in events(text) if isinstance(one, ExceptionSeen)] == [True]
    assert [one.cut for one in events(f"{text}\n") if isinstance(one, ExceptionSeen)] == [False]


@pytest.mark.parametrize(
    ("kind", "writer"),
    [("torch.distributed.elastic.multiprocessing.api.SignalException", 4711), ("SignalException", None)],
)
def test_torchruns_agent_names_itself(kind: str, writer: int | None) -> None:
    stack = 'Traceback (most recent call last):\n  File "run.py", line 1, in <module>\n'
    (one,) = events(f"{stack}{kind}: Process 4711 got signal: 1\n")
    assert isinstance(one, ExceptionSeen) and one.line.writer == writer


def test_a_task_of_rays_is_told_from_who_asked_for_its_result() -> None:
    text = """Traceback (most recent call last):
  File "/job/main.py", line 30, in <module>
    ray.get(results)
ray.exceptions.RayTaskError(KeyError): \x1b[36mray::outer()\x1b[39m (pid=11, ip=192.0.2.2)
           ^^^^^^^
  File "/job/main.py", line 9, in outer
    return ray.get(inner.remote())
ray.exceptions.RayTaskError(KeyError): \x1b[36mray::Rows.step()\x1b[39m (pid=12, ip=192.0.2.3, repr=<x (pid=9)>)
  File "/job/rows.py", line 52, in step
    return self.rows["image"]
KeyError: 'image'
"""
    (one,) = events(text)
    assert isinstance(one, ExceptionSeen) and (one.type, one.task_pid) == ("KeyError", 12)
    assert (one.file, one.file_line, [frame.function for frame in one.frames]) == ("/job/rows.py", 52, ["step"])
