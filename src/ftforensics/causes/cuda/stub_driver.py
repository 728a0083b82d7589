"""The libcuda in use is a toolkit's link-time stub, not the driver.

## What it means

CUDA's toolkit brings a `libcuda.so` in a folder named `stubs`, so that programs can be linked on machines without a
GPU. It holds the names of the driver's functions and nothing behind them. A process that loads it at run time has no
driver: each call fails, and a program that does not look at the result works on with pointers that it never got.

## How it is told apart

The libcuda of the process lies in a `stubs` folder, or CUDA said error 34 ("CUDA driver is a stub library"). Either is
likely; never proven, because a process can die of something else beside it. Where the stack shows that it died in code
that has nothing to do with CUDA, or where a real libcuda is loaded too, it is possible.

## What to do

1. Take every folder named `stubs` out of `LD_LIBRARY_PATH`, out of `/etc/ld.so.conf.d` and out of the rpath of what
   was built here. At link time `-L.../stubs` is right; at run time nothing may point there.
2. Run `ldconfig -p | grep libcuda.so`: it must name the driver's library, `libcuda.so.1` in the system's folder.

## Seen in the field

- Dockerfiles that set `LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs` to build an extension, and leave it set.
- A symbolic link `libcuda.so.1` made beside the stub, to please a linker (numba, warp, bitsandbytes users).

## References

- CUDA runtime API, cudaErrorStubLibrary (34)
- numba#9732, numba#8985, warp#219
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_stack import elsewhere, is_fault
from ftforensics.causes.cuda_text import said, said_in_record, stands_for
from ftforensics.causes.driver_fit import stub_loaded
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

ID = "stub-driver"
KIND = Kind.CIRCUMSTANCE
ORDER = 10
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("driver", "image", "variable:LD_LIBRARY_PATH")


def check(crash: Crash) -> Iterator[Finding]:
    loaded = stub_loaded(crash.record.driver, crash.record.libraries)
    text = said_in_record(crash, stands_for(ID))
    if not is_fault(crash) or not (loaded or text):
        return
    against = []
    if text is None:
        away = elsewhere(crash)
        against = [*([away] if away else []), *_real_ones(crash)]
    yield _finding(
        Confidence.POSSIBLE if against else Confidence.LIKELY, [*(text.supports if text else []), *loaded], against
    )


def _real_ones(crash: Crash) -> Iterator[Cite]:
    stubs = {cite.locator for cite in stub_loaded(None, crash.record.libraries)}
    for one in crash.record.libraries or []:
        if one.kind == "libcuda" and one.path not in stubs:
            yield Cite("libraries", one.path, "another libcuda is loaded too")


def check_death(death: Death) -> Iterator[Finding]:
    text = said(death, stands_for(ID))
    if text is None:
        return
    record = death.crash.record if death.crash else None
    loaded = stub_loaded(record.driver, record.libraries) if record else []
    yield _finding(text.confidence, [*text.supports, *loaded], text.against, text.unknown)


def _finding(
    confidence: Confidence, supports: list[Cite], against: list[Cite], unknown: list[Gap] | None = None
) -> Finding:
    return Finding(
        cause=ID,
        confidence=confidence,
        summary="The libcuda in use is a toolkit's link-time stub, so there was no GPU driver.",
        supports=supports,
        against=against,
        unknown=unknown or [],
        remedies=[
            Remedy(
                "Take the stubs folder out of LD_LIBRARY_PATH",
                'export LD_LIBRARY_PATH=$(echo "$LD_LIBRARY_PATH" | tr : "\\n" | grep -v /stubs | paste -sd:)',
            ),
            Remedy(
                "See which libcuda the loader finds: it must be the driver's, not one in a stubs folder",
                "python -c \"import ctypes; ctypes.CDLL('libcuda.so.1'); print(open('/proc/self/maps').read())\" "
                "| grep libcuda",
                settles=True,
            ),
        ],
    )
