"""The whole way from records to a diagnosis: what wins, what is listed, what is said to be unseen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftforensics.causes.registry import Cause, Kind, causes
from ftforensics.diagnose import diagnose
from ftforensics.diagnose.names import Resolution
from ftforensics.diagnose.verdict import weigh
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseRecord, Crash
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Diagnosis, Finding, Remedy
from ftforensics.model.helper_report import HelperFrame, HelperReport, HelperThread
from ftforensics.wire.record import ReadRecord, read_record
from synth.crash_record import CrashText


def record(text: CrashText) -> CrashRecord:
    reading = read_record(text.data())
    assert isinstance(reading, ReadRecord)
    return reading.record


def judge(*texts: CrashText) -> Diagnosis:
    return diagnose(Case([CaseRecord(record(text), f"{index}.crash.json") for index, text in enumerate(texts)]))


def at(text: CrashText, seconds: float, pid: int) -> CrashText:
    text.members["time"].update(realtime=seconds, monotonic=1000.0 + seconds)
    text.members["process"].update(pid=pid, nspid=[pid])
    return text


def fault() -> CrashText:
    return CrashText().segv(0x28, "read")


def sent() -> CrashText:
    return CrashText().signal(6, "SIGABRT", 0, "SI_USER", sender=999)


def test_the_exit_is_what_the_parent_saw() -> None:
    assert judge(fault()).processes[0].exit.signal == "SIGSEGV"
    aborted = fault()
    aborted.members["end"]["how"] = "abort"
    assert judge(aborted).processes[0].exit.signal == "SIGABRT"


def test_the_example(root: Path) -> None:
    reading = read_record((root / "docs" / "example.crash.json").read_bytes())
    assert isinstance(reading, ReadRecord)
    diagnosis = diagnose(Case([CaseRecord(reading.record)]))
    verdict = diagnosis.verdict
    assert (verdict.outcome, verdict.cause, verdict.confidence, verdict.mechanism) == (
        "failed",
        "native-fault",
        "likely",
        "null-read",
    )
    (process,) = diagnosis.processes
    assert (process.role, process.rank, process.phase, process.step) == ("root", 0, "train > save_checkpoint", 500)
    assert [frame.function for frame in process.stack if frame.python] == ["train_step", "<module>"]
    assert [event.at for event in diagnosis.timeline] == sorted(event.at for event in diagnosis.timeline)
    assert diagnosis.timeline[0].text == "ftforensics installed"


def test_a_specific_cause_takes_the_residuals_place() -> None:
    text = CrashText().signal(7, "SIGBUS", 2, "BUS_ADRERR", address=0x7F3000002000, access="write")
    diagnosis = judge(text)
    assert diagnosis.verdict.cause == "shm-exhausted"
    assert [finding.cause for finding in diagnosis.hypotheses] == ["shm-exhausted"]
    assert diagnosis.remedies == diagnosis.hypotheses[0].remedies


def test_a_circumstance_stands_behind_the_reason() -> None:
    text = CrashText().signal(6, "SIGABRT", -6, "SI_TKILL", sender=4242)
    text.set(abort_message={"text": "free(): invalid pointer\n", "source": "glibc"})
    text.members["process"]["python"] = "exiting"
    diagnosis = judge(text)
    assert diagnosis.verdict.cause == "heap-corruption"
    assert [finding.cause for finding in diagnosis.hypotheses] == ["heap-corruption", "crash-at-exit"]


def test_a_possible_cause_is_never_the_verdict() -> None:
    def malloc(found: CrashRecord, raw: object) -> Resolution:
        from ftforensics.model.diagnosis import Frame

        return Resolution([Frame(function="malloc", library="/lib/libc.so.6", trust="context")])

    diagnosis = diagnose(Case([CaseRecord(record(fault()))]), malloc)
    assert diagnosis.verdict.cause == "native-fault"
    assert [(f.cause, f.confidence) for f in diagnosis.hypotheses] == [
        ("native-fault", Confidence.LIKELY),
        ("heap-corruption", Confidence.POSSIBLE),
    ]


def test_without_a_signal_nothing_is_known() -> None:
    diagnosis = judge(CrashText().set(signal=None))
    assert (diagnosis.verdict.outcome, diagnosis.verdict.cause, diagnosis.verdict.confidence) == (
        "unknown",
        None,
        "undecided",
    )
    assert any("no signal" in gap.why for gap in diagnosis.gaps)


def test_a_signal_of_unknown_origin_is_undecided() -> None:
    diagnosis = judge(CrashText().signal(11, "SIGSEGV", 0, "SI_USER"))
    assert (diagnosis.verdict.cause, diagnosis.verdict.confidence) == (None, "undecided")
    assert diagnosis.remedies == []


def test_no_record_at_all() -> None:
    gap = Gap("folder", "it is empty")
    diagnosis = diagnose(Case(gaps=[gap]))
    assert diagnosis.verdict.confidence == "undecided" and diagnosis.gaps == [gap]


def test_the_earliest_own_fault_is_the_root() -> None:
    diagnosis = judge(at(fault(), 20.0, 2), at(fault(), 10.0, 1), at(sent(), 5.0, 3))
    assert [(process.pid, process.role) for process in diagnosis.processes] == [
        (1, "root"),
        (2, "unknown"),
        (3, "collateral"),
    ]
    assert diagnosis.verdict.cause == "native-fault"
    assert {event.text.split(":")[0] for event in diagnosis.timeline} == {f"rank 3 (pid {pid})" for pid in (1, 2, 3)}


def test_a_record_without_a_time_comes_last() -> None:
    timeless = at(fault(), 1.0, 9).set(time=None)
    assert [process.pid for process in judge(timeless, at(fault(), 20.0, 2)).processes] == [2, 9]


def test_what_could_not_be_seen_is_listed_once() -> None:
    text = fault().set(
        stages=[{"name": "native", "ok": False, "ms": 1, "error": "deadline"}, {"name": "maps", "ok": True}]
    )
    text.members["native"]["complete"] = False
    case = CaseRecord(
        record(text),
        helper=HelperReport(gap=Gap("ptrace", "refused", "--cap-add SYS_PTRACE")),
        gaps=[Gap("crash", "member maps: cut")],
    )
    gaps = diagnose(Case([case], gaps=[Gap("crash", "member maps: cut")])).gaps
    assert len(gaps) == len(set(gaps))
    told = " ".join(f"{gap.source} {gap.why}" for gap in gaps)
    for part in (
        "member maps",
        "by unwind tables, so callers may be missing or guessed (it took too long and was cut)",
        "ptrace refused",
        "no caller could be found there",
        "symbols",
    ):
        assert part in told
    assert "memory map" not in told


def test_gaps_that_somebody_can_close_come_first() -> None:
    case = Case(
        [CaseRecord(record(fault()), "a")],
        gaps=[Gap("crash", "nothing helps"), Gap("ptrace", "refused", "--cap-add SYS_PTRACE"), Gap("stderr", "lost")],
    )
    assert [gap.source for gap in diagnose(case).gaps][:2] == ["ptrace", "stderr"]


def test_the_reporters_stack_stands_in_for_a_missing_one() -> None:
    seen = HelperReport(threads=[HelperThread(4242, "main", [HelperFrame("launch", "x.cu", 7, native=True)])])
    without = CaseRecord(record(fault().set(native=None).python(("t.py", 1, "f"))), helper=seen)
    assert [frame.function for frame in diagnose(Case([without])).processes[0].stack] == ["launch"]
    with_own = CaseRecord(record(fault().python(("t.py", 1, "f"))), helper=seen)
    assert [frame.function for frame in diagnose(Case([with_own])).processes[0].stack] == [None, "f"]


def test_symbol_gaps_are_passed_on() -> None:
    def resolve(found: CrashRecord, raw: object) -> Resolution:
        return Resolution([], [Gap("symbols", "libx.so was replaced on disk")])

    assert Gap("symbols", "libx.so was replaced on disk") in diagnose(Case([CaseRecord(record(fault()))]), resolve).gaps


# --- weighing -------------------------------------------------------------------------------------------------------


def finding(name: str, confidence: Confidence) -> Finding:
    return Finding(name, confidence, f"It was {name}.", remedies=[Remedy(name)])


def dead() -> Death:
    return Death(signal=11, crash=Crash(record(fault())))


def cause(name: str, kind: Kind) -> Cause:
    def check(crash: Crash) -> Iterator[Finding]:
        yield from ()

    return Cause(name, "test", kind, "", check, None)


PROVEN, LIKELY, POSSIBLE, RULED_OUT = Confidence
KILLER, OWN, CIRCUMSTANCE, RESIDUAL = Kind


@pytest.mark.parametrize(
    ("pairs", "winner", "confidence"),
    [
        ([("a", OWN, LIKELY), ("b", OWN, LIKELY)], None, "undecided"),  # they exclude each other
        ([("a", KILLER, LIKELY), ("b", KILLER, LIKELY)], None, "undecided"),
        ([("a", OWN, LIKELY), ("b", OWN, PROVEN)], "b", "proven"),
        ([("a", OWN, LIKELY), ("b", OWN, POSSIBLE)], "a", "likely"),
        ([("a", OWN, LIKELY), ("b", CIRCUMSTANCE, LIKELY)], "a", "likely"),
        ([("a", CIRCUMSTANCE, PROVEN), ("b", OWN, LIKELY)], "a", "proven"),
        ([("a", CIRCUMSTANCE, LIKELY), ("b", CIRCUMSTANCE, LIKELY)], "a", "likely"),
        ([("a", RESIDUAL, LIKELY), ("b", OWN, LIKELY)], "b", "likely"),
        ([("a", RESIDUAL, LIKELY), ("b", OWN, POSSIBLE)], "a", "likely"),
        ([("a", RESIDUAL, LIKELY), ("b", OWN, RULED_OUT)], "a", "likely"),
        ([("a", RESIDUAL, POSSIBLE)], None, "undecided"),
        ([("a", OWN, POSSIBLE)], None, "undecided"),
        ([], None, "undecided"),
    ],
)
def test_what_wins(pairs: list[tuple[str, Kind, Confidence]], winner: str | None, confidence: str) -> None:
    for order in (pairs, pairs[::-1]):
        weighed = weigh(dead(), [(cause(name, kind), finding(name, sure)) for name, kind, sure in order])
        assert (weighed.verdict.cause, weighed.verdict.confidence) == (winner, confidence)
        assert (weighed.best.cause if weighed.best else None) == winner
        listed = [finding.cause for finding in weighed.hypotheses]
        assert winner not in listed and len(set(listed)) == len(listed)


def test_ruled_out_comes_last() -> None:
    pairs = [(cause("a", OWN), finding("a", RULED_OUT)), (cause("b", OWN), finding("b", POSSIBLE))]
    assert [f.cause for f in weigh(dead(), pairs).hypotheses] == ["b", "a"]


# --- promises over all inputs ---------------------------------------------------------------------------------------

PROVEN_CODES = {
    "killed-by-process": lambda r: r.signal.sender.pid != r.process.pid and r.signal.via is None,
    "thread-stack-overflow": lambda r: r.maps and r.code and r.signal.code in (1, 2),
    "uncaught-cxx-exception": lambda r: r.cxx_exception.type and r.signal.number == 6,
    "raised-by-program": lambda r: r.signal.sender.pid == r.process.pid and r.signal.code in (0, -6),
}  # type: dict[str, Callable[[CrashRecord], object]]

hexes = st.sampled_from([0, 0x28, 0x7F0000001136, 0x7F10007FFFF8, 0x7F2000002000, 0x7F3000002000, 0xDEADBEEFDEADBEEF])
signals = st.fixed_dictionaries(
    {
        "number": st.sampled_from([4, 6, 7, 8, 9, 11, 15, None]),
        "name": st.sampled_from(["SIGSEGV", "SIGABRT", "SIGBUS", None]),
        "code": st.sampled_from([-6, -1, 0, 1, 2, 3, 4, 5, 0x80, None]),
        "address": hexes.map(hex) | st.none(),
        "access": st.sampled_from(["read", "write", "exec", None]),
        "sender": st.sampled_from([{"pid": 4242, "uid": 0}, {"pid": 999, "uid": 0}, {"pid": 0, "uid": 0}, None]),
        "via": st.sampled_from([None, None, "0x7f0000001500"]),
        "trap": st.sampled_from([None, 0, 6, 12, 13, 14]),
    }
)


@settings(max_examples=400, deadline=None)
@given(
    signals,
    st.binary(max_size=16),
    st.sampled_from([0x7F1000800000, 0x7FFD00010000, 0]),
    st.sampled_from([None, "free(): x", "Assertion `x' failed.", "x"]),
    st.booleans(),
    st.lists(st.sampled_from(["maps", "code", "registers", "native", "job", "limits", "process", "time"])),
)
def test_any_record_gets_a_sober_diagnosis(
    signal: dict[str, object], code: bytes, sp: int, message: str | None, exception: bool, missing: list[str]
) -> None:
    text = CrashText().set(signal=signal).registers(sp=sp, rax=0, rbx=0xDEADBEEFDEADBEEF).code(code)
    text.set(abort_message={"text": message, "source": "glibc"} if message else None)
    text.set(cxx_exception={"type": "St9bad_alloc", "what": "x"} if exception else None)
    text.set(**dict.fromkeys(missing))
    diagnosis = judge(text)
    known = {cause.id for cause in causes()}
    assert diagnosis.verdict.cause in known | {None}
    assert diagnosis.verdict.confidence in ("proven", "likely", "undecided")
    assert (diagnosis.verdict.cause is None) == (diagnosis.verdict.confidence == "undecided")
    if diagnosis.verdict.confidence == "proven":
        assert PROVEN_CODES[diagnosis.verdict.cause or ""](record(text))
    if diagnosis.verdict.cause == "native-fault":
        assert diagnosis.verdict.confidence == "likely"
