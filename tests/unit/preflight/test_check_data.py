"""The paths that a run reads from and writes to: real ones, and ones that answer nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from conditions import needs_unprivileged
from ftforensics.host.host import Host
from ftforensics.model.preflight import Check, Status
from ftforensics.preflight.data import data_checks, writable_checks
from ftforensics.sources.places import Place, look_at


def data(*paths: Path) -> list[Check]:
    return list(data_checks(look_at(Host(), [str(path) for path in paths])))


def test_a_folder_with_something_in_it_is_ok(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (check,) = data(tmp_path)
    assert check.status is Status.OK


@pytest.mark.parametrize("kind", ["missing", "empty folder", "empty file"])
def test_what_holds_no_data_fails(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "empty file":
        path.touch()
    (check,) = data(path)
    assert check.status is Status.FAIL
    assert str(path) in check.said
    assert ("not there" if kind == "missing" else "empty") in check.said


@needs_unprivileged
def test_what_may_not_be_read_fails(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir(mode=0)
    (check,) = data(path)
    assert check.status is Status.FAIL and "may not be read" in check.said


def test_a_mount_that_does_not_answer_fails() -> None:
    (check,) = data_checks([Place("/mnt/data", silent=True)])
    assert check.status is Status.FAIL and "did not answer" in check.said
    assert check.remedies[0].command == "findmnt -T /mnt/data"


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOTCONN, errno.EIO])
def test_a_stale_mount_fails(code: int) -> None:
    (check,) = data_checks([Place("/mnt/data", error=os.strerror(code), code=code)])
    assert check.status is Status.FAIL and "no longer works" in check.said


def test_a_command_survives_a_hostile_name() -> None:
    (check,) = data_checks([Place("/mnt/a b; rm -rf x", silent=True)])
    assert check.remedies[0].command == "findmnt -T '/mnt/a b; rm -rf x'"


def test_a_folder_that_the_job_will_make_is_judged_by_the_one_above(tmp_path: Path) -> None:
    (place,) = look_at(Host(), [str(tmp_path / "runs" / "7")])
    (check,) = writable_checks([place])
    assert check.status is Status.OK and str(tmp_path) in check.said


def test_a_file_is_no_place_for_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (check,) = writable_checks(look_at(Host(), [str(tmp_path / "file")]))
    assert check.status is Status.FAIL


def test_of_a_pipe_nothing_is_claimed_and_no_checkpoint_is_written_into_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (found,) = data(pipe)
    assert found.status is Status.UNKNOWN and "was not looked at" in found.said
    (found,) = writable_checks(look_at(Host(), [str(pipe)]))
    assert found.status is Status.FAIL and "not a folder" in found.said


def test_a_place_that_may_not_be_written_fails() -> None:
    place = Place("/out/x", existing="/out", writable=False, error="No such file or directory", code=errno.ENOENT)
    (check,) = writable_checks([place])
    assert check.status is Status.FAIL and "may not be written" in check.said
