"""The files below a folder that a person gives: a run folder, one with a folder a rank or node, torchrun's --log-dir.

What else lies there is passed over in silence, and nothing here runs away: depth and number are bounded, a link that
leads back is seen.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import msgspec

from ftforensics.cli.complaints import Complaints, unreadable
from ftforensics.cli.errors import UnreadableInput
from ftforensics.cli.progress import Progress

DEEPEST = 4  # folders below the given one: torchrun's own layout has three
MOST_FILES = 250_000  # of 10,000 ranks with some files each, and what else a job leaves
# Nobody keeps the evidence of a run in them, and they are large.
_PASSED_OVER = ("__pycache__", "node_modules", "site-packages")


class Listed(msgspec.Struct, frozen=True):
    """A regular file. below: how many folders below the given one it lies."""

    path: str
    name: str
    status: os.stat_result
    below: int


def files_below(folder: str, complaints: Complaints, progress: Progress, *, deep: bool) -> Iterator[Listed]:
    """Folder by folder, the nearest first, sorted by name within each. Raises UnreadableInput when `folder` itself
    cannot be read; of what lies below it that is a complaint."""
    seen: set[tuple[int, int]] = set()
    left = MOST_FILES
    level = [folder]
    for below in range(DEEPEST + 1 if deep else 1):
        deeper: list[str] = []
        for place in level:
            try:
                status = os.stat(place)
                if (status.st_dev, status.st_ino) in seen:  # a link that leads back, or two to one folder
                    continue
                seen.add((status.st_dev, status.st_ino))
                with os.scandir(place) as entries:
                    names = sorted(entry.name for _, entry in zip(range(left + 1), entries, strict=False))
            except OSError as error:
                if below == 0:
                    raise unreadable(place, error) from None
                complaints.add(place, unreadable(place, error), folder=True)
                continue
            for name in names:
                if left == 0:
                    what = f"{folder}: only the first {MOST_FILES} files in it were looked at"
                    failure = UnreadableInput(what, hint="give the folders of single ranks or nodes")
                    complaints.add(folder, failure, folder=True)
                    return
                left -= 1
                path = os.path.join(place, name)
                progress.say(f"looking through {place}: {MOST_FILES - left} so far")
                try:
                    status = os.stat(path)
                except OSError:
                    # A link that leads nowhere. One that is called like a record is missed by somebody.
                    if name.endswith(".crash.json"):
                        status = os.lstat(path)
                    else:
                        continue
                if stat.S_ISDIR(status.st_mode):
                    if not name.startswith(".") and name not in _PASSED_OVER:
                        deeper.append(path)
                elif stat.S_ISREG(status.st_mode) or name.endswith(".crash.json"):
                    yield Listed(path, name, status, below)
        level = deeper
