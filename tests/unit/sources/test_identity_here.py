"""Which machine this is, and whether evidence read here is about a process that wrote its own identity elsewhere."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conditions import ROOT, needs_unshare
from ftforensics.host.host import Host
from ftforensics.model.basics import Gap
from ftforensics.sources.identity_here import (
    INITIAL_PID_NAMESPACE,
    Identity,
    read_identity,
    same_boot,
    same_groups,
    same_machine,
)

if TYPE_CHECKING:
    from conftest import Files

BOOT = "0231076c-b8c6-43e7-81dc-7609325ca25a"
OTHER_BOOT = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
ID = "ab" * 32
OTHER_ID = "cd" * 32


def test_this_machine() -> None:
    identity = read_identity(Host())
    assert identity.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert identity.host == socket.gethostname()
    assert identity.machine == os.uname().machine
    assert identity.pid_namespace == os.stat("/proc/self/ns/pid").st_ino
    assert identity.in_initial_pid_namespace == (identity.pid_namespace == INITIAL_PID_NAMESPACE)


@needs_unshare
def test_a_real_pid_namespace_is_not_the_initial_one() -> None:
    program = (
        "from ftforensics.host.host import Host\n"
        "from ftforensics.sources.identity_here import read_identity\n"
        "i = read_identity(Host())\n"
        "print(i.boot_id, i.in_initial_pid_namespace, i.pid_namespace)"
    )
    made = subprocess.run(
        ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    boot_id, initial, namespace = made.stdout.split()
    mine = read_identity(Host())
    assert boot_id == mine.boot_id  # the kernel is the same, its pids are others
    assert initial == "False" and int(namespace) not in (mine.pid_namespace, INITIAL_PID_NAMESPACE)


def test_a_copied_root_has_no_namespace(machine: Host) -> None:
    identity = read_identity(machine)
    assert identity == Identity(boot_id=BOOT, host="gpu-07")


def test_nothing_to_read(tmp_path: Path) -> None:
    assert read_identity(Host(root=tmp_path)) == Identity()


@pytest.mark.parametrize(
    "lines",
    [
        f"0::/system.slice/docker-{ID}.scope\n",
        f"4:memory:/docker/{ID}\n0::/\n",
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/cri-containerd-{ID}.scope\n",
    ],
)
def test_the_container_from_the_cgroup_path(files: Files, machine: Host, lines: str) -> None:
    files.write("/proc/self/cgroup", lines)
    identity = read_identity(machine)
    assert identity.container == ID
    assert identity.pod == ("kubepods" in lines)


def test_the_container_from_its_mounts_where_the_cgroup_namespace_hides_the_path(files: Files, machine: Host) -> None:
    files.write("/proc/self/cgroup", "0::/\n")
    line = f"1212 1203 254:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/vda1 rw\n"
    files.write("/proc/self/mountinfo", line)
    assert read_identity(machine).container == ID


HERE = Identity(boot_id=BOOT, host="gpu-07", container=None)
CONTAINED = Identity(boot_id=BOOT, host=ID[:12], container=ID)


@pytest.mark.parametrize("identity", [HERE, CONTAINED])
def test_the_same_boot(identity: Identity) -> None:
    assert same_boot(identity, BOOT) is None
    assert isinstance(same_boot(identity, OTHER_BOOT), Gap)
    assert isinstance(same_boot(identity, None), Gap)
    assert isinstance(same_boot(Identity(), BOOT), Gap)


def test_the_same_machine() -> None:
    assert same_machine(HERE, BOOT, "gpu-07", None) is None
    assert same_machine(CONTAINED, BOOT, ID[:12], ID) is None
    assert same_machine(CONTAINED, BOOT, None, ID[:12]) is None
    assert same_machine(CONTAINED, BOOT, "renamed", ID) is None


def test_paths_of_groups_mean_the_same_in_one_cgroup_namespace_only() -> None:
    here = Identity(boot_id=BOOT, cgroup_namespace=4026531835)
    assert same_groups(here, 4026531835) is None
    assert same_groups(here, None) is None and same_groups(Identity(), 4026531835) is None
    gap = same_groups(here, 4026532201)
    assert gap is not None and gap.source == "cgroup" and "namespace" in gap.why


@pytest.mark.parametrize(
    ("identity", "boot_id", "host", "container", "why"),
    [
        (HERE, OTHER_BOOT, "gpu-07", None, "started again"),
        (HERE, OTHER_BOOT, "gpu-08", None, "another machine or boot"),
        (HERE, OTHER_BOOT, None, None, "another machine or boot"),
        (HERE, None, "gpu-07", None, "does not say"),
        (HERE, BOOT, "gpu-08", None, "host name"),
        (HERE, BOOT, None, None, "host name"),
        (HERE, BOOT, "gpu-07", ID, "in container"),
        (CONTAINED, BOOT, "gpu-07", None, "names no container"),
        (CONTAINED, BOOT, "gpu-07", OTHER_ID, "in container cdcd"),
        (CONTAINED, BOOT, "gpu-07", ID[:8], "in container"),  # too short to be told from others
        (Identity(), BOOT, "gpu-07", None, "cannot be read"),
    ],
)
def test_another_machine_boot_or_container(
    identity: Identity, boot_id: str | None, host: str | None, container: str | None, why: str
) -> None:
    gap = same_machine(identity, boot_id, host, container)
    assert gap is not None and gap.source == "machine" and why in gap.why
