from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import DeathBuilder, ended, killed
from synth.gpu_stack import (
    COMPAT,
    CTYPES,
    EXTENSION,
    about,
    commands,
    error,
    in_nccl,
    null_call,
    null_write,
    on_driver,
    printed,
    recorded,
    thrown,
    words,
)
from synth.software import CUDNN, NCCL, TORCH_CUDA, SoftwareBuilder

ID = "driver-minor-window"
PTX = "CUDA error: the provided PTX was compiled with an unsupported toolchain."


@pytest.mark.parametrize(
    "crash",
    [
        in_nccl(on_driver()),
        null_call(on_driver(), ("fused_graph_launch", EXTENSION)),
        null_call(on_driver(), ("at::cuda::CUDAGraph::capture_begin", TORCH_CUDA)),
        in_nccl(on_driver("525.60.13", 12000)),
        in_nccl(on_driver(None, 12010)),  # a container that does not show the module
        in_nccl(on_driver(None, 12010, "/usr/lib/wsl/lib/libcuda.so.1.1")),
    ],
    ids=range(6),
)
def test_fires_for_a_null_function_that_a_cuda_library_called(crash: SoftwareBuilder) -> None:
    (finding,) = about(ID, crash)
    assert finding.confidence is Confidence.LIKELY, finding
    assert any("called by" in cite.text for cite in finding.supports) and "12.8" in finding.summary
    assert any(remedy.settles for remedy in finding.remedies)


def test_the_remedy_for_530_is_the_torch_of_its_own_level_then_those_of_the_window() -> None:
    (finding,) = about(ID, in_nccl(on_driver()))
    assert "530.30.02 offers CUDA 12.1" in finding.summary
    exact, *others = [command for command in commands(finding) if command.startswith("pip install")]
    index = "--index-url https://download.pytorch.org/whl/"
    assert exact == f"pip install torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 {index}cu121"
    assert [("cu126" in one, "torch==2.14.1 " in one) for one in others[:1]] == [(True, True)]
    assert [("cu128" in one, "torch==2.11.0 " in one) for one in others[1:]] == [(True, True)]
    assert any("570.26" in remedy.text for remedy in finding.remedies)
    settling = [remedy.command or "" for remedy in finding.remedies if remedy.settles]
    assert "unset LD_LIBRARY_PATH" in settling[0] and "torch==2.5.1" in settling[0]
    assert any("cuGraphAddNode" in cite.text and "12 more" in cite.text for cite in finding.supports)


@pytest.mark.parametrize(
    "crash",
    [
        null_write(on_driver()),
        null_call(on_driver(), ("ffi_call_unix64", "/usr/lib/libffi.so.8"), ("_call_function_pointer", CTYPES)),
        null_call(on_driver(), ("_PyEval_EvalFrameDefault", "/usr/bin/python3.11")),
        null_call(on_driver(), ("dot", "/venv/lib/python3.11/site-packages/numpy/_core/x.cpython-311-x86_64.so")),
        null_call(on_driver(), ("inner", "/usr/lib/libunrelated.so")),
        on_driver().aborted("free(): invalid pointer").frame("ncclCommAbort", NCCL),
        in_nccl(on_driver().without("/usr/lib/x86_64-linux-gnu/libcuda").on_driver(path=None)),
    ],
    ids=["null write", "ctypes", "interpreter", "numpy", "another library", "abort", "libcuda is not loaded"],
)
def test_an_older_driver_alone_is_possible_and_not_shown_to_be_the_cause(crash: SoftwareBuilder) -> None:
    (finding,) = about(ID, crash)
    assert finding.confidence is Confidence.POSSIBLE
    assert "not shown to be the cause" in finding.summary or "called a function" in finding.summary
    assert finding.against, "a change since the last run must not lift what speaks against it"


def test_a_driver_that_is_not_loaded_speaks_against_it() -> None:
    read = on_driver().frame("ncclCommInitRank", NCCL)
    (finding,) = about(ID, read)
    assert finding.unknown and not finding.against
    (finding,) = about(ID, read.without("/usr/lib/x86_64-linux-gnu/libcuda").on_driver(path=None))
    assert [cite.locator for cite in finding.against] == ["libcuda"]


@pytest.mark.parametrize(
    "crash",
    [
        in_nccl(on_driver("570.124.06", 12080)),
        in_nccl(on_driver("999.10.01", 15010)),  # newer than every table
        in_nccl(on_driver("999.10.01", None)),
        in_nccl(on_driver("470.82.01", 11040)),  # another major version is not the window
        in_nccl(on_driver().torch("2.9.1+cpu", None).set(libraries=[], driver=None)),
        in_nccl(on_driver().set(libraries=[]).on_driver(path=None)),  # nothing that opens a driver is loaded
        in_nccl(on_driver("abc", 0)),
        in_nccl(on_driver("9" * 4000, 10**9)),
        on_driver().died("SIGSEGV", Mechanism.SENT_BY_PROCESS, None),
    ],
    ids=range(9),
)
def test_near_miss_stays_quiet(crash: SoftwareBuilder) -> None:
    assert about(ID, crash) == []


def test_a_compatibility_package_that_raises_the_level_rules_it_out() -> None:
    (finding,) = about(ID, in_nccl(on_driver("530.30.02", 12080, COMPAT)))
    assert finding.confidence is Confidence.RULED_OUT
    assert any("12.8" in cite.text and "compatibility" in cite.text for cite in finding.against)


@pytest.mark.parametrize(
    "crash",
    [
        in_nccl(on_driver().system("/usr/local/cuda-12.1/lib64/libcudnn.so.9.1.0", "libcudnn", "9.1.0")),
        in_nccl(on_driver().pin("nvidia-cudnn-cu12", "9.10.2.21", "9.13.0.50")),
    ],
    ids=["two cuDNN", "another cuDNN than torch demands"],
)
def test_a_library_set_that_does_not_fit_comes_first(crash: SoftwareBuilder) -> None:
    (finding,) = about(ID, crash)
    assert finding.confidence is Confidence.POSSIBLE
    assert any("9.10.2.21" in cite.text or CUDNN in cite.text for cite in finding.against), finding.against


def test_missing_evidence_weakens() -> None:
    whole = in_nccl(on_driver())
    (finding,) = about(ID, whole.set(libraries=None))
    assert finding.confidence is Confidence.POSSIBLE
    assert any(gap.source == "libraries" for gap in finding.unknown)
    (finding,) = about(ID, null_call(on_driver()))  # no caller
    assert finding.confidence is Confidence.POSSIBLE and finding.unknown and not finding.against
    guessed = on_driver().died("SIGSEGV", Mechanism.NULL_CALL, 0).frame(None, None).frame("f", NCCL, trust="scan")
    (finding,) = about(ID, guessed)
    assert finding.confidence is Confidence.POSSIBLE
    assert about(ID, whole.set(driver=None)) == []
    assert about(ID, whole.set(software=None, libraries=[])) == []


def test_the_runtime_tells_the_cuda_where_torch_does_not() -> None:
    (finding,) = about(ID, in_nccl(on_driver().set(software=None)))
    assert finding.confidence is Confidence.LIKELY and "12.8" in finding.summary


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (printed(ended(code=1), error(222, PTX)), Confidence.LIKELY),
        (printed(ended(code=1), error(36)), Confidence.LIKELY),
        (printed(ended(6), error(36, form="what")), Confidence.LIKELY),
        (printed(ended(11), error(36, form="line")), Confidence.LIKELY),
        (printed(ended(11), error(36, form="warning")), Confidence.POSSIBLE),
        (printed(killed(), error(36)), Confidence.POSSIBLE),
        (recorded(printed(ended(11), error(36)), null_write(on_driver(), "/usr/lib/libx.so")), Confidence.POSSIBLE),
        (recorded(printed(ended(11), error(36)), in_nccl(on_driver())), Confidence.LIKELY),
        (
            recorded(printed(ended(code=1), error(36)), on_driver().pin("nvidia-cudnn-cu12", "9.10.2.21", "9.13.0.50")),
            Confidence.POSSIBLE,
        ),
    ],
    ids=range(9),
)
def test_the_texts_of_errors_36_and_222(death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = about(ID, death)
    assert finding.confidence is confidence, finding
    assert finding.supports[0].locator == "train.log:30"


@pytest.mark.parametrize("code", [34, 35, 209, 221, 802, 803, 804, 999])
def test_other_errors_are_other_causes(code: int) -> None:
    assert about(ID, printed(ended(code=1), error(code))) == []


def test_the_exception_in_the_record_counts_as_well() -> None:
    (finding,) = about(ID, thrown(on_driver(), PTX))
    assert finding.confidence is Confidence.LIKELY and "PTX" in finding.summary
    assert any("TORCH_CUDA_ARCH_LIST" in command for command in commands(finding))
    assert "530.30.02" in words(finding)
