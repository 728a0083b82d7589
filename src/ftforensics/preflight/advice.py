"""Which torch to install here, and the one pip line that does it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ftforensics.causes.driver_fit import choices_for
from ftforensics.facts.choose import INDEX, Choice
from ftforensics.model.crash import Driver, Gpu
from ftforensics.model.diagnosis import Remedy
from ftforensics.model.preflight import Check, Fix, Status, Suspect, TorchAdvice
from ftforensics.model.software import Software
from ftforensics.preflight.gpus import newer_than_driver

_STRENGTH = {"proven": 0, "likely": 1, "possible": 2, "ruled_out": 3}


def torch_advice(software: Software | None, driver: Driver) -> list[TorchAdvice]:
    """Every torch that goes with this driver, its GPUs and this Python, the exact ones first."""
    choices = choices_for(software, driver)
    return [_advice(choice) for choice in [*choices.exact, *choices.window]]


def _advice(choice: Choice) -> TorchAdvice:
    wheel = choice.wheel
    return TorchAdvice(
        torch=wheel.torch,
        tier=choice.tier,
        index=wheel.variant,
        command=choice.command,
        torchvision=wheel.torchvision,
        torchaudio=wheel.torchaudio,
        note=choice.note,
    )


def suspects(checks: Iterable[Check]) -> list[Suspect]:
    """The causes that failing and warning checks name, the surest first, each once."""
    found: dict[str, Suspect] = {}
    for check in _troubled(checks):
        if check.cause is None or check.confidence is None:
            continue
        known = found.get(check.cause)
        if known is None or _STRENGTH[check.confidence.value] < _STRENGTH[known.confidence.value]:
            found[check.cause] = Suspect(check.cause, check.confidence, check.said)
    return sorted(found.values(), key=lambda one: _STRENGTH[one.confidence.value])


def fixes(checks: Iterable[Check], advice: Sequence[TorchAdvice]) -> list[Fix]:
    """What to do, of failing checks first, each once."""
    remedies = (remedy for check in _troubled(checks) for remedy in check.remedies)
    return list(dict.fromkeys(fix(remedy, advice) for remedy in remedies))


def fix(remedy: Remedy, advice: Sequence[TorchAdvice]) -> Fix:
    meant = next((one for one in advice if one.command == remedy.command), None)
    if meant is None:
        return Fix(remedy.text, remedy.command, settles=remedy.settles)
    return Fix(
        remedy.text,
        remedy.command,
        torch=meant.torch,
        torchvision=meant.torchvision,
        torchaudio=meant.torchaudio,
        index=meant.index,
        tier=meant.tier,
        settles=remedy.settles,
    )


def _troubled(checks: Iterable[Check]) -> list[Check]:
    listed = list(checks)
    failed = [check for check in listed if check.status is Status.FAIL]
    return [*failed, *(check for check in listed if check.status is Status.WARN)]


def install_line(
    driver: Driver | None, gpus: Sequence[Gpu], python: str, machine: str
) -> tuple[TorchAdvice | None, str]:
    """The best one; else None and why there is none. gpus: instead of the driver's own."""
    if driver is None:
        return None, (
            "no NVIDIA driver is seen here, so there is no CUDA torch to choose; --driver VERSION names one, and for a "
            f"CPU: pip install torch --index-url {INDEX}/cpu"
        )
    if gpus:
        driver = msgspec.structs.replace(driver, gpus=list(gpus))
    if too_new := newer_than_driver(gpus, driver):
        return None, too_new
    advice = torch_advice(Software(python=python, machine=machine), driver)
    if advice:
        return advice[0], ""
    name = f"driver {driver.module_version}" if driver.module_version else "this driver"
    known = ", ".join(gpu.capability for gpu in driver.gpus if gpu.capability)
    gpu = f", compute capability {known}" if known else ""
    short = ".".join(python.split(".")[:2])
    return None, f"no published torch goes with {name}{gpu}, Python {short} and {machine}; another Python may have one"
