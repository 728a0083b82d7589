from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import DeathBuilder, ended, killed
from synth.software import SITE, TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, cu128, stack_text

ID = "stale-extension"
VISION = f"{SITE}/torchvision/_C.so"
FLASH = f"{SITE}/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"


def old_vision() -> SoftwareBuilder:
    return cu128().package("torchvision", "0.20.1").wheel(VISION, "extension", "torchvision", "0.20.1")


def test_fires_with_a_frame_in_the_companion() -> None:
    (finding,) = ask_record(ID, old_vision().frame("vision::ops::nms", VISION))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == (
        "SIGSEGV in torchvision 0.20.1, which was built for torch 2.5.1; torch 2.9.1 is installed."
    )
    command = finding.remedies[0].command or ""
    assert command == "pip install --force-reinstall torch==2.9.1 torchvision==0.24.1 torchaudio==2.9.1"
    assert finding.remedies[-1].settles


def test_fires_with_a_frame_in_an_extension_whose_owner_is_not_known() -> None:
    stack = cu128().package("flash-attn", "2.8.3+cu12torch2.5cxx11abiTRUE").frame("mha_fwd", FLASH)
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.LIKELY and "built for torch 2.5;" in finding.summary
    assert "--no-build-isolation" in (finding.remedies[0].command or "")


def xformers() -> SoftwareBuilder:
    return cu128().frame("at::native::mm", TORCH_CUDA).frame("efficient_attention_forward", f"{SITE}/xformers/_C.so")


@pytest.mark.parametrize("death", [ended(code=1), ended(11, crash=xformers().crash)])
def test_fires_on_the_packages_own_words(death: DeathBuilder) -> None:
    text = stack_text("built-for", library="xformers", wanted="2.1.0+cu121", found="2.9.1+cu128")
    (finding,) = ask_text(ID, text, death=death)
    assert finding.confidence is Confidence.LIKELY and finding.against == []
    assert finding.summary == "xformers was built for torch 2.1.0+cu121, and torch 2.9.1+cu128 is installed."


def test_fires_where_an_extension_asks_for_a_torch_with_cuda() -> None:
    (finding,) = ask_text(ID, stack_text("library-missing", library="libtorch_cuda_cu.so"))
    assert finding.confidence is Confidence.LIKELY and "libtorch_cuda_cu.so" in finding.summary
    (finding,) = ask_text(ID, stack_text("built-for", library="torchvision"))
    assert "could not use its compiled code" in finding.summary


@pytest.mark.parametrize(
    "stack",
    [
        cu128().frame("f", VISION),
        cu128().package("torchvision", "0.24.0").frame("f", VISION),  # another patch
        old_vision().torch("2.9.1a0+git123").frame("f", VISION),  # a build of one's own
        old_vision().died(mechanism=Mechanism.KILLED),
        old_vision().set(software=None),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


def test_near_miss_of_an_end_stays_quiet() -> None:
    assert ask_text(ID, stack_text("built-for", library="xformers"), death=killed()) == []
    assert ask_text(ID, stack_text("library-missing", library="libcudnn.so.9")) == []


def test_missing_evidence_weakens() -> None:
    (elsewhere,) = ask_record(ID, old_vision().frame("f", TORCH_CUDA))
    assert elsewhere.confidence is Confidence.POSSIBLE and elsewhere.against
    (unseen,) = ask_record(ID, old_vision())
    assert unseen.confidence is Confidence.POSSIBLE and unseen.unknown
    (aborted,) = ask_record(ID, old_vision().aborted().frame("f", VISION))
    assert aborted.confidence is Confidence.POSSIBLE
    # It warned, and the process died elsewhere.
    text = stack_text("built-for", library="xformers", wanted="2.1.0", found="2.9.1")
    (warned,) = ask_text(ID, text, death=ended(11, crash=cu128().frame("f", TORCH_CUDA).crash))
    assert warned.confidence is Confidence.POSSIBLE and warned.against
    (only_warned,) = ask_text(ID, text, death=ended(11))
    assert only_warned.confidence is Confidence.POSSIBLE and only_warned.unknown
    (gave_up,) = ask_text(ID, text, death=ended(6).text("cxx-exception", "another matter", "c10::Error"))
    assert gave_up.confidence is Confidence.POSSIBLE


def test_the_cure_is_for_the_package_that_spoke() -> None:
    death = ended(code=1, crash=cu128().crash)
    (vision,) = ask_text(ID, stack_text("built-for", library="torchvision"), death=death)
    assert "torchvision==0.24.1" in (vision.remedies[0].command or "")
    (absent,) = ask_text(ID, stack_text("library-missing", library="libtorch_cuda.so"), death=death)
    assert absent.remedies[-1].command == "ftforensics check" and "asks for a library" in absent.remedies[0].text
    (frame,) = ask_text(
        ID, stack_text("built-for", library="xformers", form="line"), death=ended(11, crash=xformers().crash)
    )
    assert any("efficient_attention_forward" in one.text for one in frame.supports)


def test_a_package_of_debians_folder_is_known_by_its_place() -> None:
    path = "/usr/lib/python3/dist-packages/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
    stack = cu128().package("flash-attn", "2.8.3+cu12torch2.5cxx11abiTRUE").frame("mha_fwd", path)
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.LIKELY
