"""What the rest of the program asks of the tables."""

from __future__ import annotations

import pytest

from ftforensics.causes.registry import causes
from ftforensics.facts import driver, gpus
from ftforensics.facts.cuda_errors import cuda_error, cuda_errors
from ftforensics.facts.known_bad import known_bad, matching
from ftforensics.facts.torch import companions, find_wheel, last_wheels, runs_on, wheels
from ftforensics.facts.xid import xid_meaning, xid_meanings

LEVELS = {
    "384": "9.0", "390": "9.1", "396": "9.2", "410": "10.0", "418": "10.1", "440": "10.2", "450": "11.0",
    "455": "11.1", "460": "11.2", "465": "11.3", "470": "11.4", "495": "11.5", "510": "11.6", "515": "11.7",
    "520": "11.8", "525": "12.0", "530": "12.1", "535": "12.2", "545": "12.3", "550": "12.4", "555": "12.5",
    "560": "12.6", "565": "12.7", "570": "12.8", "575": "12.9", "580": "13.0", "590": "13.1", "595": "13.2",
    "610": "13.3", "615": "13.4",
}  # fmt: skip


@pytest.mark.parametrize(("branch", "level"), LEVELS.items())
def test_the_level_of_each_branch(branch: str, level: str) -> None:
    assert driver.driver_level(f"{branch}.30.02") == level


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("525.147.05", "12.0"),
        ("430.14", "10.1"),  # between 418 and 440
        ("600.1", "13.2"),
        ("470.82.01-custom", "11.4"),
        (" 580.65.06\n", "13.0"),
        ("383.9", None),
        ("616.1", None),
        ("", None),
        ("unknown", None),
        ("\x1b[31m530", None),
        ("9" * 5000, None),
    ],
)
def test_levels_at_the_edges(text: str, level: str | None) -> None:
    assert driver.driver_level(text) == level


@pytest.mark.parametrize(
    ("cuda", "oldest"),
    [
        ("12.1", "530.30.02"),
        ("12.8", "570.26"),
        ("12.8.90", "570.26"),
        ("12.0", "525.60.13"),
        ("11.0", "450.51.05"),  # not that of the release candidate
        ("11.8", "520.61.05"),
        ("13.0", "580.65.06"),
        ("13.4", "615.71.09"),
        ("12.7", None),  # no toolkit has that number
        ("13.5", None),
    ],
)
def test_the_oldest_driver_of_a_cuda_version(cuda: str, oldest: str | None) -> None:
    assert driver.minimum_driver(cuda) == oldest


def test_the_window_floors() -> None:
    floors = {major: driver.window_floor(major) for major in (10, 11, 12, 13, 14)}
    assert floors == {10: None, 11: "450.80.02", 12: "525.60.13", 13: "580.65.06", 14: None}


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [
        ("525.60.13", "525.60.13", True),
        ("525.147.05", "525.60.13", True),  # numbers, not text
        ("525.60.9", "525.60.13", False),
        ("570", "570.26", False),
        ("580.65.06", "580", True),
        ("nonsense", "450.80.02", False),
    ],
)
def test_drivers_compare_by_number(one: str, other: str, answer: bool) -> None:
    assert driver.at_least(one, other) is answer


def test_the_long_term_branches() -> None:
    until = {branch.number: branch.until for branch in driver.branches()}
    assert (until[535], until[580], until[530]) == ("2026-06", "2028-06", "ended")


# Pins of the wheels that PyPI gives: torch, CUDA, cuDNN, NCCL, Triton. Read from their METADATA.
PYPI = """
1.12.1  10.2  -         -      -
1.13.1  11.7  8.5.0.96  -      -
2.0.1   11.7  8.5.0.96  2.14.3 2.0.0
2.1.0   12.1  8.9.2.26  2.18.1 2.1.0
2.1.2   12.1  8.9.2.26  2.18.1 2.1.0
2.2.0   12.1  8.9.2.26  2.19.3 2.2.0
2.2.2   12.1  8.9.2.26  2.19.3 2.2.0
2.3.0   12.1  8.9.2.26  2.20.5 2.3.0
2.3.1   12.1  8.9.2.26  2.20.5 2.3.1
2.4.0   12.1  9.1.0.70  2.20.5 3.0.0
2.4.1   12.1  9.1.0.70  2.20.5 3.0.0
2.5.0   12.4  9.1.0.70  2.21.5 3.1.0
2.5.1   12.4  9.1.0.70  2.21.5 3.1.0
2.6.0   12.4  9.1.0.70  2.21.5 3.2.0
2.7.0   12.6  9.5.1.17  2.26.2 3.3.0
2.7.1   12.6  9.5.1.17  2.26.2 3.3.1
2.8.0   12.8  9.10.2.21 2.27.3 3.4.0
2.9.0   12.8  9.10.2.21 2.27.5 3.5.0
2.9.1   12.8  9.10.2.21 2.27.5 3.5.1
2.10.0  12.8  9.10.2.21 2.27.5 3.6.0
2.11.0  13.0  9.19.0.56 2.28.9 3.6.0
2.12.0  13.0  9.20.0.48 2.29.7 3.7.0
2.12.1  13.0  9.20.0.48 2.29.7 3.7.1
2.13.0  13.0  9.20.0.48 2.29.7 3.7.1
2.14.0  13.0  9.24.0.43 2.30.7 3.8.0
2.14.1  13.0  9.24.0.43 2.30.7 3.8.0
2.15.0  13.2  9.26.0.51 2.30.7 3.9.0
"""


@pytest.mark.parametrize("line", PYPI.split("\n")[1:-1])
def test_what_pypi_gives(line: str) -> None:
    torch, *pins = line.split()
    wheel = find_wheel(torch)
    assert wheel is not None
    assert wheel.default
    assert [wheel.cuda, wheel.cudnn or "-", wheel.nccl or "-", wheel.triton or "-"] == pins


def test_every_release_is_in_the_list_above() -> None:
    assert [wheel.torch for wheel in wheels() if wheel.default] == [line.split()[0] for line in PYPI.split("\n")[1:-1]]


@pytest.mark.parametrize(
    ("variant", "last"),
    [
        ("cu117", "2.0.1"), ("cu118", "2.7.1"), ("cu121", "2.5.1"), ("cu124", "2.6.0"), ("cu126", "2.14.1"),
        ("cu128", "2.11.0"), ("cu129", "2.8.0"), ("cu130", "2.15.0"), ("cu132", "2.15.0"),
    ],
)  # fmt: skip
def test_the_last_torch_of_each_variant(variant: str, last: str) -> None:
    assert [wheel.torch for wheel in wheels() if wheel.variant == variant][-1] == last


def test_a_wheel_by_any_of_its_names() -> None:
    assert find_wheel("2.9.1+cu128") == find_wheel("2.9.1", "cu128") == find_wheel("2.9.1")
    assert find_wheel("2.9.1+cu126") != find_wheel("2.9.1")
    assert [find_wheel(name) for name in ("2.9.1+cpu", "2.9.1+cu121", "9.9", "", "\x1b")] == [None] * 5


def test_companions() -> None:
    assert companions("2.5.1+cu121") == ("0.20.1", "2.5.1")
    assert companions("2.0.1") == ("0.15.2", "2.0.2")
    assert companions("2.14.1") == ("0.29.1", "2.11.0")
    assert companions("2.15.0") == (None, "2.11.0")
    assert companions("9.9") == (None, None)


@pytest.mark.parametrize(
    ("name", "capability", "runs"),
    [
        ("2.9.1+cu128", "8.9", True),  # 8.6 code
        ("2.9.1+cu128", "6.1", False),
        ("2.7.1+cu128", "7.0", False),
        ("2.8.0+cu128", "7.0", True),
        ("2.11.0+cu128", "7.0", False),
        ("2.14.1+cu126", "5.2", True),
        ("2.14.1+cu126", "10.0", False),
        ("2.15.0+cu132", "12.1", True),
        ("2.15.0+cu132", "11.0", False),
        ("2.5.1+cu118", "3.5", False),  # 3.7 code does not run on it
    ],
)
def test_which_gpus_a_wheel_has_code_for(name: str, capability: str, runs: bool) -> None:
    wheel = find_wheel(name)
    assert wheel is not None
    assert runs_on(wheel, capability) is runs


@pytest.mark.parametrize(
    ("name", "capability", "data_center"),
    [
        ("Tesla K80", "3.7", True),
        ("Tesla M60", "5.2", True),
        ("Tesla P100-PCIE-16GB", "6.0", True),
        ("Tesla P4", "6.1", True),
        ("NVIDIA GeForce GTX 1080 Ti", "6.1", False),
        ("Tesla V100-SXM2-32GB", "7.0", True),
        ("Tesla T4", "7.5", True),
        ("NVIDIA GeForce RTX 2080 Ti", "7.5", False),
        ("Quadro RTX 6000", "7.5", None),
        ("NVIDIA A100-SXM4-80GB", "8.0", True),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0", True),
        ("NVIDIA A10", "8.6", True),
        ("NVIDIA RTX A6000", "8.6", None),
        ("NVIDIA GeForce RTX 3090", "8.6", False),
        ("NVIDIA L40S", "8.9", True),
        ("NVIDIA RTX 6000 Ada Generation", "8.9", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "8.9", False),
        ("NVIDIA H100 80GB HBM3", "9.0", True),
        ("NVIDIA GH200 480GB", "9.0", True),
        ("NVIDIA B200", "10.0", True),
        ("NVIDIA GB300", "10.3", True),
        ("NVIDIA GeForce RTX 5090", "12.0", False),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", True),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", None),
        ("NVIDIA GB10", "12.1", None),
        ("Some Other GPU", None, None),
        ("", None, None),
        ("A1000000", None, None),
    ],
)
def test_gpus_by_name(name: str, capability: str | None, data_center: bool | None) -> None:
    assert (gpus.capability_of(name), gpus.is_data_center(name)) == (capability, data_center)


def test_architectures_that_have_ended() -> None:
    volta, turing, kepler = (gpus.architecture(capability) for capability in ("7.0", "7.5", "3.7"))
    assert volta is not None and (volta.last_driver, volta.last_cuda) == (580, "12.9")
    assert turing is not None and (turing.last_driver, turing.last_cuda) == (None, None)
    assert kepler is not None and (kepler.last_driver, kepler.last_cuda) == (470, "11.8")
    assert gpus.architecture("99.9") is None


CAUSES = {
    34: "stub-driver", 35: "driver-too-old", 36: "driver-minor-window", 209: "gpu-architecture-unsupported",
    221: "driver-library-missing", 222: "driver-minor-window", 802: "fabric-manager-down",
    803: "compat-driver-mismatch", 804: "compat-driver-mismatch",
}  # fmt: skip


@pytest.mark.parametrize(("code", "cause"), CAUSES.items())
def test_the_cause_behind_a_cuda_error(code: int, cause: str) -> None:
    error = cuda_error(code)
    assert error is not None
    assert error.cause == cause


def test_each_cuda_error_stands_for_a_cause_that_exists() -> None:
    assert {error.cause for error in cuda_errors()} <= {cause.id for cause in causes()}
    assert cuda_error(700) is None


def test_a_bad_release() -> None:
    assert [entry.id for entry in matching("numba", "0.62.1", driver="580.65.06")] == ["numba-driver-580"]
    assert [entry.id for entry in matching("Numba", "0.62.0rc1", driver="595.71.05")] == ["numba-driver-580"]
    assert [entry.id for entry in matching("torch", "1.8.1+cu111")] == [
        "torch-1.8-fork-threads",
        "torch-1.8-cublas-handle",
    ]
    assert [entry.id for entry in matching("pyarrow", "17.0.0", machine="aarch64")] == ["pyarrow-17-aarch64"]


@pytest.mark.parametrize(
    ("package", "version", "on_driver", "machine"),
    [
        ("numba", "0.63.0", "580.65.06", None),
        ("numba", "0.62.1", "575.51.03", None),
        ("numba", "0.62.1", None, None),  # the driver is not known
        ("numba", "0.62.1", "no version", None),
        ("numba", "no version", "580.65.06", None),
        ("numbat", "0.62.1", "580.65.06", None),
        ("pyarrow", "17.0.0", None, "x86_64"),
        ("pyarrow", "17.0.0", None, None),
        ("nvidia-nccl-cu12", "2.27.5", "595.45.04", None),
        ("torch", "1.9.0", None, None),
    ],
)
def test_a_good_release(package: str, version: str, on_driver: str | None, machine: str | None) -> None:
    assert matching(package, version, driver=on_driver, machine=machine) == []


def test_only_confirmed_reports_are_sure() -> None:
    assert {entry.id for entry in known_bad() if not entry.sure} == {"triton-3.7.1", "torch-1.8-fork-threads"}


@pytest.mark.parametrize(
    ("number", "blame", "ends"),
    [(13, "application", True), (31, "application", True), (43, "application", True), (45, "either", True),
     (48, "hardware", True), (63, "hardware", False), (64, "hardware", True), (79, "hardware", True),
     (94, "hardware", True), (95, "hardware", True), (119, "driver", True)],
)  # fmt: skip
def test_xids(number: int, blame: str, ends: bool) -> None:
    meaning = xid_meaning(number)
    assert meaning is not None
    assert (meaning.blame, meaning.ends) == (blame, ends)


def test_an_unknown_xid_means_nothing() -> None:
    assert xid_meaning(9999) is None
    assert all(meaning.advice.endswith(".") for meaning in xid_meanings())


@pytest.mark.parametrize("version", ["", "abc", "9" * 5000, "\x1b[31m1"])
def test_what_is_no_version_is_no_bad_release(version: str) -> None:
    assert matching("numba", version, driver="580.65.06") == []
    assert matching("numba", "0.62.0", driver=version) == []


@pytest.mark.parametrize(
    ("variant", "last"),
    [("cu117", "2.0.1"), ("cu118", "2.7.1"), ("cu121", "2.5.1"), ("cu124", "2.6.0"), ("cu126", "2.14.1"),
     ("cu128", "2.11.0"), ("cu129", "2.8.0"), ("cu132", "2.15.0")],
)  # fmt: skip
def test_the_last_torch_of_a_variant(variant: str, last: str) -> None:
    assert [wheel.torch for wheel in last_wheels() if wheel.variant == variant] == [last]
