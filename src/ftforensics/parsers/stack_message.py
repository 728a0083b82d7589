"""What the text of an exception says about the installed software: of CUDA, the dynamic loader, cuDNN, NVML, torch.

The texts of CUDA's errors are those of cudaGetErrorString (cuGetErrorString has the same ones), read from `facts`.
Where such a text counts, whoever read it decides: `in_exception`, `in_native` and `launcher_stack`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import msgspec

from ftforensics.facts.cuda_errors import cuda_errors
from ftforensics.model.launcher import ExceptionSeen, NativeText, StackText, TextLine

SEEN = 4096  # characters of a line that the patterns see
_LINES = 4  # of an exception's message
_LAZILY = "CUDA call failed lazily at initialization with error: "  # torch/cuda/__init__.py, DeferredCudaCallError

# Too general to be CUDA's without the word: "initialization error", "unknown error".
_GENERAL = frozenset({3, 999})
# The driver's own names (cuda.h, CUresult), which numba, CuPy, TensorFlow and JAX print.
_DRIVER_NAMES = {
    "CUDA_ERROR_NOT_INITIALIZED": 3,
    "CUDA_ERROR_STUB_LIBRARY": 34,
    "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
    "CUDA_ERROR_JIT_COMPILER_NOT_FOUND": 221,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222,
    "CUDA_ERROR_SYSTEM_NOT_READY": 802,
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": 803,
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": 804,
}


def in_exception(event: ExceptionSeen) -> Iterator[StackText]:
    """What a Python exception says about the stack. One that only reports another process's end says nothing."""
    if event.peer_lost:
        return
    for said in event.message[:SEEN].split("\n")[:_LINES]:
        # What follows in later lines is cited as it stands there.
        line = event.line if said in event.line.text else msgspec.structs.replace(event.line, text=said[:300])
        found = _in_message(said.removeprefix(_LAZILY), line)
        if found is not None:
            yield msgspec.structs.replace(found, form="exception", rank=event.rank)
            return


def in_native(event: NativeText) -> Iterator[StackText]:
    """What an uncaught C++ exception says about it. The watchdog of NCCL ends the process by one."""
    if event.kind != "cxx-exception" or event.message is None:
        return
    message = event.message[:SEEN]
    found = watchdog_timeout(message, event.line) or _in_message(message, event.line)
    if found is not None:
        rank = event.rank if event.rank is not None else rank_in(message)
        yield msgspec.structs.replace(found, form="what", rank=rank)


# --- messages ---------------------------------------------------------------------------------------------------------


def _in_message(message: str, line: TextLine) -> StackText | None:
    for read in (
        driver_level,
        _forked,
        undefined_symbol,
        symbol_version,
        library_missing,
        _cudnn,
        _companion,
        nvml_mismatch,
        cuda_error,
    ):
        found = read(message, line)
        if found is not None:
            return found
    return None


# c10/cuda/CUDAFunctions.cpp: of error 35, by what cuDriverGetVersion says. A level of 0: no driver answered at all.
_TOO_OLD = re.compile(
    r"(?:CUDA initialization: )?The NVIDIA driver on your system is too old \(found version (\d{1,6})\)"
)
_NO_DRIVER = re.compile(r"(?:CUDA initialization: )?Found no NVIDIA driver on your system\.")


def driver_level(message: str, line: TextLine) -> StackText | None:
    old = _TOO_OLD.match(message)
    if old:
        return StackText(line, "cuda-error", code=35, version=int(old[1]))
    return StackText(line, "cuda-error", code=35, version=0) if _NO_DRIVER.match(message) else None


def _forked(message: str, line: TextLine) -> StackText | None:
    # torch/cuda/__init__.py, _lazy_init
    return (
        StackText(line, "fork-after-cuda")
        if message.startswith("Cannot re-initialize CUDA in forked subproc")
        else None
    )


# glibc's dl-lookup.c, "undefined symbol: NAME, version VERSION"; the version only where the name had one.
_UNDEFINED = re.compile(
    r"(?P<library>[^:\n'\"][^:\n]{0,1000}): undefined symbol: (?P<symbol>[^\s,]{1,1000})"
    r"(?:, version (?P<version>[^\s,]{1,200}))?"
)
# elf/dl-version.c
_VERSION = re.compile(
    r"(?P<file>[^:\n'\"][^:\n]{0,1000}): version [`'](?P<symbol>[^'\s]{1,100})' not found "
    r"\(required by (?P<library>.{1,1000})\)"
)
# elf/dl-load.c; OSError of ctypes and ImportError of an extension say the same.
_MISSING = re.compile(r"(?P<library>[^:\s'\"][^:\s]{0,1000}): cannot open shared object file: ")


def undefined_symbol(message: str, line: TextLine) -> StackText | None:
    found = _UNDEFINED.match(message)
    if not found:
        return None
    return StackText(
        line, "undefined-symbol", library=found["library"].strip(), symbol=found["symbol"], wanted=found["version"]
    )


def symbol_version(message: str, line: TextLine) -> StackText | None:
    found = _VERSION.match(message)
    if not found:
        return None
    return StackText(line, "symbol-version", library=found["library"], symbol=found["symbol"], file=found["file"])


def library_missing(message: str, line: TextLine) -> StackText | None:
    found = _MISSING.match(message)
    return StackText(line, "library-missing", library=found["library"]) if found else None


# torch/backends/cudnn/__init__.py: "linked against" before torch 1.13; the two blanks are its own.
_CUDNN_VERSIONS = re.compile(
    r"cuDNN version incompatibility: PyTorch was compiled {1,2}against \((\d{1,3}(?:, \d{1,5}){1,2})\)"
    r" but (?:linked against|found runtime version) \((\d{1,3}(?:, \d{1,5}){1,2})\)"
)
_CUDNN_STATUS = re.compile(
    r"(?:cuDNN error|CUDNN_BACKEND.{0,200}?|cuDNN Frontend error.{0,200}?): (CUDNN_STATUS_\w{1,60})"
)
_MIXED_STATUS = ("CUDNN_STATUS_SUBLIBRARY_", "CUDNN_STATUS_VERSION_MISMATCH")


def _cudnn(message: str, line: TextLine) -> StackText | None:
    versions = _CUDNN_VERSIONS.match(message)
    if versions:
        wanted, have = (one.replace(", ", ".") for one in versions.groups())
        return StackText(line, "cudnn-versions", library="libcudnn", wanted=wanted, found=have)
    status = _CUDNN_STATUS.match(message)
    if not status:
        return None
    # A status alone says little: NOT_INITIALIZED also comes of memory that ran out.
    kind = "cudnn-parts" if status[1].startswith(_MIXED_STATUS) else "cudnn-status"
    return StackText(line, kind, library="libcudnn", symbol=status[1])


# torchvision/extension.py, torchaudio/_extension/utils.py
_COMPANION = re.compile(
    r"Detected that PyTorch and (\w{5,12}) were compiled with different CUDA (?:major )?versions\. +"
    r"PyTorch has CUDA [Vv]ersion[ =]{1,2}([\d.]{1,10}) (?:and|whereas) "
    r"\w{5,12} has CUDA [Vv]ersion[ =]{1,2}([\d.]{1,10}?)\.?(?: |$)"
)
_NO_OPERATOR = re.compile(
    r"(?:operator|No such operator|Couldn't load custom C\+\+ ops\. This can happen if your PyTorch and)"
    r" (torchvision|torchaudio)(?:::\w{1,60}(?: does not exist)?$| versions are incompatible)"
)


def _companion(message: str, line: TextLine) -> StackText | None:
    found = _COMPANION.match(message)
    if found:
        return StackText(
            line, "built-for", library=found[1].lower(), wanted=f"CUDA {found[3]}", found=f"CUDA {found[2]}"
        )
    # The extension with the operator was not loaded: as a rule it could not be, being built for another torch.
    missing = _NO_OPERATOR.match(message)
    return StackText(line, "built-for", library=missing[1]) if missing else None


# nvmlErrorString, and nvidia-ml-py's own word for the same number.
_NVML_MISMATCH = ("driver/library version mismatch", "rm has detected an nvml/rm version mismatch")


def nvml_mismatch(message: str, line: TextLine) -> StackText | None:
    text = message.removeprefix("Failed to initialize NVML: ").lower()
    return StackText(line, "driver-versions") if text.startswith(_NVML_MISMATCH) else None


# torch before and after 1.8: "Unexpected error from cudaGetDeviceCount(). Did you run ...? Error 804: ..."
_COUNT = re.compile(
    r"(?:CUDA initialization: )?Unexpected error from cudaGetDeviceCount\(\)\..{0,300}?Error (\d{1,4}): "
)
# numba: "[222] Call to cuLinkAddData results in CUDA_ERROR_...", "Error at driver init: Call to cuInit results in ..."
_CALL = re.compile(r".{0,200}?Call to cu\w{1,60} results in (\w{1,80})")
# onnxruntime's CudaCall; the form goes on behind the text.
_ORT = re.compile(r".{0,1500}?\bCUDA failure (\d{1,4}): [^;]{1,200}; GPU=-?\d")


def cuda_error(message: str, line: TextLine) -> StackText | None:
    texts, names, pattern = error_texts()
    count = _COUNT.match(message)
    if count:
        code = int(count[1])
        return StackText(line, "cuda-error", code=code) if code in texts else None
    call = _CALL.match(message)
    if call:
        return StackText(line, "cuda-error", code=names[call[1]]) if call[1] in names else None
    ort = _ORT.match(message)
    if ort and int(ort[1]) in texts:
        return StackText(line, "cuda-error", code=int(ort[1]))
    found = pattern.match(message)
    if not found:
        return None
    code = _code(found["what"])
    if code in _GENERAL and "cuda" not in found["before"].lower():
        return None
    return StackText(line, "cuda-error", code=code)


@cache
def error_texts() -> tuple[dict[int, str], dict[str, int], re.Pattern[str]]:
    """(texts by code, codes by name, the pattern of a message that is one: "CUDA error: TEXT", "cudaErrorX: TEXT")."""
    texts = {error.code: error.text.rstrip(".") for error in cuda_errors() if error.text}
    names = dict(_DRIVER_NAMES)
    names.update({error.name: error.code for error in cuda_errors()})
    words = sorted([*names, *texts.values()], key=len, reverse=True)
    what = "|".join(re.escape(word) for word in words)
    # Before it stand at most three phrases that end in a colon; a quotation is none.
    return (
        texts,
        names,
        re.compile(
            rf"(?P<before>(?:[\w.\[\]()#/ -]{{1,100}}: ?){{0,3}}(?:CUDA failed with error )?)(?P<what>{what})(?![\w])"
        ),
    )


def _code(what: str) -> int:
    texts, names, _ = error_texts()
    return names[what] if what in names else next(code for code, text in texts.items() if text == what)


# --- NCCL's watchdog --------------------------------------------------------------------------------------------------

_TIMEOUT = re.compile(
    r".{0,300}?Watchdog caught collective operation timeout: WorkNCCL\((?P<work>[^)]{0,200}(?:\(ms\)=\d{1,12})?)"
)
_OPERATION = re.compile(r"OpType=(\w{1,60})")
_MILLISECONDS = re.compile(r"Timeout\(ms\)=(\d{1,12})")
_SEQUENCE = re.compile(r"SeqNum=(\d{1,18})")
# "Exception (either an error or timeout) detected by watchdog at work: 5, last enqueued NCCL work: 8, last completed
# NCCL work: 4."; "Timeout at NCCL work: 5, ..." in 2.3.
_PROGRESS = re.compile(
    r"(?:Exception \(either an error or timeout\) detected by watchdog at work|Timeout at NCCL work): (\d{1,18}), "
    r"last enqueued NCCL work: (-?\d{1,18}), last completed NCCL work: (-?\d{1,18})"
)
_GROUP = re.compile(r"PG (?:ID \d{1,9} PG GUID|GUID) (\S{1,80}) Rank")
_RANK = re.compile(r"\bRank (\d{1,7})(?:\]|$)")


def watchdog_timeout(said: str, line: TextLine) -> StackText | None:
    found = _TIMEOUT.match(said)
    if not found:
        return None
    operation = _OPERATION.search(found["work"])
    limit = _MILLISECONDS.search(said, found.start("work"))
    return StackText(
        line,
        "nccl-watchdog",
        symbol=operation[1] if operation else None,
        seconds=int(limit[1]) / 1000 if limit else None,
        sequence=int(number[1]) if (number := _SEQUENCE.search(found["work"])) else None,
    )


def watchdog_progress(said: str, who: str, line: TextLine) -> StackText | None:
    """who: the writer, as ProcessGroupNCCL calls it: "PG ID 0 PG GUID 0(default_pg) Rank 1"."""
    found = _PROGRESS.match(said)
    if not found:
        return None
    group = _GROUP.search(who)
    sequence, enqueued, completed = (int(number) for number in found.groups())
    name = group[1] if group else None
    return StackText(line, "nccl-progress", symbol=name, sequence=sequence, enqueued=enqueued, completed=completed)


def rank_in(text: str) -> int | None:
    found = _RANK.search(text[:400])
    return int(found[1]) if found else None
