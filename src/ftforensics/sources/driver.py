"""The NVIDIA driver as one process met it: kernel module, user-space library, API level, GPUs.

The kernel module's version and the library's are kept apart. The "CUDA version" that nvidia-smi prints is the API level
of whichever libcuda was loaded; a compatibility package raises it without touching the module.
"""

from __future__ import annotations

import os
import sys

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Driver, Gpu
from ftforensics.parsers import nvidia_version

SYS_MODULE = "/sys/module/nvidia/version"
PROC_DRIVER = "/proc/driver/nvidia/version"
NVML = "libnvidia-ml.so.1"
# Where distributions, NVIDIA's container toolkit and Kubernetes' GPU images put the driver's libraries.
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
)
_ANSWER_LIMIT = 1 << 20
_VERSION_LIMIT = 64 << 10


class _Answer(msgspec.Struct):
    """One line of driver_child.py."""

    api_level: int | None = None
    nvml_version: str | None = None
    gpu: Gpu | None = None
    note: str | None = None


def installed_driver(
    host: Host, libcuda: str | None = None, timeout: float = 3.0, *, of_process: bool = True
) -> Driver | Gap:
    """libcuda: the path that the process has mapped, None when it loaded none (then the loader's choice is asked).
    of_process: False where no process is looked at, so that nothing is said of one.

    timeout: seconds for the child process that calls into libcuda and NVML. A Gap when there is no sign of a driver.
    Where NVML does not answer, as after half an upgrade, the version in its library's file name stands in its place.
    To ask a library is to run it. A path may come from a record that somebody else wrote, so only a file that nobody
    but root and the caller can have put there is asked.
    """
    module = module_version(host)
    real_path = _real_path(host, libcuda)
    notes = []
    answers: list[_Answer] = []
    if libcuda and host.live and not host.guarded(libcuda):
        notes.append(f"{libcuda} was not asked: others than root and you may have put it there")
    elif host.live and (libcuda or module or os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")):
        answers, trouble = _ask(host, libcuda or "libcuda.so.1", timeout)
        notes.extend(trouble)
    if module is None and real_path is None and not any(a.api_level or a.nvml_version for a in answers):
        return Gap("driver", f"no NVIDIA driver seen: {SYS_MODULE} and {PROC_DRIVER} are missing, no libcuda is loaded")
    if libcuda is None and of_process:
        notes.append("the process had not loaded libcuda")
    notes.extend(answer.note for answer in answers if answer.note)
    return Driver(
        module_version=module,
        libcuda_path=real_path,
        libcuda_version=nvidia_version.file_version(real_path) if real_path else None,
        api_level=next((answer.api_level for answer in answers if answer.api_level is not None), None),
        nvml_version=next((answer.nvml_version for answer in answers if answer.nvml_version), None)
        or _nvml_file(host, real_path),
        gpus=[answer.gpu for answer in answers if answer.gpu],
        note="; ".join(notes) or None,
    )


def module_version(host: Host) -> str | None:
    """Of the kernel module that is loaded now: "535.183.01"."""
    for path, parse in ((SYS_MODULE, nvidia_version.bare_version), (PROC_DRIVER, nvidia_version.module_version)):
        try:
            version = parse(host.read_text(path, _VERSION_LIMIT))
        except Refusal:
            continue
        if version:
            return version
    return None


def _real_path(host: Host, libcuda: str | None) -> str | None:
    if libcuda is None:
        return None
    try:
        return host.real_path(libcuda)
    except Refusal:
        return libcuda


def _nvml_file(host: Host, libcuda: str | None) -> str | None:
    """The driver version in the name of the NVML beside libcuda, else of the machine's own: "535.183.01".

    A compatibility package and a toolkit's stubs bring no NVML of their own: the process then gets the machine's.
    """
    beside = [os.path.dirname(libcuda)] if libcuda else []
    for folder in (*beside, *LIBRARY_FOLDERS):
        try:
            if host.exists(f"{folder}/{NVML}"):
                return nvidia_version.file_version(host.real_path(f"{folder}/{NVML}"))
        except Refusal:
            continue
    return None


def _ask(host: Host, libcuda: str, timeout: float) -> tuple[list[_Answer], list[str]]:
    program = os.path.join(os.path.dirname(__file__), "driver_child.py")
    try:
        done = host.run([sys.executable, "-I", program, libcuda], timeout, _ANSWER_LIMIT)
    except Refusal as refusal:
        return [], [str(refusal)]
    answers = []
    for line in done.stdout.splitlines():
        try:
            answers.append(msgspec.json.decode(line, type=_Answer))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # libcuda or NVML printed on its own account
    notes = []
    if done.timed_out:
        notes.append(f"the driver did not answer within {timeout:g} s")
    elif done.status is not None and done.status < 0:
        notes.append(f"asking the driver ended by signal {-done.status}")
    return answers, notes
