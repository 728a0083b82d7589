"""Slurm's accounting of one job: how each of its steps ended.

`sacct` asks slurmdbd, which any user may for his own jobs. It is up to some seconds behind the end of a step, so that a
state can still be RUNNING.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.notice import Notice
from ftforensics.parsers.notice_slurm import read_slurm

SOURCE = "slurm"
TIMEOUT = 5.0  # seconds
OUTPUT_LIMIT = 4 << 20  # a job of 10,000 steps has 2 MB
FIELDS = (
    "JobID,JobName,State,ExitCode,DerivedExitCode,Reason,NodeList,Start,End,Elapsed,Timelimit,ReqMem,MaxRSS,MaxRSSTask,"
    "MaxRSSNode"
)
_JOB_ID = re.compile(r"\d{1,12}(?:[_+]\d{1,8})?")  # plain, of an array, of a heterogeneous job


def read_slurm_accounting(host: Host, job_id: str, step: str | None) -> list[Notice] | Gap:
    """job_id: $SLURM_JOB_ID ("4411", "4411_7"); step: $SLURM_STEP_ID, None for all. What is said of the job as a whole
    stays in either way: the time limit is the job's, not the step's."""
    if not _JOB_ID.fullmatch(job_id):
        return Gap(SOURCE, f"{job_id[:40]!r} is no job id")
    arguments = ["sacct", "-j", job_id, "-P", "-o", FIELDS]
    grant = "on a login node: " + " ".join(arguments) + " > sacct.txt; give the file to ftforensics analyze"
    if not host.runs_commands:
        return Gap(SOURCE, "sacct: not asked: it would speak of this machine, not of the copied files", grant)
    try:
        done = host.run(_with_configuration(arguments), TIMEOUT, OUTPUT_LIMIT)
    except Refusal as refusal:
        return refusal.gap(SOURCE, grant)
    if done.timed_out or done.status != 0:
        return Gap(SOURCE, f"sacct: {done.complaint(TIMEOUT)}", grant)
    found = read_slurm(done.stdout.decode("utf-8", "backslashreplace"), f"sacct -j {job_id}")
    found = [msgspec.structs.replace(notice, live=True) for notice in found if _about(notice, job_id, step)]
    return found or Gap(SOURCE, f"sacct knows no job {job_id}; accounting may be off or on another cluster", grant)


def _about(notice: Notice, job_id: str, step: str | None) -> bool:
    """Another step of the job may have ended in any way."""
    if step is None or notice.unit is None:
        return True
    return "." not in notice.unit or notice.unit == f"{job_id}.{step}"


def _with_configuration(arguments: Sequence[str]) -> Sequence[str]:
    """Commands get a bare environment, and some sites say there where slurm.conf is."""
    configuration = os.environ.get("SLURM_CONF")
    return ["env", f"SLURM_CONF={configuration}", *arguments] if configuration else arguments
