"""A traceback that stands in another exception's message: of a data worker, a pool's child, a spawned process."""

from __future__ import annotations

import re

from ftforensics.model.exception import Raised, RaisedFrame

_BEGIN = re.compile(r"(?:Original )?Traceback \(most recent call last\):$")
_FRAME = re.compile(r'  File "(.{0,2000})", line (\d{1,9})(?:, in (.{0,500}))?$')
_LAST = re.compile(r"((?:[A-Za-z_<][\w<>]*\.)*[A-Za-z_]\w*)(?:: (.*)|:)?$")
# traceback.py, _cause_message and _context_message
_LINKS = (
    ("The above exception was the direct cause of the following exception:", "cause"),
    ("During handling of the above exception, another exception occurred:", "context"),
)
# torch/_utils.py, ExceptionWrapper.reraise
_HANDED_ON = re.compile(r"Caught \w{1,200} in DataLoader worker process \d{1,7}\.")
# str() of these is a traceback and nothing else: multiprocessing/pool.py, concurrent/futures/process.py, and their
# copies in multiprocess, loky and billiard.
_REMOTE = ("RemoteTraceback", "_RemoteTraceback")
_SEEN = 65536  # characters


def is_of_data_worker(message: str) -> bool:
    """Does a rank hand on what its DataLoader's worker raised?"""
    return _HANDED_ON.match(message) is not None


def is_only_a_quotation(kind: str) -> bool:
    """kind: an exception's type, dotted or not. Such an exception exists to carry a traceback across processes."""
    return kind.rpartition(".")[2] in _REMOTE


def quoted_traceback(message: str) -> list[Raised]:
    """The exceptions of a traceback quoted in `message`, what ended that process first, then what it came from. Empty
    when there is none; of one that was cut, what is whole."""
    chain: list[Raised] = []
    frames: list[RaisedFrame] = []
    inside = False
    link: str | None = None
    for line in message[:_SEEN].split("\n"):
        if _BEGIN.match(line):
            inside, frames = True, []
            continue
        if not inside:
            link = next((word for text, word in _LINKS if line.startswith(text)), link)
            continue
        if line.startswith(" ") or not line:
            found = _FRAME.match(line)
            if found:
                frames.append(RaisedFrame(found[1], int(found[2]), found[3]))
            continue
        last = _LAST.match(line)
        if last:
            # The one before came first in time: it is what this one was raised from.
            if chain:
                chain[0] = _linked(chain[0], link or "context")
            chain.insert(0, Raised(last[1], last[2] or "", frames))
        inside, link = False, None
    return chain


def _linked(raised: Raised, link: str) -> Raised:
    return Raised(raised.type, raised.message, raised.frames, link)
