from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import DeathBuilder, ended, killed
from synth.software import SITE, TORCH, TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, crashed, cu128, stack_text

ID = "openmp-clash"
INTEL = "/venv/lib/libiomp5.so"
LLVM = "/venv/lib/libomp.so"
GNU = f"{TORCH}/libgomp-a34b3233.so.1"


def related() -> SoftwareBuilder:
    return crashed().wheel(INTEL, "libiomp5", "intel-openmp", "2024.2.1").library(LLVM, "libomp", "other")


def test_fires_with_a_frame_in_one_of_them() -> None:
    (finding,) = ask_record(ID, related().frame("__kmp_suspend_64", LLVM))
    assert finding.confidence is Confidence.LIKELY
    assert "Intel's (libiomp5, /venv/lib)" in finding.summary and "LLVM's (libomp, /venv/lib)" in finding.summary
    assert finding.remedies[0].command == "export MKL_THREADING_LAYER=GNU" and finding.remedies[-1].settles


@pytest.mark.parametrize("death", [ended(6), ended(code=1)])
def test_fires_on_the_runtimes_own_words(death: DeathBuilder) -> None:
    (finding,) = ask_text(ID, stack_text("openmp-twice", library="libiomp5.so", file="/x/libomp.so"), death=death)
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "Two OpenMP runtimes met in the process: libiomp5.so and libomp.so."


def gnu_and_intel() -> SoftwareBuilder:
    return cu128().vendored(GNU, "libgomp", "torch 2.9.1").wheel(INTEL, "libiomp5", "intel-openmp", "2024.2.1")


@pytest.mark.parametrize(
    "stack",
    [
        crashed().wheel(INTEL, "libiomp5", "intel-openmp", "2024.2.1").frame("__kmp_x", INTEL),
        gnu_and_intel().frame("f", TORCH_CUDA),  # common, and the stack is elsewhere
        gnu_and_intel(),
        cu128()
        .vendored(GNU, "libgomp", "torch 2.9.1")
        .vendored(f"{SITE}/scikit_learn.libs/libgomp-947d5fa1.so.1", "libgomp", "scikit-learn 1.5.2"),
        related().died(mechanism=Mechanism.SENT_BY_PROCESS),
        related().set(libraries=None),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


def test_near_miss_of_an_end_stays_quiet() -> None:
    assert ask_text(ID, stack_text("openmp-twice", library="libiomp5.so"), death=killed()) == []


def test_missing_evidence_weakens() -> None:
    (elsewhere,) = ask_record(ID, related().frame("f", TORCH_CUDA))
    assert elsewhere.confidence is Confidence.POSSIBLE and elsewhere.against
    # The runtime had called what died.
    (below,) = ask_record(ID, related().frame("at::native::index_kernel", TORCH_CUDA).frame("__kmp_fork_call", LLVM))
    assert below.confidence is Confidence.POSSIBLE and "had called" in below.against[-1].text
    (unseen,) = ask_record(ID, related())
    assert unseen.confidence is Confidence.POSSIBLE and unseen.unknown
    # GNU's beside another one is possible at most, also with a frame in it.
    (harmless,) = ask_record(ID, gnu_and_intel().frame("GOMP_parallel", GNU))
    assert harmless.confidence is Confidence.POSSIBLE and harmless.against
    (went_on,) = ask_text(ID, stack_text("openmp-twice", library="libiomp5.so", file="libomp.so"), death=ended(11))
    assert went_on.confidence is Confidence.POSSIBLE and went_on.against


@pytest.mark.parametrize(
    ("death", "said"),
    [
        (ended(code=5), "went on"),
        (ended(code=1).exception("ValueError", "bad label 7"), "ValueError: bad label 7"),
        (ended(6).text("cxx-exception", "bad shard"), "bad shard"),
        (ended(6).text("heap", "free(): invalid pointer"), "free(): invalid pointer"),
    ],
    ids=["status 5", "exception", "C++ exception", "heap"],
)
def test_who_names_another_reason_had_gone_on(death: DeathBuilder, said: str) -> None:
    (finding,) = ask_text(ID, stack_text("openmp-twice", library="libiomp5.so", file="libomp.so"), death=death)
    assert finding.confidence is Confidence.POSSIBLE and said in finding.against[0].text
