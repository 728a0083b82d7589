"""Two things wrong with one process: which is named first, through the whole of `diagnose`.

What makes CUDA unusable comes before a set of libraries that does not fit together, this before single binaries, then
what the kernel's log says of the GPU, and the driver's age last.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from ftforensics.diagnose import diagnose
from ftforensics.diagnose.names import Resolution
from ftforensics.model.basics import Address
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.crash import CrashRecord, NativeWalk, RawFrame, Register, Registers, Time
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.model.ledger import Change, Changes
from ftforensics.parsers.kernel_log import read_kernel_log
from ftforensics.parsers.launcher import read_launcher_log
from synth.gpu_stack import COMPAT, LIBRARIES, in_nccl, null_write, on_driver, thrown
from synth.software import CUDNN, NCCL, SITE, TORCH_CUDA, SoftwareBuilder

STUB = "/usr/local/cuda/lib64/stubs/libcuda.so"
NEWER = f"{LIBRARIES}/libcuda.so.570.124.06"
SYSTEM = "/usr/local/cuda-12.1/lib64"
OLD_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
FLASH = f"{SITE}/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"


def judged(builder: SoftwareBuilder, kernel: str = "", output: str = "", changes: Changes | None = None) -> Diagnosis:
    """The record as a file would hold it, its frames named by hand, with a kernel log and the job's output."""
    frames = builder.crash.native
    null = bool(frames) and frames[0].library is None
    raw = [
        RawFrame(Address(0 if null and not i else 0x7F00_0000_0000 + i), None, f.trust) for i, f in enumerate(frames)
    ]
    registers = Registers("x86_64", raw[0].pc if raw else None, None, None, [Register("rip", raw[0].pc)] if raw else [])
    record = builder.set(native=NativeWalk(frames=raw, complete=True), registers=registers).record

    def named(_: CrashRecord, wanted: Sequence[RawFrame]) -> Resolution:
        assert len(wanted) == len(frames)
        return Resolution(list(frames))

    case = Case([CaseRecord(record, "x.crash.json")], changes=changes)
    if kernel:
        case = msgspec.structs.replace(case, kernel_logs=[read_kernel_log(kernel.encode(), path="kernel.log")])
    if output:
        case = msgspec.structs.replace(case, launcher_logs=[read_launcher_log(output.encode(), path="train.log")])
    return diagnose(case, named)


def two_nccls(builder: SoftwareBuilder) -> SoftwareBuilder:
    return builder.system(f"{LIBRARIES}/libnccl.so.2.19.3", "libnccl", "2.19.3")


def two_cudnns(builder: SoftwareBuilder) -> SoftwareBuilder:
    return builder.system(f"{SYSTEM}/libcudnn.so.9.1.0", "libcudnn", "9.1.0")


def drifted(builder: SoftwareBuilder) -> SoftwareBuilder:
    builder = builder.without(CUDNN).pin("nvidia-cudnn-cu12", "9.10.2.21", "9.13.0.50")
    return builder.wheel(CUDNN, "libcudnn", "nvidia-cudnn-cu12", "9.13.0.50", pin="9.10.2.21", pinned_by="torch 2.9.1")


def drifted_nccl(builder: SoftwareBuilder) -> SoftwareBuilder:
    builder = builder.without(NCCL).pin("nvidia-nccl-cu12", "2.27.5", "2.19.3")
    return builder.wheel(NCCL, "libnccl", "nvidia-nccl-cu12", "2.19.3", pin="2.27.5", pinned_by="torch 2.9.1")


def misfit(builder: SoftwareBuilder) -> SoftwareBuilder:
    return builder.missing(FLASH, OLD_ABI)


def in_extension(builder: SoftwareBuilder) -> SoftwareBuilder:
    return builder.died(address=0x28).frame("mha_fwd", FLASH)


def in_cudnn(builder: SoftwareBuilder) -> SoftwareBuilder:
    return builder.died(address=0x28).frame("cudnnConvolutionForward", CUDNN).frame("at::native::conv", TORCH_CUDA)


HALF = on_driver("530.30.02", 12010, NEWER)
IN_COMPAT = on_driver("580.65.06", None, COMPAT)
ON_STUB = on_driver(None, None, STUB)


@pytest.mark.parametrize(
    ("builder", "first", "second"),
    [
        # What makes CUDA unusable, before the set.
        (in_nccl(two_nccls(ON_STUB)), "stub-driver", "mixed-cuda-libraries"),
        (in_nccl(two_nccls(HALF)), "driver-half-upgraded", "mixed-cuda-libraries"),
        (in_nccl(two_nccls(IN_COMPAT)), "compat-driver-mismatch", "mixed-cuda-libraries"),
        (in_nccl(drifted_nccl(HALF)), "driver-half-upgraded", "drifted-cuda-library"),
        # Within the set: two copies, before one of a wrong version.
        (in_cudnn(two_cudnns(drifted(on_driver()))), "mixed-cuda-libraries", "drifted-cuda-library"),
        # The set, before single binaries.
        (in_extension(misfit(two_cudnns(on_driver()))), "mixed-cuda-libraries", "abi-mismatch"),
        # All of these, before the driver's age.
        (in_nccl(two_nccls(on_driver())), "mixed-cuda-libraries", "driver-minor-window"),
        (in_nccl(drifted_nccl(on_driver())), "drifted-cuda-library", "driver-minor-window"),
        (in_extension(misfit(on_driver())), "abi-mismatch", "driver-minor-window"),
        (in_nccl(two_nccls(on_driver().torch("2.11.0", "13.0"))), "mixed-cuda-libraries", "driver-too-old"),
        (in_nccl(HALF), "driver-half-upgraded", "driver-minor-window"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_of_two_that_hold_the_one_that_makes_the_other_moot_speaks_first(
    builder: SoftwareBuilder, first: str, second: str
) -> None:
    diagnosis = judged(builder)
    assert (diagnosis.verdict.cause, diagnosis.verdict.confidence) == (first, "likely")
    listed = [finding.cause for finding in diagnosis.hypotheses]
    assert listed[0] == first and (second in listed or second.startswith("driver-")), listed
    assert "native-fault" not in listed


BOOT = "1f0c9e1e-6a43-4b7e-a6f1-f4c6a80d7a11"


def stamped(builder: SoftwareBuilder, pid: int = 4242, nspid: tuple[int, ...] = ()) -> SoftwareBuilder:
    return builder.process(pid=pid, nspid=[*nspid] or [pid]).set(time=Time(1764434400.5, 1000.5, 1000.5, 990.0, BOOT))


def xid(number: int, pid: int = 4242, before: float = 1.0) -> str:
    """A line of /dev/kmsg, so many seconds before the end."""
    return (
        f"4,900,{int((1000.5 - before) * 1e6)},-;NVRM: Xid (PCI:0000:17:00): {number}, pid={pid}, name=python, Ch 8\n"
    )


@pytest.mark.parametrize("number", [13, 31, 79, 94, 119])
def test_what_is_wrong_in_the_process_comes_before_the_gpus_own_error_and_that_before_the_driver(number: int) -> None:
    diagnosis = judged(stamped(in_nccl(two_nccls(on_driver()))), xid(number))
    assert [finding.cause for finding in diagnosis.hypotheses[:2]] == ["mixed-cuda-libraries", "gpu-xid"]
    diagnosis = judged(stamped(in_extension(misfit(on_driver()))), xid(number))
    assert [finding.cause for finding in diagnosis.hypotheses[:2]] == ["abi-mismatch", "gpu-xid"]
    diagnosis = judged(stamped(in_nccl(on_driver())), xid(number))
    assert [finding.cause for finding in diagnosis.hypotheses] == ["gpu-xid", "driver-minor-window"]


@pytest.mark.parametrize(
    ("kernel", "confidence"),
    [
        (xid(31), "likely"),
        (xid(31, before=200), "possible"),
        (xid(31, before=7200), None),
        (xid(31, before=-60), None),
        (xid(31, pid=900), None),
        (xid(79, pid=900), "possible"),
        (xid(45), "possible"),
        (xid(63), "possible"),
    ],
)
def test_an_xid_counts_by_its_pid_its_time_and_its_number(kernel: str, confidence: str | None) -> None:
    diagnosis = judged(stamped(thrown(on_driver(), "CUDA error: an illegal memory access was encountered")), kernel)
    found = [finding.confidence.value for finding in diagnosis.hypotheses if finding.cause == "gpu-xid"]
    assert found == ([confidence] if confidence else [])
    expected = "gpu-xid" if confidence == "likely" else "uncaught-cxx-exception"
    assert diagnosis.verdict.cause == expected


@pytest.mark.parametrize("nspid", [(7,), (51234, 7)], ids=["inside", "outside"])
def test_a_containers_own_pid_is_not_the_kernels(nspid: tuple[int, ...]) -> None:
    died = thrown(on_driver(), "CUDA error: an illegal memory access was encountered")
    diagnosis = judged(stamped(died, nspid[0], nspid), xid(31, pid=7))
    (found,) = [finding for finding in diagnosis.hypotheses if finding.cause == "gpu-xid"]
    assert found.confidence.value == "possible" and "one of a container" in found.against[0].text
    assert diagnosis.verdict.cause == "uncaught-cxx-exception"


@pytest.mark.parametrize("builder", [two_cudnns(on_driver()), drifted(on_driver()), misfit(on_driver()), HALF])
def test_without_one_that_is_likely_the_residual_speaks_and_never_ties(builder: SoftwareBuilder) -> None:
    diagnosis = judged(null_write(builder, "/usr/lib/libx.so"))
    assert (diagnosis.verdict.cause, diagnosis.verdict.confidence) == ("native-fault", "likely")
    assert {finding.confidence.value for finding in diagnosis.hypotheses[1:]} <= {"possible"}


@pytest.mark.parametrize("over", ["bad shard", "free(): invalid pointer"])
@pytest.mark.parametrize(
    "builder",
    [on_driver().torch("2.11.0", "13.0"), HALF, ON_STUB, IN_COMPAT, two_cudnns(on_driver())],
    ids=["too old", "half", "stub", "compat", "mixed"],
)
def test_who_gives_up_over_something_else_did_not_die_of_the_stack_also_where_it_changed(
    builder: SoftwareBuilder, over: str
) -> None:
    died = thrown(builder, over) if over == "bad shard" else builder.aborted(over)
    expected = "uncaught-cxx-exception" if over == "bad shard" else "heap-corruption"
    items = [
        Change("driver", "driver", "1", "2"),
        Change("package", "torch", "1", "2"),
        Change("image", "image", "1", "2"),
    ]
    diagnosis = judged(
        stamped(died.frame("abort", "/lib/x86_64-linux-gnu/libc.so.6")),
        xid(31),
        changes=Changes(0.0, "good", items=items),
    )
    assert diagnosis.verdict.cause == expected
    assert {finding.confidence.value for finding in diagnosis.hypotheses[1:]} == {"possible"}


def test_a_library_that_went_on_after_a_text_does_not_outdo_what_it_died_of() -> None:
    output = "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.\nepoch 1\n"
    diagnosis = judged(stamped(in_nccl(two_nccls(on_driver()))), output=output)
    assert diagnosis.verdict.cause == "mixed-cuda-libraries"
