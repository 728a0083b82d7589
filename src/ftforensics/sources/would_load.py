"""What the dynamic loader would map for `import torch`, told from the files, without importing anything.

Followed in the order of torch/__init__.py: the interpreter with LD_PRELOAD, libtorch_global_deps.so, the CUDA libraries
that torch loads by path, torch/_C; then what is loaded by name while a GPU is used (the driver, cuDNN's parts), and the
extensions of torchvision and torchaudio. What a training script imports before torch is not known here: a library that
it brings in first is the one that everybody gets.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator

import msgspec

from ftforensics.facts.torch import COMPANIONS
from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.crash import Library
from ftforensics.model.software import Software
from ftforensics.parsers import library_name
from ftforensics.parsers.torch_preload import Preload, Preloads, preloads
from ftforensics.sources.dynamic_loader import DynamicLoader, LoadedFile, NotFound, SearchEnvironment
from ftforensics.sources.libraries import Mapped, loaded_libraries, with_pins
from ftforensics.sources.torch_extensions import torch_extensions
from ftforensics.symbols.elf import ElfError, read_elf

__all__ = ["NotFound", "SearchEnvironment", "WouldLoad", "would_load"]

_INIT_LIMIT = 1 << 20  # bytes of torch/__init__.py; 2.13's has 110 KB

# cuDNN is a thin library that loads its parts by name when they are first used; each name is looked up like any other,
# so that LD_LIBRARY_PATH can mix the parts of two versions. 9.10.2 asks for libcudnn_graph.so.9.10.2, .so.9.10, .so.9
# in turn (LD_DEBUG=libs): the wheels have the last one only, and what the longer names find is at least of its version,
# so that the last one alone is followed here. 8's parts are those of NVIDIA's packages, the same is assumed of them.
_CUDNN_PARTS = {
    "8": ("ops_infer", "cnn_infer", "adv_infer", "ops_train", "cnn_train", "adv_train"),
    "9": (
        "graph",
        "ops",
        "cnn",
        "adv",
        "heuristic",
        "engines_precompiled",
        "engines_runtime_compiled",
    ),
}


class WouldLoad(msgspec.Struct, frozen=True):
    """libraries: of interest, in load order, as `sources.libraries` sees them; files: every path that would be mapped,
    in load order; not_found: in the order met; gaps: what of the loader's search could not be followed."""

    libraries: list[Library] = []
    files: list[str] = []
    not_found: list[NotFound] = []
    gaps: list[Gap] = []


def would_load(host: Host, software: Software, environment: SearchEnvironment) -> WouldLoad:
    """For the torch and the Python of `software`. A torch that is not there gives an empty answer and a Gap."""
    folder = software.torch.folder if software.torch else None
    names = host.listed(f"{folder}/lib") if folder else []
    first = next((name for name in ("libtorch_global_deps.so", "libc10.so", "libtorch.so") if name in names), None)
    if folder is None or first is None:
        return WouldLoad(gaps=[Gap("loader", "no installed torch to follow")])
    machine = _machine(host, f"{folder}/lib/{first}")
    if machine is None:
        why = "not an ELF file of ours, or cut short"
        return WouldLoad(not_found=[NotFound(f"{folder}/lib/{first}", why=why)])
    loader = DynamicLoader(host, environment, machine)
    gaps: list[Gap] = []
    if gap := _start(host, software, loader):
        gaps.append(gap)
    _import_torch(host, software, folder, names, loader)
    _use_gpu(software, loader)
    for path in torch_extensions(host, software, COMPANIONS):
        loader.load(path, optional=True)
    files = [file.real for file in loader.loaded]
    libraries = loaded_libraries([Mapped(path) for path in files], host, search_path=environment.library_path)
    return WouldLoad(
        libraries=with_pins(libraries, software),
        files=files,
        not_found=loader.not_found,
        gaps=[*gaps, *loader.gaps],
    )


def _start(host: Host, software: Software, loader: DynamicLoader) -> Gap | None:
    """The interpreter: conda's has an RPATH, which reaches every library without a RUNPATH of its own."""
    short = ".".join((software.python or "").split(".")[:2])
    for name in (f"python{short}", "python3", "python"):
        path = f"{software.prefix}/bin/{name}"
        if software.prefix and host.exists(path):
            try:
                loader.start(path)
                return None
            except (Refusal, ElfError) as error:
                return Gap("loader", f"{path}: {error}; what the interpreter itself loads is not known")
    return Gap("loader", "the interpreter was not found; what it loads itself, and LD_PRELOAD, is not known")


def _import_torch(host: Host, software: Software, folder: str, names: list[str], loader: DynamicLoader) -> None:
    wanted = _preloads(host, folder)
    if "libtorch_global_deps.so" in names:
        path = f"{folder}/lib/libtorch_global_deps.so"
        before = len(loader.loaded), len(loader.not_found)
        loader.load(path)
        if len(loader.not_found) > before[1]:
            # torch catches the OSError, loads the CUDA packages by path and tries again.
            loader.take_back(*before)
            _by_path(host, software, wanted.after_failure, loader)
            loader.load(path)
        elif any("libcudart" in os.path.basename(file.real) for file in loader.loaded):
            wheel = any("nvidia/cuda_runtime/lib/libcudart.so" in file.real for file in loader.loaded)
            if wheel or not wanted.only_with_wheel:
                _by_path(host, software, wanted.after_success, loader)
    modules = [name for name in host.listed(folder) if name.startswith("_C.") and name.endswith(".so")]
    tag = "cpython-" + "".join((software.python or "").split(".")[:2]) + "-"
    for name in sorted(modules, key=lambda name: tag not in name)[:1]:
        loader.load(f"{folder}/{name}")
    # An unpacked libtorch, or a build without Python: what _C would have brought in.
    for name in ("libtorch.so", "libtorch_cpu.so", "libtorch_cuda.so", "libc10.so", "libc10_cuda.so"):
        if name in names and not modules:
            loader.load(f"{folder}/lib/{name}")


def _preloads(host: Host, folder: str) -> Preloads:
    try:
        return preloads(host.read_text(f"{folder}/__init__.py", _INIT_LIMIT))
    except Refusal:
        return Preloads()


def _by_path(host: Host, software: Software, wanted: list[Preload], loader: DynamicLoader) -> None:
    """As `_preload_cuda_lib`: the first match on sys.path; a required one that is nowhere ends it."""
    cuda = (software.torch.cuda if software.torch else None) or ""
    for one in wanted:
        places = (f"nvidia/{one.folder}/lib", f"nvidia/cu{cuda.split('.')[0]}/lib", f"{one.folder}/lib")
        found = next((path for site in software.site_packages for path in _matches(host, site, places, one)), None)
        if found is None and one.required:
            return
        if found is not None:
            loader.load(found)


def _matches(host: Host, site: str, places: tuple[str, ...], one: Preload) -> Iterator[str]:
    for place in places:
        for name in fnmatch.filter(host.listed(f"{site}/{place}"), one.pattern):
            yield f"{site}/{place}/{name}"


def _use_gpu(software: Software, loader: DynamicLoader) -> None:
    """What is loaded by name at run time: the driver by the CUDA runtime, cuDNN's parts by cuDNN."""
    runtime = _loaded(loader, "libcudart") or _loaded(loader, "libc10_cuda") or _loaded(loader, "libtorch_cuda")
    if runtime or (software.torch and software.torch.cuda):
        loader.load("libcuda.so.1", runtime, optional=True)
    cudnn = _loaded(loader, "libcudnn")
    major = (cudnn.dynamic.soname or "").rpartition(".so.")[2] if cudnn else ""
    for part in _CUDNN_PARTS.get(major, ()):
        loader.load(f"libcudnn_{part}.so.{major}", cudnn, optional=True)


def _loaded(loader: DynamicLoader, kind: str) -> LoadedFile | None:
    return next((file for file in loader.loaded if library_name.kind_of(file.real) == kind), None)


def _machine(host: Host, path: str) -> int | None:
    try:
        with host.open(path) as file:
            return read_elf(file.fileno()).machine
    except (Refusal, ElfError, OSError):
        return None
