"""Deaths that are alike are judged once, and nothing that a report says changes by that."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.diagnose import diagnose, judge, likeness
from ftforensics.diagnose.crash import prepare
from ftforensics.diagnose.deaths import build_deaths
from ftforensics.diagnose.names import module_offsets
from ftforensics.model.case import Case, CaseException, CaseRecord, CaseRing
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.model.launcher import LauncherLog
from ftforensics.parsers.launcher import read_launcher_log
from ftforensics.wire.exception_record import read_exception_record
from ftforensics.wire.record import ReadRecord, read_record
from ftforensics.wire.ring import Ring, read_ring
from synth.crash_record import CrashText
from synth.exception_record import exception_bytes, raised
from synth.ring import EPOCH, fast, ring_bytes, sig

RANKS = 600
ROOT = 417
PEER = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.{}]:{}"


def crash(rank: int, *, at: float, own: bool, word: str = "") -> CrashRecord:
    text = CrashText()
    if own:
        text.segv(0x28, "read")
    else:
        text.signal(6, "SIGABRT", -6, "SI_TKILL", sender=1000 + rank)
    if word:
        text.members["abort_message"] = {"text": word, "source": "glibc"}
    text.members["time"] = {"realtime": EPOCH + at, "monotonic": at, "boottime": at, "installed": 1000.0}
    text.members["process"] = {**text.members["process"], "pid": 1000 + rank, "tid": 1000 + rank, "nspid": []}
    text.members["job"] = {**text.members["job"], "rank": rank, "local_rank": rank % 8, "world_size": RANKS}
    found = read_record(text.data())
    assert isinstance(found, ReadRecord)
    return found.record


def aborts() -> Case:
    """One rank reads through a null pointer, the watchdogs of the others abort them."""
    records = [crash(rank, at=1060.0 if rank == ROOT else 1065 + rank / 1e4, own=rank == ROOT) for rank in range(RANKS)]
    return Case(records=[CaseRecord(one, f"rank{rank}.crash.json") for rank, one in enumerate(records)])


def lost_peers() -> Case:
    """One rank's own exception; to the others the connection was closed, each with its own numbers."""
    found = []
    for rank in range(RANKS):
        message = "loss is NaN at step 60" if rank == ROOT else PEER.format(rank % 250, 20000 + rank)
        record = read_exception_record(
            exception_bytes(
                raised("RuntimeError", message),
                pid=1000 + rank,
                rank=rank,
                world_size=RANKS,
                peer_lost=rank != ROOT,
                at=1060.0 if rank == ROOT else 1065.0,
            )
        )
        found.append(CaseException(record, f"rank{rank}.exception.json"))  # type: ignore[arg-type]
    return Case(exceptions=found)


def ring(rank: int) -> Ring:
    signals = [sig(1065.0, 15, pid=7, uid=1000, fatal=True)] if rank != ROOT else []
    data = ring_bytes(pid=1000 + rank, rank=rank, world_size=RANKS, fast=[fast(1059.9)], signals=signals)
    found = read_ring(data, f"rank{rank}.ring")
    assert isinstance(found, Ring)
    return found


def stopped() -> Case:
    """One rank ends unseen, the launcher stops the others, which had complained about their peers."""
    text = 'Traceback (most recent call last):\n  File "/job/train.py", line 88, in main\nRuntimeError: '
    logs = [said(rank, text + PEER.format(rank % 250, 20000 + rank)) for rank in range(RANKS) if rank != ROOT]
    return Case(rings=[CaseRing(ring(rank), f"rank{rank}.ring") for rank in range(RANKS)], launcher_logs=logs)


def said(rank: int, text: str) -> LauncherLog:
    labelled = "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())
    return read_launcher_log(labelled.encode(), path=f"rank{rank}.stderr.log")


def both(case: Case, monkeypatch: pytest.MonkeyPatch) -> tuple[Diagnosis, Diagnosis, list[int]]:
    """The diagnosis with what is alike judged once, then with every death judged; how many were judged in full."""
    asked: list[int] = []
    fully = judge.Judge._fully

    def counted(self: judge.Judge, death: Death) -> judge.Judged:
        asked[-1] += 1
        return fully(self, death)

    monkeypatch.setattr(judge.Judge, "_fully", counted)
    asked.append(0)
    shared = diagnose(case)
    monkeypatch.setattr(judge, "shape_of", lambda *_, **__: None)
    asked.append(0)
    return shared, diagnose(case), asked


@pytest.mark.parametrize("made", [aborts, lost_peers, stopped])
def test_a_job_of_600_has_the_same_diagnosis(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, alone, asked = both(made(), monkeypatch)  # type: ignore[operator]
    assert asked[0] < 20 and asked[1] > RANKS - 1
    assert shared == alone
    assert (shared.processes[0].rank, shared.processes[0].role) == (ROOT, "root")
    assert {one.role for one in shared.processes[1:]} <= {"collateral", "unknown", "victim"}


def death_of(record: CrashRecord) -> Death:
    case = Case(records=[CaseRecord(record, "one.crash.json")])
    return build_deaths(case, [prepare(one, module_offsets) for one in case.records])[0]


def shape(record: CrashRecord) -> object:
    found = likeness.shape_of(death_of(record), many=True)
    assert found is not None
    return found


def test_numbers_do_not_part_two_deaths_and_words_do() -> None:
    one = shape(crash(3, at=1065.0, own=False, word="watchdog of rank 3 gave up after 600 s"))
    assert one == shape(crash(14, at=1066.0, own=False, word="watchdog of rank 14 gave up after 601 s"))
    assert one != shape(crash(14, at=1066.0, own=False, word="double free or corruption"))
    assert one != shape(crash(14, at=1066.0, own=True))


def test_another_stack_or_library_parts_them() -> None:
    record = crash(3, at=1065.0, own=False)
    process = msgspec.structs.replace(record.process, thread_name="pt_autograd_0")  # type: ignore[type-var]
    assert shape(record) != shape(msgspec.structs.replace(record, process=process))
    assert shape(record) != shape(msgspec.structs.replace(record, modules=[]))


def test_few_deaths_with_something_to_say_are_judged_by_themselves() -> None:
    assert likeness.shape_of(death_of(crash(3, at=1065.0, own=False)), many=False) is None


def test_a_killed_process_with_a_record_is_like_no_other() -> None:
    death = msgspec.structs.replace(death_of(crash(3, at=1065.0, own=False)), signal=7)
    assert likeness.shape_of(death, many=True) is None
