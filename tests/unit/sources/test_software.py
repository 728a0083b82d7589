"""What is installed beside a torch, on copied roots with metadata as real wheels have it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from conditions import needs_unprivileged
from ftforensics.host.host import Host
from ftforensics.model.crash import Library
from ftforensics.model.software import Package, Pin, Software
from ftforensics.sources.software import read_software

SITE = "/v/lib/python3.11/site-packages"

# The exact demands of the wheels on PyPI: torch 2.9.1 (CUDA 12.8) and 2.14.1 (CUDA 13.0, by a metapackage).
LINUX = 'platform_system == "Linux" and platform_machine == "x86_64"'
TORCH_291 = f"""\
Requires-Dist: filelock
Requires-Dist: setuptools; python_version >= "3.12"
Requires-Dist: nvidia-cuda-nvrtc-cu12==12.8.93; {LINUX}
Requires-Dist: nvidia-cuda-runtime-cu12==12.8.90; {LINUX}
Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; {LINUX}
Requires-Dist: nvidia-cublas-cu12==12.8.4.1; {LINUX}
Requires-Dist: nvidia-nccl-cu12==2.27.5; {LINUX}
Requires-Dist: nvidia-nvjitlink-cu12==12.8.93; {LINUX}
Requires-Dist: triton==3.5.1; {LINUX}
Requires-Dist: optree>=0.13.0; extra == "optree"
"""
TORCH_2141 = """\
Requires-Dist: cuda-toolkit[cudart,cublas,nvjitlink]==13.0.3; platform_system == "Linux"
Requires-Dist: cuda-bindings<14,>=13.0.3; platform_system == "Linux" and python_version < "3.15"
Requires-Dist: nvidia-cudnn-cu13==9.24.0.43; platform_system == "Linux"
Requires-Dist: triton~=3.8.0; platform_system == "Linux" and python_version < "3.15"
"""
ON = (
    "(sys_platform == 'linux' and platform_machine == 'aarch64'"
    " or sys_platform == 'linux' and platform_machine == 'x86_64')"
)
TOOLKIT = "".join(
    f"Requires-Dist: {requirement}; {ON} and extra == '{extra}'\n"
    for requirement, extra in [
        ("nvidia-cublas==13.1.1.3.*", "all"),
        ("nvidia-npp==13.0.1.2.*", "npp"),
        ("nvidia-cublas==13.1.1.3.*", "cublas"),
        ("nvidia-cuda-runtime==13.0.96.*", "cudart"),
        ("nvidia-nvjitlink<14,>=13.0.88", "nvjitlink"),
    ]
)


class Environment:
    """A root with one Python environment."""

    def __init__(self, root: Path, site: str = SITE) -> None:
        self.root = root
        self.site = site
        self.host = Host(root=root)

    def write(self, path: str, text: str | bytes) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())

    def install(self, name: str, version: str, requires: str = "", installer: str = "pip") -> None:
        folder = f"{self.site}/{name.replace('-', '_')}-{version}.dist-info"
        headers = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
        self.write(f"{folder}/METADATA", headers + "\nA description.\nRequires-Dist: x==1\n")
        self.write(f"{folder}/INSTALLER", installer + "\n")

    def torch(self, version: str = "2.9.1+cu128", cuda: str | None = "12.8", folder: str | None = None) -> None:
        value = repr(cuda)
        text = f"__version__ = '{version}'\ncuda: Optional[str] = {value}\nhip: Optional[str] = None\n"
        self.write(f"{folder or self.site + '/torch'}/version.py", text)

    def read(self, *libraries: str, **more: str) -> Software:
        mapped = [Library(path=path, kind=path.rsplit("/", 1)[1].split(".so")[0]) for path in libraries]
        return read_software(self.host, libraries=mapped, machine=more.pop("machine", "x86_64"), **more)  # type: ignore[arg-type]


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


LIBTORCH = f"{SITE}/torch/lib/libtorch_cpu.so"


def pinned(software: Software) -> dict[str, tuple[str, str | None]]:
    return {pin.package: (pin.version, pin.installed) for pin in software.pins}


def test_a_wheel_of_pypi(env: Environment) -> None:
    """Its file name has no +cu128; version.py and the demands say what it was built for."""
    env.install("torch", "2.9.1", TORCH_291)
    env.torch()
    env.install("nvidia-cudnn-cu12", "9.13.0.50")
    env.install("nvidia-cuda-runtime-cu12", "12.8.90")
    software = env.read("/usr/lib/libgomp.so", LIBTORCH)
    assert software.torch is not None
    assert (software.torch.version, software.torch.cuda, software.torch.how) == ("2.9.1+cu128", "12.8", "version.py")
    assert (software.torch.folder, software.torch.origin) == (f"{SITE}/torch", "wheel")
    assert (software.prefix, software.site_packages, software.python) == ("/v", [SITE], "3.11")
    assert Package("nvidia-cudnn-cu12", "9.13.0.50") in software.packages
    assert pinned(software)["nvidia-cudnn-cu12"] == ("9.10.2.21", "9.13.0.50")
    assert pinned(software)["nvidia-cuda-runtime-cu12"] == ("12.8.90", "12.8.90")
    assert pinned(software)["nvidia-nccl-cu12"] == ("2.27.5", None)
    assert {pin.by for pin in software.pins} == {"torch 2.9.1"}
    assert "setuptools" not in pinned(software) and "optree" not in pinned(software) and "x" not in pinned(software)
    assert software.gaps == []


def test_another_machine_has_none_of_the_x86_demands(env: Environment) -> None:
    env.install("torch", "2.9.1", TORCH_291)
    assert env.read(LIBTORCH, machine="aarch64").pins == []


def test_demands_by_way_of_a_metapackage(env: Environment) -> None:
    env.install("torch", "2.14.1", TORCH_2141)
    env.install("cuda-toolkit", "13.0.3.0", TOOLKIT)
    env.install("nvidia-cuda-runtime", "13.0.96")
    env.install("nvidia-cublas", "13.2.0.1")
    software = env.read(LIBTORCH)
    assert pinned(software) == {
        "cuda-toolkit": ("13.0.3.0", "13.0.3.0"),
        "nvidia-cuda-runtime": ("13.0.96", "13.0.96"),
        "nvidia-cublas": ("13.1.1.3", "13.2.0.1"),
        "nvidia-cudnn-cu13": ("9.24.0.43", None),
    }
    assert {pin.by for pin in software.pins} == {"torch 2.14.1"}
    assert software.torch is not None and (software.torch.cuda, software.torch.how) == ("13.0", "pins")


def test_the_metapackage_is_missing(env: Environment) -> None:
    env.install("torch", "2.14.1", TORCH_2141)
    software = env.read(LIBTORCH)
    assert pinned(software)["cuda-toolkit"] == ("13.0.3", None)
    assert "cuda-toolkit, which is not installed" in software.gaps[0].why


def test_the_local_version_tells_where_nothing_else_does(env: Environment) -> None:
    env.install("torch", "2.5.1+cu121")
    torch = env.read(LIBTORCH).torch
    assert torch is not None and (torch.version, torch.cuda, torch.how) == ("2.5.1+cu121", "12.1", "local version")


@pytest.mark.parametrize(
    ("version", "cuda", "hip", "how"),
    [
        ("2.13.0+cpu", None, None, "local version"),
        ("2.4.0+rocm6.1", None, "6.1", "local version"),
        ("2.9.1", None, None, None),
    ],
)
def test_builds_without_cuda(
    env: Environment, version: str, cuda: str | None, hip: str | None, how: str | None
) -> None:
    env.install("torch", version)
    torch = env.read(LIBTORCH).torch
    assert torch is not None and (torch.cuda, torch.hip, torch.how) == (cuda, hip, how)


def test_companions_demand_their_torch(env: Environment) -> None:
    env.install("torch", "2.9.1+cu128")
    env.install("torchvision", "0.24.1", "Requires-Dist: numpy\nRequires-Dist: torch==2.9.1\n")
    env.install("torchaudio", "2.8.0", "Requires-Dist: torch (==2.8.0)\n")
    env.install("somelib", "1.0", "Requires-Dist: torch==1.0\n")
    assert env.read(LIBTORCH).pins == [
        Pin("torch", "2.8.0", "torchaudio 2.8.0", "2.9.1+cu128"),
        Pin("torch", "2.9.1+cu128", "torchvision 0.24.1", "2.9.1+cu128"),
    ]


def test_of_two_dist_infos_of_one_package_the_fitting_one_counts(env: Environment) -> None:
    env.install("torch", "2.9.1", TORCH_291)
    env.install("nvidia-cudnn-cu12", "9.1.0.70")
    env.install("nvidia-cudnn-cu12", "9.10.2.21")
    assert pinned(env.read(LIBTORCH))["nvidia-cudnn-cu12"] == ("9.10.2.21", "9.10.2.21")


def test_a_checkout_of_torch(env: Environment) -> None:
    """`pip install -e`: the package lies in the source tree, site-packages holds a dist-info only."""
    env.install("torch", "2.9.0a0+git1", TORCH_291)
    env.torch("2.9.0a0+git1", "12.4", "/src/pytorch/torch")
    software = env.read(
        "/src/pytorch/torch/lib/libtorch_cpu.so", f"{SITE}/numpy/_core/_umath.cpython-311-x86_64-linux-gnu.so"
    )
    assert software.torch is not None
    assert (software.torch.version, software.torch.folder, software.torch.origin) == (
        "2.9.0a0+git1",
        "/src/pytorch/torch",
        "other",
    )


def test_the_torch_of_python_is_the_one_beside_libtorch_python(env: Environment) -> None:
    env.torch(folder=f"{SITE}/torch")
    env.torch("2.1.0", "11.8", "/opt/other/torch")
    software = env.read("/opt/other/torch/lib/libtorch_cpu.so", f"{SITE}/torch/lib/libtorch_python.so")
    assert software.torch is not None and software.torch.folder == f"{SITE}/torch"


def test_conda(tmp_path: Path) -> None:
    env = Environment(tmp_path, "/opt/conda/envs/t/lib/python3.11/site-packages")
    env.write(f"{env.site}/torch-2.1.0-py3.11.egg-info/PKG-INFO", "Name: torch\nVersion: 2.1.0\n")
    env.torch("2.1.0", "12.1")
    for name in (
        "pytorch-2.1.0-py3.11_cuda12.1_cudnn8.9.2_0",
        "pytorch-cuda-12.1-ha16c6d3_6",
        "odd",
        "numpy-1.26.4-h1_0",
    ):
        env.write(f"/opt/conda/envs/t/conda-meta/{name}.json", "{}")
    env.install("numpy", "1.26.4", installer="conda")
    software = env.read(f"{env.site}/torch/lib/libtorch_cpu.so")
    assert software.torch is not None and (software.torch.cuda, software.torch.origin) == ("12.1", "conda")
    assert software.prefix == "/opt/conda/envs/t"
    assert [package for package in software.packages if package.name == "numpy"] == [Package("numpy", "1.26.4")]
    assert Package("pytorch-cuda", "12.1") in software.packages


def test_debian(env: Environment) -> None:
    env = Environment(env.root, "/usr/lib/python3/dist-packages")
    env.write(f"{env.site}/torch-2.6.0.egg-info/PKG-INFO", "Name: torch\nVersion: 2.6.0\n")
    env.torch("2.6.0+debian", None)
    software = env.read("/usr/lib/python3/dist-packages/torch/lib/libtorch_cpu.so")
    assert software.torch is not None and (software.torch.version, software.torch.origin) == ("2.6.0+debian", "other")


def test_a_process_that_has_loaded_nothing_yet(env: Environment) -> None:
    env.install("torch", "2.5.1+cu121")
    env.torch("2.5.1+cu121", "12.1")
    software = env.read(prefix="/v")
    assert software.site_packages == [SITE]
    assert software.torch is not None and (software.torch.cuda, software.torch.folder) == ("12.1", f"{SITE}/torch")


def test_packages_from_elsewhere_than_the_environment_that_it_was_started_in(env: Environment) -> None:
    env.install("torch", "2.5.1+cu121")
    assert env.read(LIBTORCH, prefix="/other").prefix == "/v"
    assert env.read(LIBTORCH, "/w/lib/python3.11/site-packages/x/x.so", prefix="/w").prefix == "/w"


def test_nothing_at_all(env: Environment) -> None:
    software = env.read()
    assert (software.torch, software.packages, software.pins, software.gaps) == (None, [], [], [])


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\xff\xfe\0\0",
        b"Requires-Dist: " + b"(" * 1900 + b"==1\n",
        b"Requires-Dist: a==1; " + b"(" * 900 + b"os_name == 'posix'" + b")" * 900 + b"\n",
        b"Requires-Dist: a==" + b"9" * 100_000 + b"\n",
        b"Requires-Dist: a==1; no_such == 'x'\n",
        b"Requires-Dist: ===\n" * 50_000,
        json.dumps({"name": "torch"}).encode(),
    ],
)
def test_metadata_that_is_something_else(env: Environment, metadata: bytes) -> None:
    env.write(f"{SITE}/torch-2.9.1.dist-info/METADATA", metadata)
    env.write(f"{SITE}/torch/version.py", b"\xff__version__ = 3\n" * 100)
    start = time.process_time()
    software = env.read(LIBTORCH)
    assert time.process_time() - start < 2
    assert software.torch is not None and software.torch.version == "2.9.1"
    assert software.pins == []


@needs_unprivileged
def test_a_refused_folder_is_a_gap(env: Environment) -> None:
    env.install("torch", "2.9.1")
    os.chmod(env.root / SITE.lstrip("/"), 0)
    assert "ermission" in env.read(LIBTORCH).gaps[0].why


def test_a_folder_in_place_of_a_file_is_a_gap(env: Environment) -> None:
    env.install("torch", "2.9.1")
    (env.root / f"{SITE}/torch/version.py".lstrip("/")).mkdir(parents=True)
    assert "not a regular file" in env.read(LIBTORCH).gaps[0].why


def test_three_hundred_packages_take_under_a_tenth_of_a_second(env: Environment) -> None:
    for number in range(300):
        env.install(f"package-{number}", "1.0", "Requires-Dist: numpy==1.0\n" * 40)
    env.install("torch", "2.14.1", TORCH_2141)
    env.install("cuda-toolkit", "13.0.3.0", TOOLKIT * 20)
    env.torch()
    env.read(LIBTORCH)
    start = time.process_time()
    software = env.read(LIBTORCH)
    assert time.process_time() - start < 0.1
    assert len(software.packages) == 302


def test_a_venvs_lib64_is_its_lib(tmp_path: Path) -> None:
    folder = tmp_path / "v/lib/python3.11/site-packages/torch-2.9.1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: torch\nVersion: 2.9.1\n")
    (tmp_path / "v/lib64").symlink_to("lib")
    software = read_software(Host(root=tmp_path), prefix="/v")
    assert software.site_packages == [SITE]
    assert [package.name for package in software.packages] == ["torch"]
