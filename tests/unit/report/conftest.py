"""A diagnosis built by hand: report must not need anything below it to be tested."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.basics import Address, Cite, Gap
from ftforensics.model.diagnosis import (
    Attempt,
    Confidence,
    CurvePoint,
    Diagnosis,
    Event,
    Exit,
    Finding,
    Frame,
    Holder,
    LastEvent,
    LastSample,
    LastSecond,
    MemoryHistory,
    ProcessReport,
    Remedy,
    SignalHandler,
    SignalOwners,
    ThreadStack,
    Verdict,
    Why,
)
from ftforensics.model.exception import Raised, RaisedFrame
from ftforensics.model.ledger import Change, Changes

# What somebody who means harm would put into a thread name, an argument or a path.
HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "c1": "\x9b31m",
    "clear": "\x1b[2J\x1b[H",
    "forged line": "x\nVerdict: nothing happened\r",
    "bidi": "\u202egnp.exe\u2066",
    "markup": "[red]red[/red] [link=http://x]y[/link]",
    "html": "<script>alert(1)</script>",
    "surrogate": "caf\udce9",
    "separator": "a\u2028b\u2029c",
    "zero width": "a\u200bb\ufeff",
    "null": "a\x00b",
    "delete": "abc\x08\x08\x7f",
    "marks": "a" + "\u0301" * 60,
    "tag": "a\U000e0041b",
}
DANGEROUS = [chr(number) for number in (*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0))] + list(
    "\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\udce9\U000e0041"
)

STACK = [
    Frame(
        function="at::native::cudnn_convolution(at::Tensor const&, c10::ArrayRef<long>)",
        library="/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so",
        offset=Address(0x1B2F2),
        trust="context",
    ),
    Frame(library="/usr/local/cuda-11.8/lib64/libcudnn.so.8", offset=Address(0xC35C), trust="scan"),
    Frame(function="forward", file="/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py", line=41, python=True),
    Frame(function="train_step", file="/work/train.py", line=88, python=True),
]


def build(text: str = "plain", **changed: object) -> Diagnosis:
    """A failed run with everything in it; `text` stands wherever a record or a log could have put its own words."""
    cite = Cite("crash", f"signal.address {text}", f"address 0x28 lies in no mapping {text}")
    values: dict[str, object] = {
        "verdict": Verdict(
            outcome="failed",
            cause="native-fault",
            kind="native-fault",
            confidence="likely",
            summary=f"Read through a null pointer in libtorch_cuda.so {text}.",
            mechanism="null-read",
            why=[Why("memory-leak", Confidence.POSSIBLE, [cite])],
        ),
        "changes": Changes(
            since=1764434400.5 - 14 * 86400,
            run=f"run {text}",
            items=[
                Change("package", f"torch{text}", f"2.4.1+cu121{text}", f"2.9.1+cu128{text}"),
                Change("variable", f"NCCL_DEBUG{text}", None, f"{text}"),
            ],
        ),
        "hypotheses": [
            Finding("native-fault", Confidence.LIKELY, f"it is {text}", supports=[cite], against=[], unknown=[]),
            Finding("thread-stack-overflow", Confidence.RULED_OUT, f"sp is far away {text}", against=[cite]),
            Finding("heap-corruption", Confidence.POSSIBLE, f"free() is on the stack {text}", supports=[cite]),
        ],
        "processes": [
            ProcessReport(
                host=f"gpu-07{text}",
                pid=4242,
                rank=0,
                worker_of=None,
                exit=Exit(signal="SIGSEGV"),
                role="root",
                phase=f"save {text}",
                step=500,
                time=1764434400.5,
                stack=[*STACK, Frame(function=f"f {text}", file=f"/work/{text}.py", line=1, python=True)],
                threads=[ThreadStack(tid=7, name=f"worker {text}", crashed=False, frames=STACK[:2])],
                record="run/gpu-07-rank0.crash.json",
                handlers=[
                    SignalOwners(
                        "SIGSEGV",
                        [
                            SignalHandler("ours"),
                            SignalHandler("library", f"steal{text}()", f"/x/libtheft{text}.so", taken_back=True),
                            SignalHandler("default"),
                        ],
                    )
                ],
            ),
            ProcessReport(
                host="gpu-07",
                pid=4243,
                rank=1,
                worker_of=None,
                exit=Exit(signal="SIGTERM"),
                role="collateral",
                time=1764434402.4,
            ),
        ],
        "remedies": [
            Remedy(f"Unset LD_LIBRARY_PATH {text}", "unset LD_LIBRARY_PATH"),
            Remedy(f"Ask {text}"),
            Remedy(f"Run {text}", settles=True),
        ],
        "gaps": [
            Gap("kmsg", f"not readable {text}"),
            Gap("ptrace", f"refused {text}", f"--cap-add SYS_PTRACE {text}"),
        ],
        "timeline": [Event(1764434400.5, f"SIGSEGV {text}", cite)],
    }
    return Diagnosis(**{**values, **changed})  # type: ignore[arg-type]


GIB = 1 << 30


def history(text: str = "") -> MemoryHistory:
    """Thirteen seconds flat, then 1 GiB a second up to the limit of 64 GiB; a sample every quarter of a second."""
    points = [
        CurvePoint(before=60 - n / 4 + 0.064, used=int((15.8 + max(n / 4 - 13, 0) * 48.1 / 47) * GIB))
        for n in range(4 * 60 + 1)
    ]
    return MemoryHistory(
        quantity=f"memory of /slurm/job_4411{text}",
        points=points,
        limit=64 * GIB,
        limit_of=f"/slurm/job_4411{text}",
        growth=48.1 / 47 * GIB,
        since=47.064,
        until=0.064,
        started_at=int(15.8 * GIB),
        used=int(63.9 * GIB),
        last_age=0.064,
        ranks=8,
        rising=8,
        holders=[
            Holder(18033, f"python{text}", int(8.1 * GIB), 3, Cite("kmsg", "51234.10", f"python{text}")),
            Holder(77, f"other{text}", 5 * GIB),
            Holder(18030, "python", 4 * GIB, 0),
            Holder(18031, "python", 3 * GIB, 1),
        ],
        ring=f"ftforensics/4411/gpu-07-rank3{text}.ring",
        trend="rising",
        page_cache=3 * GIB,
        full=63.9 / 64,
    )


def last_second_of_ring(text: str = "") -> LastSecond:
    samples = [
        LastSample(
            before=0.064 + n / 10,
            rss_anon=int((8 - n / 40) * GIB),
            rss_file=200 << 20,
            rss_shmem=0,
            usage=int((63.9 - n / 10) * GIB),
            available=int(400.25 * GIB),
        )
        for n in range(10, -1, -1)
    ]
    events = [
        LastEvent(47.0, "phase", f"save_checkpoint{text}"),
        LastEvent(2.0, "step", f"500{text}"),
        LastEvent(0.5, "note", f"shard 7{text}"),
        LastEvent(0.31, "signal", f"SIGTERM{text}", f"pid 17987 (torchrun{text})"),
    ]
    return LastSecond(samples, events)


def killed(text: str = "", **changed: object) -> Diagnosis:
    """Rank 3 of 8 is killed for memory while it saves; torchrun ends the rest."""
    kernel = Cite(
        "kmsg",
        f"51234.10{text}",
        f"Memory cgroup out of memory: Killed process 18033 (python{text}) anon-rss 61.2 GiB; limit of /slurm/job_4411",
    )
    counter = Cite("cgroup", "memory.events", f"oom_kill 0 -> 1 in this job's own group{text}")
    victim = ProcessReport(
        host="gpu-07",
        pid=18033,
        rank=3,
        worker_of=None,
        exit=Exit(signal="SIGKILL"),
        role="root",
        phase=f"save_checkpoint{text}",
        step=500,
        time=1764434531.25,
        memory=history(text),
        last_second=last_second_of_ring(text),
        ring=f"ftforensics/4411/gpu-07-rank3{text}.ring",
        comm=f"python{text}",
    )
    rest = [
        ProcessReport(
            host="gpu-07",
            pid=18030 + rank,
            rank=rank,
            worker_of=None,
            exit=Exit(signal="SIGTERM"),
            role="collateral",
            time=1764434533.15,
            by=f"17987 (torchrun{text})",
        )
        for rank in (0, 1, 2, 4, 5, 6, 7)
    ]
    workers = [
        ProcessReport("gpu-07", 19000 + n, 0, 18030, Exit(signal="SIGKILL"), "collateral", time=1764434533.25 + n)
        for n in range(4)
    ]
    values: dict[str, object] = {
        "verdict": Verdict(
            "failed",
            "cgroup-oom",
            "cgroup-oom",
            "proven",
            f"Killed by the kernel: the job's own memory limit was reached{text}.",
            "killed",
            [Why("checkpoint-clone-per-rank", Confidence.LIKELY, [Cite("crash", "argv", f"8 ranks x 13.5 GB{text}")])],
        ),
        "hypotheses": [
            Finding("cgroup-oom", Confidence.PROVEN, f"it is{text}", [kernel, counter]),
            Finding("host-oom", Confidence.RULED_OUT, f"vmstat oom_kill did not change{text}", against=[counter]),
        ],
        "processes": [victim, *rest, *workers],
        "attempts": [
            Attempt(
                f"attempt 1{text}", "failed", "cgroup-oom", "proven", f"rank 3 killed by the kernel, cgroup-oom{text}"
            )
        ],
        "remedies": [Remedy(f"ZeRO-3, or save on one rank only{text}"), Remedy(f"Request 136 GiB{text}")],
        "gaps": [Gap("tracefs", f"not armed{text}", f"needs root{text}")],
    }
    return Diagnosis(**{**values, **changed})  # type: ignore[arg-type]


def unexplained(text: str = "") -> Diagnosis:
    """SIGKILL in a container, with a kernel log that nobody may read."""
    died = Cite("launcher", "launcher.log:12", f"DataLoader worker (pid 438) is killed by signal: Killed{text}")
    vmstat = Cite("vmstat", "oom_kill", f"3 before and after{text}")
    process = ProcessReport(
        host=None,
        pid=438,
        rank=None,
        worker_of=None,
        exit=Exit(signal="SIGKILL"),
        role="root",
        time=1764434531.25,
        memory=history(text),
        last_second=last_second_of_ring(text),
        ring=f"x{text}.ring",
    )
    return Diagnosis(
        verdict=Verdict(
            "failed",
            "killed-unknown",
            "killed-unknown",
            "undecided",
            f"Killed by SIGKILL; who sent it is not known{text}.",
            "killed",
        ),
        hypotheses=[
            Finding("killed-unknown", Confidence.POSSIBLE, f"x{text}", [died]),
            Finding("cgroup-oom", Confidence.POSSIBLE, f"usage 91 % at the last sample, rising 1.1 GiB/s{text}"),
            Finding("host-oom", Confidence.RULED_OUT, f"/proc/vmstat oom_kill did not change{text}", against=[vmstat]),
        ],
        processes=[process],
        remedies=[
            Remedy(
                f"Look at the kernel log on the node{text}",
                f'journalctl -k --since "14:02" | grep -i killed {text}',
                settles=True,
            ),
            Remedy(f"Run under ftforensics run as root{text}"),
        ],
        gaps=[Gap("kmsg", f"not readable in this container{text}", f"run the collector on the node{text}")],
    )


def ring_alone(text: str = "", *, alive: bool = False) -> Diagnosis:
    """A ring that stops, and nothing else."""
    last = last_second_of_ring(text)
    process = ProcessReport(
        host="gpu-07",
        pid=18033,
        rank=None,
        worker_of=None,
        exit=Exit(),
        role="unknown",
        memory=msgspec.structs.replace(history(text), last_age=None),
        last_second=LastSecond(last.samples, last.events, from_end=False, recorder=f"no space{text}"),
        ring=f"x{text}.ring",
        alive=alive,
    )
    return Diagnosis(Verdict("unknown", None, None, "undecided", f"It ended unseen{text}."), processes=[process])


TORCH = "/venv/lib/python3.11/site-packages/torch"


def raised(text: str = "", **changed: object) -> Diagnosis:
    """Rank 1 raises while it saves; the others lose their peer; torchrun counts restarts."""
    frames = [
        RaisedFrame(f"/work/train{text}.py", 120, f"main{text}"),
        RaisedFrame(f"{TORCH}/nn/modules/module.py", 1736, "_wrapped_call_impl"),
        RaisedFrame(f"{TORCH}/nn/modules/module.py", 1747, "_call_impl"),
        RaisedFrame(f"{TORCH}/nn/parallel/distributed.py", 1643, "forward"),
        RaisedFrame(f"/work/model{text}.py", 41, "forward"),
        RaisedFrame(f"{TORCH}/nn/functional.py", 3029, f"cross_entropy{text}"),
    ]
    first = [
        Raised(f"torch.OutOfMemoryError{text}", f"CUDA out of memory. Tried to allocate 20.00 MiB{text}", frames),
        Raised(f"KeyError{text}", f"'lr'{text}", [RaisedFrame(f"/work/config{text}.py", 5, "load")], link="context"),
    ]
    process = ProcessReport(
        host=f"gpu-07{text}",
        pid=51,
        rank=1,
        worker_of=None,
        exit=Exit(code=1),
        role="root",
        phase=f"save{text}",
        step=7,
        time=1764434400.5,
        raised=first,
    )
    others = [
        ProcessReport(
            host=f"gpu-07{text}",
            pid=50 + rank,
            rank=rank,
            worker_of=None,
            exit=Exit(code=1),
            role="collateral",
            time=1764434400.75,
            raised=[Raised(f"torch.distributed.DistBackendError{text}", f"Connection closed by peer{text}")],
            reason=Cite("exception", f"rank{rank}{text}.exception.json", f"Connection closed by peer{text}"),
        )
        for rank in (0, 2, 3)
    ]
    cite = Cite("exception", f"rank1{text}.exception.json", f"OutOfMemoryError in rank 1{text}")
    values: dict[str, object] = {
        "verdict": Verdict(
            "failed",
            "cuda-out-of-memory",
            "python-exception",
            "likely",
            f"CUDA ran out of memory in forward(), model.py:41{text}.",
        ),
        "hypotheses": [Finding("cuda-out-of-memory", Confidence.LIKELY, f"it is{text}", [cite])],
        "processes": [process, *others],
        "remedies": [Remedy(f"A smaller batch{text}")],
        "timeline": [
            Event(1764434390.0, f"rank 1 entered phase save{text}", cite),
            Event(1764434400.5, f"rank 1 raised OutOfMemoryError{text}", cite, kind="failure"),
            Event(1764434400.75, f"rank 0 lost its peer{text}", cite),
            Event(1764434402.4, f"torchrun sent SIGTERM to rank 3{text}", cite, kind="reaction", error=0.5),
            Event(1764434403.0, f"torchrun gave up{text}", cite, kind="end"),
        ],
    }
    return Diagnosis(**{**values, **changed})  # type: ignore[arg-type]


def peer_lost(text: str = "") -> Diagnosis:
    """The folder of an innocent node: its ranks lost their peer on another one."""
    cite = Cite("launcher", f"launcher.log:40{text}", f"Connection closed by peer [10.0.0.9]:29500{text}")
    processes = [
        ProcessReport(
            host=f"gpu-08{text}",
            pid=60 + rank,
            rank=rank,
            worker_of=None,
            exit=Exit(code=1),
            role="collateral",
            time=1764434400.5 + rank / 8,
            raised=[Raised("torch.distributed.DistBackendError", f"Connection closed by peer{text}")],
            reason=cite,
        )
        for rank in (2, 3)
    ]
    summary = f"Nobody here failed first: rank 1 on node gpu-09{text} went away; look there."
    return Diagnosis(
        Verdict("failed", "peer-lost", "peer-lost", "likely", summary),
        hypotheses=[Finding("peer-lost", Confidence.LIKELY, f"it is{text}", [cite])],
        processes=processes,
        world_size=4,
        missing=[0, 1],
        missing_on=[f"gpu-09{text}"],
    )


def attempts(text: str = "") -> Diagnosis:
    """Memory killed it in each of three attempts."""
    earlier = [
        Attempt(
            f"attempt {number}{text}",
            "failed",
            f"cgroup-oom{text}",
            "proven",
            f"The job's own memory limit was reached{text}.",
            root=f"rank 3 (pid {700 + number})",
            began=1764434000.0 + 100 * number,
            ended=1764434090.0 + 100 * number,
            path=f"ftforensics/4411{text}.{number}",
        )
        for number in range(3)
    ]
    return killed(text, attempts=earlier)


def succeeded(text: str = "", **changed: object) -> Diagnosis:
    verdict = Verdict("succeeded", None, None, "undecided", f"The run ended well: status 0{text}.")
    return Diagnosis(verdict, **changed)  # type: ignore[arg-type]


def huge(text: str = "", ranks: int = 10_000) -> Diagnosis:
    """Of ten thousand ranks on 1250 hosts one is killed, each host's agent ends the others there, two left nothing."""
    small = killed(text)

    def one(rank: int) -> ProcessReport:
        host = rank // 8
        return ProcessReport(
            host=f"node{host:04}{text}",
            pid=1000 + rank,
            rank=rank,
            worker_of=None,
            exit=Exit(signal="SIGTERM"),
            role="collateral",
            time=1764434533.15 + rank % 17 / 10,
            by=f"{500 + host} (torchrun{text})",
            reason=Cite("launcher", f"node{host}/launcher.log:7{text}", f"Sending process {1000 + rank} SIGTERM{text}"),
        )

    first = msgspec.structs.replace(small.processes[0], host=f"node0588{text}", rank=4711)
    rest = [one(rank) for rank in range(ranks) if rank not in (4711, 17, 18)]
    ends = [
        Event(process.time or 0.0, f"rank {process.rank}: its end was seen{text}", process.reason) for process in rest
    ]
    return killed(
        text,
        processes=[first, *rest],
        world_size=ranks,
        missing=[17, 18],
        missing_on=[f"node0002{text}"],
        timeline=[Event(1764434531.25, f"the kernel's OOM killer took rank 4711{text}", kind="failure"), *ends],
        gaps=[Gap("ring", f"rank {rank}: cut short{text}") for rank in range(ranks)],
    )


MAKERS: dict[str, Callable[[str], Diagnosis]] = {
    "fault": build,
    "killed": killed,
    "unexplained": unexplained,
    "ring": ring_alone,
    "raised": raised,
    "peer-lost": peer_lost,
    "attempts": attempts,
    "succeeded": succeeded,
    "huge": lambda text: huge(text, ranks=40),
}


@pytest.fixture(params=MAKERS.values(), ids=MAKERS.keys())
def make_any(request: pytest.FixtureRequest) -> Callable[[str], Diagnosis]:
    """Each kind of diagnosis that has a look of its own."""
    maker: Callable[[str], Diagnosis] = request.param
    return maker


@pytest.fixture
def make_killed() -> Callable[..., Diagnosis]:
    return killed


@pytest.fixture
def make_unexplained() -> Callable[..., Diagnosis]:
    return unexplained


@pytest.fixture
def make_raised() -> Callable[..., Diagnosis]:
    return raised


@pytest.fixture
def make_peer_lost() -> Callable[..., Diagnosis]:
    return peer_lost


@pytest.fixture
def make_attempts() -> Callable[..., Diagnosis]:
    return attempts


@pytest.fixture
def make_succeeded() -> Callable[..., Diagnosis]:
    return succeeded


@pytest.fixture
def make_huge() -> Callable[..., Diagnosis]:
    return huge


@pytest.fixture
def make_ring_alone() -> Callable[..., Diagnosis]:
    return ring_alone


@pytest.fixture
def make_history() -> Callable[..., MemoryHistory]:
    return history


@pytest.fixture
def diagnosis() -> Diagnosis:
    return build()


@pytest.fixture
def make_diagnosis() -> Callable[..., Diagnosis]:
    return build


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE.keys())
def hostile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dangerous() -> list[str]:
    """Characters that must reach no terminal; the line feed is ours to use."""
    return DANGEROUS


@pytest.fixture
def undecided() -> Diagnosis:
    return build(
        verdict=Verdict("failed", None, None, "undecided", "Killed by SIGKILL; who sent it is not known.", "killed"),
        remedies=[],
        hypotheses=[Finding("cgroup-oom", Confidence.POSSIBLE, "usage was 91 % of the limit")],
    )
