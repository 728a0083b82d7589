from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import TORCH, TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "disk-full"
TYPE = "OSError"
SAID = "[Errno 28] No space left on device: '/data/out/ckpt.pt'"


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(TYPE, SAID)


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception(TYPE, SAID, file=TRAIN)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith(
        "The disk was full: OSError: [Errno 28] No space left on device: '/data/out/ckpt.pt', raised at "
        "train.py:80 in f0."
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
        ended(code=1).exception("OSError", "[Errno 28] No space left on device: '/dev/shm/x'", file=TRAIN),
        ended(code=1).exception(
            "RuntimeError", "unable to write to file </torch_1_2_3>: No space left on device (28)", file=TORCH
        ),
        ended(code=1).exception("RuntimeError", "could not save: No space left on device", file=TRAIN),
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
        (
            ended(code=1).exception(
                "RuntimeError", "[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534", file=TORCH
            ),
            Confidence.POSSIBLE,
        ),
        (ended(code=1).exception("RuntimeError", "basic_ios::clear: iostream error", file=TORCH), Confidence.POSSIBLE),
    ],
    ids=range(7),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is confidence


def test_it_names_the_folder_and_the_quota(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged())
    assert finding.remedies[0].command == "df -h /data/out; df -i /data/out; quota -s"
    said = "[Errno 122] Disk quota exceeded: '/home/u/x'"
    (quota,) = ask_death(ID, ended(code=1).exception("OSError", said, file=TRAIN))
    assert quota.summary.startswith("The user's quota of the disk was used up")


def test_a_chain_is_led_back_to_the_first_failure(ask_death: AskDeath) -> None:
    """torch.save on a full disk: its writer fails at the end once more."""
    later = "[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"
    death = ended(code=1).exception("OSError", "[Errno 28] No space left on device", file=TORCH, number=20)
    (finding,) = ask_death(ID, death.exception("RuntimeError", later, file=TORCH, chained=True, handling=True))
    assert finding.confidence is Confidence.LIKELY
    assert "OSError: [Errno 28] No space left on device" in finding.summary
