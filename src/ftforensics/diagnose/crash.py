"""Prepares one record for the causes: names, stacks, mechanism, and the list of what could not be seen."""

from __future__ import annotations

import signal

from ftforensics.diagnose.mechanism import read_mechanism
from ftforensics.diagnose.names import Resolver
from ftforensics.diagnose.stacks import choose_walk, crashing_python, own_frames_dropped
from ftforensics.model.basics import Gap
from ftforensics.model.case import CaseRecord, Crash
from ftforensics.model.crash import CrashRecord, RawFrame

_FRAME_LIMIT = 512  # FTF_MAX_FRAMES of csrc/ftf_state.h: such a walk was cut by its buffer, not by the stack


def prepare(case: CaseRecord, resolve: Resolver) -> Crash:
    record = case.record
    walk = choose_walk(record)
    raw = _with_context(record, walk.frames if walk else [])
    resolution = resolve(record, raw)
    native = own_frames_dropped(resolution.frames, raw)
    python = crashing_python(record)
    gaps = [*case.gaps, *_gaps(record), *resolution.gaps]
    if case.helper is not None and case.helper.gap is not None:
        gaps.append(case.helper.gap)
    return Crash(
        record=record,
        reading=read_mechanism(record, native),
        native=native,
        python=python.frames if python else [],
        path=case.path,
        helper=case.helper,
        gaps=gaps,
    )


def _with_context(record: CrashRecord, frames: list[RawFrame]) -> list[RawFrame]:
    """A guessed stack does not hold the frame that died; the registers do."""
    pc = record.registers.pc if record.registers else None
    if pc is None or not frames or any(frame.trust != "scan" for frame in frames):
        return frames
    return [RawFrame(pc, record.registers.sp if record.registers else None, "context"), *frames]


# What a failed step of the handler leaves unseen. Steps that lose nothing a reader would miss are not named.
_LOST = {
    "open": "the record could not be written where it belongs",
    "read_maps": "the memory map was not read, so addresses may lack their library",
    "abort_message": "what glibc said when it aborted",
    "cxx_exception": "which C++ exception was under way",
    "fault_file": "the length of the file behind the address",
    "native": "the native stack by unwind tables, so callers may be missing or guessed",
    "python": "the Python stack of the crashing thread",
    "python_threads": "the Python stacks of the other threads",
    "code": "the machine code around the fault",
    "stack": "the stack memory",
    "modules": "the list of loaded libraries",
    "threads": "the list of threads",
    "maps": "the memory map",
    "handlers": "who owned the signals",
    "reporter": "the other threads' native stacks: the process that looks at them was not started or did not finish",
}


def _gaps(record: CrashRecord) -> list[Gap]:
    gaps = [
        Gap("crash", f"{_LOST[stage.name]} ({_reason(stage.error)})")
        for stage in record.stages or []
        if stage.ok is False and stage.name in _LOST
    ]
    walk = choose_walk(record)
    if walk is None:
        gaps.append(Gap("crash", "the native stack: none was recorded"))
    elif walk.complete is False and len(walk.frames) >= _FRAME_LIMIT:
        gaps.append(Gap("crash", f"the native stack beyond its innermost {len(walk.frames)} frames"))
    elif walk.complete is False:
        gaps.append(Gap("crash", f"the native stack beyond {len(walk.frames)} frames: no caller could be found there"))
    if record.python is not None and record.python.truncated:
        gaps.append(Gap("crash", "the Python stack beyond what CPython dumps"))
    return gaps


def _reason(error: str | None) -> str:
    """The handler's terse words for a person."""
    if not error:
        return "no reason recorded"
    number = error.removeprefix("signal ")
    if number != error and number.isdigit():
        return f"reading it faulted too, by {_signal_name(int(number))}"
    known = {"deadline": "it took too long and was cut", "dumper cut before": "an earlier dump had failed"}
    return known.get(error, error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
