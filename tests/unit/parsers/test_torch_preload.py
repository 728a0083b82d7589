"""What torch loads by path, from its own text."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from conditions import needs_torch
from ftforensics.parsers.torch_preload import Preload, Preloads, preloads

OLD = """
def _preload_cuda_deps(lib_folder, lib_name):
    for path in sys.path:
        pass

def _load_global_deps() -> None:
    try:
        ctypes.CDLL(lib_path, mode=ctypes.RTLD_GLOBAL)
    except OSError as err:
        cuda_libs: Dict[str, str] = {
            'cublas': 'libcublas.so.*[0-9]',
            'cudnn': 'libcudnn.so.*[0-9]',
        }
        for lib_folder, lib_name in cuda_libs.items():
            _preload_cuda_deps(lib_folder, lib_name)

x = 1
"""
MIDDLE = """
def _load_global_deps() -> None:
    try:
        ctypes.CDLL(global_deps_lib_path, mode=ctypes.RTLD_GLOBAL)
        if "nvidia/cuda_runtime/lib/libcudart.so" not in _maps:
            return
        _preload_cuda_lib("cuda_nvrtc", "libnvrtc.so.*[0-9]")
        _preload_cuda_lib("nvjitlink", "libnvJitLink.so.*[0-9]")
    except OSError as err:
        # Can only happen for wheel with cuda libs as PYPI deps
        cuda_libs: dict[str, str] = {
            "cublas": "libcublas.so.*[0-9]",
        }
        for lib_folder, lib_name in cuda_libs.items():
            _preload_cuda_lib(lib_folder, lib_name)

x = 1
"""
# 2.9.1: one helper of that name for single libraries, on both paths; any CUDA runtime will do.
RECENT = MIDDLE.replace("_preload_cuda_lib", "_preload_cuda_deps").replace(
    "nvidia/cuda_runtime/lib/libcudart", "libcudart"
)


def test_after_a_failure_alone() -> None:
    wanted = [Preload("cublas", "libcublas.so.*[0-9]"), Preload("cudnn", "libcudnn.so.*[0-9]")]
    assert preloads(OLD) == Preloads(after_failure=wanted)


def test_two_after_a_success_with_the_wheels_runtime() -> None:
    found = preloads(MIDDLE)
    assert found.after_success == [
        Preload("cuda_nvrtc", "libnvrtc.so.*[0-9]"),
        Preload("nvjitlink", "libnvJitLink.so.*[0-9]"),
    ]
    assert found.only_with_wheel and [one.folder for one in found.after_failure] == ["cublas"]


def test_a_helper_for_single_libraries() -> None:
    found = preloads(RECENT)
    assert [one.folder for one in found.after_success] == ["cuda_nvrtc", "nvjitlink"]
    assert [one.folder for one in found.after_failure] == ["cublas"] and not found.only_with_wheel


@needs_torch
def test_the_installed_torch() -> None:
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin
    found = preloads(Path(spec.origin).read_text())
    assert found.after_success == found.after_failure and not found.only_with_wheel
    assert found.after_success[:2] == [
        Preload("cublas", "libcublasLt.so.*[0-9]"),
        Preload("cublas", "libcublas.so.*[0-9]"),
    ]
    assert found.after_success[-1] == Preload("nvtx", "libnvToolsExt.so.*[0-9]", required=False)
    assert os.path.basename(spec.origin) == "__init__.py"


def test_another_text_preloads_nothing() -> None:
    assert preloads("") == Preloads()
    assert preloads("def _load_global_deps():\n" + '"' * 100_000) == Preloads()
    assert preloads('x = {"cublas": "libcublas.so.*[0-9]"}\n') == Preloads()
