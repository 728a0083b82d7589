"""CUDA error numbers that speak about the installation, and the cause behind each."""

from __future__ import annotations

import msgspec


class CudaError(msgspec.Struct, frozen=True):
    """code: cudaError_t and CUresult share it; name: "cudaErrorInsufficientDriver"; text: what cudaGetErrorString says;
    cause: id of the cause that it stands for."""

    code: int
    name: str
    text: str
    cause: str
    source: str


def cuda_errors() -> tuple[CudaError, ...]:
    raise NotImplementedError


def cuda_error(code: int) -> CudaError | None:
    raise NotImplementedError
