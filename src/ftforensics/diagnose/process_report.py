"""One death as the reports show it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.raised import own_exception
from ftforensics.diagnose.first_failure import is_memory_killer
from ftforensics.diagnose.judge import Judged
from ftforensics.diagnose.memory import memory_history
from ftforensics.diagnose.ring_view import last_second
from ftforensics.diagnose.stacks import merge, other_threads, python_groups, seen_from_outside
from ftforensics.diagnose.verdict import Weighed
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Exit, Frame, ProcessReport, ThreadStack
from ftforensics.model.exception import Raised
from ftforensics.model.ring import Ring
from ftforensics.model.signals import signal_name

_SHORT = 200  # characters of a message


def report_of(judged: Judged, role: str, rings: Sequence[Ring], detailed: bool = True) -> ProcessReport:
    """rings: of the whole case, for the memory that ranks of one node share; detailed: with memory and last second."""
    death = judged.death
    base = _of_crash(judged, death.crash) if death.crash is not None else _of_death(death)
    return msgspec.structs.replace(
        base,
        exit=_exit(death, judged.weighed),
        role=role,
        rank=death.rank if base.rank is None else base.rank,
        comm=death.comms[0] if death.comms else None,
        ring=death.ring_path,
        alive=death.alive,
        worker=death.worker,
        worker_of=death.worker_of if base.worker_of is None else base.worker_of,
        memory=memory_history(death, rings) if detailed else None,
        last_second=last_second(death) if detailed else None,
        by=_ended_by(death),
        reason=judged.consequence,
        raised=_raised(death, detailed),
    )


def _raised(death: Death, detailed: bool) -> list[Raised]:
    """The exception that ended it and what that came from; of one among thousands only its name."""
    own = own_exception(death)
    if own is None:
        return []
    if detailed:
        return [own.raised, *own.origin]
    return [Raised(own.failure.type, own.failure.message[:_SHORT])]


def _exit(death: Death, weighed: Weighed) -> Exit:
    """What a parent saw, or what the verdict says where nobody did: the kernel's OOM killer has one signal only."""
    if (
        death.signal is None
        and death.code is None
        and death.oom
        and weighed.best is not None
        and is_memory_killer(weighed.best)
    ):
        return Exit(signal="SIGKILL")
    return Exit(signal=signal_name(death.signal) if death.signal is not None else None, code=death.code)


def _of_crash(judged: Judged, crash: Crash) -> ProcessReport:
    record = crash.record
    process, job, phase = record.process, record.job, record.phase
    merged = merge(crash.native, crash.python, python_groups(record, crash.helper))
    if not crash.native:
        merged = seen_from_outside(record, crash.helper) or merged
    crashing = ThreadStack(process.tid if process else None, process.thread_name if process else None, True, merged)
    return ProcessReport(
        host=job.host if job else None,
        pid=process.pid if process else None,
        rank=job.rank if job else None,
        worker_of=process.fork_of if process else None,
        exit=Exit(),
        role="unknown",
        phase=" > ".join(phase.names) if phase and phase.names else None,
        step=record.step,
        time=record.time.realtime if record.time else None,
        stack=merged,
        threads=[crashing, *other_threads(record, crash.helper)],
        record=crash.path,
        handlers=judged.owners,
    )


def _of_death(death: Death) -> ProcessReport:
    ring, raised = death.ring, death.raised
    return ProcessReport(
        host=death.host,
        pid=death.pid,
        rank=death.rank,
        worker_of=death.worker_of,
        exit=Exit(),
        role="unknown",
        phase=(ring.phase if ring else None) or (raised.phase if raised else None),
        step=ring.step if ring and ring.step is not None else raised.step if raised else None,
        time=death.when.realtime,
        stack=_traceback(death),
    )


def _traceback(death: Death) -> list[Frame]:
    """Of the exception that ended it, innermost first as a crash's stack is."""
    own = own_exception(death)
    if own is None or own.peer_lost:
        return []
    frames = own.failure.frames or own.raised.frames
    return [Frame(function=one.function, file=one.file, line=one.line, python=True) for one in reversed(frames)]


def _ended_by(death: Death) -> str | None:
    """Who sent the signal that ended it, as far as somebody says: "17987 (torchrun)"."""
    for sent in death.sent:
        if not sent.by_kernel and sent.sent.signal == death.signal:
            pid = sent.sent.sender_pid if sent.sent.sender_pid is not None else sent.sent.sender_tid
            return f"{pid} ({sent.sent.sender_comm})"
    for seen in reversed(death.signals):
        if seen.signal.number == death.signal and seen.signal.sender is not None:
            name = f" ({seen.sender_comm})" if seen.sender_comm else ""
            return f"{seen.signal.sender.pid}{name}"
    return death.ended_by[0].by if death.ended_by else None
