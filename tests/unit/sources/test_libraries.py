"""Package, version and copies of mapped libraries, on a copied root with real ELF files."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ftforensics.host.host import Host
from ftforensics.model.crash import Library
from ftforensics.model.software import Pin, Software
from ftforensics.sources.libraries import Mapped, loaded_libraries, with_pins

SITE = "/v/lib/python3.11/site-packages"


class Machine:
    """A root with installed packages, each of whose libraries is compiled."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def library(self, path: str, code: str = "", *options: str) -> str:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target), "-Wl,--build-id=sha1", *options]
        subprocess.run(command, input=f'const char here[] = "{path}";\n{code}', text=True, check=True)
        return path

    def wheel(self, name: str, version: str, *paths: str, site: str = SITE) -> None:
        """A dist-info whose RECORD lists `paths` as they are now."""
        folder = self.root / site.lstrip("/") / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        rows = []
        for path in paths:
            content = (self.root / path.lstrip("/")).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            relative = Path(path).relative_to(site) if path.startswith(site) else Path("../../..") / path[3:]
            rows.append(f"{relative},sha256={digest},{len(content)}\n")
        (folder / "RECORD").write_text("".join(rows))

    def read(self, *mapped: str | Mapped, hash_files: bool = False, search_path: str | None = None) -> list[Library]:
        files = [Mapped(file) if isinstance(file, str) else file for file in mapped]
        return loaded_libraries(files, Host(root=self.root), hash_files=hash_files, search_path=search_path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_wheel_is_known_by_its_record(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12")
    machine.wheel("nvidia_cuda_runtime_cu12", "12.8.90", path)
    (library,) = machine.read(path)
    assert (library.kind, library.package, library.version) == ("libcudart", "nvidia-cuda-runtime-cu12", "12.8.90")
    assert (library.how, library.origin, library.copies, library.drifted) == ("record", "wheel", 1, None)
    assert library.build_id and len(library.build_id) == 40


def test_a_package_whose_name_says_nothing_about_its_folder(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/cu13/lib/libcudart.so.13")
    extension = machine.library(f"{SITE}/cv2/cv2.abi3.so")
    machine.wheel("cuda_toolkit_all", "13.0.3", path)
    machine.wheel("opencv_python", "4.12.0.88", extension)
    runtime, cv2 = machine.read(path, extension)
    assert (runtime.package, runtime.version) == ("cuda-toolkit-all", "13.0.3")
    assert (cv2.kind, cv2.package, cv2.version, cv2.copies) == ("extension", "opencv-python", "4.12.0.88", None)


def test_a_data_file_in_the_prefix(machine: Machine) -> None:
    path = machine.library("/v/lib/libiomp5.so")
    machine.wheel("intel_openmp", "2025.1.0", path)
    (library,) = machine.read(path)
    assert (library.package, library.version, library.origin) == ("intel-openmp", "2025.1.0", "wheel")


def test_two_copies_from_two_places(machine: Machine) -> None:
    wheel = machine.library(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9")
    system = machine.library("/usr/local/cuda-11.8/lib64/libcudnn.so.8.8.1")
    other_part = machine.library("/usr/local/cuda-11.8/lib64/libcudnn_ops.so.9")
    machine.wheel("nvidia_cudnn_cu12", "9.10.2.21", wheel)
    first, second, part = machine.read(wheel, system, other_part, wheel)
    assert (first.version, first.origin, first.copies) == ("9.10.2.21", "wheel", 2)
    assert (second.version, second.how, second.origin, second.copies) == ("8.8.1", "file-name", "system", 2)
    assert (part.kind, part.version, part.how, part.copies) == ("libcudnn_ops", None, None, 1)


def test_a_private_copy_does_not_take_its_bearers_version(machine: Machine) -> None:
    renamed = machine.library(f"{SITE}/ctranslate2.libs/libcudnn-74a4c495.so.9.1.0")
    bundled = machine.library(f"{SITE}/torch/lib/libgomp.so.1")
    machine.wheel("ctranslate2", "4.5.0", renamed)
    machine.wheel("torch", "2.13.0+cpu", bundled)
    cudnn, gomp = machine.read(renamed, bundled)
    assert (cudnn.package, cudnn.version, cudnn.how) == (None, "9.1.0", "file-name")
    assert (cudnn.vendored_by, cudnn.origin) == ("ctranslate2 4.5.0", "wheel")
    assert (gomp.package, gomp.version, gomp.vendored_by) == (None, None, "torch 2.13.0+cpu")


def test_a_changed_file_is_not_what_was_installed(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9")
    machine.wheel("nvidia_cudnn_cu12", "9.10.2.21", path)
    size = (machine.root / path.lstrip("/")).stat().st_size
    with open(machine.root / path.lstrip("/"), "ab") as file:
        file.write(b"\0")
    (library,) = machine.read(path)
    assert (library.package, library.version, library.how) == ("nvidia-cudnn-cu12", None, None)
    assert library.drifted == f"{size + 1} bytes, {size} as nvidia-cudnn-cu12 9.10.2.21 installed it"


def test_content_is_compared_when_asked(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9")
    machine.wheel("nvidia_cudnn_cu12", "9.10.2.21", path)
    assert machine.read(path, hash_files=True)[0].drifted is None
    with open(machine.root / path.lstrip("/"), "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    assert machine.read(path)[0].drifted is None
    (library,) = machine.read(path, hash_files=True)
    assert library.drifted == "other content than as nvidia-cudnn-cu12 9.10.2.21 installed it"
    assert library.version is None


def test_of_two_packages_that_overwrite_each_other_the_fitting_one_is_told(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.8")
    machine.wheel("nvidia_cudnn_cu11", "8.7.0.84", path)
    machine.library(path, "int more[5000] = {1};")
    machine.wheel("nvidia_cudnn_cu12", "8.9.2.26", path)
    (library,) = machine.read(path)
    assert (library.package, library.version, library.drifted) == ("nvidia-cudnn-cu12", "8.9.2.26", None)


def test_a_deleted_file_has_no_version_from_its_successor(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12")
    machine.wheel("nvidia_cuda_runtime_cu12", "12.8.90", path)
    (library,) = machine.read(Mapped(path, deleted=True))
    assert (library.package, library.version, library.build_id) == (None, None, None)
    assert library.drifted == "replaced after it was loaded"
    (machine.root / path.lstrip("/")).unlink()
    assert machine.read(Mapped(path, deleted=True))[0].drifted == "deleted after it was loaded"
    assert machine.read(path)[0].drifted == "the file is no longer there"


def test_a_replaced_file_is_told_by_its_build_id(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12")
    machine.wheel("nvidia_cuda_runtime_cu12", "12.8.90", path)
    (library,) = machine.read(Mapped(path, build_id="00ff"))
    assert (library.version, library.build_id) == (None, "00ff")
    assert library.drifted and library.drifted.startswith("replaced after it was loaded: build-id 00ff in memory")


def test_nvjitlink_says_its_version_itself(machine: Machine) -> None:
    code = "".join(f"void __nvJitLinkComplete_12_{minor}(void) {{}}\n" for minor in range(9))
    path = machine.library("/opt/x/libnvJitLink.so.12", code)
    (library,) = machine.read(path)
    assert (library.version, library.how, library.origin, library.package) == ("12.8", "symbol", "system", None)


def test_nccl_says_its_version_itself(machine: Machine) -> None:
    code = (
        'const char *format(void) { return "NCCL version %d.%d"; }'
        'const char *version(void) { return "NCCL version 2.27.5+cuda12.9"; }'
    )
    path = machine.library("/home/u/nccl/libnccl.so.2", code)
    (library,) = machine.read(path)
    assert (library.version, library.how, library.origin) == ("2.27.5+cuda12.9", "text", "other")


def test_nvrtc_is_known_by_its_neighbour(machine: Machine) -> None:
    path = machine.library("/opt/x/libnvrtc.so.12", "", "-Wl,--build-id=none")
    machine.library("/opt/x/libnvrtc-builtins.so.12.8")
    (library,) = machine.read(path)
    assert (library.version, library.how, library.build_id) == ("12.8", "sibling", None)


def test_torch_without_a_record_is_known_by_its_version_file(machine: Machine) -> None:
    path = machine.library("/src/pytorch/torch/lib/libtorch_cpu.so")
    (machine.root / "src/pytorch/torch/version.py").write_text("__version__ = '2.9.0a0+git1'\n")
    (library,) = machine.read(path)
    assert (library.package, library.version, library.how) == ("torch", "2.9.0a0+git1", "version.py")


def test_conda_knows_its_files(machine: Machine) -> None:
    path = machine.library("/opt/conda/envs/t/lib/libcudart.so.11.8.89")
    inside = machine.library("/opt/conda/envs/t/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so")
    meta = machine.root / "opt/conda/envs/t/conda-meta"
    meta.mkdir()
    for name, version, file in [
        ("cudatoolkit", "11.8.0", "lib/libcudart.so.11.8.89"),
        ("pytorch", "2.1.0", "lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"),
    ]:
        (meta / f"{name}-{version}-0.json").write_text(json.dumps({"name": name, "version": version, "files": [file]}))
    (meta / "history").write_text("==> 2026\n")
    runtime, torch = machine.read(path, inside)
    assert (runtime.package, runtime.version, runtime.how, runtime.origin) == (
        "cudatoolkit",
        "11.8.0",
        "conda",
        "conda",
    )
    assert (torch.package, torch.version, torch.how) == ("pytorch", "2.1.0", "conda")


def test_a_file_that_is_no_elf(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/nvjitlink/lib/libnvJitLink.so.12")
    (machine.root / path.lstrip("/")).write_bytes(b"\x7fELF garbage")
    (library,) = machine.read(path)
    assert (library.version, library.build_id) == (None, None)


def test_driver_library(machine: Machine) -> None:
    path = machine.library("/usr/lib/x86_64-linux-gnu/libcuda.so.530.30.02")
    (library,) = machine.read(path)
    assert (library.kind, library.version, library.how, library.origin) == (
        "libcuda",
        "530.30.02",
        "file-name",
        "system",
    )


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("/usr/local/cuda-12.8/compat/libcuda.so.570.124.06", "compat"),
        ("/opt/conda/cuda-compat/libcuda.so.570.124.06", "compat"),
        ("/usr/local/cuda-12.8/compat/libnvidia-ptxjitcompiler.so.570.124.06", "compat"),
        ("/usr/local/cuda-12.8/targets/x86_64-linux/lib/stubs/libcuda.so", "stubs"),
        ("/opt/compatible/libcuda.so.570.124.06", "system"),
        ("/opt/compat/libgomp.so.1", "system"),
    ],
)
def test_where_a_driver_library_comes_from(machine: Machine, path: str, origin: str) -> None:
    (library,) = machine.read(machine.library(path))
    assert library.origin == origin


def test_a_stub_that_a_package_brings_is_still_one(machine: Machine) -> None:
    path = machine.library(f"{SITE}/nvidia/cuda_runtime/lib/stubs/libcuda.so")
    machine.wheel("nvidia_cuda_runtime_cu12", "12.8.90", path)
    (library,) = machine.read(path)
    assert (library.origin, library.package) == ("stubs", "nvidia-cuda-runtime-cu12")


def test_the_entry_of_the_search_path_that_it_lies_in(machine: Machine) -> None:
    real = machine.library("/usr/local/cuda-11.8/targets/x86_64-linux/lib/libcudart.so.11.8.89")
    tuned = machine.library("/opt/a/glibc-hwcaps/x86-64-v3/libgomp.so.1")
    linked = machine.library("/etc/alternatives/store/libcudnn.so.8.8.1")
    wheel = machine.library(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9")
    extension = machine.library(f"{SITE}/x/x.abi3.so")
    (machine.root / "usr/local/cuda").symlink_to("/usr/local/cuda-11.8")
    (machine.root / "usr/local/cuda-11.8/lib64").symlink_to("targets/x86_64-linux/lib")
    (machine.root / "opt/links").mkdir()
    (machine.root / "opt/b").symlink_to("/opt/a")
    (machine.root / "opt/links/libcudnn.so.8").symlink_to("/etc/alternatives/store/libcudnn.so.8.8.1")
    path = ":lib:/gone;/usr/local/cuda/lib64:/opt/links:/opt/b:/usr/local/cuda-11.8/lib64"
    found = machine.read(real, tuned, linked, wheel, extension, search_path=path)
    assert [library.searched for library in found] == ["/usr/local/cuda/lib64", "/opt/b", "/opt/links", None, None]
    assert {library.searched for library in machine.read(real, wheel)} == {None}


def test_the_cuda_that_it_was_built_for(machine: Machine) -> None:
    torch = machine.library(f"{SITE}/torch/lib/libtorch_cuda.so")
    (machine.root / f"{SITE}/torch/version.py".lstrip("/")).write_text(
        "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n"
    )
    cudnn = machine.library(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9")
    runtime = machine.library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12")
    code = 'const char *version(void) { return "NCCL version 2.27.5+cuda12.9"; }'
    nccl = machine.library(f"{SITE}/nvidia/nccl/lib/libnccl.so.2", code)
    machine.wheel("torch", "2.9.1", torch)
    machine.wheel("nvidia_cudnn_cu12", "9.10.2.21", cudnn)
    machine.wheel("nvidia_cuda_runtime_cu12", "12.8.90", runtime)
    machine.wheel("nvidia_nccl_cu12", "2.27.5", nccl)
    gomp = machine.library("/usr/lib/libgomp.so.1")
    assert [(one.version, one.cuda) for one in machine.read(torch, cudnn, runtime, nccl, gomp)] == [
        ("2.9.1", "12.8"),
        ("9.10.2.21", "12"),
        ("12.8.90", "12.8"),
        ("2.27.5", "12.9"),
        (None, None),
    ]
    with open(machine.root / nccl.lstrip("/"), "ab") as file:
        file.write(b"\0")
    (library,) = machine.read(Mapped(nccl, build_id="00ff"))
    assert library.drifted and library.cuda is None


def test_libraries_that_are_not_nvidias_and_their_wheels(machine: Machine) -> None:
    mkl = machine.library("/v/lib/libmkl_core.so.2")
    tbb = machine.library("/v/lib/libtbb.so.12")
    arrow = machine.library(f"{SITE}/pyarrow/libarrow.so.1700")
    vendored = machine.library(f"{SITE}/nvidia/dali/libopencv_core.so.4")
    machine.wheel("mkl", "2025.1.0", mkl)
    machine.wheel("tbb", "2022.1.0", tbb)
    machine.wheel("pyarrow", "17.0.0", arrow)
    found = machine.read(mkl, tbb, arrow, vendored)
    assert [(one.package, one.version) for one in found] == [
        ("mkl", "2025.1.0"),
        ("tbb", "2022.1.0"),
        ("pyarrow", "17.0.0"),
        (None, None),
    ]


def test_what_torch_demands_of_a_package() -> None:
    cudnn = Library(path="/a", kind="libcudnn", package="nvidia-cudnn-cu12", version="9.13.0.50")
    torch = Library(path="/b", kind="libtorch_cpu", package="torch", version="2.9.1")
    stray = Library(path="/c", kind="libcudnn")
    software = Software(
        pins=[
            Pin("nvidia-cudnn-cu12", "9.10.2.21", "torch 2.9.1", "9.13.0.50"),
            Pin("torch", "2.8.0", "torchaudio 2.8.0", "2.9.1"),
        ]
    )
    found = with_pins([cudnn, torch, stray], software)
    assert [(one.pin, one.pinned_by) for one in found] == [("9.10.2.21", "torch 2.9.1"), (None, None), (None, None)]
    assert with_pins([cudnn], None) == [cudnn]


def test_the_second_look_up_reads_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the live machine what was read is kept, and a RECORD that changed is read again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    machine = Machine(tmp_path / "root")
    site = str(tmp_path / "root" / SITE.lstrip("/"))
    path = machine.library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12")
    machine.wheel("nvidia_cuda_runtime_cu12", "12.8.90", path)
    record = Path(site) / "nvidia_cuda_runtime_cu12-12.8.90.dist-info/RECORD"

    class Counting(Host):
        reads = 0

        def read_bytes(self, path: str | Path, limit: int = 1 << 26) -> bytes:
            Counting.reads += str(path).endswith("/RECORD")
            return super().read_bytes(path, limit)

    def version() -> str | None:
        return loaded_libraries([Mapped(f"{site}/nvidia/cuda_runtime/lib/libcudart.so.12")], Counting())[0].version

    assert (version(), Counting.reads) == ("12.8.90", 1)
    assert (version(), Counting.reads) == ("12.8.90", 1)
    record.write_text(record.read_text() + "more.py,,\n")
    assert (version(), Counting.reads) == ("12.8.90", 2)
    (cache,) = (tmp_path / "cache/ftforensics").iterdir()
    assert cache.stat().st_mode & 0o777 == 0o600
    cache.write_bytes(b"{half")
    assert (version(), Counting.reads) == ("12.8.90", 3)
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").write_text("not a folder")
    assert (version(), Counting.reads) == ("12.8.90", 4)
