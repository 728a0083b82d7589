from __future__ import annotations

import pytest

from ftforensics.model.crash import Module
from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import ended, killed
from synth.software import CUBLAS, CUDNN, TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, cu128, stack_text

ID = "drifted-cuda-library"


def drifted(installed: str = "9.13.0.50") -> SoftwareBuilder:
    stack = cu128().without("/venv/lib/python3.11/site-packages/nvidia/cudnn")
    stack = stack.pin("nvidia-cudnn-cu12", "9.10.2.21", installed)
    return stack.wheel(CUDNN, "libcudnn", "nvidia-cudnn-cu12", installed, pin="9.10.2.21", pinned_by="torch 2.9.1")


def test_fires_with_a_frame_in_it() -> None:
    (finding,) = ask_record(ID, drifted().frame(None, CUDNN).frame("at::native::conv", TORCH_CUDA))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "SIGSEGV in nvidia-cudnn-cu12 9.13.0.50, where torch 2.9.1 demands 9.10.2.21."
    assert finding.remedies[0].command == "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21"
    assert [one.settles for one in finding.remedies].count(True) == 1


@pytest.mark.parametrize("kind", ["cudnn-versions", "cudnn-parts", "cudnn-status"])
def test_fires_on_cudnns_own_words_about_it(kind: str) -> None:
    """As CUDNN_STATUS_NOT_INITIALIZED for which the driver was blamed."""
    death = ended(6, crash=drifted().aborted().crash)
    (finding,) = ask_text(ID, stack_text(kind), death=death)
    assert finding.confidence is Confidence.LIKELY


def test_fires_where_a_library_was_replaced_while_it_ran() -> None:
    stack = cu128()
    modules = [Module(one.path, one.base, one.end, deleted=one.path == CUDNN) for one in stack.record.modules or []]
    (finding,) = ask_record(ID, stack.set(modules=modules).frame(None, CUDNN))
    assert finding.confidence is Confidence.LIKELY and "was replaced on disk" in finding.summary


@pytest.mark.parametrize("path", [CUBLAS, CUDNN])
def test_of_several_replaced_libraries_the_one_on_the_stack_is_named(path: str) -> None:
    stack = cu128()
    modules = [Module(one.path, one.base, one.end, deleted=True) for one in stack.record.modules or []]
    (finding,) = ask_record(ID, stack.set(modules=modules).frame(None, path))
    assert f"after {path.rpartition('/')[2]} was replaced on disk" in finding.summary


@pytest.mark.parametrize(
    "stack",
    [
        cu128().frame(None, CUDNN),
        drifted().torch(origin="conda").set(libraries=[]),
        drifted().died(mechanism=Mechanism.KILLED),
        drifted().set(signal=None),
        cu128().pin("nvidia-nccl-cu12", "2.27.5", None),  # missing is not drifted
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


def test_near_miss_of_a_text_stays_quiet() -> None:
    fits = ended(6, crash=cu128().aborted().crash)
    assert ask_text(ID, stack_text("cudnn-status"), death=fits) == []
    assert ask_text(ID, stack_text("cudnn-versions")) == []
    assert ask_text(ID, stack_text("cudnn-status"), death=killed(crash=drifted().crash)) == []


@pytest.mark.parametrize(
    "stack",
    [
        drifted().frame("f", CUBLAS),
        drifted(),
        drifted("9.10.3").frame(None, CUDNN),  # a newer patch
        drifted().frame(None, CUDNN, trust="scan"),
    ],
)
def test_missing_evidence_weakens(stack: SoftwareBuilder) -> None:
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.POSSIBLE and (finding.against or finding.unknown)


def test_a_library_whose_package_is_not_known_is_known_by_its_kind() -> None:
    stack = drifted().without(CUDNN).library(CUDNN, "libcudnn", "wheel").library(CUBLAS, "libcublas", "wheel")
    (finding,) = ask_record(ID, stack.frame(None, CUDNN))
    assert finding.confidence is Confidence.LIKELY
    (finding,) = ask_record(ID, stack.frame(None, CUBLAS))
    assert finding.confidence is Confidence.POSSIBLE


def test_a_newer_patch_stays_possible_whatever_cudnn_says() -> None:
    (finding,) = ask_text(ID, stack_text("cudnn-status"), death=ended(6, crash=drifted("9.10.3").aborted().crash))
    assert finding.confidence is Confidence.POSSIBLE
    raised = stack_text("cudnn-status", form="exception", number=5)
    death = ended(code=1, crash=drifted().crash).exception("ValueError", "later")
    (finding,) = ask_text(ID, raised, death=death)
    assert finding.confidence is Confidence.POSSIBLE
