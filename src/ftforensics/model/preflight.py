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


class Suspect(msgspec.Struct, frozen=True):
    """A cause that the checks speak for, and how surely a crash here would be explained by it."""

    cause: str
    confidence: Confidence
    summary: str


class Fix(msgspec.Struct, frozen=True):
    """Something to do about a check that is not ok. torch, index ("cu121"), tier: of a command that installs a torch;
    settles: a cheap run or look that tells whether the suspicion holds, rather than a cure."""

    text: str
    command: str | None = None
    torch: str | None = None
    torchvision: str | None = None
    torchaudio: str | None = None
    index: str | None = None
    tier: str | None = None
    settles: bool = False


class Subject(msgspec.Struct, frozen=True):
    """What was asked about: the environment and driver of this machine, or others that the command line named."""

    torch: str | None = None  # "2.9.1+cu128"
    cuda: str | None = None
    driver: str | None = None
    level: str | None = None  # the driver's own CUDA level
    gpus: list[str] = []  # "NVIDIA A100-SXM4-80GB (8.0)"
    python: str | None = None
    prefix: str | None = None


class Preflight(msgspec.Struct, frozen=True):
    """causes: of the checks that warn or fail, the surest first; remedies: theirs; advice: every torch that fits."""

    checks: list[Check] = []
    advice: list[TorchAdvice] = []
    gaps: list[Gap] = []
    subject: Subject = Subject()
    causes: list[Suspect] = []
    remedies: list[Fix] = []
    schema: str = "ftforensics.check/1"

    @property
    def failed(self) -> bool:
        return any(check.status is Status.FAIL for check in self.checks)
