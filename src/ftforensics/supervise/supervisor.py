"""The supervisor: starts the command, sees what happens below it, writes it down, and knows how it ended.

One thread, one poll(2), asleep until something happens. Nothing in here may keep the command from running or from
ending: what cannot be had (a folder, a trace, events) is a gap in the evidence."""

from __future__ import annotations

import errno
import os
import resource  # by os.wait4 as well: too late there, where a failing import costs the status of who was waited for
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ftforensics.capture import VERSION, environment, procfs
from ftforensics.capture.cgroup import container_id, read_mountinfo
from ftforensics.capture.folder import Folder, open_folder
from ftforensics.parsers import proc_text
from ftforensics.parsers.cgroup_path import memory_path
from ftforensics.supervise import child, counters, descendants, ledger, leftovers, linux, proc_events, streams
from ftforensics.supervise.copier import Copier, Delivery, start_copier
from ftforensics.supervise.descendants import Descendants, Process
from ftforensics.supervise.evidence import NAME as EVIDENCE_NAME
from ftforensics.supervise.evidence import SCHEMA, Evidence, clocks
from ftforensics.supervise.last_words import LastWords
from ftforensics.supervise.lasting import passing_file_system
from ftforensics.supervise.launcher_log import NAME as LOG_NAME
from ftforensics.supervise.launcher_log import LogProcess, pieces, start_log
from ftforensics.supervise.previous import previous_attempt
from ftforensics.supervise.streams import Route
from ftforensics.supervise.witness import PROBE, start_witness

if TYPE_CHECKING:
    from ftforensics.capture.identity import Value
    from ftforensics.parsers.trace_pipe import SentLine
    from ftforensics.supervise.kernel_follow import KernelFollow
    from ftforensics.supervise.senders import Senders

_NOT_PASSED_ON = {
    signal.SIGKILL, signal.SIGSTOP,  # cannot be
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,  # stop us as they stop the job
    signal.SIGCHLD, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ,  # are about what we do ourselves
}  # fmt: skip
# All others, for any program may have a use for any of them: a service manager's watchdog sends SIGABRT. A fault of our
# own still ends us: the kernel does not let a blocked SIGSEGV wait.
PASSED_ON = tuple(sorted(int(number) for number in signal.valid_signals() - _NOT_PASSED_ON))
_GROUP_KILL = 0.005  # seconds that the kernel needs, with much to spare, to signal all of a process group
_WITNESS_PATIENCE = 1.0  # seconds for the witness to answer; then it is taken for gone
_ARM_AFTER = 0.02  # tracing takes 90 ms to arm: not for a command that is over by then
_LOOK_EVERY = 1.0  # seconds; longer where a look costs much
_LOOK_AT_LEAST = 10.0
_LOOK_SHARE = 0.004  # of one core
_SETTLE = 0.3  # after a death by a signal the kernel's log and trace are listened to for so long
_FAREWELL = 0.3  # seconds that our helpers have to be gone
_REST = 0.05  # seconds between two reads of what the whole machine causes
_MOMENT = 0.002  # seconds between the end of a process and the kernel's event about it, with much to spare
_IDENTIFY_AT_ONCE = 300  # processes; half a millisecond each
_IDENTIFY_PER_SECOND = 10
_MOST_ENDED_WELL = 1000  # whose end is written down; of a training job's short helpers nobody wants more
_COUNTS_PER_SECOND = 20  # readings at deaths
_MOST_GROUPS = 200
_MOST_REMEMBERED = 100_000  # pids of processes that ended badly


class Settings(NamedTuple):
    """dir: the run folder as asked for, None for the default; preload: put our library into LD_PRELOAD; trace: follow
    who sends signals and what the kernel logs; log: keep launcher.log (then output takes a detour)."""

    dir: str | None = None
    preload: bool = True
    trace: bool = True
    log: bool = True


class Outcome(NamedTuple):
    """How the command ended, and where that is written. status: as waitpid(2); folder, evidence: None when there was
    nowhere to write, or the command ended well; prefix: how our files in the folder begin; interrupted: a signal came
    while its last output was waited for."""

    status: int
    folder: str | None
    evidence: str | None
    prefix: str
    interrupted: bool = False


Say = Callable[[str], None]


def supervise(command: Sequence[str], settings: Settings, found: child.Surroundings, say: Say) -> Outcome:
    """Run it to its end. say: one line for the person. Whatever is raised is raised before the command was started.

    The signals of the job stay blocked: the caller decides what they mean from now on.
    """
    streams.occupy(found.closed)
    place = _Place.open(settings, say)
    _remark(place, say)
    variables, gaps = _variables(command, settings, place.path)
    for gap in gaps:
        place.evidence.gap(*gap)
    try:
        routes = streams.plan(found.closed) if settings.log and place.path else []
    except OSError as error:
        routes = []
        place.evidence.gap("launcher.log", f"no pipe or pseudo-terminal could be made: {error.strerror}")
    own: list[int] = []  # our helpers
    try:
        witness = start_witness(PASSED_ON)
        own.append(witness[0])
        routes, copier = _start_copying(routes, place, own)
        signal.pthread_sigmask(signal.SIG_BLOCK, [*PASSED_ON, signal.SIGCHLD, signal.SIGWINCH])
        arriving = linux.signal_descriptor([*PASSED_ON, signal.SIGCHLD, signal.SIGWINCH])
        try:
            linux.become_subreaper()
        except OSError as error:
            place.evidence.gap("run", f"orphaned processes are not ours to wait for: prctl: {error.strerror}")
        events = _listen(place.evidence)
        given: dict[int, int | None] = dict.fromkeys(found.closed)
        for route in routes:
            given.update(dict.fromkeys(route.numbers, route.inner))
        groups = (procfs.read_text("/proc/self/cgroup") or "").splitlines()
        first_at, first = time.monotonic(), counters.reading(groups)  # before anybody can have died
        begun = clocks()
        for route in routes:
            os.close(route.outer)  # the copier's alone: when it is gone, the command's next write must fail
        pid = child.start(command, variables, given, found)
    except Exception:
        # The command will run in our place: it must not find children that it never made.
        for helper in own:
            os.kill(helper, signal.SIGKILL)
            os.waitpid(helper, 0)
        with suppress(OSError):
            linux.become_subreaper(False)
        place.close(failed=False)
        raise
    watch, status, interrupted = None, None, False
    try:  # from here on nothing may be raised: the caller would start the command a second time
        for route in routes:
            os.close(route.inner)
        _let_go_of_streams(routes)
        place.evidence.write("counted", {"why": "start", "reading": first}, first_at)
        watch = _Watch(pid, command, begun, settings, place, arriving, events, witness, copier, routes, own)
        status = watch.until_end()
        interrupted = watch.finish(status)
        if watch.refused:
            say(f"not all of the job's output could be written: {os.strerror(watch.refused)}")
    except Exception as error:  # noqa: BLE001 - the job goes on, and its status is delivered
        say(f"a fault of ftforensics itself, the job is not watched any more: {type(error).__name__}: {error}")
        if os.environ.get("FTFORENSICS_DEBUG"):
            traceback.print_exc()
    if status is None:
        status = watch.status if watch is not None and watch.status is not None else _wait(pid, say)
    written = place.ledger
    if written is not None:
        ran = time.monotonic() - first_at
        _quietly(lambda: ledger.record_end(written, pid, status, ran))
    if status == 0 and watch is not None and place.path is not None:
        watch.remove_leftovers(place.path)
    _quietly(lambda: place.close(failed=status != 0))
    if status == 0:
        return Outcome(status, None, None, place.prefix, interrupted)
    return Outcome(status, place.path, place.evidence.path, place.prefix, interrupted)


def _wait(pid: int, say: Say) -> int:
    try:
        return os.waitpid(pid, 0)[1]
    except ChildProcessError:
        say("how the command ended is not known; 1 is a guess")
        return 1 << 8


class _Place:
    """The run folder and our files in it. path None: nowhere to write."""

    def __init__(self, folder: Folder | None, evidence: Evidence, prefix: str) -> None:
        self.folder = folder
        self.path = folder.path if folder else None
        self.evidence = evidence
        self.prefix = prefix
        self.log_path = os.path.join(folder.path, prefix + LOG_NAME) if folder else None
        self.ledger = ledger.entry(os.environ, self.path)

    @staticmethod
    def open(settings: Settings, say: Say) -> _Place:
        try:
            folder = open_folder(settings.dir, os.environ)
            if folder.note:
                say(folder.note)
            # Several supervisors share a folder under srun, and where $FTFORENSICS_DIR is fixed.
            host = os.uname().nodename.partition(".")[0]
            own = f"{host}-{os.getpid()}-{procfs.start_ticks(os.getpid()) or 0}."
            for prefix in ("", own):
                try:
                    return _Place(folder, Evidence(os.path.join(folder.path, prefix + EVIDENCE_NAME)), prefix)
                except FileExistsError:
                    continue
            say(f"nothing is recorded: {folder.path} holds another run's files under our names")
        except OSError as error:
            say(f"nothing is recorded: {error.filename or 'the run folder'}: {error.strerror}")
        return _Place(None, Evidence(None), "")

    def close(self, *, failed: bool) -> None:
        """A run that ended well leaves nothing."""
        self.evidence.close()
        if failed or self.folder is None:
            return
        logs = [self.log_path, *pieces(self.log_path)] if self.log_path is not None else []
        for path in (self.evidence.path, *logs):
            if path is not None:
                with suppress(OSError):
                    os.unlink(path)
        self.folder.remove_if_empty()


class _Watch:
    """Everything between the command's start and its end. status: as waitpid(2), once it is known; refused: the
    error number when the job's output could not be written."""

    def __init__(
        self,
        pid: int,
        command: Sequence[str],
        begun: dict[str, Value],
        settings: Settings,
        place: _Place,
        arriving: int,
        events: proc_events.ProcessEvents | None,
        witness: tuple[int, int],
        copier: Copier | None,
        routes: Sequence[Route],
        own: list[int],
    ) -> None:
        self._pid = pid
        self._command = command
        self._begun = begun
        self._settings = settings
        self._evidence = place.evidence
        self._ledger = place.ledger
        self._arriving = arriving
        self._events = events
        self._witness_pid = witness[0]
        self._witness: int | None = witness[1]
        self._copier = copier
        self._terminals = [route for route in routes if route.terminal]
        self._own = set(own)
        self._family = Descendants(os.getpid(), own)
        self._words = LastWords(place.path, self._family)
        self._ever: set[int] = {pid}
        self.status: int | None = None
        self.refused = 0
        self._ended_at = 0.0
        self._killed_at = 0.0
        self._senders: Senders | None = None
        self._traced: list[SentLine] = []  # read, not yet sorted by whom they are about
        self._kernel: KernelFollow | None = None
        self._armed = False
        self._groups: set[str | None] = {None}
        self._counts: list[float] = []
        self._resting: dict[int, tuple[float, Callable[[], None]]] = {}
        self._credit, self._credited = float(_IDENTIFY_AT_ONCE), time.monotonic()
        self._ended_well = 0
        self._failed: set[int] = set()  # by an exit status
        self._killed: set[int] = set()
        self._cost = 0.0  # processor time of the last look
        self._next_look = time.monotonic() + _ARM_AFTER
        self._arrived: list[tuple[linux.Arrived, float]] = []  # not yet known to be ours alone
        self._witnessed: list[tuple[int, float]] = []
        self._asked: float | None = None  # since when the witness has a question of ours
        self._answered = 0.0  # when the last question was put that it has answered
        self._cgroup = (procfs.read_text("/proc/self/cgroup") or "").splitlines()
        self._groups.add(memory_path(self._cgroup))
        self._poll = select.poll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._read_from(arriving, self._on_signals)
        self._read_from(witness[1], self._on_witness)
        if events is not None:
            self._read_from(events.fd, self._on_events)

    def until_end(self) -> int:
        process = self._family.add(self._pid, os.getpid())
        if process is not None:
            process.identify()
        while self.status is None:
            self._step(None)
        return self.status

    def finish(self, status: int) -> bool:
        """After the command's end. True when a signal cut it short."""
        if self._copier is not None:
            self._copier.ask_finish(keep_log=status != 0)
            self._readers[self._copier.control.fileno()] = lambda: None
            self._poll.register(self._copier.control.fileno(), select.POLLIN)
        self._arm_or_start()
        if status != 0:
            self._settle()
            if self._events is None:
                self._family.discover()
            for process in descendants.orphans(self._family.living.values()):
                process.identify()
                self._evidence.write("orphan", {"pid": process.pid, "comm": process.comm, "argv": process.argv})
            self._count("end", self._cgroup)
        delivery, interrupted = self._delivered()
        if delivery.gone:
            why = "the process that carries the job's output was killed, and the job's next write failed"
            self._evidence.gap("launcher.log", why)
        for closing in (self._senders, self._kernel, self._events):
            if closing is not None:
                _quietly(closing.close)
        ended: dict[str, Value] = {"clocks": clocks(), "log_bytes": delivery.log_bytes, "log_cut": delivery.log_cut}
        self._evidence.write("ended", {**ended, **_status_members(status)}, self._ended_at)
        self.refused = delivery.refused
        if delivery.refused:
            why = (
                f"not all of the job's output could be written, and its next write failed: {os.strerror(self.refused)}"
            )
            self._evidence.gap("launcher.log", why)
        if not delivery.drained and not interrupted and not delivery.gone and self._copier is not None:
            self._evidence.gap("launcher.log", "whoever reads the job's output has stopped; the log's end is missing")
        for process in list(self._family.living.values()):
            self._family.remove(process.pid)
        os.close(self._arriving)
        if self._copier is not None:
            self._copier.control.close()
        self._dismiss()
        return interrupted

    def remove_leftovers(self, folder: str) -> None:
        """The command ended well: what others of its processes left says nothing about it."""
        _quietly(lambda: leftovers.remove(folder, self._failed, self._killed))

    # What wakes us.

    def _step(self, longest: float | None) -> None:
        now = time.monotonic()
        due = [self._next_look]
        if self._arrived:
            due.append(now + (_GROUP_KILL if self._asked is None else 0.1))
        for fd, (until, rested) in list(self._resting.items()):
            if now >= until:
                del self._resting[fd]
                self._read_from(fd, rested)
            else:
                due.append(until)
        if longest is not None:
            due.append(now + longest)
        wait = max(0.0, min(due) - now)
        for fd, _ in self._poll.poll(wait * 1000 + 1):
            reader = self._readers.get(fd)
            if reader is not None:
                reader()
        if self._traced:
            self._on_senders()
        self._pass_on()
        if time.monotonic() >= self._next_look and self.status is None:
            self._look()

    def _read_from(self, fd: int, reader: Callable[[], None]) -> None:
        self._readers[fd] = reader
        self._poll.register(fd, select.POLLIN)

    def _stop_reading(self, fd: int) -> None:
        self._resting.pop(fd, None)
        if self._readers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _rest(self, fd: int, reader: Callable[[], None], seconds: float = _REST) -> None:
        """The whole machine's forks and kills wake us. What we get has its own times, so a little later does for the
        next ones."""
        self._stop_reading(fd)
        self._resting[fd] = time.monotonic() + seconds, reader

    def _on_signals(self) -> None:
        now = time.monotonic()
        for arrived in linux.read_signals(self._arriving):
            if arrived.number == signal.SIGCHLD:
                self._reap()
            elif arrived.number == signal.SIGWINCH:
                self._resize()
            elif arrived.number != signal.SIGXCPU or arrived.code <= 0:  # the kernel means what we have used ourselves
                self._arrived.append((arrived, now))

    def _on_witness(self) -> None:
        if self._witness is None:
            return
        try:
            data = os.read(self._witness, 4096)
        except OSError:
            data = b""
        if not data:
            self._stop_reading(self._witness)
            self._witness = None
        for number in data:
            if number == PROBE and self._asked is not None:
                self._answered, self._asked = self._asked, None
            else:
                self._witnessed.append((number, time.monotonic()))

    def _on_events(self) -> None:
        if self._events is None:
            return
        for event in self._events.read(self._family):
            if event.kind == proc_events.FORK:
                if event.parent is not None:
                    self._found(self._family.add(event.pid, event.parent))
                continue
            process = self._family.living.get(event.pid)
            if process is None:
                continue
            if event.kind == proc_events.EXEC:
                process.argv = []
                self._identify(process)
                self._note_group(process)
            else:
                self._exited(process, event.at, event.status)
        self._rest(self._events.fd, self._on_events)
        if self._events.lost:
            self._events.lost = False
            self._evidence.gap("process events", "the kernel dropped some: ends of processes may be missing")
            for process in self._family.discover():
                self._found(process)

    def _on_senders(self) -> None:
        if self._senders is None:
            return
        self._read_trace()
        self._on_events()  # the target may have been made a moment before
        lines, self._traced = self._traced, []
        for line in lines:
            # Without the kernel's events we are in a pid namespace, and the trace does not know us by our pids: all are
            # kept.
            if self._events is None or line.target_tid in self._ever or line.target_tid == os.getpid():
                sender = line.sender_pid or (line.sender_tid if line.sender_tid in self._ever else None)
                self._evidence.write("sent", {**line._asdict(), "sender_pid": sender}, line.at)

    def _read_trace(self) -> None:
        """At once: who the sender is can be asked as long as it lives."""
        if self._senders is not None:
            lines = self._senders.read()
            self._traced += lines
            for line in lines:
                self._words.traced(line)

    def _on_kernel(self) -> None:
        if self._kernel is None:
            return
        for record in self._kernel.read():
            self._words.logged(record)
            self._evidence.write("kernel", {"record": record})
        self._rest(self._kernel.fd, self._on_kernel)

    # Deaths.

    def _reap(self) -> None:
        self._on_events()  # whose child somebody is can be told as long as the parent is known
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                if self.status is None:  # it cannot be, and waiting for ever would be the worst answer
                    self._evidence.gap("run", "the command was reaped by somebody else: how it ended is not known")
                    self.status = 1 << 8
                return
            if info is None:
                return
            pid = info.si_pid
            process = self._family.living.get(pid)
            if process is None and pid not in self._own and pid not in self._ever:
                process = self._family.add(pid, os.getpid())  # an orphan that nobody had seen before
            if process is not None:
                process.look()
            try:
                _, status, usage = os.wait4(pid, 0)
            except ChildProcessError:
                continue
            if pid == self._pid:
                self.status = status  # before anything that could fail
            if pid in self._own:
                self._own.discard(pid)
                continue
            if process is not None:
                self._died(process, process.ended, status, usage)
            if pid == self._pid:
                self._ended_at = process.ended if process and process.ended else time.monotonic()

    def _exited(self, process: Process, at: float, status: int | None) -> None:
        """An event or a pidfd said so. Our own children are waited for as well: that has the use of resources."""
        process.look()
        if process.parent == os.getpid():
            process.ended = at
            return
        # Without the kernel's events: its parent may not have reaped it yet, and then its status can still be read.
        # Where all permission is missing the kernel says 0 (fs/proc/array.c, do_task_stat), so that is not believed.
        self._died(process, at, status if status is not None else process.status or None, None)

    def _on_rank_end(self, process: Process, first: float | None = None) -> None:
        """A pidfd says that a process has ended about which torchrun will look for last words. The kernel's event, with
        the status and the exact time, comes a moment later (kernel/exit.c, do_exit), if it is not lost."""
        at = time.monotonic() if first is None else first
        process.look()  # the status can be read until torchrun has asked for it
        self._on_events()
        if process.pidfd is None:
            return  # the event has come
        if self._events is not None and first is None:
            self._rest(process.pidfd, lambda: self._on_rank_end(process, at), _MOMENT)
        else:
            self._exited(process, at, None)

    def _died(
        self, process: Process, at: float | None, status: int | None, usage: resource.struct_rusage | None
    ) -> None:
        self._speak_for(process, status, at)
        self._words.forget(process.pid)
        if process.pidfd is not None:
            self._stop_reading(process.pidfd)
        self._family.remove(process.pid)
        members: dict[str, Value] = {**process.members(), **_status_members(status), "direct": process.pid == self._pid}
        if usage is not None:
            members["usage"] = {
                "maxrss": usage.ru_maxrss * 1024,
                "user": round(usage.ru_utime, 6),
                "system": round(usage.ru_stime, 6),
                "major_faults": usage.ru_majflt,
            }
        if status == 0 and process.pid == self._pid:
            return  # it ended well, and so will its folder
        if status == 0:
            self._ended_well += 1
            if self._ended_well > _MOST_ENDED_WELL:
                self._evidence.gap("run", f"of processes that ended well only the first {_MOST_ENDED_WELL} are listed")
                return
        self._evidence.write("died", members, at)
        signalled = status is None or os.WIFSIGNALED(status)
        if signalled:
            self._killed_at = time.monotonic()
        remembered = self._killed if signalled else self._failed
        if status != 0 and len(remembered) < _MOST_REMEMBERED:
            remembered.add(process.pid)
        if status != 0:
            now = time.monotonic()
            self._counts = [count for count in self._counts if now - count < 1]
            if len(self._counts) < _COUNTS_PER_SECOND:
                self._counts.append(now)
                self._count("death", process.cgroup or self._cgroup)

    def _speak_for(self, process: Process, status: int | None, at: float | None) -> None:
        """First of all that is done about a death: torchrun may ask for it in the next moment."""
        if not self._words.concern(process):
            return
        if status != 0:
            self._on_kernel()
            self._read_trace()
        writer = self._words.died(process, status, time.monotonic() if at is None else at)
        if writer is not None:
            self._own.add(writer)
            self._family.leave_out(writer)

    # Looking around.

    def _look(self) -> None:
        if not self._armed:
            self._arm_or_start()
        begun = time.process_time()
        if self._events is None:
            for process in self._family.discover():
                self._found(process)
        for process in list(self._family.living.values()):
            process.look()
            if not process.argv:
                process.identify()
            self._note_group(process)
        # One look that found much to read does not slow the next ones down; a large machine does.
        cost, self._cost = min(time.process_time() - begun, self._cost), time.process_time() - begun
        self._next_look = time.monotonic() + min(max(_LOOK_EVERY, cost / _LOOK_SHARE), _LOOK_AT_LEAST)

    def _found(self, process: Process | None) -> None:
        if process is None:
            return
        if len(self._ever) < 1_000_000:
            self._ever.add(process.pid)
        if process.uid is None:
            self._identify(process)
        self._note_group(process)
        if self._events is None:
            self._watch_end(process)

    def _watch_end(self, process: Process) -> None:
        if process.pidfd is None and process.parent != os.getpid():
            try:
                self._read_from(process.watch(), lambda: self._on_rank_end(process))
            except OSError as error:
                self._evidence.gap("pidfd", f"the end of some processes is seen late: {error.strerror}")

    def _identify(self, process: Process) -> None:
        """Now, unless too many come at once: a job that starts thousands of short programs must not make us work. Those
        that live longer are asked at the next look."""
        now = time.monotonic()
        self._credit = min(_IDENTIFY_AT_ONCE, self._credit + (now - self._credited) * _IDENTIFY_PER_SECOND)
        self._credited = now
        if self._credit >= 1:
            self._credit -= 1
            process.identify()
            if process.reply is not None:
                self._watch_end(process)

    def _note_group(self, process: Process) -> None:
        """The counters of a group that we have not seen yet: what its deaths are compared with."""
        path = memory_path(process.cgroup)
        if path not in self._groups and len(self._groups) < _MOST_GROUPS:
            self._count("start", process.cgroup)

    def _count(self, why: str, cgroup: list[str]) -> None:
        self._groups.add(memory_path(cgroup))
        self._evidence.write("counted", {"why": why, "reading": counters.reading(cgroup)})

    def _arm_or_start(self) -> None:
        """Arm what takes time, unless the command is over, and write the first line, which tells what is armed."""
        if self._armed:
            return
        self._armed = True
        if self._settings.trace and self.status is None:
            self._senders = _open_senders(self._evidence)
            if self._senders is not None:
                self._read_from(self._senders.fd, self._on_senders)
            self._kernel = _open_kernel(self._evidence)
            if self._kernel is not None:
                self._read_from(self._kernel.fd, self._on_kernel)
        elif self._settings.trace:
            self._evidence.gap(
                "trace", "the command was over before anything was traced: who sends signals is not seen"
            )
        self._evidence.write("started", self._started())
        if self._ledger is not None and self.status is None:
            with suppress(OSError):
                recording = ledger.start_recording(self._ledger, self._pid, os.environ)
                if recording is not None:
                    self._own.add(recording)
                    self._family.leave_out(recording)

    def _started(self) -> dict[str, Value]:
        system = os.uname()
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "clocks": self._begun,
            "boot_id": counters.boot_id(),
            "host": system.nodename,
            "pid": os.getpid(),
            "child": self._pid,
            "argv": descendants.shown(self._command),
            "cwd": _working_directory(),
            "uid": os.getuid(),
            "cgroup": self._cgroup,
            "container": container_id(self._cgroup, read_mountinfo()),
            "pid_namespace": linux.namespace("pid"),
            "cgroup_namespace": linux.namespace("cgroup"),
            "nspid": _nspid(),
            "environment": [f"{name}={value}" for name, value in environment.recorded_variables(os.environ)],
            "kernel": system.release,
            "traced": self._senders is not None,
            "kernel_log": self._kernel is not None,
            "preloaded": self._settings.preload,
        }

    # Signals.

    def _pass_on(self) -> None:
        now = time.monotonic()
        waiting: list[tuple[linux.Arrived, float]] = []
        for arrived, at in self._arrived:
            told = next((one for one in self._witnessed if one[0] == arrived.number), None)
            sender = arrived.pid if arrived.code <= 0 else None
            if told is not None:
                self._witnessed.remove(told)
                did = "the whole process group got it: left alone"
                self._evidence.write("forwarded", {"signal": arrived.number, "sender_pid": sender, "did": did})
            elif self._witness is not None and self._answered < at + _GROUP_KILL and now - at < _WITNESS_PATIENCE:
                waiting.append((arrived, at))
                self._ask(now, at)
            else:
                self._send(arrived.number)
                did = "passed on"
                self._evidence.write("forwarded", {"signal": arrived.number, "sender_pid": sender, "did": did})
        self._arrived = waiting
        self._witnessed = [one for one in self._witnessed if now - one[1] < 2 * _WITNESS_PATIENCE]

    def _ask(self, now: float, at: float) -> None:
        """Has the witness got it too? It tells its signals in ascending order, so when it tells the highest one, which
        we send, it has told all that it had."""
        if self._asked is None and now >= at + _GROUP_KILL:
            try:
                os.kill(self._witness_pid, PROBE)
                self._asked = now
            except OSError:
                self._witness = None

    def _send(self, number: int) -> None:
        if self.status is None:
            try:
                os.kill(self._pid, number)  # not reaped yet, so the pid is its own
            except OSError:
                return

    def _resize(self) -> None:
        """The terminal told the whole group that its size is new. The pseudo-terminal learns it here, a moment later,
        so the group is told again."""
        changed = [streams.copy_size(route.real, route.terminal) for route in self._terminals if route.terminal]
        if any(changed):
            try:
                os.killpg(0, signal.SIGWINCH)
            except OSError:
                return

    # The end.

    def _settle(self) -> None:
        """The kernel's lines and the trace of a death arrive within moments of it."""
        self._on_events()
        while (left := self._killed_at + _SETTLE - time.monotonic()) > 0:
            self._step(left)
        self._on_events()
        self._on_senders()
        self._on_kernel()

    def _dismiss(self) -> None:
        """Wait for our helpers: a container without an init would keep them as zombies. The copier may have to stay,
        for what the job left running; the log is kept after a bad end only."""
        copier = self._copier.pid if self._copier is not None else None
        for pid in self._own - {copier}:
            if pid == self._witness_pid or self.status == 0:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + _FAREWELL
        while self._own and time.monotonic() < until:
            for pid in list(self._own):
                with suppress(ChildProcessError):
                    if os.waitpid(pid, os.WNOHANG)[0] == 0:
                        continue
                self._own.discard(pid)
            if self._own:
                time.sleep(0.002)

    def _delivered(self) -> tuple[Delivery, bool]:
        """Wait until the job's output is where it belongs: the prompt, or our verdict, must come after it. True: a
        signal came while we waited."""
        if self._copier is None:
            return Delivery(True, None, False), False
        control = self._copier.control.fileno()
        while True:
            ready = select.select([control, self._arriving], [], [])[0]
            if control in ready:
                return self._copier.answer(), False
            for arrived in linux.read_signals(self._arriving):
                if arrived.number == signal.SIGCHLD:
                    self._reap()
                elif arrived.number not in (signal.SIGWINCH, signal.SIGCONT):
                    return Delivery(False, None, True), True


def _remark(place: _Place, say: Say) -> None:
    if place.path is None:
        return
    earlier = previous_attempt(place.path)
    if earlier is not None:
        say(f"previous attempt: nobody saw how it ended; ftforensics analyze {earlier}")
    passing = passing_file_system(place.path, os.environ)
    if passing is not None:
        say(f"{place.path} lies on {passing} and goes with this container; name a volume with --dir or FTFORENSICS_DIR")


def _variables(
    command: Sequence[str], settings: Settings, folder: str | None
) -> tuple[dict[bytes, bytes], list[tuple[str, str, str | None]]]:
    """The command's environment: what puts recorder and handlers into its Pythons, if there is a folder for them."""
    variables = dict(os.environ)
    gaps: list[tuple[str, str, str | None]] = []
    if folder is not None:
        try:
            from ftforensics.supervise import injection

            variables, gaps = injection.environment(variables, folder, settings.preload, command)
        except Exception as error:  # noqa: BLE001 - a job without our recorder is better than no job
            variables = {**os.environ, "FTFORENSICS_DIR": folder}
            gaps = [("injection", f"nothing was put into the job's Pythons: {error}", None)]
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}, gaps


def _start_copying(routes: list[Route], place: _Place, own: list[int]) -> tuple[list[Route], Copier | None]:
    """(the detours that there are, who serves them). Without its server there is none."""
    if not routes:
        return [], None
    log = _start_log(place)
    if log is not None:
        own.append(log.pid)
    try:
        copier = start_copier(routes, log)
        own.append(copier.pid)
        return routes, copier
    except OSError as error:
        place.evidence.gap("launcher.log", f"no process could be had to keep it: {error.strerror}")
        for fd in (fd for route in routes for fd in (route.inner, route.outer, route.real)):
            os.close(fd)
        return [], None
    finally:
        for fd in log[1:] if log else ():
            os.close(fd)


def _start_log(place: _Place) -> LogProcess | None:
    try:
        return start_log(place.log_path) if place.log_path else None
    except OSError as error:
        place.evidence.gap("launcher.log", f"cannot be written: {error.strerror}")
        return None


def _listen(evidence: Evidence) -> proc_events.ProcessEvents | None:
    try:
        return proc_events.listen()
    except OSError as error:
        unseen = "how processes end that others wait for is not seen"
        if error.errno == errno.EPROTONOSUPPORT:  # built without CONFIG_CONNECTOR
            evidence.gap("process events", f"{unseen}: this kernel does not tell")
        else:
            evidence.gap("process events", f"{unseen}: {error.strerror}", "run as root, outside a container")
        return None


def _open_senders(evidence: Evidence) -> Senders | None:
    try:
        from ftforensics.supervise.senders import open_tracing

        return open_tracing(lambda why, grant: evidence.gap("trace", why, grant))
    except Exception as error:  # noqa: BLE001 - evidence that cannot be had is a gap
        evidence.gap("trace", f"who sends a SIGKILL is not seen: {error}")
        return None


def _open_kernel(evidence: Evidence) -> KernelFollow | None:
    try:
        from ftforensics.supervise.kernel_follow import follow_kernel

        return follow_kernel(lambda why, grant: evidence.gap("kmsg", why, grant))
    except Exception as error:  # noqa: BLE001
        evidence.gap("kmsg", f"the kernel log is not followed: {error}")
        return None


def _let_go_of_streams(routes: Sequence[Route]) -> None:
    """What the command closes early must reach whoever waits for its end, or writes to its input. Standard error stays:
    our verdict goes there. A real terminal is kept to ask for its size."""
    taken = {number for route in routes for number in route.numbers}
    streams.occupy(number for number in (0, *((1,) if 1 in taken else ())))
    for route in routes:
        if route.terminal is None:
            os.close(route.real)


def _status_members(status: int | None) -> dict[str, Value]:
    if status is None:
        return {"status": None, "signal": None, "code": None}
    killed = os.WIFSIGNALED(status)
    return {
        "status": status,
        "signal": os.WTERMSIG(status) if killed else None,
        "code": None if killed else os.WEXITSTATUS(status),
        **({"core": True} if os.WCOREDUMP(status) else {}),
    }


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _nspid() -> list[int]:
    return list(proc_text.status(procfs.read_text("/proc/self/status", 16384) or "").nspid)


def _quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception:  # noqa: BLE001 - at the end nothing of ours matters more than the job's status
        return
