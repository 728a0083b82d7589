"""The GPUs that a job will see, and what is known about each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.driver_fit import capability
from ftforensics.facts.driver import cuda_tuple, driver_level, minimum_driver
from ftforensics.facts.gpus import architecture
from ftforensics.model.crash import Driver, Gpu
from ftforensics.parsers.gpu_variables import whole_number


def visible(gpus: Sequence[Gpu], chosen: Sequence[str] | None) -> list[Gpu]:
    """chosen: the entries of CUDA_VISIBLE_DEVICES, None: all of them. As CUDA reads it, a number that no GPU has ends
    the list; a UUID may be shortened."""
    if chosen is None:
        return list(gpus)
    found = []
    for entry in chosen:
        gpu = next((gpu for gpu in gpus if _is(gpu, entry)), None)
        if gpu is None:
            break
        found.append(gpu)
    return found


def _is(gpu: Gpu, entry: str) -> bool:
    if entry.isdigit():
        return gpu.index is not None and gpu.index == whole_number(entry)
    return gpu.uuid is not None and gpu.uuid.startswith(entry)


def with_visible(driver: Driver, chosen: Sequence[str] | None) -> Driver:
    """The driver with the GPUs that the job will see, their capability filled in by their name where NVML gave none."""
    gpus = [msgspec.structs.replace(gpu, capability=capability(gpu)) for gpu in visible(driver.gpus, chosen)]
    return msgspec.structs.replace(driver, gpus=gpus)


def newer_than_driver(gpus: Sequence[Gpu], driver: Driver) -> str | None:
    """Why this driver cannot run a GPU that is not here. Of GPUs that are, the driver itself has spoken."""
    level = driver_level(driver.module_version) if driver.module_version else None
    for gpu in gpus:
        known = architecture(gpu.capability) if gpu.capability else None
        if level is None or known is None or known.first_cuda is None:
            continue
        if cuda_tuple(known.first_cuda) > cuda_tuple(level):
            needs = minimum_driver(known.first_cuda)
            return (
                f"driver {driver.module_version} (CUDA {level}) is older than {gpu_text(gpu)}, which came with CUDA "
                f"{known.first_cuda}" + (f" and needs driver {needs}" if needs else "")
            )
    return None


def gpu_text(gpu: Gpu) -> str:
    """As "NVIDIA A100-SXM4-80GB (8.0)"."""
    if gpu.name is None and gpu.index is None:
        return f"a GPU of compute capability {gpu.capability or 'unknown'}"
    name = gpu.name or f"GPU {gpu.index}"
    return f"{name} ({gpu.capability})" if gpu.capability else name
