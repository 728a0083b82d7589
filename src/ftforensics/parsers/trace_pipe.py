"""The text of a tracefs `trace_pipe` with the event signal:signal_generate: who sent a signal to whom.

Standard library only: `run` reads it while the job runs, in an environment that may hold nothing else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# kernel/trace/trace_output.c prints the sender as "%16s-%-7d " (older kernels pad the number less) and a name has at
# most 15 bytes (TASK_COMM_LEN), so the name is exactly the 16 bytes before the hyphen, whatever they hold: blanks,
# brackets, line ends. The target's name ends where the last three fields begin; those are longer than a name can be.
_SENT = re.compile(
    rb"(?P<sender>.{16})-(?P<sender_tid>\d{1,10}) *\[\d{3,5}\] \S{1,8} +(?P<at>\d{1,12}\.\d{1,9}): signal_generate: "
    rb"sig=(?P<signal>-?\d{1,10}) errno=-?\d{1,10} code=(?P<code>-?\d{1,10}) "
    rb"comm=(?P<target>.{0,15}) pid=(?P<target_tid>\d{1,10}) grp=\d{1,10} res=(?P<result>-?\d{1,10})\n",
    re.DOTALL,
)
# "CPU:1 [LOST 12 EVENTS]", or without a number when the kernel did not count.
_LOST = re.compile(rb"CPU:\d{1,5} \[LOST (?:(\d{1,12}) )?EVENTS\]\n")
_LONGEST = 400  # bytes of one record, with much to spare


class SentLine(NamedTuple):
    """One signal. at: CLOCK_MONOTONIC, seconds; code: si_code, 0 = by a process, 128 (SI_KERNEL) = by the kernel, then
    the sender is just whoever ran; result: 0 = delivered (include/trace/events/signal.h). Tids are those of the initial
    pid namespace. sender_pid: the sender's process, None until somebody looks it up. text: the whole line.
    """

    at: float
    signal: int
    code: int
    sender_comm: str
    sender_tid: int
    target_comm: str
    target_tid: int
    result: int
    sender_pid: int | None
    text: str


class TracePipe:
    """Puts the pieces that read(2) gives together. lost: events that the kernel dropped, as far as it counted them."""

    def __init__(self) -> None:
        self.lost = 0
        self._rest = b""

    def feed(self, data: bytes) -> list[SentLine]:
        """The signals that are complete now, oldest first. What is no such line is dropped."""
        text = self._rest + data
        found = []
        end = 0
        for match in _SENT.finditer(text):
            found.append(_sent(match))
            end = match.end()
        for match in _LOST.finditer(text):
            self.lost += int(match[1] or 1)
            end = max(end, match.end())
        self._rest = text[end:][-_LONGEST:]
        return found


def _sent(match: re.Match[bytes]) -> SentLine:
    return SentLine(
        at=float(match["at"]),
        signal=int(match["signal"]),
        code=int(match["code"]),
        sender_comm=_name(match["sender"].lstrip(b" ")),
        sender_tid=int(match["sender_tid"]),
        target_comm=_name(match["target"]),
        target_tid=int(match["target_tid"]),
        result=int(match["result"]),
        sender_pid=None,
        text=_name(match[0].strip()),
    )


def _name(raw: bytes) -> str:
    """A name may be any bytes: those that are not UTF-8 become `\\xNN`, never surrogates."""
    return raw.decode("utf-8", "backslashreplace")
