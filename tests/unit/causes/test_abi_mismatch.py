from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import ended, killed
from synth.software import SITE, TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, cu128, stack_text

ID = "abi-mismatch"
FLASH = f"{SITE}/flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"
OLD_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
NEW_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


def built_for_another() -> SoftwareBuilder:
    stack = cu128().wheel(FLASH, "extension", "flash-attn", "2.7.4")
    return stack.missing(FLASH, OLD_ABI, package="flash-attn", version="2.7.4", abi="pre-cxx11")


def test_fires_with_a_frame_in_the_extension() -> None:
    (finding,) = ask_record(ID, built_for_another().frame("mha_fwd", FLASH))
    assert finding.confidence is Confidence.LIKELY
    assert "needs 1 function that torch 2.9.1 does not have: it was built with the old std::string" in finding.summary
    assert any("c10::Error::Error(c10::SourceLocation" in one.text for one in finding.supports)
    assert finding.remedies[0].command == (
        "pip install --no-binary :all: --no-build-isolation --force-reinstall --no-deps flash-attn"
    )
    assert finding.remedies[-1].settles


@pytest.mark.parametrize(
    "symbol", [OLD_ABI, NEW_ABI, "_ZTVN3c1021AutogradMetaInterfaceE", "_ZNK2at10TensorBase4nameEv"]
)
def test_fires_on_the_importers_words(symbol: str) -> None:
    text = stack_text("undefined-symbol", library=FLASH, symbol=symbol, number=31)
    (finding,) = ask_text(ID, text, death=ended(code=1).exception("ImportError", "undefined symbol"))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary.startswith("flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so was built for another torch")


def test_a_first_use_build_is_built_again() -> None:
    path = "/root/.cache/torch_extensions/py311_cu128/cpu_adam/cpu_adam.so"
    (finding,) = ask_record(ID, cu128().missing(path, OLD_ABI).frame("f", path))
    assert finding.remedies[0].command == "rm -rf ~/.cache/torch_extensions"


@pytest.mark.parametrize(
    "stack",
    [
        cu128().frame("f", FLASH),
        built_for_another().died(mechanism=Mechanism.SENT_BY_PROCESS),
        cu128().set(software=None),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


@pytest.mark.parametrize("symbol", ["__nvJitLinkAddData_12_1", "PyInit_x", "_ZN5arrow6Status2OKEv", "_Z", "", None])
def test_near_miss_of_another_symbol_stays_quiet(symbol: str | None) -> None:
    assert ask_text(ID, stack_text("undefined-symbol", library=FLASH, symbol=symbol)) == []


def test_near_miss_of_an_end_stays_quiet() -> None:
    assert ask_text(ID, stack_text("undefined-symbol", library=FLASH, symbol=OLD_ABI), death=killed()) == []


def test_missing_evidence_weakens() -> None:
    (elsewhere,) = ask_record(ID, built_for_another().frame("f", TORCH_CUDA))
    assert elsewhere.confidence is Confidence.POSSIBLE and elsewhere.against
    (aborted,) = ask_record(ID, built_for_another().aborted().frame("c10::Error::Error", FLASH))
    assert aborted.confidence is Confidence.POSSIBLE
    (unseen,) = ask_record(ID, built_for_another())
    assert unseen.confidence is Confidence.POSSIBLE and unseen.unknown
    text = stack_text("undefined-symbol", library=FLASH, symbol=OLD_ABI)
    for death in (ended(11), ended(code=1).exception("ValueError", "much later")):
        (caught,) = ask_text(ID, text, death=death)
        assert caught.confidence is Confidence.POSSIBLE and caught.against


def test_missing_evidence_weakens_where_nobody_says_how_it_ended() -> None:
    text = stack_text("undefined-symbol", library=FLASH, symbol=OLD_ABI)
    (unseen,) = ask_text(ID, text, death=ended())
    assert unseen.confidence is Confidence.POSSIBLE
