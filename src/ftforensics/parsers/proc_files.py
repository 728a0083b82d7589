"""Small files of /proc as values: mountinfo, meminfo, pressure, stat (man 5 proc_pid_mountinfo, proc_meminfo,
proc_pid_stat; Documentation/accounting/psi.rst). Lines that do not parse are left out."""

from __future__ import annotations

import re

import msgspec

_OCTAL = re.compile(r"\\([0-7]{3})")
_KIB = 1024
# What a runtime lays over the image: /var/lib/docker/containers/ID/hostname, overlay-containers/ID/userdata/hosts.
_OVERLAID = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
_MASK = re.compile(r"[0-9a-f]{16}")  # fs/proc/array.c, render_sigset_t
_CONTAINER_FOLDER = re.compile(r"containers/([0-9a-f]{64})/")


class Mount(msgspec.Struct, frozen=True):
    """root: the directory of the file system that is mounted; point: where; options: of the file system (not of this
    mount), for control groups the controllers; source: the device, where it has one."""

    root: str
    point: str
    kind: str  # "cgroup2"
    options: tuple[str, ...] = ()
    source: str = ""


class Memory(msgspec.Struct, frozen=True):
    """Of /proc/meminfo, in bytes. available is None before Linux 3.14."""

    total: int | None = None
    available: int | None = None
    shmem: int | None = None
    swap_free: int | None = None


class Pressure(msgspec.Struct, frozen=True):
    """avg10 of /proc/pressure/memory: percent of the last ten seconds in which some or all tasks waited for memory."""

    some: float | None = None
    full: float | None = None


class ProcessState(msgspec.Struct, frozen=True):
    """state: the letter of /proc/PID/stat; start_ticks: clock ticks since boot."""

    state: str
    start_ticks: int


def mounts(text: str) -> list[Mount]:
    found = []
    for line in text.splitlines():
        # 36 35 98:0 /root /point options [optional fields] - type source super-options
        before, separator, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if separator and len(fields) >= 6 and len(rest) >= 3:
            found.append(
                Mount(_plain(fields[3]), _plain(fields[4]), rest[0], tuple(rest[2].split(",")), _plain(rest[1]))
            )
    return found


def container_of_mounts(text: str) -> str | None:
    """The id of the container whose /etc/hostname, hosts or resolv.conf we see, from the text of mountinfo. The machine
    itself has mounts of its containers too, at other places."""
    for mount in mounts(text):
        if mount.point in _OVERLAID and (found := _CONTAINER_FOLDER.search(mount.root)):
            return found[1]
    return None


def _plain(text: str) -> str:
    """Blank, tab, newline and backslash stand in octal."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def memory(text: str) -> Memory:
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB" and (number := whole(words[0])) is not None:
            values[name] = number * _KIB
    return Memory(
        total=values.get("MemTotal"),
        available=values.get("MemAvailable"),
        shmem=values.get("Shmem"),
        swap_free=values.get("SwapFree"),
    )


def pressure(text: str) -> Pressure:
    found: dict[str, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        for field in rest.split():
            name, _, value = field.partition("=")
            if name == "avg10" and re.fullmatch(r"\d{1,3}\.\d{1,6}", value):
                found[kind] = float(value)
    return Pressure(some=found.get("some"), full=found.get("full"))


def process_state(text: str) -> ProcessState | None:
    """Of /proc/PID/stat. The command name may hold blanks and parentheses: counted from the last one."""
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or (ticks := whole(fields[19])) is None:
        return None
    return ProcessState(state=fields[0], start_ticks=ticks)


def pending_signals(text: str) -> set[int]:
    """Of /proc/PID/status: the numbers of the signals that wait for the thread or for its process."""
    masks = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    mask = 0
    for word in masks[:2]:
        mask |= int(word, 16) if _MASK.fullmatch(word) else 0
    return {bit + 1 for bit in range(64) if mask >> bit & 1}


def whole(text: str) -> int | None:
    """A number of at most 20 digits, as the kernel prints 64 bits; None for anything else."""
    text = text.strip()
    return int(text) if len(text) <= 20 and text.isascii() and text.isdigit() else None
