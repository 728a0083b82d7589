"""Reads `*.helper.json`, what the crash reporter process wrote beside the record."""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.helper_report import HelperReport

SCHEMA = "ftforensics.helper/1"


def read_helper_report(data: bytes) -> HelperReport | Gap:
    """The report, or a Gap that says why the file gives none.

    It is written whole and then renamed: unlike a record, a cut one is no report.
    """
    try:
        report = msgspec.json.decode(data, type=HelperReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Gap("helper", f"the helper's report is unreadable: {error}")
    if report.schema != SCHEMA:
        return Gap("helper", f"the helper's report has schema {str(report.schema)[:60]!r}, expected {SCHEMA!r}")
    return report
