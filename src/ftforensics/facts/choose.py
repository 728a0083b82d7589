"""Which torch to install for a driver, GPUs and Python, and the pip line that does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from packaging.version import Version

from ftforensics.facts.driver import (
    at_least,
    branch_number,
    branches,
    cuda_tuple,
    driver_level,
    driver_tuple,
    minimum_driver,
    newer_than_the_table,
    window_floor,
)
from ftforensics.facts.gpus import architecture
from ftforensics.facts.torch import Wheel, find_wheel, runs_on, wheels

INDEX = "https://download.pytorch.org/whl"
EXACT = "exact"
WINDOW = "window"

WINDOW_NOTE = (
    "works by NVIDIA's minor-version compatibility: graph and batch functions newer than the driver, and newer PTX, "
    "are not available"
)
# pytorch#111469, #131312, #134929, #140797: a libnvJitLink of /usr/local/cuda is found before the wheel's own, and
# libcusparse.so.12 then misses __nvJitLink..._12_x.
NVJITLINK_NOTE = (
    "unset LD_LIBRARY_PATH in the same step: with /usr/local/cuda*/lib64 on it, this release can fail at import "
    "(undefined symbol __nvJitLink...)"
)
OLD_NOTE = "an old release; nothing newer is built for this driver's CUDA level"
UNKNOWN_BRANCH_NOTE = "this driver is newer than the tables; it is taken for one of the newest known branch"

# Before it, wheels of other variants were installed by their local version from an extra index
# (https://pytorch.org/get-started/previous-versions/, up to 1.13.1).
OWN_INDEX = Version("2.0")


class Choice(msgspec.Struct, frozen=True):
    """tier: "exact": the wheel's CUDA is the driver's own level or below it; "window": same major version, above it."""

    wheel: Wheel
    tier: str
    command: str
    note: str | None = None


class Choices(msgspec.Struct, frozen=True):
    """Best first in each tier. driver_for_newest: the driver to ask the administrator for, so that the newest torch
    runs at its own level; compat: the forward-compatibility package that would do on a data-center GPU."""

    exact: list[Choice] = []
    window: list[Choice] = []
    driver_for_newest: str | None = None
    compat: str | None = None

    @property
    def best(self) -> Choice | None:
        return next(iter([*self.exact, *self.window]), None)


def choose(
    driver: str | None,
    *,
    level: str | None = None,
    capabilities: Sequence[str] = (),
    python: str | None = None,
    machine: str | None = None,
) -> Choices:
    """driver: the kernel module's version; level: the CUDA level when only that is known ("12.1"); capabilities: of all
    GPUs that shall be used ("8.0"); python: "3.11" or "3.11.7".

    A driver that is known wins over `level`: a compatibility package in use raises the level that is reported.
    """
    usable = [wheel for wheel in wheels() if _usable(wheel, capabilities, python, machine)]
    own, module = _own_level(driver, level)
    exact = _exact(usable, own) if own else []
    window = _window(usable, exact, own, module) if own and module else []
    note = UNKNOWN_BRANCH_NOTE if driver and newer_than_the_table(driver) else None
    return Choices(
        exact=[_choice(wheel, EXACT, own, note) for wheel in exact],
        window=[_choice(wheel, WINDOW, own, note) for wheel in window],
        driver_for_newest=_driver_for_newest(usable, module, capabilities),
        compat=_compat(window),
    )


def install_command(wheel: Wheel) -> str:
    """The pip line with torchvision and torchaudio where they are known and the index; a default wheel needs none."""
    local = "" if wheel.default or wheel.release >= OWN_INDEX else f"+{wheel.variant}"
    words = ["pip install", f"torch=={wheel.torch}{local}"]
    if wheel.torchvision:
        words.append(f"torchvision=={wheel.torchvision}{local}")
    if wheel.torchaudio and _has_torchaudio(wheel):
        words.append(f"torchaudio=={wheel.torchaudio}")
    if not wheel.default:
        # --index-url, not --extra-index-url: with the latter a newer build on PyPI can win. The old wheels cannot lose,
        # they name their variant in the version, and their index lacks what they depend on.
        words.append(f"{'--extra-index-url' if local else '--index-url'} {INDEX}/{wheel.variant}")
    return " ".join(words)


def _has_torchaudio(wheel: Wheel) -> bool:
    """Does the wheel's index hold it? torchaudio 2.11.0 goes with later torch releases, but was built for the variants
    of 2.11 only: it is not on the index of cu132."""
    audio = Version(wheel.torchaudio or "0")
    own_release = audio.release[:2] == wheel.release.release[:2] or wheel.release < OWN_INDEX
    return wheel.default or own_release or find_wheel(str(audio), wheel.variant) is not None


def _usable(wheel: Wheel, capabilities: Iterable[str], python: str | None, machine: str | None) -> bool:
    if python and ".".join(python.split(".")[:2]) not in wheel.pythons:
        return False
    if machine and {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine) not in wheel.machines:
        return False
    return all(runs_on(wheel, capability) is not False for capability in capabilities)


def _own_level(driver: str | None, level: str | None) -> tuple[tuple[int, int] | None, str | None]:
    """(CUDA level, driver): where only the level is known, the oldest driver that has it, so that no window is promised
    which may not be there."""
    if driver and newer_than_the_table(driver):
        return cuda_tuple(branches()[-1].cuda), driver
    if driver and (own := driver_level(driver)):
        return cuda_tuple(own), driver
    if level:
        wanted = cuda_tuple(level)
        oldest = next((str(branch.number) for branch in branches() if cuda_tuple(branch.cuda) == wanted), None)
        return wanted, minimum_driver(level) or oldest
    return None, driver


def _exact(usable: list[Wheel], own: tuple[int, int]) -> list[Wheel]:
    """Of the driver's own major version, where there is one for it; else of the highest below."""
    served = [wheel for wheel in usable if cuda_tuple(wheel.cuda) <= own]
    majors = sorted({cuda_tuple(wheel.cuda)[0] for wheel in served}, reverse=True)
    if not majors:
        return []
    kept: list[Wheel] = []
    for wheel in _newest_of_each_variant(served, majors[0]):
        if not kept or cuda_tuple(wheel.cuda) == own or _reaches_newer_gpus(wheel, kept):
            kept.append(wheel)
    return kept


def _window(usable: list[Wheel], exact: list[Wheel], own: tuple[int, int], module: str) -> list[Wheel]:
    """Above the driver's level, and better than what there is in the exact tier: a newer torch, or code for newer
    GPUs."""
    floor = window_floor(own[0])
    if floor is None or not at_least(module, floor):
        return []
    above = [wheel for wheel in usable if cuda_tuple(wheel.cuda) > own]
    kept: list[Wheel] = []
    for wheel in _newest_of_each_variant(above, own[0]):
        others = [*exact, *kept]
        newer = all((wheel.release, wheel.default) > (other.release, other.default) for other in others)
        if newer or _reaches_newer_gpus(wheel, others):
            kept.append(wheel)
    return kept


def _newest_of_each_variant(candidates: list[Wheel], major: int) -> list[Wheel]:
    """The newest torch first; of two with the same torch the default, which is what most people run, then the higher
    CUDA."""
    newest: dict[str, Wheel] = {}
    for wheel in candidates:  # oldest first
        if cuda_tuple(wheel.cuda)[0] == major:
            newest[wheel.variant] = wheel
    return sorted(
        newest.values(), key=lambda wheel: (wheel.release, wheel.default, cuda_tuple(wheel.cuda)), reverse=True
    )


def _reaches_newer_gpus(wheel: Wheel, others: list[Wheel]) -> bool:
    """Newer than all the others do. Older GPUs need no wheel of their own here: the older CUDA serves them, and comes
    with a newer torch."""
    return all(_newest_gpu(wheel) > _newest_gpu(other) for other in others)


def _newest_gpu(wheel: Wheel) -> tuple[int, int]:
    return max(map(cuda_tuple, wheel.architectures), default=(0, 0))


def _choice(wheel: Wheel, tier: str, own: tuple[int, int] | None, note: str | None) -> Choice:
    notes = [note] if note else []
    cuda = cuda_tuple(wheel.cuda)
    if tier == WINDOW:
        notes.append(WINDOW_NOTE)
    if cuda[0] == 12 and wheel.release < Version("2.6"):
        notes.append(NVJITLINK_NOTE)
    if tier == EXACT and cuda[0] < 11 and own:
        notes.append(OLD_NOTE)
    return Choice(wheel, tier, install_command(wheel), "; ".join(notes) or None)


def _driver_for_newest(usable: list[Wheel], module: str | None, capabilities: Iterable[str]) -> str | None:
    if not usable:
        return None
    newest = max(wheel.release for wheel in usable)
    needed = [minimum_driver(wheel.cuda) for wheel in usable if wheel.release == newest]
    oldest = min((driver for driver in needed if driver), key=driver_tuple, default=None)
    if oldest is None or (module and at_least(module, oldest)):
        return None
    branch = branch_number(oldest) or 0
    known = [found for found in map(architecture, capabilities) if found]
    if any(found.last_driver is not None and found.last_driver < branch for found in known):
        return None  # that driver no longer serves the GPU
    return oldest


def _compat(window: list[Wheel]) -> str | None:
    """Its name follows the CUDA version that it brings. Only where the driver is in the same major version: which older
    branches a package supports is not known here."""
    if not window:
        return None
    major, minor = max(cuda_tuple(wheel.cuda) for wheel in window)
    return f"cuda-compat-{major}-{minor}"
