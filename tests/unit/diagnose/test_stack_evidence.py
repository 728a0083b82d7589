"""Lines about the software stack and the driver's own lines reach the death that they are about, and no other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ftforensics.diagnose import diagnose
from ftforensics.diagnose.deaths import build_deaths
from ftforensics.model.case import Case
from ftforensics.model.death import Death, Tie
from ftforensics.model.kernel import DriverNote, KernelLog, LogLine, Xid
from ftforensics.model.launcher import ExceptionSeen, LauncherLog, ProcessDied, SignalledBy, StackText, TextLine
from ftforensics.model.moment import Moment
from ftforensics.model.ring import ClockPair
from ftforensics.model.run import Died, Ended, RunEvidence, Started
from ftforensics.parsers.launcher import read_launcher_log

BOOT = "11111111-0000-4000-8000-000000000000"
EPOCH = 1_000_000.0
INITIAL = 0xEFFFFFFC


def line(number: int, text: str = "") -> TextLine:
    return TextLine(text, number)


def died(pid: int, rank: int | None, **how: Any) -> ProcessDied:
    return ProcessDied(line(pid), "torchrun", pid=pid, rank=rank, **how)


def text(number: int = 1, form: str = "exception", kind: str = "cuda-error", **fields: Any) -> StackText:
    return StackText(line(number), kind, form=form, **fields)


def deaths(*events: Any, **case: Any) -> dict[int | None, Death]:
    found = build_deaths(Case(launcher_logs=[LauncherLog("job.log", events=list(events))], **case), [])
    return {death.pid: death for death in found}


def codes(found: dict[int | None, Death]) -> dict[int | None, list[int | None]]:
    return {pid: [one.code for one in death.stack_texts] for pid, death in found.items() if death.stack_texts}


def test_a_rank_in_the_label_decides() -> None:
    found = deaths(text(code=209, rank=1), text(code=35, rank=0), died(10, 0, code=1), died(11, 1, code=1))
    assert codes(found) == {10: [35], 11: [209]}
    assert codes(deaths(text(code=209, rank=7), died(10, 0, code=1))) == {}


def test_the_line_can_be_found_again() -> None:
    (one,) = deaths(text(3, code=209), died(10, None, code=1))[10].stack_texts
    assert (one.line.path, one.line.number) == ("job.log", 3)


def test_a_label_of_a_job_without_ranks() -> None:
    assert codes(deaths(text(code=209, rank=0), died(10, None, code=1))) == {10: [209]}


def test_without_a_name_it_is_the_root_s_and_never_a_consequence_s() -> None:
    ended = SignalledBy(line(5), "torchrun", 10, 15)
    found = deaths(text(code=209), died(11, 1, code=1, first=True), died(10, 0, signal=15), ended)
    assert codes(found) == {11: [209]}


def test_what_every_rank_prints_is_of_every_rank() -> None:
    two = [died(10, 0, code=1, first=True), died(11, 1, code=1)]
    assert codes(deaths(text(1, code=209), text(2, code=209), *two)) == {10: [209], 11: [209]}
    assert codes(deaths(text(1, code=209), *two)) == {10: [209]}
    unordered = [msgspec.structs.replace(one, first=False) for one in two]
    assert codes(deaths(text(1, code=209), *unordered)) == {}


@pytest.mark.parametrize(
    ("form", "how", "given"),
    [
        ("exception", {"code": 1}, True),
        ("exception", {"signal": 11}, False),  # somebody had caught it
        ("exception", {"signal": 9}, False),
        ("exception", {"code": 139}, False),  # a shell's word for SIGSEGV
        ("what", {"signal": 6}, True),
        ("what", {"code": 134}, True),
        ("what", {"signal": 11}, False),
        ("what", {"code": 1}, False),
        ("warning", {"signal": 11}, True),
        ("line", {"signal": 11}, True),
    ],
)
def test_the_form_must_go_with_the_end(form: str, how: dict[str, int], given: bool) -> None:
    found = deaths(text(code=209, form=form), died(10, 0, **how))
    assert codes(found) == ({10: [209]} if given else {})


def test_the_watchdog_aborts() -> None:
    said = text(kind="nccl-watchdog", form="line")
    found = deaths(said, died(10, 0, signal=6), died(11, 1, code=1, first=True))
    assert [pid for pid, death in found.items() if death.stack_texts] == [10]


def test_a_pid_in_the_line_decides() -> None:
    said = text(code=35, form="line", pid=11)
    assert codes(deaths(said, died(10, 0, code=1, first=True), died(11, 1, code=1))) == {11: [35]}
    assert codes(deaths(said, died(10, 0, code=1))) == {}


def test_the_same_text_again_counts_once_and_many_are_bounded() -> None:
    many = [text(number, code=209) for number in range(50)]
    assert codes(deaths(*many, died(10, None, code=1))) == {10: [209]}
    different = [text(number, kind="library-missing", library=f"{number}.so") for number in range(50)]
    assert len(deaths(*different, died(10, None, code=1))[10].stack_texts) == 20


def test_what_the_person_says_about_the_end_is_enough() -> None:
    assert codes(deaths(text(code=209), given_exit=1)) == {None: [209]}


def raised(number: int, kind: str = "ValueError", **fields: Any) -> ExceptionSeen:
    return ExceptionSeen(line(number), kind, **fields)


def forms(*events: Any) -> list[str | None]:
    return [one.form for death in deaths(*events).values() for one in death.stack_texts]


def test_an_exception_after_which_the_process_went_on_is_a_warning() -> None:
    first, end = (raised(1, "ImportError"), text(1, code=209)), died(10, None, code=1)
    assert forms(*first, end) == ["exception"]
    assert forms(*first, raised(9), end) == ["warning"]
    assert forms(*first, raised(9, chained=True), end) == ["exception"]
    assert forms(*first, raised(9, chained=True), raised(20), end) == ["warning"]
    assert forms(*first, raised(9, ignored=True), end) == ["exception"]
    assert forms(*first, raised(9, peer_lost=True), end) == ["exception"]
    assert forms(*first, raised(9, "ImportError"), end) == ["exception"]  # told again


@pytest.mark.parametrize(
    ("status", "lines", "form"),
    [(1, 0, "exception"), (3, 0, "warning"), (1, 900, "exception"), (1, 1100, "warning")],
)
def test_a_status_that_no_exception_leaves_or_a_thousand_lines_tell_that_it_was_caught(
    status: int, lines: int, form: str
) -> None:
    found = deaths(text(1, code=209), ProcessDied(line(2 + lines), "torchrun", pid=10, rank=0, code=status))
    assert [one.form for one in found[10].stack_texts] == [form]


@pytest.mark.parametrize(
    ("handling", "kind", "form"),
    [
        (True, "ImportError", "warning"),
        (False, "ImportError", "exception"),
        (True, "RuntimeError", "exception"),
    ],
)
def test_what_fails_in_place_of_an_import_is_another_failure(handling: bool, kind: str, form: str) -> None:
    first = ExceptionSeen(line(1), kind, "x.so: undefined symbol: f", rank=0)
    second = ExceptionSeen(line(9), "FileNotFoundError", "x.json", rank=0, chained=True, handling=handling)
    found = deaths(first, text(1, kind="undefined-symbol", rank=0), second, died(10, 0, code=1))
    assert [one.form for one in found[10].stack_texts] == [form]


def test_a_thousand_lines_behind_what_a_library_printed_tell_that_the_job_went_on() -> None:
    printed = text(1, form="line", code=36)
    for lines, form in ((900, "line"), (1100, "warning")):
        found = deaths(printed, ProcessDied(line(2 + lines), "torchrun", pid=10, rank=0, signal=11))
        assert [one.form for one in found[10].stack_texts] == [form]
    # Many ranks print long tracebacks behind each other.
    others = [ExceptionSeen(line(500 * number), "RuntimeError", "x", rank=number) for number in range(1, 5)]
    found = deaths(text(1, code=209, rank=0), *others, ProcessDied(line(2100), "torchrun", pid=10, rank=0, code=1))
    assert [one.form for one in found[10].stack_texts] == ["exception"]


def test_an_exception_without_a_name_is_of_the_only_one_that_ended_with_a_status() -> None:
    raised = ExceptionSeen(line(3), "ValueError", "no")
    launchers = ExceptionSeen(line(30), "CalledProcessError", "train.py")
    assert [one.type for one in deaths(raised, launchers, died(10, 0, code=1))[10].exceptions] == ["ValueError"]
    assert deaths(raised, died(10, 0, signal=11))[10].exceptions == []
    assert deaths(raised, died(10, 0, code=3))[10].exceptions == []
    assert deaths(raised, died(10, 0, code=1), died(11, 1, code=1))[10].exceptions == []


def test_whose_later_exception_it_is() -> None:
    first, two = (raised(1, rank=0), text(1, code=209, rank=0)), [died(10, 0, code=1), died(11, 1, code=1)]
    assert forms(*first, raised(9, rank=1), *two) == ["exception"]
    assert forms(*first, raised(9, "OSError", rank=0), *two) == ["warning"]
    unnamed = (raised(1), text(1, code=209), raised(9, "OSError"))
    assert forms(*unnamed, msgspec.structs.replace(two[0], first=True), two[1]) == ["exception"]


# --- the driver's lines -----------------------------------------------------------------------------------------------


def xid(at: float | None, pid: int | None = None, number: int = 31, **changes: Any) -> Xid:
    moment = Moment(monotonic=at) if at is not None else Moment()
    return Xid(LogLine(f"NVRM: Xid {number} {at} {pid}", 1, moment=moment, **changes), number, "0000:3b:00", pid=pid)


def note(at: float) -> DriverNote:
    return DriverNote(LogLine("NVRM: API mismatch", 2, moment=Moment(monotonic=at)), "api-mismatch", "2", "1")


def kernel(*events: Any, **changes: Any) -> KernelLog:
    return msgspec.structs.replace(KernelLog("file", "kernel.log", boot_id=BOOT, events=list(events)), **changes)


def watched(*logs: KernelLog, at: float = 1000.0) -> Death:
    started = Started("ftforensics.evidence/1", "0", ClockPair(EPOCH + 1, 1.0, 1.0), boot_id=BOOT, pid=8, child=10,
                      host="gpu-07", pid_namespace=INITIAL)  # fmt: skip
    end = Died(at, 10, status=11, signal=11, ppid=8, comm="python", nspid=[10], direct=True)
    run = RunEvidence("e", started, died=[end], ended=Ended(at + 1, ClockPair(EPOCH + at + 1, at + 1, at + 1), code=1))
    (death,) = build_deaths(Case(runs=[run], kernel_logs=list(logs)), [])
    return death


def test_an_xid_of_this_process() -> None:
    (one,) = watched(kernel(xid(998.0, 10))).xids
    assert (one.before, one.cite.locator) == (2.0, "kernel.log:1")
    assert one.match is not None
    assert one.match.sure


def test_an_xid_of_another_process_or_of_none_is_tied_by_its_time_alone() -> None:
    found = watched(kernel(xid(900.0, 77), xid(990.0))).xids
    assert [(one.xid.pid, one.before, one.match) for one in found] == [(None, 10.0, None), (77, 100.0, None)]


def test_minutes_before_the_end_its_own_number_still_ties_it() -> None:
    (one,) = watched(kernel(xid(800.0, 10))).xids
    assert one.match is not None
    assert one.match.tie is Tie.STRONG


@pytest.mark.parametrize("at", [1000.0 - 3600, 1000.0 + 60])
def test_of_another_time(at: float) -> None:
    death = watched(kernel(xid(at, 10), note(at)))
    assert (death.xids, death.driver_notes) == ([], [])


def test_reported_while_the_process_is_torn_down() -> None:
    assert [one.before for one in watched(kernel(xid(1003.0, 10, 43))).xids] == [-3.0]


def test_another_boot_another_machine_or_a_program_s_own_line() -> None:
    assert watched(kernel(xid(998.0, 10), boot_id="22222222-0000-4000-8000-000000000000")).xids == []
    assert watched(kernel(xid(998.0, 10), boot_id=None, host="gpu-08")).xids == []
    assert watched(kernel(xid(998.0, 10, facility=3))).xids == []


def test_the_same_line_from_two_places_is_one() -> None:
    assert len(watched(kernel(xid(998.0, 10)), kernel(xid(998.0, 10), source="kmsg")).xids) == 1
    assert len(watched(kernel(xid(998.0, 10), xid(998.5, 10))).xids) == 2


def test_driver_notes() -> None:
    (one,) = watched(kernel(note(990.0))).driver_notes
    assert (one.note.kind, one.before) == ("api-mismatch", 10.0)


def test_without_a_common_clock_it_stays_possible() -> None:
    logs = [kernel(xid(5.0, 10), xid(9.0), boot_id=None)]
    death = deaths(died(10, 0, signal=11), kernel_logs=logs)[10]
    assert [(one.xid.pid, one.before) for one in death.xids] == [(None, None), (10, None)]
    assert death.xids[1].match is not None


def test_another_day_by_the_launcher_s_date() -> None:
    old = msgspec.structs.replace(xid(None, 10), line=LogLine("NVRM", 1, moment=Moment(realtime=1.0e9)))
    end = msgspec.structs.replace(
        died(10, 0, signal=11), line=TextLine("time: 2026-11-29_14:29:08", 1, wall=1795962548.0)
    )
    assert deaths(end, kernel_logs=[kernel(old, boot_id=None)])[10].xids == []


@pytest.mark.parametrize(("after", "died"), [("", True), ("epoch 2\n" * 6, False)], ids=["ends with it", "went on"])
def test_a_log_that_ends_with_a_traceback_tells_of_an_end(after: str, died: bool) -> None:
    """Without a launcher in it: nobody caught that exception. One that the job went on after was caught."""
    log = (
        "epoch 1\nTraceback (most recent call last):\n"
        '  File "train.py", line 9, in <module>\n    model.cuda()\n'
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12010). Please update it.\n"
    )
    case = Case(records=[], launcher_logs=[read_launcher_log((log + after).encode(), path="train.log")])
    deaths = build_deaths(case, [])
    assert [(death.code, len(death.stack_texts)) for death in deaths] == ([(1, 1)] if died else [])


def test_who_says_that_another_process_went_away_did_not_begin_it() -> None:
    """A launcher like Lightning's prints nothing about the rank that a signal ended."""
    log = (
        "[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     loss.backward()\n'
        "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:45954: "
        "Connection reset by peer. This is typically caused by a remote worker hanging.\n"
    )
    case = Case(records=[], launcher_logs=[read_launcher_log(log.encode(), path="train.log")])
    (death,) = build_deaths(case, [])
    assert death.code == 1 and [(peer.host, peer.port) for peer in death.peers] == [("127.0.0.1", 45954)]
    diagnosis = diagnose(case)
    assert [process.role for process in diagnosis.processes] == ["collateral"]


def test_who_gives_the_exit_code_is_told_the_last_words_too() -> None:
    log = b'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\nValueError: bad label\n'
    (death,) = build_deaths(Case([], launcher_logs=[read_launcher_log(log, path="train.log")], given_exit=1), [])
    assert (death.code, [one.message for one in death.exceptions]) == (1, ["bad label"])
    assert any(cite.source == "given" for cite in death.ending)
    log = b"terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad shard\n"
    (death,) = build_deaths(Case([], launcher_logs=[read_launcher_log(log, path="train.log")], given_exit=-6), [])
    assert (death.signal, [one.message for one in death.texts]) == (6, ["bad shard"])
