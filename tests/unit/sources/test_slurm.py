"""Slurm's accounting: one job, its steps, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftforensics.host.host import Host
from ftforensics.model.basics import Gap
from ftforensics.sources.slurm import FIELDS, read_slurm_accounting

if TYPE_CHECKING:
    from conftest import Commands, Files


def accounting(*rows: dict[str, str]) -> bytes:
    """`sacct -P` of Slurm 23.11: names, then a row a step."""
    names = FIELDS.split(",")
    lines = ["|".join(names)] + ["|".join(row.get(name, "") for name in names) for row in rows]
    return ("\n".join(lines) + "\n").encode()


JOB = {"JobID": "4411", "JobName": "train", "State": "TIMEOUT", "ExitCode": "0:0", "NodeList": "gpu-07"}
BATCH = {"JobID": "4411.batch", "JobName": "batch", "State": "CANCELLED", "ExitCode": "0:15", "NodeList": "gpu-07"}
FIRST = {"JobID": "4411.0", "JobName": "python", "State": "OUT_OF_MEMORY", "ExitCode": "0:125", "NodeList": "gpu-07"}
SECOND = {"JobID": "4411.1", "JobName": "python", "State": "COMPLETED", "ExitCode": "0:0", "NodeList": "gpu-07"}


def test_how_the_job_and_its_steps_ended(machine: Host, commands: Commands) -> None:
    commands.says("sacct", accounting(JOB, BATCH, FIRST, SECOND))
    notices = read_slurm_accounting(machine, "4411", None)
    assert isinstance(notices, list)
    assert all(notice.authority == "slurm" and notice.live for notice in notices)
    states = {notice.unit: notice.state for notice in notices}
    assert states["4411"] == "TIMEOUT" and states["4411.0"] == "OUT_OF_MEMORY"
    assert commands.asked == [("sacct", "-j", "4411", "-P", "-o", FIELDS)]
    assert commands.bounds == [(5.0, 4 << 20)]


def test_another_step_is_left_out_and_the_job_kept(machine: Host, commands: Commands) -> None:
    commands.says("sacct", accounting(JOB, BATCH, FIRST, SECOND))
    notices = read_slurm_accounting(machine, "4411", "1")
    assert isinstance(notices, list)
    units = {notice.unit for notice in notices}
    assert "4411" in units and not units & {"4411.0", "4411.batch"}


@pytest.mark.parametrize("job_id", ["", "4411; rm -rf /", "--help", "4411.0", "x" * 5000, "4411\n"])
def test_only_a_job_id_is_asked_for(machine: Host, commands: Commands, job_id: str) -> None:
    assert isinstance(read_slurm_accounting(machine, job_id, None), Gap)
    assert commands.asked == []


def test_job_arrays(machine: Host, commands: Commands) -> None:
    commands.says("sacct", accounting({**JOB, "JobID": "4411_7"}))
    assert isinstance(read_slurm_accounting(machine, "4411_7", None), list)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            {"stderr": b"sacct: error: Slurm accounting storage is disabled\n", "status": 1},
            "accounting storage is disabled",
        ),
        ({"timed_out": True}, "no answer within 5 s"),
        ({"stdout": accounting()}, "knows no job 4411"),
        ({"stdout": bytes(range(256)) * 10}, "knows no job 4411"),
    ],
)
def test_refusals(machine: Host, commands: Commands, said: dict[str, object], why: str) -> None:
    commands.says("sacct", **said)  # type: ignore[arg-type]
    gap = read_slurm_accounting(machine, "4411", None)
    assert isinstance(gap, Gap) and why in gap.why
    assert gap.grant is not None and "sacct -j 4411" in gap.grant


def test_no_slurm_here(machine: Host) -> None:
    gap = read_slurm_accounting(machine, "4411", None)
    assert isinstance(gap, Gap) and gap.why == "sacct: No such file or directory"


def test_a_site_that_says_where_its_configuration_is(
    machine: Host, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/site/slurm.conf")
    commands.says("env", accounting(JOB))
    assert isinstance(read_slurm_accounting(machine, "4411", None), list)
    assert commands.asked[0][:3] == ("env", "SLURM_CONF=/etc/site/slurm.conf", "sacct")


def test_a_copied_root_is_not_mixed_with_this_machine(files: Files) -> None:
    gap = read_slurm_accounting(Host(root=files.root), "4411", None)
    assert isinstance(gap, Gap) and "not of the copied files" in gap.why
