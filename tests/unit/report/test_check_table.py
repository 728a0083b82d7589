"""The pre-flight table: what comes first, what is escaped, what fits."""

from __future__ import annotations

import json
import re

import pytest
from rich.cells import cell_len

from ftforensics.model.basics import Cite
from ftforensics.model.diagnosis import Confidence, Remedy
from ftforensics.model.preflight import Check, Preflight, Status, Subject, Suspect
from ftforensics.report import json as json_report
from ftforensics.report.check import render
from ftforensics.report.terminal import View

LINE = (
    "pip install torch==2.5.1 torchvision==0.20.1 torchaudio==2.5.1 --index-url https://download.pytorch.org/whl/cu121"
)
FAILED = Check(
    "driver-fits-torch",
    "driver",
    Status.FAIL,
    "driver 530.30.02 (CUDA 12.1) is too old for torch 2.15.0 (CUDA 13.2); it needs at least 580.65.06",
    "driver-too-old",
    Confidence.LIKELY,
    [Cite("driver", "module_version", "530.30.02")],
    [Remedy("Install the torch of this driver", LINE), Remedy("Run it in a fresh environment", settles=True)],
)
PREFLIGHT = Preflight(
    checks=[
        Check("torch", "libraries", Status.OK, "torch 2.15.0 (CUDA 13.2), Python 3.11.7"),
        FAILED,
        Check("shared-memory", "machine", Status.WARN, "/dev/shm has 512 MiB, 512 MiB free"),
        Check("kernel-log", "capture", Status.UNKNOWN, "not seen: whom", remedies=[Remedy("To see it", "sudo x")]),
    ],
    subject=Subject("2.15.0", "13.2", "530.30.02", "12.1", ["NVIDIA A100 (8.0)"], "3.11.7", "/venv"),
    causes=[Suspect("driver-too-old", Confidence.LIKELY, "too old")],
)


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_the_first_lines_say_whether_and_of_what() -> None:
    lines = render(PREFLIGHT, View()).splitlines()
    assert lines[0].startswith("1 of 4 checks fails, 1 warning, 1 could not be seen.")
    assert lines[0].endswith("NOT READY")
    assert "torch 2.15.0 (CUDA 13.2), driver 530.30.02 (CUDA 12.1)" in lines[1]


def test_a_failing_check_names_its_cause_its_fix_and_its_test() -> None:
    text = words(render(PREFLIGHT, View()))
    order = ["driver", "FAIL driver-fits-torch", "(driver-too-old, likely)", "Fix: Install", LINE, "To settle it:"]
    order += [
        "libraries",
        "ok torch",
        "machine",
        "WARN shared-memory",
        "capture",
        "? kernel-log",
        "To see it",
        "sudo x",
    ]
    order += ["ftforensics explain driver-too-old"]
    at = -1
    for one in order:
        assert (at := text.find(one, at + 1)) >= 0, one


def test_nothing_wrong_is_ready() -> None:
    good = Preflight(checks=[Check("torch", "libraries", Status.OK, "torch 2.15.0")])
    assert render(good, View()).splitlines()[0].endswith("   READY")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_it_fits(width: int) -> None:
    for line in render(PREFLIGHT, View(width=width)).splitlines():
        # A command is never wrapped: it is there to be copied.
        assert cell_len(line) <= width or line.strip() == LINE, line


def test_a_command_stands_whole_on_a_line() -> None:
    assert LINE in [line.strip() for line in render(PREFLIGHT, View(width=40)).splitlines()]


def test_verbose_shows_the_evidence() -> None:
    assert "module_version" not in render(PREFLIGHT, View())
    assert "module_version" in render(PREFLIGHT, View(verbose=True))


def test_foreign_text_is_escaped() -> None:
    said = "a\x1b[31mb\u202ec\nFAKE"
    hostile = Check(
        said, said, Status.FAIL, said, said, Confidence.LIKELY, [Cite(said, said, said)], [Remedy(said, said)]
    )
    preflight = Preflight(
        checks=[hostile], subject=Subject(torch=said, prefix=said), causes=[Suspect(said, Confidence.LIKELY, said)]
    )
    for view in (View(), View(verbose=True), View(width=40), View(colour=True)):
        text = render(preflight, view)
        if not view.colour:
            assert "\x1b" not in text
        assert "\x1b[31m" not in text and "\u202e" not in text
        assert not any(line.startswith("FAKE") for line in text.splitlines())


def test_colour_only_when_asked() -> None:
    assert "\x1b[" not in render(PREFLIGHT, View())
    assert "\x1b[1;31m" in render(PREFLIGHT, View(colour=True))


def test_the_json_holds_everything() -> None:
    read = json.loads(json_report.render(PREFLIGHT))
    assert read["schema"] == "ftforensics.check/1"
    assert [check["status"] for check in read["checks"]] == ["ok", "fail", "warn", "unknown"]
    assert read["causes"] == [{"cause": "driver-too-old", "confidence": "likely", "summary": "too old"}]
