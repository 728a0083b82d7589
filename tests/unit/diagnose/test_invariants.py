"""What holds of every diagnosis, whatever mixture of traces it is made of: random cases, small enough to collide."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ftforensics.diagnose import diagnose
from ftforensics.model.case import Case, CaseException, CaseRecord, CaseRing
from ftforensics.model.crash import CrashRecord, Job, Process, Signal, Time
from ftforensics.model.diagnosis import Diagnosis, ProcessReport
from ftforensics.model.exception import ExceptionRecord, Raised, RaisedFrame
from ftforensics.model.kernel import KernelLog, LogLine, OomKill
from ftforensics.model.launcher import (
    AttemptBegan,
    ExceptionSeen,
    LauncherEvent,
    LauncherLog,
    ProcessDied,
    ProcessStarted,
    SignalledBy,
    TextLine,
)
from ftforensics.model.moment import Moment
from ftforensics.model.ring import ClockPair, FastSample, Ring, RingEnd, RingProcess
from ftforensics.model.run import Died, Ended, RunEvidence, Started

# Who may be asked to testify: a verdict that is proven rests on one of them (docs/confidence.md).
AUTHORITIES = {
    "kmsg", "dmesg", "journal", "file", "trace", "crash", "exception", "run", "ring", "cgroup", "slurm", "kubernetes",
    "docker", "vmstat",
}  # fmt: skip
EPOCH = 1_000_000.0  # realtime minus monotonic
INITIAL = 0xEFFFFFFC  # inode number of the first pid namespace
# (boot id, host): two machines, and the first one after it was started again.
MACHINES = [
    ("11111111-0000-4000-8000-000000000000", "host-1"),
    ("22222222-0000-4000-8000-000000000000", "host-2"),
    ("33333333-0000-4000-8000-000000000000", "host-1"),
]
LAUNCHERS = ["torchrun", "deepspeed", "mp.spawn", "shell"]
MOST_LINES = 20  # of a log
NEWCOMER = 7  # rank and 1000 + pid of the one that is added

SIZES = st.sampled_from([None, 2, 4, 4, 1])  # the last one lies
ATTEMPTS = st.sampled_from([None, None, None, 0, 1])
TIMES = st.one_of(st.integers(0, 60).map(float), st.sampled_from([10.0, 10.25, 10.5]))
JUMPS = st.sampled_from([0.0, 0.0, 0.0, -3600.0, 7200.0, 0.75])  # of the wall clock
# (signal, code); of neither nobody knows.
ENDS = st.sampled_from(
    [(None, None), (None, 0), (None, 1), (None, 1), (None, 3), (9, None), (9, None), (11, None), (15, None), (6, None)]
)
SELDOM = st.integers(0, 5).map(lambda number: number == 5)


class Somebody(msgspec.Struct, frozen=True):
    """A process of which traces may tell."""

    pid: int
    boot: str
    host: str
    ticks: int
    parent: int
    rank: int | None
    worker_of: int | None
    attempt: int | None
    at: float
    signal: int | None
    code: int | None


@st.composite
def people(draw: Any) -> Somebody:
    (boot, host), pid, (signal, code) = draw(st.sampled_from(MACHINES)), draw(st.integers(100, 102)), draw(ENDS)
    worker_of = draw(st.sampled_from([None, None, None, 100]))
    parent, rank = draw(st.sampled_from([9, 9, 1, 100])), draw(st.one_of(st.none(), st.integers(0, 3)))
    return Somebody(
        pid, boot, host, pid * 10 + int(boot[0]), parent, rank,
        worker_of if pid != worker_of else None, draw(ATTEMPTS), draw(TIMES), signal, code,
    )  # fmt: skip


@st.composite
def kept(draw: Any, value: Any) -> Any:
    """Of what a trace could say some is not there."""
    return None if draw(SELDOM) else value


@st.composite
def chains(draw: Any) -> tuple[list[Raised], bool]:
    """(an exception with what it came from, does it only say that a peer was lost?)"""
    own = Raised("ValueError", "loss is no number", [RaisedFrame("/job/train.py", 7, "step")])
    lost = Raised("RuntimeError", "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:8342")
    memory = Raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")
    chain = draw(st.sampled_from([[own], [lost], [memory], [lost, own], [own, lost], []]))
    linked = [msgspec.structs.replace(one, link="context" if place else None) for place, one in enumerate(chain)]
    return linked, lost in chain


@st.composite
def rings(draw: Any, who: Somebody) -> CaseRing:
    began, jump = max(who.at - draw(TIMES), 0.0), draw(JUMPS)
    how, code = draw(st.sampled_from([(None, None), (None, None), ("exit", who.code), ("crash", None)]))
    process = RingProcess(
        who.pid, start_ticks=draw(kept(who.ticks)), ppid=draw(kept(who.parent)), boot_id=draw(kept(who.boot)),
        host=draw(kept(who.host)), rank=draw(kept(who.rank)), local_rank=draw(kept(who.rank)), comm="python",
        world_size=draw(SIZES), attempt=draw(kept(who.attempt)), worker_of=who.worker_of, pid_namespace=INITIAL,
    )  # fmt: skip
    clocks = [ClockPair(EPOCH + began, began, began), ClockPair(EPOCH + who.at + jump, who.at, who.at)]
    ring = Ring(
        process,
        clocks=draw(st.sampled_from([clocks, clocks[:1], []])),
        installed=began,
        last=who.at,
        fast=[FastSample(who.at, 1 << 20)],
        end=RingEnd(how, who.at if how else None, code),
    )
    alive = how is None and (who.signal, who.code) == (None, None) and draw(st.booleans())
    return CaseRing(ring, f"{who.boot[0]}/{who.pid}.ring", alive=alive)


@st.composite
def times_of(draw: Any, who: Somebody) -> Time | None:
    moment = Time(EPOCH + who.at + draw(JUMPS), who.at, who.at, installed=who.at - 5.0, boot_id=draw(kept(who.boot)))
    return draw(kept(moment))  # type: ignore[no-any-return]


@st.composite
def exceptions(draw: Any, who: Somebody) -> CaseException:
    chain, peer_lost = draw(chains())
    record = ExceptionRecord(
        time=draw(times_of(who)),
        process=draw(kept(Process(pid=who.pid, ppid=who.parent, start_ticks=draw(kept(who.ticks))))),
        job=Job(host=draw(kept(who.host)), rank=draw(kept(who.rank)), world_size=draw(SIZES)),
        hook=draw(st.sampled_from(["sys.excepthook", "threading.excepthook", "torchrun record"])),
        exceptions=chain,
        peer_lost=draw(kept(peer_lost)),
        attempt=draw(kept(who.attempt)),
        worker_of=who.worker_of,
    )
    if record.hook == "threading.excepthook":
        record = msgspec.structs.replace(record, thread="Thread-1")
    if draw(SELDOM):  # torchrun's own file, which names no process
        record = msgspec.structs.replace(
            record,
            time=Time(EPOCH + float(int(who.at))),
            process=None,
            job=Job(rank=who.rank, local_rank=who.rank),
            hook="torchrun error file",
            thread=None,
            worker_of=None,
        )
    return CaseException(record, f"{who.boot[0]}/{who.pid}.exception.json")


@st.composite
def records(draw: Any, who: Somebody) -> CaseRecord:
    number, name = {6: (6, "SIGABRT"), 11: (11, "SIGSEGV")}.get(who.signal or 0, (None, None))
    record = CrashRecord(
        time=draw(times_of(who)),
        process=Process(pid=who.pid, ppid=who.parent, start_ticks=draw(kept(who.ticks))),
        job=Job(host=draw(kept(who.host)), rank=draw(kept(who.rank)), world_size=draw(SIZES)),
        signal=Signal(number, name) if number is not None else None,
    )
    return CaseRecord(record, f"{who.boot[0]}/{who.pid}.crash.json")


@st.composite
def deaths(draw: Any, who: Somebody) -> Died:
    status = who.signal if who.signal is not None else None if who.code is None else who.code << 8
    return Died(
        who.at, who.pid, status, who.signal, who.code, ppid=who.parent, start_ticks=draw(kept(who.ticks)),
        comm="pt_data_worker" if who.worker_of else draw(st.sampled_from(["python", "python", "grep"])),
        rank=draw(kept(who.rank)), nspid=[who.pid], attempt=draw(kept(who.attempt)),
    )  # fmt: skip


@st.composite
def runs(draw: Any, boot: str, host: str, here: list[Somebody]) -> RunEvidence:
    began, over = ClockPair(EPOCH, 0.0, 0.0), ClockPair(EPOCH + 61.0 + draw(JUMPS), 61.0, 61.0)
    traced = draw(st.booleans())
    started = Started(
        "ftforensics.evidence/1", "0", began, boot, host, pid=8, child=9, at=0.0, traced=traced, pid_namespace=INITIAL
    )
    died = [draw(deaths(who)) for who in here if not draw(SELDOM)]
    command = draw(st.sampled_from([None, *died]))
    status = 0 if command is None else command.status
    died = [msgspec.structs.replace(one, direct=one is command) for one in died]
    ended = Ended(61.0, over, status, command.signal if command else None, command.code if command else 0)
    return RunEvidence(f"{boot[0]}/evidence.jsonl", draw(kept(started)), died, ended=draw(kept(ended)))


@st.composite
def events(draw: Any, who: Somebody, launcher: str, path: str) -> LauncherEvent:
    wall = draw(kept(EPOCH + who.at))
    line = TextLine("said", draw(st.integers(1, MOST_LINES)), path=path, wall=wall)
    kind, rank = draw(st.integers(0, 9)), draw(kept(who.rank))
    if kind <= 3:
        pid = draw(kept(who.pid)) if rank is not None else who.pid  # an end of nobody is dropped where others are known
        return ProcessDied(
            line, launcher, pid, rank, local_rank=draw(kept(who.rank)), signal=who.signal, code=who.code,
            first=draw(st.booleans()), worker=who.worker_of is not None, host=draw(st.sampled_from([None, who.host])),
        )  # fmt: skip
    if kind <= 5:
        return SignalledBy(line, launcher, who.pid, draw(st.sampled_from([15, 9, None])), draw(SELDOM))
    if kind == 6:
        return ProcessStarted(line, launcher, who.pid, rank, rank)
    if kind == 7:
        return AttemptBegan(line, launcher, draw(ATTEMPTS))
    name = draw(st.sampled_from(["ValueError", "RuntimeError", "KeyError"]))
    # Whose loss it was nobody could say of one without a rank: any process that was asked to end may have printed it.
    peer_lost = rank is not None and draw(st.booleans())
    return ExceptionSeen(line, name, "no", rank=rank, peer_lost=peer_lost, ignored=draw(SELDOM))


@st.composite
def logs(draw: Any, path: str, here: list[Somebody]) -> LauncherLog:
    launcher = draw(st.sampled_from(LAUNCHERS))
    found = [draw(events(draw(st.sampled_from(here)), launcher, path)) for _ in range(draw(st.integers(0, 5)))]
    return LauncherLog(path, [launcher], MOST_LINES, sorted(found, key=lambda event: event.line.number))


@st.composite
def kernel_logs(draw: Any, who: Somebody) -> KernelLog:
    moment = Moment(EPOCH + who.at, who.at, 0.0, who.boot)
    text = f"Memory cgroup out of memory: Killed process {who.pid} (python)"
    facility = draw(st.sampled_from([0, 1]))
    kill = OomKill(LogLine(text, 1, moment=moment, facility=facility), who.pid, "python", scope="memcg", uid=0)
    first, last = Moment(EPOCH, 0.0, 0.0, who.boot), Moment(EPOCH + 61.0, 61.0, 0.0, who.boot)
    boot, host = draw(kept(who.boot)), draw(kept(who.host))
    return KernelLog("kmsg", f"{who.host}/dmesg.txt", False, boot, host, first, last, True, 1, [kill])


@st.composite
def cases(draw: Any) -> Case:
    # Lines of a log that name no host can be about any process of that number.
    logged = draw(st.booleans())
    everybody = draw(
        st.lists(people(), min_size=1, max_size=5, unique_by=lambda who: (who.pid, "" if logged else who.boot))
    )
    machines = {who.boot: [one for one in everybody if one.boot == who.boot] for who in everybody}

    def some() -> list[Somebody]:
        return [who for who in everybody if draw(st.booleans())]

    return Case(
        records=[draw(records(who)) for who in some() if who.signal in (6, 11)],
        rings=[draw(rings(who)) for who in some()],
        exceptions=[draw(exceptions(who)) for who in some()],
        runs=[draw(runs(boot, here[0].host, here)) for boot, here in machines.items() if draw(st.booleans())],
        kernel_logs=[draw(kernel_logs(who)) for who in some()[:1]],
        launcher_logs=[
            draw(logs(f"{here[0].host}/{boot[0]}.log", here))
            for boot, here in machines.items()
            if logged and draw(st.booleans())
        ],
    )


def roots(diagnosis: Diagnosis) -> list[ProcessReport]:
    return [process for process in diagnosis.processes if process.role == "root"]


def said(diagnosis: Diagnosis) -> tuple[Any, ...]:
    who = [(root.pid, root.rank, root.host) for root in roots(diagnosis)]
    return diagnosis.verdict.cause, diagnosis.verdict.confidence, who


def is_a_failure(process: ProcessReport) -> bool:
    return process.role != "collateral" and not process.alive and process.exit.code != 0


def is_known(case: Case) -> bool:
    """Do more than a kernel's log and a log's last words tell of an end? Those are asked where nothing else does."""
    if any(died.direct for run in case.runs for died in run.died):
        return False  # a command with a status and a rank below it is that rank's launcher: its status says less then
    quiet = [
        msgspec.structs.replace(log, events=[event for event in log.events if not isinstance(event, ExceptionSeen)])
        for log in case.launcher_logs
    ]
    return bool(diagnose(msgspec.structs.replace(case, kernel_logs=[], launcher_logs=quiet)).processes)


many = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,  # the same cases in every run: what is new is found by whoever raises max_examples
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # to explain takes longer than to find
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@many
@given(cases())
def test_there_is_one_root_at_most_and_it_ended_badly(case: Case) -> None:
    diagnosis = diagnose(case)
    found = roots(diagnosis)
    assert len(found) <= 1
    for root in found:
        assert diagnosis.processes[0] is root
        assert not root.alive or root.record is not None  # it hangs while it writes its record
        assert root.exit.code != 0


def with_a_sure_one(case: Case, code: int) -> Case:
    """Before all others, on a machine of its own, somebody raised an exception and was seen to end."""
    boot, early, who = "44444444-0000-4000-8000-000000000000", EPOCH - 500.0, Process(pid=1000, ppid=9, start_ticks=7)
    raised = ExceptionRecord(
        time=Time(early, 1.0, 1.0, installed=0.0, boot_id=boot),
        process=who,
        job=Job(host="host-4", rank=6),
        hook="sys.excepthook",
        exceptions=[Raised("ValueError", "loss is no number", [RaisedFrame("/job/train.py", 7, "step")])],
        peer_lost=False,
    )
    clocks = ClockPair(early - 1.0, 0.0, 0.0)
    started = Started("ftforensics.evidence/1", "0", clocks, boot, "host-4", pid=8, child=9, at=0.0)
    died = Died(1.1, 1000, code << 8, None, code, ppid=9, start_ticks=7, comm="python", rank=6, nspid=[1000])
    return msgspec.structs.replace(
        case,
        exceptions=[*case.exceptions, CaseException(raised, "host-4/1000.exception.json")],
        runs=[*case.runs, RunEvidence("4/evidence.jsonl", started, [died])],
    )


@many
@given(cases(), st.sampled_from([None, 1, 1, 3]))
def test_what_is_proven_was_said_by_an_authority(case: Case, code: int | None) -> None:
    diagnosis = diagnose(case if code is None else with_a_sure_one(case, code))
    if diagnosis.verdict.confidence == "proven":
        best = diagnosis.hypotheses[0]
        assert best.cause == diagnosis.verdict.cause
        assert {cite.source for cite in best.supports} & AUTHORITIES


@many
@given(cases(), st.integers(0, 1 << 30))
def test_the_order_of_the_traces_says_nothing(case: Case, seed: int) -> None:
    shuffled = random.Random(seed)

    def mixed(traces: list[Any]) -> list[Any]:
        return shuffled.sample(traces, len(traces))

    other = msgspec.structs.replace(
        case,
        records=mixed(case.records),
        rings=mixed(case.rings),
        exceptions=mixed(case.exceptions),
        runs=mixed(case.runs),
        launcher_logs=mixed(case.launcher_logs),
    )
    assert said(diagnose(other)) == said(diagnose(case))


@many
@given(cases())
def test_one_more_that_its_launcher_ended_changes_nothing(case: Case) -> None:
    log = case.launcher_logs[-1] if case.launcher_logs else LauncherLog("0/job.log", ["torchrun"], MOST_LINES)
    launcher, pid = log.launchers[0], 1000 + NEWCOMER
    line = TextLine("said", MOST_LINES, path=log.path)
    ended = [SignalledBy(line, launcher, pid, 15), ProcessDied(line, launcher, pid, NEWCOMER, signal=15)]
    longer = msgspec.structs.replace(log, events=[*log.events, *ended])
    before = diagnose(case)
    after = diagnose(msgspec.structs.replace(case, launcher_logs=[*case.launcher_logs[:-1], longer]))
    # Where nobody failed any may be the one that the verdict is about; a status of one of the job's helpers is only
    # looked at where no process of the job itself is known to have ended.
    of_the_job = [one for one in before.processes if one.rank is not None or one.ring or one.record]
    if is_known(case) and any(is_a_failure(one) for one in of_the_job):
        assert (after.verdict.cause, said(after)[2]) == (before.verdict.cause, said(before)[2])
