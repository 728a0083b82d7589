"""Would a crash here be recorded, and who else would speak about a death?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.model.basics import Cite, Gap
from ftforensics.model.diagnosis import Remedy
from ftforensics.model.preflight import Check, Status
from ftforensics.sources.machine import Machine
from ftforensics.sources.places import Place
from ftforensics.sources.witnesses import Witness

TOPIC = "capture"


class Recording(msgspec.Struct, frozen=True):
    """extension: None where it loads, else why not; folder: where the records would go; passing: the type of its file
    system where that ends with the container; faulthandler: what enables it before the job's own first line; tools:
    py-spy and pystack where they are found."""

    extension: str | None = None
    folder: Place | None = None
    passing: str | None = None
    faulthandler: str | None = None
    tools: list[str] = []


def capture_checks(recording: Recording, machine: Machine, witnesses: Sequence[Witness]) -> Iterator[Check]:
    yield _extension(recording)
    yield from _folder(recording)
    yield _core(machine)
    if recording.faulthandler:
        said = f"{recording.faulthandler} enables faulthandler first: both will write, and it keeps its place"
        yield Check("faulthandler", TOPIC, Status.OK, said)
    yield _tools(recording)
    for witness in witnesses:
        yield _witness(witness)


def gaps(witnesses: Sequence[Witness]) -> list[Gap]:
    return [Gap(one.name, one.why, one.grant) for one in witnesses if one.why]


def _extension(recording: Recording) -> Check:
    if recording.extension is None:
        return Check("crash-handler", TOPIC, Status.OK, "ftforensics.install() would record a crash")
    return Check(
        "crash-handler",
        TOPIC,
        Status.WARN,
        f"a crash would not be recorded: {recording.extension}",
        remedies=[Remedy("Install it in the job's environment", "pip install --force-reinstall --no-deps ftforensics")],
    )


def _folder(recording: Recording) -> Iterator[Check]:
    place = recording.folder
    if place is None:
        return
    where = place.existing or place.path
    remedy = Remedy("Name a folder that can be written", "export FTFORENSICS_DIR=/path/that/stays")
    if place.silent or not place.writable:
        said = f"{where} cannot be written: records would go to your state folder, or be lost"
        yield Check("run-folder", TOPIC, Status.WARN, said, remedies=[remedy])
        return
    if recording.passing:
        said = f"{place.path} lies on {recording.passing}, which goes when this container goes, and the records with it"
        yield Check(
            "run-folder",
            TOPIC,
            Status.WARN,
            said,
            supports=[Cite("mounts", "/proc/self/mountinfo", f"{recording.passing} at {where}")],
            remedies=[Remedy("Name a folder on a volume", "export FTFORENSICS_DIR=/path/on/a/volume")],
        )
        return
    yield Check("run-folder", TOPIC, Status.OK, f"records would go to {place.path}")


def _core(machine: Machine) -> Check:
    limit = machine.limit("core")
    pattern = machine.core_pattern
    if pattern is None or limit is None:
        return Check("core-files", TOPIC, Status.UNKNOWN, "where core files would go could not be read")
    if pattern.startswith("|"):  # the limit does not hold for a pipe (man 5 core)
        said = f"they go to {pattern[1:].split(' ')[0]}"
    elif limit.soft == 0:
        said = "none would be written (limit 0); a crash record needs none"
    else:
        said = f"they would be written as {pattern or 'core'}"
    return Check("core-files", TOPIC, Status.OK, said)


def _tools(recording: Recording) -> Check:
    if recording.tools:
        return Check("stack-tools", TOPIC, Status.OK, f"{' and '.join(recording.tools)} would add all threads' stacks")
    return Check(
        "stack-tools",
        TOPIC,
        Status.UNKNOWN,
        "neither py-spy nor pystack is installed: native stacks of the other threads will be missing",
        remedies=[Remedy("Install them beside ftforensics", "pip install 'ftforensics[hang]'")],
    )


def _witness(witness: Witness) -> Check:
    if witness.why is None:
        return Check(witness.name, TOPIC, Status.OK, witness.tells)
    return Check(
        witness.name,
        TOPIC,
        Status.UNKNOWN,
        f"not seen: {witness.tells} ({witness.why})",
        supports=[Cite(witness.name, "", witness.why)],
        remedies=[Remedy("To see it", witness.grant)] if witness.grant else [],
    )
