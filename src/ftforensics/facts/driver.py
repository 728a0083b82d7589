"""NVIDIA driver branches, the CUDA level that each reports, and the oldest driver for a CUDA version.

Versions are texts as the driver prints them: a driver "530.30.02", a CUDA level "12.1". An API level is the integer of
cuDriverGetVersion, 12010.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

from ftforensics.facts.tables import Table, read_table


class ToolkitDriver(msgspec.Struct, frozen=True):
    """The oldest Linux driver for one release of a CUDA toolkit. release: "GA", "U1"; a release candidate has "RC" in
    it."""

    toolkit: str
    release: str
    driver: str
    source: str


class Branch(msgspec.Struct, frozen=True):
    """number: 530; cuda: the level that it reports; until: last month of the data-center branch ("2028-06"), "ended"
    or None where no source says; life: NVIDIA's word for it."""

    number: int
    cuda: str
    life: str | None
    until: str | None
    source: str


class Floor(msgspec.Struct, frozen=True):
    """The oldest driver that runs every CUDA version of one major number by minor-version compatibility."""

    major: int
    driver: str
    source: str


@cache
def toolkit_drivers() -> tuple[ToolkitDriver, ...]:
    return check_toolkit_drivers(read_table("cuda_drivers"))


@cache
def branches() -> tuple[Branch, ...]:
    """Oldest first."""
    return check_branches(read_table("driver_branches"))


@cache
def floors() -> tuple[Floor, ...]:
    return check_floors(read_table("cuda_floors"), toolkit_drivers())


def driver_level(driver: str) -> str | None:
    """The highest CUDA version that this driver branch reports: "530.30.02" -> "12.1". A branch between two known ones
    has the lower one's level; None for one older or newer than the table."""
    number = branch_number(driver)
    if number is None or number > branches()[-1].number:
        return None
    below = [branch for branch in branches() if branch.number <= number]
    return below[-1].cuda if below else None


def minimum_driver(cuda: str) -> str | None:
    """The oldest Linux driver whose own level is `cuda` ("12.1" -> "530.30.02"), the first release of it."""
    wanted = cuda_tuple(cuda)
    known = [
        row.driver
        for row in toolkit_drivers()
        # Nobody can be asked to install the driver of a release candidate.
        if cuda_tuple(row.toolkit) == wanted and "RC" not in row.release
    ]
    return min(known, key=driver_tuple, default=None)


def window_floor(major: int) -> str | None:
    """The oldest driver on which any CUDA of this major version runs by minor-version compatibility: 12 ->
    "525.60.13". None for majors without such a window (before 11)."""
    return next((floor.driver for floor in floors() if floor.major == major), None)


def at_least(driver: str, floor: str) -> bool:
    """Compares two driver versions by their numbers."""
    return driver_tuple(driver) >= driver_tuple(floor)


def newer_than_the_table(driver: str) -> bool:
    number = branch_number(driver)
    return number is not None and number > branches()[-1].number


def branch_number(driver: str) -> int | None:
    """ "530.30.02" -> 530; None for a text that does not begin with a number."""
    return next(iter(driver_tuple(driver)), None)


def driver_tuple(driver: str) -> tuple[int, ...]:
    """The numbers that it begins with, () for none: "470.82.01-custom" -> (470, 82, 1)."""
    # Bounded: the text may come from a damaged or forged file, and int() of very many digits is slow.
    begins = re.match(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,4}", driver.strip())
    return tuple(map(int, begins[0].split("."))) if begins else ()


def level_of_api(api_level: int) -> str:
    """12010 -> "12.1"."""
    return f"{api_level // 1000}.{api_level % 1000 // 10}"


def cuda_tuple(cuda: str) -> tuple[int, int]:
    """ "12.8.90" -> (12, 8)."""
    major, _, rest = cuda.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def check_toolkit_drivers(table: Table) -> tuple[ToolkitDriver, ...]:
    """A newer release never needs an older driver."""
    found: list[ToolkitDriver] = []
    for row in table.keyed("toolkit", "release"):
        one = ToolkitDriver(row.version("toolkit"), row.text("release"), row.version("driver"), row.text("source"))
        if found and cuda_tuple(one.toolkit) < cuda_tuple(found[-1].toolkit):
            row.refuse(f"stands behind CUDA {found[-1].toolkit}; the table goes from old to new")
        if found and not at_least(one.driver, found[-1].driver):
            row.refuse(f"driver {one.driver} is older than {found[-1].driver} of CUDA {found[-1].toolkit} before it")
        found.append(one)
    return tuple(found)


def check_branches(table: Table) -> tuple[Branch, ...]:
    """Each branch reports a higher level than the one before."""
    found: list[Branch] = []
    for row in table.keyed("branch"):
        one = Branch(
            row.number("branch"), row.version("cuda"), row.optional("life"), row.optional("until"), row.text("source")
        )
        if found and one.number < found[-1].number:
            row.refuse(f"stands behind branch {found[-1].number}; the table goes from old to new")
        if found and cuda_tuple(one.cuda) <= cuda_tuple(found[-1].cuda):
            row.refuse(f"CUDA {one.cuda} is not above {found[-1].cuda} of branch {found[-1].number} before it")
        found.append(one)
    return tuple(found)


def check_floors(table: Table, toolkits: tuple[ToolkitDriver, ...]) -> tuple[Floor, ...]:
    """No floor lies in a later branch than the first driver of its major version. Within the branch it may: 450.80.02
    is the floor of CUDA 11, whose first driver was 450.51.05."""
    found: list[Floor] = []
    for row in table.keyed("major"):
        one = Floor(row.number("major"), row.version("driver"), row.text("source"))
        own = [toolkit.driver for toolkit in toolkits if cuda_tuple(toolkit.toolkit)[0] == one.major]
        if not own:
            row.refuse(f"no driver is known for any CUDA {one.major}")
        first = min(own, key=driver_tuple)
        if driver_tuple(one.driver)[0] > driver_tuple(first)[0]:
            row.refuse(f"driver {one.driver} is of a later branch than {first}, the first driver of CUDA {one.major}")
        found.append(one)
    return tuple(found)
