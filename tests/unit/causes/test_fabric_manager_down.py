from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended, killed
from synth.gpu_stack import about, error, on_driver, printed, recorded, thrown, xid
from synth.software import SoftwareBuilder

ID = "fabric-manager-down"
TEXT = "CUDA error: system not yet initialized"


def on_gpu(name: str) -> DeathBuilder:
    builder = on_driver("570.124.06", 12080).on_driver("570.124.06", 12080).gpu(name, None)
    return recorded(printed(ended(code=1), error(802, TEXT)), builder)


@pytest.mark.parametrize(
    "asked",
    [
        printed(ended(code=1), error(802, TEXT)),
        thrown(on_driver(), TEXT),
        on_gpu("NVIDIA H100 80GB HBM3"),
        on_gpu("NVIDIA A100-SXM4-80GB"),
        on_gpu("NVIDIA X900"),  # a model that no table knows
    ],
    ids=range(5),
)
def test_fires(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.LIKELY
    assert any("fabricmanager" in (remedy.command or "") for remedy in finding.remedies)


def test_an_event_of_a_switch_is_cited() -> None:
    (finding,) = about(ID, xid(printed(ended(code=1), error(802, TEXT)), 20034, None, pid=None, switch=True))
    assert sum(cite.source == "kmsg" for cite in finding.supports) == 1


@pytest.mark.parametrize(
    "asked",
    [printed(ended(code=1), error(803)), printed(ended(code=0), error(802, TEXT)), on_driver()],
    ids=range(3),
)
def test_near_miss_stays_quiet(asked: SoftwareBuilder | DeathBuilder) -> None:
    assert about(ID, asked) == []


@pytest.mark.parametrize(
    "asked",
    [
        on_gpu("NVIDIA GeForce RTX 4090"),
        on_gpu("NVIDIA A100-PCIE-40GB"),
        printed(killed(), error(802, TEXT)),
        printed(ended(11), error(802, TEXT)),
    ],
    ids=["no data-center GPU", "no switch", "killed", "no stack"],
)
def test_missing_evidence_weakens(asked: DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.POSSIBLE and finding.against
