"""The driver: version files of a copied root, and real libraries that say what the test chooses."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from ftforensics.host.host import Host
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Driver
from ftforensics.sources.driver import installed_driver

NVML = r"""
#include <string.h>
int nvmlInitWithFlags(unsigned flags) { return %(init)d; }
int nvmlInit_v2(void) { return %(init)d; }
const char *nvmlErrorString(int error) { return "Driver/library version mismatch"; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { strcpy(text, "12.570.124.06"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strcpy(text, "NVIDIA Fake 100"); return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { strcpy(text, "GPU-1"); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 8; *minor = 6; return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) { *now = 1; *later = 0; return %(mig)d; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = 80; memory[1] = 30; memory[2] = 50; return 0;
}
"""


def build(folder: Path, soname: str, file: str, code: str) -> str:
    source = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / file), f"-Wl,-soname,{soname}"]
    subprocess.run(source, input=code, text=True, check=True)
    if file != soname:
        (folder / soname).symlink_to(file)
    return str(folder / file)


def libcuda(folder: Path, body: str) -> str:
    return build(folder, "libcuda.so.1", "libcuda.so.570.124.06", f"int cuDriverGetVersion(int *v) {{ {body} }}")


def asked(path: str, timeout: float = 20) -> Driver:
    driver = installed_driver(Host(), path, timeout)
    assert isinstance(driver, Driver)
    return driver


def test_no_driver_is_a_gap(tmp_path: Path) -> None:
    gap = installed_driver(Host(root=tmp_path))
    assert isinstance(gap, Gap) and "no NVIDIA driver seen" in gap.why


def test_version_of_the_kernel_module(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (x@y)\n"
    )
    driver = installed_driver(Host(root=tmp_path))
    assert isinstance(driver, Driver)
    assert driver.module_version == "570.124.06"
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("580.82.07\n")
    driver = installed_driver(Host(root=tmp_path))
    assert isinstance(driver, Driver)
    assert driver.module_version == "580.82.07"


def test_a_link_to_libcuda_is_followed_and_its_name_read(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/libcuda.so.530.30.02").write_bytes(b"")
    (tmp_path / "usr/lib/libcuda.so.1").symlink_to("libcuda.so.530.30.02")
    driver = installed_driver(Host(root=tmp_path), "/usr/lib/libcuda.so.1")
    assert isinstance(driver, Driver)
    assert (driver.libcuda_path, driver.libcuda_version) == ("/usr/lib/libcuda.so.530.30.02", "530.30.02")
    assert driver.api_level is None  # a copied root is never asked


def test_the_api_level_comes_from_the_library_itself(tmp_path: Path) -> None:
    path = libcuda(tmp_path, "*v = 12080; return 0;")
    driver = asked(path)
    assert (driver.api_level, driver.libcuda_version) == (12080, "570.124.06")


def test_nvml_beside_libcuda_is_the_one_asked(tmp_path: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    path = libcuda(tmp_path, "*v = 12080; return 0;")
    build(tmp_path, "libnvidia-ml.so.1", "libnvidia-ml.so.570.124.06", NVML % {"init": 0, "mig": 0})
    driver = asked(path)
    assert driver.nvml_version == "12.570.124.06"
    (gpu,) = driver.gpus
    assert (gpu.index, gpu.name, gpu.uuid, gpu.memory_total, gpu.memory_used) == (0, "NVIDIA Fake 100", "GPU-1", 80, 50)
    assert (gpu.capability, gpu.mig) == ("8.6", True)


@pytest.mark.parametrize(("answer", "mig"), [(3, False), (13, None)])  # not supported; no such function
def test_a_gpu_that_does_not_know_instances(tmp_path: Path, answer: int, mig: bool | None) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    path = libcuda(tmp_path, "*v = 12080; return 0;")
    old = NVML.replace("nvmlDeviceGetCudaComputeCapability", "none_such") % {"init": 0, "mig": answer}
    build(tmp_path, "libnvidia-ml.so.1", "libnvidia-ml.so.570.124.06", old)
    (gpu,) = asked(path).gpus
    assert (gpu.name, gpu.capability, gpu.mig) == ("NVIDIA Fake 100", None, mig)


def test_nvmls_complaint_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    path = libcuda(tmp_path, "*v = 12080; return 0;")
    build(tmp_path, "libnvidia-ml.so.1", "libnvidia-ml.so.570.124.06", NVML % {"init": 18, "mig": 0})
    driver = asked(path)
    assert driver.api_level == 12080
    assert driver.note and "NVML: Driver/library version mismatch, error 18" in driver.note
    assert driver.nvml_version == "570.124.06"  # of the file's name


@pytest.mark.parametrize("mapped", ["/usr/lib/x86_64-linux-gnu/libcuda.so.1", None])
def test_half_an_upgrade_on_a_machine_that_cannot_be_asked(tmp_path: Path, mapped: str | None) -> None:
    """The kernel still runs the old module, the package manager has put the new libraries there."""
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("530.30.02\n")
    libraries = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("libcuda", "libnvidia-ml"):
        (libraries / f"{name}.so.535.183.01").write_bytes(b"")
        (libraries / f"{name}.so.1").symlink_to(f"{name}.so.535.183.01")
    driver = installed_driver(Host(root=tmp_path), mapped)
    assert isinstance(driver, Driver)
    assert (driver.module_version, driver.nvml_version) == ("530.30.02", "535.183.01")
    assert driver.libcuda_version == ("535.183.01" if mapped else None)


def test_the_stub_library_is_told(tmp_path: Path) -> None:
    driver = asked(libcuda(tmp_path, "return 34;"))
    assert driver.api_level is None and driver.note and "cuDriverGetVersion: error 34" in driver.note


def test_a_driver_that_crashes_takes_only_its_child(tmp_path: Path) -> None:
    driver = asked(libcuda(tmp_path, "*(volatile int *)0 = 1; return 0;"))
    assert driver.note and "ended by signal 11" in driver.note


def test_a_driver_that_hangs_is_left(tmp_path: Path) -> None:
    path = libcuda(tmp_path, 'for (;;) __asm__ volatile (""); return 0;')
    start = time.monotonic()
    driver = asked(path, timeout=1.0)
    assert time.monotonic() - start < 4
    assert driver.note and "did not answer within 1 s" in driver.note


def test_what_was_answered_before_the_crash_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    path = libcuda(tmp_path, "*v = 12080; return 0;")
    build(tmp_path, "libnvidia-ml.so.1", "libnvidia-ml.so.1", "int nvmlInitWithFlags(unsigned f) { __builtin_trap(); }")
    driver = asked(path)
    assert driver.api_level == 12080
    assert driver.note and "ended by signal" in driver.note


def test_a_library_that_prints_does_not_disturb(tmp_path: Path) -> None:
    path = libcuda(
        tmp_path, 'extern long write(int, const void *, unsigned long); write(1, "hello\\n", 6); *v = 12010; return 0;'
    )
    assert asked(path).api_level == 12010


@pytest.mark.parametrize("opened", ["the file", "its folder", "a folder above"])
def test_a_library_that_anybody_may_have_put_there_is_not_run(tmp_path: Path, opened: str) -> None:
    """The path may come from a record that somebody sent: loading the file would be running it, as whoever analyzes."""
    folder = tmp_path / "above" / "lib"
    folder.mkdir(parents=True)
    traces = tmp_path / "it ran"
    code = f'#include <fcntl.h>\n__attribute__((constructor)) void run(void) {{ open("{traces}", O_CREAT, 0600); }}'
    path = Path(
        build(folder, "libcuda.so.1", "libcuda.so.570.124.06", code + "int cuDriverGetVersion(int *v) { return 0; }")
    )
    assert asked(str(path)).note is None or "not asked: others" not in str(asked(str(path)).note)
    assert traces.exists()

    traces.unlink()
    {"the file": path, "its folder": folder, "a folder above": folder.parent}[opened].chmod(0o777)
    driver = asked(str(path))
    assert "was not asked: others than root and you" in str(driver.note) and driver.api_level is None
    assert not traces.exists()
