"""Which torch for which driver. The answers are stated here by hand, not read from the tables."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ftforensics.facts.choose import NVJITLINK_NOTE, OLD_NOTE, WINDOW_NOTE, Choice, choose, install_command
from ftforensics.facts.torch import find_wheel


class Expected(NamedTuple):
    """first: the first driver of the branch that shall be answered for; python: one that the answer supports."""

    first: str
    exact: list[str]
    window: list[str]
    python: str


BY_WINDOW_12 = ["2.14.1+cu126", "2.11.0+cu128"]
# Below 465 no wheel of CUDA 11 is at the driver's own level: what is left is the last release for CUDA 10.2.
ANSWERS = [
    Expected("450.80.02", ["1.12.1+cu102"], ["2.7.1+cu118"], "3.9"),
    Expected("455.23", ["1.12.1+cu102"], ["2.7.1+cu118"], "3.9"),
    Expected("460.27.03", ["1.12.1+cu102"], ["2.7.1+cu118"], "3.9"),
    Expected("465.19.01", ["1.12.1+cu113"], ["2.7.1+cu118"], "3.10"),
    Expected("470.42.01", ["1.12.1+cu113"], ["2.7.1+cu118"], "3.10"),
    Expected("510.39.01", ["1.13.1+cu116"], ["2.7.1+cu118"], "3.10"),
    Expected("515.43.04", ["2.0.1+cu117"], ["2.7.1+cu118"], "3.11"),
    Expected("520.61.05", ["2.7.1+cu118"], [], "3.12"),
    Expected("525.60.13", ["2.7.1+cu118"], BY_WINDOW_12, "3.12"),
    Expected("530.30.02", ["2.5.1+cu121"], BY_WINDOW_12, "3.11"),
    Expected("535.54.03", ["2.5.1+cu121"], BY_WINDOW_12, "3.11"),
    Expected("545.23.06", ["2.5.1+cu121"], BY_WINDOW_12, "3.10"),
    Expected("550.54.14", ["2.6.0+cu124"], BY_WINDOW_12, "3.13"),
    Expected("555.42.02", ["2.6.0+cu124"], BY_WINDOW_12, "3.12"),
    Expected("560.28.03", ["2.14.1+cu126"], ["2.11.0+cu128"], "3.14"),
    Expected("565.57.01", ["2.14.1+cu126"], ["2.11.0+cu128"], "3.12"),
    Expected("570.26", ["2.14.1+cu126", "2.11.0+cu128"], [], "3.12"),
    Expected("575.51.03", ["2.14.1+cu126", "2.11.0+cu128", "2.8.0+cu129"], [], "3.12"),
    Expected("580.65.06", ["2.15.0+cu130"], ["2.15.0+cu132"], "3.12"),
    Expected("590.44.01", ["2.15.0+cu130"], ["2.15.0+cu132"], "3.13"),
    Expected("595.45.04", ["2.15.0+cu132"], [], "3.12"),
    Expected("610.43.02", ["2.15.0+cu132"], [], "3.14"),
    Expected("615.71.09", ["2.15.0+cu132"], [], "3.11"),
]


def names(choices: list[Choice]) -> list[str]:
    return [choice.wheel.name for choice in choices]


@pytest.mark.parametrize("expected", ANSWERS, ids=lambda one: one.first)
@pytest.mark.parametrize("with_python", [False, True], ids=["any-python", "a-python"])
def test_each_branch_has_its_answers(expected: Expected, with_python: bool) -> None:
    found = choose(expected.first, python=expected.python if with_python else None)
    assert (names(found.exact), names(found.window)) == (expected.exact, expected.window)


@pytest.mark.parametrize("expected", ANSWERS, ids=lambda one: one.first)
def test_a_later_release_of_a_branch_has_the_same_answers(expected: Expected) -> None:
    later = f"{expected.first.split('.')[0]}.999.01"
    found = choose(later)
    assert (names(found.exact), names(found.window)) == (expected.exact, expected.window)


@pytest.mark.parametrize("driver", ["450.51.05", "450.79", "525.60.11", "525.53", "418.39"])
def test_below_the_floor_there_is_no_window(driver: str) -> None:
    assert choose(driver).window == []


def test_the_answer_for_530() -> None:
    found = choose("530.30.02", capabilities=["8.0"], python="3.11.7", machine="x86_64")
    index = "--index-url https://download.pytorch.org/whl"
    assert [(choice.tier, choice.command) for choice in [*found.exact, *found.window]] == [
        ("exact", f"pip install torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 {index}/cu121"),
        ("window", f"pip install torch==2.14.1 torchvision==0.29.1 torchaudio==2.11.0 {index}/cu126"),
        ("window", f"pip install torch==2.11.0 torchvision==0.26.0 torchaudio==2.11.0 {index}/cu128"),
    ]
    assert found.best == found.exact[0]
    assert found.driver_for_newest == "580.65.06"
    assert found.compat == "cuda-compat-12-8"
    # The trap of that release, and the promise of the others.
    assert found.exact[0].note == NVJITLINK_NOTE
    assert "LD_LIBRARY_PATH" in NVJITLINK_NOTE
    assert {choice.note for choice in found.window} == {WINDOW_NOTE}


def test_another_python_has_another_answer() -> None:
    assert names(choose("530.30.02", python="3.13").exact) == ["2.7.1+cu118"]  # 2.5.1 has no wheel for it
    assert names(choose("595.45.04", python="3.10").exact)[0] == "2.14.1+cu130"  # 2.15 begins with 3.11
    assert names(choose("530.30.02", python="3.8").exact) == ["2.4.1+cu121"]
    nothing = choose("530.30.02", python="3.6")
    assert (nothing.best, nothing.driver_for_newest, nothing.compat) == (None, None, None)


@pytest.mark.parametrize(
    ("driver", "capabilities", "exact"),
    [
        ("580.65.06", ["6.1"], "2.14.1+cu126"),  # no CUDA 13 for Pascal and Volta
        ("580.65.06", ["7.0", "9.0"], "2.14.1+cu126"),
        ("580.65.06", ["7.5"], "2.15.0+cu130"),
        ("570.26", ["12.0"], "2.11.0+cu128"),  # no cu126 for Blackwell
        ("575.51.03", ["10.0", "7.0"], "2.10.0+cu128"),  # both in one wheel
        ("470.42.01", ["3.7"], "1.12.1+cu113"),
        ("530.30.02", ["8.9"], "2.5.1+cu121"),  # 8.6 code runs on it
        ("530.30.02", ["9.0"], "2.5.1+cu121"),
        ("530.30.02", ["3.7"], "2.7.1+cu118"),
    ],
)
def test_every_gpu_must_be_served(driver: str, capabilities: list[str], exact: str) -> None:
    assert names(choose(driver, capabilities=capabilities).exact)[0] == exact


def test_what_runs_on_no_wheel_of_the_driver_is_not_offered() -> None:
    assert choose("530.30.02", capabilities=["12.0"]).exact == []
    assert names(choose("530.30.02", capabilities=["12.0"]).window) == ["2.11.0+cu128"]
    # 10.2 code ends at 7.0; nothing is promised to an A100 there.
    assert choose("450.51.05", capabilities=["8.0"]).best is None


def test_no_driver_is_advised_that_drops_the_gpu() -> None:
    assert choose("470.42.01", capabilities=["3.7"]).driver_for_newest is None  # R470 is its last
    assert choose("530.30.02", capabilities=["7.0"]).driver_for_newest == "560.28.03"  # cu126, not cu130
    assert choose("580.65.06").driver_for_newest is None


def test_only_the_level_is_known() -> None:
    assert names(choose(None, level="12.1").exact) == ["2.5.1+cu121"]
    assert names(choose(None, level="12.1").window) == BY_WINDOW_12
    assert names(choose(None, level="12.7").exact) == ["2.14.1+cu126"]  # no toolkit has that number
    # The oldest driver that reports 11.0 is below the floor of the window.
    assert choose(None, level="11.0").window == []


def test_the_driver_wins_over_a_level_that_a_compatibility_package_raises() -> None:
    assert choose("530.30.02", level="12.8") == choose("530.30.02")
    assert choose("no version", level="12.1").exact == choose(None, level="12.1").exact


def test_nothing_known_nothing_said() -> None:
    found = choose(None)
    assert found.best is None
    assert found.driver_for_newest == "580.65.06"


def test_a_driver_newer_than_the_tables_says_so() -> None:
    (newest,) = choose("700.10").exact
    assert newest.wheel.name == "2.15.0+cu132"
    assert "newer than the tables" in (newest.note or "")


def test_arm_machines_get_what_is_built_for_them() -> None:
    assert names(choose("580.65.06", machine="aarch64").exact) == ["2.14.1+cu130"]
    assert choose("580.65.06", machine="arm64") == choose("580.65.06", machine="aarch64")
    assert choose("530.30.02", machine="aarch64").best is None
    assert choose("530.30.02", machine="AMD64").exact == choose("530.30.02").exact


def test_the_old_release_is_called_old() -> None:
    assert choose("450.80.02").exact[0].note == OLD_NOTE


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        ("2.15.0", "pip install torch==2.15.0 torchaudio==2.11.0"),
        ("2.9.1", "pip install torch==2.9.1 torchvision==0.24.1 torchaudio==2.9.1"),
        (
            "1.13.1+cu116",
            "pip install torch==1.13.1+cu116 torchvision==0.14.1+cu116 torchaudio==0.13.1 "
            "--extra-index-url https://download.pytorch.org/whl/cu116",
        ),
        (
            "2.0.1+cu118",
            "pip install torch==2.0.1 torchvision==0.15.2 torchaudio==2.0.2 "
            "--index-url https://download.pytorch.org/whl/cu118",
        ),
        # torchaudio 2.11.0 was not built for cu132.
        (
            "2.14.1+cu132",
            "pip install torch==2.14.1 torchvision==0.29.1 --index-url https://download.pytorch.org/whl/cu132",
        ),
    ],
)
def test_the_pip_line(torch: str, command: str) -> None:
    wheel = find_wheel(torch)
    assert wheel is not None
    assert install_command(wheel) == command
