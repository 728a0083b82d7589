"""Tracebacks in a job's log: Python's own, those of rich and IPython, exception groups, torchrun's summary.

A traceback is told apart by the label before its lines ("[rank0]: ", "[1]<stderr>:") or by whatever else stood before
its first line, so ranks that print at the same time do not mix; without labels what fits is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from ftforensics.model.exception import RaisedFrame
from ftforensics.model.launcher import ExceptionSeen, LauncherEvent
from ftforensics.parsers.launcher_dataloader import workers_of
from ftforensics.parsers.launcher_line import JobLine
from ftforensics.parsers.peer_lost import peers_of, says_peer_lost

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(.{0,2000})", line (\d{1,9})(?:, in (.{0,500}))?$')
# A class in a function is "f.<locals>.Error".
_LAST = re.compile(r"^((?:[A-Za-z_<][\w<>]*\.)*[A-Za-z_]\w*)(?::(?: (.*)|$)|$)")
# rich.traceback, which typer and many training scripts install: a frame of lines around the stack, the message below.
_BOXED = "Traceback (most recent call last)"
_BOX = ("╭", "┌", "+-")
_BOX_LINES = ("│", "╰", "└", "|", "+-")
_BOX_FRAME = re.compile(r"^[│|] (/.{0,2000}?):(\d{1,9}) in (\S{1,500})")
_ERROR_NAME = re.compile(r"(?:Error|Exception|Warning|Interrupt|Exit|Timeout|Expired|Aborted|Pool|Empty|Full|error)$")
# The launcher says with it what its summary says in full.
_SUMMARIES = frozenset({"ChildFailedError"})
# traceback.py, _cause_message and _context_message; sys.unraisablehook.
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception, another")
_IGNORED = "Exception ignored in"
_ANNOUNCING = frozenset({" ", "T", "D", "E"})
_MESSAGE = 2000
_FRAMES = 30  # kept at either end of a traceback
# Of a main program that does not compile Python prints no heading.
_HEADLESS = '  File "'
_HEADLESS_FRAME = re.compile(r'^  File "(.{1,2000})", line (\d{1,9})$')
_NO_SYNTAX = frozenset({"SyntaxError", "IndentationError", "TabError"})
# traceback.py of 3.11 and later: "  + Exception Group Traceback ...", its lines begin with "  | ".
_GROUP = "+ Exception Group "
# IPython's ultratb, up to version 9: a line of dashes, then type and heading in one line.
_NOTEBOOK = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*) {2,}Traceback \(most recent call last\)\s*$")
_NOTEBOOK_FRAME = re.compile(
    r"^(?:File (?P<file>.{1,2000}?):(?P<line>\d{1,9})(?:, in (?P<function>[\w<>.]{1,500}).{0,1000})?"
    r"|Cell In\s?\[(?P<cell>\d{1,7})\], line (?P<cell_line>\d{1,9})(?:, in (?P<inner>[\w<>.]{1,500}).{0,1000})?"
    r"|(?P<old><ipython-input-[\w-]{1,100}>|[~/].{0,2000}?) in (?P<of>[\w<>.]{1,500}).{0,1000})$"
)
_NOTEBOOK_ARROW = re.compile(r"^-{2,}> ?(\d{1,9})(?: |$)")
_NOTEBOOK_LINES = 5000
# Between two lines of one traceback at most so many others without a label; then it is taken for cut.
_MOST_FOREIGN = 200
_BROKEN_LINES, _BEHIND_COLON, _NCCL_LINES, _RAY_LINES = 1, 2, 6, 10
_NCCL = ("nccl", "NCCL", "Last error", "Net :", "NET/", "Call to ", "Connect to ", "Socket ", "Timeout ")
_WITHIN = 20  # lines between two of one message when ranks print at once
_NARROW = 60  # characters; rich breaks lines at 80 where nobody says how wide the terminal is
_MOST_OPEN = 4096
_MOST_ODD = 16
_LONGEST_TRACEBACK = 20_000
_SUMMARY_WITHIN = 400  # lines from an entry's rank to the tracebacks in it

# torch.distributed.distributed_c10d, _distributed_excepthook: before each line, of what nobody caught.
_TORCHS_HOOK = re.compile(r"\[rank\d{1,7}\]: ?$")
_SUMMARY_RANK = re.compile(r"^.{0,60}?  rank *: (\d{1,7}) \(local_rank: ")

# torch/distributed/elastic/multiprocessing/api.py, _terminate_process_handler: the agent's word on itself.
_OF_AGENT = "torch.distributed.elastic.multiprocessing.api.SignalException"
_TOLD_TO_END = re.compile(r"Process (\d{1,10}) got signal: \d{1,3}$")

# ray/exceptions.py, RayTaskError.__str__, above the task's own traceback: "ray::Trainer.step() (pid=4711, ip=...".
_OF_TASK = re.compile(r"^ray\.exceptions\.RayTaskError(?:\([\w.]{1,300}\))?: .{0,500}?\(pid=(\d{1,10}), ip=")

# torch/multiprocessing/spawn.py, ProcessContext.join: below it stands the child's traceback.format_exc().
_SPAWNED = re.compile(r"-- Process (\d{1,6}) terminated with the following error:\s*$")
# traceback.py sets a blank line, the announcement and another blank line between two tracebacks of a chain. Behind the
# quotation one more stands, as its text ends with a line end of its own: what follows there is the parent's.
_TO_CHAINED = 4

# torch/_utils.py, ExceptionWrapper.reraise
_OF_WORKER = re.compile(r"Caught \w{1,200} in DataLoader worker process \d{1,7}\.")


@dataclass
class _Traceback:
    label: str
    rank: int | None
    started: int
    local_rank: int | None = None
    file: str | None = None
    file_line: int | None = None
    function: str | None = None
    frames: list[RaisedFrame] = field(default_factory=list)
    body: bool = False  # any line of it was seen
    direct: bool = False  # the line before was its own
    foreign: int = 0
    chained: bool = False
    ignored: bool = False
    handling: bool = False
    boxed: bool = False  # rich.traceback draws a frame around it, and breaks long messages
    headless: bool = False
    task_pid: int | None = None
    notebook: str | None = None  # IPython's, and the type that its last line begins with


@dataclass
class _Quoted:
    """What mp.spawn quotes of its child's. line: of the heading, or of the last exception in it; direct: the next
    traceback in the quotation begins right below."""

    local_rank: int
    line: int
    direct: bool


@dataclass
class _Unfinished:
    """What an exception says goes on below its last line: NCCL's error code, what follows a colon, a broken line."""

    event: ExceptionSeen
    how: str  # "nccl", "ray", "broken", "colon"
    left: int  # lines

    @property
    def joint(self) -> str:
        return " " if self.how == "broken" else "\n"


class TracebackReader:
    anchors = (
        _BOXED,
        _HEADLESS,
        "(local_rank: ",
        "terminated with the following error:",
        *_CHAINED,
        _IGNORED,
    )

    def __init__(self) -> None:
        self._open: dict[str, _Traceback] = {}
        self._odd: list[str] = []  # labels that no pattern knows
        self._unfinished: dict[str, _Unfinished] = {}
        self._announced: dict[str, str] = {}  # by label: what a line said about the traceback that follows
        self._summary_rank: int | None = None  # of the entry in torchrun's summary that is being printed
        self._summary_at = 0  # its line
        self._quoted: _Quoted | None = None

    @property
    def open(self) -> bool:
        return bool(self._open or self._unfinished)

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        yield from self._overdue(line.number)
        text = line.text
        ranked = _SUMMARY_RANK.match(text) if "(local_rank: " in text else None
        if ranked:
            self._summary_rank, self._summary_at = int(ranked[1]), line.number
        spawned = _SPAWNED.match(text[:_MESSAGE])
        if spawned:
            self._quoted = _Quoted(int(spawned[1]), line.number, direct=True)
        start = text.find(_TRACEBACK)
        notebook = None
        if start < 0 and _BOXED in text:
            notebook = _NOTEBOOK.match(text[:_MESSAGE])
            start = 0 if notebook or text.startswith(_BOX) else start
        if start >= 0:
            yield from self._flush(line.label)
            self._begin(line, text[:start], notebook[1] if notebook else None)
            return
        said = text.lstrip() if text[:1] in _ANNOUNCING else ""
        if said.startswith((*_CHAINED, _IGNORED)):
            if len(self._announced) >= _MOST_OPEN:
                self._announced.clear()
            self._announced[line.label] = next(word for word in (*_CHAINED, _IGNORED) if said.startswith(word))
        label = line.label
        for odd in self._odd:
            if label + text[: len(odd) - len(label)] == odd:
                label, text = odd, text[len(odd) - len(label) :]
                break
            if self._open[odd].started == line.number - 1 and label not in self._open and text.startswith('  File "'):
                self._unglue(odd, label)
                break
        yield from self._continued(label, text, line.cut)
        traceback = self._open.get(label)
        if traceback is None and _HEADLESS_FRAME.match(text[:_MESSAGE]):
            self._begin(line, "", None)
            traceback = self._open[label]
            traceback.headless = True
        if traceback is not None:
            yield from self._inside(line, label, text, traceback)

    def end(self) -> Iterator[LauncherEvent]:
        for label in list(self._unfinished):
            yield from self._flush(label)
        self._open.clear()

    # --- tracebacks ---------------------------------------------------------------------------------------------------

    def _begin(self, line: JobLine, before: str, notebook: str | None) -> None:
        if before.strip() == "Original":  # a DataLoader worker's own, quoted by its parent
            before = ""
        rank = line.rank
        if before.lstrip().startswith("traceback :"):  # torchrun's summary indents the traceback by two
            before, rank = "  ", self._summary_rank
        elif before == "  " and 0 < line.number - self._summary_at <= _SUMMARY_WITHIN:
            rank = self._summary_rank  # a cause's, or one that stands below a sentence
        if before.endswith(_GROUP):
            before = f"{before.removesuffix(_GROUP)}| "
        label = line.label + before[:200]
        if before:
            self._odd = [label, *(odd for odd in self._odd if odd != label and odd in self._open)][:_MOST_ODD]
        if len(self._open) >= _MOST_OPEN:
            self._open.pop(next(iter(self._open)))
        self._open.pop(label, None)
        announced = self._announced.pop(line.label, None)
        self._open[label] = _Traceback(
            label,
            rank,
            line.number,
            chained=announced in _CHAINED,
            handling=announced == _CHAINED[1],
            ignored=announced == _IGNORED,
            local_rank=self._spawned(line.number, announced in _CHAINED),
            boxed=line.text.startswith(_BOX),
            notebook=notebook,
        )

    def _spawned(self, number: int, chained: bool) -> int | None:
        """The local rank of mp.spawn's child, of whose quoted error a traceback that begins in this line is a part."""
        quoted = self._quoted
        if quoted is None:
            return None
        below = number - quoted.line
        return quoted.local_rank if (below == 1 if quoted.direct else chained and below == _TO_CHAINED) else None

    def _inside(self, line: JobLine, label: str, text: str, traceback: _Traceback) -> Iterator[LauncherEvent]:
        if traceback.notebook is not None:
            yield from self._in_notebook(line, text, traceback, traceback.notebook)
            return
        if text.startswith(_BOX_LINES if traceback.boxed else "  "):
            traceback.body = traceback.direct = True
            frame = (_BOX_FRAME if traceback.boxed else _FRAME).match(text)
            if frame:
                traceback.file, traceback.file_line = frame[1], int(frame[2])
                traceback.function = frame[3]
                traceback.frames.append(RaisedFrame(frame[1], int(frame[2]), frame[3]))
                if len(traceback.frames) > 2 * _FRAMES:
                    del traceback.frames[_FRAMES]
            return
        task = _OF_TASK.match(text[:_MESSAGE]) if text.startswith("ray.") and traceback.body else None
        if task:
            # What stands above is the stack of who asked for the result.
            traceback.task_pid, traceback.frames = int(task[1]), []
            traceback.file = traceback.file_line = traceback.function = None
        last = _LAST.match(text.rstrip()) if task is None else None
        if traceback.headless and (last is None or last[1] not in _NO_SYNTAX):
            self._drop(label)
            return
        if last and traceback.body and _is_exception(last[1], traceback.direct):
            self._drop(label)
            yield from self._raised(line, traceback, last[1], (last[2] or "").strip())
            return
        traceback.direct = False
        traceback.foreign += 1
        if traceback.foreign > _MOST_FOREIGN:
            self._drop(label)

    def _in_notebook(self, line: JobLine, text: str, traceback: _Traceback, kind: str) -> Iterator[LauncherEvent]:
        frame = _NOTEBOOK_FRAME.match(text[:_MESSAGE])
        arrow = _NOTEBOOK_ARROW.match(text)
        last = _LAST.match(text.rstrip())
        if frame:
            traceback.body = True
            traceback.file = frame["file"] or frame["old"] or f"<cell {frame['cell']}>"
            number = frame["line"] or frame["cell_line"]
            traceback.file_line = int(number) if number else None
            traceback.function = frame["function"] or frame["of"] or frame["inner"]
        elif arrow:
            traceback.body = True
            traceback.file_line = int(arrow[1])
        elif last and traceback.body and last[1].rpartition(".")[2] == kind.rpartition(".")[2]:
            self._drop(traceback.label)
            yield from self._raised(line, traceback, last[1], (last[2] or "").strip())
        traceback.foreign += 1
        if traceback.foreign > _NOTEBOOK_LINES:
            self._drop(traceback.label)

    def _unglue(self, odd: str, label: str) -> None:
        """What stood before "Traceback" was no label but an unfinished line, as a progress bar is."""
        traceback = self._open[odd]
        self._drop(odd)
        traceback.label = label
        self._open[label] = traceback

    def _drop(self, label: str) -> None:
        self._open.pop(label, None)
        self._odd = [odd for odd in self._odd if odd != label]

    def _raised(self, line: JobLine, traceback: _Traceback, kind: str, message: str) -> Iterator[LauncherEvent]:
        if kind.rpartition(".")[2] in _SUMMARIES:
            return
        workers = workers_of(message)
        cited = line.cited()
        told = _TOLD_TO_END.match(message) if kind.endswith(_OF_AGENT) else None
        event = ExceptionSeen(
            line=replace(cited, writer=int(told[1])) if told else cited,
            type=kind[:300],
            message=message[:_MESSAGE],
            rank=traceback.rank,
            peer_lost=not workers and says_peer_lost(kind, message, traceback.file),
            worker_pid=workers[0] if workers else None,
            file=traceback.file,
            file_line=traceback.file_line,
            function=traceback.function,
            chained=traceback.chained,
            ignored=traceback.ignored,
            handling=traceback.handling,
            of_worker=_OF_WORKER.match(message) is not None,
            frames=traceback.frames,
            uncaught=_TORCHS_HOOK.search(traceback.label) is not None,
            cut=line.cut,
            local_rank=traceback.local_rank,
            task_pid=traceback.task_pid,
        )
        if traceback.local_rank is not None:
            self._quoted = _Quoted(traceback.local_rank, line.number, event.of_worker)
        how = _goes_on(event, line.text.rstrip(), traceback.boxed)
        if how is None:
            yield _with_peers(event)
            return
        lines = {"nccl": _NCCL_LINES, "ray": _RAY_LINES, "broken": _BROKEN_LINES, "colon": _BEHIND_COLON}[how]
        self._unfinished[traceback.label] = _Unfinished(event, how, lines)

    def _continued(self, label: str, text: str, cut: bool) -> Iterator[LauncherEvent]:
        waiting = self._unfinished.get(label)
        if waiting is None:
            return
        event = waiting.event
        own, more = _belongs(waiting, text)
        if own:
            message = f"{event.message}{waiting.joint}{text.strip()}".strip()[:_MESSAGE]
            lost = waiting.how == "nccl" and says_peer_lost(event.type, text, event.file)
            waiting.event = replace(event, message=message, peer_lost=event.peer_lost or lost, cut=event.cut or cut)
        waiting.left -= 1
        if waiting.left == 0 or not more:
            yield from self._flush(label)

    def _overdue(self, number: int) -> Iterator[LauncherEvent]:
        while self._unfinished:
            label = next(iter(self._unfinished))  # the oldest
            if number - self._unfinished[label].event.line.number <= _WITHIN and len(self._unfinished) < _MOST_OPEN:
                break
            yield from self._flush(label)
        while self._open:
            label = next(iter(self._open))  # the oldest
            if number - self._open[label].started <= _LONGEST_TRACEBACK:
                break
            self._drop(label)

    def _flush(self, label: str) -> Iterator[LauncherEvent]:
        waiting = self._unfinished.pop(label, None)
        if waiting:
            yield _with_peers(waiting.event)


def _goes_on(event: ExceptionSeen, text: str, boxed: bool) -> str | None:
    """How the message goes on below, if it may. text: the exception's last line."""
    if "NCCL error" in event.message:
        return "nccl"
    if event.type.startswith("ray.") and event.peer_lost:
        return "ray"
    if event.peer_lost:
        return None
    if boxed and len(text) > _NARROW:
        return "broken"
    return "colon" if text.endswith(":") else None


def _belongs(waiting: _Unfinished, text: str) -> tuple[bool, bool]:
    """Is the line a part of the message, and may there be more of it?"""
    said = text.strip()
    if waiting.how == "nccl":
        after = waiting.event.message.endswith("Last error:")
        own = after or text.startswith(_NCCL) or says_peer_lost(waiting.event.type, text, waiting.event.file)
        return own, own and not after
    if waiting.how == "ray":
        own = text.startswith(("\t", "The actor ", "The node "))
        return own, own
    return bool(said), waiting.how == "colon" and not said


def _with_peers(event: ExceptionSeen) -> ExceptionSeen:
    named = peers_of(event.message) if event.peer_lost and not event.cut else []
    return replace(event, peers=named) if named else event


def _is_exception(name: str, direct: bool) -> bool:
    """Is `name` an exception's? A job's own line ("Epoch: 4") that came between is not."""
    last = name.rpartition(".")[2]
    return bool(_ERROR_NAME.search(last)) or (direct and ("." in name or last[0].isupper()))
