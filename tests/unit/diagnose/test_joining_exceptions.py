"""Exception records, exit codes in rings and exceptions in logs become part of the right death."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ftforensics.diagnose.deaths import build_deaths
from ftforensics.model.case import Case, CaseException, CaseRing
from ftforensics.model.crash import Job, Process, Time
from ftforensics.model.death import Death
from ftforensics.model.exception import ExceptionRecord, Raised
from ftforensics.model.launcher import ExceptionSeen, LauncherLog, Peer, ProcessDied, TextLine
from ftforensics.model.ring import ClockPair, Ring, RingEnd, RingProcess
from ftforensics.model.run import Died, RunEvidence, Started

BOOT = "11111111-0000-4000-8000-000000000000"
EPOCH = 1_000_000.0


def record(pid: int | None = 10, rank: int = 0, hook: str = "sys.excepthook", **changes: Any) -> CaseException:
    process = Process(pid, pid, 9, [pid], pid * 100) if pid is not None else None
    raised = changes.pop("raised", Raised("RuntimeError", "loss is NaN at step 5"))
    at = changes.pop("at", 100.0)
    job = Job(host="gpu-07", rank=rank, local_rank=rank, world_size=changes.pop("world_size", 2))
    if pid is None:
        job = Job(local_rank=rank)
    time = Time(EPOCH + at, at, at, boot_id=BOOT)
    return CaseException(
        ExceptionRecord(time=time, process=process, job=job, hook=hook, exceptions=[raised], **changes),
        f"{pid}.exception.json",
    )


def run(*died: Died) -> RunEvidence:
    started = Started("ftforensics.evidence/1", "0", ClockPair(EPOCH, 0.0, 0.0), BOOT, "gpu-07", pid=8, child=9, at=0.0)
    return RunEvidence("run/evidence.jsonl", started, list(died))


def died(pid: int = 10, at: float = 101.0, **changes: Any) -> Died:
    how: dict[str, Any] = {"status": 256, "signal": None, "code": 1, "comm": "python", **changes}
    return Died(at, pid, ppid=9, start_ticks=pid * 100, nspid=[pid], **how)


def ring(pid: int = 10, code: int | None = None, worker_of: int | None = None) -> CaseRing:
    process = RingProcess(pid, pid * 100, 9, [pid], host="gpu-07", boot_id=BOOT, worker_of=worker_of)
    end = RingEnd("exit", 102.0, code)
    return CaseRing(Ring(process, [ClockPair(EPOCH, 0.0, 0.0)], last=101.9, end=end), f"{pid}.ring")


def only(**case: Any) -> Death:
    (death,) = build_deaths(Case(**case), [])
    return death


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["sys.excepthook", "torchrun record", "multiprocessing"])
def test_an_exception_that_nobody_caught_ends_with_status_1(hook: str) -> None:
    death = only(exceptions=[record(hook=hook)])
    assert (death.pid, death.code, death.signal, death.rank, death.world_size) == (10, 1, None, 0, 2)
    assert death.raised is not None and death.raised_path == "10.exception.json"
    assert death.ending[0].source == "exception" and "loss is NaN" in death.ending[0].text
    assert death.when.monotonic == 100.0 and death.failed == death.when


def test_a_threads_exception_ends_no_process() -> None:
    death = only(exceptions=[record(hook="threading.excepthook", thread="Thread-1")])
    assert death.raised is not None and death.code is None and death.ending == []


def test_an_interrupt_that_nobody_caught_is_a_signal() -> None:
    death = only(exceptions=[record(raised=Raised("KeyboardInterrupt"))])
    assert (death.signal, death.code) == (2, None)


def test_the_record_and_the_wait_status_are_one_death() -> None:
    death = only(exceptions=[record()], runs=[run(died())])
    assert (death.code, death.watched, death.run) == (1, True, "run/evidence.jsonl")
    assert death.raised is not None and [cite.source for cite in death.ending] == ["run", "exception"]
    assert death.when.monotonic == 101.0 and death.failed.monotonic == 100.0 and death.gaps == []


def test_a_wait_status_counts_more_than_the_record() -> None:
    death = only(exceptions=[record()], runs=[run(died(status=9, signal=9, code=None))])
    assert (death.signal, death.code) == (9, None) and [cite.source for cite in death.ending] == ["run"]
    assert any(gap.source == "exception" and "status 1" in gap.why for gap in death.gaps)


def test_a_launchers_status_counts_more_than_the_record() -> None:
    log = LauncherLog("job.log", ["torchrun"], 9, [ProcessDied(TextLine("exitcode: -9", 5), "torchrun", 10, signal=9)])
    death = only(exceptions=[record()], launcher_logs=[log])
    assert (death.signal, death.code) == (9, None)
    assert any(gap.source == "exception" for gap in death.gaps)


def test_who_ended_well_is_no_death_whatever_was_raised() -> None:
    well = died(status=0, code=0)
    assert build_deaths(Case(exceptions=[record()], runs=[run(well)]), []) == []


def test_the_same_pid_of_another_boot_or_start_is_another_process() -> None:
    other = record()
    process = Process(10, 10, 9, [10], 777)
    again = CaseException(ExceptionRecord(time=other.record.time, process=process, hook="sys.excepthook"), "b")
    assert len(build_deaths(Case(exceptions=[other, again]), [])) == 2


def test_torchruns_error_file_joins_by_local_rank() -> None:
    log = LauncherLog(
        "job.log", ["torchrun"], 9,
        [ProcessDied(TextLine("failed", 5), "torchrun", 20 + rank, rank, rank, code=1) for rank in (0, 1)],
    )  # fmt: skip
    file = record(None, 1, "torchrun error file")
    deaths = build_deaths(Case(exceptions=[file], launcher_logs=[log]), [])
    assert [(death.pid, death.raised is not None) for death in deaths] == [(20, False), (21, True)]


def test_torchruns_error_file_says_less_than_the_process_itself() -> None:
    (death,) = build_deaths(Case(exceptions=[record(None, 0, "torchrun error file"), record()]), [])
    assert death.raised is not None and death.raised.hook == "sys.excepthook"


def test_of_several_nodes_no_error_file_is_anybodys() -> None:
    logs = [
        LauncherLog(f"{node}.log", ["torchrun"], 9,
                    [ProcessDied(TextLine("failed", 5), "torchrun", 20, node * 8, 0, code=1, host=node_name)])
        for node, node_name in enumerate(("alpha", "beta"))
    ]  # fmt: skip
    deaths = build_deaths(Case(exceptions=[record(None, 0, "torchrun error file")], launcher_logs=logs), [])
    assert [death.raised for death in deaths] == [None, None]


# --- exit codes of rings ----------------------------------------------------------------------------------------------


def test_a_ring_knows_the_status_and_the_time_of_the_end() -> None:
    death = only(rings=[ring(code=3)])
    assert (death.code, death.when.monotonic, death.ending[0].source) == (3, 102.0, "ring")
    assert build_deaths(Case(rings=[ring(code=None)]), []) == []


def test_a_status_that_the_parent_saw_counts_more_than_the_rings() -> None:
    death = only(rings=[ring(code=3)], runs=[run(died(status=6, signal=6, code=None))])
    assert death.signal == 6 and death.code is None and any(gap.source == "ring" for gap in death.gaps)


# --- a data worker's end is its rank's ------------------------------------------------------------------------------


def test_a_worker_that_the_ranks_record_tells_of() -> None:
    text = "DataLoader worker (pid 77) is killed by signal: Killed. "
    rank, worker = build_deaths(Case(exceptions=[record(rank=3, raised=Raised("RuntimeError", text))]), [])
    assert (worker.pid, worker.signal, worker.rank, worker.worker_of, worker.worker) == (77, 9, 3, 10, True)
    assert (rank.code, rank.worker_of) == (1, None)


def test_a_worker_that_a_labelled_traceback_tells_of() -> None:
    line = TextLine("[rank3]: RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", 4)
    log = LauncherLog("job.log", ["torchrun"], 9, [
        ProcessDied(line, "dataloader", 77, signal=9, worker=True),
        ExceptionSeen(line, "RuntimeError", "DataLoader worker (pid 77)", rank=3, worker_pid=77),
        ProcessDied(TextLine("failed", 8), "torchrun", 13, rank=3, local_rank=3, code=1),
    ])  # fmt: skip
    deaths = {death.pid: death for death in build_deaths(Case(launcher_logs=[log]), [])}
    assert (deaths[77].rank, deaths[77].local_rank, deaths[77].worker_of) == (3, 3, 13)
    assert deaths[13].exceptions and not deaths[77].exceptions


def test_a_worker_that_run_saw_has_its_parents_rank() -> None:
    worker = died(77, 99.0, comm="pt_data_worker", status=9, signal=9, code=None)
    worker = Died(worker.at, 77, 9, 9, ppid=10, start_ticks=7, comm="pt_data_worker", nspid=[77])
    deaths = {death.pid: death for death in build_deaths(Case(runs=[run(worker, died(rank=1))]), [])}
    assert (deaths[77].rank, deaths[77].worker_of) == (1, 10)


# --- exceptions of logs -----------------------------------------------------------------------------------------------


def ended(rank: int, code: int | None = 1, signal: int | None = None) -> ProcessDied:
    return ProcessDied(TextLine("failed", 50 + rank), "torchrun", 100 + rank, rank, rank, signal, code)


def nameless(number: int, kind: str = "ValueError", peer_lost: bool = False, **changes: Any) -> ExceptionSeen:
    return ExceptionSeen(TextLine(kind, number, **changes), kind, "no", peer_lost=peer_lost)


def told(*events: Any) -> list[Death]:
    return build_deaths(Case(launcher_logs=[LauncherLog("job.log", ["torchrun"], 99, list(events))]), [])


def test_a_nameless_traceback_is_of_the_only_one_that_can_have_raised_it() -> None:
    one, other = told(nameless(1), ended(0), ended(1, None, 9))
    assert len(one.exceptions) == 1 and not other.exceptions and not other.unowned


def test_a_lost_peer_without_a_name_is_of_the_only_one_that_can_still_speak() -> None:
    one, _ = told(nameless(1, peer_lost=True), ended(0), ended(1, None, 9))
    assert [seen.peer_lost for seen in one.exceptions] == [True]
    one, _ = told(nameless(1, peer_lost=True), ended(0), ended(1, None, 15))
    assert one.exceptions == []  # the one that was asked to end may have printed it


def test_of_several_that_can_have_raised_it_none_has_and_each_may_have() -> None:
    deaths = told(nameless(1), nameless(2, "RuntimeError", peer_lost=True), ended(0), ended(1))
    assert [death.exceptions for death in deaths] == [[], []]
    assert [[seen.type for seen in death.unowned] for death in deaths] == [["ValueError"], ["ValueError"]]


def test_what_everybody_printed_once_is_everybodys() -> None:
    deaths = told(nameless(1), nameless(2), ended(0), ended(1))
    assert [len(death.exceptions) for death in deaths] == [1, 1]


def test_the_writers_pid_names_the_process() -> None:
    deaths = told(nameless(1, writer=101), ended(0), ended(1))
    assert [len(death.exceptions) for death in deaths] == [0, 1]


def test_whom_the_exceptions_name_the_unknown_first() -> None:
    lost = ExceptionSeen(TextLine("x", 1), "RuntimeError", "gone", 0, True, peers=[Peer(rank=1), Peer(rank=5)])
    death, _ = told(lost, ended(0), ended(1, None, 15))
    assert [peer.rank for peer in death.peers] == [5, 1]


def quoted(number: int, local_rank: int) -> ExceptionSeen:
    return ExceptionSeen(TextLine("ValueError: no", number), "ValueError", "no", local_rank=local_rank)


def spawned(number: int, local_rank: int) -> ProcessDied:
    return ProcessDied(
        TextLine(f"-- Process {local_rank} terminated", number), "mp.spawn", None, None, local_rank, code=1
    )


def test_what_mp_spawn_quotes_is_of_the_child_that_it_names() -> None:
    (child,) = told(nameless(1, "ProcessRaisedException", peer_lost=True), spawned(2, 1), quoted(3, 1))
    assert [(seen.type, seen.local_rank) for seen in child.exceptions] == [("ValueError", 1)]
    (child,) = told(spawned(2, 0), quoted(3, 1))
    assert child.exceptions == [] and child.unowned == []


def test_a_quotation_is_of_its_own_logs_child() -> None:
    """Two nodes' launchers give out the same local ranks."""
    logs = [
        LauncherLog("a.log", ["mp.spawn"], 99, [spawned(2, 1), quoted(3, 1)]),
        LauncherLog(
            "b.log", ["mp.spawn"], 99, [ProcessDied(TextLine("signal", 4), "mp.spawn", local_rank=1, signal=9)]
        ),
    ]
    one, other = build_deaths(Case(launcher_logs=logs), [])
    assert (len(one.exceptions), one.code) == (1, 1)
    assert (other.exceptions, other.signal) == ([], 9)


def test_a_line_in_which_the_log_ends_is_a_lead() -> None:
    whole = msgspec.structs.replace(nameless(60), rank=1)
    cut = msgspec.structs.replace(whole, cut=True)
    lost = msgspec.structs.replace(cut, peer_lost=True)  # whatever it goes on to say
    for seen, own, leads in ((whole, 1, 0), (cut, 0, 1), (lost, 1, 0)):
        (_, one) = told(ended(0, None, 9), ended(1), seen)
        assert (len(one.exceptions), len(one.unowned)) == (own, leads)


def test_a_log_whose_last_line_is_cut_has_no_last_words() -> None:
    whole = msgspec.structs.replace(nameless(98), rank=0)
    cut = msgspec.structs.replace(nameless(99, "RuntimeError"), rank=1, cut=True)
    assert [(death.rank, len(death.exceptions)) for death in told(whole, cut)] == [(0, 1)]
    assert told(cut) == []
    assert len(told(msgspec.structs.replace(cut, cut=False))) == 1
