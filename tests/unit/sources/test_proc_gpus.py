"""GPUs by what the kernel module says of them, without NVML."""

from __future__ import annotations

import pytest

from ftforensics.host.host import Host
from ftforensics.parsers.nvidia_gpu import gpu_information
from ftforensics.sources.proc_gpus import proc_gpus

A100 = """Model: \t\t NVIDIA A100-SXM4-80GB
IRQ:   \t\t 146
GPU UUID: \t GPU-8932f937-d72c-4106-c12f-20bd9faed9f6
Video BIOS: \t 92.00.45.00.05
Bus Location: \t 0000:07:00.0
Device Minor: \t 0
"""


def test_the_module_names_its_gpus(machine: Host) -> None:
    for bus, text in (("0000:0f:00.0", A100.replace("8932f937", "11111111")), ("0000:07:00.0", A100)):
        folder = machine.root / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(text)
    first, second = proc_gpus(machine)
    assert (first.index, first.name) == (0, "NVIDIA A100-SXM4-80GB")
    assert first.uuid == "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
    assert (second.index, second.uuid and second.uuid[:12]) == (1, "GPU-11111111")


def test_no_driver_has_none(machine: Host) -> None:
    assert proc_gpus(machine) == []


@pytest.mark.parametrize("text", ["", "Model: Unknown\nGPU UUID: GPU-????????-????\n", ":::\n\0", "Model\n" * 9999])
def test_a_gpu_that_could_not_be_asked_has_no_name(text: str) -> None:
    said = gpu_information(text)
    assert (said.name, said.uuid) == (None, None)
