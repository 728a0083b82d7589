"""NVIDIA's real wheels, unpacked: libcudart, nvJitLink and NCCL load, and answer their version, without a GPU.

    def test_x(nvidia_wheel: Unpacked) -> None:
        site = nvidia_wheel("nvidia-cuda-runtime-cu12", "12.8.90")

gives a site-packages folder with this one distribution in it, as `pip install --target` leaves one: package, dist-info,
RECORD. It is shared by every test of the session, over all its processes: read it, load from it, and copy it
(`shutil.copytree`) before you change anything.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Unpacked = Callable[[str, str], Path]

CUDART = "nvidia/cuda_runtime/lib/libcudart.so.12"
NVJITLINK = "nvidia/nvjitlink/lib/libnvJitLink.so.12"
NCCL = "nvidia/nccl/lib/libnccl.so.2"

PATIENCE = 110  # seconds for one download; NCCL's wheel is 320 MB


@pytest.fixture(scope="session")
def nvidia_wheel(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    """(distribution, version) -> its site-packages folder; each is downloaded once a session."""
    base = tmp_path_factory.getbasetemp()
    # pytest-xdist gives each of its processes a folder of its own below the session's.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "nvidia-wheels"
    folder.mkdir(exist_ok=True)

    def unpacked(name: str, version: str) -> Path:
        site = folder / f"{name}-{version}"
        with open(folder / f".{name}-{version}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not site.exists():
                made = folder / f".{name}-{version}.unfinished"
                pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(made)]
                subprocess.run([*pip, f"{name}=={version}"], check=True, timeout=PATIENCE)
                os.replace(made, site)
        return site

    return unpacked
