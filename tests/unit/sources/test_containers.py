"""`docker inspect` and `podman inspect`; Kubernetes is named, never asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ftforensics.host.host import Host
from ftforensics.sources.containers import read_container
from ftforensics.sources.identity_here import Identity

if TYPE_CHECKING:
    from conftest import Commands, Files

ID = "3f5c" * 16
HERE = Identity(host="gpu-07")


def inspected(**state: object) -> bytes:
    """Docker 24, the members that matter."""
    whole = {
        "Status": "exited",
        "Running": False,
        "OOMKilled": False,
        "Dead": False,
        "Pid": 0,
        "ExitCode": 137,
        "Error": "",
        "StartedAt": "2026-11-29T13:00:00.123456789Z",
        "FinishedAt": "2026-11-29T13:59:50.123456789Z",
        **state,
    }
    return json.dumps(
        [{"Id": ID, "Created": "2026-11-29T13:00:00.0Z", "Name": "/train", "State": whole}], indent=4
    ).encode()


def test_docker_says_how_it_ended(machine: Host, commands: Commands) -> None:
    commands.says("docker", inspected(OOMKilled=True))
    notices, gaps = read_container(machine, ID, HERE)
    assert gaps == []
    assert notices and all(notice.authority == "docker" and notice.live and notice.unit == ID for notice in notices)
    assert "oom" in [notice.kind for notice in notices]
    assert commands.asked == [("docker", "inspect", "--type", "container", ID)]
    assert commands.bounds == [(5.0, 4 << 20)]


def test_podman_where_docker_does_not_know_it(machine: Host, commands: Commands) -> None:
    commands.says("docker", b"[]\n", b"Error: No such container: 3f5c\n", status=1)
    commands.says("podman", inspected())
    notices, gaps = read_container(machine, ID, HERE)
    assert gaps == [] and [notice.exit_code for notice in notices] == [137]


def test_neither_answers(machine: Host, commands: Commands) -> None:
    commands.says("docker", b"", b"Cannot connect to the Docker daemon at unix:///var/run/docker.sock.\n", status=1)
    notices, (gap,) = read_container(machine, ID, HERE)
    assert notices == [] and gap.source == "container"
    assert "Cannot connect" in gap.why and "podman: No such file" in gap.why
    assert gap.grant == f"on the node: docker inspect {ID[:12]} > container.json; give the file to ftforensics analyze"


def test_a_daemon_that_hangs(machine: Host, commands: Commands) -> None:
    commands.says("docker", timed_out=True)
    assert "docker inspect: no answer within 5 s" in read_container(machine, ID, HERE)[1][0].why


@pytest.mark.parametrize("answer", [b"", b"[]", b"{", bytes(range(256)), b'[{"State": 7}]', b"[" * 10000])
def test_garbage(machine: Host, commands: Commands, answer: bytes) -> None:
    commands.says("docker", answer)
    notices, gaps = read_container(machine, ID, HERE)
    assert notices == [] and len(gaps) == 1


def test_no_container_no_question(machine: Host, commands: Commands) -> None:
    assert read_container(machine, None, HERE) == ([], [])
    for name in ("--help", "a b", "short", "../x", ID + "0", ""):
        assert "no container id" in read_container(machine, name, HERE)[1][0].why
    assert commands.asked == []


def test_a_pod_is_told_the_command_by_hand(machine: Host, commands: Commands) -> None:
    _, (gap,) = read_container(machine, None, Identity(host="train-0", pod=True))
    assert gap.source == "kubernetes"
    assert gap.grant == "kubectl get pod train-0 -o json > pod.json; give the file to ftforensics analyze"
    assert commands.asked == []


def test_a_copied_root_is_not_mixed_with_this_machine(files: Files) -> None:
    notices, (gap,) = read_container(Host(root=files.root), ID, HERE)
    assert notices == [] and "not of the copied files" in gap.why


def test_the_real_commands_answer_or_say_why() -> None:
    notices, (gap,) = read_container(Host(), ID, HERE)
    assert notices == [] and gap.source == "container"
