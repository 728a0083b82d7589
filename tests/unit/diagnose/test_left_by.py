"""A process whose main program an exception has ended may live on: it waits for its threads, and is taken down. What
befalls it then came second."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.diagnose import diagnose
from ftforensics.model.case import Case, CaseException, CaseRecord, CaseRing
from ftforensics.model.crash import CrashRecord, Job, Process, Sender, Signal, Time
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.model.exception import ExceptionRecord, Raised, RaisedFrame
from ftforensics.model.ring import ClockPair, Ring, RingEnd, RingProcess, RingSignal
from ftforensics.model.run import Died, RunEvidence, Started
from ftforensics.parsers.launcher import read_launcher_log

BOOT = "11111111-0000-4000-8000-000000000000"
RAISED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 88, in train
[rank1]:     raise ValueError("shard 7 has 0 rows")
[rank1]: ValueError: shard 7 has 0 rows
"""
LOST = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 90, in train
[rank0]:     dist.all_reduce(loss)
[rank0]: RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4219
"""
AGENT = "torch/distributed/elastic/multiprocessing/api.py:1002]"
STOPS_RANK_1 = f"W1130 06:51:01.489000 1067 {AGENT} Sending process 1072 closing signal SIGTERM\n"


def saw(rank: int, exitcode: int) -> str:
    told = f"failed (exitcode: {exitcode}) local_rank: {rank} (pid: {1071 + rank}) of binary: python"
    return f"E1130 06:51:01.505000 1067 {AGENT} {told}\n"


def summary(*exitcodes: int) -> str:
    lines = [
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {1071 + rank})\n"
        for rank, code in enumerate(exitcodes)
    ]
    return "Failures:\n" + "".join(f"[{rank}]:\n{line}" for rank, line in enumerate(lines))


def said(text: str) -> Diagnosis:
    return diagnose(Case(launcher_logs=[read_launcher_log([text.encode()], "job.log")]))


def roles(diagnosis: Diagnosis) -> dict[int | None, str]:
    return {process.rank: process.role for process in diagnosis.processes}


def test_whom_the_launcher_stops_after_its_own_exception_was_first() -> None:
    """A thread keeps it; the others time out, and torchrun stops the culprit along with them."""
    diagnosis = said(RAISED + LOST + STOPS_RANK_1 + saw(0, 1) + summary(1, -15))
    assert roles(diagnosis) == {1: "root", 0: "collateral"}
    assert (diagnosis.verdict.cause, diagnosis.verdict.confidence) == ("python-exception", "likely")
    assert "train.py:88" in diagnosis.verdict.summary


def test_what_it_raises_when_it_is_stopped_is_not_why() -> None:
    diagnosis = said(LOST + STOPS_RANK_1 + RAISED + saw(0, 1) + summary(1, -15))
    assert roles(diagnosis)[1] == "collateral"
    assert diagnosis.verdict.cause != "python-exception"


def test_a_traceback_that_the_program_printed_itself_says_nothing_of_its_end() -> None:
    """mpirun labels whatever a rank prints; only torch's hook prints what nobody caught."""
    printed = RAISED.replace("[rank1]: ", "[1,1]<stderr>:")
    assert roles(said(printed + LOST + STOPS_RANK_1 + saw(0, 1) + summary(1, -15)))[1] == "collateral"


def test_of_an_exception_and_another_ones_abort_nothing_says_which_was_first() -> None:
    diagnosis = said(RAISED + STOPS_RANK_1 + saw(0, -6) + summary(-6, -15))
    assert set(roles(diagnosis).values()) == {"unknown"}
    assert diagnosis.verdict.confidence == "undecided" and "rank 1" in diagnosis.verdict.summary


@pytest.mark.parametrize("signal", [6, 11])
def test_a_crash_on_the_way_out_is_not_why_it_ended(signal: int) -> None:
    ending = "terminate called without an active exception\n" if signal == 6 else ""
    diagnosis = said(RAISED + ending + saw(1, -signal))
    assert (diagnosis.verdict.cause, diagnosis.verdict.confidence) == ("python-exception", "likely")
    assert all(one.confidence.value == "possible" for one in diagnosis.hypotheses[1:])


def test_who_only_lost_a_peer_and_crashes_on_the_way_out_was_not_first() -> None:
    diagnosis = said(LOST + "terminate called without an active exception\n" + saw(0, -6) + summary(-6, -9))
    assert roles(diagnosis) == {1: "root", 0: "collateral"}


def test_std_terminate_alone_is_no_cxx_exception() -> None:
    diagnosis = said("terminate called without an active exception\n" + saw(1, -6))
    assert diagnosis.verdict.cause == "native-fault"
    assert "std::terminate" in diagnosis.verdict.summary


# --- ranks with a file each -------------------------------------------------------------------------------------------


def files(**texts: str) -> Diagnosis:
    """torchrun's --log-dir: launcher, rank0, rank1 are the files' names."""
    logs = []
    for name, text in texts.items():
        log = read_launcher_log([text.encode()], f"logs/{name}.log")
        logs.append(msgspec.structs.replace(log, rank=int(name[4])) if name.startswith("rank") else log)
    return diagnose(Case(launcher_logs=logs))


def test_a_rank_that_sigterm_ended_had_raised_before_it_whatever_the_file() -> None:
    """SIGTERM ends a process without a word."""
    diagnosis = files(launcher=STOPS_RANK_1 + saw(0, 1) + summary(1, -15), rank0=LOST, rank1="step 1\n" * 90 + RAISED)
    assert roles(diagnosis) == {1: "root", 0: "collateral"}
    assert diagnosis.verdict.cause == "python-exception"


def test_line_numbers_of_two_files_say_nothing_about_each_other() -> None:
    other = RAISED.replace("rank1", "rank0").replace("ValueError", "KeyError")
    diagnosis = files(rank0=other, rank1="step 1\n" * 90 + RAISED)
    assert set(roles(diagnosis).values()) == {"unknown"} and diagnosis.verdict.confidence == "undecided"
    together = said(other + RAISED)
    assert roles(together)[0] == "root"


def test_the_news_of_a_loss_stays_that_when_the_clean_up_fails() -> None:
    clean_up = """\
[rank0]: During handling of the above exception, another exception occurred:
[rank0]: Traceback (most recent call last):
[rank0]:   File "/job/train.py", line 95, in train
[rank0]:     open("/data/metrics.json", "w")
[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/data/metrics.json'
"""
    for diagnosis in (files(rank0=LOST + clean_up, rank1=RAISED), said(LOST + clean_up + RAISED)):
        assert roles(diagnosis) == {1: "root", 0: "collateral"}


def test_what_nobody_caught_goes_before_what_was_logged_elsewhere() -> None:
    """A logger that writes to stdout has a file of its own."""
    logged = RAISED.replace("ValueError", "KeyError").replace("[rank1]: ", "")
    labelled = logged.replace("\n", "\n[1]<stdout>:").removesuffix("[1]<stdout>:")
    diagnosis = said(RAISED + f"[1]<stdout>:{labelled}" + saw(1, 1))
    assert "ValueError" in diagnosis.verdict.summary


# --- from the folder of a run -----------------------------------------------------------------------------------------


def exception(at: float, hook: str = "sys.excepthook", kind: str = "ValueError") -> CaseException:
    record = ExceptionRecord(
        time=Time(1e9 + at, at, at, boot_id=BOOT),
        process=Process(pid=101, ppid=9, nspid=[101], start_ticks=101),
        job=Job(host="h", rank=1),
        hook=hook,
        exceptions=[Raised(kind, "shard 7 has 0 rows", [RaisedFrame("/job/train.py", 88, "train")])],
    )
    return CaseException(record, "h-rank1-101.exception.json")


def run(*died: Died) -> RunEvidence:
    started = Started("ftforensics.evidence/1", "0", ClockPair(1e9, 0.0, 0.0), BOOT, "h", pid=1, child=9, at=0.0)
    return RunEvidence("evidence.jsonl", started, list(died))


def died(rank: int, at: float, signal: int | None = None, code: int | None = None) -> Died:
    pid = 100 + rank
    status = signal if signal is not None else (code or 0) << 8
    return Died(at, pid, status, signal, code, ppid=9, start_ticks=pid, comm="python", rank=rank, nspid=[pid])


def ring(asked: float) -> CaseRing:
    process = RingProcess(pid=101, ppid=9, nspid=[101], start_ticks=101, boot_id=BOOT, host="h", rank=1, comm="python")
    sender = Sender(9, 0)
    signals = [RingSignal(asked, "SIGTERM", 15, sender, 0, fatal=True)]
    return CaseRing(
        Ring(process=process, end=RingEnd(), clocks=[ClockPair(1e9, 0.0, 0.0)], signals=signals, last=asked), "a.ring"
    )


@pytest.mark.parametrize(
    ("raised_at", "hook", "kind", "role"),
    [
        (10.0, "sys.excepthook", "ValueError", "root"),
        (10.0, "torchrun record", "ValueError", "root"),
        (20.5, "sys.excepthook", "ValueError", "collateral"),  # after SIGTERM had come
        (10.0, "sys.excepthook", "KeyboardInterrupt", "collateral"),
        (10.0, "threading.excepthook", "ValueError", "collateral"),  # a thread's
    ],
)
def test_by_its_record_and_the_signal_that_came_later(raised_at: float, hook: str, kind: str, role: str) -> None:
    case = Case(
        exceptions=[exception(raised_at, hook, kind)],
        rings=[ring(20.0)],
        runs=[run(died(0, 19.9, signal=6), died(1, 21.0, signal=15))],
    )
    assert roles(diagnose(case))[1] == role


@pytest.mark.parametrize(("python", "cause"), [("finalized", "python-exception"), (None, "native-fault")])
def test_a_recorded_crash_after_it_counts_by_what_python_was_doing(python: str | None, cause: str) -> None:
    crash = CrashRecord(
        time=Time(1e9 + 11, 11.0, 11.0, boot_id=BOOT),
        process=Process(pid=101, ppid=9, nspid=[101], start_ticks=101, python=python),
        job=Job(host="h", rank=1),
        signal=Signal(name="SIGSEGV", number=11, code=1),
    )
    case = Case(
        records=[CaseRecord(crash, "h-rank1-101.crash.json")],
        exceptions=[exception(10.0)],
        runs=[run(died(1, 11.1, signal=11))],
    )
    diagnosis = diagnose(case)
    assert diagnosis.verdict.cause == cause
    assert diagnosis.verdict.confidence == "likely"
