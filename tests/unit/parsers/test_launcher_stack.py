"""What a job's log says about drivers and libraries: who says it, in which form, and what is only quoted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conditions import needs_torch
from ftforensics.model.launcher import StackText, TextLine
from ftforensics.parsers.launcher import read_launcher_log
from ftforensics.parsers.launcher_stack import StackReader

NOWHERE = TextLine("", 0)


def texts(log: str | bytes) -> list[StackText]:
    events = read_launcher_log(log.encode() if isinstance(log, str) else log).events
    return [event for event in events if isinstance(event, StackText)]


def said(log: str | bytes) -> list[StackText]:
    """Without the line, so that they can be compared."""
    return [msgspec.structs.replace(text, line=NOWHERE) for text in texts(log)]


def raised(message: str, kind: str = "RuntimeError", label: str = "") -> str:
    lines = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "    main()"]
    return "".join(f"{label}{line}\n" for line in [*lines, f"{kind}: {message}"])


def text(kind: str, **fields: object) -> StackText:
    return msgspec.convert({"line": {"text": "", "number": 0}, "kind": kind, **fields}, StackText)


KERNEL = "no kernel image is available for execution on the device"
TOO_OLD = "The NVIDIA driver on your system is too old (found version 12010). Please update your GPU driver"


@pytest.mark.parametrize(
    ("message", "code", "version"),
    [
        ("CUDA error: " + KERNEL, 209, None),
        (TOO_OLD, 35, 12010),
        ("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", 35, 0),
        (
            "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
            "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / "
            "cuda driver combination",
            803,
            None,
        ),
        ("CUDA error: CUDA driver is a stub library", 34, None),
        ("CUDA error: API call is not supported in the installed CUDA driver", 36, None),
        ("CUDA error: PTX JIT compiler library not found", 221, None),
        ("Triton Error [CUDA]: the provided PTX was compiled with an unsupported toolchain.", 222, None),
        ("CUDA error: system not yet initialized", 802, None),
        ("CUDA error: initialization error", 3, None),
        ("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version", 35, None),
        ("CUDA failed with error CUDA driver version is insufficient for CUDA runtime version", 35, None),
        (
            "cuda runtime error (35) : CUDA driver version is insufficient for CUDA runtime version at x.cpp:70",
            35,
            None,
        ),
        ("[222] Call to cuLinkAddData results in CUDA_ERROR_UNSUPPORTED_PTX_VERSION", 222, None),
        ("Error at driver init: Call to cuInit results in CUDA_ERROR_STUB_LIBRARY (34)", 34, None),
        (
            "/src/cuda_call.cc:114 CudaCall CUDA failure 35: CUDA driver version is insufficient for CUDA runtime "
            "version ; GPU=-1 ; hostname=c4 ; file=x.cc",
            35,
            None,
        ),
    ],
)
def test_cuda_errors_of_exceptions(message: str, code: int, version: int | None) -> None:
    assert said(raised(message)) == [text("cuda-error", code=code, version=version, form="exception")]


@pytest.mark.parametrize(
    "message",
    [
        "database: initialization error",
        "'a.so: undefined symbol: _ZN3c104cuda9SetDeviceEi'",  # somebody's string, as KeyError shows it
        '"libcuda.so.1: cannot open shared object file: No such file"',
        "unknown error",
        "the last run failed with 'CUDA error: " + KERNEL + "'",
        "CUDA error: device-side assert triggered",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "NCCL error in: ProcessGroupNCCL.cpp:1, unhandled cuda error, NCCL version 2.27.5",
    ],
)
def test_other_exceptions_say_nothing_about_the_stack(message: str) -> None:
    assert said(raised(message)) == []


def test_the_rank_is_that_of_the_label() -> None:
    log = raised(TOO_OLD, label="[rank3]: ") + raised("CUDA error: " + KERNEL, label="[rank1]: ")
    assert [(one.rank, one.code) for one in texts(log)] == [(3, 35), (1, 209)]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("\nThe NVIDIA driver on your system is too old (found version 9000).", {"code": 35, "version": 9000}),
        ("Error at driver init: \nCall to cuInit results in CUDA_ERROR_STUB_LIBRARY (34):", {"code": 34}),
        (
            "CUDA call failed lazily at initialization with error: The NVIDIA driver on your system is too old "
            "(found version 11040). Please update",
            {"code": 35, "version": 11040},
        ),
    ],
)
def test_what_an_exception_says_behind_a_colon(message: str, expected: dict[str, int]) -> None:
    (one,) = texts(raised(message))
    assert one == text("cuda-error", form="exception", **expected, line=one.line)
    assert message.split("\n")[-1] in one.line.text


def test_of_an_uncaught_cxx_exception() -> None:
    log = "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: initialization error\n"
    assert said(log) == [text("cuda-error", code=3, form="what")]


def test_a_warning_of_torch() -> None:
    log = (
        "/venv/lib/python3.11/site-packages/torch/cuda/__init__.py:174: UserWarning: CUDA initialization: The NVIDIA "
        "driver on your system is too old (found version 11040). Please update your GPU driver by downloading and "
        "installing a new version (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:109.)\n"
        "  return torch._C._cuda_getDeviceCount() > 0\n"
    )
    assert said(log) == [text("cuda-error", code=35, version=11040, form="warning")]


def test_the_warning_about_a_gpu_that_the_build_does_not_know() -> None:
    log = (
        "/venv/torch/cuda/__init__.py:230: UserWarning: \n"
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.\n"
    )
    assert said(log) == [text("cuda-error", code=209, symbol="sm_120", form="warning")]


def found_gpu(level: str, supported: str) -> str:
    return (
        "/venv/torch/cuda/__init__.py:284: UserWarning: \n"
        f"    Found GPU0 NVIDIA TITAN V which is of cuda capability {level}.\n"
        "    Minimum and Maximum cuda capability supported by this version of PyTorch is\n"
        f"    {supported}\n"
    )


def test_a_gpu_below_the_lowest_listed_is_too_old_and_one_above_the_highest_is_not() -> None:
    assert said(found_gpu("7.0", "(7.5) - (12.0)")) == [text("cuda-error", code=209, symbol="sm_70", form="warning")]
    assert said(found_gpu("12.1", "(8.0) - (12.0)")) == []
    assert said(found_gpu("7.0", "epoch 3")) == []


WARN = """
import sys, torch, torch.cuda as c
c.get_device_name = lambda index: "NVIDIA GPU X"
torch.version.cuda, c.device_count, c.get_arch_list = "12.8", lambda: 1, lambda: ["sm_75", "sm_90"]
c.get_device_capability = lambda index: (12, 0)
for warn in (
    lambda: c._warn_unsupported_code(0, 70, [75, 80, 86, 90]),
    lambda: c._warn_unsupported_code(0, 50, [75]),
    lambda: c._warn_unsupported_code(0, 121, [80, 90, 120]),
    lambda: c._check_cubins(),
):
    warn()
    print("NEXT", file=sys.stderr)
"""


@needs_torch
def test_the_warnings_of_the_torch_that_is_installed() -> None:
    done = subprocess.run([sys.executable, "-c", WARN], capture_output=True, check=True)
    first, second, third, fourth = (said(one) for one in done.stderr.split(b"NEXT\n")[:4])
    assert first == [text("cuda-error", code=209, symbol="sm_70", form="warning")]
    assert second == [text("cuda-error", code=209, symbol="sm_50", form="warning")]
    assert third == []  # it runs what was built for 12.0
    assert fourth == [text("cuda-error", code=209, symbol="sm_120", form="warning")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "node1:4242:4250 [3] misc/cudawrap.cc:182 NCCL WARN Cuda failure 35 'CUDA driver version is insufficient "
            "for CUDA runtime version'",
            text("cuda-error", code=35, pid=4242, form="line"),
        ),
        (
            "node1:4242:4250 [32523] misc/cudawrap.cc:182 NCCL WARN Cuda failure 'system not yet initialized'",
            text("cuda-error", code=802, pid=4242, form="line"),
        ),
        ("CUDA error 222 [k.cu, 12]: the provided PTX was compiled with an unsupported toolchain.",
         text("cuda-error", code=222, form="line")),
        (
            "2025-11-29 10:00:00.123456: E external/xla/cuda_driver.cc:265] failed call to cuInit: "
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: forward compatibility was attempted on non supported HW",
            text("cuda-error", code=804, form="line"),
        ),
        (
            "python: symbol lookup error: /opt/lib/libcudnn_cnn_train.so.8: undefined symbol: _ZN5cudnn3cnn1aE, "
            "version libcudnn_cnn_infer.so.8",
            text("undefined-symbol", library="/opt/lib/libcudnn_cnn_train.so.8", symbol="_ZN5cudnn3cnn1aE",
                 wanted="libcudnn_cnn_infer.so.8", form="line"),
        ),
        (
            "python: error while loading shared libraries: libcudart.so.11.0: cannot open shared object file: No such "
            "file or directory",
            text("library-missing", library="libcudart.so.11.0", form="line"),
        ),
        (
            "python: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /v/x.so)",
            text("symbol-version", library="/v/x.so", symbol="GLIBCXX_3.4.32",
                 file="/lib/x86_64-linux-gnu/libstdc++.so.6", form="line"),
        ),
        (
            "Could not load library libcudnn_cnn_train.so.8. Error: /usr/local/cuda/lib64/libcudnn_cnn_train.so.8: "
            "undefined symbol: _ZN5cudnn3cnnE, version libcudnn_cnn_infer.so.8",
            text("cudnn-parts", library="libcudnn_cnn_train.so.8", file="/usr/local/cuda/lib64/libcudnn_cnn_train.so.8",
                 symbol="_ZN5cudnn3cnnE", wanted="libcudnn_cnn_infer.so.8", form="line"),
        ),
        (
            "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: cannot open shared object "
            "file: No such file or directory",
            text("cudnn-parts", library="libcudnn_ops_infer.so.8", form="line"),
        ),
        (
            "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, libcudnn_ops.so}",
            text("cudnn-parts", library="libcudnn_ops.so.9.1.0", form="line"),
        ),
        (
            "Invalid handle. Cannot load symbol cudnnCreateTensorDescriptor",
            text("cudnn-parts", symbol="cudnnCreateTensorDescriptor", form="line"),
        ),
        (
            "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized.",
            text("openmp-twice", library="libiomp5.so", file="libomp.so", form="line"),
        ),
        (
            "Error: mkl-service + Intel(R) MKL: MKL_THREADING_LAYER=INTEL is incompatible with libgomp-a34b3233.so.1 "
            "library.",
            text("openmp-twice", library="libiomp5", file="libgomp-a34b3233.so.1", symbol="MKL_THREADING_LAYER=INTEL",
                 form="line"),
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", text("driver-versions", form="line")),
    ],
)  # fmt: skip
def test_lines_that_a_library_writes_itself(line: str, expected: StackText) -> None:
    assert said(f"step 4\n{line}\nstep 5\n") == [expected]
    assert said(f"2026-11-29 10:00:00 INFO trainer: the last attempt printed '{line}' and died\n") == []
    assert said(f"[rank2]: {line}\n") == [msgspec.structs.replace(expected, rank=2)]


def test_nvidia_smis_second_line() -> None:
    log = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n"
    assert said(log) == [text("driver-versions", found="550.144", form="line")]


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        (
            "ImportError",
            "/v/flash_attn_2_cuda.cpython-310-x86_64.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs",
            text("undefined-symbol", library="/v/flash_attn_2_cuda.cpython-310-x86_64.so",
                 symbol="_ZN3c105ErrorC2ENS_14SourceLocationESs", form="exception"),
        ),
        (
            "ImportError",
            "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /e/scipy/a b.so)",
            text("symbol-version", library="/e/scipy/a b.so", symbol="GLIBCXX_3.4.29",
                 file="/lib/x86_64-linux-gnu/libstdc++.so.6", form="exception"),
        ),
        (
            "OSError", "libcusparse.so.12: cannot open shared object file: No such file or directory",
            text("library-missing", library="libcusparse.so.12", form="exception"),
        ),
        (
            "RuntimeError",
            "cuDNN version incompatibility: PyTorch was compiled  against (8, 3, 2) but linked against (8, 0, 3)",
            text("cudnn-versions", library="libcudnn", wanted="8.3.2", found="8.0.3", form="exception"),
        ),
        (
            "RuntimeError",
            "cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found runtime version "
            "(8, 9, 7). PyTorch already comes bundled with cuDNN.",
            text("cudnn-versions", library="libcudnn", wanted="9.1.0", found="8.9.7", form="exception"),
        ),
        (
            "RuntimeError", "cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
            text("cudnn-parts", library="libcudnn", symbol="CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
                 form="exception"),
        ),
        (
            "RuntimeError", "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
            text("cudnn-status", library="libcudnn", symbol="CUDNN_STATUS_NOT_INITIALIZED", form="exception"),
        ),
        (
            "RuntimeError",
            "Detected that PyTorch and torchvision were compiled with different CUDA major versions. PyTorch has CUDA "
            "Version=12.1 and torchvision has CUDA Version=11.8. Please reinstall the torchvision that matches your "
            "PyTorch install.",
            text("built-for", library="torchvision", wanted="CUDA 11.8", found="CUDA 12.1", form="exception"),
        ),
        (
            "RuntimeError", "operator torchvision::nms does not exist",
            text("built-for", library="torchvision", form="exception"),
        ),
        (
            "RuntimeError",
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
            "'spawn' start method",
            text("fork-after-cuda", form="exception"),
        ),
        (
            "pynvml.NVMLError_LibRmVersionMismatch", "Driver/library version mismatch",
            text("driver-versions", form="exception"),
        ),
    ],
)  # fmt: skip
def test_exceptions_about_libraries(kind: str, message: str, expected: StackText) -> None:
    assert said(raised(message, kind)) == [expected]
    assert said(f"WARNING: import failed: {kind}: {message}\n") == []


def test_xformers_says_in_the_second_line_what_it_was_built_for() -> None:
    first = "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
    second = "    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.0.1+cu118)\n"
    log = first + second + "    Python  3.10.13 (you have 3.10.9)\n"
    assert said(log) == [text("built-for", library="xformers", wanted="2.1.0+cu121", found="2.0.1+cu118", form="line")]
    assert said(second) == []
    assert said(first + "step\n" * 20 + second) == []


WORK = "WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds"
CAUGHT = f"Watchdog caught collective operation timeout: {WORK} before timing out."


@pytest.mark.parametrize(
    "line",
    [
        f"[E ProcessGroupNCCL.cpp:475] [Rank 1] {CAUGHT}",  # 2.0, 2.1
        f"[rank1]:[E ProcessGroupNCCL.cpp:523] [Rank 1] {CAUGHT}",  # 2.2
        f"[rank1]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 1] {CAUGHT}",  # 2.4
        f"[rank1]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:616] [Rank 1] {CAUGHT}",  # 2.6 to 2.9
        f"Epoch 0:  6%|█     | 32040/500150 [6:28<94:39, 1.37it/s][E ProcessGroupNCCL.cpp:458] [Rank 1] {CAUGHT}",
    ],
)
def test_the_watchdog_of_each_torch(line: str) -> None:
    (one,) = said(line)
    assert one == text("nccl-watchdog", symbol="ALLREDUCE", seconds=600.0, rank=1, form="line", sequence=5)
    assert said(f'INFO notes: the night before it was "{line}"\n') == []


@pytest.mark.parametrize(
    ("said_by", "words"),
    [
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 1]",
            "Exception (either an error or timeout) detected by watchdog at work:",
        ),
        ("[PG 0(default_pg) Rank 1]", "Timeout at NCCL work:"),
    ],
)
def test_how_far_the_watchdog_saw_its_rank_come(said_by: str, words: str) -> None:
    line = (
        f"[rank1]:[E1206 18:44:12.715 ProcessGroupNCCL.cpp:1785] {said_by} {words} 5, last enqueued NCCL work: 8, last "
        "completed NCCL work: 4."
    )
    group = "0(default_pg)" if "GUID" in said_by else None
    assert said(line) == [text("nccl-progress", symbol=group, rank=1, form="line", sequence=5, enqueued=8, completed=4)]
    assert said(f'INFO it said "{line}"') == []


def test_the_watchdogs_exception_and_its_last_words() -> None:
    log = (
        "[rank5]:[E1206 18:44:12.715 ProcessGroupNCCL.cpp:630] [PG ID 2 PG GUID 3 Rank 5] To avoid data inconsistency, "
        "we are taking the entire process down.\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 2 PG GUID 3 Rank 5] Process group watchdog thread terminated with exception: [Rank 5] "
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, "
        "NumelOut=152064, Timeout(ms)=1800000) ran for 1800020 milliseconds before timing out.\n"
    )
    assert said(log) == [
        text("nccl-watchdog", rank=5, form="line"),
        text("nccl-watchdog", symbol="_ALLGATHER_BASE", seconds=1800.0, rank=5, form="what", sequence=9141),
    ]


def test_the_heartbeat_monitors_last_words() -> None:
    # torch 2.6, whose LOG(FATAL) ends the process; the group's name stands twice.
    line = (
        "[rank6]:[F429 14:03:49.385461578 ProcessGroupNCCL.cpp:1554] [PG ID 0 PG GUID 0(default_pg) Rank 6] [PG ID 0 "
        "PG GUID 0(default_pg) Rank 6] Terminating the process after attempting to dump debug info, due to "
        "ProcessGroupNCCL watchdog hang.\n"
    )
    assert said(line) == [text("nccl-watchdog", rank=6, form="line")]


def test_torchvisions_warning_about_its_own_extension() -> None:
    warning = (
        "/env/torchvision/io/image.py:13: UserWarning: Failed to load image Python extension: '{}'If you don't plan on "
        "using image functionality from `torchvision.io`, you can ignore this warning.\n  warn(\n"
    )
    symbol = "_ZN3c1017RegisterOperatorsD1Ev"
    assert said(warning.format(f"/env/torchvision/image.so: undefined symbol: {symbol}")) == [
        text("undefined-symbol", library="/env/torchvision/image.so", symbol=symbol, form="warning")
    ]
    missing = "libtorch_cuda_cu.so: cannot open shared object file: No such file or directory"
    assert said(warning.format(missing)) == [text("library-missing", library="libtorch_cuda_cu.so", form="warning")]


def test_both_words_of_nvml_for_two_versions() -> None:
    for message in ("Driver/library version mismatch", "RM has detected an NVML/RM version mismatch."):
        assert said(raised(message, "pynvml.NVMLError_LibRmVersionMismatch")) == [
            text("driver-versions", form="exception")
        ]


def test_a_peers_loss_is_not_the_watchdogs() -> None:
    assert said(raised(f"[Rank 1] {CAUGHT}", "torch.distributed.DistBackendError")) == []


def test_the_loader_itself(tmp_path: Path) -> None:
    """The wordings above are this machine's own."""
    (tmp_path / "x.c").write_text("void nobody_has_this(void); void call(void) { nobody_has_this(); }")
    library = tmp_path / "x.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "x.c"], check=True)
    code = f"import ctypes; ctypes.CDLL({str(library)!r}, 2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert said(done.stderr) == [
        text("undefined-symbol", library=str(library), symbol="nobody_has_this", form="exception")
    ]
    lazy = subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r}, 1).call()"],
        capture_output=True,
        check=False,
    )
    assert said(lazy.stderr) == [text("undefined-symbol", library=str(library), symbol="nobody_has_this", form="line")]


def test_in_dockers_json() -> None:
    line = "OMP: Error #15: Initializing libiomp5.so, but found libomp.so already initialized."
    wrapped = json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T14:29:05.1Z"})
    assert [one.kind for one in texts(wrapped + "\n")] == ["openmp-twice"]


PIECES = [
    *StackReader.anchors, "CUDA error: ", KERNEL, "what():  ", "Traceback (most recent call last):",
    "  File \"a\", line 1",
    "RuntimeError: ", "[rank1]: ", "[rank0]:[E ProcessGroupNCCL.cpp:1] [Rank 1] ", CAUGHT, ": undefined symbol: ",
    "x.so",
    "(found version 9999999999)", "NVML library version: 5", "Found GPU0 X which is of cuda capability 7.0.",
    " - (12.0)",
    "xFormers was built for:", "\x1b[31m", "\0", "\r", "'", ": " * 40, "(" * 50, "A" * 500, " " * 300,
]  # fmt: skip


@settings(max_examples=300, deadline=2000)
@given(st.lists(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=6), max_size=12))
def test_never_raises_and_every_line_is_an_excerpt(lines: list[list[str]]) -> None:
    log = "\n".join("".join(pieces) for pieces in lines).encode("utf-8", "surrogatepass")
    for one in texts(log):
        assert len(one.line.text) <= 300
        assert one.line.number >= 1


@pytest.mark.parametrize("piece", PIECES)
def test_long_lines_take_no_time(piece: str) -> None:
    log = (piece * 20000)[:65000]
    started = time.process_time()
    for before in ("", "CUDA error", "Cuda failure ", "a.py:1: UserWarning: ", "python: "):
        texts(f"{before}{log}\n{raised(log)}")
    assert time.process_time() - started < 2.0  # 0.15 s were seen
