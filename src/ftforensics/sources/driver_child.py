"""Asks the driver's own libraries, in a process of its own: a program of the standard library, not for import.

    python -I driver_child.py LIBCUDA

Prints one JSON object a line, each as soon as it is known, so that what was answered survives the next call's hang or
crash: {"api_level": 12080}, {"nvml_version": ...}, {"gpu": {...}}, {"note": "..."}. NVML is asked through the optional
module pynvml (distribution nvidia-ml-py). cuDriverGetVersion needs no cuInit (CUDA driver API, "Version Management"):
no context is made and no GPU memory taken. nvmlInit opens the devices.
"""

import ctypes
import json
import os
import sys
import types


def tell(member: str, value: object) -> None:
    print(json.dumps({member: value}), flush=True)


def ask_libcuda(path: str) -> None:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        tell("note", f"libcuda: {error}")
        return
    level = ctypes.c_int()
    try:
        status = library.cuDriverGetVersion(ctypes.byref(level))
    except AttributeError as error:
        tell("note", f"libcuda: {error}")
        return
    if status == 0:
        tell("api_level", level.value)
    else:
        # The stub library of the toolkit answers 34 (CUDA_ERROR_STUB_LIBRARY).
        tell("note", f"cuDriverGetVersion: error {status}")


def ask_nvml(libcuda: str) -> None:
    beside = os.path.join(os.path.dirname(os.path.realpath(libcuda)), "libnvidia-ml.so.1")
    if "/" in libcuda and os.path.exists(beside):
        # The loader then answers pynvml's request for the bare name with this one (same SONAME): the installation that
        # the process met, not the one that our own environment finds.
        try:
            ctypes.CDLL(beside, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            tell("note", f"NVML: {error}")
    try:
        import pynvml
    except ImportError:
        tell("note", "NVML: not asked, pynvml is missing (pip install 'ftforensics[gpu]')")
        return

    def text(value: object) -> str:
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    try:
        pynvml.nvmlInit()
        tell("nvml_version", text(pynvml.nvmlSystemGetNVMLVersion()))
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            gpu = {
                "index": index,
                "name": text(pynvml.nvmlDeviceGetName(handle)),
                "uuid": text(pynvml.nvmlDeviceGetUUID(handle)),
                "memory_total": int(memory.total),
                "memory_used": int(memory.used),
                "capability": capability(pynvml, handle),
                "mig": split(pynvml, handle),
            }
            tell("gpu", gpu)
    except pynvml.NVMLError as error:  # a finding, kept as it is said
        # 18, NVML_ERROR_LIB_RM_VERSION_MISMATCH, has other words in NVML than in nvidia-smi, which people know.
        mismatch = "Driver/library version mismatch, " if getattr(error, "value", None) == 18 else ""
        tell("note", f"NVML: {mismatch}error {getattr(error, 'value', None)}, {error}")


def capability(pynvml: types.ModuleType, handle: object) -> "str | None":
    """ "8.0"; None for an NVML that does not answer this (the question is as old as R331)."""
    try:
        return "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    except pynvml.NVMLError:
        return None


def split(pynvml: types.ModuleType, handle: object) -> "bool | None":
    """Is it split into instances? A GPU that cannot be is not; an NVML before R450 does not know the question."""
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError as error:
        return False if getattr(error, "value", None) == 3 else None  # NVML_ERROR_NOT_SUPPORTED


if __name__ == "__main__":
    ask_libcuda(sys.argv[1])
    ask_nvml(sys.argv[1])
