"""Fills in, afterwards, what a crash record does not hold about its libraries and its driver.

The handler writes path, base and build-id of each module; package, version and driver come from a child process that
may not have finished, or was not started. What is read now is evidence about the process only under conditions, and
always said: a library by its build-id, or by its path on the machine and boot of the crash; the driver on that boot.
"""

from __future__ import annotations

import platform

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.crash import CrashRecord, Driver, Library, Module
from ftforensics.sources.driver import installed_driver
from ftforensics.sources.libraries import Mapped, loaded_libraries

BOOT_ID = "/proc/sys/kernel/random/boot_id"
HOSTNAME = "/proc/sys/kernel/hostname"


class Loaded(msgspec.Struct, frozen=True):
    """libraries, driver: as the record has them, or as read now; gaps: which of the two, and what stayed unknown."""

    libraries: list[Library] | None
    driver: Driver | None
    gaps: list[Gap]


def with_loaded(case: Case, host: Host) -> Case:
    """The case with every record's libraries and driver filled in where that can be done. Asks the driver, for up to
    three seconds a record: for the analyser, not for a process that a dying job waits for."""
    return msgspec.structs.replace(case, records=[_completed(one, host) for one in case.records])


def _completed(one: CaseRecord, host: Host) -> CaseRecord:
    found = loaded(one.record, host)
    record = msgspec.structs.replace(one.record, libraries=found.libraries, driver=found.driver)
    return msgspec.structs.replace(one, record=record, gaps=[*one.gaps, *found.gaps])


def loaded(record: CrashRecord, host: Host) -> Loaded:
    """What the crashed process had loaded."""
    gaps: list[Gap] = []
    elsewhere = _elsewhere(record, host)
    libraries = record.libraries
    if libraries is None:
        libraries, gap = _libraries(record.modules or [], elsewhere, host)
        gaps.append(gap)
    driver = record.driver
    if driver is None:
        if elsewhere:
            gaps.append(Gap("driver", f"the record holds no driver and {elsewhere}"))
        else:
            libcuda = next((library.path for library in libraries or [] if library.kind == "libcuda"), None)
            now = installed_driver(host, libcuda)
            if isinstance(now, Gap):
                gaps.append(now)
            else:
                driver = now
                gaps.append(
                    Gap("driver", "the record holds no driver; what is said here was read now, after the crash")
                )
    return Loaded(libraries, driver, gaps)


def _elsewhere(record: CrashRecord, host: Host) -> str | None:
    """Why this machine's state is not the crashed process's, or None. Containers of one machine share the boot id, so
    that the host name must be the same too."""
    boot_id = record.time.boot_id if record.time else None
    name = record.job.host if record.job else None
    if boot_id is None or name is None:
        return "it does not say on which machine and boot it was written"
    if name != _read(host, HOSTNAME):
        return f"was written on {name}, another machine or container than this"
    if boot_id != _read(host, BOOT_ID):
        return "this machine was started again since"
    return None


def _read(host: Host, path: str) -> str | None:
    try:
        return host.read_text(path, 4096).strip()
    except Refusal:
        return platform.node() if host.live and path == HOSTNAME else None


def _libraries(modules: list[Module], elsewhere: str | None, host: Host) -> tuple[list[Library] | None, Gap]:
    mapped = [Mapped(module.path, module.build_id, module.deleted or False) for module in modules]
    if elsewhere:
        # Without the boot, only the build-id ties a file to the process: shared file systems make that common.
        found = [library for library in loaded_libraries(mapped, host) if library.build_id and not library.drifted]
        known = {module.path for module in modules if module.build_id}
        found = [library for library in found if library.path in known]
        if not found:
            return None, Gap("libraries", f"the record holds no library list and {elsewhere}")
        return found, Gap(
            "libraries",
            f"the record holds no library list and {elsewhere}; {len(found)} libraries lie here with the same build-id,"
            " what is said of them was read from these files",
        )
    found = loaded_libraries(mapped, host)
    checked = sum(1 for module in modules if module.build_id and any(lib.path == module.path for lib in found))
    return found, Gap(
        "libraries",
        f"the record holds no library list; package and version were read now from the same paths, {checked} of"
        f" {len(found)} checked by build-id",
    )
