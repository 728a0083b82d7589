"""Smaller launchers: torch.multiprocessing.spawn, shells, time(1), subprocess, multiprocessing, loky, Lightning, Open
MPI, Hydra, Ray, srun.

Each says in a line or two which process ended how. What they add about the reason (out of memory? a bug?) is a guess
and becomes nothing; so do PyCharm's "interrupted by signal 9" and Ray's lists of potential root causes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from ftforensics.model.launcher import LauncherEvent, ProcessDied, SignalledBy, TextLine
from ftforensics.parsers.launcher_line import JobLine, signal_and_code
from ftforensics.parsers.signal_words import ALONE, WORDS, signal_of

_TEXT = 4096  # characters of a line that the patterns see


class SpawnReader:
    """torch/multiprocessing/spawn.py. It names a child by its index; pids only of those that it ends itself."""

    anchors = ("Terminating process ", " via SIGTERM , forcefully", "terminated with ")
    open = False

    _ENDING = re.compile(r"Terminating process (\d{1,10}) via signal (SIG[A-Z0-9]+)")
    _FORCED = re.compile(r"Unable to shutdown process (\d{1,10}) via SIGTERM , forcefully exiting via (SIG[A-Z0-9]+)")
    # "Exception: process 0 terminated ..." before torch 1.5; of a raised exception the traceback follows.
    _EXITED = re.compile(
        r"(?:ProcessExitedException|Exception): process (\d{1,6}) terminated with"
        r" (?:signal <?(?P<signal>SIG[A-Z0-9]+|Unknown signal \d+)>?|exit code (?P<code>-?\d{1,5}))"
    )
    _RAISED = re.compile(r"-- Process (\d{1,6}) terminated with the following error:")

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        text = line.text[:_TEXT]
        ended = self._ENDING.search(text) or self._FORCED.search(text)
        if ended:
            yield SignalledBy(line.cited(), "mp.spawn", int(ended[1]), signal_of(ended[2]))
            return
        exited = self._EXITED.search(text)
        if exited:
            code = int(exited["code"]) if exited["code"] else None
            number = signal_of(exited["signal"]) if exited["signal"] else None
            yield ProcessDied(line.cited(), "mp.spawn", local_rank=int(exited[1]), signal=number, code=code)
            return
        raised = self._RAISED.search(text)
        if raised:
            yield ProcessDied(line.cited(), "mp.spawn", local_rank=int(raised[1]), code=1)

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())


_WORD = "|".join(re.escape(word) for word in sorted(WORDS, key=len, reverse=True))


class ShellReader:
    """bash, dash, zsh and fish about a command that a signal ended, and time(1)."""

    anchors = (
        *(word for word in WORDS if word not in ("Hangup", "Interrupt", "Quit", "Alarm clock", "Broken pipe")),
        "killed",
        "segmentation fault",
        "terminated by signal ",
        "Command exited with non-zero status ",
    )
    open = False

    # bash in a script: "train.sh: line 28:  8156 Killed                  python3 main.py"; the words around the
    # line number are translated too ("Zeile 3:", "第 28 行:"). Behind a long word bash 5.2 sets no blank. Of SIGTERM it
    # prints the word alone.
    _SCRIPT = re.compile(
        rf"(?P<script>[^:]{{1,200}}): (?:第 ?)?(?:[^\W\d]{{1,20}} )?\d{{1,9}}(?: ?行)? ?[:：] *(?P<pid>\d{{1,10}}) "
        rf"(?P<word>{_WORD})(?P<core> *\([^()]{{1,60}}\))?\s*(?P<command>\S.*)?$"
    )
    # Job control: "[1]+  Killed   python3 main.py"; zsh: "[1]  + 12345 killed     python3 main.py".
    _JOB = re.compile(
        rf"\[\d{{1,4}}\] *[-+]? +(?:(?P<pid>\d{{1,10}}) +)?(?P<word>{_WORD}|killed|segmentation fault)"
        rf"(?: *\([^()]{{1,60}}\))?(?: {{2,}}(?P<command>\S.*))\s*$"
    )
    _ZSH = re.compile(
        r"zsh: (?P<word>killed|segmentation fault|abort|bus error|terminated)(?: \(core dumped\))? {2,}"
        r"(?P<command>\S.*)$"
    )
    _FISH = re.compile(
        r"fish: (?:Job \d{1,4}, )?\W(?P<command>.{1,1000}?)\W terminated by signal (?P<word>SIG[A-Z0-9]+)"
    )
    _TIME = re.compile(
        r"Command (?:terminated by signal (?P<signal>\d{1,3})|exited with non-zero status (?P<code>\d{1,3}))\s*$"
    )
    _LOWER = {"killed": 9, "segmentation fault": 11, "abort": 6, "bus error": 7, "terminated": 15}

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        text = line.text[:_TEXT]
        if line.logged:  # a logger's own message, not what the shell wrote
            return
        if text in ALONE:
            yield ProcessDied(line.cited(), "shell", signal=signal_of(text))
            return
        # A shell's label for srun and its "line 28: 8156" look alike: match on what stood in the file.
        for said in (text, f"{line.label}{text}") if line.label else (text,):
            found = self._SCRIPT.match(said) or self._JOB.match(said) or self._ZSH.match(said) or self._FISH.match(said)
            if found:
                fields = found.groupdict()
                yield ProcessDied(
                    line.cited(),
                    "shell",
                    pid=int(fields.get("pid") or 0) or None,
                    signal=self._LOWER.get(fields["word"]) or signal_of(fields["word"]),
                    command=(fields.get("command") or "").strip()[:1000] or None,
                )
                return
        timed = self._TIME.match(text)
        if timed:
            signal, code = (int(timed["signal"]), None) if timed["signal"] else (None, int(timed["code"]))
            yield ProcessDied(line.cited(), "time", signal=signal, code=code)
            return
        bare = text.strip()
        if re.sub(r" *\([^()]{1,40}\)$", "", bare) in ALONE or bare in ALONE:
            number = signal_of(bare) or signal_of(bare.partition(" (")[0])
            yield ProcessDied(line.cited(), "shell", signal=number)

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())


class SubprocessReader:
    """subprocess.CalledProcessError, by which accelerate and many training scripts report their child. 137 stays a
    code: it may be a shell's word for a signal or the child's own."""

    anchors = ("died with ", "returned non-zero exit status ")
    open = False

    _CALLED = re.compile(r"CalledProcessError: Command (?P<command>.*) (?:died with |returned non-zero exit status )")
    _HOW = re.compile(
        r"(?:died with (?:<Signals\.\w+: (?P<signal>\d{1,3})>|unknown signal (?P<unknown>\d{1,3}))"
        r"|returned non-zero exit status (?P<code>-?\d{1,10}))\.\s*$"
    )

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        called = self._CALLED.search(line.text)
        how = self._HOW.search(line.text[-200:])
        if called is None or how is None:
            return
        number = how["signal"] or how["unknown"]
        signal, code = (int(number), None) if number else signal_and_code(int(how["code"]))
        command = called["command"].strip("'\"")[:1000]
        yield ProcessDied(line.cited_end(), "subprocess", signal=signal, code=code, command=command)

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())


class ChildProcessReader:
    """multiprocessing's own word about a child (its repr, which programs print), and loky's about its workers. What
    loky says about a reason (memory, a segmentation fault) is a guess."""

    anchors = (" stopped exitcode=", "The exit codes of the workers are {")
    open = False

    # Lib/multiprocessing/process.py, BaseProcess.__repr__, 3.8 on: a signal by its name, "-SIGKILL".
    _STOPPED = re.compile(
        r"<\w{0,30}Process name=['\"][^'\"]{0,200}['\"] pid=(?P<pid>\d{1,10}) parent=\d{1,10} stopped exitcode="
        r"(?:-(?P<signal>SIG[A-Z0-9]+)|(?P<code>-?\d{1,5}))(?: daemon)?>"
    )
    # joblib's loky/process_executor.py: "{SIGKILL(-9), EXIT(1)}".
    _WORKERS = re.compile(r"The exit codes of the workers are \{(?P<codes>[^{}]{1,4000})\}")
    _WORKER = re.compile(r"\w{1,30}\((?P<code>-?\d{1,5})\)")
    _MOST = 64

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        text = line.text[:_TEXT]
        for stopped in islice(self._STOPPED.finditer(text), self._MOST):
            number = signal_of(stopped["signal"]) if stopped["signal"] else None
            signal, code = (number, None) if stopped["signal"] else signal_and_code(int(stopped["code"]))
            if code != 0:
                pid = int(stopped["pid"]) or None
                yield ProcessDied(line.cited(), "multiprocessing", pid=pid, signal=signal, code=code, worker=True)
        workers = self._WORKERS.search(text)
        if workers:
            for worker in islice(self._WORKER.finditer(workers["codes"]), self._MOST):
                signal, code = signal_and_code(int(worker["code"]))
                if code != 0:
                    yield ProcessDied(line.cited(), "loky", signal=signal, code=code, worker=True)

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())


class LightningReader:
    """Lightning's watch over its children. It then ends the others and itself, without naming pids."""

    anchors = ("Child process with PID ",)
    open = False

    _DIED = re.compile(r"Child process with PID (\d{1,10}) terminated with code (-?\d{1,5})")
    _RANK = re.compile(r"\[rank: (\d{1,7})\] $")

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        found = self._DIED.search(line.text[:_TEXT])
        if found is None:
            return
        # The rank of the label is the dead child's: "[rank: 1] Child process with PID ...".
        named = self._RANK.search(line.label + line.text[: found.start()])
        signal, code = signal_and_code(int(found[2]))
        rank = int(named[1]) if named else None
        pid = int(found[1]) or None
        yield ProcessDied(line.cited(), "lightning", pid=pid, rank=rank, signal=signal, code=code, first=True)

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())


@dataclass
class _Hydra:
    line: TextLine
    pid: int | None
    host: str | None
    rank: int | None
    code: int | None = None


class MpiReader:
    """Open MPI (mpirun, prterun), Hydra (MPICH, Intel MPI), Horovod's copy of Open MPI's summary."""

    anchors = (
        "noticed that process rank ",
        "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        "exited with non-zero status, thus causing",
        "Process name: ",
        " RUNNING AT ",
        "EXIT CODE: ",
        "EXIT STRING: ",
        "KILLED BY SIGNAL: ",
    )

    # The program calls itself as it was called: "mpirun.openmpi" where Debian has several MPIs. The pid is 0 when the
    # daemon did not know it (Open MPI 4 with remote ranks).
    _NOTICED = re.compile(
        r"(?:mpirun|prterun|mpiexec|orterun)(?:[.-][\w.-]{1,40})? noticed that process rank (?P<rank>\d{1,7})"
        r" with PID (?P<pid>\d{1,10})"
        r" on node (?P<host>\S{1,255}) exited(?: on(?: signal (?P<signal>\d{1,3}))?)?"
    )
    _WRAPPED = re.compile(r"(?:on )?signal (?P<signal>\d{1,3})\b")  # Open MPI 1 breaks the sentence
    _NAME = re.compile(r"Process name: (?:\[\[[\d,]{1,30}\],)?(?P<rank>\d{1,7})\]?\s*$")
    _CODE = re.compile(r"Exit code: +(?P<code>-?\d{1,5})\s*$")
    _RUNNING = re.compile(r"(?:RANK (?P<rank>\d{1,7}) )?PID (?P<pid>\d{1,10}) RUNNING AT (?P<host>\S{1,255})")
    _HYDRA_CODE = re.compile(r"EXIT CODE: (?P<code>-?\d{1,5})")
    _HYDRA_SIGNAL = re.compile(r"(?:EXIT STRING: .{1,80}\(signal (?P<a>\d{1,3})\)|KILLED BY SIGNAL: (?P<b>\d{1,3}))")
    _WITHIN = 30  # lines of one summary

    def __init__(self) -> None:
        self._summary: tuple[int, int | None] | None = None  # line where it began, rank
        self._hydra: _Hydra | None = None
        self._noticed: ProcessDied | None = None  # whose signal stands in the next line

    @property
    def open(self) -> bool:
        return self._summary is not None or self._hydra is not None or self._noticed is not None

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        text = line.text[:_TEXT]
        if self._summary and line.number - self._summary[0] > self._WITHIN:
            self._summary = None
        if self._hydra and line.number - self._hydra.line.number > self._WITHIN:
            yield from self.end()
        if self._noticed is not None:
            wrapped = self._WRAPPED.match(text.lstrip())
            if wrapped:
                yield replace(self._noticed, signal=int(wrapped["signal"]) or None)
            self._noticed = None
        noticed = self._NOTICED.search(text)
        if noticed:
            died = ProcessDied(
                line.cited(),
                "mpi",
                pid=int(noticed["pid"]) or None,
                rank=int(noticed["rank"]),
                signal=int(noticed["signal"] or 0) or None,
                host=noticed["host"],
                first=True,
            )
            if noticed["signal"] is not None:
                yield died
            elif noticed.end() == len(text.rstrip()):
                self._noticed = died
            return
        # Open MPI breaks the line behind "causing", Horovod does not.
        if "exited with non-zero status, thus causing" in text:
            self._summary = (line.number, None)
        elif self._summary:
            yield from self._first_failed(line, text, self._summary[0])
        yield from self._of_hydra(line, text)

    def _first_failed(self, line: JobLine, text: str, began: int) -> Iterator[LauncherEvent]:
        named, ended = self._NAME.search(text), self._CODE.search(text)
        if named:
            self._summary = (began, int(named["rank"]))
        elif ended and self._summary:
            signal, code = signal_and_code(int(ended["code"]))
            yield ProcessDied(line.cited(), "mpi", rank=self._summary[1], signal=signal, code=code, first=True)
            self._summary = None

    def _of_hydra(self, line: JobLine, text: str) -> Iterator[LauncherEvent]:
        if "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES" in text:
            yield from self.end()
            self._hydra = _Hydra(line.cited(), None, None, None)  # older ones name no process
            return
        running = self._RUNNING.search(text)
        if running:
            if self._hydra is not None and (self._hydra.pid or self._hydra.code is not None):
                yield from self.end()
            rank = int(running["rank"]) if running["rank"] else None
            self._hydra = _Hydra(line.cited(), int(running["pid"]) or None, running["host"], rank)
        if self._hydra is None:
            return
        signalled, ended = self._HYDRA_SIGNAL.search(text), self._HYDRA_CODE.search(text)
        if signalled:
            yield self._of(self._hydra, signal=int(signalled["a"] or signalled["b"]))
            self._hydra = None
        elif ended:  # a signal's number stands here alone as well, so the text below decides
            self._hydra.code = int(ended["code"])

    def end(self) -> Iterator[LauncherEvent]:
        if self._hydra is not None and (self._hydra.pid or self._hydra.code is not None):
            yield self._of(self._hydra, code=self._hydra.code)
        self._hydra = None

    @staticmethod
    def _of(block: _Hydra, signal: int | None = None, code: int | None = None) -> ProcessDied:
        return ProcessDied(
            block.line, "hydra", pid=block.pid, rank=block.rank, signal=signal, code=code, first=True, host=block.host
        )


class RayReader:
    """Ray's driver about an actor whose process died: it states the pid and the address of its machine, and not how it
    ended. The causes that it then lists are guesses, the OOM killer first, and so is its "connection error code 2"."""

    anchors = ("The actor died unexpectedly before finishing this task",)

    # python/ray/exceptions.py, ActorDiedError; RayActorError before 2.9.
    _DIED = re.compile(
        r"(?:ActorDiedError|RayActorError): The actor died unexpectedly before finishing this task\.\s*$"
    )
    _PARTICULAR = re.compile(r"\s{1,8}(?P<name>[a-z_]{1,40}): ?(?P<value>.{0,300}?)\s*$")
    # An actor that was told to go (ray.kill, exit_actor) has an INTENDED_... type, and did not fail.
    _UNEXPECTED = re.compile(
        r"The actor is dead because its worker process has died\. Worker exit type: (?:SYSTEM|USER)_ERROR\b"
    )
    _WITHIN = 12  # lines

    def __init__(self) -> None:
        self._actor: JobLine | None = None  # the line that says it died
        self._said: dict[str, str] = {}

    @property
    def open(self) -> bool:
        return self._actor is not None

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        text = line.text[:_TEXT]
        if self._DIED.search(text):
            self._actor, self._said = line, {}
            return
        if self._actor is None:
            return
        if line.number - self._actor.number > self._WITHIN:
            self._actor = None
            return
        if line.label != self._actor.label:
            return
        particular = self._PARTICULAR.match(text)
        if particular:
            self._said[particular["name"]] = particular["value"]
            return
        pid = self._said.get("pid", "")
        if self._UNEXPECTED.match(text) and re.fullmatch(r"[0-9]{1,10}", pid) and int(pid):
            yield ProcessDied(self._actor.cited(), "ray", pid=int(pid), host=self._said.get("ip") or None)
        self._actor = None

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())


class SrunReader:
    """srun about its tasks. A task's number is a rank only where the task is the training process itself, not an agent
    that starts several: with torchrun's or DeepSpeed's lines before it no rank is given."""

    anchors = ("srun: error: ", "torch/distributed/elastic", "torch.distributed.elastic", "deepspeed.launcher")
    open = False

    _TASK = re.compile(r"srun: error: (?P<host>[^\s:]{1,255}): tasks? (?P<tasks>[\d,-]{1,500}): (?P<how>\S.{0,200})$")
    _CODE = re.compile(r"Exited with exit code (\d{1,5})")
    _MOST_TASKS = 64

    def __init__(self) -> None:
        self._agents = False

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        text = line.text[:_TEXT]
        found = self._TASK.search(text)
        if found is None:
            self._agents = self._agents or any(anchor in text for anchor in self.anchors[1:])
            return
        ended = self._CODE.match(found["how"])
        code = int(ended[1]) if ended else None
        signal = None if ended else signal_of(found["how"].partition(" (")[0])
        cited = line.cited()
        for task in _numbers(found["tasks"], self._MOST_TASKS):
            rank = None if self._agents else task
            yield ProcessDied(cited, "slurm", rank=rank, signal=signal, code=code, host=found["host"])

    def end(self) -> Iterator[LauncherEvent]:
        return iter(())


def _numbers(listed: str, most: int) -> list[int]:
    """[0, 1, 2, 7] of "0-2,7"."""
    numbers: list[int] = []
    for part in listed.split(","):
        low, _, high = part.partition("-")
        if low.isdecimal() and len(low) < 10 and len(high) < 10:
            last = int(high) if high.isdecimal() else int(low)
            numbers.extend(range(int(low), min(last, int(low) + most) + 1))
    return numbers[:most]
