"""Deaths written by hand, one sentence of evidence at a time, for the causes' tests.

    killed().oom("memcg").counter("oom_kill", 0, 1).death

pid 18033, rank 3, on gpu-07, in /slurm/job_4411, ended at 1000.0 on the monotonic clock. Nothing is known but what is
said.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import Sender
from ftforensics.model.death import (
    CounterChange,
    Death,
    KernelMatch,
    Match,
    NoticeMatch,
    OomMatch,
    Outside,
    SentMatch,
    SignalMatch,
    Tie,
)
from ftforensics.model.exception import ExceptionRecord, Raised, RaisedFrame
from ftforensics.model.kernel import CpuLimit, LogLine, MemoryFailure, OomKill, OomTask, Oops
from ftforensics.model.launcher import ExceptionSeen, NativeText, TextLine
from ftforensics.model.moment import Moment
from ftforensics.model.notice import Notice
from ftforensics.model.reading import GroupReading, Reading
from ftforensics.model.ring import ChildUse, ClockPair, FastSample, Ring, RingProcess, RingSignal, SlowSample
from ftforensics.model.run import Sent, Usage

GIB = 1 << 30
BOOT = "1f0c9e1e-6a43-4b7e-a6f1-f4c6a80d7a11"
PID = 18033
END = 1000.0  # CLOCK_MONOTONIC
EPOCH = 1764434400.0  # CLOCK_REALTIME of it
JOB = "/slurm/job_4411"
TRAIN = "/home/user/job/train.py"
TORCH = "/home/user/venv/lib/python3.11/site-packages/torch/nn/functional.py"
WHY = Cite("kmsg", "kernel.log:7", f"pid {PID} is this process")


def at(monotonic: float, accuracy: float = 0.0) -> Moment:
    return Moment(EPOCH + monotonic - END, monotonic, accuracy, BOOT)


def tie(tie: Tie = Tie.EXACT, *against: str) -> Match:
    return Match(tie, [WHY], [Cite("kmsg", "kernel.log:7", text) for text in against])


class DeathBuilder(msgspec.Struct, frozen=True):
    death: Death

    def set(self, **fields: Any) -> DeathBuilder:
        return DeathBuilder(msgspec.structs.replace(self.death, **fields))

    def _add(self, field: str, value: object) -> DeathBuilder:
        return self.set(**{field: [*getattr(self.death, field), value]})

    def oom(
        self,
        scope: str | None = "memcg",
        how: Tie = Tie.EXACT,
        *against: str,
        own: bool | None = True,
        facility: int | None = 0,
        tasks: list[tuple[int, str, int]] | None = None,
        **kill: Any,
    ) -> DeathBuilder:
        """The kernel's record of an OOM kill. tasks: rows of its table, (pid, name, bytes)."""
        text = f"Memory cgroup out of memory: Killed process {PID} (python) anon-rss:64171264kB"
        rows = [OomTask(pid, name, rss=rss) for pid, name, rss in tasks or []]
        fields: dict[str, Any] = {"anon_rss": 61 * GIB, "tasks": rows}
        if scope == "memcg" and own is not None:
            group = JOB if own else "/slurm"
            fields |= {"limit_group": group, "victim_group": JOB, "usage": 64 * GIB, "limit": 64 * GIB}
        line = LogLine(text, 7, facility=facility, moment=at(END - 0.1))
        record = OomKill(line, PID, "python", scope, **(fields | kill))
        limits = Cite("kmsg", "kernel.log:3", "memory: usage 67108864kB, limit 67108864kB, failcnt 31")
        match = OomMatch(record, tie(how, *against), Cite("kmsg", "kernel.log:7", text), [limits], own)
        return self._add("oom", match)

    def other_oom(self, pid: int = 900) -> DeathBuilder:
        """An OOM kill of somebody else's process at the time."""
        line = LogLine(f"Out of memory: Killed process {pid} (java)", 9, facility=0, moment=at(END - 3))
        return self._add("others_oom", OomKill(line, pid, "java", "host"))

    def counter(
        self,
        name: str,
        before: int,
        after: int,
        *,
        own: bool = True,
        bracketing: bool = True,
        group: str | None = None,
    ) -> DeathBuilder:
        machine = name.startswith("vmstat")
        where = None if machine else group or (JOB if own else "/slurm")
        cite = Cite("cgroup", f"{where or '/proc/vmstat'} {name}", f"{name} {before} -> {after}")
        change = CounterChange(name, where, before, after, bracketing, cite, own and not machine)
        return self._add("counters", change)

    def memory(
        self,
        used: float = 63.9,
        limit: float | None = 64,
        *,
        age: float = 0.064,
        cache: float | None = 1,
        above: tuple[float, float] | None = None,
        available: float = 700,
        total: float = 1000,
        growth: float = 0.0,
        **ring: Any,
    ) -> DeathBuilder:
        """The recorder's last look, GiB. above: usage and limit of the group above; growth: GiB/s before it."""
        last = END - age
        own = GroupReading(
            JOB,
            2,
            int(used * GIB),
            None if limit is None else int(limit * GIB),
            file=None if cache is None else int(cache * GIB),
        )
        parent = GroupReading("/slurm", 2, *(None if above is None else int(size * GIB) for size in above or (0, 0)))
        reading = Reading(
            at(last), "ring", "rank3.ring slow[3]", [own, parent], None, int(total * GIB), int(available * GIB)
        )
        fast = [
            FastSample(last - back, int(3 * GIB), 0, 0, int((used - growth * back) * GIB), int(available * GIB))
            for back in (2.0, 1.5, 1.0, 0.5, 0.0)
        ]
        slow = ring.pop("slow", [SlowSample(last, reading)])
        made = Ring(
            RingProcess(PID, boot_id=BOOT),
            clocks=[ClockPair(EPOCH - 10, END - 10, END - 10)],
            last=last,
            fast=fast,
            slow=slow,
            **ring,
        )
        return self.set(ring=made, ring_path="rank3.ring", last_reading=reading)

    def children(self, count: int, each: float) -> DeathBuilder:
        """Its children at the last look, GiB each."""
        ring = self.death.ring
        assert ring is not None
        uses = [ChildUse(PID + 1 + index, "pt_data_worker", int(each * GIB)) for index in range(min(count, 4))]
        sample = msgspec.structs.replace(
            ring.slow[-1], children=uses, children_count=count, children_rss=int(count * each * GIB)
        )
        return self.set(ring=msgspec.structs.replace(ring, slow=[*ring.slow[:-1], sample]))

    def sent(
        self,
        comm: str = "bash",
        pid: int = 4000,
        how: Tie = Tie.EXACT,
        *against: str,
        signal: int | None = None,
        role: str | None = None,
        by_kernel: bool = False,
    ) -> DeathBuilder:
        """A traced signal to this process."""
        number = signal or self.death.signal or 9
        sent = Sent(END - 0.01, number, 128 if by_kernel else 0, comm, pid, "python", PID, sender_pid=pid)
        cite = Cite("trace", "signal_generate", f"{comm}-{pid} sig={number} code={sent.code} pid={PID}")
        return self._add("sent", SentMatch(sent, tie(how, *against), cite, by_kernel, role))

    def signal(
        self,
        number: int,
        sender: int | None = 4000,
        *,
        code: int = 0,
        before: float = 0.01,
        role: str | None = None,
        comm: str | None = None,
        fatal: bool = True,
    ) -> DeathBuilder:
        """A signal that the recorder saw arriving."""
        seen = RingSignal(END - before, f"SIG{number}", number, Sender(sender, 0) if sender is not None else None, code)
        seen = msgspec.structs.replace(seen, fatal=fatal)
        cite = Cite("ring", "rank3.ring signals[0]", f"signal {number} from {sender}, code {code}")
        return self._add("signals", SignalMatch(seen, cite, before, role, comm))

    def notice(
        self,
        authority: str,
        kind: str,
        how: Tie = Tie.EXACT,
        *against: str,
        alone: bool = True,
        before: float | None = 0.5,
        above: bool = False,
        **fields: Any,
    ) -> DeathBuilder:
        """What a scheduler, a runtime or a memory daemon says. before: seconds before the end; None: without a time."""
        moment = Moment() if before is None else at(END - before, 1.0)
        cite = Cite(authority, f"{authority}.log:1", f"{authority}: {kind}")
        notice = Notice(authority, kind, cite, moment, **fields)
        return self._add("notices", NoticeMatch(notice, tie(how, *against), alone, above))

    def ended_by(self, launcher: str = "torchrun", signal: int | None = 15) -> DeathBuilder:
        cite = Cite("launcher", "launcher.log:40", f"Sending process {PID} closing signal SIGTERM")
        return self._add("ended_by", Outside(cite, launcher, signal))

    def kernel(
        self, event: str, how: Tie = Tie.EXACT, *against: str, facility: int | None = 0, **fields: Any
    ) -> DeathBuilder:
        """event: "oops", "memory-failure" or "cpu-limit"."""
        line = LogLine(f"the kernel's line of {event}", 12, facility=facility, moment=at(END - 0.1))
        made: Oops | MemoryFailure | CpuLimit
        if event == "oops":
            made = Oops(line, **({"kind": "oops", "pid": PID, "comm": "python"} | fields))
        elif event == "memory-failure":
            made = MemoryFailure(line, PID, "python", **fields)
        else:
            made = CpuLimit(line, PID, "python")
        return self._add("kernel", KernelMatch(made, tie(how, *against), Cite("kmsg", "kernel.log:12", line.text)))

    def parent_died(self, before: float = 0.01) -> DeathBuilder:
        cite = Cite("run", "evidence.jsonl:8", "pid 17000 ended")
        return self.set(parent_died=at(END - before), parent_cite=cite)

    def used_cpu(self, seconds: float) -> DeathBuilder:
        """Processor time of the process with its children, as its parent saw."""
        return self.set(usage=Usage(user=seconds, system=0.0))

    def text(
        self, kind: str, message: str | None = None, type: str | None = None, rank: int | None = 3
    ) -> DeathBuilder:
        line = TextLine(f"{type or kind}: {message}", 30)
        return self._add("texts", NativeText(line, kind, type, message, rank))

    def exception(self, type: str, message: str = "", rank: int | None = 3, **fields: Any) -> DeathBuilder:
        """The last line of a traceback in the log. file, file_line, function: its innermost frame."""
        number = fields.pop("number", 31)
        line = TextLine(f"{type}: {message}", number, fields.pop("moment", Moment()))
        return self._add("exceptions", ExceptionSeen(line, type, message, rank, **fields))

    def raised(self, type: str, message: str = "", *files: str, **fields: Any) -> DeathBuilder:
        """What the process recorded of its exception itself. files: of its frames, outermost first; chain: what it came
        from; other fields are the record's."""
        frames = [RaisedFrame(file, 80 + index, f"f{index}") for index, file in enumerate(files or (TRAIN,))]
        about = {name: fields.pop(name) for name in ("errno", "filename", "bases") if name in fields}
        chain = [Raised(type, message, frames, **about), *fields.pop("chain", [])]
        known = {"hook": "sys.excepthook", "exceptions": chain}
        return self.set(raised=ExceptionRecord(**(known | fields)), raised_path="rank3.exception.json")

    def gap(self, source: str = "kmsg", why: str = "not readable in this container") -> DeathBuilder:
        return self._add("gaps", Gap(source, why, "run it on the node"))


def ended(signal: int | None = None, code: int | None = None, **fields: Any) -> DeathBuilder:
    """It ended so; a launcher says it."""
    said = f"exitcode: {-signal if signal else code} (pid: {PID})"
    ending = [Cite("launcher", "launcher.log:41", said)] if signal is not None or code is not None else []
    made = Death(
        pid=PID,
        host="gpu-07",
        boot_id=BOOT,
        rank=3,
        local_rank=3,
        comms=["python"],
        host_pids=[PID],
        groups=[JOB, "/slurm", "/"],
        signal=signal,
        code=code,
        ending=ending,
        when=at(END),
        earliest=at(END - 5),
    )
    return DeathBuilder(made).set(**fields)


def killed(**fields: Any) -> DeathBuilder:
    """Ended by SIGKILL."""
    return ended(9, **fields)


def unseen(**fields: Any) -> DeathBuilder:
    """A ring without an end mark is all there is."""
    return ended(None, None, **fields)
