from __future__ import annotations

import pytest

from ftforensics.model.crash import CxxException
from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import ended, killed
from synth.software import LIBCUDA, TORCH, TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, crashed, stack_text

ID = "fork-after-cuda"
INIT = f"{TORCH}/libc10_cuda.so"


def worker() -> SoftwareBuilder:
    return crashed().process(fork_of=4200).module(LIBCUDA)


@pytest.mark.parametrize(
    "stack",
    [
        worker().aborted().frame("abort", "/lib/libc.so.6").frame("c10::cuda::c10_cuda_check_implementation", INIT),
        worker().frame(None, LIBCUDA).frame("cudaMalloc", TORCH_CUDA),
    ],
)
def test_fires_inside_cuda(stack: SoftwareBuilder) -> None:
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.LIKELY and "forked from process 4200" in finding.summary
    assert "spawn" in finding.remedies[0].text and finding.remedies[-1].settles


def test_fires_on_torchs_own_words() -> None:
    (finding,) = ask_text(ID, stack_text("fork-after-cuda"))
    assert finding.confidence is Confidence.LIKELY
    (finding,) = ask_text(ID, stack_text("cuda-error", code=3), death=ended(6, worker=True))
    assert finding.confidence is Confidence.LIKELY
    (finding,) = ask_text(ID, stack_text("cuda-error", code=3), death=ended(6, crash=worker().aborted().crash))
    assert finding.confidence is Confidence.LIKELY


def test_fires_on_the_records_own_exception() -> None:
    stack = worker().died("SIGABRT", Mechanism.ABORT_CXX_EXCEPTION, None)
    (finding,) = ask_record(
        ID, stack.set(cxx_exception=CxxException("N3c105ErrorE", "CUDA error: initialization error"))
    )
    assert finding.confidence is Confidence.LIKELY
    assert any(one.locator == "cxx_exception" for one in finding.supports)


@pytest.mark.parametrize(
    "stack",
    [
        crashed().module(LIBCUDA).frame(None, LIBCUDA),  # nobody's child
        crashed().process(fork_of=4200).frame("f", TORCH_CUDA),  # no driver
        worker().frame("cv::resize", "/x/libopencv_imgproc.so.4"),
        worker().died(mechanism=Mechanism.BUS_SHM_FULL).frame(None, LIBCUDA),
        worker().set(process=None),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


def test_near_miss_of_an_end_stays_quiet() -> None:
    assert ask_text(ID, stack_text("cuda-error", code=3)) == []  # no worker
    assert ask_text(ID, stack_text("cuda-error", code=35), death=ended(6, worker=True)) == []
    assert ask_text(ID, stack_text("fork-after-cuda"), death=killed()) == []


def test_missing_evidence_weakens() -> None:
    (unseen,) = ask_record(ID, worker())
    assert unseen.confidence is Confidence.POSSIBLE and len(unseen.unknown) == 2
    # The exception that ended it was another one.
    other = worker().aborted().frame("c10::cuda::c10_cuda_check_implementation", INIT)
    (other,) = ask_record(ID, other.set(cxx_exception=CxxException("N3c105ErrorE", "CUDA error: out of memory")))
    assert other.confidence is Confidence.POSSIBLE
    # A bad access in torch's own code says less than one in the driver.
    (outside,) = ask_record(ID, worker().frame("at::native::add", TORCH_CUDA))
    assert outside.confidence is Confidence.POSSIBLE


def test_the_record_says_whose_child_it_is() -> None:
    (finding,) = ask_text(ID, stack_text("fork-after-cuda"), death=ended(code=1, crash=worker().crash))
    assert [one.locator for one in finding.supports if one.source == "crash"] == ["process.fork_of"]
    (alone,) = ask_text(ID, stack_text("fork-after-cuda"), death=ended(code=1, crash=crashed().crash))
    assert [one.source for one in alone.supports].count("crash") == 0
