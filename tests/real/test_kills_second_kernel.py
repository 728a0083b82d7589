"""Real kills on the second kernel, end to end: version 2 groups, a whole group at once, limits above, a machine out of
memory, a kernel log that is kept from us, namespaces; under `ftforensics run`, and with `install()` alone."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conditions import ROOT, needs_second_kernel
from second_kernel import boot

# One kernel at a time: each takes up to a GB of memory and a core.
pytestmark = [needs_second_kernel, pytest.mark.timeout(400), pytest.mark.xdist_group("second-kernel")]
PROGRAM = Path(__file__).parent / "programs" / "version_2_kills.py"
BOOT_TIMEOUT = 360  # seconds; a boot with its kills takes a minute on a quiet machine
MIB = 1 << 20
WAYS = ["run", "install"]

LIMITS = ["own_limit", "limit_above", "whole_group"]
HIDDEN = ["unreadable_log", "own_pids", "contained", "neighbour_only", "kill_9"]

Seen = Mapping[str, Any]


def happened(folder: Path, names: list[str], memory: str) -> dict[str, Seen]:
    command = [sys.executable, str(PROGRAM), str(folder), *names]
    (folder / "boot").mkdir()
    variables = f"export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={shlex.quote(str(ROOT / 'src'))}"
    boot(f"{variables}; {shlex.join(command)}", folder / "boot", memory, BOOT_TIMEOUT)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in names}


def both_ways(names: list[str]) -> list[str]:
    return [f"{name}-{way}" for name in names for way in WAYS]


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return happened(tmp_path_factory.mktemp("limits"), both_ways(LIMITS), "900M")


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return happened(tmp_path_factory.mktemp("hidden"), [*both_ways(HIDDEN), "fault-run"], "900M")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return happened(tmp_path_factory.mktemp("machine"), both_ways(["whole_machine"]), "320M")


def verdict(report: Any) -> tuple[str | None, str]:
    return report["verdict"]["cause"], report["verdict"]["confidence"]


def root(report: Any) -> Any:
    (found,) = [process for process in report["processes"] if process["role"] == "root"]
    return found


def of(report: Any, cause: str) -> Any:
    (found,) = [one for one in report["hypotheses"] if one["cause"] == cause]
    return found


def texts(report: Any) -> str:
    """Everything that speaks for anything."""
    return "\n".join(cite["text"] for one in report["hypotheses"] for cite in one["for"])


def saving(process: Any) -> bool:
    return (process["exit"]["signal"], process["phase"], process["step"]) == ("SIGKILL", "save_checkpoint", 500)


# --- whose limit ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_the_own_groups_limit(limits: dict[str, Seen], way: str) -> None:
    seen = limits[f"own_limit-{way}"]
    assert seen["status"] == -signal.SIGKILL
    # oom: also each time the others in the group ask for memory before the victim's is back.
    assert seen["events"]["oom"] >= 1 and seen["events"]["oom_kill"] == 1
    report = seen["report"]
    assert verdict(report) == ("cgroup-oom", "proven")
    assert "memory limit of /job (120 MiB)" in report["verdict"]["summary"]
    died = root(report)
    assert saving(died)
    if way == "install":
        assert died["pid"] == seen["pid"]
    memory = died["memory"]
    assert (memory["limit"], memory["limit_of"]) == (120 * MIB, "/job")
    assert memory["used"] > 0.6 * 120 * MIB
    assert 0.005e9 < memory["growth"] < 1e9  # bytes a second; page faults are slow there
    assert memory["last_age"] < 2.0
    assert memory["holders"][0]["pid"] == died["pid"]
    # The kernel's line, the counter of version 2, and nothing that another kernel would have called otherwise.
    said = texts(report)
    assert f"Memory cgroup out of memory: Killed process {died['pid']}" in said
    assert "oom_kill 0 -> 1 in /job" in said and "max_events" in said


@pytest.mark.parametrize("way", WAYS)
def test_the_limit_of_a_group_above(limits: dict[str, Seen], way: str) -> None:
    seen = limits[f"limit_above-{way}"]
    assert (seen["events"]["oom"], seen["events"]["oom_kill"]) == (0, 1)  # not its own limit
    report = seen["report"]
    assert verdict(report) == ("ancestor-cgroup-oom", "proven")
    assert "/slice (120 MiB)" in report["verdict"]["summary"]
    assert saving(root(report))
    assert root(report)["memory"]["limit_of"] == "/slice"


@pytest.mark.parametrize("way", WAYS)
def test_a_whole_group_dies_at_once(limits: dict[str, Seen], way: str) -> None:
    """With it `run`, its helpers and the launcher: nobody is left who could say anything."""
    seen = limits[f"whole_group-{way}"]
    assert seen["status"] == -signal.SIGKILL and seen["err"] == ""
    assert seen["events"]["oom_group_kill"] >= 1
    members = set(seen["kills"])
    assert seen["events"]["oom_kill"] > len(members)  # the chosen one is counted twice (6.1)
    assert {seen["pid"], *seen["ranks"].values()} <= members and len(members) >= (6 if way == "run" else 4)
    report = seen["report"]
    assert verdict(report) == ("cgroup-oom", "proven")
    died = root(report)
    assert (died["rank"], died["pid"]) == (2, seen["ranks"]["rank2"]) == (2, seen["kills"][0]) and saving(died)
    others = [process for process in report["processes"] if process is not died]
    assert {0, 1} <= {process["rank"] for process in others}
    assert all((one["exit"]["signal"], one["role"]) == ("SIGKILL", "collateral") for one in others)


@pytest.mark.parametrize("way", WAYS)
def test_of_a_whole_group_only_one_was_chosen(limits: dict[str, Seen], way: str) -> None:
    each = limits[f"whole_group-{way}"]["each"]
    assert {rank: verdict(report) for rank, report in each.items()} == {
        "rank0": ("oom-group-kill", "proven"),
        "rank1": ("oom-group-kill", "proven"),
        "rank2": ("cgroup-oom", "proven"),
    }


@pytest.mark.parametrize("way", WAYS)
def test_the_next_start_says_that_the_attempt_before_was_not_seen_to_end(limits: dict[str, Seen], way: str) -> None:
    again = limits[f"whole_group-{way}"]["again"]
    assert again["status"] == 0
    (line,) = again["err"].splitlines()
    assert "previous attempt: " in line and line.endswith(f"whole_group-{way}")


@pytest.mark.parametrize("way", WAYS)
def test_the_whole_machine(machine: dict[str, Seen], way: str) -> None:
    seen = machine[f"whole_machine-{way}"]
    assert seen["status"] == -signal.SIGKILL
    assert (seen["events"]["oom"], seen["events"]["oom_kill"]) == (0, 1)
    report = seen["report"]
    assert verdict(report) == ("host-oom", "proven")
    died = root(report)
    assert saving(died)
    assert died["memory"]["limit_of"] == "the whole machine" and 200 * MIB < died["memory"]["limit"] < 320 * MIB
    assert "global_oom" in texts(report)


# --- what cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_without_the_kernels_log_counters_speak_and_prove_nothing(hidden: dict[str, Seen], way: str) -> None:
    seen = hidden[f"unreadable_log-{way}"]
    assert seen["status"] == -signal.SIGKILL and seen["events"]["oom_kill"] == 1
    report = seen["report"]
    assert verdict(report) == ("cgroup-oom", "likely")
    assert saving(root(report)) or way == "install"
    assert not any(cite["source"] == "kmsg" for one in report["hypotheses"] for cite in one["for"])
    assert "oom_kill 0 -> 1 in /job" in texts(report)
    (ring,) = [gap for gap in report["gaps"] if gap["why"].startswith("/dev/kmsg: ")]
    assert "Operation not permitted" in ring["why"] and "sysctl kernel.dmesg_restrict=0" in ring["grant"]


# --- namespaces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["own_pids", "contained"])
def test_in_namespaces_the_right_kill_is_found(hidden: dict[str, Seen], place: str, way: str) -> None:
    """The job, or `run`, is pid 1. A neighbour of the same name was killed for its memory a moment before."""
    seen = hidden[f"{place}-{way}"]
    theirs, ours = seen["kills"]
    assert theirs == seen["neighbour"]["pid"]
    report = seen["report"]
    cause, confidence = verdict(report)
    assert cause == "cgroup-oom" and confidence in ("proven", "likely")
    assert "memory limit of /ours (120 MiB)" in report["verdict"]["summary"]
    died = root(report)
    assert saving(died)
    assert (died["pid"] == 1) is (way == "install") and died["pid"] not in (theirs, ours)
    assert f"Killed process {ours} (" in texts(report)
    assert f"Killed process {theirs} (" not in texts(report)


@pytest.mark.parametrize("way", WAYS)
def test_in_namespaces_a_neighbours_kill_is_not_ours(hidden: dict[str, Seen], way: str) -> None:
    """Its name, its user and the time fit, and no group's path tells the two apart; the limit does."""
    seen = hidden[f"neighbour_only-{way}"]
    assert seen["neighbour"]["status"] == -signal.SIGKILL
    report = seen["report"]
    assert verdict(report) == ("killed-unknown", "undecided")
    assert "Killed process" not in texts(report)
    assert root(report)["memory"]["limit"] is None
    assert not any(one["confidence"] in ("likely", "proven") for one in report["hypotheses"])


# --- not for memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_kill_9_where_nothing_can_be_traced(hidden: dict[str, Seen], way: str) -> None:
    seen = hidden[f"kill_9-{way}"]
    report = seen["report"]
    assert verdict(report) == ("killed-unknown", "undecided")
    assert root(report)["pid"] == seen["pid"]
    assert of(report, "cgroup-oom")["confidence"] == of(report, "host-oom")["confidence"] == "ruled_out"
    if way == "run":
        gaps = {gap["source"]: gap for gap in report["gaps"]}
        assert "this kernel has no tracefs" in gaps["trace"]["why"] and gaps["trace"]["grant"] is None
        assert "this kernel does not tell" in gaps["process events"]["why"]
        assert gaps["process events"]["grant"] is None  # no right would help


def test_a_fault_without_a_handler_of_ours(hidden: dict[str, Seen]) -> None:
    """6.1 writes "in FILE[base+size]", with no place in the file."""
    seen = hidden["fault-run"]
    assert seen["status"] == -signal.SIGSEGV
    report = seen["report"]
    assert verdict(report) == ("native-fault", "likely")
    assert report["verdict"]["mechanism"] == "null-read"
    assert "in libc" in report["verdict"]["summary"]
    (line,) = [cite["text"] for cite in of(report, "native-fault")["for"] if cite["source"] == "kmsg"]
    assert "segfault at 28 ip " in line and line.endswith("]")
