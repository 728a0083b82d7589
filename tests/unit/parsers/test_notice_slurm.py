"""Slurm's lines in a job's output, its accounting as a table and as JSON."""

from __future__ import annotations

import json

import pytest

from ftforensics.model.notice import Notice
from ftforensics.parsers.notice_slurm import read_slurm


def one(text: str) -> Notice:
    (notice,) = read_slurm(text, "job.log")
    assert notice.authority == "slurm"
    return notice


@pytest.mark.parametrize(
    ("line", "kind", "unit"),
    [
        ("*** STEP 4411.0 ON n07 CANCELLED AT 2026-11-29T14:29:01 DUE TO TIME LIMIT ***", "time-limit", "4411.0"),
        ("*** JOB 4411 ON n07 CANCELLED AT 2026-11-29T14:29:01 DUE TO PREEMPTION ***", "preempted", "4411"),
        ("*** JOB 4411 ON n07 CANCELLED AT 2026-11-29T14:29:01 DUE TO JOB REQUEUE ***", "requeued", "4411"),
        (
            "*** STEP 4411.batch ON n07 CANCELLED AT 2026-11-29T14:29:01 DUE TO NODE FAILURE, SEE "
            "SLURMCTLD LOG FOR DETAILS ***",
            "node-failed", "4411.batch",
        ),
        ("*** JOB 4411 ON n07 CANCELLED AT 2026-11-29T14:29:01 ***", "cancelled", "4411"),
        ("*** STEP 4411.0 ON n07 FAILED (non-zero exit code or other failure mode) ***", "stopped", "4411.0"),
        ("*** STEP 4411.0 ON n07 UNCORRECTABLE MEMORY ERROR AT 2026-11-29T14:29:01 ***", "state", "4411.0"),
        (
            "*** STEP 12.0 STEPD TERMINATED ON n07 AT 2026-11-29T14:29:01 DUE TO JOB NOT ENDING WITH SIGNALS ***",
            "stopped", "12.0",
        ),
    ],
)  # fmt: skip
def test_decisions(line: str, kind: str, unit: str) -> None:
    notice = one(f"slurmstepd: error: {line}\n")
    assert (notice.kind, notice.unit, notice.host) == (kind, unit, "n07")
    assert notice.moment.realtime is None  # the cluster's local time
    assert notice.cite.locator == "job.log:1"
    assert line[:100] in notice.cite.text


@pytest.mark.parametrize("client", ["srun", "salloc"])
def test_a_node_went_away(client: str) -> None:
    notice = one(f"{client}: error: Node failure on n07\n")
    assert (notice.kind, notice.host, notice.unit) == ("node-failed", "n07", None)
    assert read_slurm(f"INFO: {client}: error: Node failure on n07 was seen before\n") == []


@pytest.mark.parametrize(
    ("line", "unit", "count"),
    [
        ("Detected 1 oom-kill event(s) in step 4411.0 cgroup.", "4411.0", 1),
        (
            "Detected 1959 oom-kill event(s) in StepId=191.batch cgroup. Some of your processes may "
            "have been killed by the"
            " cgroup out-of-memory handler.",
            "191.batch", 1959,
        ),
        ("Detected 1 oom_kill event in StepId=191.0. Some of the step tasks have been OOM Killed.", "191.0", 1),
        ("Detected 3 oom_kill events in StepId=7.extern. Some of the step tasks have been OOM Killed.", "7.extern", 3),
    ],
)  # fmt: skip
def test_oom_counters(line: str, unit: str, count: int) -> None:
    notice = one(f"slurmstepd: error: {line}\n")
    assert (notice.kind, notice.unit, notice.count, notice.pid) == ("oom", unit, count, None)


def test_a_limit_that_was_hit_killed_nobody() -> None:
    text = (
        "slurmstepd: info: StepId=12.0 hit memory+swap limit at least once during execution. This may or may not result"
    )
    assert one(text).kind == "limit-hit"
    assert read_slurm("slurmstepd: error: Detected 0 oom-kill event(s) in step 4411.0 cgroup.") == []


def test_polling_kills_by_itself() -> None:
    notice = one("slurmstepd: error: Step 12.0 exceeded memory limit (4194400 > 4194304), being killed")
    assert (notice.kind, notice.unit) == ("killed", "12.0")
    assert one("slurmstepd: error: Exceeded job memory limit").kind == "killed"


@pytest.mark.parametrize(("tasks", "count"), [("4", 1), ("0-3", 4), ("0-3,7", 5), ("9-3", 1), ("-", 0), (",", 0)])
def test_how_many_tasks_were_out_of_memory(tasks: str, count: int) -> None:
    assert one(f"srun: error: n07: task {tasks}: Out Of Memory").tasks == count


def test_one_task_of_many_that_the_kernel_killed() -> None:
    text = (
        "slurmstepd: error: Detected 1 oom-kill event(s) in step 3495064.0 cgroup. Some of your processes may have been"
        " killed by the cgroup out-of-memory handler.\n"
        "srun: error: Orion-01-01: task 4: Out Of Memory\n"
        "srun: Terminating job step 3495064.0\n"
        "slurmstepd: error: *** STEP 3495064.0 ON orion-01-01 CANCELLED AT 2021-10-27T19:35:36 ***\n"
        "srun: error: Orion-01-01: tasks 0-3,5-39: Terminated\n"
    )
    counted, task, ended, cancelled = read_slurm(text)
    assert (counted.kind, counted.unit, counted.count, counted.tasks) == ("oom", "3495064.0", 1, None)
    assert (task.kind, task.host, task.reason, task.tasks) == ("oom", "Orion-01-01", "task 4", 1)
    assert (ended.kind, cancelled.kind) == ("stopped", "cancelled")


def test_srun() -> None:
    notice = one("srun: error: n07: tasks 0-3: Out Of Memory")
    assert (notice.kind, notice.host, notice.reason) == ("oom", "n07", "task 0-3")
    assert one("srun: Force Terminated StepId=191.0").kind == "stopped"
    assert read_slurm("srun: error: n07: task 0: Killed") == []  # a death, not Slurm's decision


TABLE = """\
JobID|JobName|State|ExitCode|DerivedExitCode|NodeList|MaxRSS
4411|a|b|OUT_OF_MEMORY|0:125|0:0|n07|
4411.batch|batch|OUT_OF_MEMORY|0:125||n07|131072K
4411.0|train|CANCELLED by 1000|0:15||n07|2.5G
4411.1|train|FAILED|0:9||n07|1024
4411.2|train|TIMEOUT|1:0||n07|
4411.3|train|RUNNING|0:0||n07|
4411.4|train|COMPLETED|0:0||n07|
4411.5|train|NODE_FAIL|0:0||n07|
"""


def test_accounting_table() -> None:
    found = read_slurm(TABLE, "sacct.txt")
    assert [(one.unit, one.kind, one.state, one.exit_code, one.signal, one.rss) for one in found] == [
        ("4411", "oom", "OUT_OF_MEMORY", 0, None, None),  # the job's name holds the separator
        ("4411.batch", "oom", "OUT_OF_MEMORY", 0, None, 131072 << 10),
        ("4411.0", "cancelled", "CANCELLED", 0, 15, int(2.5 * (1 << 30))),
        ("4411.1", "state", "FAILED", 0, 9, 1024),
        ("4411.2", "time-limit", "TIMEOUT", 1, None, None),
        ("4411.4", "state", "COMPLETED", 0, None, None),
        ("4411.5", "node-failed", "NODE_FAIL", 0, None, None),
    ]
    assert found[2].reason == "by 1000"
    assert found[3].cite.locator == "sacct.txt:5"


def test_accounting_table_with_a_bar_at_the_end() -> None:
    """`sacct -p` ends every line with the separator."""
    notice = one("JobID|State|ExitCode|\n7.0|OUT_OF_MEMORY|0:125|\n")
    assert (notice.unit, notice.kind) == ("7.0", "oom")


def test_scontrol() -> None:
    notice = one("JobId=77 JobName=x\n   UserId=a(1)\n   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)\n")
    assert (notice.unit, notice.kind, notice.reason) == ("77", "time-limit", "TimeLimit")
    notice = one("JobId=78 JobName=x JobState=FAILED Reason=NonZeroExitCode ExitCode=0:9 BatchHost=n1\n")
    assert (notice.unit, notice.kind, notice.signal, notice.host) == ("78", "state", 9, "n1")


def number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


NEW = {
    "jobs": [
        {
            "job_id": 4411, "state": {"current": ["OUT_OF_MEMORY"], "reason": "None"}, "time": {"end": 1795958941},
            "exit_code": {
                "status": ["SIGNALED"], "return_code": number(0), "signal": {"id": number(125), "name": "NONE"},
            },
            "nodes": "n07",
            "steps": [
                {
                    "step": {"id": "4411.0", "name": "train"}, "state": ["FAILED"], "time": {"end": number(1795958940)},
                    "exit_code": {"return_code": number(0), "signal": {"id": number(9), "name": "KILL"}},
                    "nodes": {"count": 1, "list": ["n07"]},
                },
            ],
        },
        {"job_id": "what", "state": 3},
        {"job_id": 4412, "state": {"current": ["RUNNING"]}},
    ],
}  # fmt: skip
OLD = {
    "jobs": [
        {
            "job_id": 9, "state": {"current": "TIMEOUT", "reason": "TimeLimit"}, "time": {"end": 1},
            "exit_code": {"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 15, "name": "Terminated"}},
            "steps": [{"step": {"id": {"job_id": 9, "step_id": 2}}, "state": "CANCELLED", "exit_code": None}],
        },
    ],
}  # fmt: skip


def test_accounting_json() -> None:
    job, step = read_slurm(json.dumps(NEW), "sacct.json")
    assert (job.kind, job.unit, job.signal, job.host) == ("oom", "4411", None, "n07")
    assert (job.moment.realtime, job.moment.accuracy) == (1795958941.0, 1.0)
    assert (step.kind, step.unit, step.signal, step.exit_code, step.host) == ("state", "4411.0", 9, 0, "n07")
    assert step.cite.locator == "sacct.json: jobs[0].steps[0].state"


def test_accounting_json_of_older_releases() -> None:
    job, step = read_slurm(json.dumps(OLD))
    assert (job.kind, job.unit, job.signal, job.reason) == ("time-limit", "9", 15, "TimeLimit")
    assert (step.kind, step.unit) == ("cancelled", "9.2")


def test_other_documents_are_nothing() -> None:
    for text in ("{}", '{"jobs": 3}', '{"jobs": [{"job_id": 1}]}', "{", '{"jobs": [1, null]}'):
        assert read_slurm(text) == []
