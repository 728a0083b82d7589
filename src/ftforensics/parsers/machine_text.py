"""Two files of /proc on what a process may use: its limits, its processor (man 5 proc_pid_limits, proc_cpuinfo)."""

from __future__ import annotations

import re

import msgspec

_LIMIT = re.compile(r"(Max [a-z ]{1,40}?)\s{2,40}(unlimited|\d{1,20})\s{1,40}(unlimited|\d{1,20})(?:\s|$)")
# fs/proc/base.c, lnames; the other limits decide nothing here.
_NAMES = {
    "Max open files": "nofile",
    "Max processes": "nproc",
    "Max locked memory": "memlock",
    "Max stack size": "stack",
    "Max core file size": "core",
    "Max address space": "as",
}


class Limit(msgspec.Struct, frozen=True):
    """name: as setrlimit calls it, "nofile"; soft, hard: bytes or a count, None: unlimited."""

    name: str
    soft: int | None
    hard: int | None


class Processor(msgspec.Struct, frozen=True):
    """flags: names of its features; [] where the file does not list them."""

    model: str | None = None
    flags: list[str] = []


def limits(text: str) -> list[Limit]:
    found = []
    for line in text.splitlines():
        match = _LIMIT.match(line)
        if match and (name := _NAMES.get(match[1])):
            found.append(Limit(name, _amount(match[2]), _amount(match[3])))
    return found


def _amount(word: str) -> int | None:
    return None if word == "unlimited" else int(word)


def processor(text: str) -> Processor:
    """The first processor: x86 says "model name" and "flags", Arm "Features" and no name."""
    model: str | None = None
    flags: list[str] = []
    for line in text.split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        name = name.strip()
        if name == "model name":
            model = value.strip() or None
        elif name in ("flags", "Features"):
            flags = value.split()
    return Processor(model, flags)
