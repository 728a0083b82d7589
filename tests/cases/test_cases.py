"""Every labelled death in this folder, from what lies in its own folder alone: the accepted cause, the right root,
never a cause that the label excludes.

A case has a launcher.log and a kernel.log (empty where the kernel said nothing), and may have crash records.
expected.json: `cause` is a list of accepted ids (null among them: undecided is accepted; no list: anything that is not
in `not_cause`), `not_cause` must not be the verdict, `confidence` lists accepted words, `mechanism` is
`verdict.mechanism`, `root` the pid that must have the role root (null: of a process whose pid nobody says), `top` the
first hypothesis beside the verdict, `none_of` ids that must be no hypothesis at all. `given` holds what a person would
add (`exit_code`); `symbols` stands for the symbol tables of libraries that are not here. `launcher_exit` and `seen`
(the public report that the case retells in a few lines) only inform.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ftforensics.causes.registry import find_cause
from ftforensics.cli.inputs import gather
from ftforensics.cli.progress import Progress
from ftforensics.diagnose import diagnose
from ftforensics.diagnose.names import Resolution, module_offsets
from ftforensics.host.host import Host
from ftforensics.model.crash import CrashRecord, RawFrame
from ftforensics.model.diagnosis import Confidence, Diagnosis
from ftforensics.sources.live import with_live

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/expected.json"))
# Ordinary Python deaths: their causes are not here yet; what must not be said holds already.
NOT_YET = {"python-exception", "loss-nan"}


def label_of(case: Path) -> dict[str, Any]:
    label: dict[str, Any] = json.loads((case / "expected.json").read_text())
    return label


def verdict_of(case: Path) -> Diagnosis:
    label = label_of(case)
    symbols: dict[str, str] = label.get("symbols", {})
    files = [case / "launcher.log", case / "kernel.log", *sorted(case.glob("*.crash.json"))]
    with Progress() as progress:
        gathered = gather(
            [str(file) for file in files], pid=None, rank=None, progress=progress, **label.get("given", {})
        )

    def named(record: CrashRecord, raw: Sequence[RawFrame]) -> Resolution:
        found = module_offsets(record, raw)
        frames = [
            msgspec.structs.replace(frame, function=symbols.get(f"{frame.library}+{frame.offset or 0:#x}"))
            for frame in found.frames
        ]
        return Resolution(frames, found.gaps)

    return diagnose(with_live(gathered, Host()), named if symbols else module_offsets)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Path) -> None:
    expected = label_of(case)
    diagnosis = verdict_of(case)
    verdict = diagnosis.verdict
    assert verdict.cause not in expected.get("not_cause", [])
    accepted = expected.get("cause")
    if accepted is not None and not NOT_YET & set(accepted):
        assert verdict.cause in accepted
    if "confidence" in expected:
        assert verdict.confidence in expected["confidence"]
    if "mechanism" in expected:
        assert verdict.mechanism == expected["mechanism"]
    assert [process.pid for process in diagnosis.processes if process.role == "root"] == [expected["root"]]
    heard = [found.cause for found in diagnosis.hypotheses if found.confidence is not Confidence.RULED_OUT]
    if "top" in expected:
        assert [cause for cause in heard if cause != verdict.cause or cause == expected["top"]][:1] == [expected["top"]]
    assert not set(heard) & set(expected.get("none_of", []))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_library_and_no_driver_is_proven_guilty(case: Path) -> None:
    """Nobody with authority ever names them: that is what people conclude."""
    for found in verdict_of(case).hypotheses:
        cause = find_cause(found.cause)
        assert cause is not None
        assert cause.family != "cuda" or found.confidence is not Confidence.PROVEN


def test_the_cases_are_there() -> None:
    assert len(CASES) >= 80
    assert sum("seen" in label_of(case) for case in CASES) >= 30
