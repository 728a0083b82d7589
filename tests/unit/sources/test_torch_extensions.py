"""Whose extension modules need torch, by what packages say about themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftforensics.host.host import Host
from ftforensics.model.software import Software
from ftforensics.sources.torch_extensions import torch_extensions

SITE = "/v/lib/python3.11/site-packages"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    def package(name: str, demands: str, *files: str) -> None:
        folder = tmp_path / SITE.lstrip("/") / f"{name}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\n{demands}\n\nRequires-Dist: torch\n")
        (folder / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))

    package("torch-2.9.1", "Requires-Dist: torch", "torch/_C.so", "torch/lib/libc10.so")
    package("flash_attn-2.8.3", "Requires-Dist: torch", "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so")
    package(
        "torchvision-0.24.1",
        "Requires-Dist: torch==2.9.1",
        "torchvision/_C.so",
        "torchvision/io.py",
        "torchvision.libs/libpng16.so.16",
        "../../../bin/x.so",
    )
    package("numpy-2.4.6", "Requires-Dist: torchlike", "numpy/core.so")
    (tmp_path / SITE.lstrip("/") / "editable-1.0.dist-info").mkdir()
    return tmp_path


def test_of_packages_that_demand_torch(machine: Path) -> None:
    found = torch_extensions(Host(root=machine), Software(site_packages=[SITE, "/gone"]))
    assert found == [f"{SITE}/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so", f"{SITE}/torchvision/_C.so"]


def test_of_named_packages_alone(machine: Path) -> None:
    software = Software(site_packages=[SITE])
    assert torch_extensions(Host(root=machine), software, ("torchvision",)) == [f"{SITE}/torchvision/_C.so"]
    assert torch_extensions(Host(root=machine), software, ("numpy",)) == [f"{SITE}/numpy/core.so"]
    assert torch_extensions(Host(root=machine), Software()) == []
