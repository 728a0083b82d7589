"""Where a launcher starts the job, or starts it again, in one log: torchrun's restarts, scripts that append.

A wrong start would part the evidence of one death, so it needs one of these:

- torchrun's INFO lines: "1/3 attempts left; will restart worker group", or "restart_count=" with another count;
- at torchrun's usual level, where a restart prints nothing: the same agent (the pid in torch's prefix, 2.3 on) says
  "failed (exitcode: ...)" again, of a later pid, a second or more after the first. An agent says it once an attempt;
- a summary of ChildFailedError that names a rank which an earlier one had named, with another pid;
- what a launcher prints when it starts (torchrun about OMP_NUM_THREADS, accelerate about its defaults), after an end
  was seen or Slurm's requeueing; not within ten seconds of that end, where the times are known: then it may be another
  node's launcher of the same start, that came late; and DeepSpeed's first lines for a node that it had started before.

A job that only its script starts again (a loop around `python train.py`) leaves no such line, nor does a restart after
which nothing more fails: those are not told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ftforensics.model.launcher import AttemptBegan, LauncherEvent, ProcessDied, TextLine
from ftforensics.parsers.launcher_line import JobLine, glog_time

# torch/distributed/elastic/agent/server/api.py. "3/3 attempts left" stands before the first restart.
_LEFT = re.compile(r"Worker group [A-Z]+\. (\d{1,6})/(\d{1,6}) attempts left; will restart worker group")
_COUNT = re.compile(r"(?:^|\] )\s{1,4}restart_count=(\d{1,6})\s*$")
# torch/distributed/run.py; accelerate/commands/launch.py.
_BANNERS = {
    "Setting OMP_NUM_THREADS environment variable for each process to be": "torchrun",
    "The following values were not passed to `accelerate launch` and had defaults used instead:": "accelerate",
}
# deepspeed/launcher/launch.py
_NODE = re.compile(r"\[launch\.py:\d{1,6}:\w{1,40}\] nnodes=\d{1,6}, num_local_procs=\d{1,6}, node_rank=(\d{1,6})")
_REQUEUED = re.compile(r"\*\*\* JOB \S{1,60} ON \S{1,255} CANCELLED AT \S{1,40} DUE TO JOB REQUEUE \*\*\*")
_APART = 1.0  # seconds: a worker group needs longer to start, and two nodes fail together
_LATE = 10.0  # seconds between the starts of two nodes
_LONGEST = 20_000  # lines of a summary
_MOST = 4096


@dataclass
class _Failed:
    """What an agent said last about a failed worker group, and the line behind it."""

    number: int  # of the line
    pid: int
    at: float | None
    after: TextLine | None = None


class AttemptReader:
    anchors = (
        "attempts left; will restart worker group",
        "restart_count=",
        "failed (exitcode: ",
        *_BANNERS,
        "num_local_procs=",
        "DUE TO JOB REQUEUE",
    )

    def __init__(self) -> None:
        self._restart: int | None = None
        self._begun = 0  # line of the last start
        self._ended = False  # an end, or Slurm's requeueing, was seen since
        self._failed: dict[int, _Failed] = {}  # by the agent's pid
        self._waiting: list[_Failed] = []  # for the next line
        self._nodes: set[tuple[str, str]] = set()  # that DeepSpeed started since
        self._pids: dict[int, int] = {}  # of the ranks in the last summary
        self._behind: TextLine | None = None  # the line behind that summary
        self._summary = 0  # line number up to which the summary may go on
        self._closed = 0  # line that closed a summary, until the next
        self._ended_at: float | None = None

    @property
    def open(self) -> bool:
        return bool(self._waiting or self._summary or self._closed)

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        if self._waiting and line.number > self._waiting[0].number:
            for failed in self._waiting:
                failed.after = line.cited()
            self._waiting = []
        text = line.text[:4096]
        if self._closed and line.number > self._closed:
            self._behind, self._closed = line.cited(), 0
        if self._summary:
            bare = text.strip()
            if len(bare) >= 10 and not bare.strip("=*"):
                self._closed = line.number
            if self._closed or line.number > self._summary:
                self._summary = 0
        yield from self._of_torchrun(line, text)
        banner = next((launcher for words, launcher in _BANNERS.items() if words in text), None)
        if banner is not None and (self._begun == 0 or (self._ended and not self._soon(line))):
            yield self._began(line.cited(), banner, 0 if banner == "torchrun" else None)
        node = _NODE.search(text)
        if node:
            key = (line.label + text[: text.find("[")], node[1])
            if key in self._nodes or not self._nodes:
                yield self._began(line.cited(), "deepspeed", None)
            if len(self._nodes) < _MOST:
                self._nodes.add(key)
        if _REQUEUED.search(text):
            self._ended, self._ended_at = True, None

    def after(self, died: ProcessDied) -> Iterator[LauncherEvent]:
        """What another reader's event says about it: every end that was read is shown to this one."""
        self._ended = True
        if died.launcher != "torchrun" or died.rank is None or died.pid is None:
            return
        # A rank of the whole job: whichever node it is on, an attempt has one of it.
        before = self._pids.get(died.rank)
        if before is not None and before != died.pid:
            if self._behind is not None and self._behind.number > self._begun:
                yield self._began(self._behind, "torchrun", None)
            self._pids, self._behind = {}, None
            self._ended = True
        if len(self._pids) < _MOST:
            self._pids[died.rank] = died.pid
        self._summary = died.line.number + _LONGEST

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())

    def _began(self, line: TextLine, launcher: str, restart: int | None) -> AttemptBegan:
        self._restart, self._begun, self._ended = restart, line.number, False
        self._nodes = set()
        return AttemptBegan(line, launcher, restart)

    def _of_torchrun(self, line: JobLine, text: str) -> Iterator[LauncherEvent]:
        left = _LEFT.search(text)
        if left:
            restart = int(left[2]) - int(left[1]) + 1
            if self._restart is None or restart > self._restart:
                yield self._began(line.cited(), "torchrun", restart)
            return
        count = _COUNT.search(text)
        if count:
            restart = int(count[1])
            if self._begun == 0 or (self._restart is not None and restart > self._restart) or self._again(restart):
                yield self._began(line.cited(), "torchrun", restart)
            return
        if "failed (exitcode: " in text:
            yield from self._of_failed(line, text)

    def _soon(self, line: JobLine) -> bool:
        at = glog_time(line.text)
        return at is not None and self._ended_at is not None and 0 <= at - self._ended_at < _LATE

    def _again(self, restart: int) -> bool:
        """Is a count of 0 a new launch?"""
        return restart == 0 and self._ended

    def _of_failed(self, line: JobLine, text: str) -> Iterator[LauncherEvent]:
        writer, named = line.cited().writer, re.search(r"\(pid: (\d{1,10})\)", text)
        if writer is None or named is None:
            return
        now = _Failed(line.number, int(named[1]), glog_time(line.text))
        self._ended_at = now.at
        before = self._failed.get(writer)
        if before is not None and before.after is not None and before.at is not None and now.at is not None:
            restarted = now.pid > before.pid and now.at - before.at >= _APART
            if restarted and before.after.number > self._begun:
                yield self._began(before.after, "torchrun", None if self._restart is None else self._restart + 1)
                self._ended = True
        if len(self._failed) < _MOST or writer in self._failed:
            self._failed[writer] = now
            self._waiting.append(now)
