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
from ftforensics.model.exception import Raised
from ftforensics.parsers.cxx_name import bare_name, short_name
from ftforensics.report.escape import printable, shortened
from ftforensics.report.frames import line_of

LONGEST_NAME = 80  # characters of a host, phase, type or sender
LONGEST_EXCERPT = 400  # of a sentence, a message or a line of a log
SHORT_EXCERPT = 100  # of a message in one line among others

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


def name(text: str) -> str:
    """A foreign name, which may be of any length."""
    return shortened(printable(text), LONGEST_NAME)


def excerpt(text: str, limit: int = LONGEST_EXCERPT) -> str:
    """Foreign words on one line. Both ends of a long message tell something."""
    return shortened(printable(text), limit)


def ended_well(diagnosis: Diagnosis) -> bool:
    return diagnosis.verdict.outcome == "succeeded"


def nobody_here(diagnosis: Diagnosis) -> bool:
    """Is the culprit somewhere else: did the processes that are known here only lose their peer?"""
    return diagnosis.verdict.cause == "peer-lost"


def confidence_word(diagnosis: Diagnosis) -> str:
    """PROVEN, LIKELY or UNDECIDED; nothing for a run that ended well, where there is nothing to be sure of."""
    return "" if ended_well(diagnosis) else name(diagnosis.verdict.confidence).upper()


def summary(diagnosis: Diagnosis) -> str:
    return excerpt(diagnosis.verdict.summary) or "What ended the process is not known."


def is_worker(process: ProcessReport) -> bool:
    return process.worker or process.worker_of is not None


def who_in_short(process: ProcessReport, *, with_host: bool = False) -> str:
    """As "rank 3", "rank 3 on gpu-07"; with pid and host where there is no rank."""
    if process.rank is not None and not is_worker(process):
        there = f" on {name(process.host)}" if with_host and process.host else ""
        return f"rank {process.rank}{there}"
    return who(process)


def who(process: ProcessReport) -> str:
    """As "rank 3 (pid 18033) on gpu-07"."""
    pid = f"pid {process.pid}" if process.pid is not None else "pid unknown"
    if process.worker_of is not None:
        parent = f"pid {process.worker_of}" if process.rank is None else f"rank {process.rank}, pid {process.worker_of}"
        words = f"a worker ({pid}) of {parent}"
    elif process.worker:
        words = f"a worker ({pid})" + (f" of rank {process.rank}" if process.rank is not None else "")
    elif process.rank is not None:
        words = f"rank {process.rank} ({pid})" if process.pid is not None else f"rank {process.rank}"
    else:
        words = pid
    return f"{words} on {name(process.host)}" if process.host else words


def circumstances(process: ProcessReport) -> Iterator[str]:
    """What it was doing: phase, step, the line of Python, the time."""
    if process.phase:
        yield f"in {name(process.phase)}"
    if process.step is not None:
        yield f"step {process.step}"
    if frame := innermost_python(process):
        yield called_at(frame)
    if process.time is not None:
        yield clock(process.time)


def called_at(frame: Frame) -> str:
    """As "train.py:88 step()"."""
    line = line_of(frame)
    return f"{name(line.place)} {name(line.name)}" + ("()" if line.name.isidentifier() else "")


def innermost_python(process: ProcessReport) -> Frame | None:
    """The user's line: the innermost Python frame outside installed and standard libraries, else the innermost."""
    python = [frame for frame in process.stack if frame.python]
    if not python and process.raised:
        python = frames_of(process.raised[0])
    return innermost_own(python)


def innermost_own(python: Sequence[Frame]) -> Frame | None:
    own = (frame for frame in python if not is_library_code(frame.file or ""))
    return next(own, python[0] if python else None)


def frames_of(raised: Raised) -> list[Frame]:
    """The traceback's lines in the order of a stack, innermost first."""
    lines = reversed(raised.frames)
    return [Frame(function=line.function, file=line.file, line=line.line, python=True) for line in lines]


def clock(seconds: float) -> str:
    """UTC, because a report is read on another machine than the one it is about."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "at a time that no clock shows"


def ending(process: ProcessReport) -> str:
    """As "died of SIGSEGV", "killed by SIGKILL", "ended by SIGTERM", "raised KeyError", "exited with status 3",
    "ended unseen"."""
    signal = process.exit.signal
    if signal:
        verb = "killed by" if signal == "SIGKILL" else "died of" if signal in FAULT_NAMES else "ended by"
        return f"{verb} {name(signal)}"
    if process.raised:
        return f"raised {name(process.raised[0].type)}"
    if process.exit.code is not None:
        return f"exited with status {process.exit.code}"
    if process.alive:
        return "still running"
    if process.last_second is not None and process.last_second.end == "exit":
        return "exited, with a status that nobody saw"
    # A ring that stops is no proof of a kill.
    return "ended unseen" if process.ring is not None and process.record is None else "ended"


def leaves_nothing(process: ProcessReport) -> bool:
    """Is all that is known of it that it was one of the job?"""
    ended = process.exit.signal or process.exit.code is not None or process.raised
    return not (ended or process.alive or process.pid is not None or process.ring or process.record)


def fate(diagnosis: Diagnosis) -> str | None:
    """How the first process ended, by whom where that is decided: "killed by the kernel"; what it raised, with its
    message."""
    process = root(diagnosis)
    if process is None:
        return None
    decided = diagnosis.verdict.confidence != "undecided"
    killer = KILLERS.get(diagnosis.verdict.cause or "") if decided else None
    if killer:
        return f"killed by {killer}"
    message = process.raised[0].message if process.raised and not process.exit.signal else ""
    return f"{ending(process)}: {excerpt(message, SHORT_EXCERPT)}" if message else ending(process)


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
    return excerpt(" ".join(part for part in (cite.source, cite.locator) if part))


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
    """What to do first: the first remedy, else where to look, else what would make the most wanted source readable."""
    if diagnosis.remedies:
        return remedy_text(diagnosis.remedies[0])
    if nobody_here(diagnosis) and diagnosis.missing_on:
        return f"look at what was left on {name(diagnosis.missing_on[0])}: ftforensics analyze, on the run folder there"
    for gap in diagnosis.gaps:
        if gap.grant:
            return printable(gap.grant)
    return None
