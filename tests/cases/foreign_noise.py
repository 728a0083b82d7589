"""What a kernel's log says of other people's processes, as text: OOM kills, faults, Xids. Of fixed seed, and built
without the code under test."""

from __future__ import annotations

import random
import re
from pathlib import Path

from cases.judging import files_of, label_of
from synth.kernel_text import KERNELS, OomText, Process

SEED = 5
NAMES = ("python", "python3", "pt_data_worker", "pt_main_thread", "ray::Trainer")
LIBRARIES = ("libtorch_cpu.so", "libc10.so", "libcuda.so.550.54.15", "libnccl.so.2", "libc.so.6")
# Without such a stamp nothing in the texts contradicts a record of the same pid that lies years back.
STATES_TIME = re.compile(r"^[WEI]\d{4} \d\d:\d\d:\d\d|^  time      : \d{4}-\d\d-\d\d_|^\[\d{4}-\d\d-\d\d \d\d:", re.M)
MONOTONIC = re.compile(r"^\[ *(\d+\.\d+)\]", re.M)


def numbers_in(case: Path) -> set[int]:
    return {int(word) for file in files_of(case) for word in re.findall(r"\d{2,7}", file.read_text(errors="replace"))}


def oom(dice: random.Random, pid: int, *, tail: bool = True) -> list[str]:
    kernels = [kernel for kernel in KERNELS.values() if kernel.tail or not tail]
    group = dice.choice([None, f"/slurm/uid_1001/job_{pid}", f"/docker/{pid:064x}", f"/user.slice/app-{pid}.scope"])
    victim = Process(pid, dice.choice(NAMES), dice.randrange(10**6, 10**7), dice.randrange(10**5, 10**6), 900, uid=1001)
    return OomText(
        kernel=dice.choice(kernels), victim=victim, others=(), trigger=victim, limit_group=group,
        victim_group=group or "/user.slice",
    ).lines()  # fmt: skip


def fault(dice: random.Random, pid: int) -> list[str]:
    at, library = dice.choice([0, 0, 0x1C8, 0x7F99C307B31D]), dice.choice(LIBRARIES)
    return [
        f"{dice.choice(NAMES)}[{pid}]: segfault at {at:x} ip 00007f99c307b31d sp 00007ffeeb59f030 error 4 in "
        f"{library}[7f99c3000000+1c3000]",
        "Code: 48 8b 05 00 00 00 00 <8b> 00 c3",
    ]


def xid(dice: random.Random, pid: int) -> list[str]:
    number = dice.choice([13, 31, 43, 45, 48, 94])
    return [f"NVRM: Xid (PCI:0000:{dice.randrange(256):02x}:00): {number}, pid={pid}, name=python, Ch 00000010"]


def others(dice: random.Random, taken: set[int], count: int) -> list[list[str]]:
    """What became of `count` other processes."""
    said = []
    while len(said) < count:
        pid = dice.randrange(300, 4_000_000)
        if pid not in taken:
            said.append(dice.choice([oom, oom, fault, xid])(dice, pid))
    return said


def beside_others(case: Path, folder: Path) -> list[Path]:
    """The kernel's log with what happened to 40 others before and after its lines; where it has dates or is a syslog,
    the others' lines are a file of their own."""
    dice = random.Random(f"{SEED} {case.name}")
    own = (case / "kernel.log").read_text(errors="replace")
    stamps = [float(stamp) for stamp in MONOTONIC.findall(own)]
    begin, end = (stamps[0], stamps[-1]) if stamps else (2400.0, 2400.0)
    if own and not stamps:  # dated or from syslog: the others' lines go to a file of their own
        begin = end = 2400.0
    taken = numbers_in(case)

    def stamped(blocks: list[list[str]], at: float) -> str:
        return "".join(f"[{at + n * 2:12.6f}] {line}\n" for n, block in enumerate(blocks) for line in block)

    before, after = stamped(others(dice, taken, 20), max(begin - 90, 1)), stamped(others(dice, taken, 20), end + 0.5)
    if stamps or not own:
        (folder / "kernel.log").write_text(before + own + after)
        return [folder / "kernel.log"]
    (folder / "others.log").write_text(before + after)
    return [case / "kernel.log", folder / "others.log"]


def with_the_same_pid(case: Path, folder: Path) -> list[Path]:
    """Files about the very pid of this death that cannot be about it: lines that a program wrote, and, where the job's
    log states when it ran, those of years before."""
    dice = random.Random(f"{SEED} {case.name}")
    pid = label_of(case)["root"]
    if not isinstance(pid, int):
        return []
    own = MONOTONIC.findall((case / "kernel.log").read_text(errors="replace"))
    end = int(float(own[-1]) * 1e6) if own else 2_400_000_000
    forged = [*oom(dice, pid), *fault(dice, pid)]
    # What a program writes to /dev/kmsg keeps the facility that it chose, here "user".
    (folder / "forged.log").write_text("".join(f"12,{900 + n},{end + n},-;{line}\n" for n, line in enumerate(forged)))
    files = [folder / "forged.log"]
    if STATES_TIME.search((case / "launcher.log").read_text(errors="replace")):
        boot = [*oom(dice, pid), *fault(dice, pid)]
        (folder / "years_ago.log").write_text("".join(f"[Mon Jun  1 03:00:00 2020] {line}\n" for line in boot))
        files.append(folder / "years_ago.log")
    return files
