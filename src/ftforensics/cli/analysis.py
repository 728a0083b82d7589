"""The one call behind `analyze` and the crash reporter: a case in, its diagnosis with function names out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.cli.collector import without_collector
from ftforensics.cli.inputs import gather
from ftforensics.cli.progress import Progress
from ftforensics.cli.shares import in_shares
from ftforensics.diagnose import DiskSymbols, diagnose
from ftforensics.host.host import Host
from ftforensics.model.case import Case
from ftforensics.model.crash import CrashRecord
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.sources.ledger import changes_since_good
from ftforensics.sources.live import with_live
from ftforensics.sources.loaded import with_loaded
from ftforensics.sources.missing_symbols import complete_software
from ftforensics.sources.places import answers
from ftforensics.symbols.cache import SymbolCache


def diagnose_case(case: Case) -> Diagnosis:
    host = Host()
    with without_collector():
        return diagnose(case, DiskSymbols(host, _cache(host)), in_shares)


def _cache(host: Host) -> SymbolCache:
    cache = SymbolCache.of_user()
    there = cache.directory is None or answers(host, str(cache.directory))
    return cache if there else SymbolCache(None)


def completed(case: Case, host: Host) -> Case:
    """The case with all that this machine can still say about it. May take a minute where its commands hang."""
    case = with_live(with_loaded(case, host), host)
    records = [msgspec.structs.replace(one, record=_with_missing_symbols(one.record, host)) for one in case.records]
    return msgspec.structs.replace(case, records=records, changes=changes_since_good(host, case))


def _with_missing_symbols(record: CrashRecord, host: Host) -> CrashRecord:
    """Files count only where they are the mapped ones, by build-id: also on another machine."""
    if record.software is None or not record.libraries:
        return record
    return msgspec.structs.replace(record, software=complete_software(host, record.software, record.libraries))


def records_in_order(case: Case, diagnosis: Diagnosis) -> list[CrashRecord]:
    """The case's crash records as the reports want them: in the order of the processes, then those of none."""
    records = {record.path: record.record for record in case.records}
    of_processes = [records.pop(process.record) for process in diagnosis.processes if process.record in records]
    return [*of_processes, *records.values()]


def diagnose_paths(paths: Sequence[str]) -> Diagnosis:
    """Of crash records and run folders. Raises cli.errors.UnreadableInput when nothing in them can be read."""
    with Progress() as progress:
        return diagnose_case(gather(paths, pid=None, rank=None, progress=progress))
