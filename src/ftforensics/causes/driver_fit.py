"""Does the driver fit the CUDA that torch was built for? Asked after a crash and by `check` before a run.

A driver has two halves: the kernel's module, whose branch fixes the highest CUDA version that it offers, and libcuda,
which says its own level. They are kept apart, because a forward-compatibility package brings a newer libcuda to an
older module, and because an upgrade that stopped half way leaves two versions on one machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from enum import Enum

import msgspec

from ftforensics.causes.library_set import published_wheel
from ftforensics.facts.choose import Choice, Choices, choose
from ftforensics.facts.driver import at_least, cuda_tuple, driver_level, level_of_api, minimum_driver, window_floor
from ftforensics.facts.gpus import capability_of, is_data_center
from ftforensics.facts.torch import Wheel, runs_on
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import Driver, Gpu, Library
from ftforensics.model.diagnosis import Remedy
from ftforensics.model.launcher import ExceptionSeen, TextLine
from ftforensics.model.software import Software
from ftforensics.parsers.library_name import is_compat, is_driver, is_stub
from ftforensics.parsers.stack_message import in_exception

# Versions may come from a record that somebody else wrote: what is no version is as good as not there.
_DRIVER_VERSION = re.compile(r"[0-9]{2,4}(\.[0-9]{1,4}){1,3}")
_CUDA_VERSION = re.compile(r"[0-9]{1,2}\.[0-9]{1,3}(\.[0-9]{1,4}){0,2}")
_API_LEVELS = range(1000, 100_000)  # of cuDriverGetVersion: 1000 * major + 10 * minor
_OPENS_DRIVER = ("libcudart", "libtorch_cuda", "libc10_cuda", "libnccl")
# What NVML calls its own version: the CUDA major and then the driver's, "12.570.124.06".
_NVML_PREFIX = re.compile(r"\A[0-9]{1,2}\.(?=[0-9]{3,4}\.[0-9])")


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
    of the wheel's own level; supports: where each of these was read. built: what it is that was built for `cuda`
    ("torch 2.9.1"); bare: the fit without the compatibility package."""

    fit: Fit
    driver: str | None = None
    level: str | None = None
    cuda: str | None = None
    floor: str | None = None
    needs: str | None = None
    compat: bool = False
    supports: list[Cite] = []
    unknown: list[Gap] = []
    built: str = "torch"
    bare: Fit = Fit.UNKNOWN

    @property
    def driver_text(self) -> str:
        """ "the driver 530.30.02 offers CUDA 12.1"."""
        name = f"the driver {self.driver}" if self.driver else "the driver"
        return f"{name} offers CUDA {self.level}" if self.level else name


def driver_fit(software: Software | None, driver: Driver | None, libraries: list[Library] | None = None) -> DriverFit:
    """libraries: the loaded ones, which tell torch's CUDA where `software` does not."""
    module = _driver_version(driver.module_version) if driver else None
    branch = driver_level(module) if module else None
    asked = _asked_level(driver)
    compat = _raised_by_compat(driver, libraries, branch, asked)
    # Of a libcuda of the module's own version its word counts: a branch between two known ones may offer more.
    own = module is not None and driver is not None and _driver_version(driver.libcuda_version) == module
    level = asked if asked and (compat or own or branch is None) else branch
    built, cuda, cuda_cite = _built_for(software, libraries)
    supports = [cite for cite in (cuda_cite, *_driver_cites(module, branch, driver, asked, compat)) if cite is not None]
    unknown = []
    if cuda is None:
        unknown.append(Gap("software", "for which CUDA torch was built"))
    if module is None and level is None:
        unknown.append(Gap("driver", "the driver's version and level", "nvidia-smi"))
    floor = window_floor(cuda_tuple(cuda)[0]) if cuda else None
    needs = minimum_driver(minor_of(cuda)) if cuda else None
    return DriverFit(
        fit=_fit(None if compat else module, level, cuda, floor, needs),
        driver=module,
        level=level,
        cuda=minor_of(cuda) if cuda else None,
        floor=floor,
        needs=needs,
        compat=compat,
        supports=supports,
        unknown=unknown,
        built=built,
        bare=_fit(module, branch, cuda, floor, needs),
    )


def _fit(driver: str | None, level: str | None, cuda: str | None, floor: str | None, needs: str | None) -> Fit:
    if cuda is None or (driver is None and level is None):
        return Fit.UNKNOWN
    if level is not None:
        if cuda_tuple(level) >= cuda_tuple(cuda):
            return Fit.EXACT
        if cuda_tuple(level)[0] < cuda_tuple(cuda)[0] or floor is None:
            return Fit.TOO_OLD  # before CUDA 11 there is no window either
        return Fit.TOO_OLD if driver is not None and not at_least(driver, floor) else Fit.WINDOW
    # A driver that no table knows, most likely a newer one.
    assert driver is not None
    if needs is not None and at_least(driver, needs):
        return Fit.EXACT
    if floor is None:
        return Fit.UNKNOWN
    return Fit.WINDOW if at_least(driver, floor) else Fit.TOO_OLD


def half_upgraded(driver: Driver | None, libraries: list[Library] | None = None) -> list[Cite]:
    """What says that the driver's kernel module and its libraries are of two versions; [] when nothing does.

    libraries: the loaded ones, where a compatibility package's and stubs are left out: of the former another version
    is the purpose."""
    module = _driver_version(driver.module_version) if driver else None
    if driver is None or module is None:
        return []
    parts = [
        ("driver", "libcuda_version", driver.libcuda_path or "libcuda", driver.libcuda_version),
        ("driver", "nvml_version", "libnvidia-ml", _NVML_PREFIX.sub("", driver.nvml_version or "", count=1)),
    ]
    for one in libraries or []:
        if is_driver(one.kind) and one.origin not in ("compat", "stubs") and one.path != driver.libcuda_path:
            parts.append(("libraries", one.path, one.path, one.version))
    torn = [
        Cite(source, locator, f"{name} is {found}")
        for source, locator, name, version in parts
        if (found := _driver_version(version)) not in (None, module) and not is_compat(name) and not is_stub(name)
    ]
    torn += _refused_by_nvml(driver)
    return [Cite("driver", "module_version", f"the driver's kernel module is {module}"), *torn] if torn else []


def stub_loaded(driver: Driver | None, libraries: list[Library] | None) -> list[Cite]:
    """What says that libcuda is the toolkit's link-time stub."""
    found = [
        Cite("libraries", one.path, "the toolkit's link-time stub of libcuda")
        for one in libraries or []
        if one.kind == "libcuda" and (one.origin == "stubs" or is_stub(one.path))
    ]
    path = driver.libcuda_path if driver else None
    if path and is_stub(path) and all(cite.locator != path for cite in found):
        found.append(Cite("driver", "libcuda_path", f"{path}: the toolkit's link-time stub of libcuda"))
    return found


def compat_trouble(driver: Driver | None, libraries: list[Library] | None) -> list[Cite]:
    """What says that a forward-compatibility libcuda is in use where it cannot work: older than the module, or on a
    GPU that it does not support."""
    path = compat_libcuda(driver, libraries)
    if driver is None or path is None:
        return []
    used = Cite("driver", "libcuda_path", f"{path}: libcuda of a forward-compatibility package")
    module, libcuda = _driver_version(driver.module_version), _compat_version(driver, libraries, path)
    if module and libcuda and not at_least(libcuda, module):
        text = f"it is {libcuda}, older than the kernel's module {module}: such a package only goes upwards"
        return [used, Cite("driver", "libcuda_version", text)]
    names = [gpu.name for gpu in driver.gpus if gpu.name]
    refused = [name for name in names if is_data_center(name) is False]
    if refused and len(refused) == len(names):
        return [used, Cite("driver", "gpus", f"{refused[0]}: forward compatibility is for data-center GPUs")]
    return []


def compat_libcuda(driver: Driver | None, libraries: list[Library] | None) -> str | None:
    """The path of a forward-compatibility libcuda that is in use."""
    for one in libraries or []:
        if one.kind == "libcuda" and (one.origin == "compat" or is_compat(one.path)):
            return one.path
    path = driver.libcuda_path if driver else None
    return path if path and is_compat(path) else None


def uses_cuda(driver: Driver | None, libraries: list[Library] | None) -> bool:
    """Can the driver have had a part in it? False only where it was looked and neither libcuda nor a library that opens
    it was loaded. The CUDA runtime lets libcuda go again after a driver that it refuses."""
    return libraries is None or opened(driver, libraries) or any(one.kind in _OPENS_DRIVER for one in libraries)


def opened(driver: Driver | None, libraries: list[Library] | None) -> bool:
    """Was libcuda loaded when it died, as far as anybody looked?"""
    if driver is not None and driver.libcuda_path:
        return True
    return libraries is None or any(one.kind == "libcuda" for one in libraries)


def gpus_without_code(software: Software | None, driver: Driver | None) -> list[Gpu]:
    """GPUs that the installed torch has no device code for, by what is published of its wheel."""
    wheel = cuda_wheel(software)
    if wheel is None or driver is None:
        return []
    return [gpu for gpu in driver.gpus if (own := capability(gpu)) is not None and runs_on(wheel, own) is False]


def capability(gpu: Gpu) -> str | None:
    """As the driver said it, else by the model's name."""
    if gpu.capability and _CUDA_VERSION.fullmatch(gpu.capability):
        return gpu.capability
    return capability_of(gpu.name) if gpu.name else None


def cuda_wheel(software: Software | None) -> Wheel | None:
    """The published wheel with CUDA that the installed torch is."""
    torch = software.torch if software else None
    return published_wheel(torch) if torch and torch.cuda and _CUDA_VERSION.fullmatch(torch.cuda) else None


# -- what to do --------------------------------------------------------------------------------------------------------


def torch_for_driver(software: Software | None, driver: Driver | None) -> list[Remedy]:
    """Commands that install the torch that fits, the exact one first, then the window's; then the driver to ask for."""
    choices = choices_for(software, driver)
    fit = driver_fit(software, driver)
    level = f": the driver offers CUDA {fit.level}" if fit.level else ""
    offered = [*choices.exact[:2], *choices.window[:2]]
    remedies = [
        _install(choice, "Or" if index else "Install", level if choice.tier == "exact" else "")
        for index, choice in enumerate(offered)
    ]
    remedies += _driver_to_ask_for(fit, choices, driver)
    names = [gpu.name for gpu in driver.gpus if gpu.name] if driver else []
    if choices.compat and not fit.compat and not any(is_data_center(name) is False for name in names):
        folder = f"/usr/local/cuda-{choices.compat.removeprefix('cuda-compat-').replace('-', '.')}/compat"
        remedies.append(
            Remedy(
                f"Or, on data-center GPUs only, install {choices.compat}, the user-space half of a newer driver, and "
                "put it first",
                f"LD_LIBRARY_PATH={folder} python ...",
            )
        )
    return remedies


def choices_for(software: Software | None, driver: Driver | None) -> Choices:
    """Which torch goes with this driver, its GPUs and this Python."""
    fit = driver_fit(software, driver)
    module = None if fit.compat else fit.driver
    capabilities = [own for gpu in driver.gpus if (own := capability(gpu)) is not None] if driver else []
    return choose(
        module,
        level=fit.level,
        capabilities=capabilities,
        python=software.python if software else None,
        machine=software.machine if software else None,
    )


def settling_run(software: Software | None, driver: Driver | None) -> Remedy:
    """The run that confirms or refutes that the driver is too old for what runs on it."""
    best = next(iter(choices_for(software, driver).exact), None)
    torch = software.torch if software else None
    if best is not None:
        text = "with a torch of the driver's own level: if it dies there too"
        install = best.command
    else:
        text = "with the same torch: if it survives there"
        # The version is the record's word, which somebody else may have written.
        wanted = shlex.quote(f"torch=={torch.version.partition('+')[0]}") if torch else "torch"
        install = f"pip install {wanted}"
    return Remedy(
        f"Run the same script in a fresh environment, LD_LIBRARY_PATH unset, {text}, the driver was not the cause",
        f"python -m venv fresh && . fresh/bin/activate && unset LD_LIBRARY_PATH && {install} && python ...",
        settles=True,
    )


def _install(choice: Choice, verb: str, reason: str) -> Remedy:
    text = f"{verb} torch {choice.wheel.torch} for CUDA {choice.wheel.cuda}{reason}"
    return Remedy("; ".join(part for part in (text, choice.note) if part), choice.command)


def _driver_to_ask_for(fit: DriverFit, choices: Choices, driver: Driver | None) -> Iterator[Remedy]:
    wanted = fit.needs if fit.fit in (Fit.WINDOW, Fit.TOO_OLD, Fit.UNKNOWN) and fit.cuda else None
    what = f", the level of CUDA {fit.cuda}" if wanted else ""
    if wanted is None and not choices.exact:
        wanted = choices.driver_for_newest
    if wanted is None:
        return
    if driver is not None and "/wsl/" in (driver.libcuda_path or ""):
        # The driver is that of Windows, whose numbers are others.
        yield Remedy(f"Or update the GPU driver of Windows{what}", "wsl --update")
        return
    yield Remedy(f"Or ask the administrator for driver {wanted} or newer{what}")


# -- reading what was recorded -----------------------------------------------------------------------------------------


def _driver_version(text: str | None) -> str | None:
    return text if text and _DRIVER_VERSION.fullmatch(text) else None


def minor_of(cuda: str) -> str:
    """ "12.8.90" -> "12.8"."""
    major, minor = cuda_tuple(cuda)
    return f"{major}.{minor}"


def _refused_by_nvml(driver: Driver) -> list[Cite]:
    """NVML compares the two halves itself when it is asked."""
    said = [part.removeprefix("NVML: ") for part in (driver.note or "").split("; ") if part.startswith("NVML: ")]
    for message in said:
        line = TextLine(message[:300], 0)
        if any(text.kind == "driver-versions" for text in in_exception(ExceptionSeen(line, "NVMLError", message))):
            return [Cite("driver", "note", f"NVML: {message[:200]}")]
    return []


def _asked_level(driver: Driver | None) -> str | None:
    """What libcuda said itself; of a stub or a library without a driver it is 0 or nothing."""
    api = driver.api_level if driver else None
    return level_of_api(api) if api is not None and api in _API_LEVELS else None


def _raised_by_compat(
    driver: Driver | None, libraries: list[Library] | None, branch: str | None, asked: str | None
) -> bool:
    """Does a libcuda of a newer driver than the module answer, and offer more than the module's branch?"""
    if driver is None or asked is None or compat_trouble(driver, libraries):
        return False
    module = _driver_version(driver.module_version)
    if module is not None and _driver_version(driver.libcuda_version) == module:
        return False
    if compat_libcuda(driver, libraries) is not None:
        return branch is None or cuda_tuple(asked) > cuda_tuple(branch)
    # A copy of such a package may lie in any folder. Where the libraries' versions differ it is a torn upgrade instead.
    return branch is not None and cuda_tuple(asked) > cuda_tuple(branch) and not half_upgraded(driver)


def _compat_version(driver: Driver, libraries: list[Library] | None, path: str) -> str | None:
    if driver.libcuda_path == path:
        return _driver_version(driver.libcuda_version)
    return next((_driver_version(one.version) for one in libraries or [] if one.path == path), None)


def _driver_cites(
    module: str | None, branch: str | None, driver: Driver | None, asked: str | None, compat: bool
) -> Iterator[Cite]:
    if module is not None:
        said = f": its branch offers CUDA {branch}" if branch else ""
        yield Cite("driver", "module_version", f"the driver's kernel module is {module}{said}")
    if asked is not None and driver is not None:
        text = f"libcuda reports {driver.api_level}: CUDA {asked}"
        yield Cite("driver", "api_level", f"{text}, raised by a compatibility package" if compat else text)


def _built_for(software: Software | None, libraries: list[Library] | None) -> tuple[str, str | None, Cite | None]:
    """(what was built, its CUDA, where that stands): torch by its own word, else the CUDA runtime that is loaded."""
    torch = software.torch if software else None
    if torch is not None and torch.cuda and _CUDA_VERSION.fullmatch(torch.cuda):
        built = f"torch {torch.version}"
        how = f" ({torch.how})" if torch.how else ""
        return built, torch.cuda, Cite("software", "torch", f"{built}, built for CUDA {minor_of(torch.cuda)}{how}")
    for kind, name in (("libtorch_cuda", "torch"), ("libtorch", "torch"), ("libcudart", "the CUDA runtime")):
        # Several runtimes are another matter (mixed-cuda-libraries); the newest asks most of the driver.
        found = [(cuda, one) for one in libraries or [] if one.kind == kind and (cuda := _cuda_of(one)) is not None]
        if found:
            cuda, library = max(found, key=lambda pair: cuda_tuple(pair[0]))
            built = f"{name} {library.version}" if library.version and name == "torch" else name
            return built, cuda, Cite("libraries", library.path, f"{built} is of CUDA {minor_of(cuda)}")
    return (f"torch {torch.version}" if torch else "torch"), None, None


def _cuda_of(library: Library) -> str | None:
    if library.cuda and _CUDA_VERSION.fullmatch(library.cuda):
        return library.cuda
    version = library.version if library.kind == "libcudart" else None
    return version if version and _CUDA_VERSION.fullmatch(version) else None
