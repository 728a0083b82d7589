"""Every process below the command: who it is, while that can still be asked.

After its death a process has no command line, no environment and (version 1) no control group any more, so all of that
is read when it is discovered and once in a while. Discovery is by the kernel's events where they can be had, else by
looking at the pids of /proc that are new since the last look."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ftforensics.capture import environment, procfs, torchrun_summary
from ftforensics.capture.redact import redact_arguments
from ftforensics.parsers import proc_text
from ftforensics.supervise import linux

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftforensics.capture.identity import Value

_MAX_ARGUMENTS = 100
_MAX_ARGUMENT = 1024
_MOST_KEPT = 100_000
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Process:
    """One descendant. pidfd: open when its death is to be seen by poll (no events and not our own child, or one that
    torchrun asks for); attempt: torchrun's restart count; reply: the file in which torchrun looks for its last words,
    of a process that torchrun itself has started and for which we may write them."""

    def __init__(self, pid: int, parent: int, start: int | None) -> None:
        self.pid = pid
        self.parent = parent
        self.start = start
        self.comm: str | None = None
        self.argv: list[str] = []
        self.uid: int | None = None
        self.rank: int | None = None
        self.local_rank: int | None = None
        self.attempt: int | None = None
        self.reply: str | None = None
        self.cgroup: list[str] = []
        self.nspid: list[int] = []
        self.cpu_limit: list[int] = []
        self.last_rss: int | None = None
        self.pidfd: int | None = None
        self.ended: float | None = None  # told by an event; the wait status of our own child is still to come
        self.status: int | None = None  # as waitpid(2), of a zombie that its parent has not reaped yet

    def look(self) -> None:
        """What changes: name, parent, memory, control group."""
        stat = _stat(self.pid)
        if stat is None:
            return
        comm, state, parent, start, status = stat
        if self.start is not None and start != self.start:
            return  # another process under its pid
        self.start = start
        self.comm = comm
        if parent:
            self.parent = parent
        if state in ("Z", "X"):
            self.status = status
            return
        memory = procfs.read_text(f"/proc/{self.pid}/statm", 256)
        if memory and len(memory.split()) > 1:
            # Zero once its memory has been given back: that says nothing about before.
            self.last_rss = int(memory.split()[1]) * _PAGE or self.last_rss
        lines = (procfs.read_text(f"/proc/{self.pid}/cgroup") or "").splitlines()
        # Version 1 says "/" for every hierarchy once a process is exiting (kernel/cgroup/cgroup.c, proc_cgroup_show).
        if lines and (not self.cgroup or not all(line.endswith(":/") for line in lines)):
            self.cgroup = lines

    def identify(self) -> None:
        """What is asked once, and again after an exec."""
        self.look()
        arguments = procfs.read_text(f"/proc/{self.pid}/cmdline", 1 << 18)
        if arguments:
            self.argv = shown(arguments.rstrip("\0").split("\0"))
        status = proc_text.status(procfs.read_text(f"/proc/{self.pid}/status", 16384) or "")
        if status.uid is not None:
            self.uid, self.nspid = status.uid, list(status.nspid)
        block = procfs.read_text(f"/proc/{self.pid}/environ", 1 << 20)
        if block:
            variables = proc_text.variables(block)
            self.rank = environment.rank(variables)
            self.local_rank = environment.local_rank(variables)
            self.attempt = _attempt(variables)
            self.reply = self._reply_file(variables)
        limits = procfs.read_text(f"/proc/{self.pid}/limits", 8192)
        if limits:
            self.cpu_limit = proc_text.cpu_limit(limits)

    def _reply_file(self, variables: Mapping[str, str]) -> str | None:
        path = torchrun_summary.error_file(variables)
        if path is None or self.uid != os.geteuid():
            return None
        if not torchrun_summary.is_the_rank(path, self.pid) or not _sees_our_files(self.pid):
            return None
        place = torchrun_summary.where_torchrun_looks(path, self.pid)
        return place if place.startswith("/") else None

    def watch(self) -> int:
        """A descriptor that polls readable at its end (man 2 pidfd_open, Linux 5.3). Raises OSError."""
        self.pidfd = os.pidfd_open(self.pid)
        return self.pidfd

    def members(self) -> dict[str, Value]:
        """For the line `died`."""
        return {
            "pid": self.pid,
            "ppid": self.parent,
            "start_ticks": self.start,
            "comm": self.comm,
            "argv": self.argv,
            "uid": self.uid,
            "rank": self.rank,
            "local_rank": self.local_rank,
            "cgroup": self.cgroup,
            "nspid": self.nspid,
            "cpu_limit": self.cpu_limit,
            "last_rss": self.last_rss,
            **({} if self.attempt is None else {"attempt": self.attempt}),
        }


class Descendants:
    """The living ones. own: pids of our helpers, which are nobody's business."""

    def __init__(self, root: int, own: Iterable[int]) -> None:
        self.living: dict[int, Process] = {}
        self._root = root
        self._own = set(own)
        self._foreign: set[int] = set()

    def leave_out(self, pid: int) -> None:
        """One more helper of ours."""
        self._own.add(pid)

    def add(self, pid: int, parent: int) -> Process | None:
        """A process that is known to be ours. None for a helper."""
        if pid in self._own or len(self.living) > _MOST_KEPT:
            return None
        stat = _stat(pid)
        process = self.living.get(pid)
        if process is not None and (stat is None or process.start == stat.start):
            return process
        process = self.living[pid] = Process(pid, parent, stat.start if stat else None)
        process.comm = stat.comm if stat else None
        return process

    def __contains__(self, pid: object) -> bool:
        """Is it one of ours, the supervisor included?"""
        return pid in self.living or pid == self._root

    def remove(self, pid: int) -> Process | None:
        process = self.living.pop(pid, None)
        if process is not None and process.pidfd is not None:
            os.close(process.pidfd)
            process.pidfd = None
        return process

    def discover(self) -> list[Process]:
        """New ones, by looking at the pids that were not there before."""
        try:
            present = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        except OSError:
            return []
        self._foreign &= present
        parents: dict[int, int] = {}
        for pid in present - self._foreign - self.living.keys() - self._own - {self._root}:
            stat = _stat(pid)
            if stat is not None:
                parents[pid] = stat.parent
        found: list[Process] = []
        # A parent may be as new as its child: as long as somebody new is tied to us, look again.
        while True:
            ours = [pid for pid, parent in parents.items() if parent in self]
            if not ours:
                break
            for pid in ours:
                process = self.add(pid, parents.pop(pid))
                if process is not None:
                    found.append(process)
        self._foreign |= parents.keys()
        return found

    def look(self) -> None:
        for process in list(self.living.values()):
            process.look()


def shown(arguments: Sequence[str]) -> list[str]:
    """A command line as it may be written: without secrets, and bounded, for there may be thousands."""
    redacted = redact_arguments([word[: 2 * _MAX_ARGUMENT] for word in arguments[:_MAX_ARGUMENTS]])
    return [word[:_MAX_ARGUMENT] for word in redacted]


def _attempt(variables: Mapping[str, str]) -> int | None:
    count = variables.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else None


def _sees_our_files(pid: int) -> bool:
    """Is it in our mount namespace, below our root? Elsewhere a path of its own means another file."""
    try:
        theirs, ours = os.stat(f"/proc/{pid}/root"), os.stat("/")
        same_root = (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
        return same_root and os.stat(f"/proc/{pid}/ns/mnt").st_ino == linux.namespace("mnt")
    except OSError:
        return False


def _stat(pid: int) -> proc_text.Stat | None:
    text = procfs.read_text(f"/proc/{pid}/stat", 4096)
    return None if text is None else proc_text.stat(text)


def orphans(living: Iterable[Process]) -> list[Process]:
    """Those that still run, zombies left out."""
    alive = []
    for process in living:
        stat = _stat(process.pid)
        if stat is not None and stat.state not in ("Z", "X") and stat.start == process.start:
            alive.append(process)
    return alive
