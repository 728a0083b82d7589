"""What CUDA, the dynamic loader, cuDNN, NCCL, OpenMP and torch say about the installed software, in a job's log.

Whoever prints such words is no witness: programs log what they read elsewhere, and people quote an earlier failure. So
the form counts. An error is taken from the last line of a Python traceback or from the `what()` of an uncaught C++
exception (`stack_message`), from a Python warning with its file and line, or from a line that begins in the way in
which the library itself writes it. What stands in the middle of somebody's sentence is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from ftforensics.model.launcher import LauncherEvent, StackText
from ftforensics.parsers.launcher_line import JobLine
from ftforensics.parsers.stack_message import (
    SEEN,
    cuda_error,
    driver_level,
    error_texts,
    library_missing,
    nvml_mismatch,
    rank_in,
    symbol_version,
    undefined_symbol,
    watchdog_progress,
    watchdog_timeout,
)

_MOST_WAITING = 4096  # labels within something that spans lines
_WITHIN = 16  # lines that may come between the first line of such a thing and the one that says it

# torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 1.13 to 2.9. A progress bar leaves no end of line before it.
_GLOG = re.compile(
    r"\[[EWIF](?:\d{3,4} [\d:.]{8,20})? ProcessGroupNCCL\.cpp:\d{1,6}\] "
    r"(?:\[(?P<who>[^\[\]]{1,200})\] ?)?(?P<said>.{1,600})"
)
_TAKEN_DOWN = (
    "taking the entire process down",
    "due to ProcessGroupNCCL watchdog hang",
    "Process will be terminated after",
)

_WARNING = re.compile(r"[^\s:][^:]{0,600}:\d{1,7}: \w{0,40}Warning: (?P<message>.*)$")
# torchvision/io/image.py; no blank behind the quotation.
_IMAGE = re.compile(r"Failed to load image Python extension: '?(?P<message>[^']{1,2000})")
_LOOKUP = re.compile(r"[^:]{1,500}: symbol lookup error: (?P<message>.*)$")
_SHARED = re.compile(r"[^:]{1,500}: error while loading shared libraries: (?P<message>.*)$")
_PROGRAM = re.compile(r"(?![\w.]{1,100}Error: )[^:]{1,500}: (?P<message>[^:]{1,1000}: version [`'].*)$")
_OPENMP = re.compile(r"OMP: Error #15: Initializing (\S{1,300}), but found (\S{1,300}) already initialized")
_MKL = re.compile(
    r"(?:Error: )?mkl-service \+ Intel\(R\) MKL: "
    r"(MKL_THREADING_LAYER=\w{1,20}) is incompatible with (\S{1,300}) library"
)
_PART = re.compile(r"Could not load library (libcudnn[\w.-]{0,100}?)\. Error: (?P<message>.*)$")
_PARTS = re.compile(r"Unable to load any of \{(libcudnn[\w.-]{1,100})[^{}]{0,500}\}")
_HANDLE = re.compile(r"Invalid handle\. Cannot load symbol (cudnn\w{1,100})")
_NVML_FAILED = re.compile(r"Failed to initialize NVML: (?P<message>.*)$")
_NVML_VERSION = re.compile(r"NVML library version: ([\d.]{1,20})$")
_NCCL = re.compile(
    r"\S{1,255}:(?P<pid>\d{1,10}):\d{1,10} \[\d{1,6}\] .{0,200}?NCCL WARN "
    r"Cuda failure (?:\d{1,4} )?'(?P<what>[^']{1,200})'"
)
# TensorFlow and JAX: "2025-11-29 10:00:00.123456: E path/cuda_driver.cc:265] failed call to cuInit: CUDA_ERROR_..."
_GLOG_ERROR = re.compile(
    r"(?:[\d -]{5,12}[\d:.]{5,20}: )?[EWF](?:\d{4} \S{1,20} {1,3}\d{1,10})? \S{1,300}\.cc:\d{1,6}\] (?P<said>.*)$"
)
_NAMED = re.compile(r"\b(CUDA_ERROR_[A-Z_]{1,60})\b")
_PRINTED = re.compile(
    r"(?:CUDA|[Cc]uda)(?: (?:runtime|driver))? (?:[Ee]rror|failure)\b.{0,300}?[:'] ?'?(?P<what>[^:']{5,200}?)'?\.?$"
)
_PLACE = re.compile(r"\[CUDA ERROR\] at file .{1,300}:\d{1,7}:$")
_XFORMERS = re.compile(r"WARNING\[XFORMERS\]: .{0,200}?xFormers was built for:")
_BUILT_FOR = re.compile(r"\s{1,12}PyTorch (\S{1,60}) with CUDA (\S{1,40}) \(you have (\S{1,60})\)")
_INCOMPATIBLE = re.compile(
    r"\s{0,8}\S.{0,100}? with CUDA capability (?P<sm>sm_\d{2,4}a?) is not compatible with the current PyTorch inst"
)
# torch up to 2.10: "which is of cuda capability 7.0."; 2.11 and later: "which is of compute capability (CC) 7.0."
_FOUND_GPU = re.compile(
    r"(?:\s{0,8}|[^\s:][^:]{0,600}:\d{1,7}: UserWarning: )Found GPU\d{1,3} .{1,100}? which is of "
    r"(?:cuda capability|compute capability \(CC\)) (?P<major>\d{1,2})\.(?P<minor>\d)\."
)
_NOT_SUPPORTED = re.compile(
    r"\s{0,8}(?:PyTorch no longer supports this GPU because it is too old\."
    r"|Your installed torch==\S{1,60} does not include kernels for this GPU"
    r"|No published PyTorch CUDA builds for release \S{1,60} support this GPU)"
)
_BUILT_WITH = re.compile(r"\s{0,8}- (\d{1,2})\.(\d) which supports hardware CC")
_SUPPORTED = re.compile(r"\s{0,8}\((\d{1,2})\.(\d)\) - \((\d{1,2})\.(\d)\)")


class StackReader:
    """Lines that a library writes itself, outside of exceptions."""

    anchors = (
        "ProcessGroupNCCL.cpp:",
        ": symbol lookup error: ",
        ": error while loading shared libraries: ",
        "' not found (required by ",
        "OMP: Error #",
        "MKL_THREADING_LAYER=",
        "Could not load library libcudnn",
        "Unable to load any of {libcudnn",
        "Cannot load symbol cudnn",
        "Failed to initialize NVML: ",
        "NCCL WARN Cuda failure ",
        "CUDA_ERROR_",
        "CUDA error",
        "CUDA Error",
        "CUDA ERROR",
        "CUDA failure",
        "Cuda failure",
        "Cuda error",
        "cuda error",
        "CUDA driver error",
        "CUDA runtime error",
        "cuda runtime error",
        "CUDA initialization: ",
        "Failed to load image Python extension: ",
        "xFormers was built for:",
        " is not compatible with the current PyTorch installation",
        " which is of cuda capability ",
        " which is of compute capability ",
    )

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, _Continuation]] = {}  # by label: the line's number, what may follow it

    @property
    def open(self) -> bool:
        return bool(self._waiting)

    def read(self, line: JobLine) -> Iterator[LauncherEvent]:
        while self._waiting:
            label = next(iter(self._waiting))  # the oldest
            if line.number - self._waiting[label][0] <= _WITHIN:
                break
            yield from self._give_up(label)
        waiting = self._waiting.get(line.label)
        if waiting is not None:
            event, done = waiting[1](line)
            if done:
                del self._waiting[line.label]
            if event is not None:
                yield event
                return
        found = self._alone(line)
        if found is not None:
            yield found

    def end(self) -> Iterator[LauncherEvent]:
        for label in list(self._waiting):
            yield from self._give_up(label)

    def _give_up(self, label: str) -> Iterator[LauncherEvent]:
        event = self._waiting.pop(label)[1].alone
        if event is not None:
            yield event

    def _wait(self, line: JobLine, then: _Continuation) -> None:
        self._waiting.pop(line.label, None)
        if len(self._waiting) < _MOST_WAITING:
            self._waiting[line.label] = (line.number, then)

    def _alone(self, line: JobLine) -> StackText | None:
        text = line.text[:SEEN].rstrip()
        if "ProcessGroupNCCL.cpp:" in text:
            return _watchdog(line, text)
        if _XFORMERS.match(text):
            self._wait(line, _Continuation(_built_for))
            return None
        if _PLACE.match(text):
            self._wait(line, _Continuation(_exact_text))
            return None
        gpu = _FOUND_GPU.match(text)
        if gpu:
            self._wait(line, _Continuation(_StrangeGpu(line, int(gpu["major"]), int(gpu["minor"]))))
            return None
        failed = _NVML_FAILED.match(text)
        if failed:
            event = nvml_mismatch(failed["message"], line.cited())
            if event is not None:
                self._wait(line, _Continuation(_NvmlVersion(event), _formed(event, line)))
            return None
        for read in _READERS:
            found = read(text, line)
            if found is not None:
                return _formed(found, line)
        return None


class _Continuation:
    """What the lines behind a first one may say: (the event or None, whether that was all). alone: the event of the
    first line itself, when nothing follows it."""

    def __init__(
        self, read: Callable[[JobLine], tuple[StackText | None, bool]], alone: StackText | None = None
    ) -> None:
        self._read = read
        self.alone = alone

    def __call__(self, line: JobLine) -> tuple[StackText | None, bool]:
        return self._read(line)


def _built_for(line: JobLine) -> tuple[StackText | None, bool]:
    found = _BUILT_FOR.match(line.text[:SEEN])
    if not found:
        return None, False
    event = StackText(line.cited(), "built-for", library="xformers", wanted=found[1], found=found[3])
    return _formed(event, line), True


def _exact_text(line: JobLine) -> tuple[StackText | None, bool]:
    texts, _, _ = error_texts()
    text = line.text[:SEEN].strip().rstrip(".")
    code = next((code for code, known in texts.items() if known == text), None)
    return (_formed(StackText(line.cited(), "cuda-error", code=code), line) if code is not None else None), True


class _NvmlVersion:
    """nvidia-smi of 535 and later adds the library's version in a second line."""

    def __init__(self, event: StackText) -> None:
        self._event = event

    def __call__(self, line: JobLine) -> tuple[StackText | None, bool]:
        found = _NVML_VERSION.match(line.text[:SEEN].strip())
        if not found:
            return None, False
        return _formed(msgspec.structs.replace(self._event, found=found[1]), line), True


class _StrangeGpu:
    """torch.cuda._check_capability, which lists what the build has code for. That a GPU is newer than the newest listed
    one of its generation says nothing: 12.1 runs code for 12.0, and the warning of torch 2.9 and 2.10 was wrong there
    (pytorch issue 164596)."""

    def __init__(self, first: JobLine, major: int, minor: int) -> None:
        self._first, self._level = first, (major, minor)
        self._runs = False

    def __call__(self, line: JobLine) -> tuple[StackText | None, bool]:
        text = line.text[:SEEN]
        listed = _BUILT_WITH.match(text)
        if listed:
            major, minor = int(listed[1]), int(listed[2])
            self._runs = self._runs or (major == self._level[0] and minor <= self._level[1])
            return None, self._runs
        supported = _SUPPORTED.match(text)
        if supported and self._level >= (int(supported[1]), int(supported[2])):
            return None, True
        if not supported and not _NOT_SUPPORTED.match(text):
            return None, False
        symbol = f"sm_{self._level[0]}{self._level[1]}"
        event = StackText(self._first.cited(), "cuda-error", code=209, symbol=symbol, form="warning")
        return msgspec.structs.replace(event, rank=self._first.rank), True


def _formed(event: StackText, line: JobLine) -> StackText:
    return msgspec.structs.replace(
        event,
        form=event.form or "line",
        rank=event.rank if event.rank is not None else line.rank,
    )


def _watchdog(line: JobLine, text: str) -> StackText | None:
    found = _GLOG.search(text)
    if not found:
        return None
    before = text[: found.start()].removesuffix(":").rstrip()
    if before and (not before.endswith("]") or any(quote in before for quote in "\"'`")):
        return None  # in the middle of somebody's sentence; a progress bar and a label end in "]"
    said = found["said"]
    event = watchdog_timeout(said, line.cited()) if said.startswith("Watchdog caught") else None
    event = event or watchdog_progress(said, found["who"] or "", line.cited())
    if event is None and any(words in said for words in _TAKEN_DOWN):
        event = StackText(line.cited(), "nccl-watchdog")
    if event is None:
        return None
    labelled = re.search(r"\[rank(\d{1,7})\]$", before)
    rank = int(labelled[1]) if labelled else rank_in(f"{found['who'] or ''}")
    return _formed(msgspec.structs.replace(event, rank=rank), line)


def _warned(text: str, line: JobLine) -> StackText | None:
    found = _WARNING.match(text)
    if not found:
        return None
    image = _IMAGE.match(found["message"])
    if image:
        event = undefined_symbol(image["message"], line.cited()) or library_missing(image["message"], line.cited())
    else:
        event = driver_level(found["message"], line.cited()) or cuda_error(found["message"], line.cited())
    return msgspec.structs.replace(event, form="warning") if event is not None else None


def _loader(text: str, line: JobLine) -> StackText | None:
    for pattern, read in ((_LOOKUP, undefined_symbol), (_SHARED, library_missing), (_PROGRAM, symbol_version)):
        found = pattern.match(text)
        if found:
            return read(found["message"], line.cited())
    return None


def _openmp(text: str, line: JobLine) -> StackText | None:
    found = _OPENMP.match(text)
    if found:
        return StackText(line.cited(), "openmp-twice", library=found[1], file=found[2])
    # MKL's INTEL layer is libiomp5 (oneMKL developer guide, "Dynamically Selecting the Interface and Threading Layer").
    layer = _MKL.match(text)
    return (
        StackText(line.cited(), "openmp-twice", library="libiomp5", file=layer[2], symbol=layer[1]) if layer else None
    )


def _cudnn_part(text: str, line: JobLine) -> StackText | None:
    part = _PART.match(text)
    if part:
        undefined = undefined_symbol(part["message"], line.cited())
        symbol, file = (undefined.symbol, undefined.library) if undefined is not None else (None, None)
        wanted = undefined.wanted if undefined is not None else None
        return StackText(line.cited(), "cudnn-parts", library=part[1], symbol=symbol, file=file, wanted=wanted)
    parts = _PARTS.match(text)
    if parts:
        return StackText(line.cited(), "cudnn-parts", library=parts[1])
    handle = _HANDLE.match(text)
    return StackText(line.cited(), "cudnn-parts", symbol=handle[1]) if handle else None


def _printed(text: str, line: JobLine) -> StackText | None:
    """CUDA's own text at the end of a line that begins as C programs print it."""
    nccl = _NCCL.match(text)
    found = nccl or _PRINTED.match(text)
    if not found:
        return None
    texts, _, _ = error_texts()
    what = found["what"].strip().rstrip(".")
    code = next((code for code, known in texts.items() if known == what), None)
    if code is None:
        return None
    return StackText(line.cited(), "cuda-error", code=code, pid=int(nccl["pid"]) if nccl else None)


def _logged(text: str, line: JobLine) -> StackText | None:
    found = _GLOG_ERROR.match(text)
    named = _NAMED.search(found["said"]) if found else None
    _, names, _ = error_texts()
    return StackText(line.cited(), "cuda-error", code=names[named[1]]) if named and named[1] in names else None


def _gpu(text: str, line: JobLine) -> StackText | None:
    """A warning of torch's whose first line holds only the file and the line number."""
    found = _INCOMPATIBLE.match(text)
    return StackText(line.cited(), "cuda-error", code=209, symbol=found["sm"], form="warning") if found else None


_READERS = (_warned, _loader, _openmp, _cudnn_part, _gpu, _logged, _printed)
