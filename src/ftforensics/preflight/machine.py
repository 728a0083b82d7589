"""Processor, shared memory, limits, free memory, disk room: what a run needs of the machine under it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ftforensics.causes.sizes import size_text
from ftforensics.model.basics import Cite
from ftforensics.model.diagnosis import Confidence, Remedy
from ftforensics.model.preflight import Check, Status
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.parsers.machine_text import Limit
from ftforensics.sources.machine import Machine
from ftforensics.sources.places import Place

TOPIC = "machine"
# Instructions that torch's x86-64 kernels want: FBGEMM asks for AVX2, and ATen falls back to its slowest kernels
# without (torch/backends/cpu, get_cpu_capability).
WANTED = ("avx2", "fma")
SHM_DEFAULT = 64 << 20  # docker's --shm-size where nobody says otherwise
SHM_ENOUGH = 1 << 30
FREE_MEMORY = 0.20  # of what the job may have
FILES = 4096  # open files; workers that share tensors by descriptors pass 1024 quickly (torch.multiprocessing)
PROCESSES = 4096
STACK = 8 << 20  # bytes, what Linux gives a shell
DISK_LOW = 0.05
DISK_ENOUGH = 50 << 30  # bytes: with this much free a small share is not worth a word
DISK_SCARCE = 1 << 30


def machine_checks(machine: Machine, places: Sequence[Place] = ()) -> Iterator[Check]:
    """places: where the run will write."""
    yield from _processor(machine)
    yield from _shared_memory(machine)
    yield from _memory(machine.memory)
    yield from _limits(machine)
    # One line a file system: two places on it have the same room.
    for place in {(place.size, place.free): place for place in reversed(places)}.values():
        yield from disk_room(place)


def _processor(machine: Machine) -> Iterator[Check]:
    processor = machine.processor
    if processor is None or not processor.flags:
        yield Check("cpu-features", TOPIC, Status.UNKNOWN, "the processor's features could not be read")
        return
    if machine.name not in ("x86_64", None) or "sse2" not in processor.flags:
        said = f"{processor.model or machine.name or 'a processor'}: torch's x86-64 kernels are not in question"
        yield Check("cpu-features", TOPIC, Status.OK, said)
        return
    model = processor.model or "this processor"
    lacking = [flag for flag in WANTED if flag not in processor.flags]
    if not lacking:
        yield Check("cpu-features", TOPIC, Status.OK, f"{model} has {', '.join(WANTED)}")
        return
    yield Check(
        "cpu-features",
        TOPIC,
        Status.WARN,
        f"{model} does not have {', '.join(lacking)}: extensions built for newer processors would end with SIGILL, and "
        "quantized operators of torch do not work",
        "cpu-feature-missing",
        Confidence.POSSIBLE,
        [Cite("cpu", "/proc/cpuinfo flags", f"no {flag}") for flag in lacking],
        [Remedy('In a virtual machine, pass the processor through: "-cpu host" or "host-passthrough"')],
    )


def _shared_memory(machine: Machine) -> Iterator[Check]:
    memory = machine.memory
    size = memory.shm_size if memory else None
    used = memory.shm_used if memory else None
    remedy = Remedy(
        "Give the container more shared memory, or the host's own (--ipc=host); in Kubernetes mount an emptyDir of "
        "medium Memory at /dev/shm",
        "docker run --shm-size=16g ...",
    )
    if size is None:
        status = Status.UNKNOWN if machine.shared_memory else Status.FAIL
        said = "the room in /dev/shm could not be read" if machine.shared_memory else "there is no /dev/shm"
        yield Check("shared-memory", TOPIC, status, said)
        return
    free = size - (used or 0)
    cite = [Cite("shm", "statvfs /dev/shm", f"{size} bytes, {used or 0} used")]
    text = f"/dev/shm has {size_text(size)}, {size_text(free)} free"
    if size <= SHM_DEFAULT:
        said = f"{text}: a container's default; DataLoader workers pass tensors through it and would die with SIGBUS"
        yield Check("shared-memory", TOPIC, Status.FAIL, said, "shm-exhausted", Confidence.POSSIBLE, cite, [remedy])
    elif free <= SHM_DEFAULT:
        said = f"{text}: nearly full; what ended jobs left there can be removed"
        left = Remedy("See what lies there", "ls -l /dev/shm")
        yield Check(
            "shared-memory", TOPIC, Status.FAIL, said, "shm-exhausted", Confidence.POSSIBLE, cite, [left, remedy]
        )
    elif free < SHM_ENOUGH:
        said = f"{text}: little for DataLoader workers and NCCL"
        yield Check("shared-memory", TOPIC, Status.WARN, said, "shm-exhausted", Confidence.POSSIBLE, cite, [remedy])
    else:
        yield Check("shared-memory", TOPIC, Status.OK, text, supports=cite)


def _memory(memory: Reading | None) -> Iterator[Check]:
    if memory is None or not memory.mem_total or memory.mem_available is None:
        yield Check("free-memory", TOPIC, Status.UNKNOWN, "how much memory is free could not be read")
        return
    total, free = memory.mem_total, memory.mem_available
    cite = [Cite("meminfo", "/proc/meminfo", f"MemAvailable {free} of MemTotal {total} bytes")]
    yield _room("free-memory", "memory of this machine", free, total, "host-oom", cite)
    group = _tightest(memory.groups, total)
    if group is not None:
        limit, left = _limit(group), _left(group)
        cite = [Cite("cgroup", group.path, f"{group.usage} of {limit} bytes used")]
        yield _room("free-memory-of-group", f"memory of {group.path}", left, limit, "cgroup-oom", cite)


def _room(name: str, of: str, free: int, total: int, cause: str, cite: list[Cite]) -> Check:
    share = free / total
    said = f"{size_text(free)} of {size_text(total)} {of} is free ({share:.0%})"
    if share >= FREE_MEMORY:
        return Check(name, TOPIC, Status.OK, said, supports=cite)
    return Check(
        name,
        TOPIC,
        Status.FAIL,
        f"{said}: a run should begin with {FREE_MEMORY:.0%}",
        cause,
        Confidence.POSSIBLE,
        cite,
        [Remedy("See who holds it, and end what is left over", "ps aux --sort=-rss | head")],
    )


def _tightest(groups: Sequence[GroupReading], total: int) -> GroupReading | None:
    """The group with the least room among those whose limit is below the machine's memory."""
    limited = [one for one in groups if one.usage is not None and 0 < _limit(one) < total]
    return min(limited, key=lambda one: _left(one) / _limit(one), default=None)


def _limit(group: GroupReading) -> int:
    return group.limit or 0


def _left(group: GroupReading) -> int:
    """Page cache is given back before anybody is killed; memory in shared files (shmem) is not."""
    cache = max(0, (group.file or 0) - (group.shmem or 0))
    return max(0, _limit(group) - max(0, (group.usage or 0) - cache))


def _limits(machine: Machine) -> Iterator[Check]:
    if not machine.limits:
        yield Check("limits", TOPIC, Status.UNKNOWN, "the limits of this process could not be read")
        return
    troubles = 0
    for check in _low(machine):
        troubles += 1
        yield check
    if not troubles:
        said = ", ".join(
            f"{limit.name} {_amount(limit)}"
            for name in ("nofile", "nproc", "memlock", "stack")
            if (limit := machine.limit(name))
        )
        yield Check("limits", TOPIC, Status.OK, said)


def _low(machine: Machine) -> Iterator[Check]:
    files, processes, locked, stack = (machine.limit(name) for name in ("nofile", "nproc", "memlock", "stack"))
    if files and files.soft is not None and files.soft < FILES:
        said = f"{files.soft} open files at most: DataLoader workers and sockets of many ranks need more"
        wanted = min(65536, files.hard) if files.hard is not None else 65536
        yield _limit_check("open-files", said, files, f"ulimit -n {wanted}")
    if processes and processes.soft is not None and processes.soft < PROCESSES:
        said = f"{processes.soft} processes and threads of this user at most: every rank starts dozens"
        yield _limit_check("processes", said, processes, "ulimit -u unlimited")
    if machine.infiniband and locked and locked.soft is not None:
        said = (
            f"{size_text(locked.soft)} may be locked, and {machine.infiniband[0]} needs locked memory: NCCL over "
            "InfiniBand fails with ibv_reg_mr errors"
        )
        yield _limit_check("locked-memory", said, locked, "docker run --ulimit memlock=-1 ...")
    if stack and stack.soft is not None and stack.soft < STACK:
        said = f"the main thread's stack ends at {size_text(stack.soft)}"
        yield _limit_check("stack-size", said, stack, "ulimit -s 8192")


def _limit_check(name: str, said: str, limit: Limit, command: str) -> Check:
    cite = Cite("limits", f"/proc/self/limits {limit.name}", f"soft {limit.soft}, hard {limit.hard or 'unlimited'}")
    return Check(
        name, TOPIC, Status.WARN, said, supports=[cite], remedies=[Remedy("Raise it before the job starts", command)]
    )


def _amount(limit: Limit) -> str:
    if limit.soft is None:
        return "unlimited"
    return size_text(limit.soft) if limit.name in ("memlock", "stack") else str(limit.soft)


def disk_room(place: Place) -> Iterator[Check]:
    """Room where checkpoints and records go. A place that does not answer is the business of `data.py`."""
    if place.free is None or not place.size:
        return
    where = place.existing or place.path
    share = place.free / place.size
    said = f"{size_text(place.free)} of {size_text(place.size)} free at {where}"
    cite = [Cite("disk", f"statvfs {where}", f"{place.free} of {place.size} bytes free")]
    no_files = bool(place.files) and place.files_free is not None and place.files_free < 100
    if place.free < DISK_SCARCE or no_files:
        said = f"{said}, and no room for more files (inodes)" if no_files else f"{said}: no room for a checkpoint"
        status = Status.FAIL
    elif share < DISK_LOW and place.free < DISK_ENOUGH:
        status = Status.WARN
    else:
        yield Check("disk-room", TOPIC, Status.OK, said, supports=cite)
        return
    remedy = Remedy("Free some room, or write elsewhere", f"du -xh --max-depth=1 {shlex.quote(where)} | sort -h | tail")
    yield Check("disk-room", TOPIC, status, said, supports=cite, remedies=[remedy])
