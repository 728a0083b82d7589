"""What is said about the last minute."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.diagnosis import CurvePoint, Holder, MemoryHistory
from ftforensics.report import memory

GIB, MIB = 1 << 30, 1 << 20
Make = Callable[..., MemoryHistory]


def changed(make_history: Make, **fields: object) -> MemoryHistory:
    return msgspec.structs.replace(make_history(), **fields)


def test_everything_that_is_known(make_history: Make) -> None:
    assert list(memory.sentences(make_history())) == [
        "63.9 GiB of 64 GiB in use (99.8 %), the limit of /slurm/job_4411",
        "grew 1.0 GiB/s for 47 s, from 15.8 GiB to 63.9 GiB; 8 of 8 ranks grew together",
        "about 3 GiB of the group's usage was page cache, which the kernel drops first",
        "largest: rank 3 (pid 18033) 8.1 GiB; other (pid 77) 5 GiB; rank 0 (pid 18030) 4 GiB",
    ]
    assert memory.last_sample(make_history()) == "last sample 64 ms before the end"
    assert memory.title(make_history()) == "The last minute"


def test_nothing_is_said_about_what_is_not_known() -> None:
    bare = MemoryHistory("this process's own memory", used=3 * GIB)
    assert list(memory.sentences(bare)) == ["3 GiB in use"]
    assert memory.last_sample(bare) is None
    assert list(memory.sentences(MemoryHistory("x"))) == []
    assert memory.in_short(MemoryHistory("x")) == "nothing was sampled"


def test_a_limit_of_something_else_has_no_percentage(make_history: Make) -> None:
    found = memory.fullness(changed(make_history, full=None, used=8 * GIB))
    assert found == "8 GiB in use; limit 64 GiB of /slurm/job_4411"


def test_the_whole_machine(make_history: Make) -> None:
    found = memory.fullness(changed(make_history, limit_of="the whole machine", used=32 * GIB, full=0.5))
    assert found == "32 GiB of 64 GiB in use (50 %), the whole machine"


@pytest.mark.parametrize(
    ("full", "share"), [(1.0, "100 %"), (0.9999, "100.0 %"), (0.994, "99.4 %"), (0.91, "91 %"), (1.02, "102 %")]
)
def test_the_share_is_finer_near_the_limit(make_history: Make, full: float, share: str) -> None:
    assert f"({share})" in (memory.fullness(changed(make_history, full=full)) or "")


def test_flat_and_falling(make_history: Make) -> None:
    assert memory.growth(changed(make_history, trend="flat", growth=None)) == "flat in that time"
    points = [CurvePoint(30.0, 9 * GIB), CurvePoint(0.0, 2 * GIB)]
    falling = changed(make_history, trend="falling", growth=None, points=points)
    assert memory.growth(falling) == "was falling; highest 9 GiB, 30 s before the end"
    assert memory.growth(changed(make_history, trend=None, growth=None)) is None


def test_standing_at_the_limit_after_the_rise(make_history: Make) -> None:
    stood = memory.growth(changed(make_history, until=12.064))
    assert stood is not None and stood.endswith("to 63.9 GiB, then stood there for 12 s")


@pytest.mark.parametrize(
    ("growth", "words"),
    [(0.9 * GIB, "0.9 GiB/s"), (12.34 * GIB, "12.3 GiB/s"), (120 * MIB, "120 MiB/s"), (1.25 * MIB, "1.2 MiB/s")],
)
def test_rates(growth: float, words: str) -> None:
    assert memory.rate(growth) == words


def test_an_end_that_nobody_timed(make_history: Make) -> None:
    text = memory.last_sample(changed(make_history, last_age=None))
    assert text == "how old the last sample was at the end is not known"


def test_a_short_life_has_a_short_title(make_history: Make) -> None:
    points = [CurvePoint(12.0, GIB), CurvePoint(0.0, 2 * GIB)]
    assert memory.title(changed(make_history, points=points)) == "The last 12 s"


def test_holders_without_name_or_pid() -> None:
    assert memory.holder_name(Holder(None, None, 1)) == "pid unknown"
    assert memory.holder_name(Holder(7, "\x1b[31mx", 1)) == "\\x1b[31mx (pid 7)"


@pytest.mark.parametrize(
    ("rising", "ranks", "said"),
    [(8, 8, "8 of 8 ranks grew together"), (1, 2, "of 2 ranks only one grew"), (0, 2, None), (1, 1, None)],
)
def test_who_grew(make_history: Make, rising: int, ranks: int, said: str | None) -> None:
    assert memory.together(changed(make_history, rising=rising, ranks=ranks)) == said
