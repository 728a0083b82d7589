from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended, killed
from synth.gpu_stack import (
    COMPAT,
    about,
    driver_note,
    error,
    in_nccl,
    null_write,
    on_driver,
    printed,
    recorded,
    thrown,
    words,
)
from synth.software import SoftwareBuilder

ID = "compat-driver-mismatch"


def stale() -> SoftwareBuilder:
    """A package of 570 on a module of 580."""
    return on_driver("580.65.06", None, COMPAT)


def on_geforce() -> SoftwareBuilder:
    builder = on_driver("530.30.02", None, COMPAT)
    assert builder.driver is not None
    return builder.on_driver("530.30.02", None, COMPAT, "570.124.06").gpu("NVIDIA GeForce RTX 3090", "8.6")


@pytest.mark.parametrize(
    "asked",
    [
        in_nccl(stale()),
        stale(),
        in_nccl(on_geforce()),
        thrown(on_driver(), "CUDA error: forward compatibility was attempted on non supported HW"),
        printed(ended(code=1), error(803)),
        printed(ended(code=1), error(804)),
        recorded(printed(ended(code=1), error(803)), stale()),
    ],
    ids=range(7),
)
def test_fires(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.LIKELY
    assert any(remedy.settles and "/compat" in (remedy.command or "") for remedy in finding.remedies)


def test_both_versions_are_cited() -> None:
    (finding,) = about(ID, stale())
    assert "570.124.06" in words(finding) and "580.65.06" in words(finding)


@pytest.mark.parametrize(
    "asked",
    [
        in_nccl(on_driver("530.30.02", 12080, COMPAT)),  # newer than the module, on an A100: what it is made for
        in_nccl(on_driver("570.124.06", 12080, COMPAT)),  # the same version
        in_nccl(on_driver()),
        in_nccl(on_driver(None, 12010, "/usr/lib/wsl/lib/libcuda.so.1.1")),
        in_nccl(on_driver("abc", None, COMPAT)),
        printed(ended(code=1), error(35, version=12010)),
        printed(ended(code=0), error(804)),
    ],
    ids=range(7),
)
def test_near_miss_stays_quiet(asked: SoftwareBuilder | DeathBuilder) -> None:
    assert about(ID, asked) == []


def test_803_of_a_half_upgraded_driver_is_no_compatibility_package() -> None:
    torn = on_driver("535.54.03", None, "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06")
    (finding,) = about(ID, recorded(printed(ended(code=1), error(803)), torn))
    assert finding.confidence is Confidence.POSSIBLE and finding.against
    (other,) = about("driver-half-upgraded", recorded(printed(ended(code=1), error(803)), torn))
    assert other.confidence is Confidence.LIKELY


@pytest.mark.parametrize("before", [1.0, None])
def test_803_beside_the_kernels_line_about_two_versions_is_the_drivers(before: float | None) -> None:
    death = driver_note(printed(ended(code=1), error(803)), before=before)
    assert [one.confidence for one in about(ID, death)] == [Confidence.POSSIBLE]
    (other,) = about("driver-half-upgraded", death)
    assert other.confidence is Confidence.LIKELY and "kernel.log:30" in {cite.locator for cite in other.supports}
    # A line of long ago decides nothing, and 804 is of the package alone.
    old = driver_note(printed(ended(code=1), error(803)), before=4000.0)
    assert [one.confidence for one in about(ID, old)] == [Confidence.LIKELY]
    assert [one.confidence for one in about("driver-half-upgraded", old)] == [Confidence.POSSIBLE]
    other_number = driver_note(printed(ended(code=1), error(804)), before=before)
    assert [one.confidence for one in about(ID, other_number)] == [Confidence.LIKELY]
    both = driver_note(printed(ended(code=1), error(803), error(804)), before=before)
    assert [one.confidence for one in about(ID, both)] == [Confidence.LIKELY]


@pytest.mark.parametrize(
    "asked",
    [null_write(stale(), "/usr/lib/libx.so"), printed(killed(), error(804)), printed(ended(11), error(804))],
    ids=["died elsewhere", "killed", "no stack"],
)
def test_missing_evidence_weakens(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.POSSIBLE and finding.against
