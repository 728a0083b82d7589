from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import ended, killed
from synth.software import CUDNN, SITE, TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, crashed, cu128, stack_text

ID = "broken-install"


def damaged(path: str = CUDNN, how: str = "other content") -> SoftwareBuilder:
    return cu128().broken("nvidia-cudnn-cu12", "9.10.2.21", path, how).installed(verified=True, checked=4711)


def cut() -> SoftwareBuilder:
    """A mapped library of another size than its package installed; nobody compared the rest."""
    how = "12 bytes, 345 as nvidia-cudnn-cu12 9.10.2.21 installed it"
    stack = cu128().without(CUDNN)
    return stack.wheel(CUDNN, "libcudnn", "nvidia-cudnn-cu12", "", drifted=how)


@pytest.mark.parametrize("stack", [damaged(), cut()])
def test_fires_with_a_frame_in_a_damaged_library(stack: SoftwareBuilder) -> None:
    (finding,) = ask_record(ID, stack.frame(None, CUDNN))
    assert finding.confidence is Confidence.LIKELY
    assert "a damaged file of nvidia-cudnn-cu12 9.10.2.21: libcudnn.so.9 (" in finding.summary
    assert finding.remedies[0].command == "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21"
    assert finding.remedies[-1].settles


def test_of_several_damaged_files_the_one_on_the_stack_is_named() -> None:
    stack = damaged().broken("torch", "2.9.1", TORCH_CUDA, "other content")
    (finding,) = ask_record(ID, stack.frame("f", TORCH_CUDA))
    assert "in a damaged file of torch 2.9.1: libtorch_cuda.so (" in finding.summary


def test_fires_for_torch_with_its_companions() -> None:
    stack = cu128().broken("torch", "2.9.1", TORCH_CUDA, "other content").installed(verified=True)
    (finding,) = ask_record(ID, stack.frame("f", TORCH_CUDA))
    assert (finding.remedies[0].command or "").startswith(
        "pip install --force-reinstall torch==2.9.1 torchvision==0.24.1"
    )


def test_fires_on_the_loaders_word_when_the_package_is_absent() -> None:
    stack = cu128().pin("nvidia-cudnn-cu12", "9.10.2.21", None)
    death = ended(code=1, crash=stack.crash)
    (finding,) = ask_text(ID, stack_text("library-missing", library="libcudnn.so.9"), death=death)
    assert finding.confidence is Confidence.LIKELY
    assert finding.remedies[0].command == "pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21"


@pytest.mark.parametrize(
    "stack",
    [
        cu128().installed(verified=True).frame(None, CUDNN),
        damaged(f"{SITE}/nvidia/cudnn/include/cudnn.h", "missing"),  # an image without headers
        damaged().died(mechanism=Mechanism.KILLED),
        damaged().installed(verified=False),
        # Replaced after it was loaded: its package is not known any more.
        crashed().library(CUDNN, "libcudnn", "wheel", drifted="deleted after it was loaded").frame(None, CUDNN),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


def test_near_miss_of_an_end_stays_quiet() -> None:
    assert ask_text(ID, stack_text("library-missing", library="libtorch_cuda.so")) == []
    assert ask_text(ID, stack_text("library-missing", library="libfoo.so.1")) == []
    assert ask_text(ID, stack_text("library-missing", library="libcudnn.so.9"), death=killed()) == []


def test_missing_evidence_weakens() -> None:
    (elsewhere,) = ask_record(ID, damaged().frame("f", TORCH_CUDA))
    assert elsewhere.confidence is Confidence.POSSIBLE and elsewhere.against
    (aborted,) = ask_record(ID, damaged().aborted().frame("f", CUDNN))
    assert aborted.confidence is Confidence.POSSIBLE
    (sizes,) = ask_record(ID, cut().frame(None, CUDNN))
    assert any("only sizes" in one.why for one in sizes.unknown)
    (unseen,) = ask_record(ID, damaged())
    assert unseen.confidence is Confidence.LIKELY and unseen.unknown
    (text,) = ask_text(ID, stack_text("library-missing", library="libcudnn.so.9"))
    assert text.confidence is Confidence.POSSIBLE and text.unknown


def test_a_stripped_image_is_no_damage() -> None:
    stack = cu128()
    stripped = [
        type(one)(
            **{name: getattr(one, name) for name in one.__struct_fields__} | {"drifted": "9 bytes, 99 as installed"}
        )
        for one in stack.libraries
    ]
    (finding,) = ask_record(ID, stack.set(libraries=stripped).frame(None, CUDNN))
    assert finding.confidence is Confidence.POSSIBLE


def test_another_package_that_is_absent_is_not_the_missing_one() -> None:
    stack = cu128().pin("nvidia-nccl-cu12", "2.27.5", None)
    (finding,) = ask_text(
        ID, stack_text("library-missing", library="libcudnn.so.9"), death=ended(code=1, crash=stack.crash)
    )
    assert finding.confidence is Confidence.POSSIBLE and len(finding.remedies) == 1


def test_many_damaged_files_are_counted() -> None:
    stack = cu128().installed(verified=True)
    for number in range(9):
        stack = stack.broken("torch", "2.9.1", f"{SITE}/torch/lib/lib{number}.so", "missing")
    (finding,) = ask_record(ID, stack)
    assert "and 3 more" in [one.text for one in finding.supports]
