"""A 200 MB kernel log: CPU time of the parser against `grep -cE` of the same anchors, in the same run.

    python benchmarks/kernel_log.py [--megabytes 200] [--rounds 3]

The log is made up: a busy node's ordinary messages with the kernel's own prefix or syslog's, and at most 1 % lines of
interest (whole OOM reports count with all their lines, faults, Xids). Every event that was put in must come out. CPU
time is user plus system, of grep as a child, of ours in this process without Python's start; the smaller of the rounds.
The exit status says whether ours took at most ten times grep's, on the two logs that are like a real one; the third, in
which no two lines are alike, shows the worst that can happen. grep runs in the caller's locale; LC_ALL=C is printed
for comparison.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ftforensics.model.kernel import Fault, OomKill, Xid
from ftforensics.parsers.kernel_log import ANCHORS, read_kernel_log

LIMIT = 10.0

NOISE = (
    "usb 1-{a}: new high-speed USB device number {b} using xhci_hcd",
    "docker0: port {a}(veth{b:07x}) entered disabled state",
    "device veth{b:07x} left promiscuous mode",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{b:07x}: link becomes ready",
    'audit: type=1400 audit(17644{b:05d}.{a:03d}:{b}): apparmor="STATUS" operation="profile_replace" pid={b}',
    "mlx5_core 0000:{a:02x}:00.0: mlx5_pcie_event:301:(pid {b}): Detected insufficient power on the PCIe slot",
    "systemd[1]: Started Session {b} of user trainer.",
    "[UFW BLOCK] IN=eth0 OUT= MAC=00:16:3e:{a:02x} SRC=10.0.{a}.7 DST=10.0.0.{a} LEN=40 PROTO=TCP SPT={b} DPT=22",
    "nvidia-uvm: Loaded the UVM driver, major device number {b}.",
    "perf: interrupt took too long ({b} > 2500), lowering kernel.perf_event_max_sample_rate to {b}",
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--megabytes", type=int, default=200)
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    pattern = "|".join(escaped(word.decode()) for word in ANCHORS)
    with tempfile.TemporaryDirectory() as folder:
        worst = 0.0
        for name, form in (("dmesg", dmesg), ("syslog", syslog), ("unlike", unlike)):
            path = Path(folder) / name
            planted, lines, interesting = build(path, given.megabytes << 20, form)
            grep = min(grep_cpu(pattern, path, os.environ) for _ in range(given.rounds))
            plain = min(grep_cpu(pattern, path, {**os.environ, "LC_ALL": "C"}) for _ in range(given.rounds))
            ours, found = min(scan(path) for _ in range(given.rounds))
            if found != planted:
                sys.exit(f"{name}: put in {planted}, found {found}")
            ratio = ours / grep
            if form is not unlike:
                worst = max(worst, ratio)
            print(
                f"{name:6} {path.stat().st_size / 1e6:.0f} MB, {lines} lines, {interesting / lines:.2%} of interest, "
                f"{sum(planted)} events: ours {ours:.2f} s CPU, grep {grep:.2f} s (LC_ALL=C {plain:.2f} s), "
                f"ratio {ratio:.1f}"
            )
            path.unlink()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"load {os.getloadavg()[0]:.2f}; peak memory of this process {peak} MiB; reach: ratio at most {LIMIT:.0f}")
    return 0 if worst <= LIMIT else 1


def escaped(word: str) -> str:
    return "".join(f"\\{letter}" if letter in "[](){}.*+?^$|\\" else letter for letter in word)


def dmesg(at: float) -> str:
    return f"[{at:12.6f}] "


def syslog(at: float) -> str:
    return f"{time.strftime('%b %e %H:%M:%S', time.gmtime(1.7e9 + at))} node17 kernel: [{at:12.6f}] "


def unlike(at: float) -> str:
    """No two lines are alike, as no log is: the parser's memory of lines that it has seen is of no use."""
    word = "".join(chr(103 + int(at * 1000) // 19**n % 19) for n in range(6))
    return f"[{at:12.6f}] {word}: "


def build(path: Path, size: int, form: Callable[[float], str]) -> tuple[tuple[int, int, int], int, int]:
    """Kills, faults and Xids that were put in; lines; lines of interest."""
    chance = random.Random(7)
    kills = faults = xids = lines = interesting = 0
    at = 100.0
    written = 0
    with path.open("w", encoding="ascii") as file:
        while written < size:
            texts: list[str] = []
            for _ in range(4000):
                texts.append(chance.choice(NOISE).format(a=chance.randrange(250), b=chance.randrange(99999)))
            lines += len(texts)
            batch: list[str]
            pid = chance.randrange(1000, 4_000_000)
            kind = lines // len(texts) % 4
            if kind == 0:
                batch = list(report(pid))
                kills += 1
            elif kind == 1:
                batch = [
                    f"python[{pid + n}]: segfault at {n:x} ip 00007f30b738957e sp 00007f30b6ffe858 error 4 in "
                    f"libnccl.so.2[257e,7f30b7389000+1000] likely on CPU {n} (core {n}, socket 0)"
                    for n in range(30)
                ]
                faults += 30
            elif kind == 2:
                batch = [f"NVRM: Xid (PCI:0000:{n:02x}:00): 31, pid={pid}, name=python, Ch 00000010" for n in range(30)]
                xids += 30
            else:
                batch = [
                    f"Memory cgroup out of memory: Killed process {pid + n} (pt_data_worker) total-vm:1467472kB, "
                    "anon-rss:863472kB, file-rss:21980kB, shmem-rss:0kB, UID:0 pgtables:1992kB oom_score_adj:0"
                    for n in range(30)
                ]
                kills += 30
            where = chance.randrange(len(texts))
            texts[where:where] = batch
            lines += len(batch)
            interesting += len(batch)
            block = []
            for text in texts:
                at += 0.001
                # the words of an event must stand where the kernel puts them
                prefix = dmesg(at) if form is unlike and text in batch else form(at)
                block.append(f"{prefix}{text}\n")
            written += file.write("".join(block))
    return (kills, faults, xids), lines, interesting


def report(pid: int) -> Iterator[str]:
    yield "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"
    yield f"CPU: 3 UID: 1000 PID: {pid} Comm: python Not tainted 6.18.1 #1 PREEMPT(none)"
    yield "memory: usage 716800kB, limit 716800kB, failcnt 238"
    yield "swap: usage 0kB, limit 0kB, failcnt 0"
    yield "Tasks state (memory values in pages):"
    yield "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name"
    for n in range(20):
        yield f"[{pid + n:7d}]  1000 {pid + n:5d}   366868   221363  2039808        0             0 python"
    yield (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job,mems_allowed=0,oom_memcg=/job,"
        f"task_memcg=/job,task=python,pid={pid},uid=1000"
    )
    yield (
        f"Memory cgroup out of memory: Killed process {pid} (python) total-vm:1467472kB, anon-rss:863472kB, "
        "file-rss:21980kB, shmem-rss:0kB, UID:1000 pgtables:1992kB oom_score_adj:0"
    )


def grep_cpu(pattern: str, path: Path, environment: dict[str, str] | os._Environ[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # into a pipe: with /dev/null as its output grep stops at the first match
    subprocess.run(["grep", "-cE", pattern, path], env=environment, stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scan(path: Path) -> tuple[float, tuple[int, int, int]]:
    before = time.process_time()
    with path.open("rb", buffering=0) as file:
        log = read_kernel_log(iter(lambda: file.read(1 << 18), b""))
    spent = time.process_time() - before
    kinds = [type(event) for event in log.events]
    return spent, (kinds.count(OomKill), kinds.count(Fault), kinds.count(Xid))


if __name__ == "__main__":
    sys.exit(main())
