"""NCCL's watchdog ended the process because a collective did not finish.

## What it means

Every rank has a watchdog thread that looks after its collectives (all-reduce, broadcast, ...). When one takes longer
than the timeout, or NCCL reports an error, the watchdog ends the process by an exception that nobody catches: SIGABRT.
The process that dies so is seldom at fault. A collective needs all ranks, and one of them did not come: it crashed, was
killed, hung in a file system or took another branch of the program.

## How it is told apart

SIGABRT, with torch's own message about the watchdog in the log, or with the watchdog's thread or functions in the
crash record. It is likely, and it says how this process ended; the why is with another rank. An error of CUDA's that
the watchdog merely passes on (an illegal memory access) comes from an earlier kernel of this process: then it is
possible, and the exception's own text says more.

## What to do

1. Look at the ranks that did *not* print a watchdog message, and at the first failure in time.
2. `TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1` writes each rank's last collectives.
3. If a rank is only slow (saving, evaluating, compiling), raise the timeout: `init_process_group(timeout=...)`.

## Seen in the field

- "Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=600000)", exit code -6.
- NVIDIA/nccl#782: a crash in the proxy thread after another error had ended the communicator: a consequence.

## References

- PyTorch source, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; PyTorch documentation, "Flight Recorder"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_stack import gave_up
from ftforensics.causes.cuda_text import said_in_record
from ftforensics.causes.ending import SIGABRT, signal_of
from ftforensics.causes.library_evidence import likely_if, software_texts, text_cites, where
from ftforensics.causes.ranks import ranks_text
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import frame_text
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.model.launcher import StackText
from ftforensics.model.mechanism import Mechanism

KIND = Kind.OWN_FAULT
ORDER = 25
REFINES = ("uncaught-cxx-exception", "raised-by-program")
# Functions of the two threads that end a process: until 2.8 members of ProcessGroupNCCL, then classes in it.
_WATCHDOG = (
    "ProcessGroupNCCL::ncclCommWatchdog", "ProcessGroupNCCL::ncclCommWatchdogInternal",
    "ProcessGroupNCCL::watchdogHandler", "ProcessGroupNCCL::workCleanupLoop", "ProcessGroupNCCL::heartbeatMonitor",
    "ProcessGroupNCCL::terminateProcess", "ProcessGroupNCCL::Watchdog::", "ProcessGroupNCCL::HeartbeatMonitor::",
)  # fmt: skip
# c10::setThreadName cuts at the kernel's 15 characters.
_THREADS = ("pt_nccl_watchdg", "pt_nccl_heartbt")
_REMEDIES = (
    Remedy("Look at the rank that did not come: the one without such a message, and the first failure in time"),
    Remedy(
        "Let every rank write its last collectives when one times out",
        "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1",
        settles=True,
    ),
    Remedy("If a rank is only slow there, raise the limit: init_process_group(timeout=timedelta(hours=1))"),
)


def check(crash: Crash) -> Iterator[Finding]:
    frame = _watchdog_frame(crash)
    thread = crash.record.process.thread_name if crash.record.process else None
    named = thread in _THREADS
    if not _aborted(crash) or (frame is None and not named):
        return
    timed_out = said_in_record(crash, _is_watchdogs)
    exception = crash.record.cxx_exception.what if crash.record.cxx_exception else None
    # It passes on errors of CUDA's and NCCL's too, whose text is then the exception's.
    passed_on = exception if exception and timed_out is None else None
    supports = [*(timed_out.supports if timed_out is not None else []), *([frame] if frame is not None else [])]
    if named:
        supports.append(Cite("crash", "process.thread_name", f"{thread}: torch's name for the watchdog's thread"))
    yield Finding(
        cause="nccl-watchdog-abort",
        confidence=likely_if(passed_on is None),
        summary=_summary(timed_out.texts[0] if timed_out is not None else None),
        supports=[*supports, *where(crash)],
        against=[
            *crash.reading.against,
            *([Cite("crash", "cxx_exception", f"the exception is no timeout: {passed_on[:200]}")] if passed_on else []),
        ],
        unknown=[
            *crash.reading.unknown,
            Gap("launcher", "which collective, and whether it timed out or failed", "ftforensics analyze RECORD LOG"),
        ],
        remedies=list(_REMEDIES),
    )


def _aborted(crash: Crash) -> bool:
    return gave_up(crash) and crash.reading.mechanism is not Mechanism.SENT_BY_PROCESS


def _watchdog_frame(crash: Crash) -> Cite | None:
    for index, frame in enumerate(crash.native[:64]):
        if frame.trust != "scan" and any(name in (frame.function or "") for name in _WATCHDOG):
            return Cite("crash", f"native.frames[{index}]", frame_text(frame))
    return None


def check_death(death: Death) -> Iterator[Finding]:
    """The log says which collective it was. An exit status alone may be a launcher's word for SIGABRT."""
    texts = software_texts(death, "nccl-watchdog")
    if not texts or signal_of(death) != SIGABRT:
        return
    if death.crash is not None and not _aborted(death.crash):
        return
    timed_out = next((one for one in reversed(texts) if one.seconds is not None or one.symbol), None)
    # A CUDA error that was there before is what the watchdog passes on.
    first = min(one.line.number for one in texts)
    errors = [one.line for one in software_texts(death, "cuda-error") if one.line.number < first]
    if timed_out is None:
        errors += [one.line for one in death.texts if one.kind == "cxx-exception" and one.message]
    yield Finding(
        cause="nccl-watchdog-abort",
        confidence=likely_if(timed_out is not None or not errors),
        summary=_summary(timed_out, death),
        supports=[*text_cites(death, [timed_out or texts[-1]]), *_cites_of(death)],
        against=[Cite("launcher", f"line {one.number}", one.text) for one in errors[:1]],
        unknown=[] if death.behind else [Gap("launcher", "which rank did not come", "ftforensics analyze RUN_FOLDER")],
        remedies=[*_look_at(death), *_REMEDIES],
    )


def _is_watchdogs(text: StackText) -> bool:
    return text.kind == "nccl-watchdog"


def _cites_of(death: Death) -> list[Cite]:
    return list(dict.fromkeys(cite for behind in death.behind for cite in behind.cites))[:6]


def _look_at(death: Death) -> list[Remedy]:
    if not death.behind:
        return []
    return [Remedy(f"Look at what {_ranks(death)} did meanwhile: its own output, or its stacks when it hangs again")]


def _ranks(death: Death) -> str:
    return ranks_text([behind.rank for behind in death.behind])


def _summary(text: StackText | None, death: Death | None = None) -> str:
    if death is not None and death.behind:
        first = death.behind[0]
        operation = f", {text.symbol.lower()}" if text is not None and text.symbol else ""
        limit = f" within {text.seconds:g} s" if text is not None and text.seconds else ""
        sure = "" if first.enqueued is not None else ", by its silence"
        return (
            f"NCCL's watchdog ended the process: {_ranks(death)} did not come to collective {first.sequence}"
            f"{operation}{limit}{sure}."
        )
    if text is None:
        return (
            "NCCL's watchdog ended the process: a collective did not finish or failed, and the culprit may be another "
            "rank."
        )
    what = f" ({text.symbol.lower()})" if text.symbol else ""
    limit = f" within {text.seconds:g} s" if text.seconds else ""
    return f"NCCL's watchdog ended the process: another rank did not come to a collective{what}{limit}."
