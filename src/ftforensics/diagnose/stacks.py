"""One stack out of three: native frames, Python frames, and what is only machinery between them.

Since CPython 3.11 one C call of the eval loop runs many Python frames, so native and Python frames cannot be paired one
by one from the outside. What holds in every version: the Python frames of a thread are run by its eval-loop frames, in
the same order, at least one by each. Where Python called C++ that called Python there are several runs of eval frames,
and how many Python frames belong to each is taken from what knows best:

1. the crash reporter, whose tool reads the interpreter's own marks;
2. library code that is known to stand on both sides of a border (`_BORDERS`);
3. else the outer runs get one Python frame for each of their eval frames, and the innermost run gets the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ftforensics.model.case import PythonFrame, PythonThread
from ftforensics.model.crash import CrashRecord, NativeWalk, RawFrame
from ftforensics.model.diagnosis import Frame, ThreadStack
from ftforensics.model.helper_report import HelperReport, HelperThread
from ftforensics.parsers.faulthandler_text import parse_faulthandler

_OURS = "ftforensics/_native."
_LOOPS = ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault.cold", "PyEval_EvalFrameEx")
# The last two only lead into a loop, and are compiled into their callers or not as the compiler likes.
_EVAL = (*_LOOPS, "_PyEval_EvalFrame", "_PyEval_Vector")
_PLUMBING = (
    "_PyEval_", "PyEval_", "_PyFunction_", "_PyObject_", "PyObject_", "_PyVectorcall", "PyVectorcall_",
    "method_vectorcall", "cfunction_", "slot_tp_", "type_call", "builtin_", "partial_", "run_mod",
    "run_eval_code_obj", "pyrun_", "_PyRun_", "PyRun_", "Py_RunMain", "Py_BytesMain", "Py_Main", "pymain_",
    "object_vacall", "vectorcall_", "thread_run", "pythread_wrapper", "call_function", "do_call_core",
    "classmethoddescr_", "wrapperdescr_", "bounded_lru_cache_", "context_run", "gen_send_ex", "gen_iternext",
    "PyIter_", "main",
)  # fmt: skip
_THREAD_START = (
    "__libc_start_main", "__libc_start_call_main", "_start", "start_thread", "clone", "clone3", "__clone", "__clone3",
    "__GI___clone3",
)  # fmt: skip
_TRAMPOLINES = ("__restore_rt", "__kernel_rt_sigreturn")
# C++ that Python called and that called Python again, with the Python frame (function, file) that called it.
_BORDERS = (
    (
        "THPEngine_run_backward",
        {("_engine_run_backward", "graph.py"), ("backward", "__init__.py"), ("grad", "__init__.py")},
    ),
)
_CALLED_BY_OURS = 4  # frames that may stand above our handler's own
_SHORT = 2  # a walk of fewer frames told us nothing about the callers


def choose_walk(record: CrashRecord) -> NativeWalk | None:
    """The walk to believe: the unwind tables', unless they ended at once and another walk did not."""
    walks = [record.native, record.native_frame_pointer, record.native_scan]
    present = [walk for walk in walks if walk is not None and walk.frames]
    if not present:
        return None
    best = present[0]
    for other in present[1:]:
        if len(best.frames) < _SHORT < len(other.frames):
            best = other
    return best


def own_frames_dropped(frames: Sequence[Frame], raw: Sequence[RawFrame]) -> list[Frame]:
    """Without the handler that wrote the record: its own frames, and the trampoline the kernel put below it."""
    context = next((index for index, frame in enumerate(raw) if frame.trust == "context"), None)
    start = context if context is not None and all(map(_is_handler, frames[:context])) else 0
    return [frame for frame in frames[start:] if not _is_handler(frame)]


def _is_handler(frame: Frame) -> bool:
    return _OURS in (frame.library or "") or _plain(frame) in _TRAMPOLINES


def merge(native: Sequence[Frame], python: Sequence[PythonFrame], groups: Sequence[int] = ()) -> list[Frame]:
    """Innermost first. The frame that died is always kept, also when it is interpreter machinery.

    groups: how many Python frames each run of eval frames holds, innermost run first, where that is known.
    """
    if not native:
        return [_python(frame) for frame in python]
    runs = _eval_runs(native)
    fits = len(groups) == len(runs) and sum(groups) == len(python)
    shares = groups if fits else _shares(native, runs, python)
    starts = {run[0]: share for run, share in zip(runs, shares, strict=True)}
    inside = {index for run in runs for index in run}
    merged: list[Frame] = []
    used = 0
    for index, frame in enumerate(native):
        if index not in inside:
            if index == 0 or not _is_plumbing(frame):
                merged.append(frame)
            continue
        if index == 0:
            merged.append(frame)
        if index in starts:
            merged += [_python(line) for line in python[used : used + starts[index]]]
            used += starts[index]
    # No eval frame in sight (stripped interpreter, walk cut short): the Python frames are the outer part all the same.
    merged += [_python(line) for line in python[used:]]
    return merged


def _eval_runs(native: Sequence[Frame]) -> list[list[int]]:
    """Indices of eval frames, grouped: machinery between two of them does not part a group, foreign code does."""
    runs: list[list[int]] = []
    parted = True
    for index, frame in enumerate(native):
        if _plain(frame) in _EVAL:
            if parted:
                runs.append([])
            runs[-1].append(index)
            parted = False
        elif not _is_plumbing(frame):
            parted = True
    return runs


def _shares(native: Sequence[Frame], runs: Sequence[Sequence[int]], python: Sequence[PythonFrame]) -> list[int]:
    """How many Python frames each run gets, innermost run first; together all of them, when there is a run at all."""
    shares: list[int] = []
    left = list(python)
    # One Python frame is the least that a run holds, however its eval frames are named.
    least = [max(1, sum(_plain(native[index]) in _LOOPS for index in run)) for run in runs]
    for run, outer in pairwise(runs):
        own, needed = least[len(shares)], sum(least[len(shares) + 1 :])
        between = native[run[-1] + 1 : outer[0]]
        border = _border(between, left, own)
        # An earlier border fixed where this run begins, so its own frames are all that is safe to give.
        share = border if border is not None else len(left) - needed if not shares else own
        shares.append(max(0, min(share, len(left))))
        del left[: shares[-1]]
    return [*shares, len(left)] if runs else []


def _border(between: Sequence[Frame], python: Sequence[PythonFrame], least: int) -> int | None:
    """Index of the first Python frame that belongs to the outer run."""
    names = {_plain(frame) for frame in between}
    for native_name, callers in _BORDERS:
        if native_name in names:
            for index, frame in enumerate(python[least:], least):
                if (frame.function, (frame.file or "").rpartition("/")[2]) in callers:
                    return index
    return None


def _is_plumbing(frame: Frame) -> bool:
    name, library = _plain(frame), (frame.library or "").rpartition("/")[2]
    if name in _THREAD_START:
        return True
    return ("python" in library or not library) and name.startswith(_PLUMBING)


def _plain(frame: Frame) -> str:
    return (frame.function or "").partition("(")[0].partition("@")[0]


def _python(frame: PythonFrame) -> Frame:
    return Frame(function=frame.function, file=frame.file, line=frame.line, python=True)


def crashing_python(record: CrashRecord) -> PythonThread | None:
    """The crashing thread's Python frames: from its own dump, else from the dump of all threads."""
    own = parse_faulthandler(record.python.text) if record.python and record.python.text else []
    if own and own[0].frames:
        return own[0]
    everyone = (
        parse_faulthandler(record.python_threads.text) if record.python_threads and record.python_threads.text else []
    )
    current = [thread for thread in everyone if thread.current and thread.ident is not None and thread.frames]
    return current[0] if current else own[0] if own else None


def other_threads(record: CrashRecord, helper: HelperReport | None) -> list[ThreadStack]:
    """All threads but the one the record is about: from the crash reporter, which knows tids and native frames, else
    from CPython's dump. Those that crashed as well while the record was written are marked."""
    tid = record.process.tid if record.process else None
    if helper is not None and helper.threads:
        also = record.other_crashers or []
        return [
            ThreadStack(thread.tid, thread.name, thread.tid in also, _helper_frames(thread))
            for thread in helper.threads
            if thread.tid is None or thread.tid != tid
        ]
    if record.python_threads is None or not record.python_threads.text:
        return []
    # CPython names threads by pthread_self(), from which no tid follows.
    return [
        ThreadStack(
            None,
            thread.name or (f"pthread {thread.ident:#x}" if thread.ident is not None else None),
            False,
            list(map(_python, thread.frames)),
        )
        for thread in parse_faulthandler(record.python_threads.text)
        if not thread.current
    ]


def seen_from_outside(record: CrashRecord, helper: HelperReport | None) -> list[Frame]:
    """The crashing thread as the crash reporter saw it: the second-best stack, without addresses and trust."""
    tid = record.process.tid if record.process else None
    for thread in helper.threads if helper is not None else []:
        if tid is not None and thread.tid == tid:
            return _helper_frames(thread)
    return []


def python_groups(record: CrashRecord, helper: HelperReport | None) -> list[int]:
    """Lengths of the unbroken stretches of Python frames in the crashing thread, as the crash reporter saw it."""
    groups: list[int] = []
    inside = False
    for frame in seen_from_outside(record, helper):
        if frame.python and not inside:
            groups.append(0)
        if frame.python:
            groups[-1] += 1
        inside = frame.python
    return groups


def _helper_frames(thread: HelperThread) -> list[Frame]:
    frames = [
        Frame(frame.function, frame.library, file=frame.file, line=frame.line, python=not frame.native)
        for frame in thread.frames
    ]
    return frames[_interrupted(frames) :]


def _interrupted(frames: Sequence[Frame]) -> int:
    """Index of the frame that a signal of ours interrupted: our handler holds each thread while it is looked at.

    On top of the handler may stand what it calls (a system call); below it the trampoline, which the tools often cannot
    name. Frames of ours further out are the job's own calls.
    """
    first = next((index for index, frame in enumerate(frames[:_CALLED_BY_OURS]) if _is_handler(frame)), None)
    if first is None:
        return 0
    end = first
    while end < len(frames) and _is_handler(frames[end]):
        end += 1
    unnamed = end < len(frames) and not frames[end].python and frames[end].function is None
    return end + 1 if unnamed else end
