"""Two libraries that cannot share a process in the order in which they were loaded.

## What it means

decord, TensorRT, onnxruntime, TensorFlow and torch each bring large C++ libraries with functions of the same names:
protobuf, the CUDA runtime linked in, video codecs. The one that is loaded first serves the other's calls. Imported in
one order the pair works, in the other it dies at the first use of CUDA.

## How it is told apart

Such a pair is mapped, and the stack is in it. For decord, onnxruntime and TensorRT it is likely when the process died
while torch first touched CUDA, and the other library lies above libtorch_cuda in memory (Linux places what is loaded
later below what came before; that is a habit of the kernel, no promise). TensorFlow beside torch is possible when the
stack leads through TensorFlow or protobuf. A frame elsewhere speaks against it.

## What to do

1. Import torch first, and let it touch CUDA before the other import: `import torch; torch.cuda.init()`.
2. Keep the two in processes of their own (a data loader's worker can decode without torch's CUDA).

## Seen in the field

- dmlc/decord#293, #324: a segmentation fault at the first `.cuda()` when decord was imported before torch.
- onnx/onnx#1331, pytorch/pytorch#8585: pybind11 and protobuf exported by two extensions.

## References

- man 3 dlopen, RTLD_GLOBAL; man 8 ld.so, the order of symbol lookup
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.library_evidence import (
    cuda_or_torch_frame,
    find_frame,
    frames,
    is_bad_pointer,
    likely_if,
    no_stack,
    signal_name_of,
    where,
)
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.crash import Module
from ftforensics.model.diagnosis import Finding, Remedy
from ftforensics.parsers.library_name import kind_of

KIND = Kind.CIRCUMSTANCE
ORDER = 35
CHANGES = ("package:decord", "package:onnxruntime*", "package:tensorrt*", "package:tensorflow*", "package:torch")
_BEFORE_TORCH = {"libdecord": "decord", "libonnxruntime": "onnxruntime", "libnvinfer": "TensorRT"}
_TENSORFLOW = ("libtensorflow_framework", "libtensorflow_cc", "libprotobuf")
_FIRST_USE = ("_lazy_init", "_cuda_init", "init")  # torch/cuda/__init__.py


def check(crash: Crash) -> Iterator[Finding]:
    if not is_bad_pointer(crash):
        return
    modules = {kind: one for one in crash.record.modules or [] if (kind := _kind(one)) is not None}
    torch = modules.get("libtorch_cuda") or modules.get("libtorch_cpu")
    if torch is None:
        return
    for kind, name in _BEFORE_TORCH.items():
        other = modules.get(kind)
        if other is not None and other.base > torch.base:
            yield from _came_first(crash, name, other, torch)
            return
    tensorflow = modules.get("libtensorflow_framework")
    if tensorflow is not None:
        yield from _two_frameworks(crash, tensorflow, torch)


def _kind(module: Module) -> str | None:
    kind = kind_of(module.path)
    return "libonnxruntime" if kind and kind.startswith("libonnxruntime") else kind


def _came_first(crash: Crash, name: str, other: Module, torch: Module) -> Iterator[Finding]:
    frame = cuda_or_torch_frame(crash) or find_frame(crash, lambda one: one.library == other.path)
    if frame is None and frames(crash):
        return
    first_use = _first_use(crash)
    yield Finding(
        cause="import-order-clash",
        confidence=likely_if(frame is not None and first_use is not None),
        summary=f"{signal_name_of(crash)} at the use of CUDA, with {name} loaded before torch.",
        supports=[
            *([first_use] if first_use is not None else []),
            *([frame] if frame is not None else []),
            _order(other, torch),
            *where(crash),
        ],
        against=[
            *crash.reading.against,
            *(
                []
                if first_use is not None
                else [Cite("crash", "python", "it did not die while torch first touched CUDA, as far as is known")]
            ),
        ],
        unknown=[*crash.reading.unknown, *no_stack(crash)],
        remedies=_remedies(name),
    )


def _order(first: Module, second: Module) -> Cite:
    names = [one.path.rpartition("/")[2] for one in (first, second)]
    return Cite(
        "crash", "modules", f"{names[0]} at {first.base} lies above {names[1]} at {second.base}: loaded before it"
    )


def _first_use(crash: Crash) -> Cite | None:
    for index, line in enumerate(crash.python[:16]):
        if line.function in _FIRST_USE and (line.file or "").endswith("/torch/cuda/__init__.py"):
            return Cite("crash", f"python.frames[{index}]", f"{line.file}:{line.line} in {line.function}")
    return None


def _two_frameworks(crash: Crash, tensorflow: Module, torch: Module) -> Iterator[Finding]:
    frame = find_frame(
        crash, lambda one: kind_of(one.library or "") in _TENSORFLOW or "protobuf" in (one.function or "")
    )
    if frame is None and frames(crash):
        return
    yield Finding(
        cause="import-order-clash",
        confidence=likely_if(False),
        summary=f"{signal_name_of(crash)} with TensorFlow and torch in one process.",
        supports=[
            *([frame] if frame is not None else []),
            *(Cite("crash", "modules", f"{one.path} is mapped") for one in (tensorflow, torch)),
            *where(crash),
        ],
        against=list(crash.reading.against),
        unknown=[*crash.reading.unknown, *no_stack(crash)],
        remedies=_remedies("TensorFlow"),
    )


def _remedies(name: str) -> list[Remedy]:
    return [
        Remedy(
            f"Import torch before {name}, and let it touch CUDA first", "python -c 'import torch; torch.cuda.init()'"
        ),
        Remedy(f"Use {name} in a process of its own"),
        Remedy(
            f"Run once with `import torch; torch.cuda.init()` as the first line, before {name} is imported. If it "
            "still dies, the order was not the cause",
            settles=True,
        ),
    ]
