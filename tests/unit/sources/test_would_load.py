"""What `import torch` would load: held against what it does load, and against the calls that a CUDA build makes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from conditions import needs_cc, needs_torch, needs_x86_64
from ftforensics.host.host import Host
from ftforensics.model.software import Pin, Software, TorchBuild
from ftforensics.parsers.library_name import kind_of
from ftforensics.sources.software import read_software
from ftforensics.sources.would_load import SearchEnvironment, WouldLoad, would_load
from wheels import NVJITLINK, Unpacked

pytestmark = [needs_cc, needs_x86_64]

MAPPED = (
    "import json; print(json.dumps(sorted({l.split(None, 5)[5].strip() for l in open('/proc/self/maps') if '/' in l})))"
)
TAG = f"python{sys.version_info[0]}.{sys.version_info[1]}"
PRELOADING = """
def _preload_cuda_deps(err=None):
    cuda_libs = [
        ("cublas", "libcublas.so.*[0-9]"),
        ("nvjitlink", "libnvJitLink.so.*[0-9]"),
        ("cusparselt", "libcusparseLt.so.*[0-9]"),
        ("nccl", "libnccl.so.*[0-9]"),
    ]

def _load_global_deps():
    try:
        if "libcudart.so" not in _maps:
            return
        _preload_cuda_deps()
    except OSError as err:
        _preload_cuda_deps(err)

x = 1
"""


def mapped_after(code: str, library_path: str | None = None, *arguments: str) -> set[str]:
    """The files that a real process has mapped after some Python."""
    environment = {**os.environ, **({"LD_LIBRARY_PATH": library_path} if library_path else {})}
    command = [sys.executable, "-c", f"{code}\n{MAPPED}", *arguments]
    said = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True, timeout=100)
    return set(json.loads(said.stdout.splitlines()[-1]))


def of_interest(paths: Sequence[str] | set[str]) -> set[str]:
    return {path for path in paths if kind_of(path) not in (None, "extension")}


@pytest.mark.torch
@needs_torch
@pytest.mark.parametrize("shadowed", [(), ("libgomp.so.1", "libstdc++.so.6")], ids=["clean", "shadowed"])
def test_the_real_torch(tmp_path: Path, shadowed: Sequence[str]) -> None:
    for name in shadowed:
        shutil.copy(os.path.realpath(f"/usr/lib/x86_64-linux-gnu/{name}"), tmp_path / name)
    library_path = str(tmp_path) if shadowed else None
    found = would_load(Host(), read_software(Host(), prefix=sys.prefix), SearchEnvironment(library_path, cwd="/"))
    real = mapped_after("import torch", library_path)
    assert of_interest(found.files) == of_interest(real)
    assert {path for path in found.files if path.startswith("/")} <= real
    assert {Path(path).name for path in found.files if path.startswith(str(tmp_path))} == set(shadowed)
    assert (found.not_found, found.gaps) == ([], [])
    assert {library.searched for library in found.libraries} == {None, *([library_path] if shadowed else [])}
    assert "libtorch_cpu" in {library.kind for library in found.libraries}


class Cuda:
    """An environment whose torch is a CUDA build, as far as its libraries' needs go."""

    def __init__(self, root: Path) -> None:
        self.prefix = root / "env"
        self.site = self.prefix / "lib" / TAG / "site-packages"
        (self.prefix / "bin").mkdir(parents=True)
        (self.prefix / "bin" / TAG).symlink_to(os.path.realpath(sys.executable))
        (self.site / "torch/lib").mkdir(parents=True)
        (self.site / "torch/__init__.py").write_text(PRELOADING)
        (root / "link").mkdir()
        self.root = root

    def library(self, path: str | Path, *flags: str, needs: Sequence[str] = ()) -> Path:
        target = self.site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"]
        for name in needs:
            stand_in = ["-o", str(self.root / "link" / name), f"-Wl,-soname,{name}"]
            subprocess.run([*command, *stand_in], input="", text=True, check=True)
        linked = [f"-L{self.root / 'link'}", *(f"-l:{name}" for name in needs)]
        named = ["-o", str(target), f"-Wl,-soname,{target.name}"]
        subprocess.run([*command, *named, *linked, *flags], input=f'char x[] = "{path}";', text=True, check=True)
        return target

    def torch(self, dtags: str = "--disable-new-dtags") -> None:
        folders = ":".join(
            f"$ORIGIN/../../nvidia/{part}/lib" for part in ("cuda_runtime", "cudnn", "cusparse", "nvjitlink")
        )
        flags = (f"-Wl,{dtags}", f"-Wl,-rpath,{folders}:$ORIGIN")
        needs = ["libcudart.so.12", "libcusparse.so.12", "libcudnn.so.9"]
        self.library("torch/lib/libtorch_global_deps.so", *flags, needs=needs)
        self.library("torch/lib/libc10.so")
        self.library("torch/lib/libtorch_cuda.so", *flags, needs=["libc10.so", "libcudart.so.12", "libcudnn.so.9"])
        name = f"_C.cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu.so"
        self.library(f"torch/{name}", "-Wl,-rpath,$ORIGIN/lib", needs=["libtorch_cuda.so"])
        self.library("torch/_C.cpython-399-x86_64-linux-gnu.so", needs=["libwrong.so"])

    def nvidia(self) -> None:
        self.library("nvidia/cuda_runtime/lib/libcudart.so.12")
        self.library("nvidia/cusparse/lib/libcusparse.so.12", needs=["libnvJitLink.so.12"])
        self.library("nvidia/cudnn/lib/libcudnn.so.9", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN")
        self.library("nvidia/cudnn/lib/libcudnn_ops.so.9")
        self.library("nvidia/cudnn/lib/libcudnn_graph.so.9")

    def look(self, library_path: str | None = None) -> WouldLoad:
        software = Software(
            python=".".join(str(part) for part in sys.version_info[:3]),
            prefix=str(self.prefix),
            site_packages=[str(self.site)],
            pins=[Pin("nvidia-nvjitlink-cu12", "12.8.93", "torch 2.9.1")],
            torch=TorchBuild("2.9.1+cu128", "12.8", folder=str(self.site / "torch")),
        )
        return would_load(Host(), software, SearchEnvironment(library_path))

    def mine(self, found: WouldLoad) -> list[str]:
        """Below the base, in load order."""
        return [str(Path(path).relative_to(self.root)) for path in found.files if path.startswith(f"{self.root}/")]


@pytest.fixture
def cuda(tmp_path: Path) -> Cuda:
    return Cuda(tmp_path)


def names(found: WouldLoad, *, optional: bool) -> list[str]:
    return [one.name for one in found.not_found if one.optional == optional]


@pytest.mark.parametrize(("dtags", "shadows"), [("--disable-new-dtags", False), ("--enable-new-dtags", True)])
def test_a_real_nvjitlink_before_the_wheels(cuda: Cuda, nvidia_wheel: Unpacked, dtags: str, shadows: bool) -> None:
    """By LD_LIBRARY_PATH, which RPATH outweighs and RUNPATH does not."""
    cuda.torch(dtags)
    cuda.nvidia()
    own = cuda.site / NVJITLINK
    own.parent.mkdir(parents=True)
    os.link(nvidia_wheel("nvidia-nvjitlink-cu12", "12.8.93") / NVJITLINK, own)
    other = nvidia_wheel("nvidia-nvjitlink-cu12", "12.1.105") / NVJITLINK
    found = cuda.look(str(other.parent))
    # torch itself: the libraries that it needs, then by path what the first found missing or not, then _C.
    calls = "import ctypes, sys\nfor path in sys.argv[1:]: ctypes.CDLL(path, ctypes.RTLD_GLOBAL)"
    roots = [cuda.site / "torch/lib/libtorch_global_deps.so", *sorted((cuda.site / "torch").glob("_C*311*"))]
    roots = roots if TAG == "python3.11" else roots[:1]
    real = mapped_after(calls, str(other.parent), *map(str, roots))
    loaded = [library for library in found.libraries if library.kind == "libnvJitLink"]
    wanted = (str(other), "12.1.105", "record") if shadows else (str(own), "12.8", "symbol")
    assert [(library.path, library.version, library.how) for library in loaded] == [wanted]
    assert loaded[0].pin == ("12.8.93" if shadows else None)  # the own one has no dist-info here, so no package
    assert loaded[0].searched == (str(other.parent) if shadows else None)
    jit = re.compile(r"/libnvJitLink\.so")
    assert {path for path in real if jit.search(path)} == {library.path for library in loaded}


def test_what_is_loaded_by_path_and_what_ends_that(cuda: Cuda) -> None:
    """The list goes on to the first required library that is not there: cublas is, nvjitlink is, cusparselt is not."""
    cuda.torch()
    cuda.nvidia()
    cuda.library("nvidia/nvjitlink/lib/libnvJitLink.so.12")
    cuda.library("nvidia/cublas/lib/libcublas.so.12")
    cuda.library("nvidia/nccl/lib/libnccl.so.2")
    found = cuda.look()
    assert [Path(path).name for path in cuda.mine(found)] == [
        "libtorch_global_deps.so",
        "libcudart.so.12",
        "libcusparse.so.12",
        "libcudnn.so.9",
        "libnvJitLink.so.12",
        "libcublas.so.12",
        f"_C.cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu.so",
        "libtorch_cuda.so",
        "libc10.so",
        "libcudnn_graph.so.9",
        "libcudnn_ops.so.9",
    ]
    assert names(found, optional=False) == []
    assert {"libcudnn_adv.so.9"} <= set(names(found, optional=True))


def test_cudnns_parts_may_come_from_somewhere_else(cuda: Cuda) -> None:
    """A folder on LD_LIBRARY_PATH with a part of another cuDNN: two sets in one process."""
    cuda.torch()
    cuda.nvidia()
    cuda.library("nvidia/nvjitlink/lib/libnvJitLink.so.12")
    other = cuda.library(cuda.root / "system/libcudnn_ops.so.9")
    found = cuda.look(str(other.parent))
    cudnn = {Path(path).name: Path(path).parent for path in cuda.mine(found) if "cudnn" in path}
    assert cudnn["libcudnn_ops.so.9"] == Path("system")
    assert cudnn["libcudnn.so.9"].name == cudnn["libcudnn_graph.so.9"].name == "lib"


def test_the_driver_is_asked_for_by_name(cuda: Cuda) -> None:
    cuda.torch()
    cuda.nvidia()
    cuda.library("nvidia/nvjitlink/lib/libnvJitLink.so.12")
    without = cuda.look(str(cuda.root / "driver"))
    if not any(kind_of(path) == "libcuda" for path in without.files):
        (absent,) = [one for one in without.not_found if one.name == "libcuda.so.1"]
        assert absent.optional and str(absent.needed_by).endswith("libcudart.so.12")
    cuda.library(cuda.root / "driver/libcuda.so.530.30.02")
    (cuda.root / "driver/libcuda.so.1").symlink_to("libcuda.so.530.30.02")
    (driver,) = [library for library in cuda.look(str(cuda.root / "driver")).libraries if library.kind == "libcuda"]
    assert (driver.path, driver.version) == (str(cuda.root / "driver/libcuda.so.530.30.02"), "530.30.02")


def test_torch_loads_by_path_what_its_libraries_do_not_find(cuda: Cuda) -> None:
    """A torch whose RPATH leads nowhere: it catches the error, loads the packages' libraries and tries again."""
    cuda.library("torch/lib/libtorch_global_deps.so", needs=["libcublas.so.12", "libgone.so"])
    cuda.library("torch/lib/libc10.so")
    cuda.library("nvidia/cublas/lib/libcublas.so.12")
    found = cuda.look()
    assert [Path(path).name for path in cuda.mine(found)] == ["libcublas.so.12", "libtorch_global_deps.so", "libc10.so"]
    assert names(found, optional=False) == ["libgone.so"]


def test_the_extensions_of_torchvision(cuda: Cuda) -> None:
    cuda.torch()
    cuda.nvidia()
    cuda.library("nvidia/nvjitlink/lib/libnvJitLink.so.12")
    cuda.library("torchvision/_C.so", needs=["libc10.so"])
    cuda.library("torchvision/image.so", needs=["libjpeg.so.77"])
    cuda.library("other/_C.so")
    for name, files in (("torchvision-0.24.1", ("_C.so", "image.so", "gone.so")), ("other-1.0", ("_C.so",))):
        folder = cuda.site / f"{name}.dist-info"
        folder.mkdir()
        rows = "".join(f"{name.partition('-')[0]}/{file},sha256=x,1\n" for file in files)
        (folder / "RECORD").write_text(rows)
    found = cuda.look()
    loaded = [path for path in cuda.mine(found) if "/torchvision/" in path or "/other/" in path]
    assert [Path(path).name for path in loaded] == ["_C.so", "image.so"]
    assert {"libjpeg.so.77", str(cuda.site / "torchvision/gone.so")} <= set(names(found, optional=True))
    assert names(found, optional=False) == []


def test_a_torch_library_that_was_cut_short(cuda: Cuda) -> None:
    cuda.torch()
    cuda.nvidia()
    cuda.library("nvidia/nvjitlink/lib/libnvJitLink.so.12")
    os.truncate(cuda.site / "torch/lib/libc10.so", 4096)
    (absent,) = [one for one in cuda.look().not_found if not one.optional]
    assert absent.name == "libc10.so" and "cut short: 4096 bytes of" in absent.why


def test_without_a_torch_or_an_interpreter(cuda: Cuda, tmp_path: Path) -> None:
    for software in (Software(), Software(torch=TorchBuild("2.9.1", folder=str(tmp_path / "gone")))):
        found = would_load(Host(), software, SearchEnvironment())
        assert (found.files, found.gaps[0].why) == ([], "no installed torch to follow")
    (cuda.site / "torch/lib/libc10.so").write_bytes(b"junk")
    assert [one.why for one in cuda.look().not_found] == ["not an ELF file of ours, or cut short"]
    cuda.torch()
    cuda.nvidia()
    (cuda.prefix / "bin" / TAG).unlink()
    found = cuda.look()
    assert "the interpreter was not found" in found.gaps[0].why
    assert "libc10.so" in {Path(path).name for path in found.files}
