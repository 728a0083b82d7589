"""The same questions about a torch that is not installed, a driver and a GPU that are not here (`check --for`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from ftforensics.facts.driver import branches, minimum_driver
from ftforensics.facts.gpus import architecture, capability_of
from ftforensics.facts.torch import Wheel, cuda_of_variant, find_wheel, last_wheels, wheels
from ftforensics.model.crash import Driver, Gpu
from ftforensics.model.diagnosis import Confidence, Remedy
from ftforensics.model.preflight import Check, Preflight, Status
from ftforensics.model.software import Software, TorchBuild
from ftforensics.preflight.driver import architecture_checks, fit_check, without_cuda
from ftforensics.preflight.gpus import newer_than_driver
from ftforensics.preflight.options import Options
from ftforensics.preflight.run import answer

_REQUIREMENT = re.compile(
    r"\s*(?:torch\s*(?:==\s*|\s))?\s*v?(?P<release>\d{1,3}(?:\.\d{1,4}){1,3})(?:\+(?P<local>[A-Za-z0-9][A-Za-z0-9._]{0,30}))?\s*",
    re.ASCII,
)
_DRIVER = re.compile(r"\d{3,4}(?:\.\d{1,4}){0,2}", re.ASCII)
_CAPABILITY = re.compile(r"(?:sm_?|compute_?)?(\d{1,2})\.(\d)[af]?|(?:sm_?|compute_?)(\d{1,2})(\d)[af]?", re.ASCII)
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d{1,2})?", re.ASCII)


class NotUnderstood(ValueError):
    """A value of the command line: what is wrong with it, and what to give instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


class Asked(msgspec.Struct, frozen=True):
    """release: "2.9.1"; local: "cu128", "cpu", "rocm6.4", None: the default of PyPI; cuda: "12.8"; wheel: None where
    the release is in no table."""

    release: str
    local: str | None
    cuda: str | None
    wheel: Wheel | None

    @property
    def version(self) -> str:
        local = self.local or (self.wheel.variant if self.wheel else None)
        return f"{self.release}+{local}" if local else self.release


def asked_torch(text: str) -> Asked:
    """ "torch==2.9.1+cu128", "torch 2.9.1", "2.9.1+cu128". Raises NotUnderstood."""
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise NotUnderstood(f"--for {text!r} is no torch with a version", 'give it as "torch==2.9.1+cu128"')
    release, local = match["release"], match["local"]
    if local and local.startswith("cu") and cuda_of_variant(local) is None:
        raise NotUnderstood(f"--for {text!r}: {local} is no CUDA variant", "the variants are called cu121, cu128, ...")
    if local and local != "cpu" and not local.startswith(("cu", "rocm", "xpu")):
        raise NotUnderstood(f"--for {text!r}: {local} is no variant of torch", "as cu128, cpu, rocm6.4")
    wheel = find_wheel(release, local) if local is None or local.startswith("cu") else None
    if wheel is not None:
        return Asked(release, local, wheel.cuda, wheel)
    if local is None:
        newest = wheels()[-1].torch
        raise NotUnderstood(
            f"--for {text!r}: the tables do not hold torch {release}, and without a variant its CUDA is not known",
            f'give the variant too, as "torch=={newest}+cu130"; ftforensics facts torch lists the releases',
        )
    pair = cuda_of_variant(local) if local.startswith("cu") else None
    return Asked(release, local, f"{pair[0]}.{pair[1]}" if pair else None, None)


def asked_driver(text: str) -> str:
    """A branch alone ("570") is taken as its first release, which can least."""
    version = text.strip()
    if not _DRIVER.fullmatch(version):
        raise NotUnderstood(f"--driver {text!r} is no driver version", "as nvidia-smi prints it: 530.30.02")
    if "." in version:
        return version
    branch = next((one for one in branches() if one.number == int(version)), None)
    first = minimum_driver(branch.cuda) if branch else None
    if first is None:
        raise NotUnderstood(f"--driver {text!r} is no branch that is known here", "give the whole version: 530.30.02")
    return first


def asked_gpus(text: str) -> list[Gpu]:
    """One or several, with commas between."""
    return [asked_gpu(one) for one in text.split(",")]


def asked_gpu(text: str) -> Gpu:
    """ "8.0", "sm_80", "A100", "RTX 4090", "gtx1080ti"."""
    match = _CAPABILITY.fullmatch(text.strip().lower())
    if match:
        major, minor = match[1] or match[3], match[2] or match[4]
        capability = f"{int(major)}.{minor}"
        if architecture(capability) is None:
            raise NotUnderstood(f"--gpu {text!r}: no GPU has compute capability {capability}", "as 8.0 or sm_90")
        return Gpu(capability=capability)
    spaced = " ".join(re.findall(r"[A-Za-z]+|[0-9]+", text))
    found = capability_of(text) or capability_of(f"GeForce {spaced}")
    if found is None:
        raise NotUnderstood(f"--gpu {text!r} is no GPU model that is known here", "give its compute capability, as 8.0")
    return Gpu(name=text.strip(), capability=found)


def asked_python(text: str) -> str:
    if not _PYTHON.fullmatch(text.strip()):
        raise NotUnderstood(f"--python {text!r} is no Python version", "as 3.11")
    return text.strip()


def check_wheel(
    asked: Asked, driver: Driver | None, gpus: Sequence[Gpu] = (), python: str | None = None, machine: str | None = None
) -> Preflight:
    """driver: this machine's or the named one; gpus: named ones, [] for the driver's own."""
    local = asked.local or ""
    torch = TorchBuild(
        asked.version,
        cuda=asked.cuda,
        hip=local.removeprefix("rocm") or None if local.startswith("rocm") else None,
        how="published wheels" if asked.wheel else "local version",
        origin="wheel",
    )
    software = Software(python=python, machine=machine, torch=torch)
    if driver is not None and gpus:
        driver = msgspec.structs.replace(driver, gpus=list(gpus))
    checks = list(_checks(asked, software, driver, gpus, python, machine))
    return answer(checks, software, driver, Options(), [])


def _checks(
    asked: Asked,
    software: Software,
    driver: Driver | None,
    gpus: Sequence[Gpu],
    python: str | None,
    machine: str | None,
) -> Iterator[Check]:
    if asked.wheel is None and asked.cuda is not None:
        yield _not_in_the_tables(asked)
    if asked.cuda is None:
        if driver is not None:
            yield without_cuda(software, driver)
        else:
            said = f"torch {asked.version} is no CUDA build: no NVIDIA driver is needed"
            yield Check("driver-fits-torch", "driver", Status.OK, said)
        if asked.local == "cpu":  # built for the same Pythons as the others
            yield from _published(find_wheel(asked.release), python, machine, asked.version)
        return
    if driver is not None:
        yield fit_check(software, driver)
        yield from architecture_checks(software, driver)
        if too_new := newer_than_driver(gpus, driver):
            yield Check(
                "driver-knows-gpu",
                "driver",
                Status.FAIL,
                too_new,
                "gpu-architecture-unsupported",
                Confidence.LIKELY,
                remedies=[Remedy("Ask the administrator for that driver")],
            )
    yield from _published(asked.wheel, python, machine, asked.version)


def _not_in_the_tables(asked: Asked) -> Check:
    last = next((wheel.torch for wheel in last_wheels() if wheel.variant == asked.local), None)
    known = f" (the last torch there for {asked.local} is {last})" if last else ""
    rest = f"what is said comes from its CUDA {asked.cuda} alone"
    variants = [wheel.variant for wheel in wheels() if wheel.torch == asked.release]
    if not variants:
        return Check("wheel-known", "wheel", Status.UNKNOWN, f"torch {asked.version} is in no table{known}: {rest}")
    said = f"torch {asked.release} was published for {', '.join(variants)}, not for {asked.local}{known}"
    return Check("wheel-known", "wheel", Status.WARN, f"{said}; for a build of your own, {rest}")


def _published(wheel: Wheel | None, python: str | None, machine: str | None, version: str) -> Iterator[Check]:
    if wheel is None:
        return
    if python is not None:
        short = ".".join(python.split(".")[:2])
        fits = short in wheel.pythons
        said = f"torch {version} has wheels for Python {wheel.pythons[0]} to {wheel.pythons[-1]}"
        yield Check(
            "wheel-for-python",
            "wheel",
            Status.OK if fits else Status.FAIL,
            said if fits else f"{said}, not for {short}",
            remedies=[] if fits else [Remedy("Use one of these Pythons, or a torch that has a wheel for yours")],
        )
    if machine is not None and machine not in wheel.machines:
        said = f"torch {version} has no wheel for {machine}, only for {', '.join(wheel.machines)}"
        yield Check("wheel-for-machine", "wheel", Status.FAIL, said)
