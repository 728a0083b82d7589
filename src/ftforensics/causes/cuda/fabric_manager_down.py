"""The NVSwitch fabric of this machine was not ready.

## What it means

On machines whose GPUs are joined by NVSwitch a service, the fabric manager, sets the switches up after the start.
Until it has, or when its version is not the driver's, CUDA refuses to start on any GPU there, although `nvidia-smi`
lists them all.

## How it is told apart

CUDA said error 802 ("system not yet initialized"): likely. Possible where the GPUs are of a kind that is not joined by
NVSwitch, where the text was only a warning and the process ended in another way, or where a signal from outside ended
it.

## What to do

1. Start the service: `sudo systemctl restart nvidia-fabricmanager`, and look at what it says.
2. Install it in exactly the driver's version, and hold both packages together.
3. On a machine that has just started, wait for it; let the job's service start after it.

## Seen in the field

- The driver upgraded, the fabric manager not: 802 on every node of that kind.
- Virtual machines that got some GPUs of such a machine without the service for them.

## References

- CUDA runtime API, cudaErrorSystemNotReady (802)
- NVIDIA, "Fabric Manager for NVIDIA NVSwitch Systems User Guide"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_text import Said, said, said_in_record, stands_for
from ftforensics.causes.ending import weaker
from ftforensics.causes.registry import Kind
from ftforensics.facts.gpus import is_data_center
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

ID = "fabric-manager-down"
KIND = Kind.CIRCUMSTANCE
ORDER = 14
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("driver", "kernel")


def check(crash: Crash) -> Iterator[Finding]:
    text = said_in_record(crash, stands_for(ID))
    if text is not None:
        yield _finding(text, crash.record, [])


def check_death(death: Death) -> Iterator[Finding]:
    text = said(death, stands_for(ID))
    if text is not None:
        switches = [one.cite for one in death.xids if one.xid.switch]
        yield _finding(text, death.crash.record if death.crash else None, switches[:3])


def _finding(text: Said, record: CrashRecord | None, switches: list[Cite]) -> Finding:
    against = list(text.against)
    confidence = text.confidence
    names = [gpu.name for gpu in record.driver.gpus if gpu.name] if record and record.driver else []
    if names and not any(_may_have_switches(name) for name in names):
        against.append(Cite("driver", "gpus", f"{names[0]}: such GPUs are not joined by NVSwitch"))
        confidence = weaker(confidence, Confidence.POSSIBLE)
    return Finding(
        cause=ID,
        confidence=confidence,
        summary="CUDA said that the system is not yet initialized: the NVSwitch fabric manager is not running or not "
        "of the driver's version.",
        supports=[*text.supports, *switches],
        against=against,
        unknown=text.unknown,
        remedies=[
            Remedy("Start the fabric manager", "sudo systemctl restart nvidia-fabricmanager"),
            Remedy("Install it in exactly the driver's version", "cat /sys/module/nvidia/version; nv-fabricmanager -v"),
            Remedy(
                "Look at its state: if it is active and of the driver's version, this was not the cause",
                "systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A 2 -i fabric",
                settles=True,
            ),
        ],
    )


def _may_have_switches(name: str) -> bool:
    """Those boards that NVIDIA does not sell with one are known by name; of the others one cannot say."""
    return is_data_center(name) is not False and "pcie" not in name.lower()
