"""systemd and systemd-oomd in the journal.

systemd-oomd kills a whole cgroup and names no pid at its default level; the kernel says and counts nothing. Of a
*kernel* OOM kill systemd says "has been killed by the OOM killer" for the unit and for every slice above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ftforensics.model.notice import Notice
from ftforensics.parsers.notice_line import NoticeLine, notice_lines
from ftforensics.parsers.signal_words import signal_of

ANCHORS = (
    " due to memory pressure for ",
    " due to memory used (",
    "systemd-oomd killed ",
    "has been killed by the OOM killer",
    "Failed with result '",
    " timed out. ",
    "Killing process ",
    "Main process exited, code=",
    "reached runtime time limit",
    "oomd attempting to kill ",
)

# "Killed" up to systemd 257; with prekill hooks it is "Marked ... for killing", and the kill follows.
_OOMD = re.compile(
    r"(?:Killed (?P<killed>/\S{0,1000})|Marked (?P<marked>/\S{0,1000}) for killing) due to"
    r" (?P<why>memory (?:pressure for|used \().{1,300})"
)
_OOMD_PID = re.compile(r"oomd attempting to kill (?P<pid>\d{1,10}) with (?P<signal>\w{1,10})")
_OOMD_COUNT = re.compile(r"systemd-oomd killed (?P<count>\d{1,7}) process")
_UNIT = re.compile(r"(?P<unit>[\w@\\:.-]{1,255}\.(?:service|scope|slice|socket|mount|swap)): (?P<said>.*)$")
_KILLING = re.compile(r"Killing process (?P<pid>\d{1,10}) \((?P<comm>.{0,64})\) with signal (?P<signal>\w{1,12})\.?$")
_TIMED_OUT = re.compile(
    r"State '(?P<state>[\w-]{1,30})' timed out\. (?:Killing|Terminating|Aborting)|Stopping timed out\. Killing"
)
_EXITED = re.compile(r"Main process exited, code=(?P<how>exited|killed|dumped), status=(?P<status>\d{1,3})")
_RESULT = re.compile(r"Failed with result '(?P<result>[\w-]{1,40})'")


def read_systemd(text: str, path: str | None = None) -> list[Notice]:
    return read_systemd_lines(notice_lines(text), path)


def read_systemd_lines(lines: Iterable[NoticeLine], path: str | None) -> list[Notice]:
    return [notice for line in lines for notice in _of_line(line, path)]


def _of_line(line: NoticeLine, path: str | None) -> Iterator[Notice]:
    text = line.text.rstrip()
    oomd = _OOMD.search(text)
    if oomd:
        yield Notice(
            "systemd-oomd",
            "killed",
            line.cite("systemd-oomd", path),
            moment=line.moment,
            signal=9,
            group=oomd["killed"] or oomd["marked"],
            reason=oomd["why"],
            host=line.host,
        )
        return
    attempt = _OOMD_PID.search(text)
    if attempt:
        cite = line.cite("systemd-oomd", path)
        pid, signal = int(attempt["pid"]), signal_of(f"SIG{attempt['signal'].removeprefix('SIG')}")
        yield Notice("systemd-oomd", "killed", cite, moment=line.moment, pid=pid, signal=signal, host=line.host)
        return
    unit = _UNIT.search(text)
    if unit:
        yield from _of_unit(line, unit["unit"], unit["said"], path)


def _of_unit(line: NoticeLine, unit: str, said: str, path: str | None) -> Iterator[Notice]:
    cite = line.cite("systemd", path)
    moment, host = line.moment, line.host
    oomd = _OOMD_COUNT.search(said)
    if oomd:
        count = int(oomd["count"])
        cite = line.cite("systemd-oomd", path)
        if count:
            yield Notice("systemd-oomd", "killed", cite, moment=moment, signal=9, unit=unit, count=count, host=host)
        return
    if "has been killed by the OOM killer" in said:
        yield Notice("systemd", "oom", cite, moment=moment, unit=unit, host=host)
        return
    killing = _KILLING.search(said)
    if killing:
        pid, signal = int(killing["pid"]), signal_of(killing["signal"])
        yield Notice(
            "systemd", "killed", cite, moment=moment, pid=pid, comm=killing["comm"], signal=signal, unit=unit, host=host
        )
        return
    timed_out = _TIMED_OUT.search(said)
    if timed_out:
        reason = f"{timed_out['state'] or 'stop'} timed out"
        yield Notice("systemd", "stopped", cite, moment=moment, unit=unit, reason=reason, host=host)
        return
    if "reached runtime time limit" in said:
        yield Notice("systemd", "time-limit", cite, moment=moment, unit=unit, reason="RuntimeMaxSec", host=host)
        return
    exited = _EXITED.search(said)
    if exited:
        status = int(exited["status"])
        signal, code = (None, status) if exited["how"] == "exited" else (status, None)
        yield Notice("systemd", "state", cite, moment=moment, unit=unit, signal=signal, exit_code=code, host=host)
        return
    result = _RESULT.search(said)
    if result:
        yield Notice("systemd", "state", cite, moment=moment, unit=unit, state=result["result"], host=host)
