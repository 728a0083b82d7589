"""The libraries that would be loaded, before a run."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.preflight import Check, Status
from ftforensics.model.software import TorchBuild
from ftforensics.preflight.libraries import library_checks
from ftforensics.preflight.versions import torch_again
from ftforensics.sources.would_load import NotFound, WouldLoad
from synth.software import CUDNN, CUDNN_CNN, SITE, TORCH, SoftwareBuilder, crashed, cu128


def found(stack: SoftwareBuilder, not_found: tuple[NotFound, ...] = ()) -> list[Check]:
    would = WouldLoad(libraries=stack.libraries, not_found=list(not_found))
    return list(library_checks(stack.software, would, stack.driver, machine="x86_64"))


def one(stack: SoftwareBuilder, name: str, *not_found: NotFound) -> Check:
    (check,) = [check for check in found(stack, not_found) if check.name == name]
    return check


def test_what_belongs_together_is_ok() -> None:
    checks = found(cu128())
    assert {check.status for check in checks} == {Status.OK}, checks
    assert {check.name for check in checks} >= {"torch", "one-set-of-libraries", "pins", "companions"}


def test_no_torch_is_unknown() -> None:
    (check,) = found(crashed().installed(prefix="/venv"))
    assert check.status is Status.UNKNOWN and "/venv" in check.said


def test_two_cudnns_fail_and_the_fix_is_named() -> None:
    stack = cu128().system("/usr/local/cuda/lib64/libcudnn.so.9", "libcudnn", "9.1.0", searched="/usr/local/cuda/lib64")
    check = one(stack, "one-set-of-libraries")
    assert (check.status, check.cause, check.confidence) == (
        Status.FAIL,
        "mixed-cuda-libraries",
        Confidence.LIKELY,
    )
    assert CUDNN.rpartition("/")[0] in check.said and "9.1.0" in check.said
    assert check.remedies[0].command == "unset LD_LIBRARY_PATH"
    assert any(remedy.settles for remedy in check.remedies)


def test_a_private_copy_is_no_clash() -> None:
    copy = f"{SITE}/ctranslate2.libs/libcudnn-74a4c495.so.9.1.0"
    stack = cu128().vendored(copy, "libcudnn", "ctranslate2 4.5.0")
    assert {check.status for check in found(stack) if check.name == "one-set-of-libraries"} <= {Status.OK}


def test_a_foreign_library_in_place_of_the_wheels_fails() -> None:
    stack = cu128().without(f"{SITE}/nvidia/cudnn")
    stack = stack.system("/usr/local/cuda/lib64/libcudnn.so.9", "libcudnn", "9.1.0", searched="/usr/local/cuda/lib64")
    check = one(stack, "no-foreign-library")
    assert (check.status, check.cause) == (Status.FAIL, "system-cuda-shadows-wheel")
    assert check.remedies[0].command == "unset LD_LIBRARY_PATH"


@pytest.mark.parametrize(
    ("installed", "status"), [("9.1.0.70", Status.FAIL), ("9.13.0.50", Status.WARN)], ids=["older", "newer"]
)
def test_a_pin_that_is_not_met(installed: str, status: Status) -> None:
    check = one(cu128().pin("nvidia-cudnn-cu12", "9.10.2.21", installed), "pins")
    assert (check.status, check.cause, check.confidence) == (status, "drifted-cuda-library", Confidence.POSSIBLE)
    assert check.remedies[0].command == "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21"


def test_a_pin_that_is_missing_warns_and_what_is_not_found_fails() -> None:
    stack = cu128().pin("nvidia-nvshmem-cu12", "3.3.20", None)
    assert one(stack, "pins").status is Status.WARN
    lost = NotFound("libnvshmem_host.so.3", f"{TORCH}/libtorch_cuda.so")
    check = one(stack, "all-found", lost)
    assert (check.status, check.cause) == (Status.FAIL, "broken-install")
    assert "libnvshmem_host.so.3" in check.said and "libtorch_cuda.so" in check.said
    command = check.remedies[0].command or ""
    assert command.startswith("pip install --force-reinstall torch==2.9.1 "), "not the newest torch"


@pytest.mark.parametrize(
    ("torch", "command"),
    [
        (TorchBuild("2.13.0+cpu", origin="wheel"),
         "pip install --force-reinstall torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"),
        (TorchBuild("2.5.1", cuda="12.1", origin="conda"), "conda install --force-reinstall pytorch=2.5.1"),
        (TorchBuild("2.9.0a0+git12", cuda="12.8", origin="other"), None),
        (TorchBuild("2.9.1;reboot", origin="wheel"), None),
    ],
)  # fmt: skip
def test_torch_again_is_the_same_torch(torch: TorchBuild, command: str | None) -> None:
    assert torch_again(torch).command == command


def test_libcuda_that_is_not_there_is_the_drivers_business() -> None:
    lost = NotFound("libcuda.so.1", optional=True)
    assert all(check.name != "all-found" for check in found(cu128(), (lost,)))


def test_a_companion_of_another_torch_fails_with_the_line_that_mends_it() -> None:
    check = one(cu128().package("torchvision", "0.20.1"), "companions")
    assert (check.status, check.cause) == (Status.FAIL, "stale-extension")
    assert check.remedies[0].command == "pip install --force-reinstall --no-deps torchvision==0.24.1"


def test_the_index_of_a_torch_that_is_not_the_default_is_in_the_line() -> None:
    stack = cu128().torch("2.5.1+cu121", "12.1").package("torchaudio", "2.5.1").package("torchvision", "0.24.1")
    check = one(stack, "companions")
    assert check.remedies[0].command == (
        "pip install --force-reinstall --no-deps torchvision==0.20.1 --index-url https://download.pytorch.org/whl/cu121"
    )


def test_damaged_files_fail() -> None:
    stack = cu128().installed(verified=True, checked=900)
    assert one(stack, "files-as-installed").status is Status.OK
    stack = stack.broken("nvidia-cudnn-cu12", "9.10.2.21", CUDNN, "12 bytes, 345 as installed")
    check = one(stack, "files-as-installed")
    assert (check.status, check.cause) == (Status.FAIL, "broken-install")
    assert "12 bytes" in check.said
    assert check.remedies[0].command == "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21"


def test_files_that_were_not_compared_are_not_called_whole() -> None:
    assert all(check.name != "files-as-installed" for check in found(cu128()))


def test_an_extension_of_another_abi_fails() -> None:
    path = f"{SITE}/flash_attn_2_cuda.so"
    stack = cu128().missing(path, "_ZN3c105ErrorC2ENS_14SourceLocationESs", package="flash-attn", version="2.5.8")
    check = one(stack, "extensions")
    assert (check.status, check.cause) == (Status.FAIL, "abi-mismatch")
    assert "flash-attn 2.5.8" in check.said and "1 name that" in check.said
    of_torchaudio = cu128().missing(
        f"{SITE}/torchaudio/lib/_torchaudio.so", "_ZN1aE", package="torchaudio", version="2.8.0"
    )
    assert one(of_torchaudio, "extensions").remedies[0].command == (
        "pip install --force-reinstall --no-deps torchaudio==2.9.1"
    )


def test_two_openmp_runtimes_warn() -> None:
    stack = cu128().wheel(f"{SITE}/libomp.so", "libomp", "llvm-openmp", "18")
    stack = stack.wheel("/venv/lib/libiomp5.so", "libiomp5", "intel-openmp", "2024.1")
    check = one(stack, "one-openmp")
    assert (check.status, check.confidence) == (Status.WARN, Confidence.POSSIBLE)


def test_a_known_bad_release_warns_where_its_condition_holds() -> None:
    stack = cu128().package("numba", "0.60.0")
    assert one(stack, "known-bad-release").status is Status.OK
    driver = msgspec.structs.replace(stack.driver, module_version="580.65.06") if stack.driver else None
    check = one(stack.set(driver=driver), "known-bad-release")
    assert (check.status, check.cause, check.confidence) == (
        Status.WARN,
        "known-bad-version",
        Confidence.POSSIBLE,
    )
    assert "numba 0.60.0" in check.said


def test_what_torch_itself_demands_is_noted_and_no_warning() -> None:
    check = one(cu128(), "known-bad-release")
    assert check.status is Status.OK and "nvidia-nccl-cu12 2.27.5" in check.said
    loose = cu128().installed(pins=[])
    assert one(loose, "known-bad-release").status is Status.WARN


def test_hostile_names_pass_through() -> None:
    stack = cu128().package("a\x1b[31m", "1;rm -rf /").broken("x'; rm -rf /; '", "1", "/x\ny", "missing")
    stack = stack.installed(verified=True)
    check = one(stack, "files-as-installed")
    assert check.remedies[0].command is not None and "; rm" not in check.remedies[0].command.replace("'\"'\"'; rm", "")


def test_the_parts_of_one_foreign_set_are_one_line() -> None:
    stack = cu128().without(f"{SITE}/nvidia/cudnn")
    for part in ("libcudnn", "libcudnn_ops", "libcudnn_cnn"):
        stack = stack.system(f"/usr/local/cuda/lib64/{part}.so.9", part, "9.1.0", searched="/usr/local/cuda/lib64")
    check = one(stack, "no-foreign-library")
    assert "and 2 more" in check.said and len(check.supports) == 3


def test_the_foreign_half_of_a_mix_is_told_once() -> None:
    stack = cu128().without(CUDNN_CNN)
    stack = stack.system("/usr/local/cuda/lib64/libcudnn_cnn.so.9", "libcudnn_cnn", "9.1.0", searched="/usr/local")
    bad = [check.name for check in found(stack) if check.status is Status.FAIL]
    assert bad == ["one-set-of-libraries"]


def test_a_damaged_file_of_torch_is_a_broken_install() -> None:
    stack = cu128().installed(verified=True, checked=900)
    assert one(stack, "files-as-installed").status is Status.OK
    stack = stack.broken("torch", "2.9.1", f"{SITE}/torch/__init__.py", "missing")
    assert one(stack, "files-as-installed").status is Status.FAIL
