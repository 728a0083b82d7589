"""How long does `analyze` take for the folder of a job with thousands of ranks, and how much memory?

    PYTHONPATH=src python benchmarks/many_ranks.py [--ranks 100 1000 10000] [--kinds oom segfault exception] [--flat]
                                                   [--build FOLDER]

Synthetic jobs, eight ranks a node, a folder a rank (--flat: all files in one): each rank has a recorder's ring with a
minute of samples and its standard error, and in the kind
  oom        the kernel's log and torchrun's output, which name the rank killed for memory; SIGTERM for the others
  segfault   a crash record and a helper's report: SIGSEGV in one rank, then NCCL's watchdog aborts all others
  exception  an exception record: one rank's own, the others' connection was closed
The culprit is rank 4711, or the one in the middle of a smaller job. It must come out, else the exit status is 1.
Reach: 10,000 ranks in under 10 s and 1 GB on two cores, and ten times the ranks cost at most 13 times the time above
what `analyze` costs for a single rank.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from synth.crash_record import CrashText  # noqa: E402
from synth.ring import EPOCH, Child, fast, group, mark, ring_bytes, sig, slow  # noqa: E402

REACH_SECONDS, REACH_BYTES, REACH_GROWTH = 10.0, 1 << 30, 13.0
A_NODE = 8  # ranks
BEGAN, FAILED = 1000.0, 1060.0  # CLOCK_MONOTONIC
FIRST_PID, AGENT = 1_000_000, 999_999
GIB = 1 << 30


@dataclass(frozen=True)
class Rank:
    number: int
    of: int
    culprit: bool

    @property
    def pid(self) -> int:
        return FIRST_PID + self.number

    @property
    def host(self) -> str:
        return f"node-{self.number // A_NODE:05d}"

    @property
    def local(self) -> int:
        return self.number % A_NODE

    @property
    def boot(self) -> str:
        return f"{self.number // A_NODE:08x}-6a43-4b7e-a6f1-f4c6a80d7a11"

    @property
    def died(self) -> float:
        return FAILED if self.culprit else FAILED + 5 + self.number % 100 / 1000


def ring_template(*, stopped: bool, end: str | None) -> bytes:
    chain = [group("/job_77", usage=40 * GIB, limit=64 * GIB, oom_kill=0), group("/", usage=50 * GIB)]
    made: bytes = ring_bytes(
        pid=FIRST_PID,
        nspid=[FIRST_PID],
        ppid=AGENT,
        host="node-00000",
        boot_id="00000000-6a43-4b7e-a6f1-f4c6a80d7a11",
        rank=0,
        local_rank=0,
        world_size=1,
        installed=BEGAN,
        fast=[fast(BEGAN + i / 10, rss_anon=4 * GIB, usage=40 * GIB, available=200 * GIB) for i in range(600)],
        slow=[slow(BEGAN + i, groups=chain, children=[Child(FIRST_PID + 5)]) for i in range(60)],
        signals=[sig(FAILED + 5, 15, pid=AGENT, uid=1000, fatal=True)] if stopped else [],
        marks=[mark(BEGAN + i, "step", str(i)) for i in range(60)],
        phase="train",
        phase_since=BEGAN + 1,
        end=end,
        end_at=FAILED if end else None,
        spare=0,
    )
    return made


def ring_of(template: bytes, rank: Rank) -> bytes:
    """The template with another process's name. Places: csrc/ftf_ring.h."""
    data = bytearray(template.replace(b"host=node-00000", f"host={rank.host}".encode()))
    data = data.replace(f"nspid={FIRST_PID}".encode(), f"nspid={rank.pid}".encode())
    data[48:52] = rank.pid.to_bytes(4, "little")
    data[80:88] = rank.number.to_bytes(8, "little")
    data[88:96] = rank.local.to_bytes(8, "little")
    data[96:104] = rank.of.to_bytes(8, "little")
    data[136:172] = rank.boot.encode()
    return bytes(data)


def crash_of(rank: Rank) -> bytes:
    text = CrashText()
    if rank.culprit:
        text.segv(0x28, "read")
    else:
        text.signal(6, "SIGABRT", -6, "SI_TKILL", sender=rank.pid)
    text.python(("/job/train.py", 88, "main"))
    text.members["time"] = {
        "realtime": EPOCH + rank.died,
        "monotonic": rank.died,
        "boottime": rank.died,
        "installed": BEGAN,
        "boot_id": rank.boot,
    }
    text.members["process"] = {
        "pid": rank.pid,
        "tid": rank.pid,
        "ppid": AGENT,
        "nspid": [rank.pid],
        "start_ticks": 98765,
        "main_thread": True,
        "python": "running",
    }
    text.members["job"] = {"host": rank.host, "rank": rank.number, "local_rank": rank.local, "machine": "x86_64"}
    data: bytes = text.data()
    return data


def helper_of(rank: Rank, record: str) -> bytes:
    frames = [{"function": "main", "file": "/job/train.py", "line": 88}, {"function": "<module>", "line": 99}]
    report = {
        "schema": "ftforensics.helper/1",
        "record": record,
        "pid": rank.pid,
        "tool": "py-spy",
        "version": "0.4.0",
        "threads": [{"tid": rank.pid, "name": "MainThread", "frames": frames}],
        "ms": 80.0,
    }
    return json.dumps(report).encode()


def exception_of(rank: Rank) -> bytes:
    peer = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:49298"
    message = "loss is NaN at step 60" if rank.culprit else peer
    members = {
        "schema": "ftforensics.exception/1",
        "tool": {"name": "ftforensics", "version": "0.1.0", "python": "3.11.7"},
        "time": {
            "realtime": EPOCH + rank.died,
            "monotonic": rank.died,
            "boottime": rank.died,
            "installed": BEGAN,
            "boot_id": rank.boot,
        },
        "process": {"pid": rank.pid, "tid": rank.pid, "ppid": AGENT, "nspid": [rank.pid], "start_ticks": 98765},
        "job": {"host": rank.host, "rank": rank.number, "local_rank": rank.local, "world_size": rank.of},
        "hook": "sys.excepthook",
        "exceptions": [
            {
                "type": "RuntimeError",
                "message": message,
                "frames": [{"file": "/job/train.py", "line": 88, "function": "main"}],
                "bases": ["Exception"],
            }
        ],
        "peer_lost": not rank.culprit,
        "phase": "train",
        "step": 60,
        "attempt": 0,
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in members.items()]
    return ("{" + ",\n".join(lines) + "}\n").encode()


def words_of(rank: Rank, kind: str) -> str:
    at = f"[rank{rank.number}]:"
    if kind == "exception" or not rank.culprit:
        last = (
            "RuntimeError: loss is NaN at step 60"
            if rank.culprit
            else "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
            f"[10.0.{rank.number % 250}.1]:{20000 + rank.number}"
        )
        return (
            f"{at} Traceback (most recent call last):\n"
            f'{at}   File "/job/train.py", line 88, in main\n'
            f"{at}     dist.all_reduce(p.grad)\n"
            f"{at} {last}\n"
        )
    return "step 59 loss 0.3395\n"


def torchrun_of(culprit: Rank, kind: str) -> str:
    code, name = {"oom": (-9, "SIGKILL"), "segfault": (-11, "SIGSEGV"), "exception": (1, "")}[kind]
    said = f"Signal {-code} ({name}) received by PID {culprit.pid}" if code < 0 else "To enable traceback see: ..."
    named = f"  ({name})" if name else ""
    return (
        f"E1129 16:55:20.300000 {AGENT} torch/distributed/elastic/multiprocessing/api.py:1002] failed"
        f" (exitcode: {code}) local_rank: {culprit.local} (pid: {culprit.pid}) of binary: /usr/bin/python3\n"
        "Traceback (most recent call last):\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "train.py FAILED\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n"
        "[0]:\n"
        "  time      : 2025-11-29_16:55:20\n"
        f"  host      : {culprit.host}\n"
        f"  rank      : {culprit.number} (local_rank: {culprit.local})\n"
        f"  exitcode  : {code} (pid: {culprit.pid}){named}\n"
        "  error_file: <N/A>\n"
        f"  traceback : {said}\n"
        "============================================================\n"
    )


def kernel_of(culprit: Rank) -> str:
    task = "/job_77"
    return (
        f"[{FAILED - 0.01:.6f}] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
        f"[{FAILED - 0.01:.6f}] memory: usage 67108864kB, limit 67108864kB, failcnt 1182\n"
        f"[{FAILED - 0.01:.6f}] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        f"oom_memcg={task},task_memcg={task},task=python,pid={culprit.pid},uid=1000\n"
        f"[{FAILED:.6f}] Memory cgroup out of memory: Killed process {culprit.pid} (python) total-vm:70000000kB,"
        " anon-rss:4194304kB, file-rss:5000kB, shmem-rss:0kB, UID:1000 pgtables:9000kB oom_score_adj:0\n"
    )


def build(folder: Path, ranks: int, kind: str, *, flat: bool) -> int:
    """The folder of a job that failed. The culprit's rank."""
    number = 4711 if ranks > 4711 else ranks // 2
    killed = ring_template(stopped=False, end=None)
    crashed = ring_template(stopped=False, end="crash" if kind == "segfault" else None)
    stopped = ring_template(stopped=True, end=None)
    for rank in (Rank(at, ranks, at == number) for at in range(ranks)):
        stem = f"{rank.host}-rank{rank.number}-{rank.pid}-98765"
        place = folder if flat else folder / f"rank{rank.number}"
        place.mkdir(parents=True, exist_ok=True)
        if kind == "segfault":
            template = crashed
            (place / f"{stem}.crash.json").write_bytes(crash_of(rank))
            (place / f"{stem}.helper.json").write_bytes(helper_of(rank, f"{stem}.crash.json"))
        else:
            template = killed if rank.culprit or kind == "exception" else stopped
        if kind == "exception":
            (place / f"{stem}.exception.json").write_bytes(exception_of(rank))
        (place / f"{stem}.ring").write_bytes(ring_of(template, rank))
        (place / f"{stem}.stderr.log").write_text(words_of(rank, kind))
        if rank.culprit:
            (folder / "launcher.log").write_text(torchrun_of(rank, kind))
            if kind == "oom":
                (folder / "kernel.log").write_text(kernel_of(rank))
    return number


@dataclass(frozen=True)
class Measured:
    """cpu: user and system time of the command and of what it started."""

    seconds: float
    cpu: float
    peak: int  # bytes
    right: bool
    said: str


def analyzed(folder: Path, culprit: int) -> Measured:
    answer = folder.parent / "answer.json"
    command = [sys.executable, "-m", "ftforensics", "analyze", "--json", "--output", str(answer), str(folder)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    begun = time.perf_counter()
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        complaints = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun
    if process.returncode not in (0, 3):
        sys.exit(f"analyze ended with status {process.returncode}: {complaints}")
    report = json.loads(answer.read_text())
    root = next((one["rank"] for one in report["processes"] if one["role"] == "root"), None)
    said = f"{report['verdict']['cause']}, root rank {root}"
    right = root == culprit and report["verdict"]["confidence"] != "undecided"
    return Measured(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss << 10, right, said)


def measure(kind: str, sizes: list[int], flat: bool, tell: Callable[[str], None]) -> bool:
    ok = True
    with tempfile.TemporaryDirectory(prefix="ftforensics-many-") as scratch:
        first: Measured | None = None
        before: tuple[int, float] | None = None
        for ranks in [A_NODE, *sizes]:
            folder = Path(scratch) / f"{kind}-{ranks}"
            folder.mkdir()
            progress(f"building {ranks} ranks ({kind})")
            culprit = build(folder, ranks, kind, flat=flat)
            progress(f"analyzing {ranks} ranks ({kind})")
            found = analyzed(folder, culprit)
            first = first or found
            above = found.cpu - first.cpu
            growth = ""
            if before is not None and before[1] > 0.5:  # less is noise
                ratio = (above / before[1]) / (ranks / before[0])
                growth = f"{ratio:5.2f}"
                ok &= ratio * 10 <= REACH_GROWTH
            if ranks > A_NODE:
                before = ranks, above
            if ranks >= 10_000:
                ok &= found.seconds < REACH_SECONDS * ranks / 10_000 and found.peak < REACH_BYTES
            ok &= found.right
            tell(
                f"  {kind:10} {ranks:6} {found.seconds:8.2f} {found.cpu:8.2f} {found.peak / (1 << 20):8.0f}"
                f"  {growth:>6}   {'right' if found.right else 'WRONG'}: {found.said}"
            )
    return ok


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--kinds", nargs="+", choices=("oom", "segfault", "exception"), default=None)
    parser.add_argument("--flat", action="store_true", help="all files in one folder")
    parser.add_argument("--build", metavar="FOLDER", help="only make the folder of the first kind and size")
    options = parser.parse_args()
    kinds = options.kinds or ["oom", "segfault", "exception"]
    if options.build:
        folder = Path(options.build)
        folder.mkdir(parents=True)
        print(f"rank {build(folder, options.ranks[0], kinds[0], flat=options.flat)} is the culprit")
        return 0
    print(
        f"analyze of many ranks, {'one folder' if options.flat else 'a folder a rank'}; load {os.getloadavg()[0]:.1f}"
    )
    print("  kind        ranks  seconds      CPU      MiB  growth   verdict")
    ok = True
    for kind in kinds:
        ok &= measure(kind, sorted(options.ranks), options.flat, print)
    progress("")
    print("growth: CPU above that of 8 ranks, a rank, against the row above; in reach:", "yes" if ok else "NO")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
