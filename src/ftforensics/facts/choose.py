"""Which torch to install for a driver, GPUs and Python, and the pip line that does it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.facts.torch import Wheel


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
    GPUs that shall be used ("8.0"); python: "3.11" or "3.11.7"."""
    raise NotImplementedError


def install_command(wheel: Wheel, *, with_companions: bool = True) -> str:
    """The pip line with torchvision and torchaudio where they are known and the index; a default wheel needs none."""
    raise NotImplementedError
