"""Reads a flight recorder's ring, whole or cut or damaged, from a dead process or from one that goes on writing.

csrc/ftf_ring.h is where the format is explained. What is stated here is the same table, for reading: a header of fixed
fields, a table of sections, and sections that are rings of slots. A slot counts when the number at its beginning equals
the one at its end; the highest number is the newest. Nothing here raises on bad input: what cannot be used is left out,
and a `Gap` says so.
"""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.crash import Sender
from ftforensics.model.moment import Moment
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.model.ring import (
    ChildUse,
    ClockPair,
    FastSample,
    Ring,
    RingEnd,
    RingMark,
    RingProcess,
    RingSignal,
    SlowSample,
)

MAGIC = b"FTFRING\0"
VERSION = 1

_HEADER = struct.Struct("<8s I I Q 24s i i Q i i I I q q q Q Q Q Q 40s q q q q I I q I I")
_TABLE = struct.Struct("<Q I I")
_TEXT = struct.Struct("<Q q I 4x")
_STEP = struct.Struct("<Q q q Q")
_FAST = struct.Struct("<Q q 5Q Q")
_SLOW = struct.Struct("<Q q q q Q Q Q q Q Q Q Q Q Q 4Q Q Q Q Q i I I I")
_CHILD = struct.Struct("<i 4x Q 16s")
_GROUP = struct.Struct("<16Q")
_SIGNAL = struct.Struct("<Q q i i i I I I Q Q")
_MARK = struct.Struct("<Q q I I q 8x 208s Q")
_NUMBER = struct.Struct("<Q")

_JOB, _PROCESS, _THREADS, _PHASE, _NOTE, _STEPS, _FASTS, _SLOWS, _SIGNALS, _MARKS = range(10)
_NAMES = ("job", "process", "threads", "phase", "note", "step", "fast", "slow", "signals", "marks")
_CHILDREN, _GROUPS = 8, 10
_SLOW_SIZE = _SLOW.size + _CHILDREN * _CHILD.size + _GROUPS * _GROUP.size + _NUMBER.size
_SMALLEST = (32, 32, 32, 32, 32, _STEP.size, _FAST.size, _SLOW_SIZE, _SIGNAL.size, _MARK.size)
_UNKNOWN, _UNLIMITED = (1 << 64) - 1, (1 << 64) - 2
_NO_SCORE = (1 << 63) - 1
_HOW = {1: "exit", 2: "crash", 3: "exec", 4: "uninstall"}
_TROUBLE = {1: "a write to the ring's file failed"}
_KINDS = {1: "phase", 2: "step", 3: "note"}


class NotARing(msgspec.Struct, frozen=True):
    """Empty, cut inside its header, somebody else's, or of another version. why: half a sentence, no full stop."""

    why: str

    @property
    def message(self) -> str:
        return f"not a recorder ring: {self.why}"


def looks_like_a_ring(head: bytes) -> bool:
    """Whether a file that begins so is one of ours, readable or not."""
    return head.startswith(MAGIC)


def read_ring(data: bytes, name: str = "ring") -> Ring | NotARing:
    """The ring in `data`. name: of the file, for the locators of what it says ("rank3.ring slow[12]")."""
    if not data.strip(b"\0"):
        return NotARing("the file is empty")
    if not data.startswith(MAGIC):
        return NotARing("it does not begin as one")
    if len(data) < _HEADER.size:
        return NotARing("it is cut inside its header")
    return _Reader(data, name).ring()


class _Reader:
    """One pass over one file; collects gaps on the way."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self.gaps: list[Gap] = []

    def ring(self) -> Ring | NotARing:
        (
            _, version, _, file_size, tool, pid, ppid, start_ticks, fork_of, worker_of, uid, end_code, rank,
            local_rank, world_size, pid_namespace, cgroup_namespace, cpu_soft, cpu_hard, boot_id, installed, realtime,
            monotonic, boottime, period, how, end_at, trouble, sections,
        ) = _HEADER.unpack_from(self.data)  # fmt: skip
        if version != VERSION:
            return NotARing(f"it is of version {version}, this ftforensics reads {VERSION}: upgrade it")
        if len(self.data) < file_size:
            self._gap(f"cut: {len(self.data)} of {file_size} bytes")
        self.table = self._table(sections)
        job = self._fields(_JOB)
        chains, own = self._process_texts()
        boot = _zero_terminated(boot_id) or None
        attempt = _first(job, "attempt")
        process = RingProcess(
            pid=pid,
            start_ticks=start_ticks or None,
            ppid=ppid if ppid > 0 else None,
            nspid=[int(word) for word in _first(own, "nspid").split() if word.isascii() and word.isdigit()],
            uid=uid,
            comm=_first(own, "comm") or None,
            exe=_first(job, "exe") or None,
            argv=_all(job, "argv"),
            host=_first(job, "host") or None,
            boot_id=boot,
            rank=rank if rank >= 0 else None,
            local_rank=local_rank if local_rank >= 0 else None,
            world_size=world_size if world_size > 0 else None,
            attempt=int(attempt) if attempt.isascii() and attempt.isdigit() and len(attempt) < 10 else None,
            fork_of=fork_of or None,
            worker_of=worker_of or None,
            cgroup=_all(own, "cgroup"),
            container=_first(job, "container") or None,
            pid_namespace=pid_namespace or None,
            cgroup_namespace=cgroup_namespace or None,
            uid_map=_all(own, "uid_map"),
            cpu_limit_soft=_known(cpu_soft),
            cpu_limit_hard=_known(cpu_hard),
        )
        fast = [_fast(self.data, at) for at in self._slots(_FASTS)]
        slow, last_clocks = self._slow(chains, boot)
        phase = self._text(_PHASE)
        note = self._text(_NOTE)
        clocks = [ClockPair(_seconds(realtime), _seconds(monotonic), _seconds(boottime))]
        if last_clocks is not None:
            clocks.append(last_clocks)
        sampled = [sample.at for sample in fast[-1:]] + [sample.at for sample in slow[-1:]]
        return Ring(
            process=process,
            clocks=clocks,
            installed=_seconds(installed) if installed else None,
            last=max(sampled, default=None),
            period=period / 1e6,
            fast=fast,
            slow=slow,
            signals=[_signal(self.data, at) for at in self._slots(_SIGNALS)],
            marks=[mark for at in self._slots(_MARKS) if (mark := _mark(self.data, at)) is not None],
            phase=phase[1] or None if phase else None,
            phase_since=phase[0] if phase and phase[1] else None,
            step=self._step(),
            note=note[1] or None if note else None,
            thread_names=_all(self._fields(_THREADS), "name"),
            end=RingEnd(
                _HOW.get(how),
                _seconds(end_at) if how in _HOW and end_at else None,
                end_code if _HOW.get(how) == "exit" and 0 < end_code < 256 else None,
                recorder=_TROUBLE.get(trouble),
            ),
            version=_zero_terminated(tool) or None,
            gaps=self.gaps,
        )

    def _gap(self, why: str) -> None:
        self.gaps.append(Gap(self.name, why))

    def _table(self, sections: int) -> list[tuple[int, int, int, int]]:
        """(offset, slot size, slots, slots in the file) of each section; zeros for what is not usable."""
        found: list[tuple[int, int, int, int]] = []
        for index, smallest in enumerate(_SMALLEST):
            at = _HEADER.size + index * _TABLE.size
            entry = (0, 0, 0, 0)
            if index < sections and at + _TABLE.size <= len(self.data):
                offset, slot, count = _TABLE.unpack_from(self.data, at)
                fitting = index > _NOTE and slot == smallest
                texts = index <= _NOTE and slot >= smallest
                if fitting or texts:
                    whole = max(0, (len(self.data) - offset) // slot)
                    entry = (offset, slot, count, min(count, whole))
                    if whole < count:
                        self._gap(f"{_NAMES[index]}: {entry[3]} of {count} slots are in the file")
                else:
                    self._gap(f"{_NAMES[index]}: slots of {slot} bytes")
            else:
                self._gap(f"{_NAMES[index]}: not in the table")
            found.append(entry)
        return found

    def _slots(self, section: int) -> list[int]:
        """Offsets of the whole slots of a section, oldest first. One slot may always be in the making."""
        offset, slot, count, present = self.table[section]
        whole: list[tuple[int, int]] = []
        torn = 0
        for index in range(present):
            at = offset + index * slot
            (number,) = _NUMBER.unpack_from(self.data, at)
            (check,) = _NUMBER.unpack_from(self.data, at + slot - _NUMBER.size)
            if number == check and number != 0 and (number - 1) % count == index:
                whole.append((number, at))
            elif number != 0 or check != 0:
                torn += 1
        if torn > 1:
            self._gap(f"{_NAMES[section]}: {torn} slots are damaged")
        return [at for _, at in sorted(whole)]

    def _texts(self, section: int) -> Iterator[tuple[float, str]]:
        slot = self.table[section][1]
        for at in self._slots(section):
            _, when, length = _TEXT.unpack_from(self.data, at)
            begin = at + _TEXT.size
            end = min(begin + length, at + slot - _NUMBER.size)
            yield _seconds(when), self.data[begin:end].decode("utf-8", "replace")

    def _text(self, section: int) -> tuple[float, str] | None:
        """The newest text with its time."""
        return next(reversed(list(self._texts(section))), None)

    def _fields(self, section: int) -> list[tuple[str, str]]:
        newest = self._text(section)
        return [] if newest is None else _fields(newest[1])

    def _process_texts(self) -> tuple[dict[int, list[tuple[int, str]]], list[tuple[str, str]]]:
        """The control groups of each chain number that is still told, and the newest text."""
        chains: dict[int, list[tuple[int, str]]] = {}
        fields: list[tuple[str, str]] = []
        for _, text in self._texts(_PROCESS):
            fields = _fields(text)
            number = _first(fields, "chain")
            if not (number.isascii() and number.isdigit() and len(number) < 10):
                continue
            groups = []
            for entry in _all(fields, "group"):
                version, _, path = entry.partition(":")
                groups.append((2 if version == "2" else 1, path))
            chains[int(number)] = groups
        return chains, fields

    def _slow(
        self, chains: dict[int, list[tuple[int, str]]], boot_id: str | None
    ) -> tuple[list[SlowSample], ClockPair | None]:
        samples: list[SlowSample] = []
        clocks: ClockPair | None = None
        nameless = False
        for index, at in enumerate(self._slots(_SLOWS)):
            (
                _, when, realtime, boottime, vm_size, swap, threads, score, cpu, children, children_rss, gpu_used,
                gpu_total, oom_kill, total, available, shmem, swap_free, psi_some, psi_full, shm_used, shm_size, ppid,
                chain, groups, listed,
            ) = _SLOW.unpack_from(self.data, at)  # fmt: skip
            names = chains.get(chain, [])
            nameless |= groups > 0 and not names
            moment = Moment(realtime=_seconds(realtime), monotonic=_seconds(when), boot_id=boot_id)
            clocks = ClockPair(_seconds(realtime), _seconds(when), _seconds(boottime))
            reading = Reading(
                moment=moment,
                source="ring",
                locator=f"{self.name} slow[{index}]",
                groups=[
                    _group(self.data, at, level, *names[level]) for level in range(min(groups, _GROUPS, len(names)))
                ],
                oom_kill=_known(oom_kill),
                mem_total=_known(total),
                mem_available=_known(available),
                mem_shmem=_known(shmem),
                swap_free=_known(swap_free),
                psi_some=_percent(psi_some),
                psi_full=_percent(psi_full),
                shm_used=_known(shm_used),
                shm_size=_known(shm_size),
            )
            samples.append(
                SlowSample(
                    at=_seconds(when),
                    reading=reading,
                    vm_size=_known(vm_size),
                    swap=_known(swap),
                    threads=_known(threads),
                    oom_score_adj=score if score != _NO_SCORE else None,
                    cpu_seconds=None if cpu >= _UNLIMITED else cpu / 1e9,
                    children=[_child(self.data, at, place) for place in range(min(listed, _CHILDREN))],
                    children_count=_known(children),
                    children_rss=_known(children_rss),
                    gpu_used=_known(gpu_used),
                    gpu_total=_known(gpu_total),
                    ppid=ppid if ppid > 0 else None,
                )
            )
        if nameless:
            self._gap("slow: names of control groups that the process has left are not kept")
        return samples, clocks

    def _step(self) -> int | None:
        slots = self._slots(_STEPS)
        if not slots:
            return None
        step: int = _STEP.unpack_from(self.data, slots[-1])[2]
        return step


def _fast(data: bytes, at: int) -> FastSample:
    _, when, anon, file, shmem, usage, available, _ = _FAST.unpack_from(data, at)
    return FastSample(_seconds(when), _known(anon), _known(file), _known(shmem), _known(usage), _known(available))


def _child(data: bytes, at: int, place: int) -> ChildUse:
    pid, rss, name = _CHILD.unpack_from(data, at + _SLOW.size + place * _CHILD.size)
    return ChildUse(pid, _zero_terminated(name) or None, _known(rss))


def _group(data: bytes, at: int, level: int, version: int, path: str) -> GroupReading:
    begin = at + _SLOW.size + _CHILDREN * _CHILD.size + level * _GROUP.size
    return _group_reading(data[begin : begin + _GROUP.size], version, path)


# A group that idles has the same counters in every sample, and in the samples of all ranks below it.
@lru_cache(maxsize=64)
def _group_reading(counters: bytes, version: int, path: str) -> GroupReading:
    values = _GROUP.unpack(counters)
    (
        usage, limit, high, peak, anon, file, shmem, swap, oom, oom_kill, oom_group_kill, local_oom, local_oom_kill,
        max_events, failcnt, inode,
    ) = (_known(value) for value in values)  # fmt: skip
    return GroupReading(
        path=path,
        version=version,
        usage=usage,
        limit=limit,
        high=high,
        peak=peak,
        anon=anon,
        file=file,
        shmem=shmem,
        swap=swap,
        oom=oom,
        oom_kill=oom_kill,
        oom_group_kill=oom_group_kill,
        local_oom=local_oom,
        local_oom_kill=local_oom_kill,
        max_events=max_events,
        failcnt=failcnt,
        inode=inode,
    )


def _signal(data: bytes, at: int) -> RingSignal:
    _, when, number, code, pid, uid, sent, fatal, _, _ = _SIGNAL.unpack_from(data, at)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return RingSignal(_seconds(when), name, number, Sender(pid, uid) if sent else None, code, bool(fatal))


def _mark(data: bytes, at: int) -> RingMark | None:
    _, when, kind, length, step, text, _ = _MARK.unpack_from(data, at)
    if kind not in _KINDS:
        return None
    said = str(step) if _KINDS[kind] == "step" else text[:length].decode("utf-8", "replace")
    return RingMark(_seconds(when), _KINDS[kind], said)


def _fields(text: str) -> list[tuple[str, str]]:
    """`key=value` entries, a zero byte behind each."""
    entries = (entry.partition("=") for entry in text.split("\0") if "=" in entry)
    return [(key, value) for key, _, value in entries]


def _all(fields: list[tuple[str, str]], key: str) -> list[str]:
    return [value for name, value in fields if name == key]


def _first(fields: list[tuple[str, str]], key: str) -> str:
    return next((value for name, value in fields if name == key), "")


def _zero_terminated(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "replace")


def _known(value: int) -> int | None:
    return None if value in (_UNKNOWN, _UNLIMITED) else value


def _percent(value: int) -> float | None:
    return None if value >= _UNLIMITED else value / 100


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / 1e9
