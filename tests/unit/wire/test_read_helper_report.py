from __future__ import annotations

import pytest

from ftforensics.model.basics import Gap
from ftforensics.model.helper_report import HelperFrame, HelperReport
from ftforensics.wire.helper_report import read_helper_report

WHOLE = (
    b'{"schema": "ftforensics.helper/1", "record": "a.crash.json", "pid": 7, "tool": "py-spy", "version": "0.4.3", '
    b'"threads": [{"tid": 7, "name": "main", "frames": ['
    b'{"function": "f", "file": "a.py", "line": 3, "native": false}]}],'
    b' "gap": null, "ms": 340.5, "later": 1}'
)


def test_a_whole_report() -> None:
    report = read_helper_report(WHOLE)
    assert isinstance(report, HelperReport)
    assert report.threads[0].frames == [HelperFrame("f", "a.py", 3, False)]


def test_a_report_of_a_refusal() -> None:
    report = read_helper_report(
        b'{"schema": "ftforensics.helper/1", "gap": {"source": "ptrace", "why": "refused", "grant": "--cap-add"}}'
    )
    assert isinstance(report, HelperReport) and report.gap == Gap("ptrace", "refused", "--cap-add")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        WHOLE[:-1],
        b"\xff\xfe",
        b"[]",
        b'{"schema": "ftforensics.helper/2"}',
        b"{}",
        b"[" * 1_000_000,
        b'{"schema": "\xff"}',
    ],
)
def test_anything_else_is_a_gap(data: bytes) -> None:
    gap = read_helper_report(data)
    assert isinstance(gap, Gap) and gap.source == "helper"
