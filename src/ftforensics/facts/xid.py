"""NVIDIA Xid numbers: what the driver reports in the kernel log about a GPU."""

from __future__ import annotations

from functools import cache

import msgspec

from ftforensics.facts.tables import Table, read_table

BLAMES = ("application", "hardware", "driver", "either")


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
    return next((meaning for meaning in xid_meanings() if meaning.number == number), None)


@cache
def xid_meanings() -> tuple[XidMeaning, ...]:
    return check_xid_meanings(read_table("xid"))


def check_xid_meanings(table: Table) -> tuple[XidMeaning, ...]:
    found: list[XidMeaning] = []
    for row in table.keyed("number"):
        if row.text("blame") not in BLAMES:
            row.refuse(f"blame must be one of {', '.join(BLAMES)}")
        found.append(
            XidMeaning(
                row.number("number"),
                row.text("title"),
                row.text("blame"),
                row.truth("ends"),
                row.text("advice"),
                row.text("source"),
            )
        )
    return tuple(found)
