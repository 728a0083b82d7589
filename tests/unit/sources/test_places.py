"""Places on disk, looked at by a process that may hang."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from ftforensics.host.host import Completed, Host, Refusal
from ftforensics.sources.places import Place, look_at


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
