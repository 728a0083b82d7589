"""Ten thousand ranks: quickly, in little room, and nobody of importance is left out."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import pytest

from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Diagnosis, Exit
from ftforensics.report import html, terminal

Make = Callable[..., Diagnosis]
RANKS = 10_000
MOST_SECONDS = 0.5  # of CPU time: the machine may have other work

RENDER: dict[str, Callable[[Diagnosis], str]] = {
    "terminal": lambda diagnosis: terminal.render(diagnosis, terminal.View()),
    "verbose": lambda diagnosis: terminal.render(diagnosis, terminal.View(verbose=True)),
    "html": html.render,
}


def cost(render: Callable[[Diagnosis], str], diagnosis: Diagnosis) -> float:
    """Seconds of CPU time, the best of three."""
    took = []
    for _ in range(3):
        began = time.process_time()
        render(diagnosis)
        took.append(time.process_time() - began)
    return min(took)


@pytest.mark.parametrize("render", RENDER.values(), ids=RENDER.keys())
def test_ten_thousand_ranks_cost_little_and_ten_times_as_many_ten_times_that(
    make_huge: Make, render: Callable[[Diagnosis], str]
) -> None:
    diagnosis = make_huge(ranks=RANKS)
    once = cost(render, diagnosis)
    assert once < MOST_SECONDS
    assert cost(render, make_huge(ranks=5 * RANKS)) < 5 * max(once, 0.1) * 1.6


def test_the_output_does_not_grow_with_the_ranks(make_huge: Make) -> None:
    for name, most in (("terminal", 6_000), ("verbose", 60_000), ("html", 120_000)):
        text = RENDER[name](make_huge(ranks=RANKS))
        assert len(text) < most, name
        assert "rank 4711 (pid 18033)" in text, name
        assert "ranks 17, 18" in text, name


def every_status(make_huge: Make) -> Diagnosis:
    """Each rank with an end of its own, and one alone in another role."""
    diagnosis = make_huge(ranks=RANKS)
    first, *rest = diagnosis.processes
    rest = [
        msgspec.structs.replace(one, exit=Exit(code=index), by=None, role="unknown" if index == 9000 else one.role)
        for index, one in enumerate(rest)
    ]
    return msgspec.structs.replace(diagnosis, processes=[first, *rest])


@pytest.mark.parametrize("render", RENDER.values(), ids=RENDER.keys())
def test_where_no_two_are_alike_it_is_bounded_too(make_huge: Make, render: Callable[[Diagnosis], str]) -> None:
    text = render(every_status(make_huge))
    assert "rank 4711 (pid 18033)" in text
    assert "exited with status 9000" in text  # the only one of its role
    assert "more kinds of end" in text
    assert len(text) < 150_000


def test_threads_and_records_of_ten_thousand_are_bounded(make_diagnosis: Make) -> None:
    first = make_diagnosis().processes[0]
    many = [msgspec.structs.replace(first, pid=pid, rank=pid) for pid in range(1000)]
    diagnosis = make_diagnosis(processes=many)
    records = [CrashRecord(note=f"note {pid}") for pid in range(1000)]
    text = terminal.render(diagnosis, terminal.View(verbose=True), records)
    assert "984 more records" in text
    assert len(text) < 300_000
    page = html.render(diagnosis, records)
    assert "984 more records" in page
    assert len(page) < 300_000
