"""Traces of one process become one death, those of several stay apart; the first of them is the root."""

from __future__ import annotations

import os
import re
from typing import Any

import msgspec
import pytest

from conditions import ROOT
from ftforensics.capture.reporter import command
from ftforensics.diagnose import diagnose
from ftforensics.diagnose.deaths import build_deaths
from ftforensics.diagnose.roles import Relations, consequence
from ftforensics.model.basics import Address, Cite
from ftforensics.model.case import Case, CaseException, CaseRing
from ftforensics.model.crash import Job, Process, Sender, Time
from ftforensics.model.death import Death
from ftforensics.model.exception import ExceptionRecord, Raised
from ftforensics.model.kernel import Fault, KernelLog, LogLine, OomKill
from ftforensics.model.launcher import ExceptionSeen, LauncherLog, ProcessDied, ProcessStarted, SignalledBy, TextLine
from ftforensics.model.mechanism import Mechanism
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.model.ring import ClockPair, FastSample, Ring, RingEnd, RingProcess, RingSignal, SlowSample
from ftforensics.model.run import Counted, Died, Ended, Forwarded, RunEvidence, Sent, Started

BOOT = "11111111-0000-4000-8000-000000000000"
OTHER = "22222222-0000-4000-8000-000000000000"
GROUP = "/batch/job"
INITIAL = 0xEFFFFFFC
EPOCH = 1_000_000.0  # realtime minus monotonic


def clocks(monotonic: float) -> ClockPair:
    return ClockPair(EPOCH + monotonic, monotonic, monotonic)


def reading(at: float, killed: int, machine: int | None = None, source: str = "ring") -> Reading:
    group = GroupReading(GROUP, 1, usage=1 << 30, limit=1 << 30, oom_kill=killed, inode=5)
    return Reading(Moment(monotonic=at, boot_id=BOOT), source, groups=[group], oom_kill=machine)


def ring(pid: int = 10, last: float = 99.9, **changes: Any) -> Ring:
    process = RingProcess(
        pid, start_ticks=pid * 100, ppid=9, boot_id=BOOT, host="gpu-07", uid=0, comm="python",
        rank=changes.pop("rank", 0), cgroup=[f"4:memory:{GROUP}"], pid_namespace=INITIAL,
    )  # fmt: skip
    base = Ring(
        process,
        clocks=[clocks(0.0)],
        last=last,
        fast=[FastSample(last, 1 << 20)],
        slow=[SlowSample(last - 0.5, reading(last - 0.5, 3, 7))],
    )
    return msgspec.structs.replace(base, **changes)


def died(pid: int = 10, at: float = 101.0, **changes: Any) -> Died:
    base = Died(at, pid, status=9, signal=9, ppid=9, start_ticks=pid * 100, comm="python", nspid=[pid])
    return msgspec.structs.replace(base, **changes)


def run(*events: Any, **changes: Any) -> RunEvidence:
    started = Started(
        "ftforensics.evidence/1", "0", clocks(50.0), boot_id=BOOT, host="gpu-07", pid=8, child=9,
        cgroup=["4:memory:/batch"], pid_namespace=INITIAL,
    )  # fmt: skip
    base = RunEvidence(
        "evidence.jsonl",
        started,
        died=[event for event in events if isinstance(event, Died)],
        sent=[event for event in events if isinstance(event, Sent)],
        counted=[event for event in events if isinstance(event, Counted)],
        forwarded=[event for event in events if isinstance(event, Forwarded)],
        ended=Ended(102.0, clocks(102.0), code=1),
    )
    return msgspec.structs.replace(base, **changes)


def of(*rings: Ring, **changes: Any) -> Case:
    return Case(rings=[CaseRing(one, f"{one.process.pid}.ring") for one in rings], **changes)


def text(number: int = 1) -> TextLine:
    return TextLine("a line", number)


def log(*events: Any) -> LauncherLog:
    return LauncherLog("launcher.log", ["torchrun"], 10, list(events))


# --- joining ----------------------------------------------------------------------------------------------------------


def test_a_ring_without_an_end_ended_unseen() -> None:
    (death,) = build_deaths(of(ring()), [])
    assert (death.pid, death.signal, death.code, death.groups[0]) == (10, None, None, GROUP)
    assert death.initial_namespace is True and death.host_pids == [10]
    verdict = diagnose(of(ring())).verdict
    assert (verdict.outcome, verdict.cause, verdict.confidence) == ("unknown", None, "undecided")


@pytest.mark.parametrize("how", ["exit", "uninstall", "exec"])
def test_a_ring_that_was_closed_is_no_death(how: str) -> None:
    assert build_deaths(of(ring(end=RingEnd(how))), []) == []
    assert diagnose(of(ring(end=RingEnd(how)))).verdict.outcome == "succeeded"


def test_a_process_that_still_runs_is_unfinished() -> None:
    case = Case(rings=[CaseRing(ring(), "x.ring", alive=True)])
    assert diagnose(case).verdict.outcome == "unfinished"


def test_ring_and_wait_status_are_one_death() -> None:
    (death,) = build_deaths(of(ring(), runs=[run(died())]), [])
    assert (death.signal, death.watched, death.ring_path) == (9, True, "10.ring")
    assert death.when.monotonic == 101.0 and death.when.realtime == EPOCH + 101.0
    assert death.earliest.monotonic == 99.9


def test_the_same_pid_with_another_start_is_another_process() -> None:
    deaths = build_deaths(of(ring(), runs=[run(died(start_ticks=7))]), [])
    assert len(deaths) == 2


def test_the_ring_of_a_process_that_ended_well_is_no_death() -> None:
    assert build_deaths(of(ring(), runs=[run(died(status=0, signal=None, code=0))]), []) == []


def test_in_a_namespace_the_inner_pid_joins_and_the_outer_is_the_kernels() -> None:
    inner = ring(pid=1)
    inner = msgspec.structs.replace(
        inner, process=msgspec.structs.replace(inner.process, pid_namespace=4026532000, start_ticks=777)
    )
    (death,) = build_deaths(of(inner, runs=[run(died(13030, nspid=[13030, 1], start_ticks=777))]), [])
    assert death.pid == 1 and death.host_pids == [13030] and death.initial_namespace is True


def test_a_supervisor_in_a_namespace_does_not_know_the_kernels_pid() -> None:
    evidence = run(died())
    assert evidence.started is not None
    inside = msgspec.structs.replace(evidence.started, pid_namespace=4026532000)
    (death,) = build_deaths(Case(runs=[msgspec.structs.replace(evidence, started=inside)]), [])
    assert death.initial_namespace is False and death.host_pids == []


def test_a_fatal_signal_that_the_recorder_saw_is_the_end() -> None:
    seen = RingSignal(99.95, "SIGTERM", 15, fatal=True)
    (death,) = build_deaths(of(ring(signals=[seen])), [])
    assert death.signal == 15
    survived = RingSignal(40.0, "SIGTERM", 15, fatal=True)  # something must have caught it: it ran on for a minute
    (death,) = build_deaths(of(ring(signals=[survived])), [])
    assert death.signal is None


def test_a_launchers_line_joins_by_pid_and_names_the_rank() -> None:
    lines = log(ProcessStarted(text(), "deepspeed", 10, rank=1), ProcessDied(text(), "deepspeed", 10, signal=9))
    (death,) = build_deaths(Case(launcher_logs=[lines]), [])
    assert (death.pid, death.rank, death.signal) == (10, 1, 9)


def test_a_kernel_log_alone_names_its_victims() -> None:
    kill = OomKill(LogLine("Killed process 5 (python)", 3), 5, "python", victim_group="/a/b")
    (death,) = build_deaths(Case(kernel_logs=[KernelLog("file", "k.log", events=[kill])]), [])
    assert (death.pid, death.signal, death.from_kernel, death.groups) == (5, 9, True, ["/a/b", "/a", "/"])


def test_what_the_person_says_counts_where_nothing_else_does() -> None:
    (death,) = build_deaths(of(ring(), given_exit=-9), [])
    assert death.signal == 9 and death.given and not death.watched
    (death,) = build_deaths(of(ring(), runs=[run(died(status=256, signal=None, code=1))], given_exit=-9), [])
    assert death.code == 1 and not death.given


# --- the kernel's word ------------------------------------------------------------------------------------------------


def killed(pid: int, when: float = 100.5) -> OomKill:
    line = LogLine(f"Killed process {pid} (python)", pid, facility=0, moment=Moment(monotonic=when, boot_id=BOOT))
    return OomKill(line, pid, "python", scope="memcg", anon_rss=1 << 20)


def kmsg(*kills: OomKill) -> KernelLog:
    return KernelLog("kmsg", "/dev/kmsg", True, BOOT, events=list(kills))


def test_an_exact_record_says_how_an_unseen_end_was() -> None:
    (death,) = build_deaths(of(ring(), kernel_logs=[kmsg(killed(10))]), [])
    assert death.signal == 9 and death.when.monotonic == 100.5
    assert death.when.realtime == EPOCH + 100.5


def test_somebody_elses_kill_seconds_earlier_is_named_as_such() -> None:
    (death,) = build_deaths(of(ring(), runs=[run(died())], kernel_logs=[kmsg(killed(555))]), [])
    assert death.oom == [] and [kill.pid for kill in death.others_oom if isinstance(kill, OomKill)] == [555]
    verdict = diagnose(of(ring(), runs=[run(died())], kernel_logs=[kmsg(killed(555))])).verdict
    assert verdict.confidence == "undecided" and verdict.cause == "killed-unknown"


def test_one_record_read_from_two_places_is_one() -> None:
    other = KernelLog("file", "kern.log", boot_id=BOOT, events=[killed(10)])
    (death,) = build_deaths(of(ring(), kernel_logs=[kmsg(killed(10)), other]), [])
    assert len(death.oom) == 1


def test_one_fault_read_from_two_places_is_one_and_gives_the_mechanism() -> None:
    """`run` follows the kernel's log, and afterwards it is read again."""
    line = LogLine("python[10]: segfault at 28", 1, facility=0, moment=Moment(monotonic=100.5, boot_id=BOOT))
    fault = Fault(line, 10, "python", "segfault", address=Address(0x28), ip=Address(0x400), error=Address(4))
    logs = [msgspec.structs.replace(kmsg(), source=source, events=[fault]) for source in ("run", "kmsg")]
    (death,) = build_deaths(of(runs=[run(died(signal=11))], kernel_logs=logs), [])
    assert len(death.faults) == 1 and death.reading.mechanism is Mechanism.NULL_READ


def test_one_record_that_fits_two_alike_ranks_is_neithers() -> None:
    def inner(pid: int) -> Ring:
        one = ring(pid, rank=pid)
        return msgspec.structs.replace(one, process=msgspec.structs.replace(one.process, pid_namespace=1))

    deaths = build_deaths(of(inner(2), inner(3), kernel_logs=[kmsg(killed(13030))]), [])
    assert [death.oom[0].match.tie.value for death in deaths] == ["weak", "weak"]
    both = build_deaths(of(inner(2), inner(3), kernel_logs=[kmsg(killed(13030), killed(13031))]), [])
    assert all(death.oom[0].match.tie.value != "exact" for death in both)


# --- counters ---------------------------------------------------------------------------------------------------------


def test_counters_around_the_end() -> None:
    after = Counted(101.5, "death", reading(101.5, 4, 9, "run"))
    (death,) = build_deaths(of(ring(), runs=[run(died(), after)]), [])
    (own,) = [change for change in death.counters if change.counter == "oom_kill"]
    assert (own.before, own.after, own.delta, own.own, own.bracketing) == (3, 4, 1, True, True)
    (machine,) = [change for change in death.counters if change.group is None]
    assert machine.delta == 2


def test_a_reading_between_kill_and_end_is_no_reading_before() -> None:
    during = Counted(100.9, "death", reading(100.9, 4, 8, "run"))
    after = Counted(101.5, "end", reading(101.5, 4, 8, "run"))
    (death,) = build_deaths(of(ring(), runs=[run(died(), during, after)]), [])
    assert [change.delta for change in death.counters if change.counter == "oom_kill"] == [1]


def test_a_group_made_anew_under_the_same_name_counts_nothing() -> None:
    anew = reading(101.5, 0, 7, "run")
    anew = msgspec.structs.replace(anew, groups=[msgspec.structs.replace(anew.groups[0], inode=6)])
    (death,) = build_deaths(of(ring(), runs=[run(died(), Counted(101.5, "end", anew))]), [])
    assert [change.counter for change in death.counters] == ["vmstat oom_kill"]


def test_counters_of_another_boot_are_not_compared() -> None:
    now = msgspec.structs.replace(reading(500.0, 9, 99, "now"), moment=Moment(monotonic=500.0, boot_id="other"))
    (death,) = build_deaths(of(ring(), readings=[now]), [])
    assert death.counters == []


# --- signals and roles ------------------------------------------------------------------------------------------------


def test_a_traced_sender() -> None:
    sent = Sent(100.8, 9, 0, "bash", 700, "python", 10, sender_pid=700)
    other = Sent(100.8, 9, 0, "bash", 700, "python", 11)
    earlier = Sent(10.0, 9, 0, "bash", 700, "python", 10)
    (death,) = build_deaths(of(ring(), runs=[run(died(), sent, other, earlier)]), [])
    (match,) = death.sent
    assert match.sent is sent and not match.by_kernel and match.match.sure
    diagnosis = diagnose(of(ring(), runs=[run(died(), sent)]))
    assert (diagnosis.verdict.cause, diagnosis.verdict.confidence) == ("killed-by-process", "proven")
    assert diagnosis.processes[0].by == "700 (bash)"


def test_a_signal_that_run_passed_on_is_said_to_come_from_there() -> None:
    seen = RingSignal(99.95, "SIGTERM", 15, Sender(8, 0), fatal=True)
    passed = Forwarded(99.9, 15, sender_pid=700, did="passed on")
    (death,) = build_deaths(of(ring(signals=[seen]), runs=[run(passed)]), [])
    assert death.signals[0].sender_role == "supervisor"
    assert "700" in (death.signals[0].sender_comm or "")


def test_what_the_launcher_ended_is_a_consequence() -> None:
    lines = log(
        SignalledBy(text(1), "torchrun", 11, 15),
        ProcessDied(text(2), "torchrun", 10, rank=1, signal=9, first=True),
        ProcessDied(text(3), "torchrun", 11, rank=0, signal=15),
    )
    diagnosis = diagnose(Case(launcher_logs=[lines]))
    assert [(one.pid, one.role) for one in diagnosis.processes] == [(10, "root"), (11, "collateral")]


_AGENTS = "torch.distributed.elastic.multiprocessing.api.SignalException"


@pytest.mark.parametrize(
    ("number", "before", "expected"),
    [
        (1, None, [(9, "root", "terminal-hangup"), (10, "collateral", "terminal-hangup")]),
        (2, None, [(9, "root", "interrupted"), (10, "collateral", "interrupted")]),
        (1, "Connection closed by peer", [(9, "root", "terminal-hangup"), (10, "collateral", "terminal-hangup")]),
        (1, "shapes do not fit", [(10, "collateral", None)]),  # which was first, nothing says
        (15, None, [(10, "collateral", None)]),  # by whoever lost another process elsewhere, perhaps
    ],
)
def test_a_terminal_that_takes_the_launcher_along(
    number: int, before: str | None, expected: list[tuple[int, str, str | None]]
) -> None:
    told = TextLine(_AGENTS, 7, path="launcher.log", writer=9)
    events = [
        SignalledBy(text(2), "torchrun", 10, number),
        ExceptionSeen(told, _AGENTS, f"Process 9 got signal: {number}"),
    ]
    if before is not None:
        events.insert(0, ExceptionSeen(text(1), "RuntimeError", before, peer_lost="peer" in before))
    diagnosis = diagnose(Case(launcher_logs=[log(*events)]))
    assert [(one.pid, one.role, diagnosis.verdict.cause) for one in diagnosis.processes] == expected


def test_the_rank_that_lost_its_peer_is_a_consequence() -> None:
    lost = ExceptionSeen(text(), "RuntimeError", "Connection closed by peer", rank=0, peer_lost=True)
    lines = log(
        lost,
        ProcessDied(text(2), "torchrun", 11, rank=0, code=1),
        ProcessDied(text(3), "torchrun", 10, rank=1, signal=9),
    )
    diagnosis = diagnose(Case(launcher_logs=[lines]))
    assert [(one.pid, one.role) for one in diagnosis.processes] == [(10, "root"), (11, "collateral")]


def test_the_parent_that_noticed_is_a_consequence_and_an_earlier_parent_is_not() -> None:
    child = Death(pid=10, ppid=9, signal=9, when=Moment(monotonic=5.0))
    parent = Death(pid=9, code=1, when=Moment(monotonic=6.0))
    both = Relations([child, parent])
    assert consequence(parent, None, both) and not consequence(child, None, both)
    first = msgspec.structs.replace(parent, when=Moment(monotonic=4.0))
    assert not consequence(first, None, Relations([child, first]))


def test_the_earliest_is_the_root() -> None:
    evidence = run(died(10, 101.0), died(11, 100.0), died(12, 103.0))
    diagnosis = diagnose(Case(runs=[evidence]))
    assert diagnosis.processes[0].pid == 11


def anonymous(pid: int, at: float, **changes: Any) -> Died:
    return died(pid, at, **{"comm": "grep", "status": 256, "signal": None, "code": 1, **changes})


def test_a_grep_that_found_nothing_is_a_bystander() -> None:
    command = died(9, 101.5, status=137 << 8, signal=None, code=137, direct=True, ppid=8)
    evidence = run(anonymous(30, 51.0), died(10, 101.0, rank=0), command)
    diagnosis = diagnose(Case(runs=[evidence]))
    assert [(one.pid, one.role) for one in diagnosis.processes] == [(10, "root"), (9, "collateral")]


@pytest.mark.parametrize(
    "helper",
    [
        {"signal": 13, "code": None, "status": 13, "comm": "yes"},  # yes | head
        {"signal": 9, "code": None, "status": 9, "comm": "redis"},  # stopped by the job, half an hour before
    ],
    ids=["pipe", "helper"],
)
def test_a_helper_that_a_signal_ended_long_before_is_a_bystander(helper: dict[str, Any]) -> None:
    command = died(9, 2000.0, status=256, signal=None, code=1, direct=True, ppid=8)
    diagnosis = diagnose(Case(runs=[run(anonymous(30, 60.0, **helper), command)]))
    assert [one.pid for one in diagnosis.processes] == [9]


def test_where_there_is_nothing_else_a_stranger_counts() -> None:
    command = died(9, 101.5, status=256, signal=None, code=1, direct=True, ppid=8)
    stranger = anonymous(30, 101.0, signal=11, code=None, status=11, comm="trainer")
    diagnosis = diagnose(Case(runs=[run(stranger, command)]))
    assert [(one.pid, one.role) for one in diagnosis.processes] == [(30, "root"), (9, "collateral")]


def test_a_stranger_that_the_kernel_killed_for_memory_is_a_member_however_early() -> None:
    command = died(9, 2000.0, status=256, signal=None, code=1, direct=True, ppid=8)
    taken = anonymous(10, 101.0, signal=9, code=None, status=9, comm="python")
    diagnosis = diagnose(Case(runs=[run(taken, command)], kernel_logs=[kmsg(killed(10))]))
    assert diagnosis.processes[0].pid == 10
    assert diagnosis.verdict.cause == "cgroup-oom"


def test_a_kill_before_the_trace_was_armed_was_not_traced() -> None:
    evidence = run(died(10, 101.0))
    assert evidence.started is not None
    for armed, traced in ((100.0, True), (101.5, False), (None, False)):
        started = msgspec.structs.replace(evidence.started, traced=True, at=armed)
        (death,) = build_deaths(Case(runs=[msgspec.structs.replace(evidence, started=started)]), [])
        assert death.traced is traced


# --- whose doing it was -----------------------------------------------------------------------------------------------


def test_a_process_is_not_killed_by_its_childs_kill() -> None:
    """A helper that the rank stopped seconds before is no reason for the rank's own SIGKILL."""
    helper = died(11, ppid=10, at=97.0, comm="sleep", rank=None, start_ticks=None)
    roots = {one.pid: one.role for one in diagnose(of(ring(), runs=[run(helper, died())])).processes}
    assert roots[10] == "root" and roots[11] != "root"


def test_a_helper_that_was_stopped_explains_no_good_end() -> None:
    evidence = run(died(11, comm="ffmpeg", rank=None, start_ticks=None))
    good = msgspec.structs.replace(evidence, ended=Ended(102.0, clocks(102.0), code=0))
    assert diagnose(Case(runs=[evidence])).verdict.outcome == "failed"
    assert diagnose(Case(runs=[good])).verdict.outcome == "succeeded"


@pytest.mark.parametrize(
    ("records", "confidence"), [(20, "likely"), (19, "likely"), (2, "undecided"), (1, "undecided")]
)
def test_as_many_records_as_ranks_that_are_alike(records: int, confidence: str) -> None:
    """In a pid namespace the kernel's numbers are others: which record is whose stays open, not what happened."""
    rings = []
    for rank in range(20):
        one = ring(pid=100 + rank)
        inside = msgspec.structs.replace(one.process, pid_namespace=4026532000, rank=rank, start_ticks=1000 + rank)
        rings.append(msgspec.structs.replace(one, process=inside))
    ended = [died(100 + rank, rank=rank, start_ticks=1000 + rank, at=101.0 + rank / 1000) for rank in range(20)]
    evidence = run(*ended)
    assert evidence.started is not None
    inside_run = msgspec.structs.replace(evidence.started, pid_namespace=4026532000)
    events = [
        OomKill(
            LogLine("Killed process", number, moment=Moment(monotonic=100.5 + number / 1000, boot_id=BOOT)),
            50000 + number,
            "python",
            scope="memcg",
            victim_group=GROUP,
            limit_group=GROUP,
        )
        for number in range(records)
    ]
    case = of(
        *rings,
        runs=[msgspec.structs.replace(evidence, started=inside_run)],
        kernel_logs=[KernelLog("file", "kernel.log", boot_id=BOOT, events=list(events))],
    )
    assert diagnose(case).verdict.confidence == confidence


def test_what_this_tool_starts_beside_a_job_is_no_death_of_the_job() -> None:
    # Seen on a machine under load: the inventory outlived its time, and its SIGALRM was told as the job's end.
    job = died(10, 102.0, status=256, signal=None, code=1, direct=True)
    here = [os.fsdecode(part) for part in command("inventory")]
    for argv in (here, ["/usr/bin/python3", "-I", "-m", "ftforensics", "inventory"]):
        ours = died(11, 101.0, status=14, signal=14, argv=[*argv, "10"])
        assert [death.pid for death in build_deaths(Case(runs=[run(ours, job)]), [])] == [10]
        # Who runs it himself is told of its end.
        assert build_deaths(Case(runs=[run(msgspec.structs.replace(ours, direct=True))]), [])[0].pid == 11
    names = (ROOT / "src/ftforensics/supervise").glob("*.py")
    set_there = {name for path in names for name in re.findall(r'set_name\(b"([^"]+)"\)', path.read_text())}
    assert len(set_there) == 3
    for name in set_there:
        inner = died(11, 101.0, comm=name, argv=["python", "-m", "ftforensics", "run", "--", "torchrun"])
        assert [death.pid for death in build_deaths(Case(runs=[run(inner, job)]), [])] == [10]


def test_the_same_start_says_more_than_that_nothing_speaks_against_it() -> None:
    """Two of one number, one of which does not say when it was started, and a run whose first line is lost."""
    vague = msgspec.structs.replace(ring(10), process=RingProcess(10, boot_id=OTHER, host="gpu-08", rank=1))
    exact = ring(10)
    for rings in ([vague, exact], [exact, vague]):
        watched = [death for death in build_deaths(of(*rings, runs=[run(died(10), started=None)]), []) if death.watched]
        assert [death.rank for death in watched] == [0]


def test_a_run_that_names_its_boot_comes_before_one_whose_first_line_is_lost() -> None:
    lost = run(died(10, start_ticks=None, status=0, signal=None, code=0), started=None, path="lost/evidence.jsonl")
    for runs in ([lost, run(died(10))], [run(died(10)), lost]):
        deaths = build_deaths(of(ring(10), runs=runs), [])
        assert [(death.signal, death.ring is not None) for death in deaths] == [(9, True)]


def test_what_a_run_saw_is_not_about_another_machines_process_of_that_number() -> None:
    """Whose ring lacks its boot."""
    elsewhere = msgspec.structs.replace(ring(10), process=RingProcess(10, host="other-node", rank=1))
    deaths = build_deaths(of(elsewhere, runs=[run(died(10))]), [])
    assert sorted((death.host, death.signal) for death in deaths if death.host) == [("gpu-07", 9), ("other-node", None)]


def test_the_same_boot_says_more_than_none() -> None:
    """An exception that does not say when its process was started, and two rings of that number."""
    nameless = msgspec.structs.replace(ring(10), process=RingProcess(10, start_ticks=999, host="gpu-07", rank=1))
    record = ExceptionRecord(
        time=Time(boot_id=BOOT),
        process=Process(pid=10),
        job=Job(host="gpu-07"),
        exceptions=[Raised("ValueError", "no")],
    )
    for rings in ([nameless, ring(10)], [ring(10), nameless]):
        case = of(*rings, exceptions=[CaseException(record, "10.exception.json")])
        assert [death.rank for death in build_deaths(case, []) if death.raised is not None] == [0]


@pytest.mark.parametrize(("place", "above"), [("job.log:2", True), ("job.log:7", False), ("other.log:2", False)])
def test_what_a_scheduler_said_above_the_end(place: str, above: bool) -> None:
    died = ProcessDied(TextLine("task 0: Exited with exit code 1", 5, path="job.log"), "slurm", rank=0, code=1)
    notice = Notice("slurm", "requeued", Cite("slurm", place, "DUE TO JOB REQUEUE"), unit="4411")
    (death,) = build_deaths(Case(launcher_logs=[LauncherLog("job.log", ["slurm"], 9, [died])], notices=[notice]), [])
    assert [one.above for one in death.notices] == [above]
