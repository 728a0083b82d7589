"""Exceptions as real libraries raise them, and what they are about.

Each was provoked (torch 2.13 for the CPU, numpy 2.4, safetensors 0.8, h5py 3.16, datasets 5.2, transformers 5, Python
3.11), or is from the public report that stands beside it. Fields: type, message, file of the innermost frame, cause;
errno and filename where the process's own record holds them.
"""

from __future__ import annotations

from typing import NamedTuple

PACKAGES = "/home/user/venv/lib/python3.11/site-packages"
OWN = "/home/user/job/train.py"


class Text(NamedTuple):
    type: str
    message: str
    file: str
    cause: str
    errno: int | None = None
    filename: str | None = None
    bases: tuple[str, ...] = ()


TEXTS = [
    # --- torch, provoked
    Text(
        "RuntimeError",
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4000000000000000 bytes. Error code 12 (Cannot allocate memory)",
        OWN,
        "host-memory-error",
    ),
    Text(
        "RuntimeError",
        "Tensor on device meta is not on the expected device cpu!",
        f"{PACKAGES}/torch/_prims_common/__init__.py",
        "device-mismatch",
    ),
    Text("RuntimeError", "ZeroDivisionError", OWN, "division-by-zero"),
    Text(
        "RuntimeError",
        "Function 'SqrtBackward0' returned nan values in its 0th output.",
        f"{PACKAGES}/torch/autograd/graph.py",
        "loss-nan",
    ),
    Text(
        "AssertionError",
        "Torch not compiled with CUDA enabled",
        f"{PACKAGES}/torch/cuda/__init__.py",
        "assertion-failed",
    ),
    Text(
        "RuntimeError",
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)",
        OWN,
        "python-exception",
    ),
    Text("IndexError", "index out of range in self", f"{PACKAGES}/torch/nn/functional.py", "python-exception"),
    Text("IndexError", "Target 5 is out of bounds.", f"{PACKAGES}/torch/nn/functional.py", "python-exception"),
    Text(
        "RuntimeError",
        "expected m1 and m2 to have the same dtype, but got: float != c10::Half",
        OWN,
        "python-exception",
    ),
    Text(
        "RuntimeError",
        'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "weight", "bias". ',
        f"{PACKAGES}/torch/nn/modules/module.py",
        "python-exception",
    ),
    Text(
        "RuntimeError",
        "PytorchStreamReader failed reading zip archive: failed finding central directory. This is an internal miniz "
        "error. If you are seeing this error, there is a high likelihood that your checkpoint file is corrupted.",
        f"{PACKAGES}/torch/serialization.py",
        "python-exception",
    ),
    Text(
        "FileNotFoundError",
        "[Errno 2] No such file or directory: '/data/ckpt.pt'",
        f"{PACKAGES}/torch/serialization.py",
        "file-not-found",
        2,
        "/data/ckpt.pt",
    ),
    # --- numpy, provoked
    Text(
        "numpy._core._exceptions._ArrayMemoryError",
        "Unable to allocate 72.8 TiB for an array with shape (1000000, 10000000) and data type float64",
        OWN,
        "host-memory-error",
        bases=("MemoryError", "Exception"),
    ),
    Text("FloatingPointError", "divide by zero encountered in divide", OWN, "division-by-zero"),
    Text("FloatingPointError", "invalid value encountered in divide", OWN, "python-exception"),
    Text("OSError", "[Errno 28] No space left on device", f"{PACKAGES}/numpy/lib/_npyio_impl.py", "disk-full", 28),
    # --- Python itself, provoked
    Text("MemoryError", "", OWN, "host-memory-error"),
    Text("ZeroDivisionError", "division by zero", OWN, "division-by-zero"),
    Text("ZeroDivisionError", "float division by zero", OWN, "division-by-zero"),
    Text("AssertionError", "batch size 7 must be divisible by 2", OWN, "assertion-failed"),
    Text("OSError", "[Errno 28] No space left on device", OWN, "disk-full", 28),
    Text("OSError", "[Errno 122] Disk quota exceeded: '/home/user/out/ckpt.pt'", OWN, "disk-full", 122, "/home/x"),
    Text("OSError", "[Errno 28] No space left on device: '/dev/shm/batch'", OWN, "shm-exhausted", 28, "/dev/shm/batch"),
    Text("OSError", "[Errno 116] Stale file handle: '/nfs/out/ckpt.pt'", OWN, "storage-error", 116, "/nfs/out/ckpt.pt"),
    Text("OSError", "[Errno 5] Input/output error: '/mnt/data/shard-7'", OWN, "storage-error", 5, "/mnt/data/shard-7"),
    Text("OSError", "[Errno 121] Remote I/O error", OWN, "storage-error", 121),
    Text(
        "OSError",
        "[Errno 107] Transport endpoint is not connected: '/mnt/bucket'",
        OWN,
        "storage-error",
        107,
        "/mnt/bucket",
    ),
    Text("OSError", "[Errno 107] Transport endpoint is not connected", OWN, "python-exception", 107),
    Text("OSError", "[Errno 30] Read-only file system: '/data/out'", OWN, "permission-denied", 30, "/data/out"),
    Text("OSError", "[Errno 12] Cannot allocate memory", "/usr/lib/python3.11/subprocess.py", "host-memory-error", 12),
    Text("OSError", "[Errno 24] Too many open files: '/data/x'", OWN, "python-exception", 24, "/data/x"),
    Text(
        "PermissionError", "[Errno 13] Permission denied: '/root/.cache'", OWN, "permission-denied", 13, "/root/.cache"
    ),
    Text("PermissionError", "[Errno 1] Operation not permitted: '/data'", OWN, "permission-denied", 1, "/data"),
    Text(
        "FileNotFoundError", "[Errno 2] No such file or directory: 'data.json'", OWN, "file-not-found", 2, "data.json"
    ),
    Text(
        "FileNotFoundError",
        "[Errno 2] No such file or directory: 'nvcc_none'",
        "/usr/lib/python3.11/subprocess.py",
        "file-not-found",
        2,
        "nvcc_none",
    ),
    Text("IsADirectoryError", "[Errno 21] Is a directory: '/tmp'", OWN, "python-exception", 21, "/tmp"),
    Text("ModuleNotFoundError", "No module named 'flash_attn'", OWN, "missing-module"),
    Text(
        "ImportError",
        "cannot import name 'doesnotexist' from 'torch' (/home/user/venv/lib/python3.11/site-packages/torch/"
        "__init__.py)",
        OWN,
        "missing-module",
    ),
    Text("AttributeError", "'NoneType' object has no attribute 'x'", OWN, "python-exception"),
    Text("RecursionError", "maximum recursion depth exceeded", OWN, "python-exception"),
    Text("KeyError", "'loss_nan'", OWN, "python-exception"),
    Text("ValueError", "could not convert string to float: 'nan loss'", OWN, "python-exception"),
    Text("ValueError", "cannot convert float NaN to integer", OWN, "python-exception"),
    Text("ValueError", "no column 'loss' in /data/inf/table.csv", OWN, "python-exception"),
    # --- files by other libraries, provoked
    Text(
        "safetensors._safetensors_rust.SafetensorError",
        "Error while serializing: I/O error: No space left on device (os error 28)",
        f"{PACKAGES}/safetensors/torch.py",
        "disk-full",
    ),
    Text(
        "safetensors._safetensors_rust.SafetensorError",
        "Error while deserializing header: header too large",
        f"{PACKAGES}/safetensors/torch.py",
        "python-exception",
    ),
    Text(
        "FileNotFoundError",
        "No such file or directory: /data/none.safetensors",
        f"{PACKAGES}/safetensors/torch.py",
        "file-not-found",
    ),
    Text(
        "OSError",
        "[Errno 28] Unable to synchronously create file (file write failed: time = Mon Nov 30 03:56:35 2026\n, "
        "filename = 'full/x.h5', file descriptor = 3, errno = 28, error message = 'No space left on device')",
        "h5py/h5f.pyx",
        "disk-full",
        28,
    ),
    Text(
        "pyarrow.lib.ArrowMemoryError",
        "malloc of size 100000000000000000 failed",
        "pyarrow/error.pxi",
        "host-memory-error",
    ),
    Text(
        "FileNotFoundError", "Unable to find '/data/none.json'", f"{PACKAGES}/datasets/data_files.py", "file-not-found"
    ),
    Text(
        "OSError",
        "We couldn't connect to the hub to load the files, and couldn't find them in the cached files.\nCheck your "
        "internet connection",
        f"{PACKAGES}/transformers/utils/hub.py",
        "python-exception",
    ),
    Text(
        "ValueError",
        "Unrecognized model in /data/model. Should have a `model_type` key in its config.json.",
        f"{PACKAGES}/transformers/models/auto/configuration_auto.py",
        "python-exception",
    ),
    # --- GPUs, from public reports
    Text(  # murong-xu/CADS#4
        "torch.OutOfMemoryError",
        "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 GiB "
        "is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated memory 9.08 "
        "GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated.",
        f"{PACKAGES}/torch/nn/functional.py",
        "cuda-out-of-memory",
    ),
    Text(  # jhc13/taggui#188
        "torch.cuda.OutOfMemoryError",
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 2.35 GiB is "
        "free.",
        OWN,
        "cuda-out-of-memory",
    ),
    Text(
        "RuntimeError",
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total)",
        OWN,
        "cuda-out-of-memory",
    ),
    Text("RuntimeError", "CUDA error: out of memory", OWN, "cuda-out-of-memory"),
    Text(  # EleutherAI/lm-evaluation-harness#2293
        "RuntimeError",
        "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some other "
        "API call, so the stacktrace below might be incorrect.",
        OWN,
        "cuda-device-assert",
    ),
    Text(
        "torch.AcceleratorError",
        "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress' in the CUDA "
        "documentation",
        OWN,
        "cuda-error",
    ),
    Text(
        "RuntimeError",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        f"{PACKAGES}/torch/nn/modules/linear.py",
        "cuda-error",
    ),
    Text("RuntimeError", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", OWN, "cuda-error"),
    Text(  # coqui-ai/TTS#1979
        "RuntimeError",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (when checking "
        "argument for argument mat1 in method wrapper_CUDA_addmm)",
        f"{PACKAGES}/torch/nn/modules/linear.py",
        "device-mismatch",
    ),
    Text(
        "RuntimeError",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
        f"{PACKAGES}/torch/nn/modules/conv.py",
        "device-mismatch",
    ),
    Text(  # Peterande/D-FINE#289
        "torch.distributed.DistBackendError",
        "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, invalid usage (run with "
        "NCCL_DEBUG=WARN for details), NCCL version 2.19.3\nncclInvalidUsage: This usually reflects invalid usage of "
        "NCCL library.\nLast error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000",
        f"{PACKAGES}/torch/distributed/distributed_c10d.py",
        "nccl-error",
    ),
    Text(
        "torch.distributed.DistBackendError",
        "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled system error (run with "
        "NCCL_DEBUG=INFO for details), NCCL version 2.20.5\nncclSystemError: System call (e.g. socket, malloc) or "
        "external library call failed or device error. \nLast error:\nError while creating shared memory segment "
        "/dev/shm/nccl-4aX2 (size 9637888)",
        f"{PACKAGES}/torch/distributed/distributed_c10d.py",
        "shm-exhausted",
    ),
    # --- shared memory and disks, from public reports
    Text(
        "RuntimeError",
        "unable to allocate shared memory(shm) for file </torch_4711_1234567_0>: No space left on device (28)",
        f"{PACKAGES}/torch/storage.py",
        "shm-exhausted",
    ),
    Text(  # idiap/ESLAM#20
        "RuntimeError",
        "unable to write to file </torch_31911_952036340_6686>: No space left on device (28)",
        f"{PACKAGES}/torch/multiprocessing/reductions.py",
        "shm-exhausted",
    ),
    # --- losses, from public reports
    Text("RuntimeError", "loss is NaN at step 5", OWN, "loss-nan"),
    Text("ValueError", "Loss is nan, stopping training", OWN, "loss-nan"),
    Text("AssertionError", "non-finite loss: inf", OWN, "loss-nan"),
    Text(  # facebookresearch/detectron2#214
        "FloatingPointError",
        "Loss became infinite or NaN at iteration=166!\nloss_dict = {'loss_cls_ce': nan}",
        f"{PACKAGES}/detectron2/engine/train_loop.py",
        "loss-nan",
    ),
    Text(
        "Exception",
        "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        f"{PACKAGES}/deepspeed/runtime/fp16/loss_scaler.py",
        "loss-nan",
    ),
]
