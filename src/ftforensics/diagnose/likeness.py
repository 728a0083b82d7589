"""When two deaths are so alike that what is known of one is said of the other.

The ranks that a job takes along are alike by the thousand: NCCL's watchdog aborts them, a peer's connection is closed
under them, their launcher stops them. To ask seventy causes about each takes longer than to read them. A death that has
evidence of its own (a kill for memory, a fault in the kernel's log, a scheduler's word, counters that rose) is like no
other. The first failure and its rivals are judged by themselves in any case.
"""

from __future__ import annotations

import re

import msgspec

from ftforensics.causes.raised import left_by
from ftforensics.diagnose.contradictions import contradictions
from ftforensics.diagnose.stacks import choose_walk
from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import Death
from ftforensics.model.exception import ExceptionRecord

MANY = 300  # deaths; of fewer every one that says something is judged by itself

Shape = tuple[object, ...]

# A crash of these is told by its record. SIGBUS may be a full /dev/shm, SIGKILL and SIGXCPU depend on the surroundings.
_OF_THE_RECORD = frozenset({4, 6, 8, 11})
_NUMBER = re.compile(rb"\d+(?:\.\d+)*|0x[0-9a-f]+")  # ranks, pids, times, addresses
_NULL_PAGE = 64 << 10  # below: the address is a member's offset and says something
# Variables that tell a rank from its siblings, by the end of the name.
_OF_A_RANK = ("RANK", "PROCID", "LOCALID", "NODEID", "TASK_PID", "VISIBLE_DEVICES", "NODENAME", "HOSTNAME")
_ENCODER = msgspec.json.Encoder(enc_hook=str)


def shape_of(death: Death, *, many: bool) -> Shape | None:
    """What the causes can tell such deaths apart by; None for a death that is judged by itself. many: of MANY."""
    if death.oom or death.faults or death.kernel or death.notices or death.counters:
        return None
    before = left_by(death)
    if before is not None and not before.peer_lost:
        return None
    if death.xids or death.driver_notes or death.rebooted is not None:
        return None
    crash = death.crash
    said = death.texts or death.stack_texts or death.exceptions or death.unowned or death.raised is not None
    if (crash is not None or said) and not many:
        return None
    if crash is None and death.role != "collateral":
        return None
    if crash is not None and (death.signal not in _OF_THE_RECORD or death.usage is not None):
        return None
    return (
        *_surroundings(death),
        _of_crash(crash) if crash is not None else None,
        _of_raised(death.raised) if death.raised is not None else None,
        _folded([death.exceptions, death.unowned, death.texts, death.stack_texts]) if said else None,
    )


def _surroundings(death: Death) -> Shape:
    return (
        death.signal, death.code, death.host if death.crash is None else None, death.role, death.worker, death.given,
        death.watched, death.alive, death.direct, death.first, death.ring is not None, death.traced,
        death.kernel_log_covers, death.initial_namespace, len(death.ending), bool(death.behind), bool(death.others_oom),
        tuple((said.by, said.signal) for said in death.ended_by),
        tuple((one.sender_role, one.by_kernel, one.sent.signal, one.match.tie) for one in death.sent),
        tuple((one.sender_role, one.signal.number, one.signal.fatal, one.signal.code) for one in death.signals),
        death.died_together > 1, death.parent_died is not None,
    )  # fmt: skip


def _of_crash(crash: Crash) -> bytes:
    """The record without what differs between two processes that do the same: numbers, times and addresses.

    Whole members where a cause compares versions or names; equal on all ranks of a job, and where they are not, the
    ranks are not alike."""
    record, reading = crash.record, crash.reading
    walk, process = choose_walk(record), record.process
    alike = _ENCODER.encode((
        (reading.mechanism, reading.access, reading.instruction, reading.feature, reading.uncovered),
        (reading.sp_at_guard, reading.deliberate_trap, _address(reading.address)),
        [(frame.function, frame.library, frame.offset, frame.file, frame.line, frame.trust) for frame in crash.native],
        crash.python, walk.complete if walk else None,
        (process.thread_name, process.main_thread, process.python, process.fork_of is None) if process else None,
        (record.phase.names if record.phase else None, record.other_crashers is None),
        [(stage.name, stage.ok, stage.error) for stage in record.stages or ()],
        [(one.signal, one.ours, [(last.library, last.taken_back) for last in one.previous])
         for one in record.handlers or ()],
        [(module.path, module.build_id, module.deleted) for module in record.modules or ()],
        record.libraries, record.software, record.driver, record.limits, record.core, record.code is None,
        [seen.name for seen in record.signals_seen or ()], record.cxx_exception,
        [(thread.name, thread.frames) for thread in crash.helper.threads] if crash.helper else None,
    ))  # fmt: skip
    return alike + _ENCODER.encode(_of_process(record)) + _folded([
        record.abort_message, record.note, record.fault_file, crash.gaps, contradictions(record),
    ])  # fmt: skip


def _of_process(record: CrashRecord) -> Shape:
    signal, job = record.signal, record.job
    by_itself = signal is not None and signal.sender is not None and record.process is not None
    return (
        (signal.number, signal.code, signal.access, signal.via is None, _address(signal.address)) if signal else None,
        (signal.sender.pid == record.process.pid) if by_itself else None,  # type: ignore[union-attr]
        (job.exe, job.argv, job.sys_prefix, job.python_executable, job.machine, job.glibc, job.kernel, job.cpu_flags)
        if job
        else None,
        [(one.name, one.value) for one in job.environment if not one.name.endswith(_OF_A_RANK)] if job else None,
        record.end.how if record.end else None,
    )


def _address(address: int | None) -> int | None:
    return address if address is None or address < _NULL_PAGE else _NULL_PAGE


def _of_raised(record: ExceptionRecord) -> bytes:
    return _ENCODER.encode((record.hook, record.thread is None, record.peer_lost, record.phase)) + _folded(
        [(one.type, one.message, one.link, one.bases, [(at.file, at.line, at.function) for at in one.frames])
         for one in record.exceptions]
    )  # fmt: skip


def _folded(value: object) -> bytes:
    """As text, all numbers alike: "[rank3]: ... by peer [10.0.0.1]:49298" is what all others say."""
    return _NUMBER.sub(b"0", _ENCODER.encode(value))
