from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended, killed, unseen
from synth.gpu_stack import COMPAT, about, driver_note, error, in_nccl, null_write, on_driver, printed, recorded, words
from synth.software import NCCL, SoftwareBuilder, stack_text

ID = "driver-half-upgraded"
NEWER = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"
NVML = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.124.06"
REFUSED = "Failed to initialize NVML: Driver/library version mismatch"


def torn(**driver: object) -> SoftwareBuilder:
    return on_driver("535.54.03", None, NEWER, **driver)


@pytest.mark.parametrize(
    "asked",
    [
        in_nccl(torn()),
        torn(),
        torn().aborted("terminate called").frame("f", "/usr/lib/libx.so"),  # the error came from elsewhere
        torn().frame("f", "/usr/lib/libx.so").frame("ncclCommInitRank", NCCL),
        in_nccl(on_driver("535.54.03", 12020, nvml_version="12.570.124.06")),
        in_nccl(on_driver("535.54.03", 12020, nvml_version="570.124.06")),
        in_nccl(on_driver("535.54.03", 12020).system(NVML, "libnvidia-ml", "570.124.06")),
        in_nccl(on_driver("535.54.03", 12020, note="NVML: Driver/library version mismatch")),
        driver_note(ended(code=1)),
        driver_note(ended(code=1)).exception("RuntimeError", "No CUDA GPUs are available"),
        driver_note(ended(6)),
        driver_note(ended(11)),
        printed(ended(code=1), stack_text("driver-versions", REFUSED, form="line")),
        recorded(printed(ended(code=1), error(803)), torn()),
    ],
    ids=range(14),
)
def test_fires(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.LIKELY, finding
    assert any("reboot" in (remedy.command or "") for remedy in finding.remedies)


def test_both_versions_are_cited() -> None:
    (finding,) = about(ID, torn())
    assert "535.54.03" in words(finding) and "570.124.06" in words(finding)


@pytest.mark.parametrize(
    "asked",
    [
        in_nccl(on_driver("535.54.03", 12020, nvml_version="12.535.54.03")),
        in_nccl(on_driver("535.54.03", 12080, COMPAT)),
        in_nccl(on_driver("535.54.03", None, "/usr/local/cuda/lib64/stubs/libcuda.so")),
        in_nccl(on_driver(None, 12010, "/usr/lib/wsl/lib/libcuda.so.1.1", nvml_version="12.531.14")),
        in_nccl(on_driver("abc", None, NEWER)),
        in_nccl(on_driver("535.54.03", 12020, nvml_version="abc")),
        in_nccl(on_driver("535.54.03", 12020, note="NVML: not asked, pynvml is missing")),
        driver_note(ended(code=1), "fallen-off-bus"),
        driver_note(ended(code=0)),
        printed(ended(code=1), error(35, version=12010)),
    ],
    ids=range(10),
)
def test_near_miss_stays_quiet(asked: SoftwareBuilder | DeathBuilder) -> None:
    assert about(ID, asked) == []


@pytest.mark.parametrize(
    "asked",
    [
        null_write(torn(), "/usr/lib/libx.so"),
        driver_note(ended(code=1)).exception("FileNotFoundError", "data.bin"),
        driver_note(ended(code=1), before=4000.0),
        driver_note(ended(code=1), before=-60.0),
        driver_note(ended(code=1), before=None),
        driver_note(killed()),
        driver_note(unseen()),
        recorded(driver_note(ended(11)), null_write(on_driver(), "/usr/lib/libx.so")),
        printed(ended(code=1), error(803)),
        printed(killed(), stack_text("driver-versions", REFUSED)),
    ],
    ids=range(10),
)
def test_missing_evidence_weakens(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.POSSIBLE
    assert finding.against or finding.unknown
