"""What a shared library's file name says: which library it is, and sometimes its version.

Repaired wheels carry renamed private copies, `libcudnn-74a4c495.so.9.1.0` in ctranslate2.libs, `libgomp-a34b3233.so.1`
in scikit_learn.libs (auditwheel puts eight hex digits of the content's hash behind the stem): same library, other name.
"""

from __future__ import annotations

import re

_CUDA_STEMS = (
    r"cuda|cudart|cublas|cublasLt|cudnn(?:_[a-z_]+)?|nccl|nccl-net|nvJitLink|nvrtc|nvrtc-builtins"
    r"|cufft|cufftw|curand|cusolver|cusolverMg|cusparse|cusparseLt|cufile|cupti|nvToolsExt|nvshmem_host"
    r"|nvidia-ml|nvidia-ptxjitcompiler|nvidia-nvvm"
)
_STEMS = (
    rf"{_CUDA_STEMS}"
    r"|torch(?:_[a-z_]+)?|c10(?:_[a-z_]+)?|shm"
    r"|gomp|omp|iomp5|stdc\+\+"
    r"|tbb(?:malloc)?(?:_proxy)?|tbbbind(?:_[0-9_]+)?|mkl_[a-z0-9_]+"
    r"|onnxruntime(?:_[a-z_]+)?|decord|tensorflow_(?:framework|cc)|arrow(?:_[a-z_]+)?|protobuf"
    r"|nvinfer(?:_[a-z_]+)?|opencv_[a-z0-9]+"
)
_KNOWN = re.compile(rf"^(lib(?:{_STEMS}))(?:-[0-9a-f]{{8}})?\.so(?:\.([0-9.]+))?$")
_EXTENSION = re.compile(r"\.(?:cpython-\d+[a-z]*(?:-[\w.-]+)?|abi3)\.so$")
# Bindings that carry the name of a library.
_BINDINGS = re.compile(r"^lib(?:torchvision|torchaudio|torchtext|bitsandbytes)[a-z0-9_]*\.so$")
_CUDA = re.compile(rf"lib(?:{_CUDA_STEMS})")
_DRIVER = frozenset(("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm"))
_TORCH = re.compile(r"^lib(?:torch|c10)(?:_|$)|^libshm$")
# NVIDIA's packages make /usr/local/cuda-12.8/compat, conda's cuda-compat PREFIX/cuda-compat. Not /opt/compatible.
_COMPAT = re.compile(r"/(?:cuda-)?compat(?:-[\d.-]+)?/")


def kind_of(path: str) -> str | None:
    """The library's stem ("libcudnn_ops", "libc10"), "extension" for a Python extension module, None for the rest.

    The standard library's own modules (lib-dynload) are not extensions in this sense: they belong to the interpreter.
    """
    folder, _, name = path.rpartition("/")
    known = _KNOWN.match(name)
    if known:
        return known[1]
    if folder.endswith("/lib-dynload") or ".so" not in name:
        return None
    if _EXTENSION.search(name) or "/torch_extensions/" in path:
        return "extension"
    in_packages = "/site-packages/" in path or "/dist-packages/" in path
    if not in_packages or not name.endswith(".so"):
        return None
    return "extension" if not name.startswith("lib") or _BINDINGS.match(name) else None


def version_of(path: str) -> str | None:
    """The version behind `.so.` when it says more than the SONAME's major: "libcudart.so.12.8.90" -> "12.8.90",
    "libcudart.so.12" -> None."""
    known = _KNOWN.match(path.rpartition("/")[2])
    version = known[2] if known else None
    return version if version and "." in version else None


def is_cuda(kind: str) -> bool:
    """Is this one of CUDA's own libraries, or of the driver's?"""
    return _CUDA.fullmatch(kind) is not None


def is_driver(kind: str) -> bool:
    """Does this library come with the driver, and must be of its version?"""
    return kind in _DRIVER


def is_torch(kind: str) -> bool:
    """Is this one of torch's own libraries?"""
    return _TORCH.match(kind) is not None


def is_compat(path: str) -> bool:
    """In a folder of a forward-compatibility package, which brings the user-space half of a newer driver."""
    return _COMPAT.search(path) is not None


def is_stub(path: str) -> bool:
    """In the toolkit's folder of libraries that can be linked with and do nothing."""
    return "/stubs/" in path
