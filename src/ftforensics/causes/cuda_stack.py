"""Is CUDA on the stack? Whether a driver or a library set can be to blame for a fault is told by where it died."""

from __future__ import annotations

import re

from ftforensics.causes.blame import blame, file_name, in_interpreter, line_text, runs_python
from ftforensics.causes.ending import FAULT_NAMES, SIGABRT, gave_up_over
from ftforensics.causes.stack import frame_text
from ftforensics.model.basics import Cite
from ftforensics.model.case import Crash
from ftforensics.model.diagnosis import Frame
from ftforensics.model.mechanism import Mechanism
from ftforensics.model.signals import signal_name
from ftforensics.parsers.library_name import is_cuda, kind_of

# Extensions of these packages have nothing to do with a GPU. An unknown one may.
_PLAIN_PACKAGES = (
    "numpy", "scipy", "pandas", "pyarrow", "pillow", "lxml", "msgspec", "orjson", "regex", "tokenizers", "safetensors",
    "sentencepiece", "scikit-learn", "matplotlib", "psutil", "grpcio", "protobuf", "pyyaml", "aiohttp", "h5py", "cffi",
    "ftforensics",
)  # fmt: skip
_PLAIN_FOLDERS = re.compile(rf"/({'|'.join(_PLAIN_PACKAGES)}|PIL|sklearn|google|yaml|torch)/")


# onnxruntime's providers, TensorRT, what Triton compiles at run time, people's own libraries.
_BY_NAME = re.compile(r"cuda[^/]*\.so|/lib(nvinfer|onnxruntime_providers_tensorrt)[^/]*\.so|/\.triton/|/libtriton\.so")


def is_cuda_library(path: str) -> bool:
    """A library of CUDA or one that calls it, by its name."""
    kind = kind_of(path.removesuffix(" (deleted)")) or ""
    return is_cuda(kind) or kind == "libc10_cuda" or kind.startswith("libtorch_cuda")


def may_call_driver(crash: Crash, path: str) -> bool:
    """A library of CUDA, or an extension that is not known to have nothing to do with it."""
    if is_cuda_library(path) or _BY_NAME.search(path):
        return True
    if kind_of(path.removesuffix(" (deleted)")) != "extension" or _PLAIN_FOLDERS.search(path):
        return False
    known = next((one for one in crash.record.libraries or [] if one.path == path), None)
    return known is None or known.package not in _PLAIN_PACKAGES


def cuda_frame(crash: Crash) -> Cite | None:
    """The innermost frame in a library of CUDA, before Python code runs again; guessed frames do not count."""
    for index, frame in enumerate(crash.native):
        if runs_python(frame):
            break
        if frame.trust != "scan" and frame.library is not None and is_cuda_library(frame.library):
            return Cite("crash", f"native.frames[{index}]", frame_text(frame))
    return None


def is_fault(crash: Crash) -> bool:
    """Did the program bring the signal on itself?"""
    signal = crash.record.signal
    if signal is None or crash.reading.mechanism in (Mechanism.SENT_BY_PROCESS, Mechanism.KILLED):
        return False
    return (signal.name or signal_name(signal.number or 0)) in FAULT_NAMES


def gave_up(crash: Crash) -> bool:
    """Did it abort, as a library does after an error that nobody handles?"""
    signal = crash.record.signal
    return signal is not None and (signal.number == SIGABRT or signal.name == signal_name(SIGABRT))


def elsewhere(crash: Crash) -> Cite | None:
    """The frame or line that shows that it died where no CUDA is at work. None: it died there, or the stack does not
    say. Who aborts does so in the C++ runtime, which says nothing about where the error came from: his words do."""
    if cuda_frame(crash) is not None:
        return None
    if gave_up(crash):
        return gave_up_over(crash.record)
    blamed = blame(crash)
    if blamed.frame is not None and blamed.frame.library is not None:
        if may_call_driver(crash, blamed.frame.library):
            return None
        text = f"it died in {frame_text(blamed.frame)}, and no library of CUDA is on the stack"
        return Cite("crash", f"native.frames[{blamed.index}]", text)
    if blamed.python is not None and (blamed.border is not None or in_interpreter(crash)):
        where = f"a {blamed.border} call" if blamed.border else "the interpreter"
        return Cite("crash", "python", f"it died in {where} at {line_text(blamed.python)}")
    return None


def null_call(crash: Crash) -> tuple[int, Frame] | None:
    """The frame that called a null function pointer, when it may have been an entry point of the driver.

    Python and ctypes call what they are told to; a caller that is not known, or only guessed, accuses nobody."""
    if crash.reading.mechanism is not Mechanism.NULL_CALL:
        return None
    # The first frame may be the null itself, which lies in no library.
    for index, frame in enumerate(crash.native[:2]):
        if frame.library is None and index == 0:
            continue
        if frame.library is None or frame.trust == "scan" or not may_call_driver(crash, frame.library):
            return None
        return index, frame
    return None


def caller_text(frame: Frame) -> str:
    return f"{frame.function} in {file_name(frame)}" if frame.function else file_name(frame)
