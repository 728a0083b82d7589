"""/proc/self/limits and /proc/cpuinfo as values."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from ftforensics.parsers.gpu_variables import interfaces, visible_devices, whole_number
from ftforensics.parsers.machine_text import limits, processor


def test_the_kernels_own_text_says_what_getrlimit_says() -> None:
    found = {limit.name: limit for limit in limits(Path("/proc/self/limits").read_text())}
    for name in ("nofile", "nproc", "memlock", "stack", "core"):
        soft, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
        wanted = [None if one == resource.RLIM_INFINITY else one for one in (soft, hard)]
        assert [found[name].soft, found[name].hard] == wanted, name


@pytest.mark.parametrize(
    "text", ["", "Max open files", "Max open files  many  more  files\n", "\0" * 100, "Max " * 5000]
)
def test_what_is_no_limit_is_left_out(text: str) -> None:
    assert limits(text) == []


@pytest.mark.parametrize("text", ["Max " + " " * 8000 + "x", "Max a" + " a" * 8000, "Max open files" + " " * 8000])
def test_a_hostile_line_costs_nothing(text: str) -> None:
    started = time.process_time()
    assert limits(text) == []
    assert time.process_time() - started < 0.5


def test_the_first_processor() -> None:
    text = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu sse2 avx2\n\nprocessor\t: 1\nflags\t\t: none\n"
    assert processor(text).model == "A CPU" and processor(text).flags == ["fpu", "sse2", "avx2"]
    assert processor("Features\t: fp asimd\n").flags == ["fp", "asimd"]
    assert processor("").flags == []


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, None),
        ("", []),
        ("0", ["0"]),
        ("0, 2", ["0", "2"]),
        ("1,-1,2", ["1"]),
        ("-1", []),
        ("NoDevFiles", []),
        ("GPU-8932f937,MIG-1", ["GPU-8932f937", "MIG-1"]),
        ("²", []),
    ],
)
def test_cuda_visible_devices(value: str | None, found: list[str] | None) -> None:
    assert visible_devices(value) == found


def test_a_list_without_end_is_bounded() -> None:
    assert len(visible_devices("0," * 100_000) or []) <= 256
    assert len(interfaces("eth0," * 100_000).names) <= 257


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("-1", None), ("", None), (None, None), ("9" * 30, None), ("٣", None)]
)
def test_whole_numbers(text: str | None, number: int | None) -> None:
    assert whole_number(text) == number
