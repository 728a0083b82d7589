"""DeepSpeed's launcher (deepspeed/launcher/launch.py), and torch.distributed.launch before 1.9, from which it came.

Its shutdown is called `sigkill_handler` and says "Killing subprocess" of every rank, whatever had happened and to the
dead one too: that is no evidence of a SIGKILL. Only "exits with return code" names a status, without a pid. The command
in that line is no name either: it is the last one that was started, whoever died (launch.py, sigkill_handler: `cmd` is
what the loop that started them has left there; so from its first version to 0.19).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ftforensics.model.launcher import LauncherEvent, ProcessDied, ProcessStarted, SignalledBy
from ftforensics.parsers.launcher_line import JobLine, signal_and_code

_STARTED = re.compile(r"process (\d{1,10}) spawned with command: (\[.*)$")
_KILLING = re.compile(r"^(?P<tag>.{0,300}?\[launch\.py:\d+:sigkill_handler\] )?Killing subprocess (\d{1,10})\s*$")
_EXITS = re.compile(r"(\[.*\]) exits with return code = (-?\d{1,5})\s*$")
# What pdsh puts before a node's lines ("worker-1: ") stands before the logger's stamp.
_HEAD = re.compile(r"^(?P<node>.{0,260}?)\[\d{4}-\d\d-\d\d [\d:,.]{8,12}\] \[[A-Z]+\] (?:\[launch\.py:\d+:\w+\] )?")
_LOCAL_RANK = re.compile(r"'--local[_-]rank(?:=|', ')(\d{1,6})'")
_NODES = re.compile(r"nnodes=(\d{1,6}), num_local_procs=(\d{1,6}), node_rank=(\d{1,6})")
_DONE = re.compile(r"Process (\d{1,10}) exits successfully\.\s*$")
# Of a log that says more the rest is not remembered: then its last line names nobody.
_MOST_NODES = 4096
_MOST_PROCESSES = 128  # of a node


class _Started(NamedTuple):
    pid: int
    rank: int | None
    local_rank: int | None


@dataclass
class _Launch:
    """Of one node. count: of its processes, by its own word; well: pids of those that left well."""

    count: int | None = None
    started: list[_Started] = field(default_factory=list)
    well: set[int] = field(default_factory=set)

    @property
    def running(self) -> list[_Started]:
        """Empty where the log's beginning is not there: it may be others' that run."""
        if len(self.started) != self.count:
            return []
        return [one for one in self.started if one.pid not in self.well]


class DeepspeedReader:
    anchors = (
        " spawned with command: ",
        "Killing subprocess ",
        " exits with return code = ",
        " exits successfully.",
        "WORLD INFO DICT",
        "nnodes=",
    )
    open = False  # a line says all; what is remembered changes only at lines with an anchor

    def __init__(self) -> None:
        self._launches: dict[str, _Launch] = {}  # the present one, by node
        self._nodes: int | None = None

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        head = _HEAD.match(line.text) if "] [" in line.text[:400] else None
        node = f"{line.label}{head['node']}" if head else line.label
        text = line.text[head.end() :] if head else line.text
        if "WORLD INFO DICT" in text:  # the launcher's first own line on a node
            self._launches.pop(node, None)
        nodes = _NODES.search(text)
        if nodes:
            self._nodes, self._launch(node).count = int(nodes[1]), int(nodes[2])
        started = _STARTED.search(text)
        if started:
            yield self._remembered(line, node, int(started[1]), started[2].strip())
            return
        killing = _KILLING.match(line.text)
        if killing:
            launcher = "deepspeed" if killing["tag"] else "torch.distributed.launch"
            yield SignalledBy(line.cited(), launcher, int(killing[2]), also_dead=True)
            return
        done = _DONE.match(text)
        if done:
            launch, pid = self._launch(node), int(done[1])
            if any(one.pid == pid for one in launch.started):
                launch.well.add(pid)
            return
        exits = _EXITS.match(text)
        if exits:
            yield self._exited(line, node, exits[1], int(exits[2]))

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())

    def _remembered(self, line: JobLine, node: str, pid: int, command: str) -> ProcessStarted:
        named = _LOCAL_RANK.search(command)
        local_rank = int(named[1]) if named else None
        event = ProcessStarted(
            line=line.cited(),
            launcher="deepspeed",
            pid=pid,
            rank=local_rank if self._nodes == 1 else None,
            local_rank=local_rank,
            command=command[:1000],
        )
        launch = self._launch(node)
        if len(launch.started) < _MOST_PROCESSES:
            launch.started.append(_Started(pid, event.rank, event.local_rank))
        return event

    def _launch(self, node: str) -> _Launch:
        launch = self._launches.get(node) or _Launch()
        if len(self._launches) < _MOST_NODES:
            self._launches[node] = launch
        return launch

    def _exited(self, line: JobLine, node: str, command: str, exitcode: int) -> ProcessDied:
        running = self._launch(node).running
        only = running[0] if len(running) == 1 else None
        signal, code = signal_and_code(exitcode)
        return ProcessDied(
            line=line.cited_end(),
            launcher="deepspeed",
            pid=only.pid if only else None,
            rank=only.rank if only else None,
            local_rank=only.local_rank if only else None,
            signal=signal,
            code=code,
            first=True,  # the first that it polled
            command=command[:1000],
            one_of=[one.pid for one in running] if only is None else [],
        )
