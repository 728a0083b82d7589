"""Exact demands of METADATA, torch's version.py, names of eggs and conda packages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers import dist_info
from ftforensics.parsers.core_metadata import Demand, demands
from ftforensics.parsers.torch_version import TorchVersion, of_local_version, torch_version


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('nvidia-cudnn-cu11 (==8.5.0.96) ; platform_system == "Linux"', Demand("nvidia-cudnn-cu11", "8.5.0.96")),
        ("nvidia-cudnn-cu12==9.10.2.21", Demand("nvidia-cudnn-cu12", "9.10.2.21")),
        ("cuda_toolkit[cudart,CuBLAS]==13.0.3", Demand("cuda-toolkit", "13.0.3", extras=["CuBLAS", "cudart"])),
        ("nvidia-cublas==13.1.1.3.*", Demand("nvidia-cublas", "13.1.1.3", loose=True)),
        ("x==1; python_version < '3.10'", None),
        ("x==1; platform_system == 'Windows'", None),
        ("x==1; sys_platform == 'win32'", None),
        ("x==1; extra == 'dev'", None),
        ("x>=1,==1.*", None),
        ("x~=1.0", None),
        ("x===1", None),
        ("x @ https://example.org/x.whl", None),
        ("??==1", None),
    ],
)
def test_one_requirement(line: str, expected: Demand | None) -> None:
    found = demands(f"Name: a\nRequires-Dist: {line}\n", "x86_64", "3.11")
    assert found == ([expected] if expected else [])


def test_windows_line_ends() -> None:
    assert demands("Name: a\r\nRequires-Dist: x==1\r\n\r\nRequires-Dist: y==1\r\n", "x86_64") == [Demand("x", "1")]


@pytest.mark.parametrize(
    ("demand", "installed", "met"),
    [
        (Demand("torch", "2.9.1"), "2.9.1+cu128", True),
        (Demand("torch", "2.9.1+cu128"), "2.9.1+cu126", False),
        (Demand("torch", "2.9.1"), "2.9.10", False),
        (Demand("x", "13.0.96", loose=True), "13.0.96.2", True),
        (Demand("x", "13.0.96", loose=True), "13.0.9", False),
        (Demand("cuda-toolkit", "13.0.3"), "13.0.3.0", True),
        (Demand("x", "1.0rc1"), "1.0rc1", True),
        (Demand("x", "1.0"), "garbage", False),
        (Demand("x", "garbage"), "garbage", True),
    ],
)
def test_what_meets_a_demand(demand: Demand, installed: str, met: bool) -> None:
    assert demand.met_by(installed) is met


@given(
    st.text()
    | st.text(alphabet="Requires-Dist: x==1.*;()'\"<> \nextra and or[]@,").map(lambda t: f"Requires-Dist: a=={t}")
)
def test_no_text_makes_it_raise(text: str) -> None:
    for demand in demands(text, "x86_64", "3.11", ["a"]):
        demand.met_by(text)
    torch_version(text)
    of_local_version(text)
    dist_info.egg_name_and_version(text)
    dist_info.conda_name_and_version(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda']\n__version__ = '2.13.0+cpu'\n"
            "debug = False\ncuda: Optional[str] = None\ngit_version = 'cf30'\nhip: Optional[str] = None\n",
            TorchVersion("2.13.0+cpu"),
        ),
        ("__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n", TorchVersion("2.9.1+cu128", "12.8")),
        ("__version__ = '1.13.1+cu117'\ncuda = '11.7'\nhip = None\n", TorchVersion("1.13.1+cu117", "11.7")),
        ("__version__ = '2.4.0'\ncuda = None\nhip: str = '6.1.40091'\n", TorchVersion("2.4.0", None, "6.1.40091")),
        ('__version__: str = "2.1.0a0+git123"\n', TorchVersion("2.1.0a0+git123")),
        ("version = '1'\ncuda = '12.8'\n", None),
    ],
)
def test_torch_version_file(text: str, expected: TorchVersion | None) -> None:
    assert torch_version(text) == expected


@pytest.mark.parametrize(
    ("version", "cuda", "hip"),
    [
        ("2.5.1+cu121", "12.1", None),
        ("1.4.0+cu92", "9.2", None),
        ("2.4.0+rocm6.1", None, "6.1"),
        ("2.13.0+cpu", None, None),
        ("2.9.1", None, None),
        ("2.9.1+cu1281", None, None),
    ],
)
def test_local_version(version: str, cuda: str | None, hip: str | None) -> None:
    assert of_local_version(version) == (cuda, hip)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("numpy-1.26.4-py3.11.egg-info", ("numpy", "1.26.4")),
        ("python_apt-2.6.0.egg-info", ("python-apt", "2.6.0")),
        ("torch.egg-info", None),
        ("numpy-1.26.4.dist-info", None),
    ],
)
def test_egg_names(name: str, expected: tuple[str, str] | None) -> None:
    assert dist_info.egg_name_and_version(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pytorch-2.1.0-py3.11_cuda12.1_cudnn8.9.2_0.json", ("pytorch", "2.1.0")),
        ("pytorch-cuda-12.1-ha16c6d3_6.json", ("pytorch-cuda", "12.1")),
        ("history", None),
        ("-1-2.json", None),
    ],
)
def test_conda_names(name: str, expected: tuple[str, str] | None) -> None:
    assert dist_info.conda_name_and_version(name) == expected
