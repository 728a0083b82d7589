"""Driver, torch and GPU before a run: each check is ok where it should be, and is seen to fail."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from ftforensics.model.basics import Gap
from ftforensics.model.crash import Driver
from ftforensics.model.diagnosis import Confidence
from ftforensics.model.preflight import Check, Status
from ftforensics.preflight.driver import FULL, driver_checks
from synth.software import SoftwareBuilder, crashed, cu128

GIB = 1 << 30


def checks(stack: SoftwareBuilder, *, chosen: Sequence[str] | None = None, devices: bool = False) -> dict[str, Check]:
    driver = stack.driver or Gap("driver", "no NVIDIA driver seen")
    found = list(driver_checks(stack.software, driver, stack.libraries, devices=devices, chosen=chosen))
    assert len({check.name for check in found}) == len(found)
    return {check.name: check for check in found}


def test_what_fits_is_ok() -> None:
    stack = cu128().on_driver("570.124.06", 12080).gpu(memory_total=80 * GIB, memory_used=GIB)
    found = checks(stack)
    assert {check.status for check in found.values()} == {Status.OK}
    assert "570.124.06" in found["driver-fits-torch"].said and "12.8" in found["driver-fits-torch"].said


def test_an_older_driver_of_the_same_major_version_is_a_warning_and_no_more() -> None:
    check = checks(cu128().on_driver("530.30.02", 12010).without("/usr/lib").gpu())["driver-fits-torch"]
    assert (check.status, check.cause, check.confidence) == (
        Status.WARN,
        "driver-minor-window",
        Confidence.POSSIBLE,
    )
    commands = [remedy.command or "" for remedy in check.remedies]
    assert any("torch==2.5.1" in one and "cu121" in one for one in commands)
    assert any(remedy.settles for remedy in check.remedies)


def test_another_major_version_fails() -> None:
    check = checks(cu128().torch("2.12.1", "13.0").on_driver("530.30.02", 12010).without("/usr/lib"))[
        "driver-fits-torch"
    ]
    assert (check.status, check.cause, check.confidence) == (Status.FAIL, "driver-too-old", Confidence.LIKELY)
    assert "580.65.06" in check.said


def test_below_the_floor_of_its_major_version_fails() -> None:
    stack = cu128().without("/usr/lib").on_driver("520.61.05", 11080)
    assert checks(stack)["driver-fits-torch"].cause == "driver-too-old"


def test_a_driver_that_says_nothing_is_unknown() -> None:
    stack = cu128().without("/usr/lib").on_driver(None, None, None)
    assert checks(stack)["driver-fits-torch"].status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("promised", "status"), [(True, Status.FAIL), (False, Status.WARN)], ids=["devices", "login node"]
)
def test_a_cuda_torch_without_a_driver(promised: bool, status: Status) -> None:
    found = checks(cu128().set(driver=None), devices=promised)
    assert list(found) == ["driver"]
    assert found["driver"].status is status


def test_a_cpu_torch_needs_no_driver() -> None:
    found = checks(crashed().torch("2.13.0+cpu", None))
    assert found["driver"].status is Status.OK


def test_a_cpu_torch_beside_gpus_is_told() -> None:
    check = checks(crashed().torch("2.13.0+cpu", None).on_driver("570.124.06", 12080).gpu())["torch-for-gpu"]
    assert check.status is Status.WARN
    assert any("pip install torch" in (remedy.command or "") for remedy in check.remedies)


def test_two_versions_of_one_driver_fail() -> None:
    stack = cu128().without("/usr/lib").on_driver("570.124.06", 12080, "/usr/lib/libcuda.so.575.57.08", "575.57.08")
    check = checks(stack)["one-driver-version"]
    assert (check.status, check.cause) == (Status.FAIL, "driver-half-upgraded")


def test_the_stub_fails() -> None:
    stub = "/usr/local/cuda/lib64/stubs/libcuda.so.1"
    stack = cu128().without("/usr/lib").library(stub, "libcuda", "stubs").on_driver("570.124.06", None, stub)
    check = checks(stack)["no-stub-driver"]
    assert (check.status, check.cause) == (Status.FAIL, "stub-driver")


def test_a_compatibility_package_older_than_the_driver_fails() -> None:
    path = "/usr/local/cuda-12.1/compat/libcuda.so.530.30.02"
    stack = (
        cu128().without("/usr/lib").library(path, "libcuda", "compat").on_driver("570.124.06", 12010, path, "530.30.02")
    )
    check = checks(stack)["compat-driver"]
    assert (check.status, check.cause) == (Status.FAIL, "compat-driver-mismatch")


def test_a_compatibility_package_that_works_is_ok() -> None:
    path = "/usr/local/cuda-12.8/compat/libcuda.so.570.124.06"
    stack = (
        cu128()
        .without("/usr/lib")
        .library(path, "libcuda", "compat")
        .on_driver("535.104.05", 12080, path, "570.124.06")
    )
    found = checks(stack.gpu())
    assert "compat-driver" not in found
    assert found["driver-fits-torch"].status is Status.OK
    assert "forward-compatibility" in found["driver-fits-torch"].said


def test_a_gpu_without_code_fails() -> None:
    stack = (
        cu128()
        .torch("2.12.1", "13.0")
        .without("/usr/lib")
        .on_driver("580.65.06", 13000)
        .gpu("Tesla V100-SXM2-16GB", "7.0")
    )
    check = checks(stack)["torch-has-gpu-code"]
    assert (check.status, check.cause) == (Status.FAIL, "gpu-architecture-unsupported")
    assert "V100" in check.said
    assert any("cu126" in (remedy.command or "") for remedy in check.remedies)


def test_a_gpu_that_is_not_visible_decides_nothing() -> None:
    stack = cu128().torch("2.12.1", "13.0").without("/usr/lib").on_driver("580.65.06", 13000)
    stack = stack.gpu("Tesla V100-SXM2-16GB", "7.0").gpu("NVIDIA A100-SXM4-80GB", "8.0")
    assert checks(stack, chosen=["1"])["torch-has-gpu-code"].status is Status.OK
    assert checks(stack, chosen=["0"])["torch-has-gpu-code"].status is Status.FAIL


def test_the_name_tells_the_capability_where_nvml_does_not() -> None:
    stack = cu128().torch("2.12.1", "13.0").without("/usr/lib").on_driver("580.65.06", 13000)
    assert checks(stack.gpu("Tesla V100-SXM2-16GB", None))["torch-has-gpu-code"].status is Status.FAIL


def test_a_driver_that_no_longer_serves_the_gpu_fails() -> None:
    stack = cu128().without("/usr/lib").on_driver("590.48.01", 13010).gpu("Tesla P100-PCIE-16GB", "6.0")
    check = checks(stack)["driver-serves-gpu"]
    assert check.status is Status.FAIL and "580" in check.said


@pytest.mark.parametrize(("used", "status"), [(0.5, Status.OK), (FULL, Status.OK), (0.91, Status.FAIL)])
def test_memory_in_use_before_the_run(used: float, status: Status) -> None:
    stack = cu128().on_driver("570.124.06", 12080, version="570.124.06").without("/usr/lib")
    stack = stack.gpu(memory_total=80 * GIB, memory_used=round(80 * GIB * used))
    assert checks(stack)["gpu-memory"].status is status


def test_the_memory_of_a_hidden_gpu_does_not_matter() -> None:
    stack = cu128().without("/usr/lib").on_driver("570.124.06", 12080)
    stack = stack.gpu(memory_total=80 * GIB, memory_used=80 * GIB).gpu(memory_total=80 * GIB, memory_used=GIB)
    assert checks(stack, chosen=["1"])["gpu-memory"].status is Status.OK


def test_a_number_that_no_gpu_has_hides_the_rest() -> None:
    stack = cu128().on_driver("570.124.06", 12080).gpu(memory_total=80 * GIB)
    for number in ("7", "9" * 5000):
        assert checks(stack, chosen=[number])["gpus-visible"].status is Status.WARN


def test_no_gpu_left_visible_is_told() -> None:
    found = checks(cu128(), chosen=[])
    assert found["gpus-visible"].status is Status.WARN


def test_what_nvml_did_not_say_is_unknown_with_the_way_to_it() -> None:
    stack = cu128().on_driver("570.124.06", 12080, note="NVML: not asked, pynvml is missing (pip install ...)")
    check = checks(stack)["gpu-memory"]
    assert check.status is Status.UNKNOWN
    assert check.remedies[0].command == "pip install 'ftforensics[gpu]'"


def test_a_split_gpu_wants_one_instance_named() -> None:
    stack = cu128().without("/usr/lib").on_driver("570.124.06", 12080).gpu(mig=True)
    assert checks(stack)["mig"].status is Status.WARN
    named = msgspec.structs.replace(stack.driver.gpus[0], uuid="MIG-1") if stack.driver else None
    assert named is not None
    stack = stack.set(driver=msgspec.structs.replace(stack.driver, gpus=[named]))
    assert "mig" not in checks(stack, chosen=["MIG-1"])


@pytest.mark.parametrize("version", ["abc", "", "9" * 4000, "570.\x1b[31m"])
def test_a_version_that_is_none_is_no_fault_of_ours(version: str) -> None:
    for check in checks(cu128().on_driver(version, -5, version=version)).values():
        assert isinstance(check, Check)


def test_a_driver_without_anything_does_not_trip() -> None:
    assert isinstance(checks(cu128().set(driver=Driver())), dict)
