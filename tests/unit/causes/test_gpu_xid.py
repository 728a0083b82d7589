from __future__ import annotations

import pytest

from ftforensics.model.death import Tie
from ftforensics.model.diagnosis import Confidence
from synth.death import DeathBuilder, ended, killed, unseen
from synth.gpu_stack import about, commands, driver_note, in_nccl, null_write, on_driver, recorded, xid

ID = "gpu-xid"


@pytest.mark.parametrize(
    ("death", "said"),
    [
        (xid(ended(6), 31), "as a rule a mistake in its GPU code, no broken hardware"),
        (xid(ended(code=1), 13), "no broken hardware"),
        (xid(ended(code=1), 43), "(Xid 43)"),
        (xid(ended(code=1), 79), "hardware failed under this process"),
        (xid(ended(code=1), 94), "hardware failed"),
        (xid(ended(code=1), 119), "driver or firmware failed"),
        (xid(ended(6), 48, Tie.STRONG), "hardware failed"),
        (xid(ended(11), 31), "(Xid 31)"),
        (xid(ended(6), 31, before=None), "(Xid 31)"),
        (xid(ended(code=1), 79, Tie.TEXT, before=None).exception("RuntimeError", "CUDA error: unknown"), "hardware"),
        (recorded(xid(ended(11), 31), in_nccl(on_driver())), "(Xid 31)"),
    ],
    ids=range(11),
)
def test_fires(death: DeathBuilder, said: str) -> None:
    (finding,) = about(ID, death)
    assert finding.confidence is Confidence.LIKELY and said in finding.summary
    assert finding.supports[0].source == "kmsg" and any(remedy.settles for remedy in finding.remedies)


def test_it_is_never_proven() -> None:
    for number in (8, 13, 31, 43, 48, 74, 79, 94, 95, 119, 120):
        (finding,) = about(ID, xid(ended(6), number))
        assert finding.confidence is Confidence.LIKELY


def test_a_program_is_told_to_look_at_itself_and_hardware_is_tested() -> None:
    (finding,) = about(ID, xid(ended(6), 31))
    assert any("compute-sanitizer" in command for command in commands(finding))
    (finding,) = about(ID, xid(ended(6), 48))
    assert any("dcgmi" in command for command in commands(finding))


def test_what_follows_an_event_is_not_the_reason() -> None:
    death = xid(xid(xid(ended(6), 45, before=0.5), 43, before=0.8), 31, before=1.0)
    (finding,) = about(ID, death)
    assert "(Xid 31)" in finding.summary
    # The log may have them in either order.
    (finding,) = about(ID, xid(xid(ended(6), 43, before=1.0), 31, before=0.9))
    assert "(Xid 31)" in finding.summary


@pytest.mark.parametrize(
    "death",
    [
        ended(6),
        xid(ended(code=0), 31),
        xid(ended(6), 31, before=4000.0),
        xid(ended(6), 31, None, pid=900),  # another process's own mistake
        xid(ended(6), 13, None, pid=None),
        xid(ended(6), 79, None, pid=None, before=None),
        xid(ended(6), 79, None, pid=None, before=500.0),
        xid(killed(), 45),  # a killed process leaves one
        xid(ended(15), 43),
        xid(ended(6), 63, None, pid=None),  # ends nothing
        xid(ended(6), 99999, None, pid=None),
        driver_note(ended(6), "api-mismatch"),
        driver_note(ended(6), "fallen-off-bus", before=500.0),
    ],
    ids=range(13),
)
def test_near_miss_stays_quiet(death: DeathBuilder) -> None:
    assert about(ID, death) == []


@pytest.mark.parametrize(
    "death",
    [
        xid(ended(6), 31, before=600.0),
        xid(ended(6), 31, before=-30.0),
        xid(ended(6), 31, Tie.WEAK),
        xid(ended(6), 31, Tie.STRONG, before=None),
        xid(ended(6), 31, Tie.STRONG, "another name"),
        xid(ended(11), 31, Tie.TEXT, before=None),  # an old log may name a pid that was given out again
        xid(ended(code=1), 31, Tie.TEXT, before=None).exception("ValueError", "no"),
        xid(ended(6), 31, facility=1),
        xid(ended(6), 45),
        xid(ended(6), 63),
        xid(ended(6), 99999),
        xid(ended(6), None),
        xid(killed(), 79),
        xid(unseen(), 31),
        xid(ended(6), 79, None, pid=900),
        xid(ended(6), 79, None, pid=None),
        xid(ended(6), 20034, None, pid=None, switch=True),
        driver_note(ended(6), "fallen-off-bus"),
        recorded(xid(ended(11), 31), null_write(on_driver(), "/usr/lib/libx.so")),
    ],
    ids=range(19),
)
def test_missing_evidence_weakens(death: DeathBuilder) -> None:
    (finding,) = about(ID, death)
    assert finding.confidence is Confidence.POSSIBLE, finding
    assert finding.against or finding.unknown or finding.supports
