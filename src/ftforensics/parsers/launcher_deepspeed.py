"""DeepSpeed's launcher (deepspeed/launcher/launch.py), and torch.distributed.launch before 1.9, from which it came.

Its shutdown is called `sigkill_handler` and says "Killing subprocess" of every rank, whatever had happened and to the
dead one too: that is no evidence of a SIGKILL. Only "exits with return code" names a status, without a pid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftforensics.model.launcher import LauncherEvent, ProcessDied, ProcessStarted, SignalledBy
from ftforensics.parsers.launcher_line import JobLine, signal_and_code

_STARTED = re.compile(r"process (\d{1,10}) spawned with command: (\[.*)$")
_KILLING = re.compile(r"^(?P<tag>.{0,300}?\[launch\.py:\d+:sigkill_handler\] )?Killing subprocess (\d{1,10})\s*$")
_EXITS = re.compile(r"(\[.*\]) exits with return code = (-?\d{1,5})\s*$")
# What pdsh puts before a node's lines ("worker-1: ") stands before the logger's stamp.
_HEAD = re.compile(r"^(?P<node>.{0,260}?)\[\d{4}-\d\d-\d\d [\d:,.]{8,12}\] \[[A-Z]+\] (?:\[launch\.py:\d+:\w+\] )?")
_LOCAL_RANK = re.compile(r"'--local[_-]rank(?:=|', ')(\d{1,6})'")
_NODES = re.compile(r"nnodes=(\d{1,6}), num_local_procs=(\d{1,6}), node_rank=(\d{1,6})")
_MOST_COMMANDS = 4096


class DeepspeedReader:
    anchors = (
        " spawned with command: ",
        "Killing subprocess ",
        " exits with return code = ",
        "WORLD INFO DICT",
        "nnodes=",
    )
    open = False  # a line says all; what is remembered changes only at lines with an anchor

    def __init__(self) -> None:
        # Of the present launch, by node and command, which is as long as a person likes.
        self._started: dict[tuple[str, int], list[ProcessStarted]] = {}
        self._nodes: int | None = None

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        head = _HEAD.match(line.text) if "] [" in line.text[:400] else None
        node = f"{line.label}{head['node']}" if head else line.label
        text = line.text[head.end() :] if head else line.text
        if "WORLD INFO DICT" in text:  # the launcher's first own line on a node
            self._started = {key: pids for key, pids in self._started.items() if key[0] != node}
        nodes = _NODES.search(text)
        if nodes:
            self._nodes = int(nodes[1])
        started = _STARTED.search(text)
        if started:
            yield self._remembered(line, node, int(started[1]), started[2].strip())
            return
        killing = _KILLING.match(line.text)
        if killing:
            launcher = "deepspeed" if killing["tag"] else "torch.distributed.launch"
            yield SignalledBy(line.cited(), launcher, int(killing[2]), also_dead=True)
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
        if len(self._started) < _MOST_COMMANDS:
            self._started.setdefault((node, hash(command)), []).append(event)
        return event

    def _exited(self, line: JobLine, node: str, command: str, exitcode: int) -> ProcessDied:
        # Without --local_rank all commands are alike (--no_local_rank): then no pid is better than a guessed one.
        same = self._started.get((node, hash(command)), [])
        started = same[0] if len(same) == 1 else None
        named = _LOCAL_RANK.search(command)
        signal, code = signal_and_code(exitcode)
        return ProcessDied(
            line=line.cited_end(),
            launcher="deepspeed",
            pid=started.pid if started else None,
            rank=started.rank if started else None,
            local_rank=int(named[1]) if named else None,
            signal=signal,
            code=code,
            first=True,  # the first that it polled
            command=command[:1000],
        )
