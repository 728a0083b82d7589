"""Runs as root of a second kernel (second_kernel.py): real kills under version 2 groups, each seen by `run` and with
nothing but `install()` in the job.

Words: a folder, then the names of what shall happen. Writes FOLDER/NAME.json for each; the test looks at them.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OUT = Path(sys.argv[1])
JOB = str(Path(__file__).with_name("job.py"))
GROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20
PATIENCE = 60  # seconds
NOBODY = 65534
# Everything may be read, as the interpreter may lie where only root looks; nothing else that root may is left, and the
# kernel's log wants CAP_SYSLOG.
UNPRIVILEGED = (
    f"setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups"
    " --inh-caps +dac_read_search --ambient-caps +dac_read_search"
).split()
OWN_PIDS = ["unshare", "--pid", "--fork", "--mount-proc"]
# As in a container: /sys/fs/cgroup begins at the own group, which is called "/". The tmpfs between is there because
# mount(2) refuses a file system on top of itself (EBUSY).
ITS_OWN = 'mount -t tmpfs none /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"'
CONTAINED = [*OWN_PIDS, "--cgroup", "sh", "-c", ITS_OWN, "sh"]


@contextmanager
def group(path: str, limit: int | None = None) -> Iterator[Path]:
    place = GROUPS / path
    place.mkdir()
    if limit is not None:
        (place / "memory.max").write_text(str(limit))
    yield place
    emptied(place)  # what this tool started beside the job may outlive it by some seconds, and is of its group
    place.rmdir()


def entering(place: Path) -> list[str]:
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(place)]


def supervised(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "ftforensics", "run", "--dir", str(folder), *options, "--"]


def job(folder: Path | None, *words: str) -> list[str]:
    return [sys.executable, JOB, "-" if folder is None else str(folder), *words]


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    _, err = process.communicate(timeout=PATIENCE)
    return {"pid": process.pid, "status": process.returncode, "err": err}


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stdout.readline() == "ready\n", process.communicate()


def analyzed(*words: object, by: Sequence[str] = ()) -> Any:
    command = [*by, sys.executable, "-m", "ftforensics", "analyze", "--json", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


def report_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


def counted(place: Path, file: str = "memory.events") -> dict[str, int]:
    pairs = (line.split() for line in (place / file).read_text().splitlines())
    return {name: int(count) for name, count in pairs}


def emptied(place: Path) -> None:
    """Wait for the last member's end. The kernel kills one after the other, and the first may be gone long before."""
    with open(place / "cgroup.events") as events:
        changed = select.poll()
        changed.register(events, select.POLLPRI)
        while "populated 1" in events.read():
            assert changed.poll(PATIENCE * 1000)
            events.seek(0)


def killed_for_memory() -> list[int]:
    """The pids that the kernel's log names, in its order: the initial namespace's."""
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid in re.findall(r"Killed process (\d+)", log)]


# --- whose limit ------------------------------------------------------------------------------------------------------


def own_limit(way: str, folder: Path) -> dict[str, Any]:
    with group("job", 120 * MIB) as place:
        words = supervised(folder) if way == "run" else []
        seen = finish(start([*entering(place), *words, *job(folder, "eat")]))
        report = report_of(folder) if way == "run" else analyzed(folder)
        return {**seen, "events": counted(place), "report": report}


def limit_above(way: str, folder: Path) -> dict[str, Any]:
    with group("slice", 120 * MIB) as above:
        (above / "cgroup.subtree_control").write_text("+memory")
        with group("slice/job") as place:
            words = supervised(folder) if way == "run" else []
            seen = finish(start([*entering(place), *words, *job(folder, "eat")]))
            report = report_of(folder) if way == "run" else analyzed(folder)
            return {**seen, "events": counted(place), "report": report}


def whole_machine(way: str, folder: Path) -> dict[str, Any]:
    with group("job") as place:
        words = supervised(folder) if way == "run" else []
        seen = finish(start([*entering(place), *words, *job(folder, "eat")]))
        report = report_of(folder) if way == "run" else analyzed(folder)
        return {**seen, "events": counted(place), "report": report}


def whole_group(way: str, folder: Path) -> dict[str, Any]:
    """Supervisor, launcher and three ranks die at once. Afterwards each rank is asked for, and the job is started
    again."""
    with group("job", 200 * MIB) as place:
        (place / "memory.oom.group").write_text("1")
        words = supervised(folder) if way == "run" else []
        before = len(killed_for_memory())
        seen = finish(start([*entering(place), *words, *job(folder, "ranks")]))
        emptied(place)
        events, kills = counted(place), killed_for_memory()[before:]
        ranks = {ring.name.split("-")[1]: int(ring.name.rsplit("-", 2)[1]) for ring in folder.glob("*-rank*.ring")}
        report = analyzed(folder)
        each = {rank: analyzed(folder, "--pid", pid) for rank, pid in ranks.items()}
    again = finish(start([*supervised(folder), "true"]))
    return {**seen, "events": events, "kills": kills, "ranks": ranks, "report": report, "each": each, "again": again}


# --- what cannot be read ----------------------------------------------------------------------------------------------


def unreadable_log(way: str, folder: Path) -> dict[str, Any]:
    """Job, supervisor and analysis as a user who may not read the kernel's log. Not on the host's file system, where
    what this kernel's users make belongs to the host's one."""
    Path("/proc/sys/kernel/dmesg_restrict").write_text("1")
    with group("job", 120 * MIB) as place:
        own = Path("/run") / folder.name
        own.mkdir()
        os.chown(own, NOBODY, NOBODY)
        words = supervised(own, "--no-trace") if way == "run" else []
        seen = finish(start([*entering(place), *UNPRIVILEGED, *words, *job(own, "eat")]))
        report = report_of(own) if way == "run" else analyzed(own, by=UNPRIVILEGED)
        events = counted(place)
    Path("/proc/sys/kernel/dmesg_restrict").write_text("0")
    return {**seen, "events": events, "report": report}


# --- namespaces -------------------------------------------------------------------------------------------------------


def _in_namespaces(way: str, folder: Path, namespaces: list[str]) -> dict[str, Any]:
    """A neighbour of the same name is killed for its memory first, and then ours."""
    with group("theirs", 60 * MIB) as theirs, group("ours", 120 * MIB) as ours:
        neighbour = finish(start([*entering(theirs), *job(None, "eat")]))
        words = supervised(folder) if way == "run" else []
        seen = finish(start([*entering(ours), *namespaces, *words, *job(folder, "eat")]))
        report = report_of(folder) if way == "run" else analyzed(folder)
        return {**seen, "neighbour": neighbour, "kills": killed_for_memory()[-2:], "report": report}


def own_pids(way: str, folder: Path) -> dict[str, Any]:
    return _in_namespaces(way, folder, OWN_PIDS)


def contained(way: str, folder: Path) -> dict[str, Any]:
    return _in_namespaces(way, folder, CONTAINED)


def neighbour_only(way: str, folder: Path) -> dict[str, Any]:
    """A neighbour is killed for its memory; ours, in namespaces of its own, gets kill -9 right after."""
    with group("theirs", 60 * MIB) as theirs, group("ours") as ours:
        words = supervised(folder) if way == "run" else []
        process = start([*entering(ours), *CONTAINED, *words, *job(folder, "wait")])
        ready(process)
        neighbour = finish(start([*entering(theirs), *job(None, "eat")]))
        os.kill(_program_in(ours, job(folder, "wait")), signal.SIGKILL)
        seen = finish(process)
        report = report_of(folder) if way == "run" else analyzed(folder, "--exit-code", -9)
        return {**seen, "neighbour": neighbour, "report": report}


def _program_in(place: Path, argv: list[str]) -> int:
    """The pid, as this namespace has it, of the program that was started with these words."""
    block = b"".join(word.encode() + b"\0" for word in argv)
    members = (place / "cgroup.procs").read_text().split()
    (found,) = [pid for pid in members if Path(f"/proc/{pid}/cmdline").read_bytes() == block]
    return int(found)


# --- not for memory ---------------------------------------------------------------------------------------------------


def kill_9(way: str, folder: Path) -> dict[str, Any]:
    words = supervised(folder) if way == "run" else []
    process = start([*words, *job(folder, "wait")])
    ready(process)
    (ring,) = folder.glob("*.ring")
    pid = int(ring.name.rsplit("-", 2)[1])
    os.kill(pid, signal.SIGKILL)
    seen = finish(process)
    report = report_of(folder) if way == "run" else analyzed(folder, "--exit-code", -9)
    return {**seen, "pid": pid, "report": report}


def fault(way: str, folder: Path) -> dict[str, Any]:
    """-S: nothing of ours is in this Python, so all that is left of its end is the kernel's line."""
    assert way == "run"
    seen = finish(
        start([*supervised(folder), sys.executable, "-I", "-S", "-c", "import ctypes; ctypes.string_at(0x28)"])
    )
    return {**seen, "report": report_of(folder)}


def main() -> None:
    (GROUPS / "cgroup.subtree_control").write_text("+memory")
    for name in sys.argv[2:]:
        what, _, way = name.partition("-")
        folder = OUT / "records" / name
        seen = globals()[what](way, folder)
        (OUT / f"{name}.json").write_text(json.dumps(seen))


main()
