"""Which of several deaths was first, and when that cannot be said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ftforensics.diagnose import diagnose
from ftforensics.model.case import Case, CaseException, CaseRing
from ftforensics.model.crash import Job, Process, Time
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.model.exception import ExceptionRecord, Raised, RaisedFrame
from ftforensics.model.launcher import ExceptionSeen, LauncherLog, ProcessDied, SignalledBy, TextLine
from ftforensics.model.ring import ClockPair, Ring, RingEnd, RingProcess
from ftforensics.model.run import Died, RunEvidence, Started

BOOT = "11111111-0000-4000-8000-000000000000"
OTHER_BOOT = "22222222-0000-4000-8000-000000000000"


def line(number: int, text: str = "said") -> TextLine:
    return TextLine(text, number, path="job.log")


def ended(number: int, rank: int, **how: Any) -> ProcessDied:
    return ProcessDied(line(number), "torchrun", pid=100 + rank, rank=rank, **how)


def raised(number: int, rank: int, kind: str = "ValueError", peer_lost: bool = False) -> ExceptionSeen:
    return ExceptionSeen(line(number), kind, "no", rank=rank, peer_lost=peer_lost)


def told(*events: ProcessDied | ExceptionSeen | SignalledBy) -> Diagnosis:
    return diagnose(Case(launcher_logs=[LauncherLog("job.log", ["torchrun"], 100, list(events))]))


def run(boot: str, *died: Died, offset: float = 0.0) -> RunEvidence:
    clocks = ClockPair(1_000_000.0 + offset, 0.0, 0.0)
    started = Started("ftforensics.evidence/1", "0", clocks, boot, f"host-{boot[0]}", pid=1, child=9, at=0.0)
    return RunEvidence(f"{boot[0]}/evidence.jsonl", started, list(died))


def died(rank: int, at: float, signal: int | None = 11, code: int | None = None) -> Died:
    pid = 100 + rank
    status = signal if signal is not None else (code or 0) << 8
    return Died(at, pid, status, signal, code, ppid=9, start_ticks=pid, comm="python", rank=rank, nspid=[pid])


def roles(diagnosis: Diagnosis) -> dict[int | None, str]:
    return {process.rank: process.role for process in diagnosis.processes}


def test_the_clock_that_both_share_decides() -> None:
    diagnosis = diagnose(Case(runs=[run(BOOT, died(0, 10.002, 6), died(1, 10.001))]))
    assert roles(diagnosis) == {1: "root", 0: "unknown"}


def test_within_the_doubt_of_two_machines_clocks_nothing_is_said() -> None:
    runs = [run(BOOT, died(0, 10.0)), run(OTHER_BOOT, died(1, 10.4, 6))]
    diagnosis = diagnose(Case(runs=runs))
    assert set(roles(diagnosis).values()) == {"unknown"}
    assert diagnosis.verdict.confidence == "undecided" and diagnosis.verdict.cause is None
    assert "rank 0" in diagnosis.verdict.summary and "rank 1" in diagnosis.verdict.summary
    later = diagnose(Case(runs=[runs[0], run(OTHER_BOOT, died(1, 13.0, 6))]))
    assert roles(later) == {0: "root", 1: "unknown"}


def test_the_same_failure_everywhere_has_a_cause_though_nobody_was_first() -> None:
    runs = [run(BOOT, died(0, 10.0)), run(OTHER_BOOT, died(1, 10.4))]
    diagnosis = diagnose(Case(runs=runs))
    assert diagnosis.verdict.cause == "native-fault" and diagnosis.verdict.confidence == "likely"
    assert set(roles(diagnosis).values()) == {"unknown"}


def test_whose_peer_went_away_was_not_first_whatever_the_launcher_says() -> None:
    diagnosis = told(
        raised(1, 0, "RuntimeError", peer_lost=True),
        ended(5, 0, code=1, first=True),
        ended(6, 1, signal=9),
    )
    assert roles(diagnosis) == {1: "root", 0: "collateral"}
    collateral = diagnosis.processes[1]
    assert collateral.reason is not None and collateral.reason.locator == "job.log:1"


def test_a_bare_status_beside_a_signal_that_the_launcher_noticed_first() -> None:
    assert roles(told(ended(5, 1, signal=9, first=True), ended(6, 0, code=1)))[1] == "root"


def test_two_statuses_without_a_word_decide_nothing() -> None:
    """torchrun's stamps of whole seconds are an opinion."""
    diagnosis = told(ended(5, 0, code=1, first=True), ended(6, 1, code=3))
    assert set(roles(diagnosis).values()) == {"unknown"}
    assert diagnosis.verdict.confidence == "undecided"


def test_of_two_own_exceptions_the_one_that_was_printed_first() -> None:
    diagnosis = told(raised(1, 1), raised(2, 0, "KeyError"), ended(5, 0, code=1, first=True), ended(6, 1, code=1))
    assert roles(diagnosis)[1] == "root"


def test_whom_the_launcher_ended_is_no_rival() -> None:
    diagnosis = told(ended(5, 1, signal=11), SignalledBy(line(2), "torchrun", 100, 15), ended(6, 0, signal=15))
    assert roles(diagnosis) == {1: "root", 0: "collateral"}


def test_where_everybody_lost_a_peer_nobody_here_was_first() -> None:
    diagnosis = told(
        raised(1, 0, "RuntimeError", peer_lost=True),
        raised(2, 1, "RuntimeError", peer_lost=True),
        ended(5, 0, code=1, first=True),
        ended(6, 1, code=1),
    )
    assert roles(diagnosis) == {0: "collateral", 1: "collateral"}


def test_whom_the_launcher_ended_was_alive_though_nobody_else_is_known() -> None:
    """A node's own log, of a job whose first failure was on another one."""
    diagnosis = told(*(SignalledBy(line(rank), "torchrun", 100 + rank, 15) for rank in (2, 3)))
    assert [process.role for process in diagnosis.processes] == ["collateral", "collateral"]
    assert diagnosis.verdict.confidence == "undecided"
    assert "because of another process, which is not in this input" in diagnosis.verdict.summary
    everybody = [SignalledBy(line(rank), "deepspeed", 100 + rank, 15, also_dead=True) for rank in (2, 3)]
    assert {process.role for process in told(*everybody).processes} == {"unknown"}


def test_thousands_of_ranks_are_judged_in_linear_time() -> None:
    """By the shape of their end: the causes are asked once about ranks that their launcher ended alike."""
    import time

    def seconds(ranks: int) -> float:
        events: list[ProcessDied | SignalledBy] = [ended(1, 0, signal=11, first=True)]
        events += [SignalledBy(line(2 + rank), "torchrun", 100 + rank, 15) for rank in range(1, ranks)]
        events += [ended(ranks + rank, rank, signal=15) for rank in range(1, ranks)]
        began = time.process_time()
        diagnosis = told(*events)
        assert diagnosis.processes[0].rank == 0 and diagnosis.processes[0].role == "root"
        assert {process.role for process in diagnosis.processes[1:]} == {"collateral"}
        return time.process_time() - began

    seconds(50)
    few, many = (min(seconds(ranks) for _ in range(3)) for ranks in (400, 1600))
    assert many < 12 * few  # four times as many; quadratic would be 16 times as long


def test_the_root_keeps_its_own_evidence() -> None:
    diagnosis = told(ended(5, 1, signal=11), ended(6, 2, signal=15), SignalledBy(line(3), "torchrun", 102, 15))
    assert any("job.log:5" in cite.locator for cite in diagnosis.hypotheses[0].supports)


def test_a_rank_that_is_asked_for_keeps_its_role() -> None:
    log = LauncherLog("job.log", ["torchrun"], 9, [ended(5, 1, signal=11), SignalledBy(line(3), "torchrun", 100, 15)])
    case = msgspec.structs.replace(Case(launcher_logs=[log]), given_pid=100)
    assert [(one.pid, one.role) for one in diagnose(case).processes] == [(100, "collateral")]


def recorded(rank: int, at: float, *chain: Raised, peer_lost: bool) -> CaseException:
    record = ExceptionRecord(
        time=Time(1_000_000.0 + at, at, at, boot_id=BOOT),
        process=Process(pid=100 + rank, ppid=9, start_ticks=100 + rank),
        job=Job(host="host-1", rank=rank, world_size=2),
        hook="sys.excepthook",
        exceptions=list(chain),
        peer_lost=peer_lost,
    )
    return CaseException(record, f"rank{rank}.exception.json")


LOST = Raised("RuntimeError", "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:8342")
OWN = Raised("ValueError", "loss is no number", [RaisedFrame("/job/train.py", 7, "step")])


def test_an_own_error_whose_clean_up_lost_the_peers_is_an_own_error() -> None:
    first = recorded(1, 10.0, LOST, msgspec.structs.replace(OWN, link="context"), peer_lost=True)
    second = recorded(0, 9.9, LOST, peer_lost=True)
    assert roles(diagnose(Case(exceptions=[first, second]))) == {1: "root", 0: "collateral"}


def test_a_peers_loss_that_was_wrapped_is_a_peers_loss() -> None:
    wrapped = Raised("RuntimeError", "training failed", [RaisedFrame("/job/train.py", 9, "main")])
    first = recorded(0, 9.9, wrapped, msgspec.structs.replace(LOST, link="cause"), peer_lost=True)
    second = recorded(1, 10.0, OWN, peer_lost=False)
    assert roles(diagnose(Case(exceptions=[first, second]))) == {1: "root", 0: "collateral"}


def child(pid: int, parent: int, at: float, code: int | None = 1, signal: int | None = None, **more: Any) -> Died:
    status = signal if signal is not None else (code or 0) << 8
    ended = None if signal is not None else code
    base = Died(at, pid, status, signal, ended, ppid=parent, start_ticks=pid, comm="python", nspid=[pid])
    return msgspec.structs.replace(base, **more)


def by_itself(pid: int, at: float) -> CaseException:
    """It raised an exception of its own."""
    record = ExceptionRecord(
        time=Time(1_000_000.0 + at, at, at, boot_id=BOOT),
        process=Process(pid=pid, ppid=1, start_ticks=pid),
        job=Job(host="host-1"),
        hook="sys.excepthook",
        exceptions=[OWN],
        peer_lost=False,
    )
    return CaseException(record, f"{pid}.exception.json")


def recorded_by(one: Died) -> CaseRing:
    """A Python, in which the recorder ran."""
    process = RingProcess(one.pid, start_ticks=one.pid, ppid=one.ppid, boot_id=BOOT, host="host-1", comm="python")
    end = RingEnd("exit", one.at, one.code) if one.code else RingEnd()
    clocks = [ClockPair(1_000_000.0, 0.0, 0.0)]
    return CaseRing(Ring(process, clocks, installed=1.0, last=one.at - 0.05, end=end), f"{one.pid}.ring")


@pytest.mark.parametrize(
    ("died", "root"),
    [
        # A script that looks at its child's status and goes with it, or with Python's for an exception about it.
        ([child(20, 10, 5.0, 7), child(10, 1, 5.1, 7, direct=True)], 20),
        ([child(20, 10, 5.0, 7), child(10, 1, 5.1, 1, direct=True)], 20),
        ([child(20, 10, 5.0, signal=11), child(10, 1, 5.1, 139, direct=True)], 20),
        # One that went on without it and left with a status of its own.
        ([child(20, 10, 5.0, 1), child(10, 1, 6.0, 3, direct=True)], 10),
        # Two commands of a script: it ended for the sake of the last one.
        ([child(20, 10, 5.0, 1), child(21, 10, 6.0, 3), child(10, 1, 6.1, 3, direct=True)], 21),
        # An hour later nobody's status 1 is about that child.
        ([child(20, 10, 5.0, 1), child(10, 1, 3605.0, 1, direct=True)], 10),
    ],
    ids=["its status", "an exception's", "a shell's", "its own", "the last command's", "an hour later"],
)
def test_whose_status_it_was(died: list[Died], root: int) -> None:
    diagnosis = diagnose(Case(runs=[run(BOOT, *died)], rings=[recorded_by(one) for one in died]))
    assert [process.pid for process in diagnosis.processes if process.role == "root"] == [root]


def test_an_exception_of_its_own_is_not_about_the_child_that_failed_before() -> None:
    died = [child(20, 10, 5.0), child(10, 1, 5.2, direct=True)]
    case = Case(runs=[run(BOOT, *died)], exceptions=[by_itself(20, 5.0), by_itself(10, 5.2)])
    assert [process.pid for process in diagnose(case).processes if process.role == "root"] == [10]


def test_an_agent_that_lost_its_store_lost_a_peer() -> None:
    """As torchrun's agent recorded it when the first node's had gone: only "Broken pipe" in the store's words."""
    rendezvous = Raised(
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError",
        "The connection to the C10d store has failed. See inner exception for details.",
    )
    store = Raised("torch.distributed.DistNetworkError", "Broken pipe", link="cause")
    for chain in ([rendezvous, store], [rendezvous, msgspec.structs.replace(store, type="SomeSocketError")]):
        diagnosis = diagnose(Case(exceptions=[recorded(0, 10.0, *chain, peer_lost=True)]))
        assert roles(diagnosis) == {0: "collateral"} and diagnosis.verdict.cause == "peer-lost"
    taken = Raised("torch.distributed.DistNetworkError", "The server socket has failed to listen: EADDRINUSE")
    diagnosis = diagnose(Case(exceptions=[recorded(0, 10.0, taken, peer_lost=False)]))
    assert roles(diagnosis) == {0: "root"} and diagnosis.verdict.kind == "python-exception"


def test_who_ended_well_is_no_failure_beside_those_who_did_not() -> None:
    """MPI's launchers name every process."""
    diagnosis = told(
        ended(3, 1, code=0),
        raised(4, 0, "RuntimeError", peer_lost=True),
        ended(5, 0, code=1),
    )
    assert roles(diagnosis) == {0: "collateral", 1: "unknown"}
    assert diagnosis.verdict.outcome == "failed" and diagnosis.verdict.cause == "peer-lost"


def test_who_lives_is_not_what_ended_the_job() -> None:
    process = RingProcess(pid=101, boot_id=BOOT, host="host-1", rank=1, start_ticks=101, comm="python")
    living = CaseRing(Ring(process=process, end=RingEnd(), clocks=[ClockPair(1e6, 0.0, 0.0)], last=1.0), "a.ring", True)
    alone = diagnose(Case(rings=[living]))
    assert [one.role for one in alone.processes] == ["unknown"] and alone.verdict.outcome == "unfinished"
    beside = diagnose(Case(rings=[living], runs=[run(BOOT, died(0, 10.0, 6))]))
    assert roles(beside) == {0: "root", 1: "unknown"}


def test_the_order_in_which_files_are_named_changes_nothing() -> None:
    """Two logs that name one pid for two ranks: one of them is wrong, and it is always the same."""
    logs = [
        LauncherLog(
            f"{name}.log", ["torchrun"], 9, [ProcessDied(line(1), "torchrun", pid=100, rank=rank, signal=signal)]
        )
        for name, rank, signal in (("a", 0, 11), ("b", 1, 6), ("c", None, 9))
    ]
    answers = [diagnose(Case(launcher_logs=[logs[at] for at in order])) for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0))]
    assert answers[0] == answers[1] == answers[2]


def living(pid: int, at: float, alive: bool) -> CaseRing:
    process = RingProcess(pid, start_ticks=pid, boot_id=BOOT, host="host-1", comm="python", rank=pid - 100)
    return CaseRing(Ring(process, [ClockPair(1_000_000.0, 0.0, 0.0)], installed=1.0, last=at), f"{pid}.ring", alive)


def test_a_process_that_still_runs_was_not_first() -> None:
    assert roles(diagnose(Case(rings=[living(100, 10.0, alive=True)]))) == {0: "unknown"}
    for rings in (
        [living(100, 10.0, True), living(101, 10.0, False)],
        [living(101, 10.0, False), living(100, 9.0, True)],
    ):
        assert roles(diagnose(Case(rings=rings))) == {1: "root", 0: "unknown"}


def test_whom_its_launcher_ended_is_no_root_though_it_is_all_that_is_known() -> None:
    diagnosis = told(SignalledBy(line(2), "torchrun", 100, 15), ended(6, 0, signal=15))
    assert roles(diagnosis) == {0: "collateral"} and diagnosis.verdict.cause == "launcher-teardown"


def test_which_of_two_machines_is_given_first_decides_nothing() -> None:
    """Rank 2 ended after rank 0 by the clock of their machine, and within the doubt about rank 1's."""
    runs = [run(BOOT, died(0, 10.0), died(2, 10.5, 6)), run(OTHER_BOOT, died(1, 10.0))]
    for given in (runs, runs[::-1]):
        verdict = diagnose(Case(runs=given)).verdict
        assert (verdict.cause, verdict.confidence) == ("native-fault", "likely")
