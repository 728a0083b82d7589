"""The deaths that followed from the first one, those that ended alike together: "ranks 0-2, 4-7"."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.causes.sizes import time_text
from ftforensics.model.diagnosis import Diagnosis, ProcessReport
from ftforensics.report.escape import printable
from ftforensics.report.phrases import ending, is_worker, root, who

MOST_NAMED = 6  # pids of processes without a rank


class Fate(msgspec.Struct, frozen=True):
    """who: one or many; how: "ended by SIGTERM from 17987 (torchrun), 1.9 s later"."""

    who: str
    how: str
    members: list[ProcessReport]


def consequences(diagnosis: Diagnosis) -> list[Fate]:
    """The collateral deaths, in the order of their first member."""
    first = root(diagnosis)
    groups: dict[tuple[str, str, str | None, bool], list[ProcessReport]] = {}
    for process in diagnosis.processes[1:]:
        if process.role == "collateral":
            key = (ending(process), process.by or "", process.host, is_worker(process))
            groups.setdefault(key, []).append(process)
    return [
        Fate(names(members, first), _how(members[0]) + later(members, first), members) for members in groups.values()
    ]


def others(diagnosis: Diagnosis) -> list[ProcessReport]:
    """Everything else but the root: own failures of their own, or not known."""
    return [process for process in diagnosis.processes[1:] if process.role != "collateral"]


def _how(process: ProcessReport) -> str:
    if not process.by:
        return ending(process)
    word = "from" if process.exit.signal else "by"  # "ended by SIGTERM from 17987 (torchrun)", "ended by mp.spawn"
    return f"{ending(process)} {word} {printable(process.by)}"


def names(members: Sequence[ProcessReport], first: ProcessReport | None) -> str:
    if len(members) == 1:
        return who(members[0])
    host = members[0].host
    there = f" on {printable(host)}" if host and (first is None or host != first.host) else ""
    ranks = sorted({process.rank for process in members if process.rank is not None})
    if is_worker(members[0]):
        of = f"of rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}" if ranks else "of the job"
        return f"{len(members)} workers {of}{there}"
    unnamed = [str(process.pid) for process in members if process.rank is None]
    parts = [f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"] if ranks else []
    if unnamed:
        more = f" and {len(unnamed) - MOST_NAMED} more" if len(unnamed) > MOST_NAMED else ""
        parts.append(f"pid{'s' if len(unnamed) > 1 else ''} {', '.join(unnamed[:MOST_NAMED])}{more}")
    return " and ".join(parts) + there


def ranges(numbers: Sequence[int]) -> str:
    """As "0-2, 4-7", of sorted numbers without repeats."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    # Two neighbours are a list; "0-1" saves nothing.
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(str(number) for number in run) for run in runs
    )


def later(members: Sequence[ProcessReport], first: ProcessReport | None) -> str:
    """As ", 1.9 s later", ", 1.9 s to 2.4 s later", or nothing."""
    if first is None or first.time is None:
        return ""
    times = sorted(process.time - first.time for process in members if process.time is not None)
    if not times:
        return ""
    words = list(dict.fromkeys(time_text(abs(seconds)) for seconds in (times[0], times[-1])))
    if times[0] < 0 <= times[-1]:
        return f", {time_text(-times[0])} before to {time_text(times[-1])} after"
    if times[0] < 0:
        words.reverse()
    return f", {' to '.join(words)} {'earlier' if times[0] < 0 else 'later'}"
