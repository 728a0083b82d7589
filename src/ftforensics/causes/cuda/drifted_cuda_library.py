"""A CUDA library is installed in another version than torch demands.

## What it means

A torch wheel for CUDA names its libraries in exact versions: torch 2.9.1 wants nvidia-cudnn-cu12 9.10.2.21. Another
package, or a person, installed a different one, and pip only warned. torch then calls functions of a cuDNN, cuBLAS or
NCCL that it was never tested with.

## How it is told apart

The version in the environment differs from the one in torch's metadata. It is likely the cause when the stack leads
into that very library, or when its own message says that versions do not fit; otherwise it is possible. A newer patch
of the same minor version is possible at most. torch that was built here, or by conda, demands nothing by its metadata.

The same holds for a library that was replaced on disk while the process ran, as an upgrade does: a part that is loaded
later is of another version than those in memory.

## What to do

1. Install the demanded version: `pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21`.
2. Look for the package that brought the other one (`pip install` printed it; `pip check` does again).
3. Do not install into an environment while jobs run from it.

## Seen in the field

- "CUDNN_STATUS_NOT_INITIALIZED" with torch 2.9.0 for CUDA 12.8 on driver 550: the driver was blamed, cuDNN 9.13 was
  installed in place of 9.10.2.21, and the demanded version cured it on the same driver.
- vllm-project/vllm#4734: NCCL 2.19.3 beside another package's 2.18.1.

## References

- pip documentation, `pip check`; Python Packaging User Guide, "Core metadata", Requires-Dist
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.library_evidence import (
    frame_in,
    goes_with_end,
    likely_if,
    nearest,
    no_stack,
    not_in_the_stack,
    own_fault,
    reinstall,
    reinstall_torch,
    signal_name_of,
    software_texts,
    text_cites,
    where,
)
from ftforensics.causes.library_set import brings, drifted_pins, is_newer_patch, set_name
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.crash import Library
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.software import Pin

KIND = Kind.CIRCUMSTANCE
ORDER = 22
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("package:torch", "package:nvidia-*", "image")


def check(crash: Crash) -> Iterator[Finding]:
    if not own_fault(crash):
        return
    drifted = [_of_pin(crash, pin) for pin in drifted_pins(crash.record.software, crash.record.libraries or [])]
    found = [*drifted, *_replaced(crash)]
    yield from sorted(found, key=lambda one: one.confidence is not Confidence.LIKELY)[:1]


def _of_pin(crash: Crash, pin: Pin) -> Finding:
    libraries = [one.path for one in crash.record.libraries or [] if _is_of(one, pin)]
    frame = frame_in(crash, libraries)
    newer = is_newer_patch(pin)
    against = [] if frame is not None else not_in_the_stack(crash, pin.package)
    if newer:
        against.append(_pin_cite(pin, "only a newer patch of the version that is demanded"))
    return Finding(
        cause="drifted-cuda-library",
        confidence=likely_if(frame is not None and not newer),
        summary=(
            f"{signal_name_of(crash)} {'in' if frame is not None else 'with'} {pin.package} {pin.installed}, where "
            f"{pin.by} demands {pin.version}."
        ),
        supports=[_pin_cite(pin), *([frame] if frame is not None else []), *where(crash)],
        against=[*crash.reading.against, *against],
        unknown=[*crash.reading.unknown, *no_stack(crash)],
        remedies=_remedies(pin),
    )


def _pin_cite(pin: Pin, text: str | None = None) -> Cite:
    said = text or f"{pin.package} {pin.installed} is installed, {pin.by} demands {pin.version}"
    return Cite("software", f"pins[{pin.package}]", said)


def _is_of(library: Library, pin: Pin) -> bool:
    """The pin's own library; a package that is not known by its file is known by what it brings."""
    if library.package is not None:
        return library.package == pin.package
    what = set_name(library.kind)
    return library.origin == "wheel" and what is not None and not library.vendored_by and brings(pin.package, what)


def _remedies(pin: Pin) -> list[Remedy]:
    command = reinstall(pin.package, pin.version)
    return [
        Remedy(f"Install the version that {pin.by} demands", command),
        Remedy("See which package asked for the other version", "pip check"),
        Remedy(
            "Run once with the demanded version. If it still dies, the version was not the cause",
            f"{command} && python ...",
            settles=True,
        ),
    ]


def _replaced(crash: Crash) -> Iterator[Finding]:
    """The kernel says that the mapped file was gone from its path when the process died."""
    gone = {one.path for one in crash.record.modules or [] if one.deleted}
    replaced = [one for one in crash.record.libraries or [] if one.path in gone and set_name(one.kind) is not None]
    if not replaced:
        return
    frame = frame_in(crash, [one.path for one in replaced])
    name = nearest(crash, replaced, lambda one: one.path).path.rpartition("/")[2]
    anew = reinstall_torch(crash.record.software.torch if crash.record.software else None)
    yield Finding(
        cause="drifted-cuda-library",
        confidence=likely_if(frame is not None),
        summary=f"{signal_name_of(crash)} after {name} was replaced on disk while the process used it.",
        supports=[
            *(
                Cite("crash", f"modules[{one.path}]", "deleted: the file was replaced while it was mapped")
                for one in replaced
            ),
            *([frame] if frame is not None else []),
            *where(crash),
        ],
        against=[*crash.reading.against, *([] if frame is not None else not_in_the_stack(crash, name))],
        unknown=[*crash.reading.unknown, *no_stack(crash)],
        remedies=[
            Remedy("Start the job again, and install nothing into this environment while it runs"),
            *([anew] if anew is not None else []),
            Remedy("Start the same job again on the libraries as they are now: does it pass?", settles=True),
        ],
    )


def check_death(death: Death) -> Iterator[Finding]:
    """A pin that is not met, and the library's own words about it."""
    software = death.crash.record.software if death.crash is not None else None
    texts = software_texts(death, "cudnn-versions", "cudnn-parts", "cudnn-status")
    if software is None or not texts or death.crash is None:
        return
    for pin in drifted_pins(software, death.crash.record.libraries or []):
        if brings(pin.package, "cuDNN"):
            yield Finding(
                cause="drifted-cuda-library",
                confidence=likely_if(goes_with_end(death, texts[-1]) and not is_newer_patch(pin)),
                summary=f"cuDNN failed: {pin.package} {pin.installed} is installed, {pin.by} demands {pin.version}.",
                supports=[_pin_cite(pin), *text_cites(death, texts[-1:])],
                remedies=_remedies(pin),
            )
            return
