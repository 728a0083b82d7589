"""When something happened, on whichever clock its source kept."""

from __future__ import annotations

import msgspec


class Moment(msgspec.Struct, frozen=True):
    """One instant. realtime: seconds since the epoch; monotonic: CLOCK_MONOTONIC, or the kernel log's clock, which
    stops in suspend as that one does; accuracy: +- seconds of `realtime`, for text with whole seconds or a converted
    clock; boot_id: the boot that `monotonic` belongs to. None where the source does not say."""

    realtime: float | None = None
    monotonic: float | None = None
    accuracy: float = 0.0
    boot_id: str | None = None
