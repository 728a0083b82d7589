"""Does the driver fit the CUDA that torch was built for? Asked after a crash and by `check` before a run."""

from __future__ import annotations

from enum import Enum

import msgspec

from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import Driver, Library
from ftforensics.model.diagnosis import Remedy
from ftforensics.model.software import Software


class Fit(str, Enum):
    """EXACT: the driver's own level is the wheel's CUDA or above; WINDOW: below it, same major version, at or above the
    floor of minor-version compatibility; TOO_OLD: another major version or below the floor; UNKNOWN: one of the two is
    not known."""

    EXACT = "exact"
    WINDOW = "window"
    TOO_OLD = "too-old"
    UNKNOWN = "unknown"


class DriverFit(msgspec.Struct, frozen=True):
    """driver: the kernel module's version; level: what it really offers ("12.1", by its branch; a compatibility package
    in use raises it, `compat`); cuda: what torch was built for; floor: of that major version; needs: the oldest driver
    of the wheel's own level; supports: where each of these was read."""

    fit: Fit
    driver: str | None = None
    level: str | None = None
    cuda: str | None = None
    floor: str | None = None
    needs: str | None = None
    compat: bool = False
    supports: list[Cite] = []
    unknown: list[Gap] = []


def driver_fit(software: Software | None, driver: Driver | None, libraries: list[Library] | None = None) -> DriverFit:
    """libraries: the loaded ones, which tell torch's CUDA where `software` does not."""
    raise NotImplementedError


def half_upgraded(driver: Driver | None) -> list[Cite]:
    """What says that the driver's kernel module and its libraries are of two versions; [] when nothing does."""
    raise NotImplementedError


def stub_loaded(driver: Driver | None, libraries: list[Library] | None) -> list[Cite]:
    """What says that libcuda is the toolkit's link-time stub."""
    raise NotImplementedError


def compat_trouble(driver: Driver | None, libraries: list[Library] | None) -> list[Cite]:
    """What says that a forward-compatibility libcuda is in use where it cannot work: older than the module, or on a
    GPU that it does not support."""
    raise NotImplementedError


def torch_for_driver(software: Software | None, driver: Driver | None) -> list[Remedy]:
    """Commands that install the torch that fits, the exact one first, then the window's; then the driver to ask for."""
    raise NotImplementedError
