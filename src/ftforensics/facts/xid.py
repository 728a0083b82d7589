"""NVIDIA Xid numbers: what the driver reports in the kernel log about a GPU."""

from __future__ import annotations

import msgspec


class XidMeaning(msgspec.Struct, frozen=True):
    """blame: "application", "hardware", "driver", "either"; ends: does it end the processes that use the GPU; advice:
    what to do, one sentence."""

    number: int
    title: str
    blame: str
    ends: bool
    advice: str
    source: str


def xid_meaning(number: int) -> XidMeaning | None:
    raise NotImplementedError


def xid_meanings() -> tuple[XidMeaning, ...]:
    raise NotImplementedError
