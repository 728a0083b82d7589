from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import ended, killed
from synth.software import SITE, TORCH, TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, cu128, stack_text

ID = "system-cuda-shadows-wheel"
SYSTEM = "/usr/local/cuda-12.1/lib64"


def shadowed(searched: str | None = SYSTEM) -> SoftwareBuilder:
    stack = cu128().without(f"{SITE}/nvidia/cudnn")
    return stack.system(f"{SYSTEM}/libcudnn.so.9.1.0", "libcudnn", "9.1.0", searched=searched)


def test_fires() -> None:
    stack = shadowed().environment("LD_LIBRARY_PATH", SYSTEM)
    (finding,) = ask_record(ID, stack.frame("at::native::conv", TORCH_CUDA))
    assert finding.confidence is Confidence.LIKELY and finding.against == []
    assert finding.summary == (
        "SIGSEGV with cuDNN 9.1.0 from /usr/local/cuda-12.1/lib64 loaded in place of nvidia-cudnn-cu12 9.10.2.21, "
        "by LD_LIBRARY_PATH=/usr/local/cuda-12.1/lib64."
    )
    assert finding.remedies[0].command == "unset LD_LIBRARY_PATH"
    assert finding.remedies[-1].settles


def test_fires_for_a_foreign_torch() -> None:
    stack = shadowed().without(f"{TORCH}/libtorch_cpu").system("/opt/libtorch/lib/libtorch_cpu.so", "libtorch_cpu")
    (finding,) = ask_record(ID, stack.frame("f", "/opt/libtorch/lib/libtorch_cpu.so"))
    assert finding.confidence is Confidence.LIKELY
    assert "PyTorch from /opt/libtorch/lib" in finding.summary
    assert any((one.command or "").startswith("pip install --force-reinstall torch==2.9.1") for one in finding.remedies)


def test_of_several_the_one_on_the_stack_is_named() -> None:
    blas = f"{SYSTEM}/libcublas.so.12.1.3"
    stack = shadowed().without(f"{SITE}/nvidia/cublas").system(blas, "libcublas", "12.1.3")
    for library, said in ((blas, "cuBLAS 12.1.3"), (f"{SYSTEM}/libcudnn.so.9.1.0", "cuDNN 9.1.0")):
        (finding,) = ask_record(ID, stack.frame("f", library))
        assert finding.summary.startswith(f"SIGSEGV with {said} from")


def test_the_runtime_has_an_article_in_a_sentence() -> None:
    stack = cu128().without(f"{SITE}/nvidia/cuda_runtime").system(f"{SYSTEM}/libcudart.so.12", "libcudart", "12.1.105")
    (finding,) = ask_record(ID, stack.frame("f", TORCH_CUDA))
    assert finding.summary.startswith("SIGSEGV with the CUDA runtime 12.1.105 from /usr/local/cuda-12.1/lib64 loaded")


def test_fires_on_cudnns_own_words_where_the_outside_file_is_known() -> None:
    text = stack_text("cudnn-versions", wanted="9.10.2", found="9.1.0")
    (finding,) = ask_text(ID, text, death=ended(6, crash=shadowed().aborted().crash))
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "stack",
    [
        cu128().frame("f", TORCH_CUDA),
        shadowed().torch(origin="other"),
        shadowed().torch(origin="conda"),
        shadowed().died(mechanism=Mechanism.BUS_TRUNCATED_FILE),
        cu128().system(f"{SYSTEM}/libcudnn.so.9.1.0", "libcudnn", "9.1.0"),  # both are there: a mix
        shadowed().set(libraries=None),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


def test_near_miss_of_an_end_stays_quiet() -> None:
    assert ask_text(ID, stack_text("cudnn-parts", library="libcudnn_ops.so.9")) == []
    assert ask_text(ID, stack_text("cudnn-versions", wanted="9.10.2", found="9.1.0"), death=killed()) == []


def test_missing_evidence_weakens() -> None:
    (elsewhere,) = ask_record(ID, shadowed().frame("step", "/home/me/own.so"))
    assert elsewhere.confidence is Confidence.POSSIBLE and elsewhere.against
    # An exception that torch threw runs through its libraries too.
    thrown = shadowed().died("SIGABRT", Mechanism.ABORT_CXX_EXCEPTION, None).frame("c10::Error::Error", TORCH_CUDA)
    (thrown_by_torch,) = ask_record(ID, thrown)
    assert thrown_by_torch.confidence is Confidence.POSSIBLE
    (text_only,) = ask_text(ID, stack_text("cudnn-versions", wanted="9.10.2", found="9.1.0"))
    assert text_only.confidence is Confidence.POSSIBLE and text_only.unknown
    # No stack at all: nothing leads elsewhere, and that is said.
    (unseen,) = ask_record(ID, shadowed(searched=None))
    assert unseen.confidence is Confidence.LIKELY
    assert {one.source for one in unseen.unknown} == {"crash"} and len(unseen.unknown) == 2


def test_the_gap_about_the_path_is_only_where_it_is_not_known() -> None:
    (known,) = ask_record(ID, shadowed().frame("f", TORCH_CUDA))
    assert known.unknown == []
    (unknown,) = ask_record(ID, shadowed(searched=None).frame("f", TORCH_CUDA))
    assert [one.why for one in unknown.unknown] == [
        "how it was found before the wheel's: LD_LIBRARY_PATH is not in the record"
    ]
