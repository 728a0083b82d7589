"""NVIDIA's real wheels, unpacked: libcudart, nvJitLink and NCCL load, and answer their version, without a GPU.

    def test_x(nvidia_wheel: Unpacked) -> None:
        site = nvidia_wheel("nvidia-cuda-runtime-cu12", "12.8.90")

gives a site-packages folder with this one distribution in it, as `pip install --target` leaves one: package, dist-info,
RECORD. It is shared by every test of the session, over all its processes: read it, load from it, and copy it
(`shutil.copytree`) before you change anything.

`torch_291` is a test's own environment with two of them and the metadata of a torch that demands one of them in another
version.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Unpacked = Callable[[str, str], Path]

CUDART = "nvidia/cuda_runtime/lib/libcudart.so.12"
NVJITLINK = "nvidia/nvjitlink/lib/libnvJitLink.so.12"
NCCL = "nvidia/nccl/lib/libnccl.so.2"

PATIENCE = 600  # seconds for one download; a test that wants NCCL or cuDNN, hundreds of megabytes, says its own timeout


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


@pytest.fixture
def torch_291(tmp_path: Path, nvidia_wheel: Unpacked) -> Path:
    """A site-packages folder with the metadata of torch 2.9.1 of PyPI (what it demands of the wheels used here), the
    runtime as demanded and an nvJitLink that is not."""
    site = tmp_path / "v/lib/python3.11/site-packages"
    for name, version in (("nvidia-cuda-runtime-cu12", "12.8.90"), ("nvidia-nvjitlink-cu12", "12.1.105")):
        shutil.copytree(nvidia_wheel(name, version), site, dirs_exist_ok=True)
    metadata = site / "torch-2.9.1.dist-info/METADATA"
    metadata.parent.mkdir()
    where = 'platform_system == "Linux" and platform_machine == "x86_64"'
    demands = ["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-nvjitlink-cu12==12.8.93", "nvidia-cudnn-cu12==9.10.2.21"]
    lines = ["Metadata-Version: 2.1", "Name: torch", "Version: 2.9.1", "Requires-Dist: filelock"]
    metadata.write_text("\n".join([*lines, *(f"Requires-Dist: {demand}; {where}" for demand in demands)]) + "\n")
    (site / "torch/lib").mkdir(parents=True)
    (site / "torch/version.py").write_text("__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n")
    c10 = str(site / "torch/lib/libc10.so")
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", c10, "-Wl,--build-id=sha1"], check=True)
    recorded = [site / "torch/version.py", site / "torch/lib/libc10.so", metadata]
    rows = []
    for file in recorded:
        digest = base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()
        rows.append(f"{file.relative_to(site)},sha256={digest},{file.stat().st_size}\n")
    (metadata.parent / "RECORD").write_text("".join(rows))
    return site
