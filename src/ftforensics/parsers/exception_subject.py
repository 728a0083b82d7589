"""What a Python exception is about, by its type and the text that the library which raises it gives it.

Texts are matched from their beginning and in the raising library's own form: who quotes such words in a message of his
own is not taken for it. Whether the exception ended a process, and how sure that is, a cause weighs.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from ftforensics.model.exception import Raised
from ftforensics.model.launcher import ExceptionSeen, TextLine
from ftforensics.parsers.stack_message import in_exception

_SEEN = 4096  # characters of a message that the patterns see


class About(str, Enum):
    """The values are the ids of the causes, where there is one of that name."""

    GPU_MEMORY = "cuda-out-of-memory"
    DEVICE_ASSERT = "cuda-device-assert"
    GPU_ERROR = "cuda-error"
    NCCL = "nccl-error"
    HOST_MEMORY = "host-memory-error"
    SHARED_MEMORY = "shm-exhausted"
    DISK_FULL = "disk-full"
    STORAGE = "storage-error"
    NOT_FOUND = "file-not-found"
    DENIED = "permission-denied"
    MODULE = "missing-module"
    DEVICES = "device-mismatch"
    NAN = "loss-nan"
    ASSERTION = "assertion-failed"
    DIVISION = "division-by-zero"
    ARGUMENTS = "bad-arguments"
    SOFTWARE = "software"  # the installed software: causes of its own weigh those texts
    SIGNAL = "signal"  # made of a signal that somebody sent
    OTHER = "other"


class Subject(msgspec.Struct, frozen=True):
    """by_type: the exception's type alone says so (or an OSError's number); else its words do, and who raised it
    matters. errno: of an OSError; path: the file it names; what: what the text names (a CUDA error, NCCL's result, a
    module, two devices, an argument parser's complaint, a signal's number); tried, reserved: bytes that could not be
    had, and that torch's allocator held unused; old: an import of a name that the installed version does not have."""

    about: About
    by_type: bool = False
    errno: int | None = None
    path: str | None = None
    what: str | None = None
    tried: int | None = None
    reserved: int | None = None
    uncertain: bool = False  # the text is also that of other failures


class _Said(msgspec.Struct, frozen=True):
    """kind: the type as it is printed; name: without its module; names: its and its bases'."""

    kind: str
    name: str
    names: frozenset[str]
    message: str
    raised: Raised


def subject_of(raised: Raised) -> Subject:
    name = raised.type.rpartition(".")[2]
    names = frozenset({name, *(base.rpartition(".")[2] for base in raised.bases)})
    one = _Said(raised.type, name, names, raised.message[:_SEEN], raised)
    found = (read(one) for read in _READERS)
    return next((subject for subject in found if subject is not None), Subject(About.OTHER))


# --- the GPU ----------------------------------------------------------------------------------------------------------

_UNIT = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = r"(\d{1,20}(?:\.\d{1,6})?) (bytes|KiB|MiB|GiB|TiB)"
# c10/cuda/CUDACachingAllocator.cpp; HIP is what torch's ROCm build calls it.
_GPU_MEMORY = re.compile(r"(?:CUDA|HIP) out of memory\.|(?:CUDA|HIP) error: out of memory")
_TRIED = re.compile(r"Tried to allocate " + _SIZE)
_RESERVED = re.compile(_SIZE + r" is reserved by PyTorch but unallocated")
_OF_GPU = frozenset({"torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError", "torch.AcceleratorError", "RuntimeError"})
# TensorFlow's and JAX's words for their own allocators.
_TF_MEMORY = re.compile(r"(?:\(\d\) RESOURCE_EXHAUSTED: +)?OOM when allocating tensor with .{0,400}?device:GPU:\d")
_XLA_MEMORY = re.compile(r"RESOURCE_EXHAUSTED: Out of memory (?:while trying to )?allocat(?:e|ing) (\d{1,20}) bytes")
# c10/cuda/CUDAException.cpp: "CUDA error: TEXT"; cuBLAS, cuFFT and cuSPARSE give their status by name, cuDNN too.
_GPU_ERROR = re.compile(
    r"(?:CUDA|HIP) (?:driver )?error: (?P<text>[^\n]{1,200})|cuDNN error: (?P<cudnn>CUDNN_STATUS_\w{1,60})"
    r"|cuFFT error: (?P<fft>\w{1,60})|cusolver error: (?P<solver>\w{1,60})"
)
_ASSERT = "device-side assert triggered"


def _gpu(one: _Said) -> Subject | None:
    if one.kind == "torch.cuda.OutOfMemoryError" or (one.kind in _OF_GPU and _GPU_MEMORY.match(one.message)):
        by_type = one.name == "OutOfMemoryError"
        return Subject(
            About.GPU_MEMORY, by_type, tried=_size(_TRIED, one.message), reserved=_size(_RESERVED, one.message)
        )
    if one.kind == "cupy.cuda.memory.OutOfMemoryError":
        return Subject(About.GPU_MEMORY, True)
    if one.name == "ResourceExhaustedError" and _TF_MEMORY.search(one.message):
        return Subject(About.GPU_MEMORY)
    xla = _XLA_MEMORY.match(one.message) if one.name in ("XlaRuntimeError", "JaxRuntimeError") else None
    if xla:
        return Subject(About.GPU_MEMORY, tried=int(xla[1]))
    found = _GPU_ERROR.match(one.message) if one.kind in _OF_GPU else None
    if not found or _says_software(one.raised):
        return None
    what = next(text for text in found.groups() if text is not None).strip()
    return Subject(About.DEVICE_ASSERT if what.startswith(_ASSERT) else About.GPU_ERROR, what=what)


def _size(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return int(float(found[1]) * _UNIT[found[2]]) if found else None


def _says_software(raised: Raised) -> bool:
    line = TextLine(raised.message[:300], 0)
    said = next(in_exception(ExceptionSeen(line, raised.type, raised.message)), None)
    # cuDNN's status alone is an error of the GPU's work like another.
    return said is not None and said.kind != "cudnn-status"


# --- NCCL -------------------------------------------------------------------------------------------------------------

# torch/csrc/distributed/c10d/NCCLUtils.hpp, C10D_NCCL_CHECK
_NCCL = re.compile(r"(?:\[\d{1,7}\].{0,200}?)?NCCL error in: \S{1,500}, (?P<text>[^,\n(]{1,200})")
_NCCL_RESULT = re.compile(r"\b(nccl(?:SystemError|UnhandledCudaError|InternalError|InvalidUsage|InvalidArgument))\b")
_NCCL_LAST = re.compile(r"Last error:\s{0,20}\n?([^\n]{1,300})")
_NCCL_SHM = re.compile(r"shared memory segment|/dev/shm/nccl-")


def _nccl(one: _Said) -> Subject | None:
    if one.name not in ("DistBackendError", "RuntimeError", "NcclError", "NCCLError"):
        return None
    found = _NCCL.match(one.message)
    if not found:
        return None
    last = _NCCL_LAST.search(one.message)
    said = last[1].strip() if last else ""
    if _NCCL_SHM.search(said):
        return Subject(About.SHARED_MEMORY, what=said)
    result = _NCCL_RESULT.search(one.message)
    words = result[1] if result else found["text"].strip()
    return Subject(About.NCCL, by_type=one.name == "DistBackendError", what=f"{words}: {said}" if said else words)


# --- the installed software -------------------------------------------------------------------------------------------


def _software(one: _Said) -> Subject | None:
    return Subject(About.SOFTWARE) if _says_software(one.raised) else None


# --- memory of the host -----------------------------------------------------------------------------------------------

# c10/core/impl/alloc_cpu.cpp; "not enough memory" is what it says on Windows and where mmap failed.
_CPU_MEMORY = re.compile(
    r"(?:\[enforce fail at .{1,300}?\] .{0,200}?)?DefaultCPUAllocator: (?:can't allocate memory|not enough memory): "
    r"you tried to allocate (\d{1,20}) bytes"
)
_ARRAY_MEMORY = re.compile(r"Unable to allocate " + _SIZE + r" for an array with shape ")
_ENOMEM = 12


def _host_memory(one: _Said) -> Subject | None:
    if "MemoryError" in one.names or "ArrowMemoryError" in one.names or one.name == "_ArrayMemoryError":
        return Subject(About.HOST_MEMORY, True, tried=_size(_ARRAY_MEMORY, one.message))
    found = _CPU_MEMORY.match(one.message) if one.name == "RuntimeError" else None
    if found:
        return Subject(About.HOST_MEMORY, tried=int(found[1]))
    return None


# --- files ------------------------------------------------------------------------------------------------------------

# aten/src/ATen/MapAllocator.cpp: the file's name is one in /dev/shm, "/torch_<pid>_<random>_<count>".
_TORCH_SHM = re.compile(
    r"unable to (?:allocate shared memory\(shm\) for|write to|resize|mmap \d{1,20} bytes from) file "
    r"</torch_[^>]{1,200}>(?: to the right size)?: (?:No space left on device \(28\)|Cannot allocate memory \(12\))"
)
# str() of an OSError: "[Errno 28] No space left on device: '/data/x'"
_ERRNO = re.compile(r"\[Errno (\d{1,4})\] [^\n:]{1,100}(?:: (?:b?'([^'\n]{0,1000})'|b?\"([^\"\n]{0,1000})\"))?")
# safetensors and other libraries in Rust: a std::io::Error in its two forms
_RUST = re.compile(
    r".{0,300}?(?:\bOs \{ code: (?P<debug>\d{1,4}), one.kind: \w{1,40}, one.message: |\(os error (?P<shown>\d{1,4})\))"
)
# datasets, builder.py
_NO_ROOM = re.compile(r"Not enough disk space\. Needed: ")
# caffe2/serialize/inline_container.cc: a failed write for whatever reason
_TORCH_SAVE = re.compile(
    r"\[enforce fail at inline_container\.cc:\d{1,6}\] \.? ?"
    r"(?:PytorchStreamWriter failed writing file .{1,200}|unexpected pos \d{1,20} vs \d{1,20})"
    r"|basic_ios::clear: iostream error$"
)
_OS_NAMES = {"FileNotFoundError": 2, "PermissionError": 13}
_OS_ERRORS = frozenset({
    "OSError", "IOError", "FileNotFoundError", "PermissionError", "SafetensorError", "BlockingIOError",
    "ConnectionAbortedError",
})  # fmt: skip
_EPERM, _ENOENT, _EIO, _EACCES, _ENOSPC, _EROFS, _ENOTCONN, _ESTALE, _EREMOTEIO, _EDQUOT = (
    1, 2, 5, 13, 28, 30, 107, 116, 121, 122,
)  # fmt: skip
_FULL = (_ENOSPC, _EDQUOT)
_SHM_FOLDER = "/dev/shm/"


def _files(one: _Said) -> Subject | None:
    if one.name == "RuntimeError":
        if _TORCH_SHM.match(one.message):
            return Subject(About.SHARED_MEMORY)
        if _TORCH_SAVE.match(one.message):
            return Subject(About.DISK_FULL, uncertain=True)
        return None
    if not one.names & _OS_ERRORS:
        return None
    if one.name == "OSError" and _NO_ROOM.match(one.message):
        return Subject(About.DISK_FULL)
    number, path = _errno_and_path(one)
    if number in _FULL:
        on_shm = path is not None and path.startswith(_SHM_FOLDER)
        return Subject(About.SHARED_MEMORY if on_shm else About.DISK_FULL, True, number, path)
    if number in (_EACCES, _EPERM, _EROFS):
        return Subject(About.DENIED, True, number, path)
    if number == _ENOENT:
        return Subject(About.NOT_FOUND, True, number, path)
    if number == _ENOMEM:
        return Subject(About.HOST_MEMORY, True, number)
    if number in (_ESTALE, _EREMOTEIO) or (number in (_EIO, _ENOTCONN) and path is not None):
        return Subject(About.STORAGE, True, number, path)
    if number == _EIO:
        # A terminal that was closed answers with it too: nohup's and tqdm's last words.
        return Subject(About.STORAGE, True, number, uncertain=True)
    return None


def _errno_and_path(one: _Said) -> tuple[int | None, str | None]:
    found = _ERRNO.match(one.message)
    path = one.raised.filename or (found[2] or found[3] if found else None)
    if one.raised.errno is not None:
        return one.raised.errno, path
    if found:
        return int(found[1]), path
    rust = _RUST.match(one.message)
    if rust:
        return int(rust["debug"] or rust["shown"]), path
    return next((number for known, number in _OS_NAMES.items() if known in one.names), None), path


# --- modules, devices, numbers ----------------------------------------------------------------------------------------

_NO_MODULE = re.compile(r"No module named '?([\w.]{1,200})'?")
_NO_NAME = re.compile(r"cannot import name '(\w{1,200})' from (?:partially initialized module )?'([\w.]{1,200})'")
# transformers, dynamic_module_utils.py
_NO_PACKAGES = re.compile(
    r"This modeling file requires the following packages that were not found in your environment: ([\w.,\- ]{1,200})\."
)
# aten: TensorIterator, TensorUtils, the generated device checks; torch/nn
_DEVICES = re.compile(
    r"Expected all tensors to be on the same device, but (?:found at least two devices, (\S{1,20}) and (\S{1,20}?)!"
    r"|got \w{1,80} is on (\S{1,20}), different from other tensors on (\S{1,20}))"
    r"|Input type \(torch\.cuda\.\w{1,40}\) and weight type \(torch\.\w{1,40}\) should be the same"
    r"|Input type \(torch\.\w{1,40}\) and weight type \(torch\.cuda\.\w{1,40}\) should be the same"
    r"|Expected a '\w{1,20}' device type for generator but found '\w{1,20}'"
    r"|Tensor for (?:argument #\d{1,3} )?'\w{1,80}' is on \S{1,20}, but expected (?:it|them) to be on \S{1,20}"
    r"|Tensor on device \S{1,20} is not on the expected device \S{1,20}"
)


def _module(one: _Said) -> Subject | None:
    if not one.names & {"ModuleNotFoundError", "ImportError"}:
        return None
    found = _NO_MODULE.match(one.message) or _NO_PACKAGES.match(one.message)
    if found:
        return Subject(About.MODULE, "ModuleNotFoundError" in one.names, what=found[1].strip())
    lacking = _NO_NAME.match(one.message)
    if lacking:
        return Subject(About.MODULE, what=f"{lacking[2]}.{lacking[1]}")
    return Subject(About.MODULE, True) if "ModuleNotFoundError" in one.names else None


def _devices(one: _Said) -> Subject | None:
    found = _DEVICES.match(one.message) if one.name == "RuntimeError" else None
    if not found:
        return None
    two = [device for device in found.groups() if device is not None]
    return Subject(About.DEVICES, what=" and ".join(two) or None)


_QUOTED = re.compile(r"'[^'\n]{0,500}'|\"[^\"\n]{0,500}\"|\S{0,200}/\S{0,200}")
_BAD = r"(?:nans?|infs?|infinite|infinity|non-?finite|not finite|invalid \((?:nan|inf))"
_LOSS = re.compile(r"\b(?:\w+_)?loss(?:es)?\b", re.IGNORECASE)
_NOT_FINITE = re.compile(rf"\b{_BAD}\b", re.IGNORECASE)
# The words as a statement: "loss is NaN", "the loss of step 5 became infinite", "NaN/Inf found in loss". Both words
# anywhere say less: a loss function may refuse weights that are infinite.
_LOSS_IS = re.compile(
    rf"\b(?:\w+_)?loss(?:es)?\b[^.;,]{{0,60}}?(?:\bis\b|\bare\b|\bwas\b|\bbec\w{{2,5}}\b|\bwent\b|\bturned\b|\bgot\b"
    rf"|\breturned\b|=|:|->)\s{{0,3}}(?:to |into |now |either |a ){{0,2}}{_BAD}\b"
    rf"|\b{_BAD}\b(?: ?(?:/|or|and|\|) ?{_BAD}\b)?(?:\s(?:values?|detected|found|encountered|in|of|for|the|a|total"
    r"|train|training|local|forward|batch)\b){0,5}\s(?:\w+_)?loss(?:es)?\b",
    re.IGNORECASE,
)
# What Python itself says of a text that is no number, and checks whose subject is not the loss.
_OF_PYTHON = re.compile(r"could not convert|cannot convert|invalid literal|unsupported|Input (?:contains|X)")
# torch/csrc/autograd/python_anomaly_mode.cpp and torch/autograd/anomaly_mode.py
_ANOMALY = re.compile(r"Function '\w{1,200}' returned nan values in its \d{1,4}(?:th|st|nd|rd) output\.")
# apex and DeepSpeed give up when no loss scale is left that does not overflow; fairseq has its own words.
_LOSS_SCALE = re.compile(
    r"Current loss scale already at minimum - cannot decrease scale anymore|Minimum loss scale reached "
)
_TYPES_OF_NAN = frozenset({
    "ValueError", "RuntimeError", "FloatingPointError", "ArithmeticError", "OverflowError", "AssertionError",
    "Exception",
})  # fmt: skip


def _nan(one: _Said) -> Subject | None:
    if one.name == "RuntimeError" and _ANOMALY.match(one.message):
        return Subject(About.NAN)
    if one.name not in _TYPES_OF_NAN and not re.search(r"nan|diverg|nonfinite", one.name, re.IGNORECASE):
        return None
    if _LOSS_SCALE.match(one.message):
        return Subject(About.NAN)
    first = _QUOTED.sub(" ", one.message.split("\n", 1)[0][:500])
    if _OF_PYTHON.match(first) or not (_LOSS.search(first) and _NOT_FINITE.search(first)):
        return None
    return Subject(About.NAN, uncertain=not _LOSS_IS.search(first))


def _numbers(one: _Said) -> Subject | None:
    if "AssertionError" in one.names:
        return Subject(About.ASSERTION, True)
    if "ZeroDivisionError" in one.names:
        return Subject(About.DIVISION, True)
    # aten gives Python's name to the error of integer tensors; numpy raises its own where errstate says so.
    if one.name == "RuntimeError" and one.message == "ZeroDivisionError":
        return Subject(About.DIVISION)
    if one.name == "FloatingPointError" and one.message.startswith("divide by zero encountered in "):
        return Subject(About.DIVISION)
    return None


# torch/distributed/elastic/multiprocessing/api.py; lightning/pytorch/utilities/exceptions.py
_ALWAYS = {"SIGTERMException": "15", "KeyboardInterrupt": "2"}
_OF_SIGNALS = frozenset({"SignalException", *_ALWAYS})
_GOT_SIGNAL = re.compile(r"got signal: (\d{1,3})$")


def _signals(one: _Said) -> Subject | None:
    if one.name not in _OF_SIGNALS:
        return None
    said = _GOT_SIGNAL.search(one.message)
    number = _ALWAYS.get(one.name) or (said[1] if said else None)
    return Subject(About.SIGNAL, True, what=number)


def _arguments(one: _Said) -> Subject | None:
    # Made by the reader of usage messages: argparse prints one and leaves by SystemExit(2).
    return Subject(About.ARGUMENTS, True, what=one.message or None) if one.name == "SystemExit" else None


_READERS = (
    _signals, _arguments, _gpu, _nccl, _host_memory, _files, _software, _module, _devices, _nan, _numbers,
)  # fmt: skip
