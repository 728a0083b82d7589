"""report.json: the schema of design, safe to print."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from ftforensics.model.basics import Address, decode_hook
from ftforensics.model.diagnosis import Diagnosis, Frame
from ftforensics.report.json import render

Make = Callable[..., Diagnosis]


def test_the_members_of_the_schema(diagnosis: Diagnosis) -> None:
    report = json.loads(render(diagnosis))
    assert report["schema"] == "ftforensics.report/1"
    assert set(report) == {
        "schema",
        "verdict",
        "hypotheses",
        "processes",
        "attempts",
        "remedies",
        "gaps",
        "timeline",
        "changes",
        "world_size",
        "missing",
        "missing_on",
    }
    assert report["verdict"]["confidence"] == "likely"
    assert report["verdict"]["why"][0]["for"][0]["source"] == "crash"
    assert report["hypotheses"][0]["for"][0] == {
        "source": "crash",
        "locator": "signal.address plain",
        "text": "address 0x28 lies in no mapping plain",
    }
    assert report["processes"][0]["stack"][0]["offset"] == "0x1b2f2"
    assert report["gaps"][1]["grant"] == "--cap-add SYS_PTRACE plain"


def test_reading_it_back_gives_the_same_diagnosis(diagnosis: Diagnosis) -> None:
    assert msgspec.json.decode(render(diagnosis), type=Diagnosis, dec_hook=decode_hook) == diagnosis


def test_addresses_do_not_lose_bits(make_diagnosis: Make) -> None:
    process = make_diagnosis().processes[0]
    frame = Frame(offset=Address(0xFFFF_FFFF_FFFF_FFFF))
    changed = msgspec.structs.replace(process, stack=[frame])
    report = json.loads(render(make_diagnosis(processes=[changed])))
    assert report["processes"][0]["stack"][0]["offset"] == "0xffffffffffffffff"


def test_hostile_text_is_carried_but_does_nothing(make_diagnosis: Make, hostile: str, dangerous: list[str]) -> None:
    text = render(make_diagnosis(hostile))
    assert not [character for character in dangerous if character in text]
    report = json.loads(text)
    carried = "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in hostile)
    assert carried in report["verdict"]["summary"]


def test_it_ends_with_a_line_feed(diagnosis: Diagnosis) -> None:
    assert render(diagnosis).endswith("}\n")
