"""What the commands share that a job starts by itself: the streams and files around them are the job's, not theirs."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from contextlib import suppress


def settle() -> None:
    """Make the surroundings harmless.

    A job may have closed fd 2: the next file opened would get its number, and our lines. And what we start may crash (a
    driver, a stack tool): its core file must not land where the job's own one belongs.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def tell(lines: Iterable[str]) -> None:
    """Write lines to standard error all at once, so that several dying ranks do not mix theirs. Never fails.

    Not by print: without a standard error at start, sys.stderr is None, and print then takes standard output.
    """
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
    with suppress(OSError):
        while text:
            text = text[os.write(2, text) :]
