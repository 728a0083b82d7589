"""A torch that is not installed, on a driver that is not here."""

from __future__ import annotations

import pytest

from ftforensics.model.crash import Driver, Gpu
from ftforensics.model.diagnosis import Confidence
from ftforensics.model.preflight import Preflight, Status
from ftforensics.preflight.advice import install_line
from ftforensics.preflight.wheel import (
    NotUnderstood,
    asked_driver,
    asked_gpu,
    asked_gpus,
    asked_python,
    asked_torch,
    check_wheel,
)


def asked(torch: str, driver: str, gpu: str | None = None, python: str | None = None) -> Preflight:
    gpus = [asked_gpu(gpu)] if gpu else []
    return check_wheel(asked_torch(torch), Driver(asked_driver(driver), gpus=gpus), gpus, python, "x86_64")


def test_the_seed_is_a_window_and_names_what_to_install() -> None:
    """torch 2.9.1+cu128 on R530 is inside NVIDIA's window: not an error, and not without remedy."""
    found = asked("torch==2.9.1+cu128", "530.30.02", "8.0", "3.11")
    assert not found.failed
    assert [(one.cause, one.confidence) for one in found.causes] == [("driver-minor-window", Confidence.POSSIBLE)]
    by_tier = [(one.torch, one.index, one.tier) for one in found.remedies if one.torch]
    assert by_tier[0] == ("2.5.1", "cu121", "exact")
    assert ("2.14.1", "cu126", "window") in by_tier and ("2.11.0", "cu128", "window") in by_tier
    exact = found.remedies[0]
    assert (exact.torchvision, exact.torchaudio) == ("0.20.1", "2.5.1")
    assert exact.command == (
        "pip install torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 "
        "--index-url https://download.pytorch.org/whl/cu121"
    )
    assert any(one.settles for one in found.remedies)
    assert (found.subject.torch, found.subject.driver, found.subject.level) == ("2.9.1+cu128", "530.30.02", "12.1")


@pytest.mark.parametrize(
    ("torch", "driver", "cause"),
    [
        ("torch==2.15.0", "530.30.02", "driver-too-old"),
        ("torch==2.9.1+cu128", "520.61.05", "driver-too-old"),
        ("torch==2.9.1+cu130", "570.124.06", "driver-too-old"),
        ("torch==2.9.1+cu128", "550.54.14", "driver-minor-window"),
        ("torch==2.9.1+cu128", "570.124.06", None),
        ("torch==2.5.1+cu121", "530.30.02", None),
        ("torch==2.9.1+cu126", "580.65.06", None),
    ],
)
def test_driver_and_wheel(torch: str, driver: str, cause: str | None) -> None:
    found = asked(torch, driver)
    assert [one.cause for one in found.causes] == ([cause] if cause else [])
    assert found.failed is (cause == "driver-too-old")


def test_a_gpu_without_code_is_another_cause() -> None:
    found = asked("torch==2.12.1+cu130", "580.65.06", "V100")
    assert found.failed
    assert [one.cause for one in found.causes] == ["gpu-architecture-unsupported"]
    assert any(one.index == "cu126" for one in found.advice)


def test_a_python_without_a_wheel_fails() -> None:
    found = asked("torch==2.5.1+cu121", "530.30.02", python="3.14")
    (check,) = [check for check in found.checks if check.status is Status.FAIL]
    assert check.name == "wheel-for-python" and "3.14" in check.said


def test_a_cpu_build_needs_no_driver() -> None:
    found = check_wheel(asked_torch("torch==2.9.1+cpu"), None)
    assert not found.failed and not found.causes


def test_a_cpu_build_leaves_the_gpu_idle_and_has_its_pythons_too() -> None:
    found = asked("torch==2.9.1+cpu", "570.124.06", python="3.8")
    checks = {check.name: check for check in found.checks}
    assert checks["torch-for-gpu"].status is Status.WARN and checks["torch-for-gpu"].remedies
    assert checks["wheel-for-python"].status is Status.FAIL and "2.9.1+cpu" in checks["wheel-for-python"].said
    (check,) = asked("torch==2.9.1+rocm6.4", "570.124.06").checks
    assert check.status is Status.WARN and "ROCm" in check.said


def test_a_variant_that_was_never_published_is_doubted() -> None:
    found = asked("torch==2.9.1+cu121", "570.124.06", "8.0")
    (check,) = [check for check in found.checks if check.name == "wheel-known"]
    assert check.status is Status.WARN and "cu126, cu128, cu130" in check.said


def test_a_release_newer_than_the_tables_is_judged_by_its_variant() -> None:
    found = asked("torch==9.9.0+cu128", "530.30.02")
    assert [one.cause for one in found.causes] == ["driver-minor-window"]
    assert any(check.status is Status.UNKNOWN for check in found.checks)


@pytest.mark.parametrize("text", ["torch==2.9.1+cu128", "torch 2.9.1+cu128", "2.9.1+cu128", " torch == 2.9.1+cu128 "])
def test_ways_to_name_a_torch(text: str) -> None:
    assert asked_torch(text).version == "2.9.1+cu128"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "torch",
        "numpy==1.0",
        "torch==2.9.1+cuda",
        "torch==2.9.1+gpu",
        "torch>=2.9",
        "torch==99.9",
        "torch==" + "9" * 500,
    ],
)
def test_what_is_no_torch_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(NotUnderstood) as refused:
        asked_torch(text)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("8.0", "8.0"),
        ("sm_80", "8.0"),
        ("SM80", "8.0"),
        ("sm_120", "12.0"),
        ("compute_90", "9.0"),
        ("A100", "8.0"),
        ("RTX 4090", "8.9"),
        ("rtx4090", "8.9"),
        ("GTX1080Ti", "6.1"),
        ("RTX 3090", "8.6"),
        ("NVIDIA H100 PCIe", "9.0"),
        ("GeForce RTX 5090", "12.0"),
    ],
)
def test_ways_to_name_a_gpu(text: str, capability: str) -> None:
    assert asked_gpu(text).capability == capability


def test_several_gpus() -> None:
    assert [gpu.capability for gpu in asked_gpus("8.0, H100,sm_120")] == ["8.0", "9.0", "12.0"]
    gpus = asked_gpus("7.0,9.0")
    found = check_wheel(asked_torch("torch==2.11.0+cu128"), Driver("570.124.06"), gpus)
    assert [check.name for check in found.checks if check.status is Status.FAIL] == ["torch-has-gpu-code"]


@pytest.mark.parametrize("text", ["", "8", "7.7", "Voodoo 2", "sm_", "8.0.0", "99.9"])
def test_what_is_no_gpu_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        asked_gpu(text)


@pytest.mark.parametrize("text", ["", "new", "53", "530.30.02.1.1", "-530", "530.30.02\n530", "９99", "999", "565"])
def test_what_is_no_driver_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        asked_driver(text)


@pytest.mark.parametrize(("branch", "first"), [("525", "525.60.13"), ("530", "530.30.02"), ("580", "580.65.06")])
def test_a_branch_is_taken_as_its_first_release(branch: str, first: str) -> None:
    assert asked_driver(branch) == first


@pytest.mark.parametrize("text", ["", "3", "2.7", "three", "3.11.7.1"])
def test_what_is_no_python_is_refused(text: str) -> None:
    with pytest.raises(NotUnderstood):
        asked_python(text)


def test_the_line_to_install() -> None:
    line, _ = install_line(Driver("530.30.02"), [], "3.11", "x86_64")
    assert line is not None and line.command.startswith("pip install torch==2.5.1 ")
    line, _ = install_line(Driver("570.124.06"), [Gpu(capability="10.0")], "3.11", "x86_64")
    assert line is not None and line.index == "cu128"


def test_no_line_has_its_reason() -> None:
    line, why = install_line(None, [], "3.11", "x86_64")
    assert line is None and "no NVIDIA driver" in why
    line, why = install_line(Driver("450.80.02"), [], "3.14", "x86_64")
    assert line is None and "450.80.02" in why and "3.14" in why


def test_a_gpu_that_is_younger_than_the_driver() -> None:
    found = asked("torch==2.9.1+cu128", "530.30.02", "B200")
    (check,) = [check for check in found.checks if check.status is Status.FAIL]
    assert check.name == "driver-knows-gpu" and "570.26" in check.said
    assert not asked("torch==2.9.1+cu128", "570.124.06", "B200").failed
    line, why = install_line(Driver("530.30.02"), [Gpu(capability="10.0")], "3.11", "x86_64")
    assert line is None and "570.26" in why
