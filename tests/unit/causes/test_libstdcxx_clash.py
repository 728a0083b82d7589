from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import ended, killed
from synth.software import TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, crashed, cu128, stack_text

ID = "libstdcxx-clash"
PREFIX = "/opt/conda/envs/train"
SYSTEM = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"
CONDAS = f"{PREFIX}/lib/libstdc++.so.6.0.33"
EXTENSION = f"{PREFIX}/lib/python3.11/site-packages/own/_C.so"


def conda(*libraries: str) -> SoftwareBuilder:
    stack = crashed().environment("CONDA_PREFIX", PREFIX).installed(prefix=PREFIX)
    for path in libraries:
        stack = stack.library(path, "libstdc++", "conda" if path.startswith(PREFIX) else "system")
    return stack


def initialising(stack: SoftwareBuilder, libstdcxx: str) -> SoftwareBuilder:
    stack = stack.frame("std::codecvt<char16_t, char, __mbstate_t>::do_in", libstdcxx)
    return stack.frame("_GLOBAL__sub_I_library.cpp", EXTENSION).frame("call_init", "/lib64/ld-linux-x86-64.so.2")


@pytest.mark.parametrize("libraries", [(SYSTEM,), (CONDAS, SYSTEM)])
def test_fires(libraries: tuple[str, ...]) -> None:
    (finding,) = ask_record(ID, initialising(conda(*libraries), SYSTEM))
    assert finding.confidence is Confidence.LIKELY and "while a library was initialised" in finding.summary
    assert finding.remedies[-1].settles and finding.remedies[0].command


def test_fires_on_the_loaders_words() -> None:
    text = stack_text(
        "symbol-version", library=EXTENSION, symbol="GLIBCXX_3.4.32", file="/lib/x86_64-linux-gnu/libstdc++.so.6"
    )
    (finding,) = ask_text(ID, text)
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "_C.so needs GLIBCXX_3.4.32, which /lib/x86_64-linux-gnu/libstdc++.so.6 does not have."


@pytest.mark.parametrize(
    "stack",
    [
        initialising(conda(CONDAS), CONDAS),  # conda's own, as it should be
        conda(CONDAS).frame("f", TORCH_CUDA),
        crashed().system(SYSTEM, "libstdc++"),  # a plain virtual environment
        conda(SYSTEM).died(mechanism=Mechanism.KILLED),
        conda(),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


@pytest.mark.parametrize("symbol", ["GLIBC_2.38", "libcudnn_cnn_infer.so.8", None])
def test_near_miss_of_another_version_stays_quiet(symbol: str | None) -> None:
    assert ask_text(ID, stack_text("symbol-version", symbol=symbol)) == []
    assert ask_text(ID, stack_text("symbol-version", symbol="GLIBCXX_3.4.32"), death=killed()) == []


def test_missing_evidence_weakens() -> None:
    (elsewhere,) = ask_record(ID, conda(SYSTEM).frame("f", TORCH_CUDA))
    assert elsewhere.confidence is Confidence.POSSIBLE and elsewhere.against
    (unseen,) = ask_record(ID, conda(SYSTEM))
    assert unseen.confidence is Confidence.POSSIBLE and unseen.unknown
    # One libstdc++, and nothing wrong with it but where the process died.
    (alone,) = ask_record(ID, initialising(cu128().system(SYSTEM, "libstdc++"), SYSTEM))
    assert alone.confidence is Confidence.POSSIBLE and alone.against
    text = stack_text("symbol-version", library=EXTENSION, symbol="CXXABI_1.3.15")
    (went_on,) = ask_text(ID, text, death=ended(11))
    assert went_on.confidence is Confidence.POSSIBLE and went_on.against
