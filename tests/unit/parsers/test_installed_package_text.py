"""RECORD, conda-meta, version.py, file names, the driver's version file."""

from __future__ import annotations

import json

import pytest

from ftforensics.parsers import dist_info, elf_text, library_name, nvidia_version

RECORD = """\
nvidia/cuda_runtime/lib/libcudart.so.12,sha256=abc-_1,728800
nvidia/cuda_runtime/include/cuda.h,sha256=zzz,5
numpy/_core/_umath.cpython-311-x86_64-linux-gnu.so,sha256=q,12
"odd, name.so",sha256=x,1
a/__pycache__/x.cpython-311.pyc,,
nvidia_x-1.dist-info/RECORD,,
tool.sora,sha256=m,3
../../libiomp5.so,sha256=i,77
empty/lib.so,,
"""


def test_record_gives_its_shared_libraries() -> None:
    files = dist_info.shared_objects(RECORD)
    assert [(file.path, file.size, file.sha256) for file in files] == [
        ("nvidia/cuda_runtime/lib/libcudart.so.12", 728800, "abc-_1"),
        ("numpy/_core/_umath.cpython-311-x86_64-linux-gnu.so", 12, "q"),
        ("../../libiomp5.so", 77, "i"),
        ("empty/lib.so", None, None),
    ]


def test_record_with_windows_line_ends() -> None:
    assert len(dist_info.shared_objects(RECORD.replace("\n", "\r\n"))) == 4


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("nvidia_cuda_runtime_cu12-12.8.90.dist-info", ("nvidia-cuda-runtime-cu12", "12.8.90")),
        ("torch-2.13.0+cpu.dist-info", ("torch", "2.13.0+cpu")),
        ("cuda-tile-1.0.dist-info", ("cuda-tile", "1.0")),
        ("torch", None),
        ("old.egg-info", None),
        (".dist-info", None),
    ],
)
def test_dist_info_names(folder: str, expected: tuple[str, str] | None) -> None:
    assert dist_info.name_and_version(folder) == expected


def test_conda_package() -> None:
    text = json.dumps({"name": "cudatoolkit", "version": "11.8.0", "files": ["lib/libcudart.so.11.0"], "md5": "x"})
    package = dist_info.conda_package(text.encode())
    assert (package.name, package.version, package.files) == ("cudatoolkit", "11.8.0", ["lib/libcudart.so.11.0"])


@pytest.mark.parametrize("text", [b"", b"[]", b'{"name": 1}', b"\xff"])
def test_what_is_no_conda_package(text: bytes) -> None:
    with pytest.raises(ValueError, match="conda"):
        dist_info.conda_package(text)


@pytest.mark.parametrize(
    ("path", "kind", "version"),
    [
        ("/s/nvidia/cudnn/lib/libcudnn.so.9", "libcudnn", None),
        ("/s/nvidia/cudnn/lib/libcudnn_engines_precompiled.so.9", "libcudnn_engines_precompiled", None),
        ("/usr/local/cuda-11.8/lib64/libcudnn_cnn_infer.so.8.8.1", "libcudnn_cnn_infer", "8.8.1"),
        ("/s/ctranslate2.libs/libcudnn-74a4c495.so.9.1.0", "libcudnn", "9.1.0"),
        ("/s/scikit_learn.libs/libgomp-a34b3233.so.1.0.0", "libgomp", "1.0.0"),
        ("/s/torch/lib/libcudart-d0da41ae.so.11.0", "libcudart", "11.0"),
        ("/usr/lib/libcuda.so.530.30.02", "libcuda", "530.30.02"),
        ("/s/torch/lib/libtorch_cuda.so", "libtorch_cuda", None),
        ("/s/torch/lib/libc10_cuda.so", "libc10_cuda", None),
        ("/usr/lib/libstdc++.so.6.0.30", "libstdc++", "6.0.30"),
        ("/s/nvidia/nvjitlink/lib/libnvJitLink.so.12", "libnvJitLink", None),
        ("/s/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.8", "libnvrtc-builtins", "12.8"),
        ("/s/libiomp5.so", "libiomp5", None),
        ("/v/site-packages/numpy/_core/_umath.cpython-311-x86_64-linux-gnu.so", "extension", None),
        ("/v/site-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", "extension", None),
        ("/v/site-packages/cpp_demangle.abi3.so", "extension", None),
        ("/v/site-packages/xformers/_C.so", "extension", None),
        ("/home/u/.cache/torch_extensions/py311_cu121/fused_adam/fused_adam.so", "extension", None),
        ("/v/site-packages/torchaudio/lib/libtorchaudio_sox.so", "extension", None),
        ("/v/site-packages/bitsandbytes/libbitsandbytes_cuda128.so", "extension", None),
        ("/v/site-packages/decord/libdecord.so", "libdecord", None),
        ("/v/site-packages/onnxruntime/capi/libonnxruntime.so.1.17.1", "libonnxruntime", "1.17.1"),
        ("/v/site-packages/tensorflow/libtensorflow_framework.so.2", "libtensorflow_framework", None),
        ("/v/site-packages/pyarrow/libarrow.so.1700", "libarrow", None),
        ("/v/site-packages/tensorrt_libs/libnvinfer_plugin.so.10", "libnvinfer_plugin", None),
        ("/v/site-packages/opencv_python.libs/libopencv_core-6f2a1b3c.so.4.10.0", "libopencv_core", "4.10.0"),
        ("/v/lib/libmkl_intel_thread.so.2", "libmkl_intel_thread", None),
        ("/v/lib/libtbb.so.12.13", "libtbb", "12.13"),
        ("/v/lib/libtbbmalloc_proxy.so.2", "libtbbmalloc_proxy", None),
        ("/v/site-packages/nvidia/nvshmem/lib/libnvshmem_host.so.3", "libnvshmem_host", None),
        ("/v/site-packages/nvidia/cusparselt/lib/libcusparseLt.so.0", "libcusparseLt", None),
        ("/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", None, None),
        ("/usr/lib/libc.so.6", None, None),
        ("/v/site-packages/numpy.libs/libopenblas64-1b2c3d4e.so", None, None),
        ("/usr/lib/libcudart_static.a", None, None),
        ("/usr/lib/libcudadebugger.so.1", None, None),
        ("/dev/shm/torch_1_2", None, None),
    ],
)
def test_library_names(path: str, kind: str | None, version: str | None) -> None:
    assert library_name.kind_of(path) == kind
    assert library_name.version_of(path) == version


def test_nvjitlink_is_as_new_as_its_highest_name() -> None:
    names = ["nvJitLinkComplete", *(f"__nvJitLinkComplete_12_{minor}" for minor in (0, 9, 10, 2)), "other_12_99"]
    assert elf_text.nvjitlink_version(names) == "12.10"
    assert elf_text.nvjitlink_version(["nvJitLinkComplete"]) is None


@pytest.mark.parametrize(
    ("excerpt", "version"),
    [
        (b"NCCL version 2.27.5+cuda12.9\0more", "2.27.5+cuda12.9"),
        (b"NCCL version 2.4+cuda10.0\n", "2.4+cuda10.0"),
        (b"NCCL version %d.%d.%d\0", None),
        (b"NCCL version 2.27.5.1.2\0", None),
    ],
)
def test_nccl_text(excerpt: bytes, version: str | None) -> None:
    assert elf_text.nccl_version(excerpt) == version


def test_nvrtc_is_known_by_its_neighbour_unless_there_are_two() -> None:
    assert elf_text.nvrtc_version(["libnvrtc.so.12", "libnvrtc-builtins.so.12.8"]) == "12.8"
    assert elf_text.nvrtc_version(["libnvrtc-builtins.so.12.8", "libnvrtc-builtins.so.12.1"]) is None
    assert elf_text.nvrtc_version(["libnvrtc.so.12"]) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  530.30.02  Wed Feb 22 04:11:39 UTC 2023\n"
            "GCC version:  gcc version 11.3.0 (Ubuntu 11.3.0-1ubuntu1~22.04)\n",
            "530.30.02",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs@U16)  Wed\n",
            "570.124.06",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.57  Tue\n", "470.57"),
        ("GCC version:  gcc version 11.3.0\n", None),
        ("", None),
    ],
)
def test_proc_driver_version(text: str, version: str | None) -> None:
    assert nvidia_version.module_version(text) == version


def test_driver_file_names() -> None:
    assert nvidia_version.file_version("/usr/lib/libcuda.so.530.30.02") == "530.30.02"
    assert nvidia_version.file_version("/usr/lib/libcuda.so.1") is None
    assert nvidia_version.file_version("/usr/lib/wsl/lib/libcuda.so.1.1") is None
    assert nvidia_version.bare_version("580.82.07\n") == "580.82.07"
    assert nvidia_version.bare_version("none\n") is None
