"""Releases that are known to crash, each with its source."""

from __future__ import annotations

from functools import cache

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ftforensics.facts.tables import Row, Table, read_table
from ftforensics.facts.torch import MACHINES


class KnownBad(msgspec.Struct, frozen=True):
    """package: as the index compares it; versions: a specifier set ("<0.63"); driver: a specifier on the driver version
    (">=580"), None: any; machine: "aarch64", None: any; module: a part of the path or function of a frame that the
    crash shows, None: it cannot be told by a frame; sure: with these versions the crash in `module` is this fault
    (otherwise it is one of several explanations); symptom, fix: one phrase each."""

    id: str
    package: str
    versions: str
    symptom: str
    fix: str
    source: str
    driver: str | None = None
    machine: str | None = None
    module: str | None = None
    sure: bool = False
    command: str | None = None


@cache
def known_bad() -> tuple[KnownBad, ...]:
    return check_known_bad(read_table("known_bad"))


def matching(package: str, version: str, *, driver: str | None = None, machine: str | None = None) -> list[KnownBad]:
    """Entries for this release. One with a condition on the driver matches only where the driver is known."""
    name = canonicalize_name(package)
    return [
        entry
        for entry in known_bad()
        if entry.package == name
        and _within(version, entry.versions)
        and (entry.driver is None or (driver is not None and _within(driver, entry.driver)))
        and (entry.machine is None or entry.machine == machine)
    ]


def _within(version: str, specifier: str) -> bool:
    """A pre-release or a local build of a bad release is bad too. A version that is none matches nothing."""
    try:
        return SpecifierSet(specifier).contains(Version(version), prereleases=True)
    except ValueError:  # InvalidVersion is one; so is a number of more digits than int() takes
        return False


def check_known_bad(table: Table) -> tuple[KnownBad, ...]:
    found: list[KnownBad] = []
    for row in table.keyed("id"):
        package, machine, module = row.text("package"), row.optional("machine"), row.optional("module")
        if canonicalize_name(package) != package:
            row.refuse(f"the index compares this name as {canonicalize_name(package)}")
        if machine not in (*MACHINES, None):
            row.refuse(f"machine must be among {', '.join(MACHINES)}")
        if row.truth("sure") and module is None:
            row.refuse("sure, and yet no module that the crash shows")
        found.append(
            KnownBad(
                id=row.text("id"),
                package=package,
                versions=_specifier(row, "versions") or row.refuse("no versions"),
                symptom=row.text("symptom"),
                fix=row.text("fix"),
                source=row.text("source"),
                driver=_specifier(row, "driver"),
                machine=machine,
                module=module,
                sure=row.truth("sure"),
                command=row.optional("command"),
            )
        )
    return tuple(found)


def _specifier(row: Row, column: str) -> str | None:
    text = row.optional(column)
    if text is None:
        return None
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        row.refuse(f"{column}: {error}")
    return text
