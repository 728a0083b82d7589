"""Would a crash here be recorded, and who else would speak about a death."""

from __future__ import annotations

import pytest

from ftforensics.model.preflight import Check, Status
from ftforensics.parsers.machine_text import Limit
from ftforensics.preflight.capture import Recording, capture_checks, gaps
from ftforensics.sources.machine import Machine
from ftforensics.sources.places import Place
from ftforensics.sources.witnesses import Witness

FOLDER = Place("/job/ftforensics", kind=None, existing="/job", writable=True)
MACHINE = Machine(limits=[Limit("core", 0, None)], core_pattern="core")
OPEN = Witness("kernel-log", "whom the kernel killed")
SHUT = Witness(
    "ptrace", "native stacks", "tracing a process: Operation not permitted", "docker run --cap-add SYS_PTRACE"
)


def one(name: str, recording: Recording, machine: Machine = MACHINE, *witnesses: Witness) -> Check:
    (check,) = [check for check in capture_checks(recording, machine, witnesses) if check.name == name]
    return check


def test_everything_there_is_ok() -> None:
    recording = Recording(folder=FOLDER, tools=["py-spy"])
    assert {check.status for check in capture_checks(recording, MACHINE, [OPEN])} == {Status.OK}


def test_a_handler_that_does_not_load_warns() -> None:
    check = one("crash-handler", Recording(extension="the extension does not load: wrong ELF class"))
    assert check.status is Status.WARN and "wrong ELF class" in check.said


@pytest.mark.parametrize(
    ("folder", "passing", "status"),
    [
        (FOLDER, None, Status.OK),
        (Place("/job/ftforensics", existing="/job", writable=False), None, Status.WARN),
        (Place("/job/ftforensics", silent=True), None, Status.WARN),
        (FOLDER, "overlay", Status.WARN),
    ],
    ids=["writable", "not writable", "silent", "goes with the container"],
)
def test_the_run_folder(folder: Place, passing: str | None, status: Status) -> None:
    check = one("run-folder", Recording(folder=folder, passing=passing))
    assert check.status is status
    assert status is Status.OK or "FTFORENSICS_DIR" in (check.remedies[0].command or "")


@pytest.mark.parametrize(
    ("pattern", "soft", "word"),
    [
        ("core", 0, "limit 0"),
        ("|/usr/lib/systemd/systemd-coredump %P", 0, "systemd-coredump"),
        ("/cores/%p", None, "/cores"),
    ],
)
def test_where_core_files_go(pattern: str, soft: int | None, word: str) -> None:
    check = one("core-files", Recording(), Machine(limits=[Limit("core", soft, None)], core_pattern=pattern))
    assert check.status is Status.OK and word in check.said


def test_core_files_that_nobody_tells_are_unknown() -> None:
    assert one("core-files", Recording(), Machine()).status is Status.UNKNOWN


def test_a_closed_door_is_unknown_with_its_key_and_a_gap() -> None:
    check = one("ptrace", Recording(), MACHINE, OPEN, SHUT)
    assert check.status is Status.UNKNOWN and "not permitted" in check.said
    assert check.remedies[0].command == SHUT.grant
    (gap,) = gaps([OPEN, SHUT])
    assert (gap.source, gap.why, gap.grant) == ("ptrace", SHUT.why, SHUT.grant)


def test_faulthandler_that_is_first_is_said() -> None:
    assert "PYTHONFAULTHANDLER" in one("faulthandler", Recording(faulthandler="PYTHONFAULTHANDLER")).said
    assert all(check.name != "faulthandler" for check in capture_checks(Recording(), MACHINE, []))
