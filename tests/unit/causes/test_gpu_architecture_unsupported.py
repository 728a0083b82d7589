from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended, killed
from synth.gpu_stack import about, commands, error, on_driver, printed, recorded, thrown
from synth.software import SoftwareBuilder

ID = "gpu-architecture-unsupported"
TEXT = "CUDA error: no kernel image is available for execution on the device"


def on_gpus(*gpus: tuple[str | None, str | None], torch: tuple[str, str] = ("2.11.0", "13.0")) -> SoftwareBuilder:
    builder = on_driver("580.65.06", 13000).on_driver("580.65.06", 13000, version="580.65.06").torch(*torch)
    for name, capability in gpus:
        builder = builder.gpu(name, capability)
    return builder


PASCAL = ("Tesla P100-SXM2-16GB", "6.0")
AMPERE = ("NVIDIA A100-SXM4-80GB", "8.0")
BLACKWELL = ("NVIDIA GeForce RTX 5090", "12.0")


@pytest.mark.parametrize(
    "asked",
    [
        printed(ended(code=1), error(209, TEXT)),
        printed(ended(6), error(209, TEXT, "what")),
        thrown(on_gpus(PASCAL), TEXT),
        recorded(printed(ended(code=1), error(209, TEXT)), on_gpus(PASCAL)),
    ],
    ids=range(4),
)
def test_fires(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.LIKELY
    assert any(remedy.settles for remedy in finding.remedies)


def test_the_remedy_fits_the_gpu() -> None:
    (finding,) = about(ID, recorded(printed(ended(code=1), error(209, TEXT)), on_gpus(PASCAL)))
    assert finding.summary == "torch 2.11.0+cu130 holds no code for Tesla P100-SXM2-16GB (6.0)."
    assert "/whl/cu126" in commands(finding)[0]
    blackwell = on_gpus(BLACKWELL, torch=("2.6.0", "12.4"))
    (finding,) = about(ID, recorded(printed(ended(code=1), error(209, TEXT)), blackwell))
    assert "torch==2.15.0" in commands(finding)[0]
    assert any('TORCH_CUDA_ARCH_LIST="12.0"' in command for command in commands(finding))


def test_where_torch_has_the_code_it_is_an_extension() -> None:
    (finding,) = about(ID, recorded(printed(ended(code=1), error(209, TEXT)), on_gpus(AMPERE)))
    assert "other than torch" in finding.summary and finding.confidence is Confidence.LIKELY
    assert not any("pip install torch==" in command for command in commands(finding))


def test_the_models_name_tells_the_capability_where_the_driver_does_not() -> None:
    (finding,) = about(ID, on_gpus(("Tesla P100-SXM2-16GB", None)))
    assert "(6.0)" in finding.summary


@pytest.mark.parametrize(
    "asked",
    [
        on_gpus(AMPERE),
        on_gpus(("NVIDIA L4", "8.9")),  # code for 8.6 runs there
        on_gpus(PASCAL, AMPERE),  # the job may have used the other one
        on_gpus((None, None)),
        on_gpus((None, "abc")),
        on_gpus((None, "9" * 4000)),
        on_gpus(PASCAL, torch=("2.99.0", "13.0")),  # a release that no table knows
        on_gpus(PASCAL, torch=("abc", "x.y")),
        on_gpus(PASCAL).torch("2.11.0", "13.0", "conda"),
        on_gpus(PASCAL).set(software=None),
        printed(ended(code=1), error(222)),
        printed(ended(code=0), error(209, TEXT)),
    ],
    ids=range(12),
)
def test_near_miss_stays_quiet(asked: SoftwareBuilder | DeathBuilder) -> None:
    assert about(ID, asked) == []


@pytest.mark.parametrize(
    "asked",
    [
        on_gpus(PASCAL),  # a memory fault is not how it shows
        printed(ended(11), error(209, TEXT)),
        printed(killed(), error(209, TEXT)),
        printed(ended(code=1), error(209, form="warning", symbol="sm_120")).exception("OSError", "disk"),
    ],
    ids=range(4),
)
def test_missing_evidence_weakens(asked: SoftwareBuilder | DeathBuilder) -> None:
    (finding,) = about(ID, asked)
    assert finding.confidence is Confidence.POSSIBLE and finding.against
