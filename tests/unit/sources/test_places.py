"""Places on disk, looked at by a process that may hang."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ftforensics.host.host import Completed, Host, Refusal
from ftforensics.sources.places import Place, answers, look_at


def test_each_path_has_an_answer_in_order(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    (tmp_path / "none").mkdir()
    (tmp_path / "file").write_text("x")
    names = ["full", "none", "file", "missing/deeper"]
    full, none, file, missing = look_at(Host(), [str(tmp_path / name) for name in names])
    assert (full.kind, full.empty, full.readable, full.writable) == ("folder", False, True, True)
    assert (none.kind, none.empty) == ("folder", True)
    assert (file.kind, file.empty) == ("file", False)
    assert (missing.kind, missing.code, missing.existing) == (None, 2, str(tmp_path))
    assert full.size and full.free is not None and full.free <= full.size


def test_odd_names_and_repetitions_are_taken_as_they_are(tmp_path: Path) -> None:
    name = str(tmp_path / "a b\n\u202e'\"")
    os.mkdir(name)
    first, second = look_at(Host(), [name, name])
    assert first == second and first.kind == "folder" and first.path == name


def test_names_that_are_no_utf8_are_found(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe\xc3\xbc")
    os.mkdir(name)
    there, missing = look_at(Host(), [name, f"{name}/none"])
    assert (there.kind, there.path, there.silent) == ("folder", name, False)
    assert (missing.code, missing.existing) == (2, name)


def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    begun = time.monotonic()
    (place,) = look_at(Host(), [str(tmp_path / "pipe")])
    assert place.kind == "other"
    assert time.monotonic() - begun < 2


def test_what_does_not_answer_is_silent_and_the_others_are_told(tmp_path: Path) -> None:
    """As a child gives it whose thread for one path hangs in the kernel."""

    def run(argv: Sequence[str], timeout: float, limit: int) -> Completed:
        return Completed(tuple(argv), None, b'{"path": "/a", "kind": "folder", "empty": false}\n', b"", timed_out=True)

    first, second = look_at(Host(root=tmp_path, run=run), ["/a", "/b"])
    assert (first.kind, first.silent) == ("folder", False)
    assert second == Place("/b", silent=True)


def test_no_python_to_ask_is_an_error_not_a_fault(tmp_path: Path) -> None:
    def run(argv: Sequence[str], timeout: float, limit: int) -> Completed:
        raise Refusal("python", "No such file or directory", 2)

    (place,) = look_at(Host(root=tmp_path, run=run), ["/a"])
    assert place.error is not None and "No such file" in place.error


def test_a_copied_root_is_read_without_a_child(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("")
    folder, file, missing = look_at(Host(root=tmp_path), ["/data", "/data/x", "/none"])
    assert (folder.kind, folder.empty) == ("folder", False)
    assert (file.kind, file.empty) == ("file", True)
    assert missing.code == 2


class Machine(Host):
    """This one, with other mounts; counts the processes that are started to look."""

    def __init__(self, mounts: str) -> None:
        self.mounts = mounts
        self.looks = 0
        super().__init__(run=self.look)

    def read_text(self, path: str | Path, limit: int = 1 << 20) -> str:
        return self.mounts if path == "/proc/self/mountinfo" else super().read_text(path, limit)

    def look(self, *_: object) -> Completed:
        self.looks += 1
        return Completed((), None, b"", b"", timed_out=True)


ROOT_ON_DISK = "27 1 254:0 / / rw - ext4 /dev/vda rw\n"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "lustre", "ceph", "9p", "autofs", "of-tomorrow"])
def test_a_file_system_that_may_fall_silent_is_asked(kind: str, tmp_path: Path) -> None:
    machine = Machine(f"{ROOT_ON_DISK}40 27 0:9 / {tmp_path}/home rw - {kind} server:/home rw\n")
    assert not answers(machine, f"{tmp_path}/home/me/ledger.jsonl")
    assert machine.looks == 1
    assert answers(machine, f"{tmp_path}/homes")
    assert machine.looks == 1


def test_a_disk_of_this_machine_is_not_asked(tmp_path: Path) -> None:
    machine = Machine(ROOT_ON_DISK)
    (tmp_path / "x").mkdir()
    assert answers(machine, f"{tmp_path}/x/../y/none/ledger.jsonl") and answers(machine, str(tmp_path / "x"))
    assert machine.looks == 0


def test_links_are_followed_before_it_is_known_where_a_path_lies(tmp_path: Path) -> None:
    machine = Machine(f"{ROOT_ON_DISK}40 27 0:9 / {tmp_path}/net rw - nfs4 server:/ rw\n")
    (tmp_path / "net").mkdir()
    (tmp_path / "near").mkdir()
    for name, target in (("absolute", str(tmp_path / "net" / "me")), ("relative", "net/me"), ("round", "near/../net")):
        (tmp_path / name).symlink_to(target)
        assert not answers(machine, f"{tmp_path}/{name}/ledger.jsonl"), name
    assert machine.looks == 3
    (tmp_path / "loop").symlink_to("loop")
    assert answers(machine, f"{tmp_path}/loop/x")
    assert machine.looks == 3


@pytest.mark.parametrize(
    "mounts",
    [
        "27 1 254:0 / / rw - 9p nothing rw\n",
        f"{ROOT_ON_DISK}40 27 43:0 / /tmp rw - ext4 /dev/nbd0 rw\n",  # a disk that lies behind a network
        f"40 27 0:9 / /tmp rw - nfs4 server:/ rw\n{ROOT_ON_DISK}",  # whichever covers the other
    ],
)
def test_what_is_not_known_to_be_here_is_asked(mounts: str) -> None:
    machine = Machine(mounts)
    assert not answers(machine, "/tmp/x")
    assert machine.looks == 1
