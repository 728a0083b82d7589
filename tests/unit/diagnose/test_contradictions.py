"""A record that contradicts itself proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ftforensics.diagnose import diagnose
from ftforensics.diagnose.contradictions import contradictions
from ftforensics.model.case import Case, CaseRecord
from ftforensics.wire.record import ReadRecord, read_record
from synth.crash_record import PC, CrashText


def sent() -> CrashText:
    return CrashText().signal(7, "SIGBUS", 0, "SI_USER", sender=999)


def change(member: str, **values: Any) -> Callable[[CrashText], object]:
    return lambda text: text.members[member].update(values)


WRONG: dict[str, Callable[[CrashText], object]] = {
    "number": change("signal", number=15),
    "code name": change("signal", code_name="SI_KERNEL"),
    "fault code": change("signal", code_name="SEGV_MAPERR"),
    "sent with an address": change("signal", address="0x7f0000000000"),
    "pid": change("process", nspid=[1, 4243]),
    "own parent": change("process", ppid=4242),
    "status of another": lambda text: text.set(status=["Name:\tpython", "Tgid:\t77", "Pid:\t77"]),
    "dead before install": change("time", installed=2000.0),
    "clock": change("time", boottime=3.0),
    "code without a mapping": lambda text: text.set(maps=["7f2000000000-7f2000010000 r--s 00000000 08:01 4711 /x"]),
    "program counter": lambda text: text.registers(pc=PC + 64),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_contradiction_takes_the_proof_away_and_is_shown(what: str) -> None:
    text = sent()
    WRONG[what](text)
    reading = read_record(text.data())
    assert isinstance(reading, ReadRecord)
    assert len(contradictions(reading.record)) == 1
    diagnosis = diagnose(Case([CaseRecord(reading.record)]))
    assert diagnosis.verdict.confidence != "proven"
    assert diagnosis.hypotheses[0].against


def test_a_sound_record_keeps_it() -> None:
    # In a container /proc may show the outer pid, and nspid has both.
    text = sent().set(status=["Tgid:\t900"])
    text.members["process"]["nspid"] = [900, 4242]
    reading = read_record(text.data())
    assert isinstance(reading, ReadRecord)
    assert contradictions(reading.record) == []
    assert diagnose(Case([CaseRecord(reading.record)])).verdict.confidence == "proven"


def test_the_kernel_names_no_sender() -> None:
    text = CrashText().signal(11, "SIGSEGV", 1, "SEGV_MAPERR", address=0, sender=999)
    reading = read_record(text.data())
    assert isinstance(reading, ReadRecord)
    assert [cite.text for cite in contradictions(reading.record)] == ["the kernel raised it, and yet a sender is named"]
