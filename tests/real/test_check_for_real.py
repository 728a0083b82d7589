"""`ftforensics check` on real files: NVIDIA's own runtime, a driver made here, small /dev/shm, real ranks of torchrun.

The environment has the text of torch 2.9.1+cu128 and libraries of its names that need what torch's need; the CUDA
runtime is NVIDIA's wheel. The kernel module's version lies on a tmpfs in a mount namespace of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conditions import ROOT, needs_cc, needs_torch, needs_unshare, needs_x86_64
from wheels import Unpacked

pytestmark = [needs_x86_64, needs_cc]

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
METADATA = """Metadata-Version: 2.1
Name: torch
Version: 2.9.1+cu128
Requires-Dist: nvidia-cuda-runtime-cu12==12.8.90; platform_system == "Linux" and platform_machine == "x86_64"
"""
# Each in the mount namespace of the command, gone with it.
WITH_DRIVER = 'mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia && cp "$0" /proc/driver/nvidia/version && '
WITH_SMALL_SHM = "mount -t tmpfs -o size=64m none /dev/shm && "
NVML = r"""
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int error) { return "error"; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { strcpy(text, "12." VERSION); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strcpy(text, "NVIDIA A100-SXM4-80GB"); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{ strcpy(text, (long)device == 1 ? "GPU-1" : "GPU-2"); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 8; *minor = 0; return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) { *now = 0; *later = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = 80ULL << 30; memory[2] = (long)device == 1 ? 79ULL << 30 : 0; memory[1] = memory[0] - memory[2];
    return 0;
}
"""


def compiled(source: Path | str, target: Path, *flags: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    what = [str(source)] if isinstance(source, Path) else ["-x", "c", "-", "-x", "none"]
    command = ["gcc", "-shared", "-fPIC", "-Wl,--build-id=sha1", *what, *flags, "-o", str(target)]
    subprocess.run(command, input=source if isinstance(source, str) else None, text=True, check=True)
    return target


class Machine:
    """An environment with a torch of CUDA 12.8 and a driver that the test names."""

    def __init__(self, folder: Path, nvidia_wheel: Unpacked, runtime: str = "12.8.90") -> None:
        self.folder = folder
        self.prefix = folder / "env"
        self.site = self.prefix / "lib" / PYTHON / "site-packages"
        shutil.copytree(nvidia_wheel("nvidia-cuda-runtime-cu12", runtime), self.site)
        (self.prefix / "bin").mkdir()
        (self.prefix / "bin/python").symlink_to(sys.executable)
        self.cudart = self.site / "nvidia/cuda_runtime/lib/libcudart.so.12"
        self.search: list[Path] = []
        self.setup = ""
        self.text = folder / "version"
        self.text.write_text("")
        self._torch()

    def _torch(self) -> None:
        lib = self.site / "torch/lib"
        # As torch's own wheel: RUNPATH, which LD_LIBRARY_PATH comes before.
        flags = ["-Wl,--enable-new-dtags,--no-as-needed", "-Wl,-rpath,$ORIGIN/../../nvidia/cuda_runtime/lib:$ORIGIN"]
        c10 = compiled("int c10;", lib / "libc10.so", "-Wl,-soname,libc10.so")
        parts = [*flags, str(self.cudart), str(c10)]
        compiled("int deps;", lib / "libtorch_global_deps.so", "-Wl,-soname,libtorch_global_deps.so", *parts)
        compiled("int cuda;", lib / "libtorch_cuda.so", "-Wl,-soname,libtorch_cuda.so", *parts)
        (self.site / "torch/version.py").write_text(
            "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip = None\n"
        )
        (self.site / "torch/__init__.py").write_text("raise SystemExit('nobody imports torch here')\n")
        information = self.site / "torch-2.9.1+cu128.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(METADATA)
        files = [path for path in (self.site / "torch").rglob("*") if path.is_file()]
        rows = [f"{path.relative_to(self.site)},,{path.stat().st_size}" for path in files]
        (information / "RECORD").write_text("\n".join(rows) + "\n")

    def driver(self, module: str, level: int, libcuda: str | None = None, nvml: str | None = None) -> Machine:
        """libcuda: its version where it is not the module's; nvml: that of the other library, None: there is none."""
        folder = self.folder / "driver"
        real = compiled(
            PROGRAMS / "libcuda.c",
            folder / f"libcuda.so.{libcuda or module}",
            f"-DLEVEL={level}",
            "-Wl,-soname,libcuda.so.1",
        )
        (folder / "libcuda.so.1").symlink_to(real.name)
        if nvml:
            source = f'#define VERSION "{nvml}"\n{NVML}'
            compiled(source, folder / "libnvidia-ml.so.1", "-Wl,-soname,libnvidia-ml.so.1")
        self.text.write_text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {module}  Wed Feb 22 04:11:39 UTC 2023\n"
        )
        self.search.append(folder)
        self.setup += WITH_DRIVER
        return self

    def check(self, *options: str, **variables: str) -> dict[str, Any]:
        done = self.shown("--json", *options, **variables)
        assert done.stdout, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        failing = any(check["status"] == "fail" for check in answer["checks"])
        assert done.returncode == (1 if failing else 0)
        return answer

    def shown(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ftforensics", "check", *options]
        if "--for" not in options and "--install" not in options:
            command += ["--prefix", str(self.prefix)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "NVIDIA_"))}
        environment = {
            **kept,
            "PYTHONPATH": str(ROOT / "src"),
            "LD_LIBRARY_PATH": ":".join(map(str, self.search)),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "COLUMNS": "80",
            **variables,
        }
        inside = ["unshare", "-m", "sh", "-c", f'{self.setup}exec "$@"', str(self.text), *command]
        return subprocess.run(
            inside if self.setup else command,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path, nvidia_wheel: Unpacked) -> Callable[..., Machine]:
    return lambda runtime="12.8.90": Machine(tmp_path, nvidia_wheel, runtime)


Make = Callable[..., Machine]


def named(answer: dict[str, Any], name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = [check for check in answer["checks"] if check["name"] == name]
    assert len(found) == 1, [check["name"] for check in answer["checks"]]
    return found[0]


def causes(answer: dict[str, Any]) -> dict[str, str]:
    return {one["cause"]: one["confidence"] for one in answer["causes"]}


@needs_unshare
@pytest.mark.parametrize(
    ("module", "level", "cause"),
    [
        ("520.61.05", 11080, "driver-too-old"),
        ("530.30.02", 12010, "driver-minor-window"),
        ("550.54.14", 12040, "driver-minor-window"),
        ("580.65.06", 13000, None),
    ],
)
def test_a_driver_and_a_wheel_of_cuda_12_8(machine: Make, module: str, level: int, cause: str | None) -> None:
    answer = machine().driver(module, level).check()
    check = named(answer, "driver-fits-torch")
    assert check["cause"] == cause, check
    assert check["status"] == {"driver-too-old": "fail", "driver-minor-window": "warn", None: "ok"}[cause]
    assert named(answer, "one-driver-version")["status"] == "ok"
    assert named(answer, "one-set-of-libraries")["status"] == "ok"
    assert answer["subject"]["driver"] == module
    if cause == "driver-minor-window":
        assert causes(answer)[cause] == "possible"


@needs_unshare
def test_a_libcuda_of_another_version_than_the_module(machine: Make) -> None:
    answer = machine().driver("570.124.06", 12090, libcuda="575.57.08").check()
    check = named(answer, "one-driver-version")
    assert (check["status"], check["cause"]) == ("fail", "driver-half-upgraded")


@needs_unshare
def test_the_stub_of_the_toolkit(machine: Make, tmp_path: Path) -> None:
    one = machine().driver("570.124.06", 12080)
    stubs = tmp_path / "cuda-12.8/lib64/stubs"
    compiled("int cuDriverGetVersion(int *v) { return 34; }", stubs / "libcuda.so.1", "-Wl,-soname,libcuda.so.1")
    one.search.insert(0, stubs)
    assert named(one.check(), "no-stub-driver")["cause"] == "stub-driver"


@needs_unshare
def test_gpus_of_nvml_their_memory_and_which_are_visible(machine: Make) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    one = machine().driver("570.124.06", 12080, nvml="570.124.06")
    full = named(one.check(), "gpu-memory")
    assert full["status"] == "fail" and "GPU 0" in full["said"]
    answer = one.check(CUDA_VISIBLE_DEVICES="1")
    assert named(answer, "gpu-memory")["status"] == "ok"
    assert answer["subject"]["gpus"] == ["NVIDIA A100-SXM4-80GB (8.0)"]
    assert named(answer, "torch-has-gpu-code")["status"] == "ok"


@needs_unshare
def test_ranks_that_would_share_gpu_0(machine: Make) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    one = machine().driver("570.124.06", 12080, nvml="570.124.06")
    rank = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    with socket.create_server(("127.0.0.1", 0)) as held:
        rank["MASTER_PORT"] = str(held.getsockname()[1])
        answer = one.check("--distributed", "--backend", "nccl", CUDA_VISIBLE_DEVICES="0", **rank)
        assert named(answer, "meeting-place")["status"] == "fail"  # rank 0 could not listen there
    assert "all of them would take GPU 0" in named(answer, "rank-to-gpu")["said"]
    assert named(answer, "start-method")["cause"] == "fork-after-cuda"
    answer = one.check("--distributed", **rank)
    assert named(answer, "rank-to-gpu")["status"] == "ok"
    assert named(answer, "meeting-place")["status"] == "ok"


def test_another_cuda_runtime_by_ld_library_path(machine: Make, nvidia_wheel: Unpacked, tmp_path: Path) -> None:
    """As `module load cuda/12.1` does it."""
    one = machine()
    good = one.check()
    assert named(good, "one-set-of-libraries")["status"] == "ok"
    assert named(good, "pins")["status"] == "ok"
    toolkit = tmp_path / "cuda-12.1/lib64"
    toolkit.mkdir(parents=True)
    wheel = nvidia_wheel("nvidia-cuda-runtime-cu12", "12.1.105") / "nvidia/cuda_runtime/lib/libcudart.so.12"
    shutil.copy(wheel, toolkit / "libcudart.so.12.1.105")
    (toolkit / "libcudart.so.12").symlink_to("libcudart.so.12.1.105")
    one.search.append(toolkit)
    answer = one.check()
    check = named(answer, "no-foreign-library")
    assert (check["status"], check["cause"]) == ("fail", "system-cuda-shadows-wheel")
    assert "12.1.105" in check["said"] and str(toolkit) in check["said"]
    assert any(fix["command"] == "unset LD_LIBRARY_PATH" for fix in answer["remedies"])


def test_a_pin_that_an_older_wheel_replaced(machine: Make) -> None:
    answer = machine("12.1.105").check()
    check = named(answer, "pins")
    assert (check["status"], check["cause"], check["confidence"]) == ("fail", "drifted-cuda-library", "possible")
    assert "12.1.105" in check["said"] and "12.8.90" in check["said"]


def test_a_file_that_was_cut_short_and_one_that_was_changed(machine: Make) -> None:
    one = machine()
    assert named(one.check("--verify"), "files-as-installed")["status"] == "ok"
    content = one.cudart.read_bytes()
    one.cudart.write_bytes(content[:-1] + b"\1")
    assert named(one.check(), "files-as-installed")["status"] == "ok"  # the size is the same
    changed = named(one.check("--verify"), "files-as-installed")
    assert (changed["status"], changed["cause"]) == ("fail", "broken-install")
    one.cudart.write_bytes(content[: len(content) // 2])
    assert named(one.check(), "files-as-installed")["status"] == "fail"


def test_a_library_that_is_gone(machine: Make) -> None:
    one = machine()
    (one.site / "torch/lib/libc10.so").unlink()
    answer = one.check()
    assert "libc10.so" in named(answer, "all-found")["said"]
    assert causes(answer)["broken-install"] == "likely"


@needs_unshare
def test_the_shared_memory_of_a_container(machine: Make) -> None:
    one = machine()
    one.setup += WITH_SMALL_SHM
    check = named(one.check(), "shared-memory")
    assert (check["status"], check["cause"]) == ("fail", "shm-exhausted")
    assert "64 MiB" in check["said"]


@needs_unshare
def test_the_line_to_install_for_the_driver_that_is_here(machine: Make) -> None:
    one = machine().driver("530.30.02", 12010)
    done = one.shown("--install", "torch", "--python", "3.11")
    assert done.stdout == (
        "pip install torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 "
        "--index-url https://download.pytorch.org/whl/cu121\n"
    )
    assert done.returncode == 0 and "--gpu 8.0 names one" in done.stderr
    known = one.shown("--install", "torch", "--python", "3.11", "--gpu", "A100")
    assert (known.stdout, known.stderr) == (done.stdout, "")
    younger = one.shown("--install", "torch", "--python", "3.11", "--gpu", "B200")
    assert (younger.returncode, younger.stdout) == (1, "") and "570.26" in younger.stderr


@needs_unshare
def test_the_page_has_no_line_that_is_too_long_but_commands(machine: Make) -> None:
    one = machine().driver("530.30.02", 12010)
    lines = one.shown().stdout.splitlines()
    assert lines[0].endswith("READY")
    assert all(len(line) <= 80 or line.strip().startswith(("pip ", "python ")) for line in lines)


def test_an_environment_with_a_lib64_holds_no_package_twice(machine: Make) -> None:
    one = machine()
    before = one.check()
    (one.prefix / "lib64").symlink_to("lib")  # as venv makes it
    after = one.check()
    for name in ("files-as-installed", "known-bad-release"):
        assert named(after, name)["said"] == named(before, name)["said"]


def test_a_folder_that_is_no_environment(machine: Make, tmp_path: Path) -> None:
    one = machine()
    shutil.rmtree(one.prefix / "lib")
    check = named(one.check(), "torch")
    assert check["status"] == "unknown" and "no torch is installed" in check["said"]


@needs_torch
def test_a_rank_of_the_real_torchrun(tmp_path: Path) -> None:
    """Two ranks ask at the same time; the agent holds the meeting place, which is no port in use for rank 0."""
    program = tmp_path / "rank.py"
    program.write_text(
        "import os, subprocess, sys\n"
        "name = os.path.join(sys.argv[1], os.environ['RANK'] + '.json')\n"
        "with open(name, 'w') as out:\n"
        "    command = [sys.executable, '-m', 'ftforensics', 'check', '--distributed', '--backend', 'gloo', '--json']\n"
        "    sys.exit(subprocess.call(command, stdout=out))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    done = subprocess.run(
        [*command, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(program), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    for rank in range(2):
        answer = json.loads((tmp_path / f"{rank}.json").read_text())
        assert named(answer, "ranks")["said"].startswith(f"rank {rank} of 2"), done.stderr
        assert named(answer, "meeting-place")["status"] == "ok", answer
        assert named(answer, "backend")["status"] == "ok"


def test_this_machine_is_looked_at_in_a_second(tmp_path: Path) -> None:
    """Of processor time, with what it starts: the machine may be busy with other tests."""
    command = [sys.executable, "-m", "ftforensics", "check", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=60)
    before = os.times()
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, timeout=60)
    after = os.times()
    assert json.loads(done.stdout)["schema"] == "ftforensics.check/1"
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 1.0, spent
    assert list(tmp_path.glob("ftforensics")) in ([], [tmp_path / "ftforensics"])  # the cache, no run folder
