"""Two OpenMP runtimes work in one process.

## What it means

OpenMP divides loops among threads. GNU's runtime (libgomp), LLVM's (libomp) and Intel's (libiomp5) do the same task,
partly under the same names. LLVM's and Intel's are one code base: a call that begins in one can end in the other, with
a thread pool that does not know the caller. The process then crashes or hangs in `__kmp_...`.

## How it is told apart

libomp and libiomp5 are both mapped. That is likely the cause when the process died in one of them, or when the runtime
itself says that another one is already there; else it is possible. libgomp beside another runtime, or twice (as
scikit-learn and torch bring it), is common and goes well as a rule: it is possible at most, and only when the stack
leads into one of them.

## What to do

1. Let all packages use one runtime: install them from one source (all conda, or all pip).
2. For MKL: `export MKL_THREADING_LAYER=GNU`, so that it uses libgomp.
3. `export OMP_NUM_THREADS=1` as a test: with one thread there is nothing to clash.

## Seen in the field

- joblib/threadpoolctl#49: libomp and libiomp5 on Linux, a crash or a deadlock that nothing but one runtime cured.
- dmlc/xgboost#11500, pytorch/pytorch#121101: `__kmp_suspend_...` with several libomp on macOS.
- "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized."

## References

- threadpoolctl documentation, "Multiple runtimes"; Intel oneAPI documentation, KMP_DUPLICATE_LIB_OK
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.blame import blame, frame_name
from ftforensics.causes.ending import SIGABRT, other_reason, signal_of
from ftforensics.causes.library_evidence import (
    find_frame,
    library_cite,
    likely_if,
    no_stack,
    not_in_the_stack,
    own_fault,
    short_place,
    signal_name_of,
    software_texts,
    text_cites,
    where,
)
from ftforensics.causes.library_set import folder, openmp_mix
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Frame, Remedy

KIND = Kind.CIRCUMSTANCE
ORDER = 34
REFINES = ("python-exception",)
CHANGES = ("package:intel-openmp", "package:llvm-openmp", "package:mkl*", "variable:MKL_THREADING_LAYER", "image")
_RUNTIME = {"libgomp": "GNU's", "libomp": "LLVM's", "libiomp5": "Intel's"}
_KMP = ("__kmp", "__kmpc_", "GOMP_", "omp_", "gomp_")
_REMEDIES = (
    Remedy("Let MKL use the same runtime as the others", "export MKL_THREADING_LAYER=GNU"),
    Remedy("Install numpy, scikit-learn and torch from one source, so that they share one OpenMP"),
    Remedy(
        "Run once with one thread. If it still dies, the runtimes were not the cause",
        "OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 python ...",
        settles=True,
    ),
)


def check(crash: Crash) -> Iterator[Finding]:
    mix = openmp_mix(crash.record.libraries or [])
    if mix is None or not own_fault(crash):
        return
    kinds = {one.kind for one in mix.libraries}
    paths = {one.path for one in mix.libraries}
    frame = find_frame(crash, lambda one: one.library in paths or _is_openmps(one))
    related = {"libomp", "libiomp5"} <= kinds
    if frame is None and not related:
        return
    names = " and ".join(f"{_RUNTIME[one.kind]} ({one.kind}, {short_place(folder(one))})" for one in mix.libraries)
    inside = blame(crash).frame
    # Kernels run in the runtime's threads, so that it stands below whatever they do wrong.
    near = inside is not None and (inside.library in paths or _is_openmps(inside))
    against = [] if frame is not None else not_in_the_stack(crash, "an OpenMP runtime")
    if frame is not None and not near and inside is not None:
        against.append(Cite("crash", "native.frames", f"it died in {frame_name(inside)}, which the runtime had called"))
    if not related:
        against.append(Cite("libraries", "OpenMP", "such a pair is common and goes well as a rule"))
    yield Finding(
        cause="openmp-clash",
        confidence=likely_if(related and frame is not None and near),
        summary=f"{signal_name_of(crash)} with two OpenMP runtimes in the process: {names}.",
        supports=[
            *([frame] if frame is not None else []),
            *(library_cite(one) for one in mix.libraries),
            *where(crash),
        ],
        against=[*crash.reading.against, *against],
        unknown=[*crash.reading.unknown, *no_stack(crash)],
        remedies=list(_REMEDIES),
    )


def _is_openmps(frame: Frame) -> bool:
    return (frame.function or "").startswith(_KMP)


def check_death(death: Death) -> Iterator[Finding]:
    """The runtime says itself that it found another one (OMP: Error #15), and aborts; MKL's layer only exits."""
    texts = software_texts(death, "openmp-twice")
    if not texts:
        return
    text = texts[-1]
    names = [(name or "").rpartition("/")[2] for name in (text.library, text.file)]
    # Intel's runtime ends the process by abort after error 15, and MKL's layer with status 1, which is also what a
    # parent makes of an abort; after another end, or with another reason told, the job was made to go on.
    other = other_reason(death)
    fitting = signal_of(death) == SIGABRT or (signal_of(death) is None and death.code in (None, 1))
    sure = fitting and text.form != "warning" and other is None
    yield Finding(
        cause="openmp-clash",
        confidence=likely_if(sure),
        summary=f"Two OpenMP runtimes met in the process: {' and '.join(name for name in names if name)}.",
        supports=text_cites(death, [text]),
        against=[] if sure else [other or Cite("launcher", f"line {text.line.number}", "the process went on after it")],
        remedies=list(_REMEDIES),
    )
