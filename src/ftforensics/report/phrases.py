"""Half sentences that more than one output uses. All of them are escaped already."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from ftforensics.causes.blame import is_library_code
from ftforensics.causes.ending import FAULT_NAMES
from ftforensics.causes.registry import Kind, find_cause
from ftforensics.model.basics import Cite
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Diagnosis, Finding, Frame, ProcessReport, Remedy, SignalHandler
from ftforensics.parsers.cxx_name import bare_name, short_name
from ftforensics.report.escape import printable
from ftforensics.report.frames import line_of

KILLERS = {
    "cgroup-oom": "the kernel",
    "ancestor-cgroup-oom": "the kernel",
    "host-oom": "the kernel",
    "numa-oom": "the kernel",
    "oom-group-kill": "the kernel",
    "cpu-time-limit": "the kernel",
    "systemd-oomd": "systemd-oomd",
    "earlyoom": "earlyoom",
    "ray-memory-monitor": "Ray's memory monitor",
    "kubernetes-eviction": "Kubernetes",
}


def confidence_word(diagnosis: Diagnosis) -> str:
    """PROVEN, LIKELY or UNDECIDED."""
    return printable(diagnosis.verdict.confidence).upper()


def summary(diagnosis: Diagnosis) -> str:
    return printable(diagnosis.verdict.summary) or "What ended the process is not known."


def is_worker(process: ProcessReport) -> bool:
    return process.worker or process.worker_of is not None


def who_in_short(process: ProcessReport) -> str:
    """As "rank 3"; with pid and host where there is no rank."""
    if process.rank is not None and not is_worker(process):
        return f"rank {process.rank}"
    return who(process)


def who(process: ProcessReport) -> str:
    """As "rank 3 (pid 18033) on gpu-07"."""
    pid = f"pid {process.pid}" if process.pid is not None else "pid unknown"
    if process.worker_of is not None:
        parent = f"pid {process.worker_of}" if process.rank is None else f"rank {process.rank}, pid {process.worker_of}"
        name = f"a worker ({pid}) of {parent}"
    elif process.worker:
        name = f"a worker ({pid})" + (f" of rank {process.rank}" if process.rank is not None else "")
    elif process.rank is not None:
        name = f"rank {process.rank} ({pid})"
    else:
        name = pid
    return f"{name} on {printable(process.host)}" if process.host else name


def circumstances(process: ProcessReport) -> Iterator[str]:
    """What it was doing: phase, step, the line of Python, the time."""
    if process.phase:
        yield f"in {printable(process.phase)}"
    if process.step is not None:
        yield f"step {process.step}"
    if frame := innermost_python(process):
        line = line_of(frame)
        yield f"{line.place} {line.name}()" if line.name.isidentifier() else f"{line.place} {line.name}"
    if process.time is not None:
        yield clock(process.time)


def innermost_python(process: ProcessReport) -> Frame | None:
    """The user's line: the innermost Python frame outside installed and standard libraries, else the innermost."""
    python = [frame for frame in process.stack if frame.python]
    own = (frame for frame in python if not is_library_code(frame.file or ""))
    return next(own, python[0] if python else None)


def clock(seconds: float) -> str:
    """UTC, because a report is read on another machine than the one it is about."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "at a time that no clock shows"


def ending(process: ProcessReport) -> str:
    """As "died of SIGSEGV", "killed by SIGKILL", "ended by SIGTERM", "ended unseen"."""
    signal = process.exit.signal
    if signal:
        verb = "killed by" if signal == "SIGKILL" else "died of" if signal in FAULT_NAMES else "ended by"
        return f"{verb} {printable(signal)}"
    if process.exit.code is not None:
        return f"exited with status {process.exit.code}"
    if process.alive:
        return "still running"
    if process.last_second is not None and process.last_second.end == "exit":
        return "exited, with a status that nobody saw"
    # A ring that stops is no proof of a kill.
    return "ended unseen" if process.ring is not None and process.record is None else "ended"


def fate(diagnosis: Diagnosis) -> str | None:
    """How the first process ended, by whom where that is decided: "killed by the kernel"."""
    process = root(diagnosis)
    if process is None:
        return None
    decided = diagnosis.verdict.confidence != "undecided"
    killer = KILLERS.get(diagnosis.verdict.cause or "") if decided else None
    return f"killed by {killer}" if killer else ending(process)


def killed_for_memory(diagnosis: Diagnosis) -> bool:
    """Is the verdict one of those that the last minute of memory belongs to?"""
    cause = find_cause(diagnosis.verdict.cause) if diagnosis.verdict.cause else None
    return cause is not None and cause.family == "memory" and cause.kind is Kind.KILLER


def has_fault(diagnosis: Diagnosis) -> bool:
    """Is there a place where the first process died: a stack, or what the hardware did?"""
    process = root(diagnosis)
    if process is not None and (process.stack or process.record):
        return True
    return diagnosis.verdict.mechanism not in (None, "", "killed", "sent-by-process")


def record_of_root(diagnosis: Diagnosis, records: Sequence[CrashRecord]) -> CrashRecord | None:
    """records: those of the processes that left one, in the order of the processes."""
    process = root(diagnosis)
    return records[0] if records and (process is None or process.record is not None) else None


def with_records(
    diagnosis: Diagnosis, records: Sequence[CrashRecord]
) -> list[tuple[CrashRecord, ProcessReport | None]]:
    left = [process for process in diagnosis.processes if process.record is not None]
    return [(record, left[index] if index < len(left) else None) for index, record in enumerate(records)]


def place_of(cite: Cite) -> str:
    """Where a person finds the line: "crash signal.address"."""
    return printable(" ".join(part for part in (cite.source, cite.locator) if part))


def analyze_command(path: str, *options: str) -> str:
    """The command that explains `path`, to be pasted into a shell."""
    return " ".join(["ftforensics analyze", *options, shlex.quote(printable(path))])


def remedy_text(remedy: Remedy) -> str:
    text = printable(remedy.text)
    return f"{text}  {printable(remedy.command)}".strip() if remedy.command else text


def root(diagnosis: Diagnosis) -> ProcessReport | None:
    """The process that the report is about: root comes first by contract."""
    return diagnosis.processes[0] if diagnosis.processes else None


def ended_at(diagnosis: Diagnosis) -> float:
    """When it ended, seconds since the epoch; now, where that is not known."""
    process = root(diagnosis)
    return process.time if process and process.time is not None else time.time()


def finding_of_verdict(diagnosis: Diagnosis) -> Finding | None:
    cause = diagnosis.verdict.cause
    return next((finding for finding in diagnosis.hypotheses if finding.cause == cause), None) if cause else None


def handler_text(handler: SignalHandler) -> str:
    """As "on_crash (libucs.so.0)", "libucs.so.0 +0x12", "the default action"."""
    if handler.kind != "library":
        return {"ours": "ours", "default": "the default action", "ignore": "ignored"}.get(handler.kind, handler.kind)
    library = printable((handler.library or "no known library").rpartition("/")[2])
    if handler.function:
        return f"{bare_name(printable(handler.function))} ({library})"
    return f"{library} +{handler.offset}" if handler.offset is not None else library


def thefts(process: ProcessReport) -> Iterator[str]:
    """One sentence for each library that had replaced our handlers."""
    taken: dict[str, tuple[list[str], list[str]]] = {}
    for owners in process.handlers:
        for handler in owners.handlers:
            if handler.taken_back:
                library = printable((handler.library or "an unknown library").rpartition("/")[2])
                names, functions = taken.setdefault(library, ([], []))
                names.append(printable(owners.signal))
                functions.append(short_name(printable(handler.function or "")))
    for library, (names, functions) in taken.items():
        known = ", ".join(dict.fromkeys(filter(None, functions)))
        yield (
            f"{library} had taken {', '.join(names)} from us"
            + (f" ({known})" if known else "")
            + ("; its handler was put behind ours")
        )


def next_step(diagnosis: Diagnosis) -> str | None:
    """What to do first: the first remedy, else what would make the most wanted source readable."""
    if diagnosis.remedies:
        return remedy_text(diagnosis.remedies[0])
    for gap in diagnosis.gaps:
        if gap.grant:
            return printable(gap.grant)
    return None
