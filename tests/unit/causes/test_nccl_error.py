from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "nccl-error"
TYPE = "torch.distributed.DistBackendError"
SAID = (
    "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, invalid usage (run "
    "with NCCL_DEBUG=WARN for details), NCCL version 2.19.3\n"
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
    "Last error:\n"
    "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000"
)


def recorded(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1, "watched": True} | fields)).raised(TYPE, SAID)


def logged(**fields: object) -> DeathBuilder:
    return ended(**({"code": 1} | fields)).exception(TYPE, SAID, file=TRAIN)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, recorded())
    assert finding.confidence is Confidence.PROVEN
    assert finding.summary.startswith(
        "NCCL failed in this process (ncclInvalidUsage: Duplicate GPU detected : rank 0 and rank 1 both "
        "on CUDA device 2000)"
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
        ended(code=1).exception(TYPE, SAID.replace("ncclInvalidUsage", "ncclRemoteError"), file=TRAIN, peer_lost=True),
        ended(code=1).raised(
            TYPE, "NCCL error in: x.cpp:1, remote process exited or there was a network error\nncclRemoteError: x"
        ),
        ended(code=1).exception("RuntimeError", "the job said NCCL error in: a, b", file=TRAIN),
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
        (ended(code=1).exception("RuntimeError", SAID), Confidence.POSSIBLE),
    ],
    ids=range(6),
)
def test_missing_evidence_weakens(ask_death: AskDeath, death: DeathBuilder, confidence: Confidence) -> None:
    (finding,) = ask_death(ID, death)
    assert finding.confidence is confidence
