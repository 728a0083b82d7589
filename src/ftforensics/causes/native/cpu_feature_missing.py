"""The program uses an instruction that this processor does not have.

## What it means

A library was built for a newer processor than the one it runs on (AVX-512, AMX, AVX2, ...), or the virtual machine
hides the feature from its guest. The processor refuses the instruction and the process ends with SIGILL.

## How it is told apart

SIGILL at an instruction that belongs to a feature, and the processor's own list (`flags` in /proc/cpuinfo) lacks that
feature: likely. Without the list it is only possible. It is never proven from one record: a jump into the middle of
data can look like such an instruction too. When the list *has* the feature, this cause is ruled out; then the code
bytes are damaged, or the operating system has not enabled the feature.

## What to do

1. Install a build of the library for this processor, or build it here without `-march=native`.
2. In a virtual machine pass the processor through (`-cpu host`, "host-passthrough").
3. Libraries that choose at run time can be told: `ATEN_CPU_CAPABILITY=default` for torch, `DNNL_MAX_CPU_ISA=AVX2` for
   oneDNN, `OPENBLAS_CORETYPE=Haswell`.
4. On mixed clusters request nodes of one processor generation.

## Seen in the field

- Extensions compiled on the login node with `-march=native`, run on older compute nodes.
- DeepSpeed's CPU Adam, compiled at first use and cached in a home directory that several kinds of nodes share.

## References

- Intel Software Developer's Manual, volume 2; man 5 proc_cpuinfo
- oneDNN documentation, "CPU Dispatcher Control"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import places
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism

KIND = Kind.OWN_FAULT


def check(crash: Crash) -> Iterator[Finding]:
    feature = crash.reading.feature
    if crash.reading.mechanism is not Mechanism.ILLEGAL_INSTRUCTION or feature is None:
        return
    job = crash.record.job
    flags = job.cpu_flags.split() if job and job.cpu_flags else None
    model = (job.cpu_model if job else None) or "this processor"
    supports = [*crash.reading.supports, *places(crash)]
    against = list(crash.reading.against)
    unknown = list(crash.reading.unknown)
    if flags is None:
        confidence = Confidence.POSSIBLE
        unknown.append(Gap("crash", "which features the processor has", "grep -m1 flags /proc/cpuinfo"))
    elif feature in flags:
        confidence = Confidence.RULED_OUT
        against.append(Cite("crash", "job.cpu_flags", f"the processor has {feature}"))
    else:
        confidence = Confidence.LIKELY
        supports.append(Cite("crash", "job.cpu_flags", f"{model} does not list {feature}"))
    yield Finding(
        cause="cpu-feature-missing",
        confidence=confidence,
        summary=f"The code needs {feature}, which {model} does not have.",
        supports=supports,
        against=against,
        unknown=unknown,
        remedies=[
            Remedy(f"Use a build of this library that does not need {feature}, or a node whose processor has it"),
            Remedy(
                "Let torch use its plainest kernels", "ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=AVX2 python ..."
            ),
        ],
    )
