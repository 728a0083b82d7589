"""The GPUs that the kernel module drives, by name: where NVML is not there to be asked, or refuses to answer."""

from __future__ import annotations

from ftforensics.host.host import Host, Refusal
from ftforensics.model.crash import Gpu
from ftforensics.parsers.nvidia_gpu import gpu_information

GPUS = "/proc/driver/nvidia/gpus"
_MOST = 64
_INFORMATION_LIMIT = 64 << 10


def proc_gpus(host: Host) -> list[Gpu]:
    """In the order of their bus addresses, which is NVML's; [] without a driver. A container sees all of the machine's,
    also those that it may not use."""
    found = []
    for index, place in enumerate(host.listed(GPUS)[:_MOST]):
        try:
            said = gpu_information(host.read_text(f"{GPUS}/{place}/information", _INFORMATION_LIMIT))
        except Refusal:
            continue
        found.append(Gpu(index, said.name, said.uuid))
    return found
