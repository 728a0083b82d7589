"""A forward-compatibility libcuda is in use where it cannot work.

## What it means

NVIDIA's `cuda-compat` packages bring the user-space half of a newer driver, so that a new CUDA runs on an older kernel
module. That works upwards only, and only on data-center GPUs. A package that is older than the driver of the machine,
or any package on a GeForce card, makes CUDA refuse to start.

## How it is told apart

The libcuda in use lies in a `compat` folder, and it is older than the kernel's module, or no GPU here is one that it
serves; or CUDA said error 803 ("unsupported display driver / cuda driver combination") or 804 ("forward compatibility
was attempted on non supported HW"). That is likely. Error 803 alone fits a driver that was upgraded halfway as well;
where the versions show that, it is `driver-half-upgraded`. Where the stack shows that the process died in code that has
nothing to do with CUDA it is possible.

## What to do

1. Take the compat folder out of `LD_LIBRARY_PATH`; in an image, out of `/etc/ld.so.conf.d` (`00-compat-*.conf`), and
   run `ldconfig`.
2. If the torch in use needs the newer CUDA, the driver itself must be upgraded, or a torch of its level installed.

## Seen in the field

- Images whose compat package was newer than the driver when they were built, run on a node that has been upgraded
  since: 803 (nvidia-container-toolkit#1679).
- NVIDIA's base images on workstations with GeForce cards: 804 (nvidia-docker#1515, TensorRT-LLM#1806).

## References

- NVIDIA, "CUDA Compatibility", forward compatibility
- CUDA runtime API, cudaErrorSystemDriverMismatch (803), cudaErrorCompatNotSupportedOnDevice (804)
"""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.cuda_stack import elsewhere, is_fault
from ftforensics.causes.cuda_text import Said, said, said_in_record, stands_for
from ftforensics.causes.driver_fit import compat_libcuda, compat_trouble, half_upgraded, torch_for_driver
from ftforensics.causes.driver_notes import fits, mismatches
from ftforensics.causes.ending import weaker
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Cite, Gap
from ftforensics.model.case import Crash
from ftforensics.model.crash import CrashRecord
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy

ID = "compat-driver-mismatch"
KIND = Kind.CIRCUMSTANCE
ORDER = 11
REFINES = ("uncaught-cxx-exception", "python-exception")
CHANGES = ("driver", "image", "variable:LD_LIBRARY_PATH")
_MISMATCH = 803


def check(crash: Crash) -> Iterator[Finding]:
    if not is_fault(crash):
        return
    text = said_in_record(crash, stands_for(ID))
    if text is not None:
        yield _said(text, crash.record)
        return
    trouble = compat_trouble(crash.record.driver, crash.record.libraries)
    if trouble:
        away = elsewhere(crash)
        confidence = Confidence.POSSIBLE if away else Confidence.LIKELY
        yield _finding(crash.record, confidence, trouble, [away] if away else [], [])


def check_death(death: Death) -> Iterator[Finding]:
    text = said(death, stands_for(ID))
    if text is not None:
        noted = [one.cite for one in mismatches(death) if fits(one) is not False]
        yield _said(text, death.crash.record if death.crash else None, noted)


def _said(text: Said, record: CrashRecord | None, noted: list[Cite] | None = None) -> Finding:
    """noted: what the kernel's log says about a driver whose two halves differ."""
    driver, libraries = (record.driver, record.libraries) if record else (None, None)
    supports, against, unknown = [*text.supports], [*text.against], [*text.unknown]
    confidence = text.confidence
    used = compat_libcuda(driver, libraries)
    trouble = compat_trouble(driver, libraries)
    if trouble:
        supports += trouble
    elif used is not None:
        supports.append(Cite("driver", "libcuda_path", f"{used}: libcuda of a forward-compatibility package"))
    elif all(one.code == _MISMATCH for one in text.texts) and (
        torn := [*half_upgraded(driver, libraries), *(noted or [])]
    ):
        # The two halves of the driver itself do not fit: the same number, another reason.
        against += torn
        confidence = weaker(confidence, Confidence.POSSIBLE)
    else:
        unknown.append(Gap("libraries", "which libcuda was loaded", "grep libcuda /proc/PID/maps"))
    return _finding(record, confidence, supports, against, unknown)


def _finding(
    record: CrashRecord | None,
    confidence: Confidence,
    supports: list[Cite],
    against: list[Cite],
    unknown: list[Gap],
) -> Finding:
    return Finding(
        cause=ID,
        confidence=confidence,
        summary="A forward-compatibility libcuda does not go with this machine's driver or GPU.",
        supports=supports,
        against=against,
        unknown=unknown,
        remedies=[
            Remedy(
                "Take the compat folder out of LD_LIBRARY_PATH (in an image: rm /etc/ld.so.conf.d/*compat*.conf, then "
                "ldconfig); run the same script so: if it still fails, the package was not the cause",
                'LD_LIBRARY_PATH=$(echo "$LD_LIBRARY_PATH" | tr : "\\n" | grep -v /compat | paste -sd:) python ...',
                settles=True,
            ),
            *(torch_for_driver(record.software, record.driver) if record and record.driver else []),
        ],
    )
