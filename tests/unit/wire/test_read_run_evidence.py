"""evidence.jsonl: whole, cut, damaged, of a later version."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.model.run import RunEvidence
from ftforensics.supervise import evidence as writer
from ftforensics.wire import run_evidence
from ftforensics.wire.run_evidence import looks_like_run_evidence, read_run_evidence
from synth.run_evidence import RunText


def full() -> RunText:
    return (
        RunText()
        .started(argv=["torchrun", "train.py"], traced=True)
        .counted(1000.1, "start", oom_kill=3, slurm=0)
        .gap("kmsg", "not readable")
        .sent(9, 101, 55, at=1009.9)
        .kernel("6,1234,1009900000,-;Memory cgroup out of memory: Killed process 101 (python)")
        .died(102, at=1011.0, code=1)
        .died(101, at=1010.0, signal=9, rank=3, usage={"maxrss": 1 << 30, "user": 1.5, "system": 0.5})
        .counted(1010.1, "death", oom_kill=4, slurm=1)
        .line("forwarded", at=1012.0, signal=15, sender_pid=1, did="passed on")
        .line("orphan", at=1019.0, pid=105, comm="sleep", argv=["sleep", "9"])
        .ended(code=1)
    )


def test_a_whole_file() -> None:
    evidence = read_run_evidence(full().data(), "x/evidence.jsonl")
    assert evidence.path == "x/evidence.jsonl"
    assert (
        evidence.started is not None and evidence.started.argv == ["torchrun", "train.py"] and evidence.started.traced
    )
    assert [death.pid for death in evidence.died] == [101, 102], "in the order of time"
    assert evidence.died[0].usage is not None and evidence.died[0].usage.maxrss == 1 << 30
    assert [counted.reading.groups[0].oom_kill for counted in evidence.counted] == [0, 1]
    assert (evidence.sent[0].sender_pid, evidence.forwarded[0].did, evidence.orphans[0].pid) == (55, "passed on", 105)
    assert evidence.kernel[0].record.startswith("6,1234")
    assert evidence.ended is not None and evidence.ended.code == 1
    assert [gap.source for gap in evidence.gaps] == ["kmsg"]


def test_every_cut_costs_one_line() -> None:
    data = full().data()
    lines = data.splitlines(keepends=True)
    for length in range(len(data)):
        evidence = read_run_evidence(data[:length])
        whole = data[:length].count(b"\n")
        torn = bool(data[:length]) and not data[:length].endswith(b"\n")
        texts = [gap.why for gap in evidence.gaps]
        assert (f"the evidence breaks off in line {whole + 1}" in texts) == torn
        assert len(evidence.died) == sum(line.startswith(b'{"type": "died"') for line in lines[:whole])
        assert (evidence.ended is not None) == (whole == len(lines))


@pytest.mark.parametrize(
    "line",
    [b"\xff\xfe", b"[]", b"null", b"{}", b'{"type": 7}', b'{"type": "died"}', b'{"type": "died", "at": 1, "pid": "x"}',
     b"[" * 100_000, b'{"type": "ended", "at": 1, "clocks": {}}', b'{"type": "died", "pid": 1, "at": NaN}'],
)  # fmt: skip
def test_a_bad_line_costs_itself(line: bytes) -> None:
    data = full().data().replace(b"\n", b"\n" + line + b"\n", 1)
    evidence = read_run_evidence(data)
    assert len(evidence.died) == 2 and evidence.ended is not None
    assert [gap.why.partition(":")[0] for gap in evidence.gaps] == [
        "not readable",
        "line 2 of the evidence is not usable",
    ]


def test_a_kind_of_a_later_version_is_passed_over() -> None:
    evidence = read_run_evidence(full().line("telepathy", at=1.0, thought="?").data())
    assert [gap.source for gap in evidence.gaps] == ["kmsg"]


def test_members_of_a_later_version_are_passed_over() -> None:
    assert read_run_evidence(RunText().started(colour="blue").data()).gaps == []


def test_another_schema_is_told() -> None:
    evidence = read_run_evidence(RunText().started(schema="ftforensics.evidence/2").data())
    assert "ftforensics.evidence/2" in evidence.gaps[0].why


def test_without_its_first_line_it_is_still_read() -> None:
    evidence = read_run_evidence(RunText().died(7, signal=9).data())
    assert evidence.started is None and evidence.died[0].signal == 9 and len(evidence.gaps) == 1


def test_garbage_is_counted_not_repeated() -> None:
    evidence = read_run_evidence(b"x\n" * 5000)
    assert len(evidence.gaps) == run_evidence.MOST_GAPS + 2


@given(st.binary(max_size=400))
def test_any_bytes_are_read(data: bytes) -> None:
    assert isinstance(read_run_evidence(data), RunEvidence)


@given(st.data())
def test_any_damage_is_survived(data: st.DataObject) -> None:
    text = bytearray(full().data())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.integers(0, 255))
    evidence = read_run_evidence(bytes(text))
    assert len(evidence.died) <= 2


def test_it_is_recognised() -> None:
    data = full().data()
    assert looks_like_run_evidence(data[:300]) and looks_like_run_evidence(data)
    assert not looks_like_run_evidence(b'{"schema": "ftforensics.crash/1",\n')
    assert not looks_like_run_evidence(b"started\n") and not looks_like_run_evidence(b"")


def test_reader_and_writer_mean_the_same_schema() -> None:
    assert writer.SCHEMA == run_evidence.SCHEMA == json.loads(full().data().splitlines()[0])["schema"]
