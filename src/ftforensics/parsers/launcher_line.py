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
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# CRI (`TIME stdout F text`), `docker logs -t` and `kubectl logs --timestamps`: RFC 3339, always with a zone.
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d) (?:(?:stdout|stderr) [FP](?: |$))?",
    re.ASCII,
)
_IN_BRACKETS = (
    re.compile(r"\[rank(?P<rank>\d{1,7})\]:(?: |$)"),  # torch's excepthook, 2.2 and later
    re.compile(r"\[rank: (?P<rank>\d{1,7})\] "),  # Lightning
    re.compile(r"\[(?:\d{1,7},)?(?P<rank>\d{1,7})\]<(?:stdout|stderr|stddiag)>:"),  # Horovod; mpirun --tag-output
    re.compile(r"\[[A-Za-z_][A-Za-z_.-]{0,40}\d{1,7}\]:"),  # torchrun --tee: role and *local* rank
)
_TASK = (re.compile(r" {0,6}\d{1,7}: "),)  # srun -l: the task, which need not be a rank
# Ray's driver.
_RAY = (re.compile(r"\((?:[^()\s]{1,200} )?pid=(?P<pid>\d{1,10})(?:, ip=[0-9a-fA-F.:]{1,45})?\) "),)
_LABELS = {"[": _IN_BRACKETS, "(": _RAY, **dict.fromkeys(" 0123456789", _TASK)}  # by the first character
# Text longer than this is a person's data; no launcher says so much in one line, but for DeepSpeed's commands.
_EXCERPT = 300


class JobLine(msgspec.Struct, frozen=True):
    """text: without stamp, colours and labels; label: what stood before it, the same for one process's lines;
    rank, pid: from the label; number: line of the file; moment: the container runtime's stamp; logged: the message of a
    logger's JSON record, so not what a shell or library printed by itself; cut: the file ends within it."""

    text: str
    number: int
    label: str = ""
    rank: int | None = None
    moment: Moment = Moment()
    pid: int | None = None
    logged: bool = False
    cut: bool = False

    def cited(self, text: str | None = None, wall: float | None = None) -> TextLine:
        """text: what to show instead of the line; wall: its time, where that stands elsewhere."""
        shown = text if text is not None else f"{self.label}{self.text}"
        writer = writer_pid(self.text)
        return TextLine(
            text=shown.strip()[:_EXCERPT],
            number=self.number,
            moment=self.moment,
            wall=wall if wall is not None else local_time(self.text),
            writer=self.pid if writer is None else writer,
            day=glog_time(self.text),
        )

    def cited_end(self) -> TextLine:
        """Of a long line the end, for wordings whose status stands there."""
        return self.cited(f"...{self.text[-280:]}" if len(self.text) > 290 else None)


class LineReader(Protocol):
    """One launcher's wording. `read` gets every line that holds one of its `anchors`, and while `open` is true every
    other line too. Only `read` changes `open`. Two anchors may not differ in digits only."""

    @property
    def anchors(self) -> tuple[str, ...]: ...

    @property
    def open(self) -> bool: ...

    def read(self, line: JobLine) -> Iterator[LauncherEvent]: ...

    def end(self) -> Iterator[LauncherEvent]: ...


class _Record(msgspec.Struct):
    """One line of JSON: Docker's json-file driver ("log"), a log collector's wrapping ("message", "text"), or the
    record of a structured logger, which names a level and keeps the traceback apart."""

    log: msgspec.Raw = msgspec.Raw()
    message: msgspec.Raw = msgspec.Raw()
    msg: msgspec.Raw = msgspec.Raw()
    text: msgspec.Raw = msgspec.Raw()
    event: msgspec.Raw = msgspec.Raw()  # structlog
    level: msgspec.Raw = msgspec.Raw()
    levelname: msgspec.Raw = msgspec.Raw()
    severity: msgspec.Raw = msgspec.Raw()
    exc_info: msgspec.Raw = msgspec.Raw()
    exception: msgspec.Raw = msgspec.Raw()
    traceback: msgspec.Raw = msgspec.Raw()
    stack_trace: msgspec.Raw = msgspec.Raw()
    time: msgspec.Raw = msgspec.Raw()
    timestamp: msgspec.Raw = msgspec.Raw()
    ts: msgspec.Raw = msgspec.Raw()
    kind: msgspec.Raw = msgspec.Raw()  # of a Kubernetes object, which has messages too

    def said(self) -> str | None:
        """None: no line of a log."""
        for member in (self.log, self.message, self.msg, self.text, self.event):
            words = _string(member)
            if words is not None:
                break
        else:
            return None
        raised = (_string(one) for one in (self.exc_info, self.exception, self.traceback, self.stack_trace))
        return "\n".join([words.rstrip("\r\n"), *(one.rstrip("\r\n") for one in raised if one and "\n" in one)])

    def moment(self) -> Moment:
        for member in (self.time, self.timestamp, self.ts):
            stamp = _string(member)
            if stamp is not None:
                return moment_of(stamp)
        return Moment()

    @property
    def logged(self) -> bool:
        return any(len(member) > 0 for member in (self.level, self.levelname, self.severity))


def _string(raw: msgspec.Raw) -> str | None:
    if not bytes(raw).startswith(b'"'):
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


_RECORDS = msgspec.json.Decoder(_Record)


def _record(raw: bytes) -> _Record | None:
    try:
        record = _RECORDS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if len(record.kind) else record


def looks_like_json_lines(head: bytes) -> bool:
    """Does a file begin with lines of JSON that wrap a log's lines? A single one needs a time or a level too: documents
    have messages, and torchrun's error file may be `{"message": "..."}`."""
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf")[:LONGEST].splitlines()[:3] if line.strip()]
    if not lines or not lines[0].lstrip().startswith(b"{"):
        return False
    record = _record(lines[0])
    if record is None:  # the first line may be longer than `head`
        return lines[0].startswith(b'{"log":"') and len(lines) == 1
    if record.said() is None:
        return False
    if len(lines) > 1:
        return all(line.lstrip().startswith(b"{") for line in lines[1:])
    return record.logged or any(len(member) for member in (record.log, record.time, record.timestamp, record.ts))


def job_line(raw: bytes, number: int) -> JobLine:
    """`raw`: one line without its end, at most LONGEST bytes."""
    return job_lines(raw, number)[0]


def job_lines(raw: bytes, number: int) -> list[JobLine]:
    """The same, for a record that holds several lines: each of them."""
    if not raw.startswith(b"{"):
        return [_line(raw.decode("utf-8", "replace"), number, Moment(), False)]
    stamp, logged, said = Moment(), False, raw.decode("utf-8", "replace")
    for _ in range(2):  # Docker's record may hold a structured logger's
        record = _record(raw) if raw.rstrip().endswith(b"}") else None
        words = record.said() if record is not None else None
        if record is None or words is None:
            break
        said, logged = words, logged or record.logged
        stamp = stamp if stamp.realtime is not None else record.moment()
        if not said.startswith("{"):
            break
        raw = said.encode("utf-8", "replace")
    return [_line(text.rstrip("\r"), number, stamp, logged) for text in said.split("\n")]


def _line(text: str, number: int, stamp: Moment, logged: bool) -> JobLine:
    text = without_colours(text).lstrip("\0")  # a worker that dies while it prints may leave NULs
    if text[:4].isdecimal():
        stamped = _STAMP.match(text)
        if stamped:
            stamp = moment_of(f"{stamped[1]}{stamped[2] or ''}{stamped[3]}")
            text = text[stamped.end() :]
    if text[:1] not in _LABELS:
        return JobLine(text, number, "", None, stamp, None, logged)
    label, rank, pid, text = _labelled(text)
    return JobLine(text, number, label, rank, stamp, pid, logged)


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


# Python's logging in torch: "W1129 14:05:48.582000 26849 torch/..."; NCCL: "node7:26849:27013 [1] NCCL WARN ...".
_GLOG = re.compile(r"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(\.\d{1,6}) +(\d{1,10}) ", re.ASCII)
_NCCL_WRITER = re.compile(r"[\w.-]{1,255}:(\d{1,10}):\d{1,10} \[\d{1,6}\] ", re.ASCII)


def writer_pid(text: str) -> int | None:
    """The pid in a library's own prefix: of the process that wrote the line."""
    found = _GLOG.match(text)
    if found:
        return int(found[7])
    nccl = _NCCL_WRITER.match(text)
    return int(nccl[1]) if nccl else None


def glog_time(text: str) -> float | None:
    """Seconds since the beginning of an unnamed leap year: of torch's prefix, which says no year."""
    found = _GLOG.match(text)
    if found is None:
        return None
    try:
        month, day, hour, minute, second = (int(found[part]) for part in range(1, 6))
        stamp = datetime(2000, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    return (stamp - datetime(2000, 1, 1, tzinfo=timezone.utc)).total_seconds() + float(found[6])


_LOCAL = re.compile(
    r"\s*(?:\[|time ?: ?)?(\d{4})-(\d\d)-(\d\d)[ _T](\d\d):(\d\d):(\d\d)([.,]\d{1,6})?(?!\d|Z|[+-]\d\d:?\d\d)", re.ASCII
)


def local_time(text: str) -> float | None:
    """The date and time that a launcher's line begins with, as seconds since the epoch as if its clock were in UTC: it
    names no zone. "[2026-11-29 14:29:53,739] ...", "time: 2026-11-29_14:28:54 ..."."""
    found = _LOCAL.match(text)
    if found is None:
        return None
    try:
        seconds = datetime(*(int(part) for part in found.groups()[:6]), tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type, misc]
    except (ValueError, OverflowError):
        return None
    return seconds + float(f"0.{(found[7] or '.0')[1:]}")


def _labelled(text: str) -> tuple[str, int | None, int | None, str]:
    at, rank, pid = 0, None, None
    for _ in range(4):  # a label within a label: srun -l around torchrun --tee around torch's own
        found = None
        for label in _LABELS.get(text[at : at + 1], ()):
            found = label.match(text, at)
            if found is not None:
                break
        if found is None:
            break
        named = found.groupdict()
        rank = int(named["rank"]) if named.get("rank") else rank
        pid = int(named["pid"]) if named.get("pid") else pid
        at = found.end()
    return text[:at], rank, pid, text[at:]
