"""A run that ends well leaves nothing, whatever its processes did on the way."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ftforensics.supervise import leftovers

INSTALL = "import os, sys, ftforensics; ftforensics.install(helper='none')"
HOST = os.uname().nodename.partition(".")[0]
GONE = 1 << 22  # above the largest pid (PID_MAX_LIMIT)


def children(*codes: str) -> list[str]:
    """A command that runs Pythons with these lines and ends well."""
    lines = " ".join(f'"{sys.executable}" -c "{INSTALL}; {code}" 2>/dev/null;' for code in codes)
    return ["sh", "-c", f"{lines} exit 0"]


def test_exit_statuses_and_exceptions_of_children_leave_nothing(job, tmp_path: Path) -> None:
    ended = job(*children("sys.exit(3)", "os._exit(4)", "raise ValueError(1)"))
    assert (ended.status, ended.err) == (0, b"")
    assert os.listdir(tmp_path) == []


def test_of_a_run_that_failed_they_stay(job) -> None:
    ended = job(*[word.replace("exit 0", "exit 1") for word in children("raise ValueError(1)")])
    assert ended.status == 1
    assert [name for name in os.listdir(ended.folder) if name.endswith((".exception.json", ".ring"))]


def test_a_crash_and_a_kill_stay(job) -> None:
    ended = job(*children("import ctypes; ctypes.string_at(0)", "os.kill(os.getpid(), 9)"))
    assert ended.status == 0
    kinds = sorted(name.partition(".")[2] for name in os.listdir(ended.folder))
    assert kinds == ["crash.json", "ring", "ring"]


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    start = 1 << 40  # later than we began
    alive = f"{HOST}-{os.getpid()}-{leftovers.procfs.start_ticks(os.getpid())}"
    kept = {
        "evidence.jsonl", "other.evidence.jsonl",  # another supervisor is at work
        f"{HOST}-{GONE}-{start}.ring",  # not seen by us: that one's
        f"{HOST}-{GONE + 1}-1.exception.json",  # began before us
        f"elsewhere-{GONE + 2}-{start}.ring",
        f"{HOST}-{GONE + 3}-{start}.crash.json", f"{HOST}-{GONE + 3}-{start}.ring",
        f"{alive}.ring", "notes.exception.json", "model.ring",
    }  # fmt: skip
    gone = {f"{HOST}-rank3-{GONE + 2}-{start}.ring", f"{HOST}-rank3-{GONE + 2}-{start}-1.exception.json"}
    for name in kept | gone:
        (tmp_path / name).write_text("")
    leftovers.remove(str(tmp_path), {GONE + 1, GONE + 2, GONE + 3, os.getpid()}, set())
    assert set(os.listdir(tmp_path)) == kept
    (tmp_path / "other.evidence.jsonl").unlink()
    leftovers.remove(str(tmp_path), set(), {GONE})
    assert set(os.listdir(tmp_path)) == kept - {"other.evidence.jsonl"}
    leftovers.remove(str(tmp_path), set(), set())
    assert f"{HOST}-{GONE}-{start}.ring" not in os.listdir(tmp_path)


def test_a_link_to_a_ring_goes_with_the_ring_and_with_nothing_else(tmp_path: Path) -> None:
    folder, local = tmp_path / "folder", tmp_path / "local"
    folder.mkdir()
    local.mkdir()
    names = [f"{HOST}-{GONE + at}-{1 << 40}.ring" for at in range(2)]
    (local / names[0]).write_text("")
    (local / "precious").write_text("")
    (folder / names[0]).symlink_to(local / names[0])
    (folder / names[1]).symlink_to(local / "precious")
    leftovers.remove(str(folder), set(), set())
    assert os.listdir(folder) == [] and os.listdir(local) == ["precious"]
