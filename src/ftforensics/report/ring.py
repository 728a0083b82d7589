"""The last second of a recorder's ring, as a table with what was said and received among the samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ftforensics.causes.sizes import time_text
from ftforensics.model.diagnosis import LastEvent, LastSample, LastSecond, ProcessReport
from ftforensics.report.escape import printable

GIB, MIB = 1 << 30, 1 << 20
BEFORE = 9  # columns of the first column
CELL = 10  # columns of each other one
NARROW = 64  # columns of the page below which the process's file and shared pages are left out
_COLUMNS: tuple[tuple[str, Callable[[LastSample], int | None], bool], ...] = (
    ("anon", lambda sample: sample.rss_anon, True),
    ("file", lambda sample: sample.rss_file, False),
    ("shmem", lambda sample: sample.rss_shmem, False),
    ("group", lambda sample: sample.usage, True),
    ("free", lambda sample: sample.available, True),
)


class Row(msgspec.Struct, frozen=True):
    """before: as "64 ms"; cells: of a sample; text: of an event."""

    before: str
    cells: list[str] = []
    text: str = ""


class Table(msgspec.Struct, frozen=True):
    headings: list[str]
    rows: list[Row]
    end: list[str]  # how it stops, in sentences


def table(process: ProcessReport, last: LastSecond, wide: int = 80) -> Table:
    """anon, file, shmem: of the process; group: usage of its memory group; free: MemAvailable of the machine."""
    headings: list[str] = []
    columns: list[list[str]] = []
    for name, value, narrow in _COLUMNS:
        values = [value(sample) for sample in last.samples]
        known = [one for one in values if one is not None]
        if not known or (wide < NARROW and not narrow):
            continue
        unit, word, digits = (GIB, "GiB", 2) if max(known) >= GIB else (MIB, "MiB", 1)
        headings.append(f"{name} {word}")
        columns.append(["?" if one is None else f"{one / unit:.{digits}f}" for one in values])
    timed: list[tuple[float, Row]] = [
        (sample.before, Row(_before(sample.before), [column[index] for column in columns]))
        for index, sample in enumerate(last.samples)
    ]
    timed += [(event.before, Row(_before(event.before), text=event_text(event))) for event in last.events]
    timed.sort(key=lambda pair: -pair[0])  # stable: at the same time the sample stands first
    return Table(headings, [row for _, row in timed], list(_end(process, last)))


def lines(process: ProcessReport, last: LastSecond, wide: int) -> Iterator[tuple[str, str]]:
    """(first, rest): text columns; `rest` may be wrapped behind `first`."""
    made = table(process, last, wide)
    if made.headings:
        yield f"  {'before':>{BEFORE - 2}}" + "".join(f"{heading:>{CELL}}" for heading in made.headings), ""
    for row in made.rows:
        first = f"  {row.before:>{BEFORE - 2}}"
        if row.text:
            yield first + "  ", row.text
        else:
            yield first + "".join(f"{cell:>{CELL}}" for cell in row.cells), ""
    for sentence in made.end:
        yield "  ", sentence


def event_text(event: LastEvent) -> str:
    """As "phase save_checkpoint", "SIGTERM from pid 17987 (torchrun)"."""
    text = printable(event.text)
    if event.kind == "signal":
        return f"{text} from {printable(event.sender)}" if event.sender else f"{text} arrived"
    if event.kind == "phase":
        return f"phase {text}" if text else "left its phase"
    return f"{printable(event.kind)} {text}" if event.kind == "step" else f"{printable(event.kind)}: {text}"


def _before(seconds: float) -> str:
    return "0" if seconds < 0.0005 else time_text(seconds)


def _end(process: ProcessReport, last: LastSecond) -> Iterator[str]:
    if not last.from_end:
        yield "times are before the last sample" + ("" if process.alive else ", because the end has none")
    if process.alive:
        yield "it still runs"
    elif last.end is None:
        killed = process.exit.signal == "SIGKILL"
        known = process.exit.signal is not None or process.exit.code is not None
        if killed:
            yield "no end mark: SIGKILL leaves no time for one"
        else:
            yield "no end mark" if known else "no end mark: ended unseen, which may be a kill and may be something else"
    else:
        yield {
            "exit": "end mark: it ended by itself",
            "crash": "end mark: it crashed, and left a record",
            "exec": "end mark: it became another program (exec)",
            "uninstall": "end mark: the recorder was taken out",
        }.get(last.end, f"end mark: {printable(last.end)}")
    if last.recorder:
        yield f"trouble of the recorder itself: {printable(last.recorder)}"
