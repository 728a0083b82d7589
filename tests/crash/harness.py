"""Runs one cell of the crash matrix for real and says what is wrong with what it left.

The measure for "dies as it would have died" is the same program with no handler at all, run here and cached, never a
number written down by hand.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cells import Cell, Fault

if TYPE_CHECKING:  # the package needs its extension, which conftest builds after collection
    from ftforensics.model.crash import CrashRecord

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = HERE / "programs"
HANG_LIMIT = 60.0  # seconds; a death takes milliseconds

COMPILE = ["-O2", "-g", "-fPIC", "-fno-optimize-sibling-calls", "-fno-delete-null-pointer-checks", "-Wall", "-Wextra"]
# Without these a record cannot be argued with; the others are null in some deaths.
NEVER_NULL = ["schema", "tool", "time", "process", "signal", "registers", "native", "stack", "handlers", "job"]
NEVER_EMPTY = ["modules", "threads", "status", "maps", "stages", "end"]


@dataclass
class Death:
    """What a run left. status: of the dying process, as subprocess gives it (-11 = SIGSEGV); parent_status: of the
    process that was started, different only for a forked child; None = killed by us after HANG_LIMIT."""

    cell: Cell
    status: int | None
    parent_status: int | None
    stdout: bytes
    stderr: str
    facts: dict[str, object]
    folder: Path
    wall: float
    records: list[Path] = field(default_factory=list)

    @property
    def dying_pid(self) -> object:
        return self.facts.get("dying_pid", self.facts.get("pid"))


class Workplace:
    """A folder that any user may enter, with the built programs. Use as a context manager."""

    def __init__(self) -> None:
        # Not pytest's tmp_path, which only its owner may enter: some cells run as another user.
        self.root = Path(tempfile.mkdtemp(prefix="ftf-crash-"))
        self.root.chmod(0o755)
        self.build = self.root / "build"
        self.build.mkdir()
        self.count = 0

    def __enter__(self) -> Workplace:
        build_programs(self.build)
        return self

    def __exit__(self, *unused: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def fresh(self) -> Path:
        self.count += 1
        folder = self.root / f"run{self.count}"
        for path in (folder, folder / "records", folder / "tmp"):
            path.mkdir()
            path.chmod(0o777)
        return folder


def build_programs(build: Path) -> None:
    def run(*command: str) -> None:
        subprocess.run(command, cwd=PROGRAMS, check=True)

    objects = [str(build / "crashers_c.o"), str(build / "crashers_cc.o")]
    run("gcc", *COMPILE, "-c", "crashers.c", "-o", objects[0])
    run("g++", *COMPILE, "-c", "crashers.cc", "-o", objects[1])
    run("g++", "-shared", *objects, "-o", str(build / "crashers.so"), "-lpthread")
    for source, library in (("ctor.c", "ftf_ctor.so"), ("dtor.c", "ftf_dtor.so"), ("pirates.c", "pirates.so")):
        run("gcc", *COMPILE, "-shared", source, "-o", str(build / library))


def environment(folder: Path, cell: Cell) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    kept.update(PYTHONPATH=str(ROOT / "src"), FTF_TEST_TMP=str(folder / "tmp"))
    return kept


def command(cell: Cell, watch: str, folder: Path, build: Path, python: str) -> list[str]:
    words = [python, str(PROGRAMS / "die.py"), "--fault", cell.fault, "--context", cell.context]
    words += ["--setup", cell.setup, "--watch", watch, "--dir", str(folder / "records"), "--build", str(build)]
    words += ["--settle"] if cell.settle else []
    words += ["--helper", cell.helper]
    for hook in cell.hooks if watch == "ours" else ():
        words += ["--hook", hook]
    if cell.fault == "bus_shm_full":
        # A private mount namespace: a full /dev/shm for this process only, gone with it.
        script = 'mount -t tmpfs -o size=1m ftf /dev/shm && exec "$@"'
        words = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *words]
    return words


def die(cell: Cell, watch: str, place: Workplace, python: str = sys.executable) -> Death:
    """Run one cell; `watch` is "none", "ours", "faulthandler", "printer" or "allocator"."""
    folder = place.fresh()
    mounted = cell.setup == "disk_full" and mount_small_disk(folder / "records")
    try:
        return run_to_death(command(cell, watch, folder, place.build, python), cell, folder)
    finally:
        if mounted:
            unmount_keeping_files(folder)


def run_to_death(words: list[str], cell: Cell, folder: Path) -> Death:
    started = time.monotonic()
    with (
        open(folder / "stdout", "wb") as out,
        open(folder / "stderr", "wb") as err,
    ):
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder / "tmp",
            env=environment(folder, cell),
            start_new_session=True,
        )
        # Not wait(timeout): it polls, up to 50 ms apart.
        pidfd = os.pidfd_open(process.pid)
        ended, _, _ = select.select([pidfd], [], [], HANG_LIMIT)
        os.close(pidfd)
        wall = time.monotonic() - started
        if not ended:
            os.killpg(process.pid, signal.SIGKILL)
        status: int | None = process.wait()
        if not ended:
            status = None
    stdout = (folder / "stdout").read_bytes()
    facts: dict[str, object] = {}
    for line in stdout.splitlines():
        facts.update(json.loads(line))
    child = facts.get("child_status")
    dying = os.waitstatus_to_exitcode(child) if isinstance(child, int) else status
    stderr = (folder / "stderr").read_text(errors="backslashreplace")
    records = sorted((folder / "records").rglob("*.crash.json"))
    return Death(cell, dying, status, stdout, stderr, facts, folder, wall, records)


def mount_small_disk(where: Path) -> bool:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=777", "ftf-small", str(where)], check=True)
    return True


def unmount_keeping_files(folder: Path) -> None:
    """The records must outlive the mount: copy them out, unmount, put them back."""
    where, kept = folder / "records", folder / "kept"
    shutil.copytree(where, kept, ignore=shutil.ignore_patterns("filler"))
    subprocess.run(["umount", str(where)], check=True)
    shutil.copytree(kept, where, dirs_exist_ok=True)


class Baselines:
    """Statuses of the same deaths with no handler at all."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        self.known: dict[tuple[str, str, str, bool, str], Death] = {}

    def of(self, cell: Cell, python: str) -> Death:
        if self.key(cell, python) not in self.known:
            death = die(cell, "none", self.place, python)
            self.remember(cell, python, death)
            shutil.rmtree(death.folder, ignore_errors=True)
        return self.known[self.key(cell, python)]

    def remember(self, cell: Cell, python: str, death: Death) -> None:
        self.known[self.key(cell, python)] = death

    @staticmethod
    def key(cell: Cell, python: str) -> tuple[str, str, str, bool, str]:
        return (cell.fault, cell.context, cell.setup, cell.settle, python)


@cache
def symbol_range(library: Path, name: str) -> tuple[int, int]:
    """(first, one past last) file address of a function, by nm."""
    listing = subprocess.run(["nm", "-S", str(library)], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        words = line.split()
        if len(words) == 4 and words[3] == name:
            return int(words[0], 16), int(words[0], 16) + int(words[1], 16)
    raise LookupError(f"{name} is not in {library}")


def native_has(record: CrashRecord, build: Path, expected: Fault) -> bool:
    """Whether the recorded native frames, by any walk, pass through the crashing function."""
    library = build / expected.library
    low, high = symbol_range(library, expected.function)
    bases = [int(module.base) for module in record.modules or [] if module.path == str(library)]
    walks = [walk for walk in (record.native, record.native_frame_pointer) if walk is not None]
    for base in bases:
        for walk in walks:
            for index, frame in enumerate(walk.frames):
                # A return address stands behind the call, so it may be one past the function.
                address = int(frame.pc) - base - (1 if index else 0)
                if low <= address < high:
                    return True
    return False


def decode(path: Path) -> CrashRecord:
    """Strictly: a complete record is plain JSON of the published shape. Raises msgspec.ValidationError."""
    import msgspec

    from ftforensics.model.basics import decode_hook
    from ftforensics.model.crash import CrashRecord

    return msgspec.json.decode(path.read_bytes(), type=CrashRecord, dec_hook=decode_hook)


def record_faults(path: Path, death: Death, build: Path) -> list[str]:
    """What is wrong with one record."""
    import msgspec

    wrong: list[str] = []
    content = path.read_bytes()
    try:
        members = json.loads(content)
    except ValueError as error:
        return [f"record is not complete JSON: {error}; it ends in {content[-120:]!r}"]
    if list(members)[-1] != "end":
        wrong.append(f"last member is {list(members)[-1]}, not end")
    if not death.cell.hooks:
        wrong += [f"{name} is missing or null" for name in NEVER_NULL if members.get(name) is None]
    wrong += [f"{name} is missing or empty" for name in NEVER_EMPTY if not death.cell.hooks and not members.get(name)]
    mode = path.stat().st_mode & 0o777
    if mode != 0o600:
        wrong.append(f"record's mode is {mode:o}")
    try:
        record = decode(path)
    except msgspec.ValidationError as error:
        return [*wrong, f"record does not have the published shape: {error}"]
    if not death.cell.hooks:
        bad = [(s.name, s.error) for s in record.stages or [] if s.ok is False and not may_fail(s.name, death.cell)]
        if bad:
            wrong.append(f"stages that failed: {bad}")
    if record.process is not None and record.process.pid != death.dying_pid:
        wrong.append(f"record of pid {record.process.pid}, {death.dying_pid} died")
    if not death.cell.hooks and not native_has(record, build, death.cell.expected):
        frames = [frame.pc for frame in (record.native.frames if record.native else [])][:6]
        wrong.append(f"{death.cell.expected.function} is not among the native frames {frames}")
    text = (record.python.text if record.python else None) or ""
    if death.cell.python is not None and not death.cell.hooks and death.cell.python not in text:
        wrong.append(f"{death.cell.python} is not in the Python stack: {text[:200]!r}")
    return wrong


def may_fail(stage: str | None, cell: Cell) -> bool:
    """What may truly not work in a cell is said in `stages`; anything else there is a defect."""
    if (
        cell.setup in ("no_fds", "disk_full", "cwd_gone", "nproc_0", "no_ptrace", "fd_reused")
        or "_at_once" in cell.context
    ):
        return True
    return (
        stage == "held"  # a thread that got no CPU time within 10 ms, on a busy machine
        or (stage in ("python", "python_threads") and cell.fault == "dtor")  # finalized
        or (stage == "native" and cell.fault == "wild_stack_pointer")  # the unwinder reads the stack that is not there
    )


def failures(
    death: Death, baseline: Death, build: Path, mechanism_of: Callable[[Path], str | None] | None
) -> list[str]:
    """Everything that a cell promised and that did not come true; empty = passed."""
    cell = death.cell
    wrong: list[str] = []
    if death.status is None:
        wrong.append(f"hang: killed after {HANG_LIMIT:.0f} s")
    elif death.status != baseline.status:
        wrong.append(f"status {death.status}, without a handler {baseline.status}")
    if death.parent_status != baseline.parent_status:
        wrong.append(f"parent's status {death.parent_status}, without a handler {baseline.parent_status}")
    if cell.proof is not None and death.facts.get("proof") != cell.proof:
        wrong.append(f"condition not proven: {death.facts.get('proof')!r}, not {cell.proof!r}")
    if cell.partial is None:
        if len(death.records) != 1:
            names = sorted(path.name for path in (death.folder / "records").rglob("*"))
            wrong.append(f"{len(death.records)} records, not 1 (files: {names})")
        for path in death.records[:1]:
            wrong += record_faults(path, death, build)
            if mechanism_of is not None:
                mechanism = mechanism_of(path)
                if mechanism != cell.expected.mechanism:
                    wrong.append(f"mechanism {mechanism}, not {cell.expected.mechanism}")
    wrong += [f"stderr holds {death.stderr.count(t)} times {t!r}" for t in cell.says if death.stderr.count(t) != 1]
    user_file = death.facts.get("user_file")
    if isinstance(user_file, str) and Path(user_file).read_bytes() != b"the user's own line\n":
        wrong.append(f"the user's file was touched: {Path(user_file).read_bytes()[:200]!r}")
    if cell.settle and not death.facts.get("taken_back"):
        wrong.append("the stolen signal was not taken back within 3 s")
    if wrong and death.stderr:
        wrong.append(f"stderr: {death.stderr[-500:]!r}")
    return wrong
