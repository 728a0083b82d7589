"""Do the loaded CUDA and torch libraries belong together? Asked after a crash of what was mapped, by `check` of what
would be."""

from __future__ import annotations

import re

import msgspec

from ftforensics.facts import torch as torch_facts
from ftforensics.model.crash import Library
from ftforensics.model.software import Pin, Software, TorchBuild
from ftforensics.parsers.build_tag import BuiltFor, built_for
from ftforensics.parsers.library_name import is_cuda, is_torch, kind_of

# Libraries that share one soname and one set of global names: two of them in a process can answer for each other.
_NAMES = {
    "libnccl": "NCCL",
    "libnvJitLink": "nvJitLink",
    "libcublas": "cuBLAS",
    "libcublasLt": "cuBLAS",
    "libcudart": "CUDA runtime",
}
_ORDER = ("cuDNN", "NCCL", "nvJitLink", "cuBLAS", "CUDA runtime", "PyTorch")
_MAIN = ("libcudnn", "libcublas")  # of a set of several libraries, the one that names it
# Of these a process has one each; conda spreads them over folders, and other packages use the stem (libtorch_sparse).
_TORCH = ("libc10", "libc10_cuda", "libtorch", "libtorch_cpu", "libtorch_cuda", "libtorch_python")
_OPENMP = ("libgomp", "libomp", "libiomp5")
# The packages that bring a set: nvidia-cudnn-cu12, and without a suffix for CUDA 13.
_PACKAGES = {
    "cuDNN": "nvidia-cudnn",
    "NCCL": "nvidia-nccl",
    "nvJitLink": "nvidia-nvjitlink",
    "cuBLAS": "nvidia-cublas",
    "CUDA runtime": "nvidia-cuda-runtime",
}
_HASHED = re.compile(r"-[0-9a-f]{8}\.so")  # auditwheel's and delocate's names for private copies
_MAJOR = re.compile(r"\.so\.(\d+)")
_OUTSIDE = ("system", "conda", "other")  # origins of what no wheel brought


class Mix(msgspec.Struct, frozen=True):
    """Two or more sets of one thing. what: "cuDNN", "NCCL", "CUDA runtime", "OpenMP", ...; libraries: one of each
    place; private: one of them is a wheel's renamed private copy, whose names cannot meet the others'."""

    what: str
    libraries: list[Library]
    private: bool = False


def spoken(what: str) -> str:
    """A set's name in a sentence: "the CUDA runtime", "cuDNN"."""
    return f"the {what}" if what == "CUDA runtime" else what


class Shadow(msgspec.Struct, frozen=True):
    """A library from outside the environment, loaded in place of the one that a wheel brought. wheel: path or package
    of that one; by: the LD_LIBRARY_PATH entry that did it, where that is known."""

    library: Library
    wheel: str
    by: str | None = None


class Companion(msgspec.Struct, frozen=True):
    """A package built for another torch than the one that is there. wanted: the torch that it goes with."""

    package: str
    version: str
    torch: str
    wanted: str | None = None
    how: str = ""


def set_name(path_or_kind: str) -> str | None:
    """Which set a library belongs to: "cuDNN", "NCCL", ...; None: no set that must be loaded once."""
    kind = path_or_kind if "/" not in path_or_kind else kind_of(path_or_kind) or ""
    if kind.startswith("libcudnn"):
        return "cuDNN"
    return "PyTorch" if kind in _TORCH else _NAMES.get(kind)


def is_private(library: Library) -> bool:
    """A package's own copy, of a name that nothing else asks for. What torch's wheel carries is no such copy: it is the
    set that all its libraries use."""
    if _HASHED.search(library.path.rpartition("/")[2]):
        return True
    return library.vendored_by is not None and not library.vendored_by.startswith("torch ")


def folder(library: Library) -> str:
    return library.path.rpartition("/")[0]


def major(library: Library) -> str | None:
    """The number behind `.so.`, which is what tells two sonames apart."""
    found = _MAJOR.search(library.path.rpartition("/")[2])
    return found[1] if found else None


def same_version(one: str | None, other: str | None) -> bool | None:
    """Compared as far as both go: a file's name says "9.10.2" where the package says "9.10.2.21". None: not known."""
    if not one or not other:
        return None
    left, right = _parts(one), _parts(other)
    shorter = min(len(left), len(right))
    return left[:shorter] == right[:shorter] if shorter >= 2 or left == right else None


def _parts(version: str) -> list[str]:
    return [part.lstrip("0") or "0" for part in version.partition("+")[0].split(".")]


def mixes(libraries: list[Library]) -> list[Mix]:
    """cuDNN (with its parts), NCCL, nvJitLink, cuBLAS, CUDA runtime of two majors, torch itself, from two places.

    First those that share a soname, then those of two majors, then those with a private copy among them. The CUDA
    version that NCCL was built with says nothing here: torch's own wheels for CUDA 12.8 bring one built with 12.9.
    """
    found: list[tuple[int, int, Mix]] = []
    for order, what in enumerate(_ORDER):
        members = [one for one in libraries if set_name(one.kind) == what]
        private = [one for one in members if is_private(one)]
        shared = [one for one in members if not is_private(one)]
        if what == "PyTorch":
            groups = [[one for one in shared if one.kind == kind] for kind in _TORCH]
            twice = max((_one_of_each_place(group) for group in groups), key=len, default=[])
            if len(twice) > 1:
                found.append((0, order, Mix(what, twice)))
            continue
        by_major: dict[str | None, list[Library]] = {}
        for one in shared:
            by_major.setdefault(major(one), []).append(one)
        places = {key: _one_of_each_place(group) for key, group in by_major.items()}
        found += [(0, order, Mix(what, group)) for group in places.values() if len(group) > 1]
        numbered = [group[0] for key, group in places.items() if key is not None]
        if len(numbered) > 1:
            found.append((1, order, Mix(what, numbered)))
        if private and len(everywhere := _one_of_each_place([*shared, *private])) > 1:
            found.append((2, order, Mix(what, everywhere, private=True)))
    return [mix for _, _, mix in sorted(found, key=lambda one: one[:2])]


def _one_of_each_place(libraries: list[Library]) -> list[Library]:
    """One library for each folder; two for one that holds two versions."""
    chosen: list[Library] = []
    for library in libraries:
        for index, one in enumerate(chosen):
            if folder(one) == folder(library) and same_version(one.version, library.version) is not False:
                if library.kind in _MAIN and one.kind not in _MAIN:
                    chosen[index] = library
                break
        else:
            chosen.append(library)
    return chosen


def openmp_mix(libraries: list[Library]) -> Mix | None:
    """Two OpenMP runtimes, or one from two places. private: all but one are renamed private copies of GNU's, as
    scikit-learn brings one: that is common, and harmless as a rule."""
    found = _one_of_each_place([one for one in libraries if one.kind in _OPENMP])
    kinds = {one.kind for one in libraries if one.kind in _OPENMP}
    for kind in kinds - {one.kind for one in found}:  # two kinds in one folder
        found.append(next(one for one in libraries if one.kind == kind))
    if len(found) < 2:
        return None
    return Mix("OpenMP", found, private=kinds == {"libgomp"} and any(is_private(one) for one in found))


def drifted_pins(software: Software | None, libraries: list[Library]) -> list[Pin]:
    """Pins of torch that another version than the demanded one is installed for. A torch that was not installed from a
    wheel is built against what was there: what its metadata may demand is no measure then."""
    pins: dict[str, Pin] = {}
    if software is not None and software.torch is not None and software.torch.origin not in (None, "wheel"):
        return []
    for pin in software.pins if software is not None else []:
        if pin.installed is not None and not _equal(pin.installed, pin.version):
            pins[pin.package] = pin
    for library in libraries:
        if not library.package or not library.pin or not library.version or library.how != "record":
            continue
        if own_copy(library, software) is not None:
            continue  # the environment's own is another one, and that was not loaded: a shadow
        if not _equal(library.version, library.pin):
            by = library.pinned_by or "torch"
            pins.setdefault(library.package, Pin(library.package, library.pin, by, library.version))
    return list(pins.values())


def own_copy(library: Library, software: Software | None) -> Pin | None:
    """What is installed beside torch of the package that `library` is another copy of: one that a search path found in
    another environment, or where `pip install --target` has put it."""
    torch = software.torch if software is not None else None
    if software is None or torch is None or torch.folder is None or library.how != "record" or not library.version:
        return None
    if library.path.startswith(f"{torch.folder.rpartition('/')[0]}/"):
        return None
    pin = next((one for one in software.pins if one.package == library.package), None)
    return pin if pin is not None and pin.installed and not _equal(pin.installed, library.version) else None


def _equal(one: str, other: str) -> bool:
    left, right = _parts(one), _parts(other)
    length = max(len(left), len(right))
    return left + ["0"] * (length - len(left)) == right + ["0"] * (length - len(right))


def is_newer_patch(pin: Pin) -> bool:
    """Is what is installed of the same minor version as the demanded one, and newer?"""
    wanted, there = _parts(pin.version), _parts(pin.installed or "")
    if wanted[:2] != there[:2] or not all(part.isdecimal() and len(part) < 10 for part in wanted + there):
        return False
    return [int(part) for part in there] > [int(part) for part in wanted]


def brings(package: str, what: str) -> bool:
    """Is this the nvidia package of this set?"""
    stem = _PACKAGES.get(what)
    return stem is not None and re.fullmatch(rf"{stem}(-cu\d+)?", package) is not None


def pin_of_set(what: str, software: Software | None) -> Pin | None:
    """The version of this set that torch demands."""
    return next((one for one in software.pins if brings(one.package, what)), None) if software is not None else None


def shadows(software: Software | None, libraries: list[Library]) -> list[Shadow]:
    """CUDA libraries, and torch's own, that came from outside although a wheel brings them. None where torch is built
    against the system's or conda's CUDA, and none for a library of the very same version."""
    torch = software.torch if software is not None else None
    if torch is not None and torch.origin not in (None, "wheel"):
        return []
    found = []
    for library in libraries:
        what = set_name(library.kind)
        own = own_copy(library, software)
        if what is None or is_private(library) or (own is None and library.origin not in _OUTSIDE):
            continue
        if own is not None:
            twice = any(one.kind == library.kind and one.path != library.path for one in libraries)
            if not twice:  # else a mix
                found.append(Shadow(library, f"{own.package} {own.installed}", library.searched))
            continue
        wheel, version = _wheels_own(what, library, software, libraries)
        if wheel is not None and same_version(version, library.version) is not True:
            found.append(Shadow(library, wheel, library.searched))
    return found


def _wheels_own(
    what: str, library: Library, software: Software | None, libraries: list[Library]
) -> tuple[str | None, str | None]:
    """(path or package, version) of what a wheel brought in place of which `library` was loaded."""
    torch = software.torch if software is not None else None
    if what == "PyTorch":
        python = next((one for one in libraries if one.kind == "libtorch_python" and one.origin == "wheel"), None)
        own = f"{torch.folder}/lib" if torch is not None and torch.folder else folder(python) if python else None
        # Two of a kind are a mix; a torch whose folder is not known cannot be told from the right one. A checkout that
        # is installed in place (origin "other") has its libraries beside its version.py.
        twice = any(one.kind == library.kind and one.path != library.path for one in libraries)
        return (None, None) if own is None or own == folder(library) or twice else (own, None)
    mapped = [one for one in libraries if set_name(one.kind) == what and one.origin == "wheel" and not is_private(one)]
    if any(one.kind == library.kind and major(one) == major(library) for one in mapped):
        return None, None  # both are there: a mix
    if mapped:
        return mapped[0].path, mapped[0].version
    if torch is None or software is None:
        return None, None
    package = next((one for one in software.packages if brings(one.name, what)), None)
    return (f"{package.name} {package.version}", package.version) if package is not None else (None, None)


def wrong_companions(software: Software | None, libraries: list[Library]) -> list[Companion]:
    """torchvision, torchaudio and CUDA extensions whose own build or pair table names another torch."""
    torch = software.torch if software is not None else None
    if software is None or torch is None:
        return []
    packages = {one.name: one.version for one in software.packages}
    for library in libraries:
        if library.kind == "extension" and library.package and library.version:
            packages.setdefault(library.package, library.version)
    found = []
    for name, version in packages.items():
        if name == "torch" or name.startswith(("nvidia-", "cuda-")):
            continue
        tag = built_for(version)
        if name in torch_facts.COMPANIONS:
            wrong = _off_table(name, version, torch) or _other_variant(name, version, tag, torch)
        else:
            wrong = _other_torch(name, version, tag, torch)
        if wrong is not None:
            found.append(wrong)
    return found


def variant_of(torch: TorchBuild) -> str | None:
    """ "cu128", "cpu", "rocm"; None where nothing says."""
    if torch.hip:
        return "rocm"
    if torch.cuda:
        return "cu" + "".join(torch.cuda.split(".")[:2])
    return built_for(torch.version).variant


def published_wheel(torch: TorchBuild | None) -> torch_facts.Wheel | None:
    """The published wheel that this torch is; None for one of conda, one built here, an unknown one."""
    if torch is None or torch.origin not in (None, "wheel"):
        return None
    return torch_facts.find_wheel(torch.version.partition("+")[0], variant_of(torch))


def _off_table(name: str, version: str, torch: TorchBuild) -> Companion | None:
    """Compared by minor version: within one, torch's C++ interface has not changed."""
    base = torch.version.partition("+")[0]
    wanted = torch_facts.companions(base)[torch_facts.COMPANIONS.index(name)]
    if wanted is None or _parts(wanted)[:2] == _parts(version)[:2]:
        return None
    goes_with = None
    for wheel in torch_facts.wheels():
        theirs = (wheel.torchvision, wheel.torchaudio)[torch_facts.COMPANIONS.index(name)]
        if theirs is not None and _parts(theirs)[:2] == _parts(version)[:2]:
            goes_with = wheel.torch
    return Companion(name, version, torch.version, goes_with, f"torch {base} goes with {name} {wanted}")


def _other_variant(name: str, version: str, tag: BuiltFor, torch: TorchBuild) -> Companion | None:
    """Both come from one index, so that their tags agree. PyPI's wheels have no tag and are not compared."""
    variant = variant_of(torch)
    if tag.variant is None or variant is None or tag.variant == variant:
        return None
    base, theirs = torch.version.partition("+")[0], version.partition("+")[2]
    return Companion(name, version, torch.version, f"{base}+{theirs}", f"built for {theirs}, torch for {variant}")


def _other_torch(name: str, version: str, tag: BuiltFor, torch: TorchBuild) -> Companion | None:
    if tag.torch is not None and _parts(tag.torch)[:2] != _parts(torch.version)[:2]:
        return Companion(name, version, torch.version, tag.torch, f"its version says that it is for torch {tag.torch}")
    # Extensions for another minor version of CUDA 12 run; those for CUDA 11 want another runtime library.
    if tag.torch is not None and tag.cuda_major and torch.cuda and tag.cuda_major != torch.cuda.partition(".")[0]:
        return Companion(
            name, version, torch.version, tag.torch, f"its version says that it is for CUDA {tag.cuda_major}"
        )
    return None


def is_cuda_or_torch(path: str) -> bool:
    """Is this file one of CUDA's, TensorRT's or torch's libraries?"""
    kind = kind_of(path) or ""
    return is_torch(kind) or is_cuda(kind) or kind.startswith("libnvinfer")
