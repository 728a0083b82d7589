"""Records of uncaught exceptions, whole, cut at every byte, and not ours."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.model.basics import Gap
from ftforensics.model.exception import ExceptionRecord, Raised, RaisedFrame
from ftforensics.wire.exception_record import looks_like_an_exception_record, read_exception_record
from synth.exception_record import exception_bytes, raised

WHOLE = exception_bytes(
    raised("torch.OutOfMemoryError", "CUDA out of memory", bases=["RuntimeError", "Exception"]),
    raised(
        "OSError", "é", [("/job/train.py", 5, "<module>"), ("/job/data.py", 9, "load")],
        link="cause", errno=28, filename="/dev/shm/x",
    ),
    rank=3, world_size=8, phase="train > save", step=7, attempt=1, worker_of=4200,
)  # fmt: skip


def read(data: bytes) -> ExceptionRecord:
    record = read_exception_record(data)
    assert isinstance(record, ExceptionRecord)
    return record


def test_all_of_a_whole_record() -> None:
    record = read(WHOLE)
    assert record.exceptions[0].type == "torch.OutOfMemoryError" and record.exceptions[0].link is None
    assert record.exceptions[1] == Raised(
        "OSError",
        "é",
        [RaisedFrame("/job/train.py", 5, "<module>"), RaisedFrame("/job/data.py", 9, "load")],
        "cause",
        ["Exception"],
        28,
        "/dev/shm/x",
    )
    assert record.process is not None and record.process.pid == 4242
    assert record.time is not None and record.time.monotonic == 100.0
    assert record.job is not None and (record.job.rank, record.job.world_size) == (3, 8)
    assert (record.hook, record.peer_lost, record.phase, record.step) == ("sys.excepthook", False, "train > save", 7)
    assert (record.attempt, record.worker_of) == (1, 4200)
    assert looks_like_an_exception_record(WHOLE[:100])


def test_cut_at_every_byte_what_is_complete_is_read_and_right() -> None:
    whole = read(WHOLE)
    seen: list[int] = []
    for size in range(len(WHOLE)):
        record = read_exception_record(WHOLE[:size])
        if isinstance(record, Gap):
            assert b"\n" not in WHOLE[:size]
            continue
        for name in ("hook", "step", "attempt", "worker_of", "phase", "process", "time", "job"):
            assert getattr(record, name) in (getattr(whole, name), None)
        assert record.exceptions == whole.exceptions[: len(record.exceptions)]
        seen.append(len(record.exceptions))
    assert seen == sorted(seen) and set(seen) == {0, 1, 2}


def test_a_cut_behind_a_newline_keeps_the_line() -> None:
    end = WHOLE.index(b"\n", WHOLE.index(b'"step"')) + 1
    assert read(WHOLE[:end]).step == 7
    assert read(WHOLE[: end - 3]).step is None


def test_other_white_space() -> None:
    assert read(msgspec.json.format(WHOLE, indent=2)) == read(WHOLE)


def test_zeros_of_a_replayed_journal() -> None:
    assert read(WHOLE + b"\0" * 4096) == read(WHOLE)


@pytest.mark.parametrize("data", [b"", b"\0\0", b"{", b"[]", b"\xff\xfe{}", b"{}", b'{"schema": 5}', b"[" * 100000])
def test_what_is_no_record(data: bytes) -> None:
    assert isinstance(read_exception_record(data), Gap)


def test_another_schema_is_not_guessed_at() -> None:
    newer = read_exception_record(exception_bytes(schema="ftforensics.exception/2"))
    assert isinstance(newer, Gap) and "upgrade" in newer.why
    assert isinstance(read_exception_record(exception_bytes(schema="ftforensics.crash/1")), Gap)


def test_members_of_the_wrong_type_are_left_out() -> None:
    bad = raised("A")
    bad["frames"] = 5
    record = read(exception_bytes(bad, raised("B"), step="x", job=[1], peer_lost=None))
    assert [one.type for one in record.exceptions] == ["B"]
    assert record.step is None and record.job is None and record.hook == "sys.excepthook"


def test_a_surrogate_and_deep_nesting_do_no_harm() -> None:
    deep = b'{"schema": "ftforensics.exception/1",\n"hook": "x",\n"job": ' + b'{"a":' * 50000
    assert read(deep + b"\n").hook == "x"
    assert isinstance(read_exception_record(b'{"schema": "\\ud800"}'), Gap)
