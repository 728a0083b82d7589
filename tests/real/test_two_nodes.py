"""Two torchrun agents on one machine as two nodes: the culprit's rank is on the first."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import needs_torch
from ftforensics.cli.analysis import diagnose_paths
from ftforensics.model.diagnosis import Diagnosis

pytestmark = [needs_torch, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parent.parent.parent
JOB = ROOT / "benchmarks" / "first_failure" / "job.py"
CULPRIT = 1
PER_NODE = 2


@pytest.fixture(scope="module", params=["exception", "segv"])
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The run folders of both nodes after the job, that of the culprit first."""
    work = tmp_path_factory.mktemp("nodes")
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(work)}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folders, agents = [work / "node0", work / "node1"], []
    for number, folder in enumerate(folders):
        command = [
            sys.executable, "-m", "ftforensics", "run", "--quiet", "--dir", str(folder), "--",
            sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={number}",
            f"--nproc-per-node={PER_NODE}", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
            "--rdzv-id=two", str(JOB), request.param, str(CULPRIT), str(work),
        ]  # fmt: skip
        with (work / f"out{number}").open("wb") as out:
            agents.append(subprocess.Popen(command, stdout=out, stderr=out, env=environ, cwd=work))
    for agent in agents:
        assert agent.wait(timeout=240) != 0
    # Who comes first to the rendezvous gets the first ranks.
    return sorted(folders, key=lambda folder: not list(folder.glob(f"*rank{CULPRIT}-*")))


def roles(diagnosis: Diagnosis) -> dict[int, str]:
    return {process.rank: process.role for process in diagnosis.processes if process.rank is not None}


def test_the_innocent_nodes_folder_says_that_the_culprit_is_elsewhere_and_who(nodes: list[Path]) -> None:
    diagnosis = diagnose_paths([str(nodes[1])])
    assert roles(diagnosis) == {2: "collateral", 3: "collateral"}
    assert not [process for process in diagnosis.processes if process.role == "root"]
    assert diagnosis.verdict.cause == "peer-lost" and diagnosis.verdict.confidence == "likely"
    assert "ranks 0-1" in diagnosis.verdict.summary and "node 0" in diagnosis.verdict.summary


def test_the_innocent_nodes_log_alone_accuses_nobody_there(nodes: list[Path]) -> None:
    diagnosis = diagnose_paths([str(nodes[1] / "launcher.log")])
    assert not [process for process in diagnosis.processes if process.role == "root"]


def test_both_folders_together_name_the_culprit(nodes: list[Path]) -> None:
    diagnosis = diagnose_paths([str(node) for node in nodes])
    assert roles(diagnosis) == {0: "collateral", CULPRIT: "root", 2: "collateral", 3: "collateral"}


def test_the_culprits_own_folder_names_it(nodes: list[Path]) -> None:
    assert roles(diagnose_paths([str(nodes[0])]))[CULPRIT] == "root"
