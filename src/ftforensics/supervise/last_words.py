"""What torchrun's own summary says of a rank that could say nothing itself: one killed, or one that just ended.

torchrun prints, for each rank that failed, what stands in a file that it has named for it (`capture.torchrun_summary`).
It looks at its ranks ten times a second (monitor_interval, torch/distributed/elastic/agent/server/api.py) and reads the
file in the moment in which it finds one dead. So this is a race: `run` is woken by the death itself, and what it writes
holds only what is certain by then. Who killed whom, and why, is the report's at the end.

Nothing is written of what torchrun did itself, over what is there already, for another user, or where the rank saw
other files than we do. The file is made by a process of its own: a file system that does not answer must not hold up
the supervisor.
"""

from __future__ import annotations

import os
import shlex
import signal
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ftforensics.capture import torchrun_summary
from ftforensics.capture.redact import redact
from ftforensics.parsers.kmsg_oom import OomVictims
from ftforensics.report.escape import printable, shortened
from ftforensics.supervise import linux, streams

if TYPE_CHECKING:
    from ftforensics.parsers.kmsg_oom import OomVictim
    from ftforensics.parsers.trace_pipe import SentLine
    from ftforensics.supervise.descendants import Descendants, Process

# Seconds that a crash may take to be recorded, and its core to be written: of two that end within it the later one may
# have been the first to fail.
_RECORDING = 1.0
_OWN_FAULTS = frozenset(
    {
        signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT,
    }
)  # fmt: skip
_MOST = 10_000  # files a run
_LONGEST_PATH = 300  # characters of a control group's path


class LastWords:
    """folder: the run folder, None when there is none. family: who is alive; only of those anything is remembered."""

    def __init__(self, folder: str | None, family: Descendants) -> None:
        self._folder = folder
        self._family = family
        self._victims = OomVictims()
        self._killed: dict[int, OomVictim] = {}
        self._sent: dict[int, dict[int, SentLine]] = {}  # by target and signal
        self._first: dict[tuple[int, int | None], tuple[float, str]] = {}  # failure of an agent's attempt: when, who
        self._inner: dict[int, tuple[int, str]] = {}  # of a rank that is a shell: what it ran, its signal and its end
        self._written = 0
        # The kernel's log and its trace name processes as the initial namespace does.
        self._same_pids = linux.namespace("pid") == linux.INITIAL_PID_NAMESPACE

    def logged(self, record: str) -> None:
        """A record of the kernel's log."""
        victim = self._victims.feed(record)
        if victim is not None and self._same_pids and victim.pid in self._family.living:
            self._killed[victim.pid] = victim

    def traced(self, line: SentLine) -> None:
        """A signal was sent. Of several the launcher's own counts, then another's: a process that notes a signal sends
        it to itself again."""
        target = self._family.living.get(line.target_tid)
        if line.result != 0 or not self._same_pids or target is None:
            return
        sent = self._sent.setdefault(target.pid, {})
        before = sent.get(line.signal)
        if before is None or _weight(target, before) <= _weight(target, line):
            sent[line.signal] = line

    def concern(self, process: Process) -> bool:
        """Does torchrun look for words of this process, or of the one that started it?"""
        parent = self._family.living.get(process.parent)
        return process.reply is not None or (parent is not None and parent.reply is not None)

    def died(self, process: Process, status: int | None, at: float) -> int | None:
        """It has ended; at: CLOCK_MONOTONIC. What was logged and traced before is known. Returns the pid of a process
        that writes, which the caller reaps."""
        oom = self._killed.get(process.pid)
        if status is None and oom is not None:
            status = int(signal.SIGKILL)
        number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0
        if not status:
            return None
        signals = self._sent.get(process.pid, {})
        sent, told_to_end = signals.get(number), signals.get(signal.SIGTERM)
        inner = self._inner.get(process.pid)
        end = ending(process.pid, status, oom, sent)
        if process.reply is None:
            if number:
                self._inner[process.parent] = number, f"{process.comm or 'process'} (pid {process.pid}) {end}"
            return None
        agent = (process.parent, process.attempt)
        begun = self._first.get(agent)
        if _by(agent[0], sent or told_to_end):
            return None  # torchrun says so itself
        if begun is not None and number and number not in _OWN_FAULTS and oom is None and sent is None:
            return None  # most likely torchrun's own doing: it ends the ranks that are left
        if inner is not None and not number and os.WEXITSTATUS(status) == 128 + inner[0]:  # as shells say it
            end += f", as its {inner[1]}"
        who = f"rank {process.rank} (pid {process.pid})" if process.rank is not None else f"pid {process.pid}"
        if begun is None:
            self._first[agent] = at, who
        elif number in _OWN_FAULTS and at - begun[0] < _RECORDING:
            end += f", within a second of the end of {begun[1]}"
        else:
            end += f", {max(0.0, at - begun[0]):.2f} s after {begun[1]} had ended"
        line = f"ftforensics: {who} {end}"
        if self._folder is not None:
            line += f"; whole report: ftforensics analyze {shlex.quote(self._folder)}"
        data = torchrun_summary.content(printable(redact(line)), "", self._second(at, begun))
        self._written += 1
        return _hand_over(process.reply, data) if self._written <= _MOST else None

    def forget(self, pid: int) -> None:
        """It is gone, and its number may be another's soon."""
        for about in (self._killed, self._sent, self._inner):
            about.pop(pid, None)

    @staticmethod
    def _second(at: float, begun: tuple[float, str] | None) -> float:
        """The time of a death since 1970, such that torchrun, which compares whole seconds, finds the first failure
        first: a later one of the same second is rounded up."""
        to_date = time.time() - time.monotonic()
        second = at + to_date
        if begun is not None and int(second) == int(begun[0] + to_date):
            second += 1
        return second


def ending(pid: int, status: int, oom: OomVictim | None, sent: SentLine | None) -> str:
    """What is certain of an end. status: as waitpid(2); oom, sent: what the kernel has logged and traced about it."""
    if not os.WIFSIGNALED(status):
        return f"ended itself with exit status {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number in _OWN_FAULTS and sent is None:
        return f"died of {name}"
    killed = f"was killed by {name}"
    if oom is not None and number == signal.SIGKILL:
        return f"{killed}: by the kernel's OOM killer{_limit(oom)}"
    if sent is None:
        return f"{killed}; who sent it is not known at this moment"
    if sent.code > 0:
        return f"{killed}, sent by the kernel"
    if sent.sender_pid == pid:
        return f"{killed}, sent by itself"
    return f"{killed}, sent by pid {sent.sender_pid or sent.sender_tid} ({sent.sender_comm})"


def _limit(oom: OomVictim) -> str:
    if oom.group is not None:
        return f", memory limit of {shortened(oom.group, _LONGEST_PATH)}"
    if oom.scope == "group":
        return ", memory limit of a control group"
    return ", no memory was left on this machine" if oom.scope == "machine" else ""


def _weight(target: Process, line: SentLine) -> int:
    return 2 if _by(target.parent, line) else int(line.sender_pid != target.pid)


def _by(agent: int, sent: SentLine | None) -> bool:
    return sent is not None and sent.code <= 0 and sent.sender_pid == agent


def _hand_over(path: str, data: bytes) -> int | None:
    """Have it written; the pid of who does. None when there can be no further process."""
    try:
        pid = os.fork()
    except OSError:
        return None
    if pid:
        return pid
    try:
        streams.keep_only([])
        if _is_ours(os.path.dirname(path)):
            torchrun_summary.write_new(path, data)
    finally:
        os._exit(0)


def _is_ours(folder: str) -> bool:
    """torchrun makes a folder for each rank. One that belongs to somebody else, or that others can write to, is none:
    the path comes from the job's environment."""
    with suppress(OSError):
        found = os.lstat(folder)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & stat.S_IWOTH
    return False
