"""The one call behind `analyze` and the crash reporter: a case in, its diagnosis with function names out."""

from __future__ import annotations

from collections.abc import Sequence

from ftforensics.cli.inputs import gather
from ftforensics.cli.progress import Progress
from ftforensics.diagnose import DiskSymbols, diagnose
from ftforensics.host.host import Host
from ftforensics.model.case import Case
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.symbols.cache import SymbolCache


def diagnose_case(case: Case) -> Diagnosis:
    return diagnose(case, DiskSymbols(Host(), SymbolCache.of_user()))


def records_in_order(case: Case, diagnosis: Diagnosis) -> list[CrashRecord]:
    """The case's crash records as the reports want them: in the order of the processes, then those of none."""
    records = {record.path: record.record for record in case.records}
    of_processes = [records.pop(process.record) for process in diagnosis.processes if process.record in records]
    return [*of_processes, *records.values()]


def diagnose_paths(paths: Sequence[str]) -> Diagnosis:
    """Of crash records and run folders. Raises cli.errors.UnreadableInput when nothing in them can be read."""
    with Progress() as progress:
        return diagnose_case(gather(paths, pid=None, rank=None, progress=progress))
