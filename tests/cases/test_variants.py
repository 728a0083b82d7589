"""What a labelled death becomes when its texts are mixed with those of others: another job's kill, an earlier attempt,
another container, the same numbers elsewhere. Each row must be told apart from the texts alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ftforensics.cli.inputs import gather
from ftforensics.cli.progress import Progress
from ftforensics.diagnose import diagnose
from ftforensics.host.host import Host
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.sources.live import with_live

HERE = Path(__file__).parent
Texts = dict[str, str]
Judge = Callable[[Texts], Diagnosis]


def text(case: str, name: str = "launcher.log") -> str:
    return (HERE / case / name).read_text()


KILLED, RAISED, OOM = text("torchrun-sigkill"), text("torchrun-raise"), text("torchrun-oom")
KERNEL = text("torchrun-oom", "kernel.log")  # of pid 10737
BOTH = "".join(
    line.replace("-15 (pid: 10736)  (SIGTERM)", "-9 (pid: 10736)  (SIGKILL)")
    for line in OOM.splitlines(keepends=True)
    if "closing signal" not in line and not line.startswith("[rank0]")
)
DAMAGED = "[ 2441.000000] Memory failure: 0x1234: Sending SIGBUS to python:10737 due to hardware memory corruption\n"
SPAWNED = text("mpspawn-sigkill")
LATE = "2026-11-29T14:28:50 DUE TO TIME LIMIT"
SLURM = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT {} ***\n"
STEPS = "JobID|State|ExitCode\n12|FAILED|1:0\n12.0|OUT_OF_MEMORY|0:125\n12.1|{}\n"
CONTAINER = {
    "Id": "0123456789abcdef" * 4,
    "Name": "/train",
    "State": {"Status": "exited", "OOMKilled": True, "ExitCode": 137, "FinishedAt": "2026-11-29T14:29:05.1Z"},
}
EARLYOOM = (
    "low memory! at or below SIGTERM limits: mem 10.00%, swap 10.00%\n"
    'sending {} to process 10749 uid 1000 "python": badness 900, VmRSS 6000 MiB\n'
)
SRUN = "srun: error: n1: task 1: Out Of Memory\nsrun: Terminating StepId=12.0\nsrun: error: n1: task 0: Terminated\n"
UNKNOWN, NOTHING = ("killed-unknown", "undecided"), (None, "undecided")


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def judge(texts: Texts) -> Diagnosis:
        for name, content in texts.items():
            (tmp_path / name).write_text(content)
        with Progress() as progress:
            paths = [str(tmp_path / name) for name in texts]
            return diagnose(with_live(gather(paths, pid=None, rank=None, progress=progress), Host()))

    return judge


def docker(finished: str) -> str:
    return json.dumps([CONTAINER]).replace("2026-11-29T14:29:05.1Z", finished)


def moved(kernel: str, pid: int, group: str = "/ftjob") -> str:
    return kernel.replace("10737", str(pid)).replace("/ftjob", group)


def wrapped(job: str) -> str:
    """As Docker's json-file driver keeps it."""
    return "".join(json.dumps({"log": f"{line}\n", "stream": "stderr"}) + "\n" for line in job.splitlines())


def crowd(count: int) -> str:
    return "".join(moved(KERNEL, 20000 + index, f"/job_{index}") for index in range(count))


def on(host: str, pid: int, rank: int) -> str:
    return f"mpirun noticed that process rank {rank} with PID {pid} on node {host} exited on signal 9 (Killed).\n"


def syslog(host: str) -> str:
    return "".join(f"Nov 29 14:28:53 {host} kernel: {line.split('] ', 1)[1]}\n" for line in KERNEL.splitlines())


def dated(kernel: str, stamp: str) -> str:
    return re.sub(r"^\[ *[\d.]+\]", f"[{stamp}]", kernel, flags=re.M)


@pytest.mark.parametrize(
    ("texts", "cause", "root"),
    [
        # whose kill it was
        ({"job.log": KILLED, "kernel.log": crowd(40)}, UNKNOWN, 10749),
        ({"job.log": OOM, "kernel.log": crowd(40) + KERNEL}, ("cgroup-oom", "proven"), 10737),
        ({"job.log": KILLED, "kernel.log": moved(KERNEL, 10748)}, UNKNOWN, 10749),  # a rank that lived
        ({"job.log": OOM, "kernel.log": moved(KERNEL, 10736)}, UNKNOWN, 10737),  # the one that got SIGTERM
        ({"job.log": "step 1\nstep 2\n", "kernel.log": KERNEL}, NOTHING, None),
        ({"job.log": "step 1\nKilled\n", "kernel.log": KERNEL}, UNKNOWN, None),
        ({"kernel.log": KERNEL}, ("cgroup-oom", "proven"), 10737),
        ({"kernel.log": crowd(3)}, NOTHING, None),
        ({"job.log": SPAWNED, "kernel.log": moved(KERNEL, 99)}, UNKNOWN, None),
        ({"job.log": wrapped(KILLED), "kernel.log": KERNEL}, UNKNOWN, 10749),
        ({"job.zip": "PK\x03\x04 packed", "kernel.log": KERNEL}, NOTHING, None),
        # a script that adds dmesg to the job's output
        ({"job.log": KILLED + KERNEL}, UNKNOWN, 10749),
        ({"job.log": KERNEL + KILLED}, UNKNOWN, 10749),
        ({"job.log": OOM + KERNEL}, ("cgroup-oom", "proven"), 10737),
        # two were killed, and the launcher noticed the other one first
        ({"job.log": BOTH, "kernel.log": moved(KERNEL, 10736)}, ("cgroup-oom", "proven"), 10736),
        ({"job.log": OOM.replace("binary: /home/user/venv/bin/python", "binary: ./run.sh"), "kernel.log": KERNEL},
         ("cgroup-oom", "proven"), 10737),
        # what the kernel sent was no SIGKILL
        ({"job.log": OOM, "kernel.log": DAMAGED}, UNKNOWN, 10737),
        # when and where it was
        ({"job.log": OOM, "kernel.log": dated(KERNEL, "Sun Nov 29 14:28:53 2026")}, ("cgroup-oom", "proven"), 10737),
        ({"job.log": OOM, "kernel.log": dated(KERNEL, "Sun Nov 29 21:28:53 2026")}, ("cgroup-oom", "proven"), 10737),
        ({"job.log": OOM, "kernel.log": dated(KERNEL, "Sun Nov 29 14:20:53 2026")}, ("cgroup-oom", "likely"), 10737),
        ({"job.log": OOM, "kernel.log": dated(KERNEL, "Tue Nov 24 14:28:53 2026")}, UNKNOWN, 10737),
        ({"job.log": OOM, "kernel.log": syslog("gpu-07")}, ("cgroup-oom", "proven"), 10737),  # "localhost" is no name
        ({"job.log": on("n2", 10737, 1), "kernel.log": syslog("n1")}, UNKNOWN, 10737),
        ({"job.log": on("n1", 10737, 0), "kernel.log": syslog("n1.cluster")}, ("cgroup-oom", "proven"), 10737),
        # schedulers, containers, daemons
        ({"job.log": KILLED + SLURM.format(LATE)}, ("scheduler-time-limit", "likely"), 10749),
        ({"job.log": SLURM.format("2026-11-20T14:28:50 DUE TO PREEMPTION") + KILLED}, UNKNOWN, 10749),
        ({"job.log": KILLED, "sacct.txt": STEPS.format("COMPLETED|0:0")}, ("cgroup-oom", "likely"), 10749),
        ({"job.log": KILLED, "sacct.txt": STEPS.format("FAILED|1:0")}, UNKNOWN, 10749),
        ({"job.log": KILLED, "container.json": docker("2026-11-29T14:29:05.1Z")}, ("cgroup-oom", "likely"), 10749),
        ({"job.log": KILLED, "container.json": docker("2026-11-20T14:29:05.1Z")}, UNKNOWN, 10749),
        ({"container.json": docker("2026-11-29T14:29:05.1Z")}, ("cgroup-oom", "likely"), None),
        ({"job.log": KILLED, "earlyoom.log": EARLYOOM.format("SIGKILL")}, ("earlyoom", "proven"), 10749),
        ({"job.log": KILLED, "earlyoom.log": EARLYOOM.format("SIGTERM")}, ("earlyoom", "likely"), 10749),
        ({"job.log": SRUN}, ("cgroup-oom", "likely"), None),
        # an exit of its own stays one, whatever stands beside it
        ({"job.log": RAISED, "kernel.log": KERNEL}, ("loss-nan", "likely"), 10798),
        ({"job.log": RAISED, "container.json": docker("2026-11-29T14:29:05.1Z")}, ("loss-nan", "likely"), 10798),
        ({"job.log": RAISED, "sacct.txt": STEPS.format("COMPLETED|0:0")}, ("loss-nan", "likely"), 10798),
    ],
    ids=range(37),
)  # fmt: skip
def test_told_apart(judge: Judge, texts: Texts, cause: tuple[str | None, str], root: int | None) -> None:
    diagnosis = judge(texts)
    assert (diagnosis.verdict.cause, diagnosis.verdict.confidence) == cause
    roots = [process.pid for process in diagnosis.processes if process.role == "root"]
    assert roots in ([root], [] if root is None else [root])


def test_equal_numbers_on_two_nodes_are_two_processes(judge: Judge) -> None:
    both = on("n1", 10737, 0) + on("n2", 10737, 1)
    diagnosis = judge({"job.log": both, "kernel.log": syslog("n2")})
    assert sorted((one.host, one.rank) for one in diagnosis.processes) == [("n1", 0), ("n2", 1)]


def test_what_may_be_it_is_listed_and_no_memory_of_it_is_shown(judge: Judge) -> None:
    diagnosis = judge({"job.log": "step 1\nKilled\n", "kernel.log": KERNEL})
    assert [(one.cause, one.confidence.value) for one in diagnosis.hypotheses[1:]] == [("cgroup-oom", "possible")]
    assert diagnosis.processes[0].memory is None or not diagnosis.processes[0].memory.holders
    assert any("pid 10737" in remedy.text for remedy in diagnosis.remedies)


def test_a_kernel_log_alone_asks_which_process_is_meant(judge: Judge) -> None:
    diagnosis = judge({"kernel.log": crowd(5)})
    assert "names 5 processes" in diagnosis.verdict.summary
    assert {one.confidence.value for one in diagnosis.hypotheses} == {"possible"}
    assert "--pid" in (diagnosis.remedies[0].command or "")


@pytest.mark.parametrize(
    ("asked", "cause", "roles"),
    [
        ({"pid": 10737}, "cgroup-oom", ["root"]),
        ({"pid": 10736}, "launcher-teardown", ["collateral"]),
        ({"rank": 0}, "launcher-teardown", ["collateral"]),
        ({"rank": 7}, None, []),
    ],
)
def test_only_the_process_that_is_asked_about(
    tmp_path: Path, asked: dict[str, int], cause: str | None, roles: list[str]
) -> None:
    (tmp_path / "job.log").write_text(OOM)
    (tmp_path / "kernel.log").write_text(KERNEL)
    paths = [str(tmp_path / "job.log"), str(tmp_path / "kernel.log")]
    with Progress() as progress:
        case = gather(paths, pid=asked.get("pid"), rank=asked.get("rank"), progress=progress)
    diagnosis = diagnose(case)
    assert diagnosis.verdict.cause == cause
    assert [process.role for process in diagnosis.processes] == roles
