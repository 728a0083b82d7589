"""One run of the campaign: a real torchrun job whose culprit is known, and what was said about it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from ftforensics.cli.analysis import completed, diagnose_case
from ftforensics.cli.inputs import gather
from ftforensics.cli.progress import Progress
from ftforensics.host.host import Host
from ftforensics.model.diagnosis import Diagnosis

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT = 600 << 20  # bytes: a rank with torch holds 250 MB
LONGEST = 240.0  # seconds

KINDS = ("kill", "oom", "segv", "abort", "exception", "exit", "term")
# What may be said of each kind. From logs alone a SIGKILL and a SIGTERM have no known sender: that is undecided as to
# the cause, and right as to the rank.
RIGHT = {
    "kill": {"killed-by-process", "killed-unknown", None},
    "oom": {"cgroup-oom"},
    "segv": {"native-fault"},
    "abort": {"raised-by-program", "native-fault"},
    "exception": {"python-exception", "loss-nan"},
    # torch's gloo threads may turn sys.exit() into an abort: "terminate called without an active exception".
    "exit": {"exit-code", "crash-at-exit"},
    "term": {"killed-by-process", None},
}


class Plan(msgspec.Struct, frozen=True):
    """culprit: its rank; record: is main() under torchrun's @record; ours: under `ftforensics run`."""

    kind: str
    culprit: int
    ranks: int
    record: bool
    ours: bool
    turn: int = 0

    @property
    def name(self) -> str:
        parts = (self.kind, f"rank{self.culprit}of{self.ranks}", "record" if self.record else "plain")
        return "-".join((*parts, "ours" if self.ours else "logs", str(self.turn)))


class Said(msgspec.Struct, frozen=True):
    """An answer. root: the rank that it names as the first to fail, None when it names none; seconds: it took."""

    cause: str | None
    confidence: str
    root: int | None
    pid: int | None = None
    seconds: float | None = None
    summary: str = ""


class Result(msgspec.Struct, frozen=True):
    """truth: the culprit's pid; folder: our answer from the run folder; logs: from the launcher's and the kernel's log
    alone; torchrun: the rank under its "Root Cause (first observed failure)"; status: of the command."""

    plan: Plan
    truth: int | None
    status: int
    seconds: float
    torchrun: int | None
    folder: Said | None = None
    logs: Said | None = None

    def verdict(self, said: Said | None) -> str:
        """ "right", "wrong" or "undecided": which rank failed first, and nothing untrue about how."""
        if said is None:
            return "undecided"
        sure = said.confidence != "undecided"
        if said.root is not None and (said.root, said.pid) != (self.plan.culprit, self.truth):
            return "wrong"
        if sure and said.cause not in RIGHT[self.plan.kind]:
            return "wrong"
        return "right" if said.root is not None else "undecided"


def run(plan: Plan, folder: Path) -> Result:
    """Runs the job in `folder`, which is made anew, and asks about it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    group = MEMORY / f"first-failure-{os.getpid()}"
    if plan.kind == "oom":
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "FIRST_FAILURE_GROUP": str(group), "TMPDIR": str(folder)}
    job = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={plan.ranks}",
        str(HERE / "job.py"), plan.kind, str(plan.culprit), str(folder), *(["--record"] if plan.record else []),
    ]  # fmt: skip
    if plan.ours:
        environ["PYTHONPATH"] = str(SOURCE)
        job = [sys.executable, "-m", "ftforensics", "run", "--quiet", "--dir", str(folder / "run"), "--", *job]
    began = time.monotonic()
    try:
        with _KernelLog() as kernel, (folder / "launcher.log").open("wb") as log:
            process = subprocess.Popen(
                job, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd=folder, start_new_session=True
            )
            status = _until_end(process, plan, folder)
            (folder / "kernel.log").write_bytes(_lines(kernel))
    finally:
        if plan.kind == "oom":
            _remove(group)
    took = time.monotonic() - began
    truth = folder / "culprit"
    result = Result(
        plan, int(truth.read_text()) if truth.exists() else None, status, round(took, 1), _torchruns(folder)
    )
    return judged(result, folder)


def judged(result: Result, folder: Path) -> Result:
    """The same run with what the product says of its evidence now."""
    if result.plan.ours:
        return msgspec.structs.replace(result, folder=_ask([str(folder / "run")]))
    return msgspec.structs.replace(result, logs=_ask([str(folder / "launcher.log"), str(folder / "kernel.log")]))


def _ask(paths: list[str]) -> Said:
    began = time.monotonic()
    with Progress() as progress:
        case = completed(
            gather([path for path in paths if _has_words(path)], pid=None, rank=None, progress=progress), Host()
        )
    found: Diagnosis = diagnose_case(case)
    root = next((process for process in found.processes if process.role == "root"), None)
    return Said(
        found.verdict.cause,
        found.verdict.confidence,
        root.rank if root else None,
        root.pid if root else None,
        round(time.monotonic() - began, 2),
        found.verdict.summary,
    )


def _has_words(path: str) -> bool:
    return os.path.isdir(path) or os.path.getsize(path) > 0


def _until_end(process: subprocess.Popen[bytes], plan: Plan, folder: Path) -> int:
    """The status. Kills who asks for it, by the pid that it left."""
    asked = folder / "kill-me"
    deadline = time.monotonic() + LONGEST
    done = False
    while process.poll() is None:
        if not done and asked.exists():
            os.kill(int(asked.read_text()), signal.SIGKILL if plan.kind == "kill" else signal.SIGTERM)
            done = True
        if time.monotonic() > deadline:
            process.terminate()
            process.wait()
        time.sleep(0.02)
    return process.returncode


class _KernelLog:
    """/dev/kmsg from now on."""

    def __enter__(self) -> int | None:
        try:
            self.fd: int | None = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self.fd, 0, os.SEEK_END)
        except OSError:
            self.fd = None
        return self.fd

    def __exit__(self, *_: object) -> None:
        if self.fd is not None:
            os.close(self.fd)


def _lines(kernel: int | None) -> bytes:
    """What came, as dmesg prints it."""
    lines = []
    while kernel is not None:
        try:
            raw = os.read(kernel, 8192)
        except BlockingIOError:
            break
        except BrokenPipeError:  # the ring ran over
            continue
        head, _, text = raw.partition(b";")
        micros = int(head.split(b",")[2])
        lines.append(b"[%5d.%06d] %s\n" % (micros // 1_000_000, micros % 1_000_000, text.split(b"\n")[0]))
    return b"".join(lines)


_ROOT_CAUSE = re.compile(r"Root Cause \(first observed failure\):.*?\brank +: (\d+) ", re.DOTALL)


def _torchruns(folder: Path) -> int | None:
    found = _ROOT_CAUSE.search((folder / "launcher.log").read_text(errors="replace"))
    return int(found[1]) if found else None


def _remove(group: Path) -> None:
    for _ in range(500):
        try:
            group.rmdir()
            return
        except OSError:  # its last process is not reaped yet
            time.sleep(0.02)
