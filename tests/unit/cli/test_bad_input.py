"""`analyze` and what people give it by mistake: one clear line and status 2, or what could be read."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_a_missing_file(run: Run, tmp_path: Path) -> None:
    shown = run("analyze", tmp_path / "none.crash.json")
    assert shown.status == 2
    assert "none.crash.json: No such file" in shown.complaint
    assert "FTFORENSICS_DIR" in shown.complaint
    assert shown.out == ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"\0" * 4096, "the file is empty"),
        (b"   \n\n", "the file is empty"),
        (os.urandom(64) + b"\0" * 64, "not a crash record"),
        (b"\x7fELF\x02\x01" + b"\0" * 100, "ELF file"),
        (b"\x1f\x8b\x08\0\0\0", "gzip"),
        (b"PK\x03\x04aaaa", "zip"),
        (b"hello, world\n", "not a JSON object"),
        (b"[1, 2]\n", "not a JSON object"),
        (b"{}\n", "not a crash record"),
        (b'{"schema": "someone.else/1", "a": 1}\n', "someone.else/1"),
        (b'{"name": "package", "version": "1.0"}\n', "no schema"),
        (b'{"schema": "ftforensics.crash/2",\n"tool": null}\n', "upgrade"),
        (b'{"schema": "ftforensics.report/1"}\n', "finished report"),
        (b'{"schema": "ftforensics.helper/1", "pid": 3}\n', "the report of the crash reporter"),
        (b'{"schema": 7}\n', "not a crash record"),
        (b"{" * 100_000, "not a crash record"),
        (b"[" * 100_000, "not a JSON object"),
        ("\ufeff{}".encode(), "not a crash record"),
        (b'{"schema": "\x1b[31mred\\u001b[0m\\u202e"}\n', "not a crash record"),
    ],
)
def test_files_that_are_no_records(run: Run, tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.crash.json"
    path.write_bytes(content)
    shown = run("analyze", path)
    assert shown.status == 2
    assert says in shown.complaint
    assert str(path) in shown.complaint
    assert "\x1b" not in shown.complaint
    assert "\u202e" not in shown.complaint


@pytest.mark.timeout(600)  # over a thousand runs of the command: a minute, and more on a busy machine
def test_every_cut_is_read_as_far_as_it_goes_or_refused_in_one_line(run: Run, tmp_path: Path, example: bytes) -> None:
    path = tmp_path / "cut.crash.json"
    told = 0
    # Every byte of the first lines, where the record begins to mean something, and a stride through the rest.
    for length in [*range(600), *range(600, len(example), 37), len(example) - 1]:
        path.write_bytes(example[:length])
        shown = run("analyze", path)
        assert shown.status in (0, 2, 3), (length, shown.err)
        if shown.status == 2:
            assert shown.complaint
            assert length < 120, f"{length} bytes hold whole members, and nothing of them was used: {shown.err}"
        else:
            told += 1
            assert shown.err == ""
            assert length >= len(example) - 2 or "breaks off" in shown.out, length
    assert told > 300


def test_a_cut_record_says_what_was_lost(run: Run, tmp_path: Path, example: bytes) -> None:
    path = tmp_path / "cut.crash.json"
    path.write_bytes(example[: example.index(b'"native":') + 40])
    shown = run("analyze", path, "-v")
    assert shown.status in (0, 3)
    flat = " ".join(shown.out.split())
    assert "the record breaks off in native" in flat
    assert "python" in flat.partition("never written:")[2]


def test_a_fifo_is_refused_without_waiting(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    shown = run("analyze", path)
    assert shown.status == 2
    assert "a pipe" in shown.complaint


def test_devices_and_sockets_are_refused_without_waiting(run: Run, tmp_path: Path) -> None:
    for device in ("/dev/zero", "/dev/null", "/dev/tty"):
        shown = run("analyze", device)
        assert shown.status == 2
        assert "character device" in shown.complaint
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        assert "a socket" in run("analyze", tmp_path / "s").complaint


def test_a_folder_without_records(run: Run, tmp_path: Path) -> None:
    assert "it is empty" in run("analyze", tmp_path).complaint
    (tmp_path / "launcher.log").write_text("hello")
    shown = run("analyze", tmp_path)
    assert shown.status == 2
    assert "no crash record, ring or known log in this folder" in shown.complaint


def test_a_folder_that_has_only_foreign_folders_is_told_in_one_line(run: Run, tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "notes.txt").write_text("hello")
    shown = run("analyze", tmp_path)
    assert shown.status == 2
    assert "no crash record, ring or known log in this folder" in shown.complaint


def test_a_huge_foreign_file_is_not_read_whole(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "core"
    with open(path, "wb") as file:
        file.write(b"\x7fELF")
        file.truncate(1 << 40)  # sparse: a terabyte that nobody could read
    assert "ELF file" in run("analyze", path).complaint
    with open(path, "r+b") as file:
        file.write(b"\0\0\0\0")
    assert run("analyze", path).status == 2


def test_a_record_of_somebody_else(run: Run, record: Path) -> None:
    run("analyze", record)  # what has to be imported is, before we give up the right to read it
    record.chmod(0)
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)  # root passes every permission check
    try:
        shown = run("analyze", record)
    finally:
        os.seteuid(was)
    assert shown.status == 2
    assert "Permission denied" in shown.complaint
    assert "owner" in shown.complaint


def test_a_path_that_is_none(run: Run) -> None:
    assert run("analyze", "").status == 2
    assert run("analyze", "a\0b").status == 2
    assert run("analyze", "x" * 5000).status == 2


def test_links_that_lead_nowhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    shown = run("analyze", tmp_path / "a")
    assert shown.status == 2
    assert "link" in shown.complaint


def test_one_bad_file_among_good_ones_is_left_out(run: Run, record: Path, tmp_path: Path) -> None:
    shown = run("analyze", record, tmp_path / "none")
    assert shown.status == 0
    assert "left out" in shown.complaint
    (tmp_path / "empty.crash.json").touch()
    shown = run("analyze", tmp_path)
    assert shown.status == 0
    assert "empty.crash.json: the file is empty" in shown.complaint


def test_wrong_types_inside_cost_only_themselves(run: Run, example: bytes, tmp_path: Path) -> None:
    content = json.loads(example)
    for member in content:
        if member == "schema":
            continue
        for wrong in (7, "x", [1], {"a": {"b": []}}, True, [[]], {"pid": "\x1b[31m"}):
            path = tmp_path / "wrong.crash.json"
            path.write_text(json.dumps({**content, member: wrong}))
            shown = run("analyze", path, "-v")
            assert shown.status in (0, 3), (member, wrong, shown.err)
            assert "\x1b" not in shown.out


def test_extreme_numbers_are_shown_and_not_died_of(run: Run, example: bytes, tmp_path: Path) -> None:
    content = json.loads(example)
    path = tmp_path / "extreme.crash.json"
    for value in (1e308, -1e308, 0, -1, 2**63, 2**200, 1e-300):
        content["time"] = {"realtime": value, "monotonic": value, "installed": value}
        content["step"] = value if isinstance(value, int) else 1
        content["process"]["pid"] = value if isinstance(value, int) else 1
        content["stages"][0]["ms"] = value
        path.write_text(json.dumps(content))
        for form in ((), ("-v",), ("--json",)):
            shown = run("analyze", path, *form)
            assert shown.status in (0, 3), (value, form, shown.err)


def test_output_that_tells_nothing_is_no_refusal_where_the_person_says_how_it_ended(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("step 0 loss 0.07\nstep 1 loss 0.05\n")
    assert run("analyze", log).status == 2
    shown = run("analyze", log, "--exit-code", "137")
    assert shown.status == 3 and "SIGKILL" in shown.out  # undecided
    assert "job.log: nothing in it is known" in shown.complaint
    missing = run("analyze", log, tmp_path / "none.log", "--exit-code", "137")
    assert missing.status == 2 and "none.log" in missing.err
