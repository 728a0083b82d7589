"""One line of a job's output without what others wrote around it: container time stamps, rank labels, colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Protocol

import msgspec

from ftforensics.model.launcher import LauncherEvent, TextLine
from ftforensics.model.moment import Moment

LONGEST = 1 << 16
"""Bytes of a line that are looked at; the rest of a longer one is dropped."""

# ECMA-48: CSI sequences, OSC strings (titles, links), two-byte escapes. Each alternative is bounded by its own
# characters and none crosses the end of a line.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# CRI (`TIME stdout F text`), `docker logs -t` and `kubectl logs --timestamps`: RFC 3339, always with a zone.
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d) (?:(?:stdout|stderr) [FP](?: |$))?",
    re.ASCII,
)
_LABELS = (
    re.compile(r"\[rank(?P<rank>\d{1,7})\]:(?: |$)"),  # torch's excepthook, 2.2 and later
    re.compile(r"\[rank: (?P<rank>\d{1,7})\] "),  # Lightning
    re.compile(r"\[(?:\d{1,7},)?(?P<rank>\d{1,7})\]<(?:stdout|stderr|stddiag)>:"),  # Horovod; mpirun --tag-output
    re.compile(r"\[[A-Za-z_][A-Za-z_.-]{0,40}\d{1,7}\]:"),  # torchrun --tee: role and *local* rank
    re.compile(r" {0,6}\d{1,7}: "),  # srun -l: the task, which need not be a rank
    re.compile(r"\((?:[^()\s]{1,200} )?pid=\d{1,10}(?:, ip=[0-9a-fA-F.:]{1,45})?\) "),  # Ray's driver
)
_LABEL_START = frozenset("[( 0123456789")
# Text longer than this is a person's data; no launcher says so much in one line, but for DeepSpeed's commands.
_EXCERPT = 300


class JobLine(msgspec.Struct, frozen=True):
    """text: without stamp, colours and labels; label: what stood before it, the same for one process's lines;
    rank: from the label; number: line of the file; moment: the container runtime's stamp."""

    text: str
    number: int
    label: str = ""
    rank: int | None = None
    moment: Moment = Moment()

    def cited(self, text: str | None = None) -> TextLine:
        shown = text if text is not None else f"{self.label}{self.text}"
        return TextLine(shown.strip()[:_EXCERPT], self.number, self.moment)

    def cited_end(self) -> TextLine:
        """Of a long line the end, for wordings whose status stands there."""
        return self.cited(f"...{self.text[-280:]}" if len(self.text) > 290 else None)


class LineReader(Protocol):
    """One launcher's wording. `read` gets every line that holds one of `anchors`, and while `open` is true every other
    line too: what has no anchor and comes while nothing is open must change nothing."""

    @property
    def anchors(self) -> tuple[str, ...]: ...

    @property
    def open(self) -> bool: ...

    def read(self, line: JobLine) -> Iterator[LauncherEvent]: ...

    def end(self) -> Iterator[LauncherEvent]: ...


class _DockerLine(msgspec.Struct):
    log: str
    time: str = ""


def job_line(raw: bytes, number: int) -> JobLine:
    """`raw`: one line without its end, at most LONGEST bytes."""
    stamp = Moment()
    if raw.startswith(b'{"log":'):  # Docker's json-file driver
        try:
            docker = msgspec.json.decode(raw, type=_DockerLine)
        except (msgspec.DecodeError, UnicodeDecodeError):
            text = raw.decode("utf-8", "replace")
        else:
            text, stamp = docker.log.rstrip("\r\n"), moment_of(docker.time)
    else:
        text = raw.decode("utf-8", "replace")
    text = without_colours(text).lstrip("\0")  # a worker that dies while it prints may leave NULs
    stamped = _STAMP.match(text)
    if stamped:
        stamp = moment_of(f"{stamped[1]}{stamped[2] or ''}{stamped[3]}")
        text = text[stamped.end() :]
    label, rank, text = _labelled(text)
    return JobLine(text, number, label, rank, stamp)


def without_colours(text: str) -> str:
    return _ANSI.sub("", text) if "\x1b" in text else text


def moment_of(stamp: str) -> Moment:
    """RFC 3339 with a zone; anything else is an unknown time. The stamp is the reader's, not the writer's: +- 1 s."""
    found = re.match(
        r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)([.,]\d{1,9})? ?(?:Z|([+-])(\d\d):?(\d\d))$", stamp, re.ASCII
    )
    if not found:
        return Moment()
    try:
        offset = timedelta(hours=int(found[9] or 0), minutes=int(found[10] or 0))
        zone = timezone(-offset if found[8] == "-" else offset)
        year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
        seconds = datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp()
    except (ValueError, OverflowError):
        return Moment()
    if seconds <= 0:  # Docker's and Kubernetes' "never" is the year 1
        return Moment()
    return Moment(realtime=seconds + float("0." + (found[7] or ".0")[1:]), accuracy=1.0)


def signal_and_code(exitcode: int) -> tuple[int | None, int | None]:
    """Of Python's exit code, negative for a signal."""
    return (-exitcode, None) if exitcode < 0 else (None, exitcode)


_GLOG = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,6} (\d{1,10}) ", re.ASCII)


def writer_pid(text: str) -> int | None:
    """The pid in torch's own prefix, "W1129 14:05:48.582000 26849 torch/...": of the process that wrote the line."""
    found = _GLOG.match(text)
    return int(found[1]) if found else None


_LOCAL = re.compile(r"\s*(?:\[|time ?: ?)?(\d{4})-(\d\d)-(\d\d)[ _T](\d\d):(\d\d):(\d\d)", re.ASCII)


def local_time(text: str) -> float | None:
    """The date and time that a launcher's line begins with, as seconds since the epoch as if its clock were in UTC: it
    names no zone. "[2026-11-29 14:29:53,739] ...", "time: 2026-11-29_14:28:54 ..."."""
    found = _LOCAL.match(text)
    if found is None:
        return None
    try:
        return datetime(*(int(part) for part in found.groups()), tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type, misc]
    except (ValueError, OverflowError):
        return None


def _labelled(text: str) -> tuple[str, int | None, str]:
    at, rank = 0, None
    for _ in range(4):  # a label within a label: srun -l around torchrun --tee around torch's own
        if at >= len(text) or text[at] not in _LABEL_START:
            break
        found = next((match for label in _LABELS if (match := label.match(text, at))), None)
        if found is None:
            break
        named = found.groupdict().get("rank")
        rank = int(named) if named else rank
        at = found.end()
    return text[:at], rank, text[at:]
