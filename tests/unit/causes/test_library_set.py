from __future__ import annotations

import pytest

from ftforensics.causes.library_set import (
    drifted_pins,
    is_newer_patch,
    mixes,
    openmp_mix,
    same_version,
    shadows,
    wrong_companions,
)
from ftforensics.model.software import Pin
from ftforensics.parsers.build_tag import BuiltFor, built_for
from synth.software import CUDART, CUDNN, NVJITLINK, SITE, TORCH, SoftwareBuilder, crashed, cu128

SYSTEM = "/usr/local/cuda-12.1/lib64"
CONDA = "/opt/conda/envs/train"


def test_what_pip_installs_fits() -> None:
    stack = cu128()
    assert mixes(stack.libraries) == []
    assert openmp_mix(stack.libraries) is None
    assert drifted_pins(stack.software, stack.libraries) == []
    assert shadows(stack.software, stack.libraries) == []
    assert wrong_companions(stack.software, stack.libraries) == []


@pytest.mark.parametrize(
    ("path", "kind", "what"),
    [
        (f"{SYSTEM}/libcudnn.so.9.1.0", "libcudnn", "cuDNN"),
        (f"{SYSTEM}/libcudnn_ops.so.9.1.0", "libcudnn_ops", "cuDNN"),
        ("/usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3", "libnccl", "NCCL"),
        (f"{SYSTEM}/libnvJitLink.so.12.1.105", "libnvJitLink", "nvJitLink"),
        (f"{SYSTEM}/libcublasLt.so.12.1.3.1", "libcublasLt", "cuBLAS"),
        (f"{SYSTEM}/libcudart.so.12.1.105", "libcudart", "CUDA runtime"),
        ("/opt/libtorch/lib/libc10.so", "libc10", "PyTorch"),
    ],
)
def test_a_library_from_two_places_is_a_mix(path: str, kind: str, what: str) -> None:
    (mix,) = mixes(cu128().system(path, kind, "12.1").libraries)
    assert (mix.what, mix.private, len(mix.libraries)) == (what, False, 2)
    assert mix.libraries[1].path == path


def test_a_set_is_named_by_its_first_library() -> None:
    """Eight parts in one folder are one place."""
    stack = crashed()
    for part in ("libcudnn_cnn", "libcudnn_ops", "libcudnn"):
        stack = stack.system(f"{SYSTEM}/{part}.so.9.1.0", part, "9.1.0")
        stack = stack.wheel(f"{SITE}/nvidia/cudnn/lib/{part}.so.9", part, "nvidia-cudnn-cu12", "9.10.2.21")
    (mix,) = mixes(stack.libraries)
    assert [one.kind for one in mix.libraries] == ["libcudnn", "libcudnn"]


def test_two_versions_in_one_folder_are_two_sets() -> None:
    folder = "/usr/lib/x86_64-linux-gnu"
    stack = crashed().system(f"{folder}/libcudnn.so.9.10.2", "libcudnn", "9.10.2")
    (mix,) = mixes(stack.system(f"{folder}/libcudnn_cnn.so.9.1.0", "libcudnn_cnn", "9.1.0").libraries)
    assert [one.version for one in mix.libraries] == ["9.10.2", "9.1.0"]


def test_what_is_two_by_nature_is_no_mix() -> None:
    """NCCL built with another CUDA, conda's torch over two folders, another package with torch's stem, the parts of
    CUDA 13 in one folder."""
    nccl = cu128().without(f"{SITE}/nvidia/nccl")
    nccl = nccl.wheel(f"{SITE}/nvidia/nccl/lib/libnccl.so.2", "libnccl", "nvidia-nccl-cu12", "2.27.5", cuda="12.9")
    assert mixes(nccl.libraries) == []
    conda = crashed().conda(f"{CONDA}/lib/libtorch_cpu.so", "libtorch_cpu", "libtorch", "2.7.1")
    conda = conda.conda(
        f"{CONDA}/lib/python3.11/site-packages/torch/lib/libtorch_python.so", "libtorch_python", None, None
    )
    assert mixes(conda.libraries) == [] and shadows(conda.torch(origin="conda").software, conda.libraries) == []
    assert mixes(cu128().library("/x/libtorch_sparse.so", "libtorch_sparse", "other").libraries) == []
    cu13 = crashed()
    for kind, package in (("libcudart", "nvidia-cuda-runtime"), ("libcublas", "nvidia-cublas")):
        cu13 = cu13.wheel(f"{SITE}/nvidia/cu13/lib/{kind}.so.13", kind, package, "13.0.96")
    assert mixes(cu13.libraries) == []


def test_two_majors_come_after_those_of_one_soname() -> None:
    stack = cu128().system(f"{SYSTEM}/libcudart.so.11.8.89", "libcudart", "11.8.89")
    (majors,) = mixes(stack.libraries)
    assert [one.version for one in majors.libraries] == ["12.8.90", "11.8.89"]
    both = stack.system(f"{SYSTEM}/libcudart.so.12.1.105", "libcudart", "12.1.105")
    first, second = mixes(both.libraries)
    assert [one.version for one in first.libraries] == ["12.8.90", "12.1.105"] and len(second.libraries) == 2


def test_a_private_copy_is_told_as_one() -> None:
    path = f"{SITE}/ctranslate2.libs/libcudnn-74a4c495.so.9.1.0"
    (mix,) = mixes(cu128().vendored(path, "libcudnn", "ctranslate2 4.5.0", version="9.1.0").libraries)
    assert mix.private
    # What torch's own wheel carries is the set that torch uses.
    bundled = crashed().vendored(f"{TORCH}/libcudnn.so.8", "libcudnn", "torch 2.0.1+cu118", version="8.7.0")
    (mix,) = mixes(bundled.system(f"{SYSTEM}/libcudnn.so.8.8.1", "libcudnn", "8.8.1").libraries)
    assert not mix.private


def test_openmp() -> None:
    intel = crashed().wheel("/venv/lib/libiomp5.so", "libiomp5", "intel-openmp", "2024.2.1")
    assert openmp_mix(intel.libraries) is None
    llvm = intel.library("/venv/lib/libomp.so", "libomp", "other")
    mix = openmp_mix(llvm.libraries)
    assert mix is not None and {one.kind for one in mix.libraries} == {"libomp", "libiomp5"} and not mix.private
    gnu = crashed().vendored(f"{TORCH}/libgomp-a34b3233.so.1", "libgomp", "torch 2.9.1")
    mix = openmp_mix(
        gnu.vendored(f"{SITE}/scikit_learn.libs/libgomp-a34b3233.so.1", "libgomp", "scikit-learn 1.5").libraries
    )
    assert mix is not None and mix.private


def test_drifted_pins() -> None:
    stack = cu128().pin("nvidia-cudnn-cu12", "9.10.2.21", "9.13.0.50").pin("nvidia-nccl-cu12", "2.27.5", None)
    assert [(one.package, one.installed) for one in drifted_pins(stack.software, [])] == [
        ("nvidia-cudnn-cu12", "9.13.0.50")
    ]
    # The mapped library tells it where what is installed could not be read.
    library = crashed().wheel(
        CUDNN, "libcudnn", "nvidia-cudnn-cu12", "9.13.0.50", pin="9.10.2.21", pinned_by="torch 2.9.1"
    )
    (pin,) = drifted_pins(None, library.libraries)
    assert pin == Pin("nvidia-cudnn-cu12", "9.10.2.21", "torch 2.9.1", "9.13.0.50")


@pytest.mark.parametrize("origin", ["conda", "other"])
def test_a_torch_that_is_no_wheel_demands_nothing(origin: str) -> None:
    stack = cu128().pin("nvidia-cudnn-cu12", "9.10.2.21", "9.13.0.50").torch(origin=origin)
    assert drifted_pins(stack.software, stack.libraries) == []
    stack = stack.without(f"{SITE}/nvidia/cudnn").system(f"{SYSTEM}/libcudnn.so.9.1.0", "libcudnn", "9.1.0")
    assert shadows(stack.software, stack.libraries) == []


def from_system(searched: str | None = SYSTEM) -> SoftwareBuilder:
    stack = cu128().without(f"{SITE}/nvidia/cudnn")
    return stack.system(f"{SYSTEM}/libcudnn.so.9.1.0", "libcudnn", "9.1.0", searched=searched)


def test_shadows() -> None:
    stack = from_system()
    (found,) = shadows(stack.software, stack.libraries)
    assert (found.library.version, found.wheel, found.by) == ("9.1.0", "nvidia-cudnn-cu12 9.10.2.21", SYSTEM)
    # The wheel's own is mapped too: that is a mix.
    both = cu128().system(f"{SYSTEM}/libcudnn.so.9.1.0", "libcudnn", "9.1.0")
    assert shadows(both.software, both.libraries) == []
    # The very version that the wheel would have brought.
    same = cu128().without(CUDART).system(f"{SYSTEM}/libcudart.so.12.8.90", "libcudart", "12.8.90")
    assert shadows(same.software, same.libraries) == []
    # No wheel of it is there: this torch uses the system's.
    none = crashed().torch().system(f"{SYSTEM}/libcudnn.so.9.1.0", "libcudnn", "9.1.0")
    assert shadows(none.software, none.libraries) == []
    conda = cu128().without(NVJITLINK).conda(f"{CONDA}/lib/libnvJitLink.so.12.1.105", "libnvJitLink", "x", "12.1.105")
    assert [one.library.origin for one in shadows(conda.software, conda.libraries)] == ["conda"]


def test_another_environments_wheel_is_a_shadow_and_no_drift() -> None:
    """LD_LIBRARY_PATH names a folder in the site-packages of another venv: what is installed here is as demanded."""
    stack = cu128().pin("nvidia-cudnn-cu12", "9.10.2.21", "9.10.2.21").without(CUDNN)
    stack = stack.wheel(
        "/old/lib/python3.10/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
        "libcudnn", "nvidia-cudnn-cu12", "9.1.0.70", pin="9.10.2.21", pinned_by="torch 2.9.1",
    )  # fmt: skip
    assert drifted_pins(stack.software, stack.libraries) == []
    (found,) = shadows(stack.software, stack.libraries)
    assert (found.library.version, found.wheel) == ("9.1.0.70", "nvidia-cudnn-cu12 9.10.2.21")
    # An upgrade that stopped half way left two versions in one folder: no shadow.
    half = cu128().pin("nvidia-cudnn-cu12", "9.10.2.21", "9.10.2.21").without(CUDNN)
    half = half.wheel(CUDNN, "libcudnn", "nvidia-cudnn-cu12", "9.1.0.70", pin="9.10.2.21")
    assert shadows(half.software, half.libraries) == []
    assert [pin.installed for pin in drifted_pins(half.software, half.libraries)] == ["9.1.0.70"]


def test_a_torch_from_elsewhere_is_a_shadow() -> None:
    stack = cu128().without(f"{TORCH}/libtorch_cpu").system("/opt/libtorch/lib/libtorch_cpu.so", "libtorch_cpu")
    (found,) = shadows(stack.software, stack.libraries)
    assert found.wheel == TORCH
    checkout = crashed().torch(origin="other", folder="/src/pytorch/torch")
    checkout = checkout.library("/src/pytorch/torch/lib/libtorch_cpu.so", "libtorch_cpu", "other")
    assert shadows(checkout.software, checkout.libraries) == []


@pytest.mark.parametrize(
    ("package", "version", "torch", "cuda", "wanted"),
    [
        ("torchvision", "0.20.1", "2.9.1", "12.8", "2.5.1"),
        ("torchaudio", "2.4.1", "2.9.1", "12.8", "2.4.1"),
        ("torchvision", "0.24.0", "2.9.1", "12.8", None),  # another patch of the right one
        ("torchvision", "0.24.1+cu128", "2.9.1+cu128", "12.8", None),
        ("torchvision", "0.24.1+cu126", "2.9.1+cu128", "12.8", "2.9.1+cu126"),
        ("torchaudio", "2.1.2+rocm5.7", "2.1.2+cu121", "12.1", "2.1.2+rocm5.7"),
        ("flash-attn", "2.8.3+cu12torch2.8cxx11abiTRUE", "2.9.1", "12.8", "2.8"),
        ("flash-attn", "2.8.3+cu12torch2.9cxx11abiTRUE", "2.9.1", "12.8", None),
        ("torch-scatter", "2.1.2+pt24cu121", "2.4.1+cu118", "11.8", "2.4"),
        ("torch-scatter", "2.1.2+pt24cu121", "2.4.1+cu124", "12.4", None),  # CUDA 12 serves CUDA 12
        ("torchvision", "0.21.0a0+git123", "2.6.0a0+ecf3bae40a.nv25.01", "12.8", None),  # a vendor's own build
        ("torchvision", "weird", "nonsense", "12.8", None),
        ("evil\n\x1b[31m", "1+" + "torch9" * 1000, "2.9.1", "12.8", None),
    ],
)
def test_companions(package: str, version: str, torch: str, cuda: str, wanted: str | None) -> None:
    stack = crashed().torch(torch, cuda).package(package, version)
    found = wrong_companions(stack.software, [])
    assert [one.wanted for one in found] == ([wanted] if wanted else [])


def test_rocm_has_no_cuda_to_compare() -> None:
    stack = crashed().torch("2.9.1+rocm6.4", None, hip="6.4").package("torchvision", "0.24.1+rocm6.4")
    assert wrong_companions(stack.software, []) == []
    assert mixes(stack.libraries) == [] and drifted_pins(stack.software, []) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("9.10.2", "9.10.2.21", True),
        ("9.10.2", "9.1.0.70", False),
        ("12.08", "12.8.90", True),
        ("9", "9.1", None),
        (None, "9.1", None),
        ("9", "9", True),
        ("", "", None),
    ],
)
def test_versions_are_compared_as_far_as_both_go(one: str | None, other: str | None, same: bool | None) -> None:
    assert same_version(one, other) is same


@pytest.mark.parametrize(
    ("wanted", "installed", "newer"),
    [
        ("9.10.2.21", "9.10.3", True),
        ("9.10.2.21", "9.10.1", False),
        ("9.10.2.21", "9.13.0", False),
        ("9.10.2.21", "9.10.x" + "9" * 9999, False),
        ("abc", "", False),
    ],
)
def test_a_newer_patch(wanted: str, installed: str, newer: bool) -> None:
    assert is_newer_patch(Pin("p", wanted, "torch 2.9.1", installed)) is newer


@pytest.mark.parametrize(
    ("version", "built"),
    [
        ("2.8.3+cu12torch2.8cxx11abiTRUE", BuiltFor("2.8", "12")),
        ("2.1.2+pt24cu121", BuiltFor("2.4", "12")),
        ("0.6.3+pt113cu117", BuiltFor("1.13", "11")),
        ("1.0+pt210cu128", BuiltFor("2.10", "12")),
        ("2.9.1+cu128", BuiltFor(None, "12", "cu128")),
        ("2.9.1+cpu", BuiltFor(None, None, "cpu")),
        ("2.9.1+rocm6.4", BuiltFor(None, None, "rocm")),
        ("2.6.0a0+ecf3bae40a.nv25.01", BuiltFor()),
        ("2.9.1", BuiltFor()),
        ("", BuiltFor()),
        ("1+" + "9" * 100000, BuiltFor()),
    ],
)
def test_build_tags(version: str, built: BuiltFor) -> None:
    assert built_for(version) == built


def test_two_torches_are_a_mix_and_no_shadow() -> None:
    stack = cu128().system("/opt/libtorch/lib/libtorch_cpu.so", "libtorch_cpu")
    assert [one.what for one in mixes(stack.libraries)] == ["PyTorch"]
    assert shadows(stack.software, stack.libraries) == []


def test_a_part_beside_the_wheels_set_is_a_shadow() -> None:
    """cuDNN's first library is the wheel's, a part is the system's, and the wheel's part is not loaded."""
    stack = cu128().without(f"{SITE}/nvidia/cudnn/lib/libcudnn_cnn")
    stack = stack.system(f"{SYSTEM}/libcudnn_cnn.so.9.1.0", "libcudnn_cnn", "9.1.0")
    (found,) = shadows(stack.software, stack.libraries)
    assert found.wheel == CUDNN and len(mixes(stack.libraries)) == 1
