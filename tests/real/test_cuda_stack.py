"""A wheel of CUDA 12.8 on a driver of CUDA 12.1, three ways to die there: real NVIDIA libraries, a driver made here.

The driver is a shared object that reports a level and lacks what came later; `/proc/driver/nvidia/version` lies on a
tmpfs in the process's own mount namespace. Everything else is real: the runtime, the loader, the crash, the record.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conditions import ROOT, needs_cc, needs_cudnn_pair, needs_unshare, needs_x86_64
from inventory_wait import WAIT
from wheels import CUDART, Unpacked

pytestmark = [needs_x86_64, needs_cc]

PROGRAMS = Path(__file__).parent / "programs"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
RUNTIMES = {"12.1": "12.1.105", "12.8": "12.8.90", "13.2": "13.2.75"}
DRIVERS = {
    "11.8": ("520.61.05", 11080),
    "12.1": ("530.30.02", 12010),
    "12.4": ("550.54.14", 12040),
    "13.0": ("580.65.06", 13000),
}
TORCH = """Metadata-Version: 2.1
Name: torch
Version: 2.9.1+cu128
Requires-Dist: nvidia-cuda-runtime-cu12==12.8.90; platform_system == "Linux" and platform_machine == "x86_64"
Requires-Dist: nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux" and platform_machine == "x86_64"
"""
JOB = f"""{WAIT}
import ctypes, sys, ftforensics
ftforensics.install(dir=sys.argv[1])
import fused_ops
kept = [ctypes.CDLL(path) for path in sys.argv[3:]]
kept.append(ctypes.CDLL("libcuda.so.1"))  # stays loaded as on a GPU machine; without a GPU the runtime lets it go
if "WITHOUT_INVENTORY" not in os.environ:
    wait_for_inventory()
    wait_for_inventory(answered=True)
print(getattr(fused_ops, sys.argv[2])())
"""
ANALYZE = "import sys; from ftforensics.cli import main; sys.exit(main(sys.argv[1:]))"
WITH_DRIVER = (
    'mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia && cp "$0" /proc/driver/nvidia/version && exec "$@"'
)


class Stack:
    """An environment with torch 2.9.1+cu128's runtime, an extension built on it, and a driver."""

    def __init__(self, folder: Path, runtime: str, level: str, nvidia_wheel: Unpacked) -> None:
        self.folder = folder
        self.site = folder / "env/lib" / PYTHON / "site-packages"
        package = "nvidia-cuda-runtime" if runtime.startswith("13") else "nvidia-cuda-runtime-cu12"
        shutil.copytree(nvidia_wheel(package, RUNTIMES[runtime]), self.site)
        (self.cudart,) = self.site.glob("nvidia/*/lib/libcudart.so.1?")
        self.module, self.level = DRIVERS[level]
        self.driver = folder / "driver"
        self.driver.mkdir()
        real = self.driver / f"libcuda.so.{self.module}"
        compiled(PROGRAMS / "libcuda.c", real, f"-DLEVEL={self.level}", "-Wl,-soname,libcuda.so.1")
        (self.driver / "libcuda.so.1").symlink_to(real.name)
        self._torch()
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        headers = "-I" + sysconfig.get_path("include")
        compiled(
            PROGRAMS / "fused_ops.c",
            self.site / f"fused_ops{suffix}",
            headers,
            str(self.cudart),
            f"-Wl,-rpath,{self.cudart.parent}",
        )
        self.text = folder / "version"
        self.kernel_module(self.module)
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"},
            "PYTHONPATH": f"{self.site}:{ROOT / 'src'}",
            "LD_LIBRARY_PATH": str(self.driver),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_STATE_HOME": str(folder / "state"),
            "COLUMNS": "80",
        }

    def kernel_module(self, version: str) -> None:
        """As /proc/driver/nvidia/version says it."""
        self.text.write_text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed Feb 22 04:11:39 UTC 2023\n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
        )

    def _torch(self) -> None:
        """What of torch's wheel tells its CUDA: the metadata, version.py, and a library of its name."""
        information = self.site / "torch-2.9.1+cu128.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(TORCH)
        (self.site / "torch/lib").mkdir(parents=True)
        (self.site / "torch/version.py").write_text(
            "__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\nhip = None\n"
        )
        self.c10 = self.site / "torch/lib/libc10.so"
        compiled(None, self.c10, "-Wl,-soname,libc10.so")
        rows = [f"torch/version.py,,{(self.site / 'torch/version.py').stat().st_size}"]
        rows.append(f"torch/lib/libc10.so,,{self.c10.stat().st_size}")
        (information / "RECORD").write_text("\n".join(rows) + "\n")

    def cudnn(self, library: Path, soname: str = "libcudnn.so.9") -> Path:
        library.parent.mkdir(parents=True, exist_ok=True)
        compiled(None, library, f"-Wl,-soname,{soname}")
        return library

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", WITH_DRIVER, str(self.text), *command],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def call(self, function: str, *libraries: Path) -> subprocess.CompletedProcess[str]:
        loaded = [str(path) for path in (self.c10, *libraries)]
        return self.run(sys.executable, "-c", JOB, str(self.folder / "run"), function, *loaded)

    def die(self, function: str, *libraries: Path) -> dict[str, Any]:
        """The report, as `analyze --json` says it on that machine."""
        done = self.call(function, *libraries)
        assert done.returncode == -signal.SIGSEGV, done.stderr
        said = self.run(sys.executable, "-c", ANALYZE, "analyze", "--json", str(self.folder / "run"))
        assert said.stdout, said.stderr
        report: dict[str, Any] = json.loads(said.stdout)
        return report

    def page(self, *options: str) -> str:
        return self.run(sys.executable, "-c", ANALYZE, "analyze", *options, str(self.folder / "run")).stdout


def compiled(source: Path | None, target: Path, *flags: str) -> None:
    what = [str(source)] if source else ["-x", "c", "/dev/null", "-x", "none"]
    command = ["gcc", "-shared", "-fPIC", "-O1", "-fno-omit-frame-pointer", "-Wl,--build-id=sha1", *what]
    subprocess.run([*command, *flags, "-ldl", "-o", str(target)], check=True)


Make = Callable[[str, str], Stack]


@pytest.fixture
def stack(tmp_path: Path, nvidia_wheel: Unpacked) -> Make:
    return lambda runtime, level: Stack(tmp_path, runtime, level, nvidia_wheel)


def cause_of(report: dict[str, Any], cause: str) -> dict[str, Any] | None:
    return next((one for one in report["hypotheses"] if one["cause"] == cause), None)


def words(finding: dict[str, Any]) -> str:
    return " ".join([finding["summary"], *(cite["text"] for cite in finding["for"] + finding["against"])])


@needs_unshare
def test_a_missing_entry_point_called_by_a_library(stack: Make) -> None:
    report = stack("12.8", "12.1").die("launch")
    verdict = report["verdict"]
    assert (verdict["cause"], verdict["confidence"]) == ("driver-minor-window", "likely")
    assert verdict["mechanism"] == "null-call"
    finding = cause_of(report, "driver-minor-window")
    assert finding is not None
    assert any("fused_graph_launch" in cite["text"] for cite in finding["for"]), finding
    assert "530.30.02" in words(finding) and "12.8" in words(finding)
    commands = [remedy["command"] or "" for remedy in report["remedies"]]
    pip = [command for command in commands if "pip install" in command and "torch==" in command]
    assert pip[0].endswith(
        "torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 --index-url https://download.pytorch.org/whl/cu121"
    )
    window = " ".join(pip[1:])
    assert "torch==2.14.1" in window and "/whl/cu126" in window
    assert "torch==2.11.0" in window and "/whl/cu128" in window
    assert any(remedy["settles"] for remedy in report["remedies"])


@needs_unshare
def test_b_an_unrelated_null_write_is_not_the_drivers(stack: Make) -> None:
    report = stack("12.8", "12.1").die("accumulate")
    verdict = report["verdict"]
    assert (verdict["cause"], verdict["confidence"]) == ("native-fault", "likely")
    assert verdict["mechanism"] == "null-write"
    finding = cause_of(report, "driver-minor-window")
    assert finding is not None and finding["confidence"] == "possible"
    assert "not shown to be the cause" in words(finding)


@needs_unshare
@pytest.mark.parametrize("function", ["launch", "accumulate"])
def test_c_two_cudnns_come_first(stack: Make, function: str) -> None:
    made = stack("12.8", "12.1")
    own = made.cudnn(made.site / "nvidia/cudnn/lib/libcudnn.so.9")
    information = made.site / "nvidia_cudnn_cu12-9.10.2.21.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cudnn-cu12\nVersion: 9.10.2.21\n")
    (information / "RECORD").write_text(f"nvidia/cudnn/lib/libcudnn.so.9,,{own.stat().st_size}\n")
    foreign = made.cudnn(made.folder / "cuda-12.1/lib64/libcudnn.so.9.1.0")
    made.environment["LD_LIBRARY_PATH"] += f":{foreign.parent}"
    report = made.die(function, own, foreign)
    verdict = report["verdict"]
    assert (verdict["cause"], verdict["confidence"]) == ("mixed-cuda-libraries", "likely")
    finding = cause_of(report, "mixed-cuda-libraries")
    assert finding is not None
    assert "9.10.2.21" in words(finding) and "9.1.0" in words(finding)
    driver = cause_of(report, "driver-minor-window")
    assert driver is not None and driver["confidence"] == "possible"
    assert any("LD_LIBRARY_PATH" in (remedy["command"] or "") for remedy in report["remedies"])


@needs_unshare
@needs_cudnn_pair
@pytest.mark.timeout(900)
def test_c_with_two_real_cudnns(stack: Make, nvidia_wheel: Unpacked) -> None:
    made = stack("12.8", "12.1")
    shutil.copytree(nvidia_wheel("nvidia-cudnn-cu12", "9.10.2.21"), made.site, dirs_exist_ok=True)
    foreign = made.folder / "cuda-12.1/lib64"
    shutil.copytree(nvidia_wheel("nvidia-cudnn-cu12", "9.1.0.70") / "nvidia/cudnn/lib", foreign)
    (foreign / "libcudnn.so.9").rename(foreign / "libcudnn.so.9.1.0")
    made.environment["LD_LIBRARY_PATH"] += f":{foreign}"
    report = made.die("accumulate", made.site / "nvidia/cudnn/lib/libcudnn.so.9", foreign / "libcudnn.so.9.1.0")
    assert (report["verdict"]["cause"], report["verdict"]["confidence"]) == ("mixed-cuda-libraries", "likely")
    finding = cause_of(report, "mixed-cuda-libraries")
    assert finding is not None and "9.10.2.21" in words(finding) and "9.1.0" in words(finding)


@needs_unshare
def test_two_real_runtimes_of_one_name(stack: Make, nvidia_wheel: Unpacked) -> None:
    made = stack("12.8", "12.4")
    foreign = made.folder / "cuda-12.1/lib64/libcudart.so.12.1.105"
    foreign.parent.mkdir(parents=True)
    shutil.copy(nvidia_wheel("nvidia-cuda-runtime-cu12", "12.1.105") / CUDART, foreign)
    made.environment["LD_LIBRARY_PATH"] += f":{foreign.parent}"
    report = made.die("accumulate", foreign)
    assert (report["verdict"]["cause"], report["verdict"]["confidence"]) == ("mixed-cuda-libraries", "likely")
    finding = cause_of(report, "mixed-cuda-libraries")
    assert finding is not None and "12.8.90" in words(finding) and "12.1.105" in words(finding)
    assert any("stack" in cite["text"] for cite in finding["against"]), finding


@needs_unshare
def test_a_runtime_of_the_system_before_the_wheels_own(stack: Make, nvidia_wheel: Unpacked) -> None:
    """LD_LIBRARY_PATH comes before an extension's RUNPATH (man 8 ld.so)."""
    made = stack("12.8", "12.4")
    foreign = made.folder / "cuda-12.1/lib64/libcudart.so.12"
    foreign.parent.mkdir(parents=True)
    shutil.copy(nvidia_wheel("nvidia-cuda-runtime-cu12", "12.1.105") / CUDART, foreign)
    made.environment["LD_LIBRARY_PATH"] += f":{foreign.parent}"
    made.environment["FAULT_IN_DRIVER"] = "1"
    report = made.die("versions")
    assert (report["verdict"]["cause"], report["verdict"]["confidence"]) == ("system-cuda-shadows-wheel", "likely")
    finding = cause_of(report, "system-cuda-shadows-wheel")
    assert finding is not None and "LD_LIBRARY_PATH" in words(finding)
    assert any(remedy["command"] == "unset LD_LIBRARY_PATH" for remedy in report["remedies"])


@needs_unshare
@pytest.mark.parametrize("fault", ["in the drifted library", "elsewhere"])
def test_a_runtime_of_another_version_than_torch_demands(stack: Make, fault: str) -> None:
    made = stack("12.1", "12.4")  # torch's metadata demands 12.8.90
    if fault == "elsewhere":
        report = made.die("accumulate")
    else:
        made.environment["FAULT_IN_DRIVER"] = "1"
        report = made.die("versions")
    finding = cause_of(report, "drifted-cuda-library")
    assert finding is not None and "12.8.90" in words(finding) and "12.1.105" in words(finding)
    expected = ("native-fault", "possible") if fault == "elsewhere" else ("drifted-cuda-library", "likely")
    assert (report["verdict"]["cause"], finding["confidence"]) == expected
    commands = [remedy["command"] or "" for remedy in report["remedies"]]
    if fault != "elsewhere":
        assert any(command.endswith("nvidia-cuda-runtime-cu12==12.8.90") for command in commands), commands


@needs_unshare
def test_a_driver_whose_module_was_not_loaded_again(stack: Make) -> None:
    """The package was upgraded to 550 and the kernel still runs 535's module."""
    made = stack("12.1", "12.4")
    made.kernel_module("535.104.05")
    made.environment["FAULT_IN_DRIVER"] = "1"
    report = made.die("versions")
    assert (report["verdict"]["cause"], report["verdict"]["confidence"]) == ("driver-half-upgraded", "likely")
    finding = cause_of(report, "driver-half-upgraded")
    assert finding is not None and "535.104.05" in words(finding) and "550.54.14" in words(finding)
    assert any("reboot" in (remedy["text"] + (remedy["command"] or "")).lower() for remedy in report["remedies"])


@needs_unshare
def test_a_driver_that_has_the_entry_point_does_not_crash_and_is_not_named(stack: Make) -> None:
    made = stack("12.8", "12.4")
    made.environment["WITHOUT_INVENTORY"] = "1"
    done = made.call("launch")
    assert (done.returncode, done.stdout) == (0, "101\n"), done.stderr


@needs_unshare
def test_a_driver_of_the_wheels_own_level_is_no_hypothesis(stack: Make) -> None:
    report = stack("12.8", "13.0").die("accumulate")
    assert report["verdict"]["cause"] == "native-fault"
    assert cause_of(report, "driver-minor-window") is None
    assert cause_of(report, "driver-too-old") is None


@needs_unshare
@pytest.mark.parametrize("level", DRIVERS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_runtimes_own_gate_agrees_with_ours(stack: Make, runtime: str, level: str) -> None:
    """The runtime refuses a driver (error 35) exactly where `driver_fit` says too old; in the window it goes on."""
    from ftforensics.causes.driver_fit import Fit, driver_fit
    from ftforensics.model.crash import Driver
    from ftforensics.model.software import Software, TorchBuild

    made = stack(runtime, level)
    made.environment["WITHOUT_INVENTORY"] = "1"
    done = made.call("versions")
    assert done.returncode == 0, done.stderr
    built, _, error = map(int, done.stdout.strip("()\n").split(","))
    cuda = f"{built // 1000}.{built % 1000 // 10}"
    assert cuda == runtime
    software = Software(torch=TorchBuild(f"2.9.1+cu{cuda.replace('.', '')}", cuda=cuda))
    driver = Driver(
        module_version=made.module,
        libcuda_path=str(made.driver / f"libcuda.so.{made.module}"),
        libcuda_version=made.module,
        api_level=made.level,
    )
    fit = driver_fit(software, driver, []).fit
    assert (error == 35) == (fit is Fit.TOO_OLD)
    assert (fit is Fit.EXACT) == (made.level >= built)
