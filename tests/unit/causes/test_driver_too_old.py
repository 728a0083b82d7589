from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended, killed, unseen
from synth.gpu_stack import (
    COMPAT,
    TOO_OLD,
    about,
    commands,
    error,
    in_nccl,
    null_write,
    on_driver,
    printed,
    recorded,
    thrown,
)
from synth.software import NCCL, SoftwareBuilder

ID = "driver-too-old"
COMPAT_13 = "/usr/local/cuda-13.0/compat/libcuda.so.580.65.06"


def cu130(version: str | None = "530.30.02", api: int | None = 12010, libcuda: str | None = None) -> SoftwareBuilder:
    return on_driver(version, api, libcuda).torch("2.11.0", "13.0")


def too_old(death: DeathBuilder, form: str = "exception") -> DeathBuilder:
    return printed(death, error(35, TOO_OLD, form, version=12010))


@pytest.mark.parametrize(
    "death",
    [
        too_old(ended(code=1)),
        too_old(ended(6), "what"),
        too_old(ended(code=1), "warning").exception("RuntimeError", "No CUDA GPUs are available"),
        printed(ended(code=1), error(35)),
        recorded(too_old(ended(code=1)), cu130()),
    ],
    ids=range(5),
)
def test_fires(death: DeathBuilder) -> None:
    (finding,) = about(ID, death)
    assert finding.confidence is Confidence.LIKELY
    assert finding.remedies and any(remedy.settles for remedy in finding.remedies)


def test_the_level_in_the_text_is_enough_for_a_remedy() -> None:
    (finding,) = about(ID, too_old(ended(code=1)))
    assert finding.summary == "The driver offers CUDA 12.1, and torch was built for a newer CUDA."
    assert commands(finding)[0].endswith("/whl/cu121") and "torch==2.5.1" in commands(finding)[0]


def test_the_runtime_has_let_go_of_a_driver_that_it_refused() -> None:
    builder = cu130().without("/usr/lib/x86_64-linux-gnu/libcuda").on_driver(path=None)
    (finding,) = about(ID, builder.frame("ncclCommInitRank", NCCL))
    assert finding.confidence is Confidence.LIKELY


def test_fires_where_it_died_inside_cuda_with_a_driver_of_another_major_version() -> None:
    (finding,) = about(ID, cu130().frame("ncclCommInitRank", NCCL))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == (
        "The driver 530.30.02 offers CUDA 12.1, and torch 2.11.0 needs CUDA 13.0: another major version."
    )
    (finding,) = about(ID, thrown(cu130(), "CUDA driver version is insufficient for CUDA runtime version"))
    assert finding.confidence is Confidence.LIKELY


def test_below_the_floor_of_the_major_version() -> None:
    builder = on_driver("525.53", 12000).frame("ncclCommInitRank", NCCL)
    (finding,) = about(ID, builder)
    assert "525.60.13" in finding.summary
    (finding,) = about(ID, on_driver("450.36.06", 11000).torch("2.7.1+cu118", "11.8").frame("f", NCCL))
    assert "450.80.02" in finding.summary


def test_before_cuda_11_there_is_no_window() -> None:
    (finding,) = about(ID, on_driver("418.39", 10010).torch("1.12.1", "10.2").frame("f", NCCL))
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "asked",
    [
        in_nccl(on_driver()),  # within the window
        cu130("580.65.06", 13000).frame("f", NCCL),
        cu130("999.10.01", None).frame("f", NCCL),
        cu130("abc", 0).frame("f", NCCL),
        cu130("", None).frame("f", NCCL),
        cu130("1" * 4000, 10**9).frame("f", NCCL),
        cu130().set(driver=None).frame("f", NCCL),
        cu130().set(libraries=[]).on_driver(path=None),
        on_driver("580.65.06", 13000).torch("2.5.1", "12.1").frame("f", NCCL),  # an old torch on a new driver
        printed(ended(code=1), error(35, version=0)),
        printed(ended(code=1), error(36)),
        too_old(ended(code=0)),
        too_old(ended(alive=True)),
    ],
    ids=range(13),
)
def test_near_miss_stays_quiet(asked: SoftwareBuilder | DeathBuilder) -> None:
    assert about(ID, asked) == []


def test_a_compatibility_package_refutes_it() -> None:
    (finding,) = about(ID, cu130("570.124.06", 13000, COMPAT_13).frame("f", NCCL))
    assert finding.confidence is Confidence.RULED_OUT
    # One that cannot work raises nothing.
    (finding,) = about(ID, cu130("570.124.06", 12080, COMPAT).frame("f", NCCL))
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "asked",
    [
        cu130(),  # no stack
        null_write(cu130(), "/usr/lib/libx.so"),
        cu130().aborted("free(): invalid pointer"),
        too_old(ended(11)),
        too_old(killed()),
        too_old(unseen()),
        too_old(ended(code=1), "warning"),  # of what it ended nobody says
        too_old(ended(6), "warning").exception("RuntimeError", "No CUDA GPUs are available"),  # caught, then an abort
        too_old(ended(code=1), "warning").exception("FileNotFoundError", "data.bin"),
        printed(ended(code=1), error(35, form="line")).exception("OSError", "No space left on device"),
        recorded(too_old(ended(11)), null_write(cu130(), "/usr/lib/libx.so")),
        recorded(too_old(ended(code=1)), on_driver()),  # the torch that is there is not refused
    ],
    ids=range(12),
)
def test_missing_evidence_weakens(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.POSSIBLE, finding


def test_the_missing_stack_is_said() -> None:
    (finding,) = about(ID, too_old(ended(11)))
    assert finding.against and any(gap.grant for gap in finding.unknown)
