"""A forked child used CUDA that its parent had already started.

## What it means

`fork` copies the process but not the threads of CUDA's driver nor its hold on the GPU. In the child every handle of the
parent is dead. torch refuses to start CUDA there; other libraries, and tensors that were moved to the GPU before the
fork, go on with the dead handles: error 3 (initialization error), an abort, or a bad access inside libcuda.

## How it is told apart

The process is a forked child of one that runs this tool, libcuda is mapped, and it ended inside a library of CUDA's: an
abort or a null or wild access there is likely this. Elsewhere it is possible at most, because libcuda in the child does
not tell whether the parent or the child itself started CUDA. Without a record it is likely when torch's or CUDA's own
message says so. A child that was started by `spawn` or `forkserver` has nothing of its parent's.

## What to do

1. Start workers without fork: `DataLoader(..., multiprocessing_context="spawn")`, or
   `torch.multiprocessing.set_start_method("spawn")` at the top; with `persistent_workers=True` they start once.
2. Touch no CUDA before the workers start, and return CPU tensors from a dataset.

## Seen in the field

- vllm-project/speculators#889, NVIDIA-NeMo/Automodel#2386: workers abort with "CUDA error: initialization error" when
  an epoch begins and new workers are forked.
- "Cannot re-initialize CUDA in forked subprocess."

## References

- CUDA programming guide, "Initialization" and fork; PyTorch documentation, "Multiprocessing best practices"
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_stack import gave_up
from ftforensics.causes.cuda_text import said_in_record, stands_for
from ftforensics.causes.library_evidence import (
    find_frame,
    frames,
    goes_with_end,
    likely_if,
    mapped,
    no_stack,
    not_in_the_stack,
    own_fault,
    signal_name_of,
    software_texts,
    text_cites,
    where,
)
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Finding, Frame, Remedy
from ftforensics.model.launcher import StackText
from ftforensics.parsers.library_name import kind_of

KIND = Kind.CIRCUMSTANCE
ORDER = 28
REFINES = ("uncaught-cxx-exception", "python-exception")
_is_initialisation = stands_for("fork-after-cuda")  # cudaErrorInitializationError
_REMEDIES = (
    Remedy(
        "Start workers without fork: DataLoader(..., multiprocessing_context='spawn', persistent_workers=True), or at "
        "the top of the script torch.multiprocessing.set_start_method('spawn')"
    ),
    Remedy("Touch CUDA only after the workers were started, and let datasets return CPU tensors"),
    Remedy("Run once with num_workers=0. If it still dies, the fork was not the cause", settles=True),
)


def check(crash: Crash) -> Iterator[Finding]:
    parent = crash.record.process.fork_of if crash.record.process else None
    libcuda = next((path for path in mapped(crash) if kind_of(path) == "libcuda"), None)
    if parent is None or libcuda is None or not own_fault(crash):
        return
    told = said_in_record(crash, stands_for("fork-after-cuda"))
    frame = find_frame(crash, _uses_cuda)
    if told is None and frame is None and frames(crash):
        return
    # An exception whose text is another one says what it was.
    other = told is None and crash.record.cxx_exception is not None and bool(crash.record.cxx_exception.what)
    yield Finding(
        cause="fork-after-cuda",
        confidence=likely_if(told is not None or (frame is not None and not other and _inside(crash))),
        summary=f"{signal_name_of(crash)} in a child that was forked from process {parent}, while it used CUDA.",
        supports=[
            Cite("crash", "process.fork_of", f"a forked child of process {parent}"),
            Cite("crash", "modules", f"{libcuda} is mapped"),
            *(told.supports if told is not None else []),
            *([frame] if frame is not None else []),
            *where(crash),
        ],
        against=[*crash.reading.against, *([] if frame is not None else not_in_the_stack(crash, "CUDA"))],
        unknown=[
            *crash.reading.unknown,
            Gap("crash", "whether the parent had started CUDA before it forked"),
            *no_stack(crash),
        ],
        remedies=list(_REMEDIES),
    )


def _uses_cuda(frame: Frame) -> bool:
    kind = kind_of(frame.library or "") or ""
    return kind in ("libcuda", "libcudart", "libc10_cuda", "libtorch_cuda")


def _inside(crash: Crash) -> bool:
    """Did it end in CUDA's own code, or by an abort that came from there?"""
    if gave_up(crash):
        return True
    return any(kind_of(frame.library or "") in ("libcuda", "libcudart") for index, frame in frames(crash) if index < 8)


def check_death(death: Death) -> Iterator[Finding]:
    said = software_texts(death, "fork-after-cuda")
    errors = [one for one in software_texts(death, "cuda-error") if _is_initialisation(one)]
    texts = said or errors
    if not texts or not (said or _is_worker(death)):
        return
    yield Finding(
        cause="fork-after-cuda",
        confidence=likely_if(goes_with_end(death, texts[-1])),
        summary=_text_summary(texts[-1]),
        supports=[*text_cites(death, texts[-1:]), *_worker_cites(death)],
        unknown=[] if said else [Gap("crash", "whether its parent had started CUDA before it forked")],
        remedies=list(_REMEDIES),
    )


def _is_worker(death: Death) -> bool:
    forked = death.crash is not None and death.crash.record.process is not None and death.crash.record.process.fork_of
    handed_on = any(one.of_worker for one in death.exceptions)
    return death.worker or death.worker_of is not None or bool(forked) or handed_on


def _worker_cites(death: Death) -> list[Cite]:
    record = death.crash.record if death.crash is not None else None
    if record is None or record.process is None or record.process.fork_of is None:
        return []
    return [Cite("crash", "process.fork_of", f"a forked child of process {record.process.fork_of}")]


def _text_summary(text: StackText) -> str:
    if text.kind == "fork-after-cuda":
        return "A forked process tried to use CUDA, which its parent had already started."
    return "A worker could not use CUDA (initialization error): its parent had started CUDA before it forked."
