"""A library from outside was loaded in place of the one that torch's wheel brought.

## What it means

torch's wheel brings its own CUDA libraries and finds them by a path inside the file (RUNPATH). `LD_LIBRARY_PATH` and
`LD_PRELOAD` come before that path, so that a toolkit in `/usr/local/cuda`, a module of the cluster or conda can take
their place, in the version that happens to lie there. The same can happen to torch itself, when the C++ distribution
of libtorch lies on the search path.

## How it is told apart

The mapped file lies outside the wheel although the wheel's package is installed, in another version or one that is not
known. That is likely the cause when the stack leads through libraries of CUDA or torch, or could not be seen; possible
when it leads elsewhere. A torch that was built against the system's or conda's CUDA is meant to use it: nothing is said
then. Where both the wheel's file and the outside one are mapped, see `mixed-cuda-libraries`.

## What to do

1. `unset LD_LIBRARY_PATH` (and look where it is set: `.bashrc`, a module, the image's ENV lines).
2. If a part of the job needs that path, set it for that part only.
3. `ftforensics check` shows which files would be loaded, before a run.

## Seen in the field

- pytorch/pytorch#80637: "compiled against (8, 3, 2) but linked against (8, 0, 3)"; RUNPATH lost to LD_LIBRARY_PATH.
- pytorch/pytorch#96797: a segmentation fault at `import torch`; the C++ libtorch lay on the search path.
- NVIDIA/nccl#241: the NCCL that had just been built was not the one that was loaded.

## References

- man 8 ld.so: the order of RPATH, LD_LIBRARY_PATH, RUNPATH
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.library_evidence import (
    cuda_or_torch_frame,
    frame_in,
    frames,
    goes_with_end,
    is_bad_pointer,
    library_cite,
    likely_if,
    nearest,
    no_stack,
    not_in_the_stack,
    own_fault,
    reinstall,
    reinstall_torch,
    short_place,
    signal_name_of,
    software_texts,
    text_cites,
    unset,
    variable,
    where,
)
from ftforensics.causes.library_set import Shadow, folder, pin_of_set, set_name, shadows, spoken
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Remedy

KIND = Kind.CIRCUMSTANCE
ORDER = 21
REFINES = ("python-exception",)
CHANGES = ("variable:LD_LIBRARY_PATH", "variable:LD_PRELOAD", "package:torch", "package:nvidia-*", "image")
_SETTLE = Remedy(
    "Run once with nothing but the environment's own libraries. If it still dies, the outside one was not the cause",
    "env -u LD_LIBRARY_PATH -u LD_PRELOAD python ...",
    settles=True,
)


def check(crash: Crash) -> Iterator[Finding]:
    found = shadows(crash.record.software, crash.record.libraries or [])
    if not own_fault(crash) or not found:
        return
    # Where torch itself is another one, everything else follows from that.
    on_stack = nearest(crash, found, lambda one: one.library.path)
    first = next((one for one in found if set_name(one.library.kind) == "PyTorch"), on_stack)
    what = set_name(first.library.kind) or first.library.kind
    inside = frame_in(crash, [one.library.path for one in found])
    frame = inside or cuda_or_torch_frame(crash)
    # An exception that torch throws runs through its libraries too; a bad pointer does not say where it comes from.
    sure = inside is not None or (is_bad_pointer(crash) and (frame is not None or not frames(crash)))
    value, cited = variable(crash, "LD_LIBRARY_PATH")
    unknown = [Gap("libraries", f"the version of {first.library.path}")] if not first.library.version else []
    if value is None and first.by is None:
        unknown.append(Gap("crash", "how it was found before the wheel's: LD_LIBRARY_PATH is not in the record"))
    yield Finding(
        cause="system-cuda-shadows-wheel",
        confidence=likely_if(sure),
        summary=_summary(crash, first, what),
        supports=[
            *(library_cite(one.library) for one in found),
            Cite("software", first.wheel, "was installed for it and is not loaded"),
            *cited,
            *([frame] if frame is not None else []),
            *where(crash),
        ],
        against=[
            *crash.reading.against,
            *([] if frame is not None else not_in_the_stack(crash, "any library of CUDA or torch")),
        ],
        unknown=[*crash.reading.unknown, *unknown, *no_stack(crash)],
        remedies=[unset(), *_cure(crash, what), _SETTLE],
    )


def _summary(crash: Crash, shadow: Shadow, what: str) -> str:
    version = f" {shadow.library.version}" if shadow.library.version else ""
    how = f", by LD_LIBRARY_PATH={short_place(shadow.by)}" if shadow.by else ""
    return (
        f"{signal_name_of(crash)} with {spoken(what)}{version} from {short_place(folder(shadow.library))} loaded "
        f"in place of {short_place(shadow.wheel)}{how}."
    )


def _cure(crash: Crash, what: str) -> Iterator[Remedy]:
    software = crash.record.software
    if what == "PyTorch":
        anew = reinstall_torch(software.torch if software is not None else None)
        if anew is not None:
            yield anew
    elif (pin := pin_of_set(what, software)) is not None and pin.installed is None:
        yield Remedy(f"Install the {what} that torch demands", reinstall(pin.package, pin.version))


def check_death(death: Death) -> Iterator[Finding]:
    """cuDNN says that it is not the one that torch was built with: the search path is the usual reason."""
    texts = [one for one in software_texts(death, "cudnn-versions") if one.wanted and one.found]
    if not texts:
        return
    found = _shadows_of_cudnn(death.crash) if death.crash is not None else []
    cited = variable(death.crash, "LD_LIBRARY_PATH")[1] if death.crash is not None else []
    yield Finding(
        cause="system-cuda-shadows-wheel",
        confidence=likely_if(found and goes_with_end(death, texts[-1])),
        summary=f"torch was built with cuDNN {texts[-1].wanted} and a cuDNN {texts[-1].found} took its place.",
        supports=[*text_cites(death, texts[-1:]), *(library_cite(one.library) for one in found), *cited],
        unknown=[] if found else [Gap("libraries", "from where cuDNN was loaded", "ftforensics run -- COMMAND...")],
        remedies=[unset(), _SETTLE],
    )


def _shadows_of_cudnn(crash: Crash) -> list[Shadow]:
    found = shadows(crash.record.software, crash.record.libraries or [])
    return [one for one in found if set_name(one.library.kind) == "cuDNN"]
