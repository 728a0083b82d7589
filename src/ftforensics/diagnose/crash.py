"""Prepares one record for the causes: names, stacks, mechanism, and the list of what could not be seen."""

from __future__ import annotations

from ftforensics.diagnose.mechanism import read_mechanism
from ftforensics.diagnose.names import Resolver
from ftforensics.diagnose.stacks import choose_walk, crashing_python, own_frames_dropped
from ftforensics.model.basics import Gap
from ftforensics.model.case import CaseRecord, Crash
from ftforensics.model.crash import CrashRecord


def prepare(case: CaseRecord, resolve: Resolver) -> Crash:
    record = case.record
    walk = choose_walk(record)
    raw = walk.frames if walk else []
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


def _gaps(record: CrashRecord) -> list[Gap]:
    gaps = [
        Gap("crash", f"step {stage.name!r} of the crash handler failed: {stage.error or 'no reason given'}")
        for stage in record.stages or []
        if stage.ok is False
    ]
    walk = choose_walk(record)
    if walk is None:
        gaps.append(Gap("crash", "no native stack was recorded"))
    elif walk.complete is False:
        gaps.append(Gap("crash", f"the native stack is cut: the {walk.unwinder or 'unwinder'} stopped early"))
    if record.python is not None and record.python.truncated:
        gaps.append(Gap("crash", "the Python stack is cut"))
    return gaps
