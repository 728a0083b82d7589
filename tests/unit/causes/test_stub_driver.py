from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended, killed
from synth.gpu_stack import about, commands, error, in_nccl, null_write, on_driver, printed, recorded, thrown
from synth.software import SoftwareBuilder

ID = "stub-driver"
STUB = "/usr/local/cuda/lib64/stubs/libcuda.so"


def stub() -> SoftwareBuilder:
    return on_driver(None, None, STUB)


@pytest.mark.parametrize(
    "asked",
    [
        in_nccl(stub()),
        stub(),  # no stack
        on_driver().without("/usr/lib/x86_64-linux-gnu/libcuda").library("/x/libcuda.so", "libcuda", "stubs"),
        thrown(on_driver(), "CUDA error: CUDA driver is a stub library"),
        printed(ended(code=1), error(34)),
        recorded(printed(ended(code=1), error(34)), stub()),
    ],
    ids=range(6),
)
def test_fires(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.LIKELY
    assert "LD_LIBRARY_PATH" in commands(finding)[0]


@pytest.mark.parametrize(
    "asked",
    [
        in_nccl(on_driver()),
        in_nccl(on_driver(None, 12010, "/usr/lib/wsl/lib/libcuda.so.1.1")),
        in_nccl(on_driver(None, None, "/opt/stubs.d/libcuda.so.1")),
        printed(ended(code=1), error(35, version=12010)),
        printed(ended(code=0), error(34)),
    ],
    ids=range(5),
)
def test_near_miss_stays_quiet(asked: SoftwareBuilder | DeathBuilder) -> None:
    assert about(ID, asked) == []


@pytest.mark.parametrize(
    "asked",
    [
        null_write(stub(), "/usr/lib/libx.so"),
        in_nccl(stub().system("/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06", "libcuda", "570.124.06")),
        printed(ended(11), error(34)),
        printed(killed(), error(34)),
    ],
    ids=["died elsewhere", "a real one is there too", "no stack", "killed"],
)
def test_missing_evidence_weakens(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.POSSIBLE and finding.against
