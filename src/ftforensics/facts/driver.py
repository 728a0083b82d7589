"""NVIDIA driver branches, the CUDA level that each reports, and the oldest driver for a CUDA version.

Versions are texts as the driver prints them: a driver "530.30.02", a CUDA level "12.1". An API level is the integer of
cuDriverGetVersion, 12010.
"""

from __future__ import annotations


def driver_level(driver: str) -> str | None:
    """The highest CUDA version that this driver branch reports: "530.30.02" -> "12.1". A branch between two known ones
    has the lower one's level; None for one older or newer than the table."""
    raise NotImplementedError


def minimum_driver(cuda: str) -> str | None:
    """The oldest Linux driver whose own level is `cuda` ("12.1" -> "530.30.02"), the first release of it."""
    raise NotImplementedError


def window_floor(major: int) -> str | None:
    """The oldest driver on which any CUDA of this major version runs by minor-version compatibility: 12 ->
    "525.60.13". None for majors without such a window (before 11)."""
    raise NotImplementedError


def at_least(driver: str, floor: str) -> bool:
    """Compares two driver versions by their numbers."""
    raise NotImplementedError


def level_of_api(api_level: int) -> str:
    """12010 -> "12.1"."""
    return f"{api_level // 1000}.{api_level % 1000 // 10}"


def cuda_tuple(cuda: str) -> tuple[int, int]:
    """ "12.8.90" -> (12, 8)."""
    major, _, rest = cuda.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)
