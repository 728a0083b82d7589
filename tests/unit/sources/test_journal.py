"""Lines of systemd and the memory killers in the journal: asked narrowly, refusals said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ftforensics.host.host import Host
from ftforensics.sources.journal import read_journal

if TYPE_CHECKING:
    from conftest import Commands, Files

SINCE = 1795960000.5


def line(unit: str, message: str, **more: str) -> bytes:
    """As journalctl of systemd 252 prints it, the members that matter."""
    entry = {
        "MESSAGE": message,
        "_SYSTEMD_UNIT": unit,
        "_COMM": unit.removesuffix(".service")[:15],
        "SYSLOG_IDENTIFIER": unit.removesuffix(".service"),
        "_TRANSPORT": "journal",
        "_HOSTNAME": "gpu-07",
        "_PID": "812",
        "_BOOT_ID": "0231076cb8c643e781dc7609325ca25a",
        "__REALTIME_TIMESTAMP": "1795960790000000",
        "PRIORITY": "6",
        **more,
    }
    return json.dumps(entry).encode() + b"\n"


OOMD = line(
    "systemd-oomd.service",
    "Killed /user.slice/user-1000.slice/user@1000.service/app.slice/train.scope due to memory pressure for "
    "/user.slice/user-1000.slice/user@1000.service being 51.07% > 50.00% for > 20s with reclaim activity",
)
EARLYOOM = line(
    "earlyoom.service",
    'sending SIGTERM to process 4242 uid 1000 "python": oom_score 1300, VmRSS 61000 MiB, cmdline "python"',
)


def test_what_the_killers_wrote(machine: Host, commands: Commands) -> None:
    commands.says("journalctl", OOMD + EARLYOOM)
    notices, gaps = read_journal(machine, SINCE, SINCE + 800)
    assert gaps == []
    assert [(notice.authority, notice.kind, notice.live) for notice in notices] == [
        ("systemd-oomd", "killed", True),
        ("earlyoom", "killed", True),
    ]
    assert notices[0].group is not None and notices[0].group.endswith("/train.scope")
    assert notices[1].pid == 4242
    (argv,) = commands.asked
    assert "@1795960000" in argv and "@1795960801" in argv
    assert commands.bounds == [(5.0, 16 << 20)]


def test_only_fields_that_journald_sets_itself_are_asked_for(machine: Host, commands: Commands) -> None:
    """`logger -t systemd-oomd Killed ...` is any user's to run."""
    commands.says("journalctl", b"")
    read_journal(machine, SINCE, None)
    matches = [word for word in commands.asked[0] if "=" in word]
    assert matches and all(word.startswith("_") for word in matches)
    assert "--until" not in commands.asked[0]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"stderr": b"No journal files were opened due to insufficient permissions.\n", "status": 1}, "insufficient"),
        ({"timed_out": True}, "no answer within 5 s"),
        ({"stdout": OOMD, "cut": True}, "only the first"),
        ({"stdout": b"", "stderr": b"Hint: You are currently not seeing messages from other users\n"}, "shows no line"),
    ],
)
def test_refusals(machine: Host, commands: Commands, said: dict[str, object], why: str) -> None:
    commands.says("journalctl", **said)  # type: ignore[arg-type]
    (gap,) = read_journal(machine, SINCE, None)[1]
    assert gap.source == "journal" and why in gap.why


def test_a_machine_without_systemd_has_no_such_killers(machine: Host) -> None:
    assert read_journal(machine, SINCE, None) == ([], [])


def test_a_copied_root_is_not_mixed_with_this_machine(files: Files) -> None:
    notices, (gap,) = read_journal(Host(root=files.root), SINCE, None)
    assert notices == [] and "not of the copied files" in gap.why


def test_garbage(machine: Host, commands: Commands) -> None:
    commands.says("journalctl", bytes(range(256)) * 100 + b'\n{"MESSAGE": [300, -1]}\n{"MESSAGE"\n')
    assert read_journal(machine, SINCE, None)[0] == []


def test_the_real_journalctl_answers_or_says_why() -> None:
    notices, gaps = read_journal(Host(), Host().now() - 60, None)
    assert isinstance(notices, list)
    assert all(gap.source == "journal" for gap in gaps)
