from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import DeathBuilder, ended, killed
from synth.software import (
    CUDNN,
    CUDNN_CNN,
    SITE,
    TORCH_CUDA,
    SoftwareBuilder,
    ask_record,
    ask_text,
    crashed,
    cu128,
    stack_text,
)

ID = "mixed-cuda-libraries"
SYSTEM = "/usr/local/cuda-12.1/lib64"
PRIVATE = f"{SITE}/ctranslate2.libs/libcudnn-74a4c495.so.9.1.0"


def two_cudnns() -> SoftwareBuilder:
    return cu128().system(f"{SYSTEM}/libcudnn_cnn.so.9.1.0", "libcudnn_cnn", "9.1.0", searched=SYSTEM)


def two_nccls() -> SoftwareBuilder:
    return cu128().system("/usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3", "libnccl", "2.19.3")


def test_fires_for_nccl_where_the_stack_leads_there() -> None:
    for function, library in ((None, "/usr/lib/x86_64-linux-gnu/libnccl.so.2.19.3"), ("initNCCLComm", TORCH_CUDA)):
        (finding,) = ask_record(ID, two_nccls().frame(function, library))
        assert finding.confidence is Confidence.LIKELY


def test_what_calls_cuda_under_another_name_is_no_place_without_cuda() -> None:
    for path in ("onnxruntime/capi/libonnxruntime_providers_cuda.so", "x/libmyops_cuda.so", "triton/_C/libtriton.so"):
        (finding,) = ask_record(ID, two_cudnns().frame("f", f"{SITE}/{path}"))
        assert finding.confidence is Confidence.LIKELY


def test_fires_with_both_places_and_versions() -> None:
    stack = two_cudnns().environment("LD_LIBRARY_PATH", SYSTEM).frame(None, f"{SYSTEM}/libcudnn_cnn.so.9.1.0")
    (finding,) = ask_record(ID, stack.frame("cudnnConvolutionForward", CUDNN).frame("at::native::conv", TORCH_CUDA))
    assert finding.confidence is Confidence.LIKELY and finding.against == []
    assert finding.summary == (
        "SIGSEGV in cuDNN 9.1.0 (/usr/local/cuda-12.1/lib64) while cuDNN 9.10.2.21 "
        "(.../site-packages/nvidia/cudnn/lib) is loaded too."
    )
    commands = [one.command for one in finding.remedies]
    assert "unset LD_LIBRARY_PATH" in commands
    assert "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21" in commands
    assert [one.settles for one in finding.remedies].count(True) == 1
    assert any("LD_LIBRARY_PATH=" in one.text for one in finding.supports)


def test_fires_wherever_the_stack_ends_and_says_what_speaks_against() -> None:
    (finding,) = ask_record(ID, two_cudnns().frame("cuLaunchKernel", "/usr/lib/libcuda.so.1"))
    assert finding.confidence is Confidence.LIKELY
    assert [one.text for one in finding.against] == ["no frame of the stack lies in any of these cuDNN libraries"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{SYSTEM}/libnvJitLink.so.12.1.105", "libnvJitLink"),
        (f"{SYSTEM}/libcudart.so.12.1.105", "libcudart"),
    ],
)
def test_fires_for_others_of_one_soname(path: str, kind: str) -> None:
    (finding,) = ask_record(ID, cu128().system(path, kind, "12.1.105"))
    assert finding.confidence is Confidence.LIKELY and finding.unknown


def test_fires_on_cudnns_own_words() -> None:
    text = stack_text("cudnn-versions", wanted="9.10.2", found="9.1.0")
    (finding,) = ask_text(ID, text)
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "torch was built with cuDNN 9.10.2 and met cuDNN 9.1.0."
    (finding,) = ask_text(ID, stack_text("cudnn-parts", library="libcudnn_ops.so.9.1.0"), death=ended(6))
    assert finding.confidence is Confidence.LIKELY and "libcudnn_ops.so.9.1.0" in finding.summary
    symbol = stack_text("undefined-symbol", library=f"{SITE}/x/libcusparse.so.12", symbol="__nvJitLinkAddData_12_1")
    (finding,) = ask_text(ID, symbol)
    assert finding.confidence is Confidence.LIKELY and "nvJitLink" in finding.summary


def test_the_pin_of_the_crashed_environment_is_the_cure() -> None:
    death = ended(6, crash=two_cudnns().aborted().crash)
    (finding,) = ask_text(ID, stack_text("cudnn-parts", library="libcudnn_cnn.so.9"), death=death)
    assert "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21" in [
        one.command for one in finding.remedies
    ]
    assert any(one.locator.startswith(SYSTEM) for one in finding.supports)


@pytest.mark.parametrize(
    "stack",
    [
        cu128(),  # eight parts of one set in one folder
        crashed(),
        two_cudnns().set(signal=None),
        two_cudnns().died(mechanism=Mechanism.SENT_BY_PROCESS),
        two_cudnns().died("SIGBUS", Mechanism.BUS_SHM_FULL),
        cu128().vendored(PRIVATE, "libcudnn", "ctranslate2 4.5.0", version="9.1.0").frame("f", CUDNN + "x"),
        crashed().torch("2.9.1+rocm6.4", None, hip="6.4"),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


@pytest.mark.parametrize(
    "death",
    [killed(), ended(code=0), ended(15), ended(1)],
)
def test_near_miss_of_an_end_stays_quiet(death: DeathBuilder) -> None:
    assert ask_text(ID, stack_text("cudnn-versions", wanted="9.10.2", found="9.1.0"), death=death) == []
    assert ask_text(ID, stack_text("undefined-symbol", symbol="_ZN3c105ErrorC2Ev")) == []


@pytest.mark.parametrize(
    "stack",
    [
        # A private copy, and the stack leads into it.
        cu128().vendored(PRIVATE, "libcudnn", "ctranslate2 4.5.0", version="9.1.0").frame("f", PRIVATE),
        # Two majors have different names.
        cu128().system("/usr/local/cuda-11.8/lib64/libcudart.so.11.8.89", "libcudart", "11.8.89"),
        # One version twice.
        cu128().system("/opt/x/libcudnn.so.9.10.2", "libcudnn", "9.10.2"),
        # It said itself what went wrong, and elsewhere.
        two_cudnns().died("SIGABRT", Mechanism.ABORT_CXX_EXCEPTION, None).frame("watchdog", TORCH_CUDA),
        two_cudnns().died(mechanism=Mechanism.STACK_OVERFLOW).frame("f", TORCH_CUDA),
        # It died where no CUDA is at work.
        two_cudnns().frame("PyArray_Return", f"{SITE}/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"),
        two_cudnns().frame("at::native::(anonymous namespace)::index_kernel", f"{SITE}/torch/lib/libtorch_cpu.so"),
        # Two NCCLs, and nothing leads there.
        two_nccls().frame("cuLaunchKernel", "/usr/lib/libcuda.so.1"),
    ],
)
def test_missing_evidence_weakens(stack: SoftwareBuilder) -> None:
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.POSSIBLE and finding.against


def test_missing_evidence_weakens_to_gaps() -> None:
    unknown = cu128().library("/opt/x/libcudnn.so.9", "libcudnn", "other")
    (finding,) = ask_record(ID, unknown)
    assert {one.source for one in finding.unknown} == {"libraries", "crash"}
    assert ask_record(ID, two_cudnns().set(libraries=None)) == []
    # An ImportError that was caught leaves the same words.
    caught = stack_text("undefined-symbol", library="libcusparse.so.12", symbol="__nvJitLinkAddData_12_1")
    (finding,) = ask_text(ID, caught, death=ended(code=1).exception("ValueError", "later"))
    assert finding.confidence is Confidence.POSSIBLE
    part = stack_text("cudnn-parts", library="libcudnn_cnn.so.9", form="line", number=5)
    for later, word in (
        ("later", Confidence.POSSIBLE),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", Confidence.LIKELY),
    ):
        (finding,) = ask_text(ID, part, death=ended(code=1).exception("ValueError", later))
        assert finding.confidence is word
    raised = stack_text("cudnn-versions", wanted="9.10.2", found="9.1.0", form="exception", number=5)
    (finding,) = ask_text(ID, raised, death=ended(code=1).exception("ValueError", "later"))
    assert finding.confidence is Confidence.POSSIBLE


def test_an_abort_inside_one_of_them_is_likely() -> None:
    (finding,) = ask_record(ID, two_cudnns().aborted().frame("cudnnCreate", CUDNN_CNN))
    assert finding.confidence is Confidence.LIKELY


def test_a_hostile_name_is_only_a_name() -> None:
    path = "/tmp/`rm -rf ~`\x1b[31m/libcudnn.so.9"
    (finding,) = ask_record(ID, cu128().library(path, "libcudnn", "other", version="'; rm -rf /"))
    assert all("rm -rf" not in (one.command or "") for one in finding.remedies)


def test_the_two_places_come_from_the_record_where_there_is_one() -> None:
    text = stack_text("cudnn-parts")
    (known,) = ask_text(ID, text, death=ended(6, crash=two_cudnns().aborted().crash))
    assert known.unknown == [] and known.summary == "The parts of cuDNN do not fit together."
    (unknown,) = ask_text(ID, text, death=ended(6))
    assert [one.source for one in unknown.unknown] == ["libraries"]
    (one_version,) = ask_text(ID, stack_text("cudnn-parts", library="libcudnn.so.9", wanted="9.1.0"))
    assert one_version.summary == "The parts of cuDNN do not fit together: libcudnn.so.9."


def test_the_runtime_has_an_article_in_a_sentence() -> None:
    stack = cu128().library("/srv/cuda/libcudart.so.12.1.105", "libcudart", "other", version="12.1.105")
    (finding,) = ask_record(ID, stack.frame("f", "/home/me/own.so"))
    assert " while the CUDA runtime is loaded from two places: " in finding.summary
    assert any(cite.text == "libcudart 12.1.105 (from elsewhere)" for cite in finding.supports)


def test_a_neighbour_in_the_folder_of_one_is_not_called_by_its_name() -> None:
    """torch's wheels before 2.0 brought cuDNN beside their own libraries."""
    torch = f"{SITE}/torch/lib"
    stack = crashed().wheel(f"{torch}/libcudnn.so.8", "libcudnn", "torch", "8.7.0")
    stack = stack.system(f"{SYSTEM}/libcudnn.so.8", "libcudnn", "8.9.2").frame(
        "at::native::mm", f"{torch}/libtorch_cuda.so"
    )
    (finding,) = ask_record(ID, stack)
    assert "while cuDNN is loaded from two places" in finding.summary
