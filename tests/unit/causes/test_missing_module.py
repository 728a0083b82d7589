from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "missing-module"
TYPE = "ModuleNotFoundError"
SAID = "No module named 'flash_attn'"


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(TYPE, SAID)


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception(TYPE, SAID, file=TRAIN)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith(
        "A Python module was not there: ModuleNotFoundError: No module named 'flash_attn', raised at train.py:80 in f0."
    )
    assert finding.supports[0].locator == "rank3.exception.json exceptions[0]"
    assert finding.remedies and all(remedy.text for remedy in finding.remedies)


def test_fires_by_the_log(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged())
    assert finding.confidence is Confidence.LIKELY
    assert finding.supports[0].text == f"{TYPE}: {SAID}"


@pytest.mark.parametrize(
    "death",
    [
        ended(code=1).exception(
            "ImportError", "/x/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2E", file=TRAIN
        ),
        ended(code=1).exception(
            "ImportError", "libcudart.so.12: cannot open shared object file: No such file", file=TRAIN
        ),
        ended(code=1).exception("AttributeError", "module 'x' has no attribute 'y'", file=TRAIN),
        ended(9).exception(TYPE, SAID, file=TRAIN),
        recorded(code=0),
        recorded(alive=True),
    ],
    ids=range(6),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


@pytest.mark.parametrize(
    ("death", "confidence"),
    [
        (recorded(watched=False, ending=[]), Confidence.LIKELY),
        (recorded(code=None), Confidence.LIKELY),
        (recorded(code=3), Confidence.LIKELY),
        (logged(code=None), Confidence.POSSIBLE),
        (logged(code=3), Confidence.POSSIBLE),
        (ended(code=1).exception("ImportError", "cannot import name 'A' from 'b' (/b.py)"), Confidence.POSSIBLE),
    ],
    ids=range(6),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is confidence


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("numpy", "pip install numpy"),
        ("PIL", "pip install pillow"),
        ("cv2.gapi", "pip install opencv-python"),
        ("some_module_of_mine", None),
        ("x'; rm -rf ~; '", None),
    ],
)
def test_nothing_is_installed_by_a_guessed_name(ask_death: AskDeath, module: str, command: str | None) -> None:
    (finding,) = ask_death(ID, ended(code=1).exception(TYPE, f"No module named '{module}'", file=TRAIN))
    commands = [remedy.command for remedy in finding.remedies if remedy.command and "pip install" in remedy.command]
    assert commands == ([command] if command else [])
    assert all("rm -rf" not in (remedy.command or "") for remedy in finding.remedies)
