"""launcher.log is bounded, whatever is written, and what was there at a sudden end stays."""

from __future__ import annotations

import os
from pathlib import Path

from ftforensics.supervise.launcher_log import BoundedFile


def opened(path: Path, head: int = 100, piece: int = 200) -> BoundedFile:
    return BoundedFile(str(path), os.open(path, os.O_RDWR | os.O_CREAT), head, piece)


def test_a_short_log_is_one_file(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    log.write(b"a" * 60)
    log.write(b"b" * 40)
    log.finish()
    assert (tmp_path / "log").read_bytes() == b"a" * 60 + b"b" * 40
    assert (log.written, log.cut) == (100, False)
    assert os.listdir(tmp_path) == ["log"]


def test_a_long_one_keeps_both_ends_and_says_what_is_missing(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    lines = [b"%09d\n" % number for number in range(200)]
    for line in lines:
        log.write(line)
    log.finish()
    text = (tmp_path / "log").read_bytes()
    assert text.startswith(b"".join(lines[:10]))
    assert text.endswith(b"".join(lines[-20:]))
    head, mark, tail = text.partition(b"\n[ftforensics: ")
    missing = int(mark and tail.split()[0])
    kept = tail.partition(b"]\n")[2]
    assert len(head) + missing + len(kept) == 2000
    assert 200 <= len(kept) <= 400 and kept in b"".join(lines)
    assert log.cut and os.listdir(tmp_path) == ["log"]


def test_everything_that_was_kept_is_on_disk_before_the_end(tmp_path: Path) -> None:
    """Killed before finish(): the pieces lie beside the beginning."""
    log = opened(tmp_path / "log")
    for number in range(60):
        log.write(b"%09d\n" % number)
    assert sorted(os.listdir(tmp_path)) == ["log", "log.a", "log.b"]
    assert b"000000059" in b"".join((tmp_path / name).read_bytes() for name in ("log.a", "log.b"))


def test_what_was_left_out_is_said_in_its_place(tmp_path: Path) -> None:
    log = opened(tmp_path / "log", head=1000)
    log.write(b"before\n")
    log.leave_out(12345, "too fast")
    log.write(b"after\n")
    assert (tmp_path / "log").read_bytes() == b"before\n\n[ftforensics: 12345 bytes left out here: too fast]\nafter\n"
    assert log.cut


def test_a_full_disk_keeps_what_is_there(tmp_path: Path) -> None:
    reading = os.open(tmp_path / "log", os.O_RDONLY | os.O_CREAT)
    log = BoundedFile(str(tmp_path / "log"), reading)  # every write fails
    log.write(b"x")
    log.finish()
    assert log.cut and log.written == 0
