from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended, killed
from synth.gpu_stack import about, commands, error, on_driver, printed, recorded, thrown
from synth.software import SoftwareBuilder, stack_text

ID = "driver-library-missing"
NONE_FOUND = "Found no NVIDIA driver on your system."


def missing(library: str, **fields: object) -> DeathBuilder:
    text = f"{library}: cannot open shared object file: No such file or directory"
    return printed(ended(code=1), stack_text("library-missing", text, library=library, form="exception", **fields))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (printed(ended(code=1), error(221)), "libnvidia-ptxjitcompiler"),
        (thrown(on_driver(), "CUDA error: PTX JIT compiler library not found"), "libnvidia-ptxjitcompiler"),
        (missing("libcuda.so.1"), "libcuda.so.1"),
        (missing("/usr/lib/libnvidia-ml.so.1"), "libnvidia-ml.so.1"),
        (printed(ended(code=1), error(35, NONE_FOUND, version=0)), "No NVIDIA driver"),
        (printed(ended(code=1), error(35, NONE_FOUND, version=-1)), "No NVIDIA driver"),
    ],
    ids=range(6),
)
def test_fires(asked: SoftwareBuilder | DeathBuilder, said: str) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.LIKELY and said in finding.summary
    assert "NVIDIA_DRIVER_CAPABILITIES" in commands(finding)[0]


@pytest.mark.parametrize(
    "asked",
    [
        missing("libcudart.so.12"),
        missing("libcudnn.so.9"),
        missing("/opt/libcuda.so.d/libother.so.1"),
        printed(ended(code=1), error(35, version=12010)),
        printed(ended(code=1), error(35)),
        printed(ended(code=1), error(222)),
        printed(ended(code=0), error(221)),
        on_driver(),
        thrown(on_driver(), "CUDA error: out of memory"),
    ],
    ids=range(9),
)
def test_near_miss_stays_quiet(asked: SoftwareBuilder | DeathBuilder) -> None:
    assert about(ID, asked) == []


@pytest.mark.parametrize(
    "asked",
    [
        printed(killed(), error(221)),
        printed(ended(11), error(221)),
        recorded(printed(ended(code=1), error(35, NONE_FOUND, version=0)), on_driver()),
        printed(ended(code=1), error(35, NONE_FOUND, "warning", version=0)).exception("ValueError", "bad shape"),
    ],
    ids=["killed", "no stack", "libcuda answered", "only a warning"],
)
def test_missing_evidence_weakens(asked: DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.POSSIBLE and finding.against
