"""A 1 GB job log: CPU time of the parser against `grep -cE` of the same anchors, and its memory, in the same run.

    python benchmarks/launcher_log.py [--megabytes 1000] [--folder /tmp] [--shapes-megabytes 8]

The log is made up: progress bars that rewrite their line, loggers' lines of eight ranks, losses, and a job's end as
torchrun prints it now and then. Every event that was put in must come out. CPU time is user plus system, of grep as a
child, of ours as a child too, which also gives its peak memory. grep runs in the caller's locale; LC_ALL=C is printed
for comparison.

Then the lines that would be dearest, a few MB each of nothing else: seconds of CPU, and how they grow from a quarter of
it. The exit status says whether memory stayed under 300 MiB, and whether every shape took under 2 s a MB and grew with
its size.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ftforensics.model.launcher import ProcessDied, SignalledBy
from ftforensics.parsers.launcher import read_launcher_log, readers

MEMORY = 300  # MiB
SECONDS = 2.0  # for a MB of a shape
GROWTH = 8.0  # of CPU time for four times the size
_PIECE = 1 << 20

NOISE = (
    "\r{a:3d}%|{bar:<10}| {b}/20000 [{a:02d}:{c:02d}<3:12:{c:02d},  {c}.{a:02d}it/s, loss=2.{b:04d}]",
    "[rank{r}]: 2026-11-29 14:{a:02d}:{c:02d},{b:03d} - INFO - step {b} loss 2.{c:04d} lr 1.{a}e-05 grad_norm 0.{b}",
    "2026-11-29 14:{a:02d}:{c:02d} | INFO     | train:log:{a} - {{'loss': 2.{b:04d}, 'tokens_per_second': {b}.{c}}}",
    "INFO:root:saved checkpoint-{b} to /checkpoints/run-{a}/checkpoint-{b} in {c}.{a} s",
    "[2026-11-29 14:{a:02d}:{c:02d},{b:03d}] [INFO] [logging.py:96:log_dist] [Rank {r}] step={b}, lr=[1e-05]",
    "node{r}:{b}:{c} [{r}] NCCL INFO Channel 0{r}/0 : {r}[{a}] -> {c}[{a}] via P2P/IPC",
    "Epoch {a}: validation accuracy 0.{b:04d}, perplexity {c}.{a}",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used.",
)
END = """\
W1129 14:29:01.000000 {agent} torch/distributed/elastic/multiprocessing/api.py:1028] Sending process {a} closing signal SIGTERM
E1129 14:29:01.100000 {agent} torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: {b}) of binary: /usr/bin/python3
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_14:29:01
  host      : node1
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: {b})
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID {b}
============================================================
"""  # noqa: E501
END_EVENTS = 3

SHAPES: dict[str, str] = {
    "a rank's label alone": "[rank3]:\n",
    "a brace": "{\n",
    "JSON": '{"a":1}\n',
    "JSON that holds a line": '{"message":"Killed"}\n',
    "Docker's JSON": '{"log":"Killed\\n","time":"2026-11-29T14:29:31.5Z"}\n',
    "the word Killed": "Killed\n",
    "a traceback's heading": "Traceback (most recent call last):\n",
    "the same of ranks": "[rank{n}]: Traceback (most recent call last):\n",
    "headings behind other text": "p{n} Traceback (most recent call last):\n",
    "exceptions that go on": "[rank{n}]: Traceback (most recent call last):\n[rank{n}]:   x\n[rank{n}]: E.x:\n",
    "an agent's failures": "failed (exitcode: -9) local_rank: 0 (pid: {n}) of binary: p\n",
    "a summary without end": "Failures:\n  rank      : {n} (local_rank: 1)\n  exitcode  : -9 (pid: {n})\n",
    "exceptions of C++": "[rank{n}]: terminate called after throwing an instance of 'X'\n",
    "a function's name": "(): \n",
    "Slurm's lists of tasks": "srun: error: n1: tasks 0-7: Killed\n",
    "words of CUDA's": "CUDA error\n",
    "escape sequences": "\x1b[0m\n",
    "no two lines alike": "{w} Killed\n",
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--megabytes", type=int, default=1000)
    options.add_argument("--shapes-megabytes", type=int, default=8)
    options.add_argument("--folder", default=None, help="where the log is written, removed at the end")
    options.add_argument("--read", default=None, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.read is not None:
        return read(Path(given.read))
    pattern = "|".join(sorted({escaped(word) for reader in readers() for word in reader.anchors}))
    failures: list[str] = []
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "job.log"
        ends, lines = build(path, given.megabytes << 20)
        grep = child_cpu(["grep", "-cE", "--text", pattern, str(path)], os.environ)[0]
        plain = child_cpu(["grep", "-cE", "--text", pattern, str(path)], {**os.environ, "LC_ALL": "C"})[0]
        ours, said = child_cpu([sys.executable, __file__, "--read", str(path)], os.environ)
        answer = json.loads(said)
        if answer["events"] != ends * END_EVENTS or answer["lines"] != lines:
            sys.exit(f"put in {ends * END_EVENTS} events on {lines} lines, found {answer}")
        peak = answer["peak"]
        print(
            f"{path.stat().st_size / 1e6:.0f} MB, {lines} lines, {ends} ends of a job: ours {ours:.1f} s CPU, "
            f"grep {grep:.1f} s (LC_ALL=C {plain:.1f} s), ratio {ours / grep:.1f}; peak memory {peak} MiB; "
            f"progress was told {answer['told']} times"
        )
    if peak > MEMORY:
        failures.append(f"memory {peak} MiB")
    print(f"{given.shapes_megabytes} MB of nothing but")
    for name, form in SHAPES.items():
        seconds, growth = cost(form, given.shapes_megabytes << 20)
        print(f"  {name:28} {seconds:5.1f} s CPU, {growth:4.1f} times that of a quarter")
        if seconds > SECONDS * given.shapes_megabytes or growth > GROWTH:
            failures.append(name)
    print(f"load {os.getloadavg()[0]:.2f}; reach: {MEMORY} MiB, {SECONDS:.0f} s a MB, growth {GROWTH:.0f}", *failures)
    return 1 if failures else 0


def escaped(word: str) -> str:
    return "".join(f"\\{letter}" if letter in "[](){}.*+?^$|\\" else letter for letter in word)


def build(path: Path, size: int) -> tuple[int, int]:
    """Ends of a job that were put in, lines."""
    chance = random.Random(7)
    blocks = [noise(chance, 4000) for _ in range(50)]
    ends = lines = written = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        while written < size:
            block = chance.choice(blocks)
            if ends < 400 and chance.random() < 0.05:
                pid = chance.randrange(1000, 4_000_000)
                block += END.format(agent=pid, a=pid + 1, b=pid + 2)
                ends += 1
            lines += block.count("\n")
            written += file.write(block)
    return ends, lines


def noise(chance: random.Random, lines: int) -> str:
    texts = []
    for _ in range(lines):
        a, b, c = chance.randrange(60), chance.randrange(20000), chance.randrange(60)
        texts.append(chance.choice(NOISE).format(a=a, b=b, c=c, r=chance.randrange(8), bar="#" * chance.randrange(10)))
    return "\n".join(texts) + "\n"


def read(path: Path) -> int:
    """In a process of its own: what came out, and what it took."""
    told: list[int] = []
    with path.open("rb") as file:
        log = read_launcher_log(iter(lambda: file.read(_PIECE), b""), str(path), told.append)
    found = sum(isinstance(event, ProcessDied | SignalledBy) for event in log.events)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"events": found, "lines": log.lines, "peak": peak, "told": len(told)}))
    return 0


def child_cpu(command: list[str], environ: dict[str, str] | os._Environ[str]) -> tuple[float, str]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(f"{command[0]} ended with {done.returncode}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def cost(form: str, size: int) -> tuple[float, float]:
    """Seconds of CPU for `size` bytes, and how many times that of a quarter."""
    spent = []
    for part in (size // 4, size):
        data = b"".join(made(form, part))
        began = time.process_time()
        read_launcher_log(data)
        spent.append(time.process_time() - began)
    return spent[1], spent[1] / max(spent[0], 0.02)


def made(form: str, size: int) -> Iterator[bytes]:
    if "{n}" not in form and "{w}" not in form:
        line = form.encode()
        yield line * (size // len(line))
        return
    written = number = 0
    while written < size:
        number += 1
        word = "".join(chr(97 + number // 26**place % 26) for place in range(5))
        line = form.replace("{n}", str(number)).replace("{w}", word).encode()
        written += len(line)
        yield line


if __name__ == "__main__":
    sys.exit(main())
