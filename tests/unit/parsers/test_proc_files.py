"""Small files of /proc: as real kernels wrote them, and anything at all."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers import proc_files
from ftforensics.parsers.proc_files import Memory, Mount, Pressure, ProcessState

ID = "3f5c" * 16

# Docker 24 on Debian 12 (cgroup v2), mounts that a runtime makes; paths as they were, id changed.
DOCKER = f"""\
1203 1112 0:52 / / rw,relatime master:430 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/AB
1208 1206 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate
1211 1203 254:1 /var/lib/docker/containers/{ID}/resolv.conf /etc/resolv.conf rw,relatime - ext4 /dev/vda1 rw
1212 1203 254:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw,relatime - ext4 /dev/vda1 rw
"""
# The machine that runs it: it sees the container's shm, at another place.
DOCKER_HOST = f"""\
24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
430 24 0:60 / /var/lib/docker/containers/{ID}/mounts/shm rw,nosuid shared:230 - tmpfs shm rw,size=65536k
"""


def test_mounts_with_optional_fields_and_octal_names() -> None:
    line = "36 35 98:0 /a\\040b /mnt/with\\040blank rw,noatime master:1 shared:2 - cgroup none rw,memory\n"
    assert proc_files.mounts(line) == [Mount("/a b", "/mnt/with blank", "cgroup", ("rw", "memory"), "none")]
    assert proc_files.mounts("36 35 98:0 / /mnt rw - cgroup2\n36 35\n - - -\n") == []


def test_the_container_is_the_one_whose_hostname_file_we_see() -> None:
    assert proc_files.container_of_mounts(DOCKER) == ID
    assert proc_files.container_of_mounts(DOCKER_HOST) is None


def test_meminfo_of_this_machine() -> None:
    with open("/proc/meminfo") as file:
        memory = proc_files.memory(file.read())
    page = os.sysconf("SC_PAGE_SIZE")
    assert memory.total == os.sysconf("SC_PHYS_PAGES") * page
    assert memory.available is not None and 0 < memory.available <= memory.total


def test_meminfo_without_available() -> None:
    text = "MemTotal:  1000 kB\nMemFree: 10 kB\nShmem:  3 kB\nSwapFree: 0 kB\nHugePages_Total: 4\n"
    assert proc_files.memory(text) == Memory(total=1024000, available=None, shmem=3072, swap_free=0)


def test_pressure() -> None:
    text = "some avg10=51.07 avg60=2.00 avg300=0.10 total=99\nfull avg10=12.50 avg60=0.00 avg300=0.00 total=7\n"
    assert proc_files.pressure(text) == Pressure(some=51.07, full=12.5)
    assert proc_files.pressure("some avg10=nan avg60=0\n") == Pressure()


def test_a_command_name_with_parentheses() -> None:
    fields = " ".join(["T", *["0"] * 18, "4321", "0"])
    assert proc_files.process_state(f"77 (weird) R (name) {fields}") == ProcessState("T", 4321)
    assert proc_files.process_state("77 (short) S 1 2") is None


@given(st.text(st.characters(codec="utf-8"), max_size=300))
def test_no_text_makes_a_parser_raise(text: str) -> None:
    proc_files.mounts(text)
    proc_files.container_of_mounts(text)
    proc_files.memory(text)
    proc_files.pressure(text)
    proc_files.process_state(text)
    proc_files.whole(text)


@given(
    st.sampled_from(["MemTotal: ", "some avg10=", "1 (a) S" + " 9" * 18 + " "]),
    st.text("0123456789.²٣-+_e ", max_size=40),
)
def test_numbers_that_are_none(head: str, number: str) -> None:
    proc_files.memory(head + number + " kB")
    proc_files.pressure(head + number)
    proc_files.process_state(head + number)


def test_signals_that_wait() -> None:
    text = "Name:\tShdPnd:\nSigPnd:\t0000000000000400\nShdPnd:\t8000000000040000\nSigBlk:\tffffffffffffffff\n"
    assert proc_files.pending_signals(text) == {11, 19, 64}
    for odd in ("", "SigPnd:\n", "SigPnd:\t40000\n", "ShdPnd:\t-000000000000001\n", "SigPnd: " + "f" * 9999):
        assert proc_files.pending_signals(odd) == set()
