"""The sources on another real kernel: version 2 groups, limits above, whole groups killed, /dev/kmsg written round."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conditions import ROOT, needs_second_kernel
from ftforensics.model.reading import Reading
from second_kernel import boot

pytestmark = needs_second_kernel
PROGRAM = Path(__file__).parent / "programs" / "version_2_groups.py"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={shlex.quote(str(ROOT / 'src'))} {shlex.quote(sys.executable)}"
    output = boot(f"{command} {shlex.quote(str(PROGRAM))}", tmp_path_factory.mktemp("kernel"))
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def reading(value: Any) -> Reading:
    return msgspec.convert(value, Reading)


def test_the_limit_of_a_group_above(seen: dict[str, Any]) -> None:
    """oom counts where the limit is, oom_kill where the victim is and above, and the local files tell the two apart."""
    found = seen["below_a_limit"]
    assert found["status"] == -9
    before, after = reading(found["before"]), reading(found["after"])
    assert [group.path for group in before.groups] == ["/outer/inner", "/outer"]  # the root has no memory files
    assert [group.limit for group in before.groups] == [None, 60 << 20]
    assert [(group.oom, group.oom_kill) for group in before.groups] == [(0, 0), (0, 0)]
    assert [(group.oom, group.oom_kill) for group in after.groups] == [(0, 1), (1, 1)]
    assert [(group.local_oom, group.local_oom_kill) for group in after.groups] == [(0, 1), (1, 0)]
    assert after.groups[1].max_events and after.groups[1].peak == 60 << 20
    assert (before.oom_kill, after.oom_kill) == (0, 1)  # alone on this machine: exactly one
    assert [gap for gap in found["gaps"] if "cgroup" in gap] == []
    assert [group.path for group in reading(found["gone"]).groups] == ["/outer"]
    assert "/outer/inner is gone; its counters ended with it" in found["gone_gaps"]


def test_a_group_killed_whole_counts_the_chosen_one_twice(seen: dict[str, Any]) -> None:
    """Two processes die, oom_kill rises by three (6.1): the chosen victim is killed once for itself and once as a
    member. Who compares the counter with deaths has to know."""
    found = seen["together"]
    assert found["statuses"] == [-9, -9]
    (group,) = reading(found["after"]).groups
    assert (group.oom, group.oom_kill, group.oom_group_kill) == (1, 3, 1)


def test_the_kernel_log_names_them_all(seen: dict[str, Any]) -> None:
    assert [(source, gap_free) for source, gap_free, _ in seen["log"]["logs"]] == [("kmsg", True)]
    assert seen["log"]["gaps"] == []
    kills = {pid: (limit, group, whole) for pid, limit, group, whole in seen["log"]["kills"]}
    assert kills[seen["below_a_limit"]["pid"]] == ("/outer", "/outer/inner", None)
    quiet, hungry = seen["together"]["pids"]
    assert kills[hungry][2] == kills[quiet][2] == "/together"


def test_an_unprivileged_user_may_read_an_open_ring_and_is_refused_a_restricted_one(seen: dict[str, Any]) -> None:
    assert seen["open"]["logs"][0][0] == "kmsg" and seen["open"]["gaps"] == []
    assert len(seen["open"]["kills"]) == len(seen["log"]["kills"])
    assert seen["restricted"]["logs"] == []
    why, grant = seen["restricted"]["gaps"][0]
    assert why == "/dev/kmsg: Operation not permitted" and "sysctl kernel.dmesg_restrict=0" in grant


def test_a_ring_written_round_between_two_reads(seen: dict[str, Any]) -> None:
    """read(2) gives EPIPE once and goes on at the oldest record that is left; what is gone is said."""
    assert seen["overrun"]["holes"] == [1] and not seen["overrun"]["cut"]
    assert seen["overrun"]["records"] > 2
