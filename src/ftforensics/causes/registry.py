"""Finds the causes. Adding one needs no edit here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache

import msgspec

import ftforensics.causes as package
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding

HEADINGS = ("What it means", "How it is told apart", "What to do", "Seen in the field", "References")


class Kind(str, Enum):
    """What a cause excludes. Two KILLERs, or two OWN_FAULTs, cannot both have ended one process; a CIRCUMSTANCE goes
    with any other cause and comes behind it; the RESIDUAL is the answer when nothing more specific is at least likely.
    """

    KILLER = "killer"
    OWN_FAULT = "own fault"
    CIRCUMSTANCE = "circumstance"
    RESIDUAL = "residual"


class Cause(msgspec.Struct, frozen=True):
    """id: public and stable, kebab-case; family: the folder; text: the docstring.

    order: among causes of equal strength and kind the lower speaks first; refines: causes that say the same end with
    less (an uncaught C++ exception whose text is a CUDA error): where this one is as sure, they are no rivals of it.
    changes: kinds of change, or "kind:name", that fit it (model.ledger.Change): one since the last good run
    strengthens it from possible to likely.

    check looks at a crash record; check_death at an end of any kind, with or without one. A cause has one or both, and
    of a process that left a record both are asked.
    """

    id: str
    family: str
    kind: Kind
    text: str
    check: Callable[[Crash], Iterator[Finding]] | None
    check_death: Callable[[Death], Iterator[Finding]] | None
    order: int = 50
    refines: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.text.split("\n", 1)[0].strip().rstrip(".")


@cache
def causes() -> tuple[Cause, ...]:
    """All causes, ordered by family and id, so that every run gives the same order."""
    found: dict[str, Cause] = {}
    for family in pkgutil.iter_modules(package.__path__):
        if not family.ispkg:
            continue
        folder = importlib.import_module(f"{package.__name__}.{family.name}")
        for module in pkgutil.iter_modules(folder.__path__):
            if module.name.startswith("_"):
                continue
            cause = _load(family.name, module.name)
            if cause.id in found:
                raise RuntimeError(f"cause {cause.id} exists twice: in {found[cause.id].family} and {family.name}")
            found[cause.id] = cause
    return tuple(sorted(found.values(), key=lambda cause: (cause.family, cause.id)))


def find_cause(identifier: str) -> Cause | None:
    return _by_id().get(identifier)


@cache
def _by_id() -> dict[str, Cause]:
    return {cause.id: cause for cause in causes()}


def _load(family: str, name: str) -> Cause:
    module = importlib.import_module(f"{package.__name__}.{family}.{name}")
    return Cause(
        name.replace("_", "-"),
        family,
        module.KIND,
        (module.__doc__ or "").strip() + "\n",
        getattr(module, "check", None),
        getattr(module, "check_death", None),
        getattr(module, "ORDER", 50),
        getattr(module, "REFINES", ()),
        getattr(module, "CHANGES", ()),
    )
