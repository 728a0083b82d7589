"""torch for CUDA 12.8 on a driver of one's choice, and questions to one cause about it."""

from __future__ import annotations

from typing import Any

import msgspec

from ftforensics.causes.registry import find_cause
from ftforensics.model.basics import Cite
from ftforensics.model.crash import CxxException
from ftforensics.model.death import DriverNoteMatch, Tie, XidMatch
from ftforensics.model.diagnosis import Finding
from ftforensics.model.kernel import DriverNote, LogLine, Xid
from ftforensics.model.launcher import StackText
from ftforensics.model.mechanism import Mechanism
from synth.death import PID, DeathBuilder, tie
from synth.software import NCCL, SoftwareBuilder, cu128, stack_text

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
EXTENSION = "/venv/lib/python3.11/site-packages/fused_ops.cpython-311-x86_64-linux-gnu.so"
CTYPES = "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"
COMPAT = "/usr/local/cuda-12.8/compat/libcuda.so.570.124.06"
TOO_OLD = "The NVIDIA driver on your system is too old (found version 12010)"


def on_driver(
    version: str | None = "530.30.02", api: int | None = 12010, libcuda: str | None = None, **driver: Any
) -> SoftwareBuilder:
    """torch 2.9.1 for CUDA 12.8, with that driver's libcuda loaded."""
    path = libcuda or f"{LIBRARIES}/libcuda.so.{version or 1}"
    own = path.rpartition(".so.")[2]
    own = own if own.count(".") >= 1 and len(own) > 5 else None
    origin = "compat" if "/compat/" in path else "system"
    builder = cu128().without(f"{LIBRARIES}/libcuda").library(path, "libcuda", origin, version=own)
    builder = builder.on_driver(version, api, path, **driver)
    made = builder.driver
    assert made is not None
    return builder.set(driver=msgspec.structs.replace(made, libcuda_version=own)).gpu()


def null_call(builder: SoftwareBuilder, *callers: tuple[str | None, str | None]) -> SoftwareBuilder:
    """It jumped to address 0, from the first of the callers."""
    builder = builder.died("SIGSEGV", Mechanism.NULL_CALL, 0).frame(None, None)
    for function, library in callers:
        builder = builder.frame(function, library)
    return builder


def in_nccl(builder: SoftwareBuilder) -> SoftwareBuilder:
    return null_call(builder, ("ncclNvlsGroupCreate", NCCL), ("ncclCommInitRank", NCCL))


def null_write(builder: SoftwareBuilder, library: str = EXTENSION) -> SoftwareBuilder:
    return builder.died("SIGSEGV", Mechanism.NULL_WRITE, 0).frame("fused_accumulate", library)


def thrown(builder: SoftwareBuilder, what: str) -> SoftwareBuilder:
    """A C++ exception with this text was not caught."""
    builder = builder.died("SIGABRT", Mechanism.ABORT_CXX_EXCEPTION, None)
    return builder.set(cxx_exception=CxxException("N3c105ErrorE", what))


def about(cause: str, asked: SoftwareBuilder | DeathBuilder) -> list[Finding]:
    """What the cause says of a crash record, or of an end."""
    found = find_cause(cause)
    assert found is not None
    if isinstance(asked, SoftwareBuilder):
        assert found.check is not None
        return list(found.check(asked.crash))
    assert found.check_death is not None
    return list(found.check_death(asked.death))


def error(code: int, text: str | None = None, form: str | None = "exception", **fields: Any) -> StackText:
    return stack_text("cuda-error", text or f"CUDA error {code}", code=code, form=form, **fields)


def printed(death: DeathBuilder, *texts: StackText) -> DeathBuilder:
    return death.set(stack_texts=[*death.death.stack_texts, *texts])


def recorded(death: DeathBuilder, builder: SoftwareBuilder) -> DeathBuilder:
    """The end left this record."""
    return death.set(crash=builder.crash)


def xid(
    death: DeathBuilder,
    number: int | None,
    how: Tie | None = Tie.EXACT,
    *against: str,
    before: float | None = 1.0,
    pid: int | None = PID,
    facility: int | None = 0,
    **fields: Any,
) -> DeathBuilder:
    """A GPU event of the kernel's log; how None: it is not tied to this process."""
    text = f"NVRM: Xid (PCI:0000:17:00): {number}, pid={pid}, name=python"
    made = Xid(LogLine(text, 20, facility=facility), number, "0000:17:00", pid, "python", **fields)
    match = tie(how, *against) if how is not None else None
    cite = Cite("kmsg", f"kernel.log:{20 + len(death.death.xids)}", text)
    return death.set(xids=[*death.death.xids, XidMatch(made, cite, match, before)])


def driver_note(death: DeathBuilder, kind: str = "api-mismatch", before: float | None = 1.0) -> DeathBuilder:
    text = "NVRM: API mismatch: the client has the version 570.124.06, but this kernel module has the version 535.54.03"
    note = DriverNote(LogLine(text, 30, facility=0), kind, "570.124.06", "535.54.03")
    return death.set(driver_notes=[DriverNoteMatch(note, Cite("kmsg", "kernel.log:30", text), before)])


def words(finding: Finding) -> str:
    return " ".join([finding.summary, *(cite.text for cite in [*finding.supports, *finding.against])])


def commands(finding: Finding) -> list[str]:
    return [remedy.command or "" for remedy in finding.remedies]
