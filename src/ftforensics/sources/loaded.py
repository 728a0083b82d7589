"""Fills in, afterwards, what a crash record does not hold about its libraries, its software and its driver.

The handler writes path, base and build-id of each module; package, version, torch's demands and the driver come from a
child process that may not have finished, or was not started. What is read now is evidence about the process only under
conditions, and always said: a library by its build-id, or by its path on the machine and boot of the crash; the
software and the driver on that boot.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import msgspec

from ftforensics.host.host import Host
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.crash import CrashRecord, Driver, Library, Module
from ftforensics.model.software import Software
from ftforensics.parsers.library_name import is_torch, kind_of
from ftforensics.sources.driver import installed_driver
from ftforensics.sources.identity_here import boot_of, host_name
from ftforensics.sources.libraries import Mapped, loaded_libcuda, loaded_libraries, with_pins
from ftforensics.sources.software import read_software


class Loaded(msgspec.Struct, frozen=True):
    """libraries, software, driver: as the record has them, or as read now; gaps: which of the two, and what stayed
    unknown."""

    libraries: list[Library] | None
    driver: Driver | None
    gaps: list[Gap]
    software: Software | None = None


class _Here(NamedTuple):
    """This machine's name and boot, read once."""

    name: str | None
    boot_id: str | None


def with_loaded(case: Case, host: Host) -> Case:
    """The case with every record's libraries, software and driver filled in where that can be done. Asks the driver,
    for up to three seconds a record: for the analyser, not for a process that a dying job waits for."""
    here = _here(host)
    return msgspec.structs.replace(case, records=[_completed(one, host, here) for one in case.records])


def _completed(one: CaseRecord, host: Host, here: _Here) -> CaseRecord:
    found = loaded(one.record, host, here)
    record = msgspec.structs.replace(
        one.record, libraries=found.libraries, driver=found.driver, software=found.software
    )
    return msgspec.structs.replace(one, record=record, gaps=[*one.gaps, *found.gaps])


def loaded(record: CrashRecord, host: Host, here: _Here | None = None) -> Loaded:
    """What the crashed process had loaded: the record's own lists, and what was loaded after they were made.
    here: this machine, where the caller has more than one record."""
    gaps: list[Gap] = []
    elsewhere = _elsewhere(record, here or _here(host))
    libraries = _still_mapped(record)
    known = {library.path for library in libraries or []}
    late = [module for module in record.modules or [] if kind_of(module.path) and module.path not in known]
    if libraries is None or late:
        found, gap = _libraries(late, libraries is None, elsewhere, host, _search_path(record))
        gaps.append(gap)
        libraries = _counted([*(libraries or []), *found]) if found or libraries is not None else None
    software, packages = _software(record, libraries or [], elsewhere, host)
    if packages is not None:
        gaps.append(packages)
    libraries = with_pins(libraries, software) if libraries is not None else None
    libcuda = loaded_libcuda(libraries or [])
    driver = record.driver
    if driver is None or (libcuda and driver.libcuda_path is None):
        now = (
            Gap("driver", f"the record holds no driver and {elsewhere}")
            if elsewhere
            else installed_driver(host, libcuda)
        )
        if isinstance(now, Gap):
            gaps.append(now)
        else:
            driver = now
            gaps.append(Gap("driver", "the record holds no driver; what is said here was read now, after the crash"))
    return Loaded(libraries, driver, gaps, software)


def _software(
    record: CrashRecord, libraries: list[Library], elsewhere: str | None, host: Host
) -> tuple[Software | None, Gap | None]:
    """The record's own, unless it was made before torch was loaded. Of a process that has loaded neither torch nor
    a wheel of CUDA's, nothing is missed."""
    software = record.software
    has_torch = any(is_torch(library.kind) for library in libraries)
    if software is not None and (software.torch is not None or not has_torch):
        return software, None
    if not has_torch and not any(library.origin == "wheel" and library.cuda for library in libraries):
        return software, None
    lacks = "the record holds no list of installed packages"
    if elsewhere:
        return software, Gap("packages", f"{lacks} and {elsewhere}")
    job, tool = record.job, record.tool
    now = read_software(
        host,
        libraries=libraries,
        prefix=job.sys_prefix if job else None,
        python=tool.python if tool else None,
        machine=job.machine if job else None,
    )
    return now, Gap("packages", f"{lacks}; what is said of them was read now, after the crash")


def _search_path(record: CrashRecord) -> str | None:
    variables = record.job.environment if record.job else []
    return next((variable.value for variable in variables if variable.name == "LD_LIBRARY_PATH"), None)


def _still_mapped(record: CrashRecord) -> list[Library] | None:
    """The record's list. Its versions were read from files some seconds after install: where the build-id in memory is
    another one, the file had been replaced between loading and reading."""
    if record.libraries is None:
        return None
    in_memory = {module.path: module.build_id for module in record.modules or [] if module.build_id}
    return [_compared(library, in_memory.get(library.path)) for library in record.libraries]


def _compared(library: Library, in_memory: str | None) -> Library:
    if in_memory is None or library.build_id in (None, in_memory):
        return library
    drifted = f"replaced after it was loaded: build-id {in_memory} in memory, {library.build_id} on disk"
    return msgspec.structs.replace(
        library, package=None, version=None, how=None, vendored_by=None, build_id=in_memory, drifted=drifted
    )


def _counted(libraries: list[Library]) -> list[Library]:
    copies = Counter(library.kind for library in libraries)
    return [
        library if library.kind == "extension" else msgspec.structs.replace(library, copies=copies[library.kind])
        for library in libraries
    ]


def _here(host: Host) -> _Here:
    return _Here(host_name(host), boot_of(host))


def _elsewhere(record: CrashRecord, here: _Here) -> str | None:
    """Why this machine's state is not the crashed process's, or None. Containers of one machine share the boot id, so
    that the host name must be the same too."""
    boot_id = record.time.boot_id if record.time else None
    name = record.job.host if record.job else None
    if boot_id is None or name is None:
        return "it does not say on which machine and boot it was written"
    if name != here.name:
        return f"it was written on {name}, another machine or container than this"
    if boot_id != here.boot_id:
        return "this machine was started again since"
    return None


def _libraries(
    modules: list[Module], all_of_them: bool, elsewhere: str | None, host: Host, search_path: str | None
) -> tuple[list[Library], Gap]:
    lacks = (
        "the record holds no library list" if all_of_them else "libraries were loaded after the record's list was made"
    )
    mapped = [Mapped(one.path, one.build_id, one.deleted or False) for one in modules]
    found = loaded_libraries(mapped, host, search_path=search_path)
    with_build_id = {module.path for module in modules if module.build_id}
    if not elsewhere:
        checked = sum(library.path in with_build_id for library in found)
        return found, Gap(
            "libraries",
            f"{lacks}; package and version of {len(found)} were read now from the same paths, {checked} checked by"
            " build-id",
        )
    # Without the boot, only the build-id ties a file to the process: shared file systems make that common.
    found = [library for library in found if library.path in with_build_id and not library.drifted]
    if not found:
        return [], Gap("libraries", f"{lacks} and {elsewhere}")
    return found, Gap(
        "libraries",
        f"{lacks} and {elsewhere}; {len(found)} of them lie here with the same build-id, what is said of them was read"
        " from these files",
    )
