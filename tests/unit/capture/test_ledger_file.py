"""The ledger's file: where it lies, that lines get into it whole, and what is refused."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from conditions import ROOT, needs_root
from ftforensics.capture import ledger
from ftforensics.sources.ledger import compact
from ftforensics.wire.ledger import read_lines, read_runs


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (ledger.SWITCH, "FTFORENSICS_RUN", "LOCAL_RANK", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    yield


def test_it_lies_in_the_state_directory() -> None:
    assert ledger.place({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == "/s/ftforensics/ledger.jsonl"
    assert ledger.place({"XDG_STATE_HOME": "relative", "HOME": "/h"}) == "/h/.local/state/ftforensics/ledger.jsonl"
    assert ledger.place({"HOME": "/h", "FTFORENSICS_LEDGER": "/l/x.jsonl"}) == "/l/x.jsonl"
    assert ledger.place({"HOME": ""}) is None


@pytest.mark.parametrize("word", ["0", "off", "no", "FALSE"])
def test_it_can_be_switched_off(word: str) -> None:
    assert ledger.place({"HOME": "/h", "FTFORENSICS_LEDGER": word}) is None
    children = ledger.variables_for_children({"HOME": "/h", "FTFORENSICS_LEDGER": word}, "/run")
    assert children == [b"FTFORENSICS_LEDGER=0"]


def test_one_process_of_a_machine_keeps_it() -> None:
    assert ledger.keeps({"HOME": "/h", "LOCAL_RANK": "0", "RANK": "8"})
    assert ledger.keeps({"HOME": "/h", "LOCAL_RANK": "3"}) is None
    # another rank's crash reporter has to know the run, and must not write that it began
    names = [
        entry.partition(b"=")[0] for entry in ledger.variables_for_children({"HOME": "/h", "LOCAL_RANK": "3"}, "/r")
    ]
    assert names == [b"FTFORENSICS_LEDGER", b"FTFORENSICS_LEDGER_RUN"]
    assert ledger.variables_for_children({"HOME": "/h", "FTFORENSICS_RUN": "1"}, "/r") == [b"FTFORENSICS_LEDGER=0"]


def test_a_line_is_appended_to_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ftforensics" / "ledger.jsonl"
    ledger.append(str(path), ledger.ended_line("1", "ok"), make=True)
    ledger.append(str(path), ledger.ended_line("2", "signal", signal=9))
    assert [line.run for line in read_lines(path.read_bytes())] == ["1", "2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_torn_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(ledger.ended_line("1", "ok") + b'{"type": "begun", "run": "2", "at"')
    ledger.append(str(path), ledger.ended_line("3", "ok"))
    assert [line.run for line in read_lines(path.read_bytes())] == ["1", "3"]


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"mine\n")
    path = tmp_path / "ledger.jsonl"
    path.symlink_to(target)
    with pytest.raises(OSError) as refused:
        ledger.append(str(path), ledger.ended_line("1", "ok"), make=True)
    assert refused.value.errno == errno.ELOOP
    with pytest.raises(OSError):
        compact(str(path))
    assert target.read_bytes() == b"mine\n"


def test_a_fifo_in_its_place_does_not_hold_anybody_up(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    os.mkfifo(path)
    with pytest.raises(PermissionError):
        ledger.append(str(path), ledger.ended_line("1", "ok"), make=True)


@needs_root
def test_another_users_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.touch()
    os.chown(path, 65534, 65534)
    with pytest.raises(PermissionError):
        ledger.append(str(path), ledger.ended_line("1", "ok"))


def test_a_folder_that_cannot_be_made_is_an_error_for_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        ledger.append(str(tmp_path / "file" / "ftforensics" / "ledger.jsonl"), b"{}\n", make=True)


@needs_root
def test_a_full_disk_costs_the_line_and_no_more(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    try:
        path = disk / "ledger.jsonl"
        with pytest.raises(OSError) as full:
            for number in range(10_000):
                ledger.append(str(path), ledger.ended_line(str(number), "ok"), make=True)
        assert full.value.errno == errno.ENOSPC
        runs = [line.run for line in read_lines(path.read_bytes())]
        assert runs == [str(number) for number in range(len(runs))]
        assert len(runs) > 100
    finally:
        subprocess.run(["umount", disk], check=True)


def _append_many(path: str, first: int) -> None:
    for number in range(200):
        ledger.append(path, ledger.ended_line(f"{first}-{number}-{'x' * 3000}", "ok"), make=True)


def test_eight_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.jsonl")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append_many, args=(path, first)) for first in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    data = Path(path).read_bytes()
    # Who looks at the last byte while another write is under way begins anew: an empty line, which costs nothing.
    assert len([line for line in data.split(b"\n") if line]) == len({line.run for line in read_lines(data)}) == 1600


def _append_until(path: str, first: int, enough: Event, written: Connection) -> None:
    number = 0
    while not enough.is_set():
        run = f"{first}-{number}"
        begun = f'{{"type":"begun","run":"{run}","at":{number},"job":"j","fingerprint":{{"host":"h"}}}}\n'
        for line in (begun, f'{{"type":"ended","run":"{run}","host":"h","at":{number}.5,"how":"ok"}}\n'):
            _append_patiently(path, line.encode())
        number += 1
        time.sleep(0.001)  # lets the compaction have its turn: jobs do not end all the time
    written.send(number)


def _append_patiently(path: str, line: bytes) -> None:
    while True:
        try:
            ledger.append(path, line)
            return
        except BlockingIOError:  # five compactions without a break are more than a writer waits for
            continue


def test_nothing_is_lost_to_a_compaction_meanwhile(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.jsonl")
    ledger.append(path, b"{}\n", make=True)
    context = multiprocessing.get_context("fork")
    enough = context.Event()
    receiving, sending = context.Pipe(duplex=False)
    writers = [context.Process(target=_append_until, args=(path, first, enough, sending)) for first in range(4)]
    for writer in writers:
        writer.start()
    names = {os.stat(path).st_ino}
    compactions = 0
    while compactions < 5:
        try:
            compactions += compact(path, most_runs=1_000_000)
        except BlockingIOError:
            continue
        names.add(os.stat(path).st_ino)
    enough.set()
    written = sum(receiving.recv() for _ in writers)
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    runs = read_runs(Path(path).read_bytes())
    assert (len(runs), all(run.good for run in runs)) == (written, True)
    assert len(names) > 1
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["ledger.jsonl"]


_UNKNOWN = """
import os, sys
from ftforensics import _native
_native.configure_ledger(os.fsencode(sys.argv[1]), b'{"type": "ended", "run": "1", "at": ')
"""


def test_nothing_is_written_about_a_process_that_was_not_written_down(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-c", _UNKNOWN, path], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, timeout=60
    )
    assert (done.returncode, path.read_bytes()) == (0, b"")


def test_how_a_status_is_told() -> None:
    assert b'"how": "signal", "signal": 9}' in ledger.ended_by_status("1", 7, signal.SIGKILL)
    assert b'"how": "code", "code": 3}' in ledger.ended_by_status("1", 7, 3 << 8)
    assert b'"how": "ok"}' in ledger.ended_by_status("1", 7, 0)
