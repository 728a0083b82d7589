"""Does the driver fit torch, and is it one driver? The same questions that are asked after a crash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.causes.driver_fit import (
    DriverFit,
    Fit,
    compat_trouble,
    cuda_wheel,
    driver_fit,
    gpus_without_code,
    half_upgraded,
    settling_run,
    stub_loaded,
    torch_for_driver,
)
from ftforensics.causes.sizes import size_text
from ftforensics.facts.driver import branch_number
from ftforensics.facts.gpus import architecture
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.crash import Driver, Gpu, Library
from ftforensics.model.diagnosis import Confidence, Remedy
from ftforensics.model.preflight import Check, Status
from ftforensics.model.software import Software
from ftforensics.preflight.gpus import gpu_text, with_visible

TOPIC = "driver"
FULL = 0.90  # of a GPU's memory, in use before the run has begun


def driver_checks(
    software: Software | None,
    driver: Driver | Gap,
    libraries: Sequence[Library],
    *,
    devices: bool = False,
    chosen: Sequence[str] | None = None,
) -> Iterator[Check]:
    """devices: there are signs of a GPU (device files, a container that was promised one); chosen: the entries of
    CUDA_VISIBLE_DEVICES."""
    torch = software.torch if software else None
    if isinstance(driver, Gap):
        yield _no_driver(software, driver, devices)
        return
    used = with_visible(driver, chosen)
    yield from _one_driver(driver, list(libraries))
    if torch is not None and torch.cuda is None:
        yield without_cuda(software, driver)
    elif torch is not None:
        yield fit_check(software, driver, list(libraries))
        yield from architecture_checks(software, used)
    yield from _gpus(driver, used, chosen)


def without_cuda(software: Software | None, driver: Driver) -> Check:
    torch = software.torch if software else None
    build = "for AMD's ROCm" if torch and torch.hip else "without CUDA"
    return Check(
        "torch-for-gpu",
        TOPIC,
        Status.WARN,
        f"torch {torch.version if torch else ''} is a build {build}: the NVIDIA GPUs will not be used",
        supports=_torch_cites(software),
        remedies=torch_for_driver(_without_torch(software), driver),
    )


def _no_driver(software: Software | None, gap: Gap, devices: bool) -> Check:
    torch = software.torch if software else None
    cite = [Cite(gap.source, "", gap.why)]
    if torch is None or torch.cuda is None:
        said = "no NVIDIA driver is seen here"
        if torch is None:
            return Check("driver", TOPIC, Status.UNKNOWN, said, supports=cite)
        said = f"{said}; torch {torch.version} is a build without CUDA and needs none"
        return Check("driver", TOPIC, Status.OK, said, supports=cite)
    said = f"no NVIDIA driver is seen here, torch {torch.version} is built for CUDA {torch.cuda}"
    remedy = Remedy(
        "In a container, ask for the GPUs (NVIDIA_DRIVER_CAPABILITIES=compute,utility); from a login node, run this "
        "check on a node that has them",
        "docker run --gpus all ...",
    )
    return Check("driver", TOPIC, Status.FAIL if devices else Status.WARN, said, supports=cite, remedies=[remedy])


def _one_driver(driver: Driver, libraries: list[Library]) -> Iterator[Check]:
    """Gates: with one of these nothing on the GPU works, whatever torch is installed."""
    if stub := stub_loaded(driver, libraries):
        yield Check(
            "no-stub-driver",
            TOPIC,
            Status.FAIL,
            "libcuda is the toolkit's stub for linking: no CUDA call will succeed",
            "stub-driver",
            Confidence.LIKELY,
            stub,
            [Remedy("Take the stubs folder out of LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH")],
        )
    if compat := compat_trouble(driver, libraries):
        yield Check(
            "compat-driver",
            TOPIC,
            Status.FAIL,
            "a forward-compatibility libcuda is in use that cannot work with this driver or GPU",
            "compat-driver-mismatch",
            Confidence.LIKELY,
            compat,
            [Remedy("Take the compat folder out of the library search", "unset LD_LIBRARY_PATH")],
        )
    if halves := half_upgraded(driver):
        yield Check(
            "one-driver-version",
            TOPIC,
            Status.FAIL,
            "the driver's kernel module and its libraries are of two versions",
            "driver-half-upgraded",
            Confidence.LIKELY,
            halves,
            [
                Remedy("Reboot, so that the new kernel module is loaded", "sudo reboot"),
                Remedy("In a container: start it again, so that it gets the libraries of the driver that runs now"),
            ],
        )
    elif driver.module_version and driver.libcuda_version and not stub and not compat:
        yield Check(
            "one-driver-version",
            TOPIC,
            Status.OK,
            f"driver {driver.module_version}, libcuda {driver.libcuda_version}",
            supports=[Cite("driver", driver.libcuda_path or "libcuda", driver.libcuda_version)],
        )


def fit_check(software: Software | None, driver: Driver | None, libraries: list[Library] | None = None) -> Check:
    fit = driver_fit(software, driver, libraries)
    torch = software.torch.version if software and software.torch else "torch"
    name = "driver-fits-torch"
    has = f"driver {fit.driver or 'of unknown version'}" + (f" (CUDA {fit.level})" if fit.level else "")
    wants = f"torch {torch.removeprefix('torch ')} (CUDA {fit.cuda})"
    if fit.fit is Fit.EXACT:
        how = "through a forward-compatibility package" if fit.compat else "the driver's own level covers it"
        return Check(name, TOPIC, Status.OK, f"{has} fits {wants}: {how}", supports=fit.supports)
    if fit.fit is Fit.WINDOW:
        said = (
            f"{has} is older than {wants}: inside NVIDIA's minor-version window (from "
            f"{fit.floor or 'the same major'}), so most of it works; newer graph and batch calls and newer PTX do not"
        )
        return Check(
            name,
            TOPIC,
            Status.WARN,
            said,
            "driver-minor-window",
            Confidence.POSSIBLE,
            fit.supports,
            [*torch_for_driver(software, driver), settling_run(software, driver)],
        )
    if fit.fit is Fit.TOO_OLD:
        needs = f"; it needs at least {fit.floor}" if fit.floor else f"; it needs {fit.needs}" if fit.needs else ""
        return Check(
            name,
            TOPIC,
            Status.FAIL,
            f"{has} is too old for {wants}{needs}",
            "driver-too-old",
            Confidence.LIKELY,
            fit.supports,
            [*torch_for_driver(software, driver), settling_run(software, driver)],
        )
    return Check(name, TOPIC, Status.UNKNOWN, _unknown_fit(fit, torch), supports=fit.supports)


def _unknown_fit(fit: DriverFit, torch: str) -> str:
    missing = "; ".join(gap.why for gap in fit.unknown)
    if fit.cuda is None:
        return f"which CUDA torch {torch} is built for is not known" + (f": {missing}" if missing else "")
    return "which CUDA the driver offers is not known" + (f": {missing}" if missing else "")


def architecture_checks(software: Software | None, driver: Driver) -> Iterator[Check]:
    """Has torch code for these GPUs, and does this driver branch still run them?"""
    for gpu in driver.gpus:
        dropped = _dropped(gpu.capability, driver) if gpu.capability else None
        if dropped:
            yield Check(
                "driver-serves-gpu",
                TOPIC,
                Status.FAIL,
                f"{gpu_text(gpu)}: {dropped}",
                "gpu-architecture-unsupported",
                Confidence.LIKELY,
                [Cite("driver", "module_version", driver.module_version or "")],
                [Remedy("Ask the administrator for the last driver branch that serves this GPU")],
            )
    wheel = cuda_wheel(software)
    if wheel is None or not wheel.architectures:
        return
    listed = ", ".join(wheel.architectures)
    if lacking := gpus_without_code(software, driver):
        gpus = ", ".join(dict.fromkeys(gpu_text(gpu) for gpu in lacking))
        yield Check(
            "torch-has-gpu-code",
            TOPIC,
            Status.FAIL,
            f"torch {wheel.name} has no code for {gpus}: it is built for {listed}",
            "gpu-architecture-unsupported",
            Confidence.LIKELY,
            [Cite("facts", "torch wheels", f"torch {wheel.name}: {listed} ({wheel.source})")],
            [
                *torch_for_driver(software, driver),
                Remedy(
                    "The installed build lists its architectures itself",
                    'python -c "import torch; print(torch.cuda.get_arch_list())"',
                    settles=True,
                ),
            ],
        )
    elif served := [gpu for gpu in driver.gpus if gpu.capability]:
        gpus = ", ".join(dict.fromkeys(gpu_text(gpu) for gpu in served))
        yield Check("torch-has-gpu-code", TOPIC, Status.OK, f"torch {wheel.name} has code for {gpus}")


def _dropped(known: str, driver: Driver) -> str | None:
    found = architecture(known)
    branch = branch_number(driver.module_version or "")
    if found is None or found.last_driver is None or branch is None or branch <= found.last_driver:
        return None
    return f"driver branch {found.last_driver} was the last for {found.name}, this is {driver.module_version}"


def _gpus(driver: Driver, used: Driver, chosen: Sequence[str] | None) -> Iterator[Check]:
    if not any(gpu.memory_total for gpu in driver.gpus):
        yield _unasked(driver)
    if not driver.gpus:
        return
    gpus = used.gpus
    if not gpus:
        said = f"CUDA_VISIBLE_DEVICES leaves none of {len(driver.gpus)} GPUs visible"
        yield Check(
            "gpus-visible", TOPIC, Status.WARN, said, remedies=[Remedy("Unset it", "unset CUDA_VISIBLE_DEVICES")]
        )
        return
    full = [gpu for gpu in gpus if _used(gpu) > FULL]
    for gpu in full:
        yield Check(
            "gpu-memory",
            TOPIC,
            Status.FAIL,
            f"{_which(gpu)}: {_used(gpu):.0%} of {size_text(gpu.memory_total or 0)} is in use before the run begins "
            f"(at most {FULL:.0%})",
            supports=[Cite("nvml", f"GPU {gpu.index}", f"{gpu.memory_used} of {gpu.memory_total} bytes used")],
            remedies=[Remedy("See which process holds it, and end it if it is a left-over of yours", "nvidia-smi")],
        )
    if not full and any(gpu.memory_total for gpu in gpus):
        most = max(gpus, key=_used)
        count = f"{len(gpus)} GPUs, the fullest" if len(gpus) > 1 else _which(most)
        yield Check(
            "gpu-memory", TOPIC, Status.OK, f"{count} uses {_used(most):.0%} of {size_text(most.memory_total or 0)}"
        )
    split = [gpu for gpu in gpus if gpu.mig]
    if split and not (chosen and len(chosen) == 1 and chosen[0].startswith("MIG-")):
        yield Check(
            "mig",
            TOPIC,
            Status.WARN,
            f"{_which(split[0])} is split into instances (MIG), of which a process can use one only",
            remedies=[Remedy("Name one by its UUID (nvidia-smi -L)", "export CUDA_VISIBLE_DEVICES=MIG-...")],
        )


def _unasked(driver: Driver) -> Check:
    """NVML did not answer: it is not there, or does not fit the kernel module."""
    why = driver.note or "NVML gave none"
    remedies = []
    if "pynvml is missing" in why:
        remedies = [Remedy("Install what asks NVML", "pip install 'ftforensics[gpu]'")]
    return Check("gpu-memory", TOPIC, Status.UNKNOWN, f"use of the GPUs was not seen: {why}", remedies=remedies)


def _without_torch(software: Software | None) -> Software | None:
    return msgspec.structs.replace(software, torch=None) if software else None


def _which(gpu: Gpu) -> str:
    return f"GPU {gpu.index} {gpu.name or ''}".rstrip()


def _used(gpu: Gpu) -> float:
    if not gpu.memory_total or gpu.memory_used is None:
        return 0.0
    return gpu.memory_used / gpu.memory_total


def _torch_cites(software: Software | None) -> list[Cite]:
    torch = software.torch if software else None
    if torch is None:
        return []
    return [Cite("packages", f"{torch.folder or 'torch'}/version.py", f"{torch.version}, CUDA {torch.cuda or 'none'}")]
