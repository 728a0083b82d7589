"""What `ftforensics check` found, before anything has died: schema `ftforensics.check/1`."""

from __future__ import annotations

from enum import Enum

import msgspec

from ftforensics.model.basics import Cite, Gap
from ftforensics.model.diagnosis import Confidence, Remedy


class Status(str, Enum):
    """FAIL: it will not work, or is known to break; WARN: it may; UNKNOWN: it could not be looked at."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Check(msgspec.Struct, frozen=True):
    """One line of the table. name: stable, kebab-case ("driver-fits-torch"); topic: what it is listed under ("driver",
    "libraries", "machine", "capture", "distributed"); said: one sentence; cause, confidence: of the cause that a crash
    here would be explained by, where there is one."""

    name: str
    topic: str
    status: Status
    said: str
    cause: str | None = None
    confidence: Confidence | None = None
    supports: list[Cite] = msgspec.field(default_factory=list, name="for")
    remedies: list[Remedy] = []


class TorchAdvice(msgspec.Struct, frozen=True):
    """One torch that can be installed. tier: "exact" (the driver's own CUDA level or below), "window" (works by
    minor-version compatibility), "pypi"; command: the whole pip line; index: "cu121"."""

    torch: str
    tier: str
    index: str
    command: str
    torchvision: str | None = None
    torchaudio: str | None = None
    note: str | None = None


class Preflight(msgspec.Struct, frozen=True):
    checks: list[Check] = []
    advice: list[TorchAdvice] = []
    gaps: list[Gap] = []
    schema: str = "ftforensics.check/1"

    @property
    def failed(self) -> bool:
        return any(check.status is Status.FAIL for check in self.checks)
