"""The driver is older than the CUDA that torch was built for, within one major version.

## What it means

Since CUDA 11 a driver also runs programs of newer CUDA versions with the same major number: CUDA 12.8 on a driver of
12.1 is supported from driver 525.60.13 on. Ordinary kernels, streams and events work. What came later is missing:
functions of the driver (graph nodes, batched copies, questions about kernels, notifications) and PTX, the kernels'
intermediate code, of a newer compiler. Libraries that ask for such a function through CUDA's runtime get an error.
One that fetches it itself, and calls it without looking, jumps to address 0.

## How it is told apart

The versions alone prove nothing, most programs run so: `possible`, and listed as not shown to be the cause. It is
likely when a CUDA library, or an extension, called a null function pointer, or when CUDA said error 36 ("API call is
not supported in the installed CUDA driver") or 222 ("the provided PTX was compiled with an unsupported toolchain"); and
only where the loaded CUDA libraries belong together: two copies of one library, or another version than the one that
torch demands, explain the same crash better. A null pointer that Python or ctypes called says nothing about the driver.
A forward-compatibility package that raises the driver's level rules it out.

## What to do

1. Run the same script in a fresh environment with `LD_LIBRARY_PATH` unset and a torch of the driver's own level. If it
   dies there too, the driver was not the cause.
2. Keep that torch, or have the driver upgraded to the version that the report names.
3. For error 222 compile the extension for the GPU itself (`TORCH_CUDA_ARCH_LIST="8.6"` without `+PTX`), or with a
   toolkit that is not newer than the driver.

## Seen in the field

- A communication library that fetched a function of the driver by name and called it unchecked: address 0
  (torchcomms#2406).
- PTX of a newer toolkit in extensions: error 222 (trak#68, llm.c#63).
- The runtime of CUDA 12.8 asks the driver for 16 functions newer than 12.1 to which it has no older alternative
  (measured with libcudart 12.8.90).

## References

- NVIDIA, "CUDA Compatibility", minor version compatibility, and its limits
- CUDA runtime API, cudaErrorCallRequiresNewerDriver (36), cudaErrorUnsupportedPtxVersion (222)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.blame import blame_text
from ftforensics.causes.cuda_stack import caller_text, cuda_frame, is_fault, null_call
from ftforensics.causes.cuda_text import Said, said, said_in_record, stands_for
from ftforensics.causes.driver_fit import (
    DriverFit,
    Fit,
    driver_fit,
    opened,
    settling_run,
    torch_for_driver,
    uses_cuda,
)
from ftforensics.causes.ending import weaker
from ftforensics.causes.library_set import drifted_pins, mixes, shadows
from ftforensics.causes.registry import Kind
from ftforensics.causes.stack import frame_text
from ftforensics.facts.driver import cuda_tuple
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord, Library
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.model.mechanism import Mechanism

ID = "driver-minor-window"
KIND = Kind.CIRCUMSTANCE
ORDER = 45
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("driver", "package:torch")
_NEWER_CALL, _NEWER_PTX = 36, 222
# Functions that libcudart 12.8.90 asks the driver for at this level and at no lower one. Measured, with a driver that
# writes down what it is asked for; those that are also asked for at a lower level have a way around and are left out.
_ENTRY_POINTS = (
    ("12.2", ("cuGraphAddNode", "cuGraphNodeSetParams", "cuGraphExecNodeSetParams")),
    ("12.3", ("cuGraphConditionalHandleCreate", "cuStreamBeginCaptureToGraph", "cuFuncGetName", "cuKernelGetName")),
    (
        "12.4",
        (
            "cuFuncGetParamInfo", "cuKernelGetParamInfo", "cuLibraryEnumerateKernels", "cuLibraryGetKernelCount",
            "cuDeviceRegisterAsyncNotification", "cuDeviceUnregisterAsyncNotification",
        ),
    ),
    ("12.8", ("cuMemcpyBatchAsync", "cuMemcpy3DBatchAsync", "cuStreamGetDevice")),
)  # fmt: skip
_UNOPENED = Cite("libraries", "libcuda", "the driver's libcuda was not loaded when it died")


def check(crash: Crash) -> Iterator[Finding]:
    record = crash.record
    if not is_fault(crash):
        return
    text = said_in_record(crash, stands_for(ID))
    if text is not None:
        yield _said(text, record)
        return
    fit = driver_fit(record.software, record.driver, record.libraries)
    if not uses_cuda(record.driver, record.libraries):
        return
    if fit.bare is Fit.WINDOW and fit.compat and fit.fit is Fit.EXACT:
        cite = Cite("driver", "libcuda_path", f"a compatibility package in use raises the level to CUDA {fit.level}")
        yield _finding(record, Confidence.RULED_OUT, _older(fit), list(fit.supports), [cite], [])
        return
    if fit.fit is not Fit.WINDOW:
        return
    unopened = [] if opened(record.driver, record.libraries) else [_UNOPENED]
    called = null_call(crash)
    if called is None:
        against, unknown = _not_shown(crash)
        against += unopened
        summary = f"{_older(fit)[:-1]}: NVIDIA supports that, and it is not shown to be the cause."
        yield _finding(record, Confidence.POSSIBLE, summary, list(fit.supports), against, unknown)
        return
    index, frame = called
    supports = [
        *crash.reading.supports,
        Cite("crash", f"native.frames[{index}]", f"the null pointer was called by {frame_text(frame)}"),
        *fit.supports,
        *_lacks(fit),
    ]
    against, unknown = [*set_trouble(record), *unopened], _unseen_set(record)
    summary = (
        f"{caller_text(frame)} called a function that is not there, and {fit.driver_text}, older than the CUDA "
        f"{fit.cuda} of {fit.built}."
    )
    confidence = Confidence.POSSIBLE if against or unknown else Confidence.LIKELY
    yield _finding(record, confidence, summary, supports, against, unknown)


def check_death(death: Death) -> Iterator[Finding]:
    text = said(death, stands_for(ID), faults=True)
    if text is not None:
        yield _said(text, death.crash.record if death.crash else None)


def _said(text: Said, record: CrashRecord | None) -> Finding:
    software, driver, libraries = (record.software, record.driver, record.libraries) if record else (None, None, None)
    fit = driver_fit(software, driver, libraries)
    trouble = set_trouble(record) if record else []
    confidence = weaker(text.confidence, Confidence.POSSIBLE) if trouble else text.confidence
    if any(one.code == _NEWER_PTX for one in text.texts):
        summary = "A kernel came as PTX of a newer CUDA than the driver can compile"
    else:
        summary = "A function of CUDA was called that the driver does not have yet"
    known = f": {fit.driver_text}." if fit.level else "."
    return _finding(
        record,
        confidence,
        summary + known,
        [*text.supports, *fit.supports],
        [*text.against, *trouble],
        [*text.unknown, *fit.unknown],
        ptx=any(one.code == _NEWER_PTX for one in text.texts),
    )


def _finding(
    record: CrashRecord | None,
    confidence: Confidence,
    summary: str,
    supports: list[Cite],
    against: list[Cite],
    unknown: list[Gap],
    *,
    ptx: bool = False,
) -> Finding:
    software, driver = (record.software, record.driver) if record else (None, None)
    remedies = [
        *(_about_ptx() if ptx else []),
        *(torch_for_driver(software, driver) if driver is not None else []),
        settling_run(software, driver),
    ]
    return Finding(ID, confidence, summary, supports, against, unknown, remedies)


def _about_ptx() -> Iterator[Remedy]:
    yield Remedy(
        "If it is a kernel of an extension, compile it for the GPU itself, without PTX",
        'TORCH_CUDA_ARCH_LIST="8.0" pip install --no-build-isolation --no-binary :all: EXTENSION',
    )


def _older(fit: DriverFit) -> str:
    return f"{fit.driver_text[:1].upper()}{fit.driver_text[1:]}, older than the CUDA {fit.cuda} of {fit.built}."


def _lacks(fit: DriverFit) -> Iterator[Cite]:
    """Functions between the driver's level and the wheel's, as far as they were measured."""
    if fit.level is None or fit.cuda is None:
        return
    low, high = cuda_tuple(fit.level), cuda_tuple(fit.cuda)
    names = [name for level, listed in _ENTRY_POINTS if low < cuda_tuple(level) <= high for name in listed]
    if names:
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        text = f"a driver of CUDA {fit.level} lacks {', '.join(names[:4])}{more}, which CUDA {fit.cuda} asks for"
        yield Cite("facts", "functions of the driver", text)


def _not_shown(crash: Crash) -> tuple[list[Cite], list[Gap]]:
    """Why the driver's age is not shown to be the reason."""
    word = crash.reading.mechanism
    where = blame_text(crash)
    place = f" in {where}" if where else ""
    if word is Mechanism.NULL_CALL:
        if where is None:
            return [], [Gap("crash", "who called the null pointer: the stack does not say")]
        return [Cite("crash", "native", f"the null pointer was called from {where}, no library of CUDA")], []
    if word is Mechanism.NULL_READ and cuda_frame(crash) is not None:
        return [], [Gap("crash", "whether the null pointer that was read should have come from the driver")]
    if word is None:
        return [], [Gap("crash", "what kind of fault it was")]
    return [Cite("crash", "mechanism", f"it died by {word.value}{place}, not by calling a missing function")], []


# -- the library set, which speaks first -------------------------------------------------------------------------------


def set_trouble(record: CrashRecord) -> list[Cite]:
    """What of the loaded CUDA libraries does not belong together: it explains the same crash better."""
    libraries = record.libraries or []
    found = []
    for mix in mixes(libraries):
        if not mix.private:
            places = " and ".join(_place(one) for one in mix.libraries[:2])
            found.append(Cite("libraries", mix.what, f"more than one {mix.what} is loaded: {places}"))
    for pin in drifted_pins(record.software, libraries):
        if pin.installed is not None:
            found.append(Cite("software", pin.package, f"{pin.by} demands {pin.version}, {pin.installed} is installed"))
    for shadow in shadows(record.software, libraries):
        found.append(Cite("libraries", shadow.library.path, f"loaded in place of the wheel's own {shadow.wheel}"))
    return found


def _place(library: Library) -> str:
    return f"{library.path} ({library.version})" if library.version else library.path


def _unseen_set(record: CrashRecord) -> list[Gap]:
    if record.libraries:
        return []
    return [Gap("libraries", "whether the loaded CUDA libraries belong together", "ftforensics check")]
