"""The reports of processes started at a crash, which lie beside the records and name them and their processes."""

from __future__ import annotations

import os

from ftforensics.cli.errors import UnreadableInput
from ftforensics.cli.reading import Found, read_contents
from ftforensics.model.basics import Gap
from ftforensics.model.helper_report import HelperReport
from ftforensics.wire.helper_report import read_helper_report

LARGEST_HELPER = 64 << 20
_END = ".helper.json"


class HelpersBeside:
    """Looks through each folder once at most, and only where a record has no report of a fitting name."""

    def __init__(self) -> None:
        self._folders: dict[str, dict[str, tuple[str, HelperReport]] | Gap] = {}

    def of(self, found: Found) -> HelperReport | Gap | None:
        """A Gap when there is one that cannot be used."""
        folder, name = os.path.split(found.path)
        expected = _stem(name) + _END
        if os.path.lexists(os.path.join(folder, expected)):
            report = _read(folder, expected)
            if report is None:
                return Gap("helper", f"{expected} lies beside the record and cannot be read")
            return report if isinstance(report, Gap) else _checked(found, expected, report)
        others = self._named_otherwise(folder)
        if isinstance(others, Gap):
            return others
        other = others.get(name)
        return _checked(found, *other) if other is not None else None

    def _named_otherwise(self, folder: str) -> dict[str, tuple[str, HelperReport]] | Gap:
        """By the record that they say they are about: somebody has renamed one of the two."""
        if folder not in self._folders:
            self._folders[folder] = _named_otherwise(folder)
        return self._folders[folder]


def _named_otherwise(folder: str) -> dict[str, tuple[str, HelperReport]] | Gap:
    try:
        names = sorted(name for name in os.listdir(folder or ".") if name.endswith(_END))
    except OSError as error:
        return Gap("helper", f"the folder of the record cannot be listed: {os.strerror(error.errno or 0)}")
    found: dict[str, tuple[str, HelperReport]] = {}
    for name in names:
        report = _read(folder, name)
        if isinstance(report, HelperReport) and report.record is not None:
            found.setdefault(report.record, (name, report))
    return found


def _read(folder: str, name: str) -> HelperReport | Gap | None:
    """None: it cannot be read."""
    path = os.path.join(folder, name)
    try:
        return read_helper_report(read_contents(path)) if os.stat(path).st_size <= LARGEST_HELPER else None
    except (UnreadableInput, OSError):
        return None


def _checked(found: Found, name: str, report: HelperReport) -> HelperReport | Gap:
    process = found.reading.record.process
    if process is not None and None not in (process.pid, report.pid) and process.pid != report.pid:
        return Gap("helper", f"{name} is about pid {report.pid}, not {process.pid}: left out")
    return report


def _stem(name: str) -> str:
    return name.removesuffix(".json").removesuffix(".crash")
