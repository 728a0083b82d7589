"""Two sets of one CUDA library are loaded in one process.

## What it means

cuDNN, NCCL, nvJitLink, cuBLAS, the CUDA runtime or torch itself came in twice, from two places: one from the wheel, one
from `/usr/local/cuda`, from conda, or from another package. They carry the same names inside, so a call that starts in
one ends in the other, whose structures are laid out otherwise. cuDNN is most exposed: it is eight libraries that load
each other by name, and a search path can give the first from here and the next from there.

## How it is told apart

The mapped files show two folders (or two versions in one folder). After a bad memory access that is likely the cause,
also where the stack ends far from the library, because such a call may go wrong anywhere in CUDA's code and its
callers'; that no frame lies in any of the two is said as speaking against it. It is possible where the stack shows that
the process died in code that has nothing to do with CUDA, and of NCCL where it does not lead to NCCL. After an abort or
another end that explains itself it is only possible, unless the stack leads into one of them. It is possible, too,
where both are of one version, or of two major versions (a CUDA 11 runtime beside that of CUDA 12), whose names are kept
apart.

A wheel's private copy under a name of its own (`libcudnn-74a4c495.so.9`) does not meet the others; it is possible only
when the stack leads into one of the copies. The CUDA version that NCCL was built with is no sign: torch's wheels for
CUDA 12.8 bring an NCCL built with 12.9. Without a crash record it is likely when cuDNN itself says that two versions
met, or that one of its parts does not fit.

## What to do

1. `unset LD_LIBRARY_PATH` and start again: torch's wheels find their own libraries.
2. Install the version that torch demands: `pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21`.
3. Remove the package that brings the other copy, or run it in a process of its own.
4. If it still dies with one set loaded, the mix was not the cause.

## Seen in the field

- pytorch/pytorch#104808: a segmentation fault inside libcuda at the first convolution; cuDNN 8.8 from pip and 8.9 from
  `/usr/local/cuda`. The list of libraries showed it, the stack did not.
- pytorch/pytorch#119989: "Could not load library libcudnn_cnn_train.so.8", an undefined symbol of another cuDNN.
- pytorch/pytorch#111469, #140797: libcusparse of the wheel met an older nvJitLink of the system.
- MahmoudAshraf97/whisper-diarization#259: "Unable to load any of {libcudnn_ops.so.9.1.0, ...}", then SIGABRT.

## References

- cuDNN documentation, "Library Compatibility"; man 8 ld.so, LD_LIBRARY_PATH
- threadpoolctl's and auditwheel's documentation on private copies
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_stack import elsewhere
from ftforensics.causes.library_evidence import (
    ended_by_exception,
    find_frame,
    goes_with_end,
    is_bad_pointer,
    library_cite,
    likely_if,
    no_stack,
    not_in_the_stack,
    own_fault,
    reinstall,
    short_place,
    signal_name_of,
    software_texts,
    text_cites,
    unset,
    variable,
    where,
)
from ftforensics.causes.library_set import (
    Mix,
    folder,
    is_cuda_or_torch,
    major,
    mixes,
    pin_of_set,
    same_version,
    set_name,
    spoken,
)
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.crash import Library
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Frame, Remedy
from ftforensics.model.launcher import StackText
from ftforensics.model.software import Software

KIND = Kind.CIRCUMSTANCE
ORDER = 20
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("package:torch", "package:nvidia-*", "variable:LD_LIBRARY_PATH", "variable:LD_PRELOAD", "image")
_NEED_FRAME = ("NCCL",)  # two of them were never shown to be the fault where the stack does not lead there
_CUDNN_TEXTS = ("cudnn-versions", "cudnn-parts")
_SYMBOLS = {"__nvJitLink": "nvJitLink", "nvJitLink": "nvJitLink", "cudnn": "cuDNN", "cublas": "cuBLAS", "nccl": "NCCL"}


def check(crash: Crash) -> Iterator[Finding]:
    if not own_fault(crash):
        return
    found = mixes(crash.record.libraries or [])
    weighed = [finding for mix in found if (finding := _finding(crash, mix)) is not None]
    yield from sorted(weighed, key=lambda one: one.confidence is not Confidence.LIKELY)[:1]


def _finding(crash: Crash, mix: Mix) -> Finding | None:
    frame = find_frame(crash, lambda one: _is_of(mix, one))
    if mix.private and frame is None:
        return None
    majors = {major(one) for one in mix.libraries}
    versions = [one.version for one in mix.libraries]
    same = all(same_version(versions[0], version) for version in versions[1:])
    away = elsewhere(crash) if frame is None else None
    shown = frame is not None or (is_bad_pointer(crash) and away is None and mix.what not in _NEED_FRAME)
    sure = not mix.private and len(majors) == 1 and not same and shown
    against = [] if frame is not None else not_in_the_stack(crash, f"any of these {mix.what} libraries")
    against += [away] if away is not None else []
    if same:
        against.append(Cite("libraries", mix.libraries[0].path, f"both are {mix.what} {versions[0]}"))
    if len(majors) > 1 and not mix.private:
        against.append(
            Cite(
                "libraries", mix.libraries[0].path, "their names for the loader (SONAME) differ, which keeps them apart"
            )
        )
    if mix.private:
        against.append(Cite("libraries", mix.libraries[0].path, "one is a package's private copy under its own name"))
    unknown = [
        Gap("libraries", f"the version of {one.path}", "ftforensics libraries PID")
        for one in mix.libraries
        if not one.version
    ]
    paths, cited = variable(crash, "LD_LIBRARY_PATH")
    return Finding(
        cause="mixed-cuda-libraries",
        confidence=likely_if(sure),
        summary=_summary(crash, mix),
        supports=[
            *([Cite(frame.source, frame.locator, f"the stack leads into {mix.what}: {frame.text}")] if frame else []),
            *(library_cite(one) for one in mix.libraries),
            *cited,
            *where(crash),
        ],
        against=[*crash.reading.against, *against],
        unknown=[*crash.reading.unknown, *unknown, *no_stack(crash)],
        remedies=list(_remedies(mix, crash.record.software, bool(paths))),
    )


def _is_of(mix: Mix, frame: Frame) -> bool:
    path = frame.library or ""
    if mix.what == "NCCL" and is_cuda_or_torch(path) and "nccl" in (frame.function or "").lower():
        return True  # torch calls it, and names the functions that do so after it
    return set_name(path) == mix.what and any(path.rpartition("/")[0] == folder(one) for one in mix.libraries)


def _summary(crash: Crash, mix: Mix) -> str:
    paths = [path for path in _frame_paths(crash) if set_name(path) == mix.what]
    inside = next((one for path in paths for one in mix.libraries if path.rpartition("/")[0] == folder(one)), None)
    name = signal_name_of(crash)
    others = [one for one in mix.libraries if one is not inside]
    if inside is not None:
        return (
            f"{name} in {_named(mix, inside)} while {' and '.join(_named(mix, one) for one in others)} is loaded too."
        )
    places = " and ".join(_placed(one) for one in mix.libraries)
    return f"{name} while {spoken(mix.what)} is loaded from two places: {places}."


def _frame_paths(crash: Crash) -> Iterator[str]:
    return (frame.library for frame in crash.native if frame.trust != "scan" and frame.library)


def _named(mix: Mix, library: Library) -> str:
    return f"{mix.what} {library.version or 'of an unknown version'} ({short_place(folder(library))})"


def _placed(library: Library) -> str:
    return f"{library.version or 'one'} in {short_place(folder(library))}"


def _remedies(mix: Mix, software: Software | None, path_set: bool) -> Iterator[Remedy]:
    outside = any(one.origin in ("system", "other") for one in mix.libraries)
    if path_set or outside:
        yield unset()
    if (wanted := _demanded(mix, software)) is not None:
        yield Remedy(f"Install the {mix.what} that torch demands", reinstall(*wanted))
    for one in mix.libraries:
        if one.vendored_by:
            yield Remedy(f"Run what uses {one.vendored_by} in a process of its own, or remove it")
    yield Remedy(
        "Run once with nothing but the environment's own libraries. If it still dies, the mix was not the cause",
        "env -u LD_LIBRARY_PATH -u LD_PRELOAD python ...",
        settles=True,
    )


def _demanded(mix: Mix, software: Software | None) -> tuple[str, str] | None:
    for one in mix.libraries:
        if one.package and one.pin:
            return one.package, one.pin
    pin = pin_of_set(mix.what, software)
    return (pin.package, pin.version) if pin is not None else None


def check_death(death: Death) -> Iterator[Finding]:
    texts = [*software_texts(death, *_CUDNN_TEXTS), *_undefined(death)]
    if not texts:
        return
    versions = next((one for one in texts if one.wanted and one.found), None)
    libraries = (death.crash.record.libraries if death.crash is not None else None) or []
    found = next((mix for mix in mixes(libraries) if not mix.private), None)
    one = versions or texts[-1]
    sure = goes_with_end(death, one) if one.kind in _CUDNN_TEXTS else ended_by_exception(death, one)
    yield Finding(
        cause="mixed-cuda-libraries",
        confidence=likely_if(sure),
        summary=_text_summary(one),
        supports=[
            *text_cites(death, texts[-3:]),
            *(library_cite(library) for library in (found.libraries if found is not None else [])),
        ],
        unknown=[]
        if found is not None
        else [Gap("libraries", "which files were loaded, and from where", "ftforensics run -- COMMAND...")],
        remedies=[
            unset(),
            *_text_cure(death, one),
            Remedy(
                "Run once with nothing but the environment's own libraries. If it still fails, a package of the set is "
                "damaged or of a wrong version",
                "env -u LD_LIBRARY_PATH -u LD_PRELOAD python ...",
                settles=True,
            ),
        ],
    )


def _undefined(death: Death) -> list[StackText]:
    """Names of one CUDA library that another one asks for: the two are of different versions."""
    return [one for one in software_texts(death, "undefined-symbol") if _set_of(one) is not None]


def _set_of(text: StackText) -> str | None:
    if text.kind in _CUDNN_TEXTS:
        return "cuDNN"
    return next((what for prefix, what in _SYMBOLS.items() if (text.symbol or "").startswith(prefix)), None)


def _text_summary(text: StackText) -> str:
    if text.wanted and text.found:
        return f"torch was built with cuDNN {text.wanted} and met cuDNN {text.found}."
    library = (text.library or "").rpartition("/")[2]
    if text.kind == "undefined-symbol":
        what = _set_of(text)
        return f"{library or 'A CUDA library'} met another version of {what} than its own: {text.symbol} is not in it."
    return f"The parts of cuDNN do not fit together{f': {library}' if library else ''}."


def _text_cure(death: Death, text: StackText) -> Iterator[Remedy]:
    what = _set_of(text) or ""
    pin = pin_of_set(what, death.crash.record.software) if death.crash is not None else None
    if pin is not None:
        yield Remedy(f"Install the {what} that torch demands", reinstall(pin.package, pin.version))
    else:
        yield Remedy("See which files would be loaded, and which versions torch demands", "ftforensics check")
