"""CUDA error numbers that speak about the installation, and the cause behind each."""

from __future__ import annotations

from functools import cache

import msgspec

from ftforensics.facts.tables import Table, read_table


class CudaError(msgspec.Struct, frozen=True):
    """code: cudaError_t and CUresult share it; name: "cudaErrorInsufficientDriver"; text: what cudaGetErrorString says;
    cause: id of the cause that it stands for."""

    code: int
    name: str
    text: str
    cause: str
    source: str


@cache
def cuda_errors() -> tuple[CudaError, ...]:
    return check_cuda_errors(read_table("cuda_errors"))


def cuda_error(code: int) -> CudaError | None:
    return next((error for error in cuda_errors() if error.code == code), None)


def check_cuda_errors(table: Table) -> tuple[CudaError, ...]:
    table.keyed("name")
    return tuple(
        CudaError(row.number("code"), row.text("name"), row.text("text"), row.text("cause"), row.text("source"))
        for row in table.keyed("code")
    )
