"""The doors to what speaks about a death, tried on this machine and on made-up ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from conditions import ROOT, needs_kmsg, needs_root
from ftforensics.host.host import Host
from ftforensics.model.moment import Moment
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.sources.identity_here import Identity
from ftforensics.sources.witnesses import Witness, read_witnesses

CONTAINER = Identity(container="a" * 64, in_initial_pid_namespace=False)
# Refuses ptrace as a container's seccomp profile does: a filter that answers EPERM. linux/seccomp.h, linux/filter.h;
# 101 is ptrace on x86-64, 117 on aarch64.
WITHOUT_PTRACE = """
import ctypes, os, platform, struct, sys
number = {"x86_64": 101, "aarch64": 117}[platform.machine()]
program = b"".join(struct.pack("=HBBI", *one) for one in [
    (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)])
code = ctypes.create_string_buffer(program, len(program))
head = struct.pack("@HP", 4, ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, head, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.executable, [sys.executable, "-I", "-S", sys.argv[1]])
"""
CHILD = str(ROOT / "src/ftforensics/sources/ptrace_child.py")


def named(name: str, found: list[Witness]) -> Witness:
    (one,) = [one for one in found if one.name == name]
    return one


def test_a_child_of_our_own_can_be_traced_here() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", CHILD], capture_output=True, text=True, timeout=20, check=True)
    assert json.loads(done.stdout) == {"allowed": True, "why": None}


def test_a_filter_on_ptrace_is_seen() -> None:
    command = [sys.executable, "-I", "-S", "-c", WITHOUT_PTRACE, CHILD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert json.loads(done.stdout) == {"allowed": False, "why": os.strerror(1)}, done.stderr


@needs_root
@needs_kmsg
def test_this_machine_is_open_to_root() -> None:
    group = Reading(Moment(), "now", groups=[GroupReading("/", 2, usage=1)])
    found = read_witnesses(Host(), Identity(), group)
    assert [one.name for one in found] == ["kernel-log", "ptrace", "control-group", "signal-trace"]
    assert named("kernel-log", found).why is None and named("ptrace", found).why is None


def test_each_closed_door_has_its_reason(machine: Host) -> None:
    for one in read_witnesses(machine, Identity(), None):
        assert one.why and one.tells, one


@pytest.mark.parametrize(
    ("identity", "restrict", "grant"),
    [
        (CONTAINER, "1", "--cap-add SYSLOG"),
        (Identity(), "1", "kernel.dmesg_restrict=0"),
        (Identity(), "0", "/dev/kmsg"),
    ],
    ids=["container", "restricted", "closed device"],
)
def test_the_key_fits_the_place(machine: Host, identity: Identity, restrict: str, grant: str) -> None:
    place = machine.root / "proc/sys/kernel/dmesg_restrict"
    place.write_text(f"{restrict}\n")
    found = named("kernel-log", read_witnesses(machine, identity, None))
    assert grant in (found.grant or "")


def test_a_kernel_without_tracefs_is_told_from_one_that_lets_only_root_trace(machine: Host) -> None:
    (machine.root / "proc/filesystems").write_text("nodev\ttmpfs\n")
    assert "no tracefs" in (named("signal-trace", read_witnesses(machine, Identity(), None)).why or "")
    (machine.root / "proc/filesystems").write_text("nodev\ttmpfs\nnodev\ttracefs\n")
    found = named("signal-trace", read_witnesses(machine, Identity(), None))
    assert found.why == (None if os.geteuid() == 0 else "only root may trace signals")
