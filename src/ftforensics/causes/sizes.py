"""Amounts of memory and stretches of time as a person says them."""

from __future__ import annotations

import math

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size_text(size: float) -> str:
    """As "64 GiB", "61.2 GiB", "300 MiB"."""
    for unit, name in _UNITS:
        if abs(size) >= unit:
            value = size / unit
            number = f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
            return f"{number.removesuffix('.0')} {name}"
    return f"{size:.0f} bytes"


def enough_for(peak: int) -> str:
    """A request that leaves a fifth of it free at this peak, rounded up to whole GiB (MiB below one)."""
    unit, name = (1 << 30, "GiB") if peak >= (1 << 30) else (1 << 20, "MiB")
    return f"{math.ceil(peak / 0.8 / unit)} {name}"


def time_text(seconds: float) -> str:
    """As "64 ms", "1.9 s", "47 s", "12 min"."""
    if seconds < 0.9995:
        return f"{max(seconds, 0.0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
