"""What the last minute of memory says, in sentences. All of them are escaped already."""

from __future__ import annotations

from collections.abc import Iterator

from ftforensics.causes.sizes import size_text, time_text
from ftforensics.model.diagnosis import Holder, MemoryHistory
from ftforensics.report.escape import printable

GIB, MIB = 1 << 30, 1 << 20
MOST_HOLDERS = 3  # without verbose


def title(history: MemoryHistory) -> str:
    """As "The last minute", "The last 12 s"; "Memory at the end" where nothing was sampled."""
    if not history.points:
        return "Memory at the end"
    longest = max(point.before for point in history.points)
    return "The last minute" if longest >= 55 else f"The last {time_text(longest)}"


def fullness(history: MemoryHistory, *, named: bool = True) -> str | None:
    """As "63.9 GiB of 64 GiB in use (99.8 %), the limit of /slurm/job_4411". named: say whose limit it is."""
    used = size_text(history.used) if history.used is not None else None
    if history.limit is None:
        return f"{used} in use" if used else None
    limit = limit_words(history)
    if used is None:
        return limit
    if history.full is None:
        return f"{used} in use; {limit}"
    share = f"{history.full * 100:.1f} %" if 0.99 <= history.full < 1 else f"{history.full * 100:.0f} %"
    text = f"{used} of {size_text(history.limit)} in use ({share})"
    return f"{text}, {_limit_of(history)}" if named else text


def limit_words(history: MemoryHistory) -> str:
    """As "limit 64 GiB of /slurm/job_4411"."""
    if history.limit is None:
        return ""
    owner = f" of {printable(history.limit_of)}" if history.limit_of else ""
    return f"limit {size_text(history.limit)}{owner}"


def _limit_of(history: MemoryHistory) -> str:
    owner = printable(history.limit_of or "")
    if not owner:
        return "the limit"
    return f"the limit of {owner}" if owner.startswith("/") else owner


def growth(history: MemoryHistory) -> str | None:
    """As "grew 0.9 GiB/s for 47 s, from 15.8 to 63.9 GiB", "flat"; None when too little was sampled to say."""
    if history.trend in ("flat", "falling"):
        word = "flat" if history.trend == "flat" else "was falling"
        if not history.points:
            return word
        highest = max(history.points, key=lambda point: point.used)
        if history.trend == "falling":
            return f"{word}; highest {size_text(highest.used)}, {time_text(highest.before)} before the end"
        return f"{word} in that time"
    if history.growth is None or history.since is None:
        return None
    until = history.until or 0.0
    text = f"grew {rate(history.growth)}"
    if history.since - until > 0:
        text += f" for {time_text(history.since - until)}"
    if history.started_at is not None and history.used is not None:
        text += f", from {size_text(history.started_at)} to {size_text(history.used)}"
    stood = until - (history.last_age or 0.0)
    return f"{text}, then stood there for {time_text(stood)}" if stood >= 1.0 else text


def rate(growth: float) -> str:
    """growth: bytes/s. As "0.9 GiB/s", "120 MiB/s"."""
    if abs(growth) >= GIB / 2:
        return f"{growth / GIB:.1f} GiB/s"
    return f"{growth / MIB:.0f} MiB/s" if abs(growth) >= 10 * MIB else f"{growth / MIB:.1f} MiB/s"


def together(history: MemoryHistory) -> str | None:
    if history.ranks is None or history.rising is None:
        return None
    if history.rising < 2:
        return f"of {history.ranks} ranks only one grew" if history.rising == 1 and history.ranks > 1 else None
    return f"{history.rising} of {history.ranks} ranks grew together"


def last_sample(history: MemoryHistory) -> str | None:
    if not history.points:
        return None
    if history.last_age is None:
        return "how old the last sample was at the end is not known"
    return f"last sample {time_text(history.last_age)} before the end"


def page_cache(history: MemoryHistory) -> str | None:
    if history.page_cache is None:
        return None
    return f"about {size_text(history.page_cache)} of the group's usage was page cache, which the kernel drops first"


def holders(history: MemoryHistory, most: int = MOST_HOLDERS) -> str | None:
    """As "largest: other (pid 77) 40 GiB; rank 0 (pid 100) 9 GiB"."""
    if not history.holders:
        return None
    shown = "; ".join(f"{holder_name(holder)} {size_text(holder.rss)}" for holder in history.holders[:most])
    return f"largest: {shown}"


def holder_name(holder: Holder) -> str:
    pid = f"pid {holder.pid}" if holder.pid is not None else "pid unknown"
    if holder.rank is not None:
        return f"rank {holder.rank} ({pid})"
    return f"{printable(holder.name)} ({pid})" if holder.name else pid


def sentences(history: MemoryHistory, most_holders: int = MOST_HOLDERS) -> Iterator[str]:
    """Without the last sample's age, which has a place of its own."""
    rise = "; ".join(filter(None, (growth(history), together(history))))
    for text in (fullness(history), rise, page_cache(history), holders(history, most_holders)):
        if text:
            yield text


def in_short(history: MemoryHistory) -> str:
    """One line for a dying job's stderr."""
    parts = (fullness(history, named=False), growth(history), holders(history, 1))
    return "; ".join(part for part in parts if part) or "nothing was sampled"
