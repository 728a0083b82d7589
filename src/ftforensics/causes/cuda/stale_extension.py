"""A package with compiled code was built for another torch than the one that is installed.

## What it means

torchvision, torchaudio, xformers, flash-attn and the like hold machine code for one torch. When torch is upgraded or
replaced beside them, they may still load, but they expect the old layout of tensors, the old functions, another CUDA.
Some say so at import, some crash at the first call.

## How it is told apart

Each torch release goes with one torchvision and one torchaudio; wheels of extensions name the torch that they were
built for; and xformers and torchvision say it in so many words. It is likely the cause when the stack leads into that
package, or when the process ended by the package's own error about it; otherwise it is possible, also after a warning.
Another patch of the same torch is no mismatch. A loader's message that libtorch or libc10 is not there under the name
that an extension asks for says the same.

## What to do

1. Install the three that belong together from one index; `ftforensics check --install torch` prints the line.
2. Install the extension again for this torch, or build it here:
   `pip install --no-binary :all: --no-build-isolation --force-reinstall --no-deps PACKAGE`.
3. Clear `~/.cache/torch_extensions` after a change of torch.

## Seen in the field

- yangjianxin1/Firefly#258: "xFormers was built for PyTorch X (you have Y)", then failures in its kernels.
- qubvel/segmentation_models.pytorch#904: a segmentation fault at import; torchaudio for ROCm beside torch for CUDA.

## References

- PyTorch, RELEASE.md and "Previous versions": which torchvision and torchaudio go with which torch
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.library_evidence import (
    below_packages,
    ended_by_exception,
    find_frame,
    is_bad_pointer,
    likely_if,
    no_stack,
    not_in_the_stack,
    own_fault,
    rebuild,
    reinstall_torch,
    signal_name_of,
    software_texts,
    stem,
    text_cites,
    where,
)
from ftforensics.causes.library_set import Companion, set_name, wrong_companions
from ftforensics.causes.registry import Kind
from ftforensics.facts.torch import COMPANIONS
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Frame, Remedy
from ftforensics.model.launcher import StackText
from ftforensics.model.software import Software

KIND = Kind.CIRCUMSTANCE
ORDER = 31
REFINES = ("python-exception",)
CHANGES = ("package:torch", "package:torchvision", "package:torchaudio", "image")


def check(crash: Crash) -> Iterator[Finding]:
    if not own_fault(crash):
        return
    wrong = wrong_companions(crash.record.software, crash.record.libraries or [])
    found = [_finding(crash, one) for one in wrong]
    yield from sorted(found, key=lambda one: one.confidence is not Confidence.LIKELY)[:1]


def _finding(crash: Crash, companion: Companion) -> Finding:
    frame = _frame(crash, companion.package)
    return Finding(
        cause="stale-extension",
        confidence=likely_if(frame is not None and is_bad_pointer(crash)),
        summary=(
            f"{signal_name_of(crash)} {'in' if frame is not None else 'with'} {companion.package} {companion.version}, "
            f"which was built for {_wanted(companion)}; torch {companion.torch} is installed."
        ),
        supports=[_cite(companion), *([frame] if frame is not None else []), *where(crash)],
        against=[*crash.reading.against, *([] if frame is not None else not_in_the_stack(crash, companion.package))],
        unknown=[*crash.reading.unknown, *no_stack(crash)],
        remedies=_remedies(companion.package, crash.record.software),
    )


def _wanted(companion: Companion) -> str:
    return f"torch {companion.wanted}" if companion.wanted else "another torch"


def _cite(companion: Companion) -> Cite:
    return Cite(
        "software", f"packages[{companion.package}]", f"{companion.package} {companion.version}: {companion.how}"
    )


def _frame(crash: Crash, package: str) -> Cite | None:
    """A frame in a file of the package: known by the file's owner, else by its place."""
    owned = {one.path for one in crash.record.libraries or [] if one.package == package}
    folder = package.replace("-", "_")

    def inside(frame: Frame) -> bool:
        path = frame.library or ""
        return path in owned or below_packages(path).startswith((f"{folder}/", f"{folder}.", f"{folder}_"))

    return find_frame(crash, inside)


def _remedies(package: str, software: Software | None) -> list[Remedy]:
    torch = software.torch if software is not None else None
    anew = reinstall_torch(torch)
    version = f"torch {torch.version}" if torch is not None else "the installed torch"
    remedies = []
    if package in COMPANIONS:
        remedies.append(
            anew
            or Remedy(
                "Install torch, torchvision and torchaudio that belong together", "ftforensics check --install torch"
            )
        )
    else:
        remedies.append(Remedy(f"Install {package} for {version}, or build it here", rebuild(package)))
    settles = Remedy(
        f"Run once without {package} (do not import it). If it still dies, it was not the cause", settles=True
    )
    return [*remedies, settles]


def check_death(death: Death) -> Iterator[Finding]:
    texts = [*software_texts(death, "built-for"), *_torch_missing(death)]
    if not texts:
        return
    text = texts[-1]
    crash = death.crash
    built_for = text.kind == "built-for"
    package = (text.library or "an extension").rpartition("/")[2]
    frame = _frame(crash, package) if crash is not None else None
    # A warning alone does not tell: the compiled part may not even have been loaded.
    sure = ended_by_exception(death, text) or (frame is not None and crash is not None and is_bad_pointer(crash))
    yield Finding(
        cause="stale-extension",
        confidence=likely_if(sure),
        summary=_text_summary(text, package),
        supports=[*text_cites(death, [text]), *([frame] if frame is not None else [])],
        against=not_in_the_stack(crash, package) if crash is not None and frame is None else [],
        unknown=[]
        if crash is not None
        else [Gap("crash", f"whether it died in {package}", "ftforensics run -- COMMAND...")],
        remedies=_remedies(package, crash.record.software if crash is not None else None)
        if built_for
        else [
            Remedy(
                "Install the extension for the torch that is here, or build it again: it asks for a library of a torch "
                "that was built otherwise (with CUDA, or before it was split in two)"
            ),
            Remedy("See which packages do not go with the installed torch", "ftforensics check", settles=True),
        ],
    )


def _torch_missing(death: Death) -> list[StackText]:
    """An extension asks for a library that this torch does not have: libtorch_cuda beside a torch without CUDA."""
    return [one for one in software_texts(death, "library-missing") if _is_torchs(one)]


def _is_torchs(text: StackText) -> bool:
    name = stem(text)
    return set_name(name) == "PyTorch" or name.startswith("libtorch_cuda_")


def _text_summary(text: StackText, package: str) -> str:
    if text.kind != "built-for":
        return f"An extension needs {package}, which the installed torch does not have: it was built for another one."
    if text.wanted is None:
        return f"{package} could not use its compiled code: it was built for another torch than the one installed."
    return f"{package} was built for {_torch(text.wanted)}, and {_torch(text.found or 'another')} is installed."


def _torch(version: str) -> str:
    return version if version.startswith(("CUDA", "torch", "another")) else f"torch {version}"
