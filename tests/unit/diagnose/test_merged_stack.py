"""Native and Python frames in one stack."""

from __future__ import annotations

import pytest

from ftforensics.diagnose.stacks import (
    choose_walk,
    crashing_python,
    merge,
    other_threads,
    own_frames_dropped,
    python_groups,
    seen_from_outside,
)
from ftforensics.model.basics import Address
from ftforensics.model.case import PythonFrame
from ftforensics.model.crash import CrashRecord, NativeWalk, Process, PythonText, RawFrame
from ftforensics.model.diagnosis import Frame
from ftforensics.model.helper_report import HelperFrame, HelperReport, HelperThread

PYTHON = "/usr/lib/libpython3.11.so.1.0"
EVAL = "_PyEval_EvalFrameDefault"


def native(*names: str) -> list[Frame]:
    """ "torch.f" is a frame of libtorch, everything else belongs to the interpreter."""
    return [
        Frame(function=name.removeprefix("torch."), library="/x/libtorch.so" if name.startswith("torch.") else PYTHON)
        for name in names
    ]


def python(*names: str) -> list[PythonFrame]:
    return [PythonFrame(file="t.py", line=1, function=name) for name in names]


def names(frames: list[Frame]) -> list[str]:
    return [f"{frame.function}()" if frame.python else str(frame.function) for frame in frames]


@pytest.mark.parametrize(
    ("stack", "lines", "merged"),
    [
        # one eval loop runs any number of Python frames (3.11 and later)
        (["torch.add", "cfunction_call", EVAL, "_PyEval_Vector", "Py_RunMain"], ["f", "g"], ["add", "f()", "g()"]),
        # one each (3.10)
        (["torch.add", EVAL, "_PyFunction_Vectorcall", EVAL], ["f", "g"], ["add", "f()", "g()"]),
        # Python called C++, which called Python
        (["torch.add", EVAL, "torch.backward", EVAL], ["hook", "train"], ["add", "hook()", "backward", "train()"]),
        (
            ["torch.add", EVAL, "torch.backward", EVAL, EVAL],
            ["hook", "step", "train", "main"],
            ["add", "hook()", "step()", "backward", "train()", "main()"],
        ),
        # the way into a loop is no loop of its own (3.10, a callback under ctypes)
        (
            ["torch.add", EVAL, "_PyEval_Vector", EVAL, "_PyEval_Vector", "torch.qsort", EVAL, "_PyEval_Vector", EVAL],
            ["string_at", "compare", "sort", "main"],
            ["add", "string_at()", "compare()", "qsort", "sort()", "main()"],
        ),
        (["torch.add", "_PyEval_Vector", "torch.sort", EVAL], ["f", "g"], ["add", "f()", "sort", "g()"]),
        # died in the interpreter itself: that frame stays
        ([EVAL, "Py_RunMain"], ["f"], [EVAL, "f()"]),
        (["_PyObject_Malloc", EVAL], ["f"], ["_PyObject_Malloc", "f()"]),
        # no eval frame in sight: the walk was cut, Python is still further out
        (["torch.add", "torch.mul"], ["f", "g"], ["add", "mul", "f()", "g()"]),
        # more eval frames than Python lines (the dump was cut)
        (["torch.add", EVAL, "torch.backward", EVAL], ["hook"], ["add", "backward", "hook()"]),
        (["torch.add"], [], ["add"]),
        ([], ["f"], ["f()"]),
        ([], [], []),
    ],
)
def test_merge(stack: list[str], lines: list[str], merged: list[str]) -> None:
    assert names(merge(native(*stack), python(*lines))) == merged


BACKWARD = ["torch.kernel", EVAL, "torch.PyNode::apply", "torch.THPEngine_run_backward", "cfunction_call", EVAL]


def backward_lines() -> list[PythonFrame]:
    inner, outer = python("deeper", "apply"), python("tensor_backward", "train")
    return [*inner, PythonFrame("/x/torch/autograd/graph.py", 979, "_engine_run_backward"), *outer]


def test_torchs_backward_parts_the_python_frames() -> None:
    wanted = ["kernel", "deeper()", "apply()", "PyNode::apply", "THPEngine_run_backward", "_engine_run_backward()"]
    assert names(merge(native(*BACKWARD), backward_lines())) == [*wanted, "tensor_backward()", "train()"]


def test_the_reporter_knows_best() -> None:
    frames = [HelperFrame(str(index), native=index in (0, 2)) for index in range(6)]
    groups = python_groups(CrashRecord(process=Process(tid=7)), HelperReport(threads=[HelperThread(7, "main", frames)]))
    assert groups == [1, 3]
    stack = native("torch.add", EVAL, "torch.backward", EVAL)
    lines = python("hook", "step", "train", "main")
    assert names(merge(stack, lines, groups)) == ["add", "hook()", "backward", "step()", "train()", "main()"]
    # another number of frames than the dump holds: the two were not taken from the same stack
    assert names(merge(stack, lines, [1, 4])) == names(merge(stack, lines))


@pytest.mark.parametrize("evals", range(4))
@pytest.mark.parametrize("lines", range(5))
def test_no_frame_is_lost_or_doubled(evals: int, lines: int) -> None:
    stack = native("torch.add", *[name for index in range(evals) for name in (EVAL, f"torch.call{index}")])
    merged = merge(stack, python(*(f"f{index}" for index in range(lines))))
    assert [frame.function for frame in merged if frame.python] == [f"f{index}" for index in range(lines)]
    assert [f.function for f in merged if not f.python] == ["add", *(f"call{index}" for index in range(evals))]


def test_a_function_of_the_same_name_elsewhere_is_kept() -> None:
    stack = [Frame(function="main", library="/x/train"), *native(EVAL)]
    assert names(merge(stack, python("f"))) == ["main", "f()"]
    assert names(merge([*native("torch.a"), Frame(function="builtin_x", library="/x/libtorch.so")], [])) == [
        "a",
        "builtin_x",
    ]


def test_our_own_handler_is_not_part_of_the_story() -> None:
    ours = "/site-packages/ftforensics/_native.abi3.so"
    frames = [
        Frame(function="ftf_handle", library=ours, trust="cfi"),
        Frame(function="__restore_rt", library="/lib/libc.so.6", trust="cfi"),
        Frame(function="add", library="/x/libtorch.so", trust="context"),
        Frame(function="park", library=ours, trust="cfi"),
    ]
    raw = [RawFrame(Address(index), trust=frame.trust) for index, frame in enumerate(frames)]
    assert names(own_frames_dropped(frames, raw)) == ["add"]


def walk(count: int, kind: str = "libgcc") -> NativeWalk:
    return NativeWalk(unwinder=kind, frames=[RawFrame(Address(index)) for index in range(count)])


@pytest.mark.parametrize(
    ("libgcc", "frame_pointer", "scan", "chosen"),
    [
        (9, 12, 40, "libgcc"),
        (1, 5, 40, "fp"),
        (1, 1, 40, "scan"),
        (1, 2, 2, "libgcc"),
        (0, 1, 0, "fp"),
        (0, 0, 0, None),
    ],
)
def test_the_walk_to_believe(libgcc: int, frame_pointer: int, scan: int, chosen: str | None) -> None:
    record = CrashRecord(
        native=walk(libgcc), native_frame_pointer=walk(frame_pointer, "fp"), native_scan=walk(scan, "scan")
    )
    found = choose_walk(record)
    assert (found.unwinder if found else None) == chosen


OWN = 'Stack (most recent call first):\n  File "a.py", line 3 in own\n'
ALL = (
    'Thread 0x1 (most recent call first):\n  File "a.py", line 1 in other\n\n'
    'Current thread 0x2 (most recent call first):\n  File "a.py", line 2 in current\n'
)


@pytest.mark.parametrize(
    ("own", "everyone", "function"),
    [(OWN, ALL, "own"), (None, ALL, "current"), ("", ALL, "current"), (OWN, None, "own")],
)
def test_the_crashing_threads_python(own: str | None, everyone: str | None, function: str) -> None:
    thread = crashing_python(CrashRecord(python=PythonText(text=own), python_threads=PythonText(text=everyone)))
    assert thread is not None and thread.frames[0].function == function


def test_without_any_dump_there_is_none() -> None:
    assert crashing_python(CrashRecord()) is None
    assert other_threads(CrashRecord(), None) == []


def test_other_threads_come_from_the_reporter_when_it_saw_them() -> None:
    record = CrashRecord(process=Process(tid=7), python_threads=PythonText(text=ALL), other_crashers=[9])
    (thread,) = other_threads(record, None)
    assert (thread.tid, thread.name, thread.crashed) == (None, "pthread 0x1", False)
    frames = [HelperFrame("poll", "x.c", 3, native=True), HelperFrame("wait", "t.py", 4)]
    report = HelperReport(threads=[HelperThread(tid, "x", frames) for tid in (7, 8, 9)])
    seen = other_threads(record, report)
    assert [(thread.tid, thread.crashed) for thread in seen] == [(8, False), (9, True)]
    assert names(seen[0].frames) == ["poll", "wait()"]
    assert names(seen_from_outside(record, report)) == ["poll", "wait()"]
    assert seen_from_outside(record, None) == seen_from_outside(CrashRecord(), report) == []


OURS = "/v/site-packages/ftforensics/_native.abi3.so"


@pytest.mark.parametrize(
    "on_top",
    [
        [],
        [HelperFrame("nanosleep", native=True, library="/usr/lib/libc.so.6")],  # what the handler calls
    ],
)
@pytest.mark.parametrize(
    "below",
    [
        [HelperFrame(None, native=True, library="/usr/lib/libc.so.6")],  # py-spy cannot name the trampoline
        [HelperFrame("__restore_rt", native=True, library="/usr/lib/libc.so.6")],
        [],
    ],
)
def test_the_handler_that_holds_a_thread_is_not_in_its_stack(
    on_top: list[HelperFrame], below: list[HelperFrame]
) -> None:
    ours = [HelperFrame(name, "ftf_hold.c", 14, native=True, library=OURS) for name in ("wait_while_held", "on_hold")]
    own = [
        HelperFrame("poll", native=True, library="/usr/lib/libc.so.6"),
        HelperFrame("wait", "t.py", 4),
        HelperFrame("wrapped", native=True, library=OURS),  # a call of the job's own, further out
        HelperFrame("main", "t.py", 9),
    ]
    report = HelperReport(threads=[HelperThread(8, "x", [*on_top, *ours, *below, *own])])
    (thread,) = other_threads(CrashRecord(process=Process(tid=7)), report)
    assert names(thread.frames) == ["poll", "wait()", "wrapped", "main()"]
    assert thread.frames[0].library == "/usr/lib/libc.so.6"


def test_a_thread_that_no_handler_holds_keeps_all_its_frames() -> None:
    own = [HelperFrame(None, native=True, library="/usr/lib/libx.so"), HelperFrame("wait", "t.py", 4)]
    report = HelperReport(threads=[HelperThread(8, "x", own)])
    (thread,) = other_threads(CrashRecord(process=Process(tid=7)), report)
    assert len(thread.frames) == 2
