"""Do the libraries that would be loaded belong together, and are their files whole? Nothing is loaded to find out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from packaging.version import InvalidVersion, Version

from ftforensics.causes.library_set import (
    Companion,
    Mix,
    Shadow,
    drifted_pins,
    mixes,
    openmp_mix,
    shadows,
    wrong_companions,
)
from ftforensics.facts import known_bad
from ftforensics.facts.torch import COMPANIONS
from ftforensics.model.basics import Cite
from ftforensics.model.crash import Driver, Library
from ftforensics.model.diagnosis import Confidence, Remedy
from ftforensics.model.preflight import Check, Status
from ftforensics.model.software import MissingSymbols, Pin, Software, TorchBuild
from ftforensics.preflight.versions import base, companion_command, torch_again
from ftforensics.sources.would_load import NotFound, WouldLoad

TOPIC = "libraries"
_SHOWN = 4

_SEARCH = Remedy("Take the foreign folder out of the search", "unset LD_LIBRARY_PATH")
_PRELOAD = Remedy("Take it out of LD_PRELOAD or the search", "unset LD_PRELOAD LD_LIBRARY_PATH")
_CLEAN = Remedy(
    "Run once with LD_LIBRARY_PATH and LD_PRELOAD unset: if it dies all the same, the libraries were not the cause",
    "env -u LD_LIBRARY_PATH -u LD_PRELOAD python ...",
    settles=True,
)


def library_checks(
    software: Software | None,
    would: WouldLoad,
    driver: Driver | None,
    *,
    machine: str | None = None,
    hashed: bool = False,
) -> Iterator[Check]:
    if software is None or software.torch is None:
        where = software.prefix if software and software.prefix else "this environment"
        yield Check(
            "torch",
            TOPIC,
            Status.UNKNOWN,
            f"no torch is installed in {where}",
            remedies=[Remedy("Name the job's environment", "ftforensics check --prefix /path/to/env")],
        )
        return
    torch = software.torch
    built = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "no CUDA"
    yield Check("torch", TOPIC, Status.OK, f"torch {torch.version} ({built}), Python {software.python or 'unknown'}")
    libraries = would.libraries
    yield from _not_found(torch, would)
    yield from _set(software, libraries)
    yield from _pins(software, libraries)
    yield from _companions(software, libraries)
    yield from _files(software, hashed)
    yield from _symbols(torch, software)
    yield from _openmp(libraries)
    yield from _known_bad(software, driver, machine)


def _not_found(torch: TorchBuild, would: WouldLoad) -> Iterator[Check]:
    lost = [one for one in would.not_found if not one.optional]
    if not lost:
        return
    yield Check(
        "all-found",
        TOPIC,
        Status.FAIL,
        f"import torch would fail: {_lost(lost[0])}" + (f", and {len(lost) - 1} more" if len(lost) > 1 else ""),
        "broken-install",
        Confidence.LIKELY,
        [Cite("loader", one.needed_by or "torch", _lost(one)) for one in lost[:_SHOWN]],
        [torch_again(torch)],
    )


def _lost(one: NotFound) -> str:
    by = f", which {one.needed_by.rpartition('/')[2]} needs" if one.needed_by else ""
    return f"{one.name}{by}: {one.why}"


def _set(software: Software, libraries: list[Library]) -> Iterator[Check]:
    mixed = mixes(libraries)
    for mix in mixed:
        yield _mix(mix)
    # What is mixed is told by then: its foreign half need not be told again.
    told = {_folder(library) for mix in mixed if not mix.private for library in mix.libraries}
    places: dict[str, list[Shadow]] = {}
    for shadow in shadows(software, libraries):
        if _folder(shadow.library) not in told:
            places.setdefault(_folder(shadow.library), []).append(shadow)
    for foreign in places.values():
        yield _shadow(foreign)
    if not mixed and not places and libraries:
        said = f"{len(libraries)} would be loaded, each kind from one place"
        yield Check("one-set-of-libraries", TOPIC, Status.OK, said)


def _mix(mix: Mix) -> Check:
    places = ", ".join(_library(library) for library in mix.libraries[:_SHOWN])
    cites = [Cite("loader", library.path, _library(library)) for library in mix.libraries]
    if mix.private:
        said = f"a private copy of {mix.what} beside another: {places}"
        return Check("one-set-of-libraries", TOPIC, Status.OK, f"{said}; their names cannot meet", supports=cites)
    searched = next((library.searched for library in mix.libraries if library.searched), None)
    remedies = [_CLEAN]
    if searched:
        remedies.insert(0, Remedy(f"Take {searched} out of LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH"))
    return Check(
        "one-set-of-libraries",
        TOPIC,
        Status.FAIL,
        f"{mix.what} would be loaded from {len(mix.libraries)} places: {places}",
        "mixed-cuda-libraries",
        Confidence.LIKELY,
        cites,
        remedies,
    )


def _shadow(shadows: Sequence[Shadow]) -> Check:
    """Of one folder, which often brings several parts of one set."""
    first = shadows[0]
    by = f" by LD_LIBRARY_PATH={first.by}" if first.by else ""
    more = f" and {len(shadows) - 1} more" if len(shadows) > 1 else ""
    return Check(
        "no-foreign-library",
        TOPIC,
        Status.FAIL,
        f"{_library(first.library)}{more} would be loaded{by} in place of {first.wheel}",
        "system-cuda-shadows-wheel",
        Confidence.LIKELY,
        [Cite("loader", one.library.path, f"{_library(one.library)}, in place of {one.wheel}") for one in shadows],
        [_SEARCH if first.by else _PRELOAD, _CLEAN],
    )


def _pins(software: Software, libraries: list[Library]) -> Iterator[Check]:
    """Which torch a companion demands is the business of `_companions`."""
    drifted = [pin for pin in drifted_pins(software, libraries) if pin.package != "torch"]
    mine = [pin for pin in software.pins if pin.package != "torch"]
    absent = [pin for pin in mine if pin.installed is None]
    for pin in drifted:
        yield _drifted(pin)
    if absent:
        yield _absent(absent)
    if mine and not drifted and not absent:
        yield Check("pins", TOPIC, Status.OK, f"what torch pins ({len(mine)}) is there in that version")


def _drifted(pin: Pin) -> Check:
    """An older one lacks what torch was compiled against, and cuDNN's own check says so; a newer one of the same major
    version usually works, and is sometimes what a release note advises."""
    older = _older(pin.installed or "", pin.version)
    said = f"{pin.package} is {pin.installed}, {pin.by} wants {pin.version}"
    return Check(
        "pins",
        TOPIC,
        Status.FAIL if older else Status.WARN,
        said + (": older than what torch was compiled against" if older else ""),
        "drifted-cuda-library",
        Confidence.POSSIBLE,
        [
            Cite("packages", f"METADATA of {pin.by}", f"{pin.package}=={pin.version}"),
            Cite("packages", pin.package, f"{pin.installed} is installed"),
        ],
        [_install(f"Install the version that {pin.by} wants", [pin])],
    )


def _absent(pins: Sequence[Pin]) -> Check:
    """A warning: the library may come from elsewhere (a system CUDA), and whether it is found `_not_found` says."""
    names = ", ".join(f"{pin.package} {pin.version}" for pin in pins[:_SHOWN])
    more = f" and {len(pins) - _SHOWN} more" if len(pins) > _SHOWN else ""
    return Check(
        "pins",
        TOPIC,
        Status.WARN,
        f"{names}{more}, which {pins[0].by} demands, {'are' if len(pins) > 1 else 'is'} not installed",
        "broken-install",
        Confidence.POSSIBLE,
        [Cite("packages", f"METADATA of {pin.by}", f"{pin.package}=={pin.version}") for pin in pins[:20]],
        [_install("Install what is missing", pins)],
    )


def _install(text: str, pins: Sequence[Pin]) -> Remedy:
    wanted = " ".join(shlex.quote(f"{pin.package}=={pin.version}") for pin in pins)
    return Remedy(text, f"pip install --force-reinstall --no-deps {wanted}")


def _older(installed: str, wanted: str) -> bool:
    try:
        return Version(installed) < Version(wanted)
    except InvalidVersion:
        return False


def _companions(software: Software, libraries: list[Library]) -> Iterator[Check]:
    assert software.torch is not None
    wrong = wrong_companions(software, libraries)
    for one in wrong:
        yield _companion(one, software.torch)
    pair = [package for package in software.packages if package.name in COMPANIONS]
    if pair and not wrong:
        said = ", ".join(f"{package.name} {package.version}" for package in pair)
        yield Check("companions", TOPIC, Status.OK, f"{said} beside torch {software.torch.version}")


def _companion(one: Companion, torch: TorchBuild) -> Check:
    wanted = f"goes with torch {one.wanted}" if one.wanted else "goes with another torch"
    return Check(
        "companions",
        TOPIC,
        Status.FAIL,
        f"{one.package} {one.version} {wanted}, torch {one.torch} is installed",
        "stale-extension",
        Confidence.LIKELY,
        [Cite("packages", one.package, one.how or f"{one.package} {one.version} {wanted}")],
        [Remedy(f"Install the {one.package} for this torch, or build it again", companion_command(torch, one.package))],
    )


def _files(software: Software, hashed: bool) -> Iterator[Check]:
    if not software.verified:
        return
    broken = software.broken
    if not broken:
        how = "content as in their RECORD" if hashed else "there, sizes as in their RECORD"
        said = f"{software.checked} files of torch and CUDA: {how}"
        yield Check("files-as-installed", TOPIC, Status.OK, said)
        return
    packages = list(dict.fromkeys((file.package, file.version) for file in broken))
    first = broken[0]
    count = f"{len(broken)} files differ" if len(broken) > 1 else "1 file differs"
    wanted = " ".join(shlex.quote(f"{name}=={base(version)}") for name, version in packages[:_SHOWN])
    yield Check(
        "files-as-installed",
        TOPIC,
        Status.FAIL,
        f"{count} from what was installed: {first.package}: {first.path.rpartition('/')[2]}: {first.how}",
        "broken-install",
        Confidence.LIKELY,
        [Cite("packages", file.path, f"{file.package} {file.version}: {file.how}") for file in broken[:20]],
        [Remedy("Install them again", f"pip install --force-reinstall --no-deps {wanted}")],
    )


def _symbols(torch: TorchBuild, software: Software) -> Iterator[Check]:
    for one in software.missing[:_SHOWN]:
        yield _missing(torch, one)


def _missing(torch: TorchBuild, one: MissingSymbols) -> Check:
    what = f"{one.package} {one.version}" if one.package else one.path.rpartition("/")[2]
    abi = f" (built with the {one.abi} C++ strings)" if one.abi else ""
    return Check(
        "extensions",
        TOPIC,
        Status.FAIL,
        f"{what} needs {one.count} name{'' if one.count == 1 else 's'} that this torch does not have{abi}",
        "abi-mismatch",
        Confidence.LIKELY,
        [Cite("symbols", one.path, name) for name in one.names[:_SHOWN]],
        [
            Remedy(
                f"Install the build of {one.package or what} for this torch, or build it again",
                companion_command(torch, one.package) if one.package else None,
            )
        ],
    )


def _openmp(libraries: list[Library]) -> Iterator[Check]:
    mix = openmp_mix(libraries)
    if mix is None or mix.private:
        return
    places = ", ".join(_library(library) for library in mix.libraries[:_SHOWN])
    yield Check(
        "one-openmp",
        TOPIC,
        Status.WARN,
        f"more than one OpenMP runtime would be loaded: {places}",
        "openmp-clash",
        Confidence.POSSIBLE,
        [Cite("loader", library.path, _library(library)) for library in mix.libraries],
        [Remedy("Let MKL use the same runtime as torch", "export MKL_THREADING_LAYER=GNU")],
    )


def _known_bad(software: Software, driver: Driver | None, machine: str | None) -> Iterator[Check]:
    """What torch itself demands in this version is a remark, not a warning: most runs with it are well."""
    version = driver.module_version if driver else None
    demanded = {pin.package for pin in software.pins if pin.installed == pin.version}
    noted: list[str] = []
    warned = 0
    for package in software.packages:
        for entry in known_bad.matching(package.name, package.version, driver=version, machine=machine):
            said = f"{package.name} {package.version} is known for this: {entry.symptom}"
            if package.name in demanded:
                noted.append(f"{said}; then {entry.fix}")
                continue
            warned += 1
            yield Check(
                "known-bad-release",
                TOPIC,
                Status.WARN,
                said,
                "known-bad-version",
                Confidence.POSSIBLE,
                [Cite("facts", "known-bad releases", f"{entry.package} {entry.versions}: {entry.source}")],
                [Remedy(f"The cure: {entry.fix}", entry.command)],
            )
    if not warned and software.packages:
        said = f"none of {len(software.packages)} packages is one to avoid"
        yield Check("known-bad-release", TOPIC, Status.OK, "; ".join([said, *noted]))


def _library(library: Library) -> str:
    name = library.path.rpartition("/")[2]
    folder = _folder(library)
    version = library.version or "(version unknown)"
    return f"{name} in {folder}" if name.endswith(f".{version}") else f"{name} {version} in {folder}"


def _folder(library: Library) -> str:
    return library.path.rpartition("/")[0]
