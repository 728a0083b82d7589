"""Published torch wheels: which CUDA, Pythons, GPU architectures and companions each one goes with."""

from __future__ import annotations

import re
from functools import cache

import msgspec
from packaging.version import InvalidVersion, Version

from ftforensics.facts.driver import ToolkitDriver, cuda_tuple, toolkit_drivers
from ftforensics.facts.tables import Row, Table, read_table

MACHINES = ("x86_64", "aarch64")


class Wheel(msgspec.Struct, frozen=True):
    """One torch release for one CUDA variant, Linux. variant: "cu128"; cuda: "12.8"; default: what a plain
    `pip install torch` brings; pythons: "3.10"; machines: "x86_64", "aarch64"; architectures: compute capabilities of
    its device code, [] where no source lists them; cudnn, nccl, triton: versions that it pins or bundles, None where no
    source says; torchvision, torchaudio: the versions that go with it, None where no source says."""

    torch: str
    variant: str
    cuda: str
    default: bool
    pythons: list[str]
    machines: list[str]
    architectures: list[str] = []
    cudnn: str | None = None
    nccl: str | None = None
    triton: str | None = None
    torchvision: str | None = None
    torchaudio: str | None = None
    source: str = ""

    @property
    def release(self) -> Version:
        return Version(self.torch)

    @property
    def name(self) -> str:
        """ "2.9.1+cu128": as a wheel of the PyTorch index calls itself."""
        return f"{self.torch}+{self.variant}"


class Companions(msgspec.Struct, frozen=True):
    torch: str
    torchvision: str | None
    torchaudio: str | None
    source: str


COMPANIONS = ("torchvision", "torchaudio")  # built for one torch each, in the order of `companions`


@cache
def wheels() -> tuple[Wheel, ...]:
    """All of them, oldest first."""
    return check_wheels(read_table("torch_wheels"), read_table("torch_companions"), toolkit_drivers())


def find_wheel(torch: str, variant: str | None = None) -> Wheel | None:
    """`torch`: "2.9.1" or "2.9.1+cu128"; without a variant the default one of PyPI."""
    release, _, local = torch.partition("+")
    wanted = variant or local or None
    for wheel in wheels():
        if wheel.torch == release and (wheel.variant == wanted if wanted else wheel.default):
            return wheel
    return None


def last_wheels() -> list[Wheel]:
    """The newest torch of each CUDA variant, by variant: after cu128's 2.11.0 no torch was built for CUDA 12.8."""
    newest = {wheel.variant: wheel for wheel in wheels()}
    return sorted(newest.values(), key=lambda wheel: cuda_tuple(wheel.cuda))


def companions(torch: str) -> tuple[str | None, str | None]:
    """(torchvision, torchaudio) of a torch release, by its version without the local part."""
    release = torch.partition("+")[0]
    for wheel in wheels():
        if wheel.torch == release:
            return wheel.torchvision, wheel.torchaudio
    return None, None


def runs_on(wheel: Wheel, capability: str) -> bool | None:
    """Has the wheel machine code for such a GPU? None: its architectures are not known.

    Machine code runs on its own and on later minor versions of the same major one: 8.0 and 8.6 code on 8.9. PTX would
    reach further, by compiling at the first load; torch's own libraries are not all built with it, so it is no promise.
    """
    if not wheel.architectures:
        return None
    major, minor = cuda_tuple(capability)
    return any(of_code[0] == major and of_code[1] <= minor for of_code in map(cuda_tuple, wheel.architectures))


def check_wheels(table: Table, companion_table: Table, toolkits: tuple[ToolkitDriver, ...]) -> tuple[Wheel, ...]:
    pairs = check_companions(companion_table, {_release(row) for row in table.rows})
    known = {cuda_tuple(toolkit.toolkit) for toolkit in toolkits}
    found: list[Wheel] = []
    defaults: dict[str, str] = {}
    for row in table.keyed("torch", "variant"):
        variant = row.text("variant")
        cuda = cuda_of_variant(variant) or row.refuse(f"variant {variant} does not say its CUDA, as cu128 does")
        if cuda not in known:
            row.refuse(f"no driver is known for CUDA {cuda[0]}.{cuda[1]}")
        default = row.truth("pypi")
        torch = _release(row)
        if default and torch in defaults:
            row.refuse(f"torch {torch} has two variants on PyPI, {defaults[torch]} and {variant}")
        if default:
            defaults[torch] = variant
        machines = row.words("machines")
        if not machines or set(machines) - set(MACHINES):
            row.refuse(f"machines must be among {', '.join(MACHINES)}")
        pair = next((pair for pair in pairs if pair.torch == torch), None)
        found.append(
            Wheel(
                torch=torch,
                variant=variant,
                cuda=f"{cuda[0]}.{cuda[1]}",
                default=default,
                pythons=row.versions("pythons") or row.refuse("no pythons"),
                machines=machines,
                architectures=row.versions("architectures"),
                cudnn=row.optional_version("cudnn"),
                nccl=row.optional_version("nccl"),
                triton=row.optional_version("triton"),
                torchvision=pair.torchvision if pair else None,
                torchaudio=pair.torchaudio if pair else None,
                source=row.text("source"),
            )
        )
    for row in table.rows:
        if row.text("torch") not in defaults:
            row.refuse(f"no variant of torch {row.text('torch')} is the one on PyPI")
    return tuple(sorted(found, key=lambda wheel: (wheel.release, cuda_tuple(wheel.cuda))))


def check_companions(table: Table, releases: set[str]) -> tuple[Companions, ...]:
    found: list[Companions] = []
    for row in table.keyed("torch"):
        if row.text("torch") not in releases:
            row.refuse(f"torch {row.text('torch')} is not in torch_wheels.tsv")
        found.append(
            Companions(
                _release(row),
                row.optional_version("torchvision"),
                row.optional_version("torchaudio"),
                row.text("source"),
            )
        )
    return tuple(found)


def cuda_of_variant(variant: str) -> tuple[int, int] | None:
    """ "cu128" -> (12, 8), None for another text."""
    tag = re.fullmatch(r"cu([0-9]{2})([0-9])", variant)
    return (int(tag[1]), int(tag[2])) if tag else None


def _release(row: Row) -> str:
    text = row.text("torch")
    try:
        if Version(text).local:
            row.refuse("the release must stand without its local part")
    except InvalidVersion:
        row.refuse(f"{text!r} is no version of a package")
    return text
