"""`/proc/driver/nvidia/gpus/BUS/information`: which GPU the kernel module drives there (390 to 595 drivers).

Model:           NVIDIA A100-SXM4-80GB
IRQ:             146
GPU UUID:        GPU-8932f937-d72c-4106-c12f-20bd9faed9f6
Device Minor:    0
"""

from __future__ import annotations

import msgspec

_NO_NAME = ("", "Unknown")


class ProcGpu(msgspec.Struct, frozen=True):
    """name: as NVML gives it; None where the module could not ask the GPU."""

    name: str | None = None
    uuid: str | None = None


def gpu_information(text: str) -> ProcGpu:
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        values.setdefault(name.strip(), value.strip())
    name, uuid = values.get("Model", ""), values.get("GPU UUID", "")
    return ProcGpu(None if name in _NO_NAME else name, uuid if uuid.startswith("GPU-") and "?" not in uuid else None)
