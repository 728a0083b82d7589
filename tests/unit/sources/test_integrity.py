"""Files that differ from what pip installed: NVIDIA's real wheel, and packages that share files."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from pathlib import Path

import pytest

from ftforensics.host.host import Host
from ftforensics.model.software import BrokenFile, Software
from ftforensics.sources.integrity import verify
from wheels import CUDART, Unpacked

CUDART_VERSION = "12.8.90"


def look(site: Path, *, hash_files: bool = True, root: Path | None = None) -> Software:
    folder = f"/{site.relative_to(root)}" if root else str(site)
    return verify(Host(root=root) if root else Host(), Software(site_packages=[folder]), hash_files=hash_files)


@pytest.fixture
def cudart(nvidia_wheel: Unpacked, tmp_path: Path) -> Path:
    """A copy of the real wheel that may be damaged."""
    return Path(shutil.copytree(nvidia_wheel("nvidia-cuda-runtime-cu12", CUDART_VERSION), tmp_path / "site-packages"))


def test_an_intact_wheel(cudart: Path) -> None:
    found = look(cudart)
    assert (found.broken, found.verified) == ([], True)
    assert found.checked >= 1 and found.gaps == []


def test_a_library_that_was_cut_short(cudart: Path) -> None:
    library = cudart / CUDART
    size = library.stat().st_size
    os.truncate(library, size // 2)
    for hash_files in (True, False):
        (broken,) = look(cudart, hash_files=hash_files).broken
        assert broken == BrokenFile(
            "nvidia-cuda-runtime-cu12", CUDART_VERSION, str(library), f"{size // 2} bytes, {size} as installed"
        )


def test_one_changed_byte_is_seen_only_by_content(cudart: Path) -> None:
    library = cudart / CUDART
    with open(library, "r+b") as file:
        file.seek(5000)
        byte = file.read(1)
        file.seek(5000)
        file.write(bytes([byte[0] ^ 1]))
    assert look(cudart, hash_files=False).broken == []
    said: list[tuple[int, int]] = []
    software = verify(
        Host(), Software(site_packages=[str(cudart)]), progress=lambda done, total: said.append((done, total))
    )
    assert [(broken.path, broken.how) for broken in software.broken] == [(str(library), "other content")]
    done, total = said[-1]
    assert done == total > 500_000


def test_a_library_that_is_gone(cudart: Path) -> None:
    (cudart / CUDART).unlink()
    assert [(broken.path, broken.how) for broken in look(cudart).broken] == [(str(cudart / CUDART), "missing")]


def test_what_no_run_loads_may_be_gone(cudart: Path) -> None:
    """Slimmed images: headers, static libraries and byte code removed."""
    shutil.rmtree(cudart / "nvidia/cuda_runtime/include")
    for path in [*cudart.rglob("*.a"), *cudart.rglob("*.pyc")]:
        path.unlink()
    found = look(cudart)
    assert found.broken == [] and found.checked >= 1


class Packages:
    """Packages written by hand below root/v/lib/python3.11/site-packages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / "v/lib/python3.11/site-packages"
        self.site.mkdir(parents=True)

    def add(self, name: str, version: str, files: dict[str, bytes], *, record: str = "") -> None:
        rows = []
        for path, content in files.items():
            target = self.site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(content)}\n")
        folder = self.site / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "RECORD").write_text("".join(rows) + record)

    def look(self) -> Software:
        return look(self.site, root=self.root)


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(tmp_path)


def test_two_packages_that_overwrite_each_others_library(packages: Packages) -> None:
    path = "nvidia/cudnn/lib/libcudnn.so.8"
    packages.add("nvidia_cudnn_cu12", "8.9.2.26", {path: b"twelve"})
    packages.add("nvidia_cudnn_cu11", "8.7.0.84", {path: b"eleven"})
    (broken,) = packages.look().broken
    assert (broken.package, broken.how) == ("nvidia-cudnn-cu12", "other content")


def test_a_file_that_all_nvidia_packages_bring_may_be_the_last_ones(packages: Packages) -> None:
    packages.add("nvidia_nccl_cu12", "2.27.5", {"nvidia/__init__.py": b""})
    packages.add("nvidia_cublas_cu12", "12.8.4.1", {"nvidia/__init__.py": b"# namespace\n"})
    assert packages.look().broken == []
    (packages.site / "nvidia/__init__.py").write_bytes(b"import os\n")
    assert [broken.how for broken in packages.look().broken] == [
        "10 bytes, 12 as installed",
        "10 bytes, 0 as installed",
    ]


def test_the_empty_file_that_a_reinstall_takes_away_is_no_damage(packages: Packages) -> None:
    packages.add("nvidia_nccl_cu12", "2.27.5", {"nvidia/__init__.py": b"", "nvidia/nccl/__init__.py": b"import x"})
    (packages.site / "nvidia/__init__.py").unlink()
    assert packages.look().broken == []
    (packages.site / "nvidia/nccl/__init__.py").unlink()
    assert [broken.how for broken in packages.look().broken] == ["missing"]


def test_libraries_are_told_first(packages: Packages) -> None:
    packages.add("torch", "2.9.1+cu128", {"torch/a.py": b"a", "torch/lib/libc10.so": b"c"})
    packages.add("triton", "3.5.1", {"triton/_C/libtriton.so": b"t"})
    shutil.rmtree(packages.site / "torch")
    shutil.rmtree(packages.site / "triton")
    found = [(broken.package, broken.version, Path(broken.path).name) for broken in packages.look().broken]
    assert found == [
        ("torch", "2.9.1+cu128", "libc10.so"),
        ("triton", "3.5.1", "libtriton.so"),
        ("torch", "2.9.1+cu128", "a.py"),
    ]


def test_other_packages_are_not_looked_at(packages: Packages) -> None:
    packages.add("numpy", "2.4.6", {"numpy/core.py": b"x"})
    packages.add("nvidia_ml_py", "13.615.71", {"pynvml.py": b"x"})
    (packages.site / "numpy/core.py").unlink()
    found = packages.look()
    assert (found.broken, found.checked, found.verified) == ([], 0, False)
    assert "no torch and no CUDA package" in found.gaps[0].why


def test_a_package_without_a_record_is_a_gap(packages: Packages) -> None:
    packages.add("torch", "2.9.1", {"torch/a.py": b"a"})
    (packages.site / "torch-2.9.1.dist-info/RECORD").unlink()
    found = packages.look()
    assert not found.verified and "RECORD: No such file" in found.gaps[0].why


def test_a_package_that_is_gone_altogether_is_told_in_part(packages: Packages) -> None:
    packages.add("torch", "2.9.1", {f"torch/f{number}.py": b"x" for number in range(300)})
    shutil.rmtree(packages.site / "torch")
    found = packages.look()
    assert len(found.broken) == 200 and found.checked == 300
    assert found.gaps[0].why == "100 more files differ from their RECORD"


def test_a_record_may_name_any_path(packages: Packages) -> None:
    """Data files of the prefix count when they are libraries; nothing outside the environment is looked at."""
    secret = packages.root / "etc/shadow.so"
    secret.parent.mkdir()
    secret.write_bytes(b"secret")
    hostile = "../../../../etc/shadow.so,sha256=x,1\n/etc/shadow.so,sha256=x,1\n../../../bin/torchrun,sha256=x,1\n"
    packages.add("torch", "2.9.1", {"torch/a.py": b"a"}, record=hostile + "../../libiomp5.so,sha256=x,1\n\0,\0,\0\n")
    found = packages.look()
    assert [(broken.path, broken.how) for broken in found.broken] == [("/v/lib/libiomp5.so", "missing")]
    assert found.checked == 2


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    found = verify(Host(root=tmp_path), Software(site_packages=["/gone"]))
    assert not found.verified and found.gaps[0].why.startswith("/gone: ")
