"""GPU models and architectures: compute capability, and which drivers and CUDA versions still serve it."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from ftforensics.facts.driver import branches, cuda_tuple
from ftforensics.facts.tables import Table, read_table


class Architecture(msgspec.Struct, frozen=True):
    """capability: "7.0"; last_driver: the last driver branch that runs it, None: still served; first_cuda, last_cuda:
    of the compilers that make code for it."""

    name: str
    capability: str
    first_cuda: str | None
    last_cuda: str | None
    last_driver: int | None
    source: str


class Model(msgspec.Struct, frozen=True):
    """pattern: fits the name that NVML gives; data_center: is forward compatibility supported on it, None: on some
    cards of that kind only."""

    name: str
    pattern: re.Pattern[str]
    capability: str
    data_center: bool | None
    source: str


@cache
def architectures() -> tuple[Architecture, ...]:
    return check_architectures(read_table("architectures"), {branch.number for branch in branches()})


@cache
def models() -> tuple[Model, ...]:
    """The longest name first: "RTX 6000 Ada Generation" is another card than "Quadro RTX 6000"."""
    return check_models(read_table("gpus"), architectures())


def architecture(capability: str) -> Architecture | None:
    return next((known for known in architectures() if known.capability == capability), None)


def capability_of(name: str) -> str | None:
    """Compute capability of a GPU by the name that NVML gives it ("NVIDIA A100-SXM4-80GB" -> "8.0"); None: unknown."""
    found = _model(name)
    return found.capability if found else None


def is_data_center(name: str) -> bool | None:
    """Is forward compatibility supported on it? None: unknown model."""
    found = _model(name)
    return found.data_center if found else None


def _model(name: str) -> Model | None:
    return next((model for model in models() if model.pattern.search(name)), None)


def check_architectures(table: Table, known_branches: set[int]) -> tuple[Architecture, ...]:
    found: list[Architecture] = []
    for row in table.keyed("capability"):
        first, last = row.optional_version("first_cuda"), row.optional_version("last_cuda")
        if first and last and cuda_tuple(last) < cuda_tuple(first):
            row.refuse(f"the last CUDA {last} is older than the first {first}")
        branch = row.number("last_driver") if row.optional("last_driver") else None
        if branch is not None and branch not in known_branches:
            row.refuse(f"branch {branch} is not in driver_branches.tsv")
        found.append(Architecture(row.text("name"), row.version("capability"), first, last, branch, row.text("source")))
    return tuple(found)


def check_models(table: Table, known: tuple[Architecture, ...]) -> tuple[Model, ...]:
    capabilities = {one.capability for one in known}
    found: list[Model] = []
    for row in table.keyed("model"):
        name, capability = row.text("model"), row.version("capability")
        if capability not in capabilities:
            row.refuse(f"capability {capability} is not in architectures.tsv")
        found.append(Model(name, _pattern(name), capability, row.optional_truth("data_center"), row.text("source")))
    return tuple(sorted(found, key=lambda model: len(model.name), reverse=True))


def _pattern(model: str) -> re.Pattern[str]:
    """As whole words, in any case: "A10" is not in "A100", "P4" not in "Quadro P4000"."""
    inside = "".join("[0-9]" if letter == "#" else re.escape(letter) for letter in model)
    return re.compile(rf"(?<![A-Za-z0-9]){inside}(?![A-Za-z0-9])", re.IGNORECASE)
