"""What an installed distribution demands in one exact version: `Requires-Dist` of `*.dist-info/METADATA`.

Format: packaging.python.org, "Core metadata specifications"; requirements as PEP 508. As torch's wheels write them:

    nvidia-cublas-cu11 (==11.10.3.66) ; platform_system == "Linux" and platform_machine == "x86_64"     2.0.1
    nvidia-cudnn-cu12==9.10.2.21; platform_system == "Linux" and platform_machine == "x86_64"           2.9.1
    cuda-toolkit[cublas,cudart,...]==13.0.3; platform_system == "Linux"                                 2.14.1

and the metapackage of the last one, in turn, per extra (cuda-toolkit 13.0.3.0):

    nvidia-cuda-runtime==13.0.96.*; (sys_platform == 'linux' and ...) and extra == 'cudart'
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ftforensics.parsers.dist_info import normalized

LONGEST = 2000  # characters of one requirement; the longest seen are 330
MOST = 2000  # requirements of one distribution

_REQUIRES = re.compile(r"^Requires-Dist:[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)


class Demand(msgspec.Struct, frozen=True):
    """name: as the index compares it; version: without the ".*" that stands behind it where any further digits will do
    (`loose`); extras: of the demanded distribution."""

    name: str
    version: str
    loose: bool = False
    extras: list[str] = []

    def met_by(self, installed: str) -> bool:
        """Is this version what is demanded? "2.9.1+cu128" is 2.9.1, as pip has it (PEP 440, "Version matching")."""
        try:
            wanted = SpecifierSet(f"=={self.version}{'.*' if self.loose else ''}")
            return wanted.contains(installed, prereleases=True)
        except (InvalidSpecifier, ValueError):  # InvalidVersion is a ValueError
            return self.version == installed


def demands(text: str, machine: str, python: str | None = None, extras: Iterable[str] = ()) -> list[Demand]:
    """The exact demands that hold on Linux with this machine ("x86_64"), Python ("3.11") and the given extras.

    What is no requirement, or asks for a range, is passed over.
    """
    environments = [_environment(machine, python, extra) for extra in ("", *extras)]
    found: dict[str, Demand] = {}
    for requirement in _requirements(text):
        demand = _exact(requirement)
        if demand and _holds(requirement, environments):
            found.setdefault(demand.name, demand)
    return list(found.values())


def _headers(text: str) -> str:
    """A blank line ends the headers; the project's own description follows."""
    return re.split(r"\r?\n\r?\n", text, maxsplit=1)[0].replace("\r\n", "\n")


def _requirements(text: str) -> Iterator[Requirement]:
    for count, match in enumerate(_REQUIRES.finditer(_headers(text))):
        if count >= MOST:
            return
        if "==" not in match[1] or len(match[1]) > LONGEST:
            continue
        try:
            yield Requirement(match[1])
        except (InvalidRequirement, RecursionError):  # packaging before 26 does not count parentheses
            continue


def _exact(requirement: Requirement) -> Demand | None:
    wanted = list(requirement.specifier)
    if len(wanted) != 1 or wanted[0].operator != "==":
        return None
    version = wanted[0].version
    return Demand(
        normalized(requirement.name), version.removesuffix(".*"), version.endswith(".*"), sorted(requirement.extras)
    )


def _holds(requirement: Requirement, environments: list[dict[str, str]]) -> bool:
    if requirement.marker is None:
        return True
    for environment in environments:
        try:
            if requirement.marker.evaluate(environment):
                return True
        except (ValueError, KeyError, RecursionError):  # packaging's errors about names and comparisons are ValueErrors
            continue
    return False


def _environment(machine: str, python: str | None, extra: str) -> dict[str, str]:
    """Every marker variable, so that nothing of this interpreter gets in. platform_release and platform_version are
    left empty: no wheel seen asks for them."""
    full = python or "3.11"
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": ".".join(full.split(".")[:2]),
        "sys_platform": "linux",
        "extra": extra,
    }
