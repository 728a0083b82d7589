"""Makes labelled cases with real jobs: each dies for real, under a real launcher, on this machine.

    python tests/cases/make_real.py [--into FOLDER] [--tools BIN] [NAME ...]

A case is the launcher's output, the kernel's lines of that time (/dev/kmsg; also what it said of others) and
expected.json. The label is written from what was done to the job (the table below and the note that a dying process
leaves of itself), never from what a program says of it afterwards. Paths and the machine's name are replaced by neutral
ones. Needs root (the kernel's log, a control group with a limit, mounts of its own), torch, and the launcher in BIN.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOBS = Path(__file__).parent / "jobs"
MEMORY = Path("/sys/fs/cgroup/memory")
MIB = 1 << 20
PATIENCE = 100
NO_MEMORY = ["cgroup-oom", "ancestor-cgroup-oom", "host-oom"]
NOT_BY_ITSELF = ["peer-lost", "launcher-teardown"]


@dataclass(frozen=True)
class Truth:
    """What a way to die (jobs/train.py) must be called. `says`: what the verdict's sentence must hold."""

    cause: list[str | None]
    mechanism: str | None = None
    says: tuple[str, ...] = ()
    not_cause: list[str] = field(default_factory=list)


TRUTHS = {
    "kill": Truth(["killed-unknown", None], not_cause=["native-fault", "python-exception"]),
    "oom": Truth(["cgroup-oom"]),
    "segv": Truth(["native-fault"], "null-read"),
    "abort": Truth(["native-fault"]),
    "exit3": Truth(["exit-code"], says=("3",)),
    "os-exit3": Truth(["exit-code"], says=("3",)),
    "shape": Truth(["python-exception"], says=("RuntimeError", "forward_of_a_wrong_shape")),
    "nan": Truth(["loss-nan"], says=("RuntimeError", "check_loss")),
    "missing-file": Truth(["file-not-found"], says=("FileNotFoundError", "shard-0000", "open_shard")),
    "missing-module": Truth(["missing-module"], says=("fused_attention_kernels",)),
    "assert": Truth(["assertion-failed"], says=("AssertionError", "check_batch")),
    "zero": Truth(["division-by-zero"], says=("ZeroDivisionError", "tokens_per_second")),
    "key": Truth(["python-exception"], says=("KeyError", "look_up_weight")),
    "host-memory": Truth(["host-memory-error"], says=("allocate_on_host",)),
    "python-memory": Truth(["host-memory-error"], says=("MemoryError", "allocate_in_python")),
    "disk": Truth(["disk-full"], says=("save_checkpoint",), not_cause=["shm-exhausted"]),
    "disk-torch": Truth(["disk-full", "python-exception"], says=("save_with_torch",), not_cause=["shm-exhausted"]),
    "denied": Truth(["permission-denied"], says=("PermissionError", "open_log_of_another_user")),
    "arguments": Truth(["bad-arguments"]),
    "cleanup": Truth(["python-exception"], says=("forward_of_a_wrong_shape",), not_cause=["file-not-found"]),
    "shm": Truth(["shm-exhausted"], not_cause=["disk-full"]),
    # A signal that somebody outside sent: only the name of the signal is in the log.
    "wait": Truth(["killed-unknown", None, "killed-by-process"], not_cause=["native-fault", "interrupted"]),
}


@dataclass(frozen=True)
class Scenario:
    """`deaths`: rank:kind:step, one for each attempt. `outside`: the signal that the waiting process gets."""

    name: str
    command: str
    deaths: str = ""
    env: dict[str, str] = field(default_factory=dict)
    outside: signal.Signals | None = None
    to_launcher: signal.Signals | None = None  # sent to the launcher itself, at a step
    shm: int = 0  # bytes of /dev/shm, 0: as it is
    disk: int = 0  # bytes that fit where the job saves
    label: dict[str, Any] = field(default_factory=dict)  # goes before what the truth says
    keep: str = "launcher.log"  # a file in the work folder: the log of one node of several
    kind: str | None = None  # where `deaths` does not say it


def torchrun(ranks: int, *options: str, steps: int = 40, script: str = "") -> str:
    return " ".join(["torchrun", "--standalone", f"--nproc-per-node={ranks}", *options, script or f"train.py {steps}"])


def deepspeed(ranks: int) -> str:
    return f"deepspeed --num_gpus {ranks} --master_addr 127.0.0.1 --master_port {{port}} train.py 40"


# A node that lost the other one: nothing on it failed by itself.
LEFT_ALONE: dict[str, Any] = {
    "cause": ["peer-lost", None],
    "root": "nobody",
    "not_cause": [*NO_MEMORY, "exit-code", "python-exception", "killed-unknown", "launcher-teardown", "native-fault"],
}
# Lightning prints nothing about a process that it did not start, nor about one that it lost: rank 0's own error is all.
UNTOLD: dict[str, Any] = {
    "cause": ["cgroup-oom", "peer-lost", "killed-unknown", None],
    "any_root": True,
    "not_cause": ["native-fault", "python-exception", "exit-code", "launcher-teardown"],
}
TWO_NODES = (
    "torchrun --nnodes 2 --nproc-per-node 2 --node-rank {{0}} --master-addr 127.0.0.1 --master-port {port} "
    "train.py 40 > node{{0}}.log 2>&1"
)
BOTH_NODES = TWO_NODES.replace("{{0}}", "1") + " & " + TWO_NODES.replace("{{0}}", "0") + "; wait"
MEETING = TWO_NODES.replace(
    "--node-rank {{0}} --master-addr 127.0.0.1 --master-port {port}",
    "--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:{port} --rdzv-id 7",
)
BOTH_MEET = MEETING.replace("{{0}}", "0") + " & sleep 3; " + MEETING.replace("{{0}}", "1") + "; wait"
SUCCEEDED: dict[str, Any] = {"cause": [None], "root": "nobody", "outcome": ["succeeded", "unknown"]}

SCENARIOS = [
    # torchrun, one rank of two or four
    Scenario("real-torchrun-sigkill-4", torchrun(4), "2:kill:6"),
    Scenario("real-torchrun-sigkill-record", torchrun(2), "0:kill:6", {"RECORD": "1"}),
    Scenario("real-torchrun-sigkill-tee", torchrun(2, "--log-dir=logs", "--tee=3"), "1:kill:6"),
    Scenario("real-torchrun-oom-4", torchrun(4), "3:oom:6"),
    Scenario("real-torchrun-oom-record", torchrun(2), "0:oom:6", {"RECORD": "1"}),
    Scenario("real-torchrun-segv-4", torchrun(4), "1:segv:6"),
    Scenario("real-torchrun-segv-record", torchrun(2), "0:segv:6", {"RECORD": "1"}),
    Scenario("real-torchrun-abort", torchrun(2), "0:abort:6"),
    Scenario("real-torchrun-abort-record", torchrun(4), "3:abort:6", {"RECORD": "1"}),
    Scenario("real-torchrun-exit3", torchrun(4), "2:exit3:6"),
    Scenario("real-torchrun-exit3-record", torchrun(2), "1:exit3:6", {"RECORD": "1"}),
    Scenario("real-torchrun-os-exit3", torchrun(2), "0:os-exit3:6"),
    Scenario("real-torchrun-sigterm-4", torchrun(4), "2:wait:6", outside=signal.SIGTERM),
    Scenario("real-torchrun-sigterm-record", torchrun(2), "0:wait:6", {"RECORD": "1"}, outside=signal.SIGTERM),
    Scenario("real-torchrun-sighup", torchrun(2), "1:wait:6", outside=signal.SIGHUP),
    Scenario("real-torchrun-shape", torchrun(2), "0:shape:6"),
    Scenario("real-torchrun-shape-record", torchrun(4), "2:shape:6", {"RECORD": "1"}),
    Scenario("real-torchrun-nan", torchrun(2), "0:nan:7"),
    Scenario("real-torchrun-nan-record", torchrun(2), "1:nan:7", {"RECORD": "1"}),
    Scenario("real-torchrun-missing-file-rank2", torchrun(4), "2:missing-file:3"),
    Scenario("real-torchrun-missing-module", torchrun(2), "1:missing-module:0"),
    Scenario("real-torchrun-assert-tee", torchrun(2, "--log-dir=logs", "--tee=3"), "1:assert:6"),
    Scenario("real-torchrun-zero", torchrun(2), "1:zero:6"),
    Scenario("real-torchrun-key-record", torchrun(2), "0:key:6", {"RECORD": "1"}),
    Scenario("real-torchrun-host-memory", torchrun(2), "1:host-memory:6"),
    Scenario("real-torchrun-python-memory", torchrun(2), "0:python-memory:6", {"RECORD": "1"}),
    Scenario("real-torchrun-disk", torchrun(2), "0:disk:6", disk=8 * MIB),
    Scenario("real-torchrun-disk-torch", torchrun(2), "0:disk-torch:6", disk=8 * MIB),
    Scenario("real-torchrun-denied", torchrun(2), "1:denied:6"),
    Scenario("real-torchrun-arguments", torchrun(2), "1:arguments:0"),
    Scenario("real-torchrun-cleanup", torchrun(2), "1:cleanup:6"),
    # several attempts, several launches, several nodes
    Scenario("real-torchrun-restarts-same", torchrun(2, "--max-restarts=2"), "1:kill:6,1:kill:6,1:kill:6",
             {"RESTARTS": "1"}),
    Scenario("real-torchrun-restarts-differ", torchrun(2, "--max-restarts=2"), "1:kill:6,0:exit3:6,1:nan:7",
             {"RESTARTS": "1"}),
    Scenario("real-torchrun-restarts-then-well", torchrun(2, "--max-restarts=2"), "1:segv:6",
             {"RESTARTS": "1"}, label=SUCCEEDED),
    Scenario("real-torchrun-two-launches", f"{torchrun(2)}; DEATHS=0:zero:4 {torchrun(2)}", "1:kill:6"),
    Scenario("real-torchrun-well", torchrun(2, steps=12), label=SUCCEEDED),
    Scenario("real-torchrun-node0-of-culprit", BOTH_NODES, "0:kill:6", keep="node0.log"),
    Scenario("real-torchrun-node1-left-alone", BOTH_NODES, "0:kill:6", keep="node1.log", label=LEFT_ALONE),
    Scenario("real-torchrun-node1-left-alone-c10d", BOTH_MEET, "0:kill:6", keep="node1.log", label=LEFT_ALONE),
    Scenario("real-torchrun-cancelled", torchrun(2, steps=4000), to_launcher=signal.SIGTERM,
             label={"cause": ["killed-unknown", "killed-by-process", "launcher-teardown", None], "root": None,
                    "any_root": True, "not_cause": [*NO_MEMORY, "native-fault", "python-exception", "exit-code"]}),
    # DataLoader workers
    Scenario("real-loader-kill", "python loader.py kill", kind="kill"),
    Scenario("real-loader-oom", "python loader.py oom", kind="oom"),
    Scenario("real-loader-segv", "python loader.py segv", kind="segv"),
    Scenario("real-loader-os-exit3", "python loader.py os-exit3", kind="os-exit3"),
    Scenario("real-loader-missing-file", "python loader.py missing-file", kind="missing-file"),
    Scenario("real-loader-key", "python loader.py key", kind="key"),
    Scenario("real-loader-shm", "python loader.py shm", kind="shm", shm=6 * MIB),
    Scenario("real-loader-torchrun-kill", torchrun(2, script="loader.py kill"), env={"DEATH_RANK": "1"}, kind="kill"),
    Scenario("real-loader-torchrun-oom", torchrun(2, script="loader.py oom"), env={"DEATH_RANK": "0"}, kind="oom"),
    Scenario("real-loader-torchrun-segv", torchrun(2, script="loader.py segv"), env={"DEATH_RANK": "1"}, kind="segv"),
    Scenario("real-loader-torchrun-assert", torchrun(2, script="loader.py assert"), env={"DEATH_RANK": "1"},
             kind="assert"),
    # other launchers
    Scenario("real-spawn-kill", "python spawn.py", "1:kill:6"),
    Scenario("real-spawn-segv", "python spawn.py", "0:segv:6"),
    Scenario("real-spawn-exit3", "python spawn.py", "1:exit3:6"),
    Scenario("real-spawn-shape", "python spawn.py", "1:shape:6"),
    Scenario("real-spawn-missing-file", "python spawn.py", "0:missing-file:6"),
    Scenario("real-accelerate-kill", "accelerate launch --cpu --num_processes 1 train.py 40", "0:kill:6"),
    Scenario("real-accelerate-oom", "accelerate launch --cpu --num_processes 1 train.py 40", "0:oom:6"),
    Scenario("real-accelerate-shape", "accelerate launch --cpu --num_processes 1 train.py 40", "0:shape:6"),
    Scenario("real-accelerate-exit3", "accelerate launch --cpu --num_processes 1 train.py 40", "0:exit3:6"),
    Scenario("real-deepspeed-kill", deepspeed(2), "1:kill:6"),
    Scenario("real-deepspeed-oom", deepspeed(2), "0:oom:6"),
    Scenario("real-deepspeed-segv", deepspeed(2), "1:segv:6"),
    Scenario("real-deepspeed-shape", deepspeed(2), "0:shape:6", label={"nameless": True, "rank": 0}),
    Scenario("real-deepspeed-exit3", deepspeed(2), "1:exit3:6"),
    Scenario("real-lightning-kill", "python lightning_fit.py", "1:kill:4",
             label={**UNTOLD, "cause": ["peer-lost", "killed-unknown", None]}),
    Scenario("real-lightning-oom", "python lightning_fit.py", "1:oom:4", label=UNTOLD),
    Scenario("real-lightning-shape", "python lightning_fit.py", "0:shape:4"),
    Scenario("real-lightning-exit3", "python lightning_fit.py", "1:exit3:4"),
    Scenario("real-ray-kill", "python ray_train.py kill", kind="kill"),
    Scenario("real-ray-oom", "python ray_train.py oom", kind="oom"),
    Scenario("real-ray-shape", "python ray_train.py shape", kind="shape"),
    Scenario("real-openmpi-kill", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 python train.py 40",
             "1:kill:6"),
    Scenario("real-openmpi-oom", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 python train.py 40",
             "1:oom:6"),
    Scenario("real-openmpi-segv", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 python train.py 40",
             "0:segv:6"),
    Scenario("real-openmpi-exit3", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 python train.py 40",
             "1:exit3:6"),
    Scenario("real-openmpi-shape", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 python train.py 40",
             "1:shape:6"),
    Scenario("real-mpich-kill", "mpirun.mpich -n 2 python train.py 40", "1:kill:6"),
    Scenario("real-mpich-segv", "mpirun.mpich -n 2 python train.py 40", "0:segv:6"),
    Scenario("real-mpich-exit3", "mpirun.mpich -n 2 python train.py 40", "1:exit3:6"),
    Scenario("real-mpich-shape", "mpirun.mpich -n 2 python train.py 40", "0:shape:6"),
    # shells
    Scenario("real-bash-kill", "bash run.sh", "0:kill:6"),
    Scenario("real-bash-oom", "bash run.sh", "0:oom:6"),
    Scenario("real-bash-segv", "bash run.sh", "0:segv:6"),
    Scenario("real-bash-abort", "bash run.sh", "0:abort:6"),
    Scenario("real-bash-shape", "bash run.sh", "0:shape:6"),
    Scenario("real-bash-arguments", "bash run.sh", "0:arguments:0"),
    Scenario("real-bash-denied", "bash run.sh", "0:denied:2"),
    Scenario("real-bash-python-memory", "bash run.sh", "0:python-memory:2"),
    Scenario("real-zsh-kill", "zsh run.sh", "0:kill:6"),
    Scenario("real-launcher-killed", f"bash -c '{torchrun(2, steps=400)}; true'", to_launcher=signal.SIGKILL,
             label={"cause": ["killed-unknown", None], "root": None, "any_root": True,
                    "not_cause": [*NO_MEMORY, "native-fault", "python-exception", "exit-code"]}),
]  # fmt: skip


@contextlib.contextmanager
def memory_group() -> Iterator[Path]:
    group = MEMORY / f"job_{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(500 * MIB))
    try:
        yield group
    finally:
        remove(group)


def remove(group: Path) -> None:
    """A group is busy until the last of its processes has been reaped."""
    deadline = time.monotonic() + 10
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class KernelLog:
    """What the kernel says from now on: lines of facility 0, the rest is written by programs."""

    def __init__(self) -> None:
        self.file = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.file, 0, os.SEEK_END)

    def text(self) -> str:
        said = []
        while True:
            try:
                head, _, line = os.read(self.file, 8192).decode(errors="replace").partition(";")
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten before it was read
                continue
            priority, _, moment, *_ = head.split(",")
            if int(priority) >> 3 == 0:
                said.append(f"[{int(moment) // 10**6:5}.{int(moment) % 10**6:06}] {line.splitlines()[0]}\n")
        os.close(self.file)
        return "".join(said)


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
        return port


def waits_for(path: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    """Handshake: until the job has written it."""
    deadline = time.monotonic() + PATIENCE
    while not (path.is_file() and text in path.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the job did not write {text!r}")
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    below = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return below + [further for child in below for further in descendants(child)]


def run(scenario: Scenario, work: Path, tools: Path) -> tuple[str, str, int, list[tuple[int, int, str]]]:
    job, note, log = work / "job", work / "note", work / "job" / "launcher.log"
    shutil.copytree(JOBS, job, ignore=shutil.ignore_patterns("__pycache__"))
    (job / "out").mkdir()
    # What follows the job keeps the shell from becoming it: the shell sees how its child ended.
    (job / "run.sh").write_text("echo starting\npython train.py 40\ncode=$?\necho finished $code\nexit $code\n")
    port = free_port()
    command = scenario.command.replace("{port}", str(port))
    mounts = [f"mount -t tmpfs -o size={size} tmpfs {place}" for size, place in
              ((scenario.shm, "/dev/shm"), (scenario.disk, job / "out")) if size]  # fmt: skip
    argv = ["bash", "-c", command]
    if mounts:
        argv = ["unshare", "-m", "bash", "-c", " && ".join([*mounts, 'exec "$@"']), "bash", *argv]
    with memory_group() as group:
        env = {
            "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(work), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1",
            "DEATHS": scenario.deaths, "DEATH_NOTE": str(note), "DEATH_GROUP": str(group), "DS_ACCELERATOR": "cpu",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONDONTWRITEBYTECODE": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR", "GLOO_SOCKET_IFNAME": "lo", "RAY_USAGE_STATS_ENABLED": "0", **scenario.env,
        }  # fmt: skip
        if "torchrun" in command:
            del env["MASTER_ADDR"], env["MASTER_PORT"]
        kernel = KernelLog()
        with open(log, "wb") as out:
            process = subprocess.Popen(
                argv, cwd=job, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
            try:
                if scenario.outside:
                    waits_for(note, "wait", process)
                    os.kill(int(note.read_text().split()[0]), scenario.outside)
                if scenario.to_launcher:
                    waits_for(log, "step 8 ", process)
                    everyone = [process.pid, *descendants(process.pid)]
                    named = [(pid, Path(f"/proc/{pid}/cmdline").read_text()) for pid in everyone]
                    launcher = next(pid for pid, words in named if "bin/torchrun" in words and "python" in words)
                    os.kill(launcher, scenario.to_launcher)
                status = process.wait(timeout=PATIENCE)
            finally:
                with contextlib.suppress(ProcessLookupError):  # its session: what outlived the launcher
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for _ in range(100):  # the kernel's report is complete when the killed one is gone
            if not (group / "cgroup.procs").read_text().split():
                break
            time.sleep(0.05)
    said = kernel.text()
    notes = [line.split() for line in note.read_text().splitlines()] if note.exists() else []
    return (
        (job / scenario.keep).read_text(errors="replace"), said, status,
        [(int(pid), int(rank), kind) for pid, rank, kind in notes],
    )  # fmt: skip


def neutral(text: str, work: Path, tools: Path) -> str:
    """Without this machine's paths and name."""
    text = text.replace(str(work / "job"), "/home/user/job").replace(str(work), "/home/user")
    text = text.replace(str(tools.parent), "/home/user/venv").replace(sys.prefix, "/home/user/venv")
    for place in sys.path:
        if place.endswith("site-packages"):
            text = text.replace(place, f"/home/user/venv/lib/{Path(place).parent.name}/site-packages")
    text = text.replace(sys.base_prefix, "/usr/local")
    return re.sub(rf"(?<![\w-]){re.escape(socket.gethostname())}(?![\w-])", "localhost", text)


def label(scenario: Scenario, log: str, kernel: str, status: int, notes: list[tuple[int, int, str]]) -> dict[str, Any]:
    expected: dict[str, Any] = {}
    if notes:
        pid, rank, kind = notes[-1]  # of the last attempt
        truth = TRUTHS[scenario.kind or kind]
        expected["cause"] = truth.cause
        if truth.mechanism and f"[{pid}]" in kernel:
            expected["mechanism"] = truth.mechanism
        unfit = [] if "cgroup-oom" in truth.cause else NO_MEMORY
        expected["not_cause"] = [*unfit, *NOT_BY_ITSELF, *truth.not_cause]
        # Nobody can be asked to know a number that stands nowhere, nor that a number in the kernel's log is the job's.
        expected["root"] = pid if re.search(rf"\b{pid}\b", log + kernel) else None
        if expected["root"] and not re.search(rf"\b{pid}\b", log):
            expected["nameless"] = True
            if kind == "oom":
                expected["cause"] = [*truth.cause, "killed-unknown", None]
        # A log without that traceback (it went to another file, or nobody printed it) need not quote it.
        if truth.says and all(word in log for word in truth.says):
            expected["says"] = list(truth.says)
        expected["made"] = {"rank": rank, "kind": kind}
    expected.update(scenario.label)
    before = notes if expected.get("outcome") else notes[:-1]
    if before:
        expected["earlier"] = [TRUTHS[kind].cause for _, _, kind in before]
    expected["launcher_exit"] = status
    return expected


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--into", type=Path, default=Path(__file__).parent)
    options.add_argument("--tools", type=Path, default=Path(sys.executable).parent)
    options.add_argument("names", nargs="*")
    given = options.parse_args()
    failed = 0
    for scenario in SCENARIOS:
        folder = given.into / scenario.name
        if folder.exists() or (given.names and scenario.name not in given.names):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            work = Path(temporary)
            try:
                log, kernel, status, notes = run(scenario, work, given.tools)
                expected = label(scenario, log, kernel, status, notes)
                if not expected.get("cause"):
                    raise RuntimeError("nobody died")
            except (RuntimeError, subprocess.TimeoutExpired, OSError) as problem:
                print(f"{scenario.name}: {problem}", flush=True)
                failed += 1
                continue
            folder.mkdir(parents=True)
            (folder / "launcher.log").write_text(neutral(log, work, given.tools))
            (folder / "kernel.log").write_text(neutral(kernel, work, given.tools))
            (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        print(f"{scenario.name}: {expected}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
