"""A run that died before it had a line in the ledger is described by what is installed now, if that may be believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ftforensics.host.host import Host
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.crash import CrashRecord, Job, Time
from ftforensics.sources.ledger import changes_since_good

DIED = 2_000.0
PLACES = (
    "/venv/lib/python3.11/site-packages",
    "/usr/lib/python3/dist-packages",
    "/usr/local/lib/python3.11/dist-packages",
)


def prefix_of(place: str) -> str:
    return "/venv" if place.startswith("/venv") else "/usr"


def machine(root: Path, place: str, touched: float) -> Host:
    """Where torch 2.1.0 was good and 2.2.0 is installed at `place`, which was changed last at `touched`."""
    fingerprint = {"host": "a", "prefix": prefix_of(place), "packages": [{"name": "torch", "version": "2.1.0"}]}
    begun = {"type": "begun", "run": "1", "at": 1_000.0, "job": "/x/train.py", "fingerprint": fingerprint}
    ended = {"type": "ended", "run": "1", "at": 1_500.0, "how": "ok", "host": "a"}
    for path, text in (
        ("proc/sys/kernel/hostname", "a\n"),
        ("ledger.jsonl", f"{json.dumps(begun)}\n{json.dumps(ended)}\n"),
        (f"{place[1:]}/torch-2.2.0.dist-info/METADATA", "Name: torch\nVersion: 2.2.0\n"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    os.utime(root / place[1:], (touched, touched))
    return Host(root=root)


def told(host: Host, place: str) -> list[str | None]:
    """What the report says that has changed, of packages: the new versions."""
    job = Job(host="a", argv=["python", "/x/train.py"], cwd="/x", sys_prefix=prefix_of(place))
    record = CrashRecord(job=job, time=Time(realtime=DIED))
    changes = changes_since_good(
        host, Case(records=[CaseRecord(path="/x/1.crash.json", record=record)]), "/ledger.jsonl"
    )
    assert changes is not None
    return [change.after for change in changes.items if change.kind in ("package", "torch")]


@pytest.mark.parametrize("place", PLACES)
def test_what_was_installed_before_the_crash_counts(place: str, tmp_path: Path) -> None:
    assert "2.2.0" in told(machine(tmp_path, place, DIED - 1), place)


@pytest.mark.parametrize("place", PLACES)
def test_what_was_installed_after_the_crash_says_nothing_about_it(place: str, tmp_path: Path) -> None:
    assert told(machine(tmp_path, place, DIED + 1), place) == []
