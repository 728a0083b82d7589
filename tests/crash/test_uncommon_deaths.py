"""Deaths beside the matrix: foreign children in our memory, handlers that return, signals that are survived."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from harness import PROGRAMS, ROOT, Workplace


@dataclass
class Seen:
    status: int
    output: str
    records: list[dict[str, object]]  # plain JSON on purpose: nothing of the product reads it

    def pids(self) -> list[object]:
        return [record["process"]["pid"] for record in self.records]  # type: ignore[index]


def run(place: Workplace, way: str, prepare: Callable[[], object] | None = None) -> Seen:
    folder = place.fresh() / "records"
    library = place.build / "vforked.so"
    if not library.exists():
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, PROGRAMS / "vforked.c"], check=True)
    done = subprocess.run(
        [sys.executable, "-u", str(PROGRAMS / "uncommon.py"), way, str(folder), str(library)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        preexec_fn=prepare,
    )
    return Seen(done.returncode, done.stdout, [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))])


@pytest.mark.parametrize("interrupt", [signal.SIG_DFL, signal.SIG_IGN], ids=["foreground", "background"])
def test_a_python_level_handler_runs_once_and_not_for_ever(place: Workplace, interrupt: signal.Handlers) -> None:
    """A shell's background job ignores SIGINT, so Python's handler is nowhere to be seen when we are installed."""
    seen = run(place, "python_level_handler", prepare=lambda: signal.signal(signal.SIGINT, interrupt))
    assert "stolen 1" in seen.output
    assert "never reached" not in seen.output
    assert seen.status == -signal.SIGSEGV
    assert len(seen.records) == 1
    assert seen.records[0]["end"]["how"] == "chain"  # type: ignore[index]


def test_an_ignored_signal_stays_ignored_and_leaves_nothing(place: Workplace) -> None:
    seen = run(place, "ignored_abort")
    assert (seen.status, seen.output, seen.records) == (0, "alive\n", [])


def test_a_survived_signal_is_recorded_and_the_crash_after_it_too(place: Workplace) -> None:
    seen = run(place, "survived_signal")
    assert "hits 1" in seen.output
    assert seen.status == -signal.SIGSEGV
    assert sorted(record["signal"]["name"] for record in seen.records) == ["SIGABRT", "SIGSEGV"]  # type: ignore[index]


@pytest.mark.parametrize("way", ["raw_fork", "vfork_child"])
def test_a_child_without_our_hooks_records_itself_and_leaves_its_parent_able_to(place: Workplace, way: str) -> None:
    seen = run(place, way)
    assert f"child {int(signal.SIGSEGV)}\n" in seen.output
    assert seen.status == -signal.SIGSEGV
    assert len(set(seen.pids())) == 2
    child = next(record for record in seen.records if record["process"]["fork_of"])  # type: ignore[index]
    assert child["process"]["fork_of"] in seen.pids()  # type: ignore[index]
    assert all("end" in record for record in seen.records)


def test_uninstall_leaves_a_plain_process(place: Workplace) -> None:
    seen = run(place, "uninstalled")
    assert (seen.status, seen.records) == (-signal.SIGSEGV, [])


def test_install_after_uninstall_works(place: Workplace) -> None:
    seen = run(place, "installed_again")
    assert seen.status == -signal.SIGSEGV
    assert len(seen.records) == 1
    assert seen.records[0]["python"] is not None
