"""What schedulers, containers and user-space memory killers say, found by content in any file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from ftforensics.model.notice import Notice
from ftforensics.parsers import notice_earlyoom, notice_ray, notice_slurm, notice_systemd
from ftforensics.parsers.launcher_line import LONGEST
from ftforensics.parsers.notice_docker import read_docker
from ftforensics.parsers.notice_kubernetes import read_kubernetes
from ftforensics.parsers.notice_line import NoticeLine, numbered_lines
from ftforensics.parsers.notice_slurm import read_slurm

# Smaller texts are read whole; of larger ones only the neighbourhood of lines that hold an anchor.
_WHOLE = 16 << 20
_BEFORE, _AFTER = 1, 40  # lines; a table of memory users has 12
_MOST = 10_000
_FAMILIES: tuple[tuple[tuple[str, ...], Callable[[Iterable[NoticeLine], str | None], list[Notice]]], ...] = (
    (notice_slurm.ANCHORS, notice_slurm.read_slurm_lines),
    (notice_systemd.ANCHORS, notice_systemd.read_systemd_lines),
    (notice_earlyoom.ANCHORS, notice_earlyoom.read_earlyoom_lines),
    (notice_ray.ANCHORS, notice_ray.read_ray_lines),
)
# journalctl -o json gives a message that is not UTF-8 as the numbers of its bytes: no anchor shows.
_ENCODED = (b'"MESSAGE":[', b'"MESSAGE": [', b'"MESSAGE" : [')
# A log may begin with "[rank0]: " or a time in brackets.
_DOCUMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{|\[\s*[{\]])")
_DOCKER_EVENT = re.compile(
    rb"^(?:\S+ container (?:oom|kill|die|stop) [0-9a-f]{12}|\{.{0,4000}\"timeNano\")", re.MULTILINE
)


def read_notices(data: bytes, path: str | None = None) -> list[Notice]:
    """Every statement in `data`: JSON documents as what they are, otherwise line by line, authority by authority. Never
    raises for what a file holds; at most 10,000 are kept."""
    if _DOCUMENT.match(data[:4096]):
        found = _of_document(data.decode("utf-8", "replace"), path)
        if found:
            return found[:_MOST]
    notices: list[Notice] = []
    encoded = [word for word in _ENCODED if word in data]
    for anchors, read in _FAMILIES:
        words = [anchor.encode() for anchor in anchors]
        present = [word for word in words if word in data]
        if present or encoded:
            notices.extend(read(numbered_lines(_lines(data, [*present, *encoded])), path))
    if _DOCKER_EVENT.search(data[:_WHOLE]):
        notices.extend(read_docker(data[:_WHOLE].decode("utf-8", "replace"), path))
    return notices[:_MOST]


def _of_document(text: str, path: str | None) -> list[Notice]:
    for read in (read_kubernetes, read_docker, read_slurm):
        found = read(text, path)
        if found:
            return found
    return []


def _lines(data: bytes, words: list[bytes]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers: all of a small text, else those around an anchor."""
    if len(data) <= _WHOLE:
        yield from enumerate(data.decode("utf-8", "replace").split("\n"), 1)
        return
    number, at, done = 1, 0, 0
    for hit in _hits(data, words):
        if hit < done:
            continue
        start = hit
        for _ in range(_BEFORE + 1):
            start = data.rfind(b"\n", done, max(start - 1, done)) + 1 or done
        number += data.count(b"\n", at, start)
        at = start
        for _ in range(_BEFORE + _AFTER + 1):
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            yield number, data[at : min(end, at + LONGEST)].decode("utf-8", "replace")
            number, at = number + 1, min(end + 1, len(data))
            if at >= len(data):
                return
        done = at


def _hits(data: bytes, words: list[bytes]) -> Iterator[int]:
    """Where any of `words` stands, ascending."""
    for found in re.finditer(b"|".join(map(re.escape, words)), data):
        yield found.start()
