"""A death while it is put together, and the index by which the next trace finds it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ftforensics.diagnose.matching import other_machine
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Outside
from ftforensics.model.exception import ExceptionRecord
from ftforensics.model.launcher import ExceptionSeen, NativeText
from ftforensics.model.moment import Moment
from ftforensics.model.ring import Ring
from ftforensics.model.run import Usage
from ftforensics.parsers.cgroup_path import ancestry, container_id, memory_path

MOST_ALIKE = 64  # drafts of one number: no job gives its numbers out again so often, a log that says so is made up


@dataclass(eq=False)
class Draft:
    """One process's end, as far as it is known. Whoever learns a pid, a rank or a local rank tells `Drafts.learnt`.

    presumed: `signal` and `code` are what the process itself saw coming, and a wait status that says otherwise counts
    more; told_by: logs that name it."""

    pid: int | None = None
    nspid: list[int] = field(default_factory=list)
    start_ticks: int | None = None
    ppid: int | None = None
    host: str | None = None
    boot_id: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    attempt: int | None = None
    worker_of: int | None = None
    worker: bool = False
    comms: list[str] = field(default_factory=list)
    uid: int | None = None
    initial: bool | None = None
    container: str | None = None
    groups: list[str] = field(default_factory=list)
    signal: int | None = None
    code: int | None = None
    presumed: bool = False
    ending: list[Cite] = field(default_factory=list)
    given: bool = False
    watched: bool = False
    when: Moment = field(default_factory=Moment)
    failed: Moment = field(default_factory=Moment)
    earliest: Moment = field(default_factory=Moment)
    wall: float | None = None
    told_wall: float | None = None
    told_day: float | None = None
    between: tuple[int, int] | None = None  # pids of its launcher and of the last sibling, where its own is not named
    usage: Usage | None = None
    crash: Crash | None = None
    ring: Ring | None = None
    ring_path: str | None = None
    raised: ExceptionRecord | None = None
    raised_path: str | None = None
    alive: bool = False
    ended_by: list[Outside] = field(default_factory=list)
    exceptions: list[ExceptionSeen] = field(default_factory=list)
    unowned: list[ExceptionSeen] = field(default_factory=list)
    texts: list[NativeText] = field(default_factory=list)
    first: bool = False
    direct: bool = False
    traced: bool = False
    run: str | None = None
    run_group: str | None = None
    from_kernel: bool = False
    cpu_soft: int | None = None
    cpu_hard: int | None = None
    gaps: list[Gap] = field(default_factory=list)
    told_by: set[str] = field(default_factory=set)

    @property
    def observed(self) -> bool:
        """Did the process itself, or a supervisor that saw it, leave a trace?"""
        return self.crash is not None or self.ring is not None or self.raised is not None or self.watched

    @property
    def open(self) -> bool:
        """Nobody has said yet how it ended."""
        return self.signal is None and self.code is None

    @property
    def untimed(self) -> bool:
        return self.when.realtime is None and self.when.monotonic is None

    def names(self, *names: str | None) -> None:
        self.comms += [name for name in names if name and name not in self.comms]

    def place(self, lines: Sequence[str]) -> None:
        """lines: of /proc/pid/cgroup."""
        path = memory_path(lines)
        if path is not None:
            self.groups = ancestry(path)
            self.container = self.container or container_id(path)

    def is_pid(self, pid: int) -> bool:
        return pid == self.pid or pid in self.nspid

    def may_be_of(self, host: str | None, boot_id: str | None) -> bool:
        """False where it is known to be of another machine, or of another boot of this one."""
        if self.boot_id is not None and boot_id is not None:
            return self.boot_id == boot_id
        return not other_machine(self.host, host)

    def contradict(self, signal: int | None, code: int | None, source: str) -> None:
        """A wait status counts more than what the process saw coming; that they differ is said."""
        if not self.presumed or (signal, code) == (None, None) or (signal, code) == (self.signal, self.code):
            return
        expected = f"signal {self.signal}" if self.signal is not None else f"status {self.code}"
        found = f"signal {signal}" if signal is not None else f"status {code}"
        why = f"by its own record it was to end with {expected}; {source} says that it ended with {found}"
        self.gaps.append(Gap("exception" if self.raised is not None else "ring", why))
        self.signal, self.code, self.ending, self.presumed = None, None, [], False


class Drafts:
    """All drafts in the order in which they were found, and where to find those of a pid, a rank or a local rank."""

    def __init__(self, drafts: Iterable[Draft] = ()) -> None:
        self._all: dict[int, Draft] = {}  # by id(): a draft is removed where it turns out to be no death
        self._pids: dict[int, dict[int, Draft]] = {}
        self._ranks: dict[int, dict[int, Draft]] = {}
        self._local_ranks: dict[int, dict[int, Draft]] = {}
        for draft in drafts:
            self.add(draft)

    def __iter__(self) -> Iterator[Draft]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def add(self, draft: Draft) -> Draft:
        self._all[id(draft)] = draft
        return self.learnt(draft)

    def learnt(self, draft: Draft) -> Draft:
        for pid in (draft.pid, *draft.nspid):
            if pid is not None:
                self._pids.setdefault(pid, {})[id(draft)] = draft
        if draft.rank is not None:
            self._ranks.setdefault(draft.rank, {})[id(draft)] = draft
        if draft.local_rank is not None:
            self._local_ranks.setdefault(draft.local_rank, {})[id(draft)] = draft
        return draft

    def remove(self, draft: Draft) -> None:
        del self._all[id(draft)]
        for index in (self._pids, self._ranks, self._local_ranks):
            for key in self._keys_of(draft, index):
                index.get(key, {}).pop(id(draft), None)

    def _keys_of(self, draft: Draft, index: dict[int, dict[int, Draft]]) -> list[int]:
        if index is self._pids:
            return [pid for pid in (draft.pid, *draft.nspid) if pid is not None]
        key = draft.rank if index is self._ranks else draft.local_rank
        return [] if key is None else [key]

    def of_pid(self, pid: int | None) -> list[Draft]:
        return [] if pid is None else [draft for draft in self._pids.get(pid, {}).values() if draft.is_pid(pid)]

    def of_rank(self, rank: int | None) -> list[Draft]:
        """The processes of that rank but for its data workers, whose environment names it too."""
        if rank is None:
            return []
        own = [draft for draft in self._ranks.get(rank, {}).values() if draft.rank == rank and not draft.worker]
        return [draft for draft in own if draft.worker_of is None] or own

    def of_local_rank(self, local_rank: int | None) -> list[Draft]:
        if local_rank is None:
            return []
        fitting = self._local_ranks.get(local_rank, {}).values()
        return [draft for draft in fitting if draft.local_rank == local_rank and not draft.worker]

    def same_process(
        self, pid: int | None, start_ticks: int | None, host: str | None, boot_id: str | None
    ) -> Draft | None:
        """The draft of this very process: same number, start and boot, as far as both sides know them. The same start,
        and then the same boot, says more than that nothing speaks against it."""
        able = [draft for draft in self.of_pid(pid) if draft.may_be_of(host, boot_id)]
        same = [draft for draft in able if start_ticks is not None and draft.start_ticks == start_ticks]
        able = same or [draft for draft in able if None in (draft.start_ticks, start_ticks)]
        return max(able, key=lambda draft: boot_id is not None and draft.boot_id == boot_id, default=None)
