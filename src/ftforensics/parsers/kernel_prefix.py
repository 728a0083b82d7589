"""What stands before a kernel message: /dev/kmsg records, every dmesg and journalctl format, syslog files, containers.

A line is peeled from the outside in, each layer at most once: container wrapper, syslog priority or `dmesg -x`
columns, time, "host kernel:", time again (rsyslog keeps the kernel's own), the printing task. What a layer does not
say stays None. Once a layer has named the sender, an inner one cannot name a better one: text behind "python[7]:" never
becomes the kernel's.

Times. The kernel's clock is CLOCK_MONOTONIC-like (kernel/printk: local_clock, stands still in suspend). Text dates are
in the zone of the machine that wrote them, which only ISO forms state; without it `realtime` is read as UTC and
`accuracy` says 14 hours, the largest offset in use. Localised `dmesg -T` dates and dates without a year (unless `year`
is given) stay None: no time is better than a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import msgspec

from ftforensics.model.kernel import LogLine
from ftforensics.model.moment import Moment

MAX_TEXT = 2048  # of one message; the longest record of the kernel is about 1 KiB (LOG_LINE_MAX)
OVERRUN = "<overrun>"  # a line that a reader of /dev/kmsg puts where read() failed with EPIPE: records are lost here

ZONE_UNKNOWN = 14 * 3600.0
USER = 1  # syslog facility "user": not the kernel

# syslog(3)'s names in the order of their numbers, as dmesg spells them (util-linux, sys-utils/dmesg.c).
_FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("res0", "res1", "res2", "res3"),
    *("local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"),
)
_LEVELS = "emerg|alert|crit|err|warn|notice|info|debug"
_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: at for at, name in enumerate(_MONTH_NAMES, 1)}
_MONTH = "|".join(_MONTH_NAMES)

_RECORD = re.compile(r"(\d{1,9}),(\d{1,20}),(\d{1,20}),([^,;]{0,8})((?:,[^;]{0,200})?);(.*)", re.DOTALL)
_RECORD_BYTES = re.compile(rb"\d{1,9},\d{1,20},\d{1,20},[^,;\n]{0,8}(?:,[^;\n]{0,200})?;")
_CALLER_FIELD = re.compile(r"caller=([TC]\d+)")
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # tab and newline stay

_QUOTE = re.compile(r"(?:> ?){1,4}")
_CRI = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) std(?:out|err) [FP] ")
_COLUMNS = re.compile(rf"({'|'.join(_FACILITIES)}) *:({_LEVELS}) *: ")
_PRIORITY = re.compile(r"<(\d{1,3})>(?:1 )?")
_UPTIME = re.compile(r"\[ {0,11}(\d{1,9}\.\d{1,9})(?: < {0,15}(\d{1,9}\.\d{1,9})>)?\] ?")
_DELTA = re.compile(r"\[ {0,11}(?:\+|< {0,15})(\d{1,9}\.\d{1,9})>?\] ?")
_MINUTE = re.compile(rf"\[({_MONTH}) {{0,2}}(\d{{1,2}}) (\d\d):(\d\d)\] ?")
_CTIME = re.compile(
    rf"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ({_MONTH}) {{1,2}}(\d{{1,2}}) (\d\d):(\d\d):(\d\d) (\d{{4}})"
    r"(?: < {0,15}(\d{1,9}\.\d{1,9})>)?\] ?"
)
# dmesg -T in another language or order. Not an ISO date: that is a program's own log line, and not dmesg's.
_LOCAL_DATE = re.compile(
    r"\[(?!\d{4}-)[^\[\]]{2,48}?\d{1,2}[:.時时]\d\d[:.分]\d\d(?![,.]\d)[^\[\]<]{0,32}(?:< {0,15}\d{1,9}\.\d{1,9}>)?\] ?"
)
_LOCAL_YEAR = re.compile(r"\d{4}")
_ISO = re.compile(
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:([.,])(\d{1,9}))?"
    r"(Z|[+-]\d\d:?\d\d| [A-Z]{2,5}| [+-]\d\d(?:\d\d)?)? "
)
_SYSLOG_DATE = re.compile(rf"({_MONTH}) {{1,2}}(\d{{1,2}}) (\d\d):(\d\d):(\d\d)(?:\.(\d{{1,6}}))? (?:(\d{{4}}) )?")
_EPOCH = re.compile(r"(\d{9,10}\.\d{6}) ")
_SENDER = re.compile(r"([^\s:\[\]<>]{1,255}) ([^\s:\[\]]{1,64}(?:\[\d{1,10}\])?): ?")
_KERNEL_SENDER = re.compile(r"(?:([^\s:\[\]<>]{1,255}) )?kernel: ?")
_ANY_KERNEL = re.compile(r"([^\n]{0,100}?)\bkernel: ?")
_CALLER = re.compile(r" ?\[ {0,8}([TC]\d{1,10})\] ?")
_REPEATED = re.compile(r"message repeated \d{1,9} times: \[ ?(.*)\]\s*\Z", re.DOTALL)
_ARRAY_ITEMS = 65536


class Record(msgspec.Struct, frozen=True):
    """One record of /dev/kmsg. level: 0 to 7; flag: "-", "c" or "+" (a piece of a line); caller: "T123" (task) or
    "C0" (processor) on kernels built with PRINTK_CALLER; dictionary: SUBSYSTEM, DEVICE, as the kernel sent them."""

    line: LogLine
    level: int
    flag: str = "-"
    caller: str | None = None
    dictionary: list[tuple[str, str]] = []


class Peeled:
    """A line with its layers taken off; `lines` gives what an event needs of it."""

    __slots__ = (
        "accuracy",
        "boot_id",
        "caller",
        "facility",
        "flag",
        "host",
        "monotonic",
        "realtime",
        "sequence",
        "text",
    )

    def __init__(self) -> None:
        self.text = ""
        self.facility: int | None = None
        self.sequence: int | None = None
        self.realtime: float | None = None
        self.monotonic: float | None = None
        self.accuracy = 0.0
        self.boot_id: str | None = None
        self.host: str | None = None
        self.caller: str | None = None
        self.flag = "-"

    def moment(self, boot_id: str | None) -> Moment:
        return Moment(self.realtime, self.monotonic, self.accuracy, self.boot_id or boot_id)

    def log_line(self, number: int | None, boot_id: str | None) -> LogLine:
        return LogLine(self.text, number, self.sequence, self.facility, self.moment(boot_id), self.host)


def printable(text: str) -> str:
    """Control characters as dmesg shows them, `\\x01`: one spelling whatever the format kept."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text) if _CONTROL.search(text) else text


def decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def unescaped(text: str) -> str:
    """Undo the kernel's `\\xNN` (Documentation/ABI/testing/dev-kmsg: bytes below 32, above 126 and the backslash)."""
    if "\\x" not in text:
        return text
    raw = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    try:
        return decoded(raw.encode("latin-1"))
    except UnicodeEncodeError:  # the record held bytes that the kernel would have escaped: not its work
        return raw


def parse_record(text: str) -> Record | None:
    """A raw record of /dev/kmsg, "prio,seq,usec,flag[,caller=...];text" and dictionary lines; None if it is not one."""
    head, *rest = text.rstrip("\n").split("\n")
    peeled = peel_record(head)
    if peeled is None:
        return None
    pairs = [line[1:].partition("=") for line in rest if line.startswith(" ")]
    return Record(
        peeled.log_line(None, None),
        int(head[: head.index(",")]) & 7,
        peeled.flag,
        peeled.caller,
        [(key, unescaped(value)) for key, _, value in pairs],
    )


def peel_record(head: str) -> Peeled | None:
    found = _RECORD.match(head)
    if found is None:
        return None
    peeled = Peeled()
    peeled.facility = int(found[1]) >> 3
    peeled.sequence = int(found[2])
    peeled.monotonic = int(found[3]) / 1e6
    peeled.flag = found[4]
    caller = _CALLER_FIELD.search(found[5])
    peeled.caller = caller[1] if caller else None
    peeled.text = printable(unescaped(found[6]))[:MAX_TEXT]
    return peeled


def is_record(raw: bytes) -> bool:
    return _RECORD_BYTES.match(raw) is not None


class Dates:
    """Dates without a year or second, which only the lines before them make whole."""

    def __init__(self, year: int | None) -> None:
        self.year = year  # of the log's end
        self.turns = 0  # new years seen so far
        self.yearless = False  # the last date had no year of its own
        self._last = (0, 0)
        self._minute: float | None = None  # dmesg -e: the last whole minute
        self._since = 0.0

    def dated(self, month: int, day: int) -> int | None:
        """The year of a date; the log runs forward, so a step back is a new year."""
        self.yearless = True
        here = (month, day)
        ahead = (here[0] - self._last[0]) * 31 + here[1] - self._last[1]
        if self._last != (0, 0):
            if ahead < -2:
                self.turns += 1
            elif ahead > 365 and self.turns:  # 31 December again, just after 1 January
                self.turns -= 1
        self._last = here
        return None if self.year is None else self.year + self.turns

    def minute(self, at: float | None) -> float | None:
        self._minute, self._since = at, 0.0
        return at

    def delta(self, seconds: float) -> float | None:
        self._since += seconds
        return None if self._minute is None else self._minute + self._since


def epoch(year: int, month: int, day: int, hour: int, minute: int, second: int, zone: timezone) -> float | None:
    try:
        at = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone)
    except ValueError:
        return None
    return at.timestamp()


def without_wrapper(text: str) -> str:
    """Without what a container runtime (CRI) wrote in front."""
    found = _CRI.match(text)
    return text[found.end() :] if found else text


def peel(text: str, dates: Dates) -> Peeled:
    """Take the layers off one line of text (no record of /dev/kmsg, no JSON)."""
    peeled = Peeled()
    dates.yearless = False
    at = 0
    if found := _QUOTE.match(text):
        at = found.end()
    if found := _CRI.match(text, at):
        at = found.end()
    if found := _COLUMNS.match(text, at):
        peeled.facility = _FACILITIES.index(found[1])
        at = found.end()
    elif found := _PRIORITY.match(text, at):
        peeled.facility = int(found[1]) >> 3
        at = found.end()
    at = _peel_times(peeled, text, at, dates)
    if found := _CALLER.match(text, at):
        peeled.caller = found[1]
        at = found.end()
    peeled.text = printable(text[at : at + MAX_TEXT])
    if found := _REPEATED.match(peeled.text):
        peeled.text = found[1]
    return peeled


def _peel_times(peeled: Peeled, text: str, at: int, dates: Dates) -> int:
    if text.startswith("[", at):
        start = at
        at = _peel_brackets(peeled, text, at, dates)
        if at != start and (found := _KERNEL_SENDER.match(text, at)):  # journalctl -o short-monotonic
            peeled.host = found[1]
            at = found.end()
        return at
    if found := _ISO.match(text, at):
        _iso(peeled, found)
        if found[7] == ",":  # dmesg's own; nobody else puts a comma there
            return found.end()
        return _peel_sender(peeled, text, found.end(), dates)
    if found := _SYSLOG_DATE.match(text, at):
        month, day = _MONTHS[found[1]], int(found[2])
        year = int(found[7]) if found[7] else dates.dated(month, day)
        if year is not None:
            base = epoch(year, month, day, int(found[3]), int(found[4]), int(found[5]), timezone.utc)
            if base is not None:
                peeled.realtime = base + (float(f"0.{found[6]}") if found[6] else 0.0)
                peeled.accuracy = ZONE_UNKNOWN
        return _peel_sender(peeled, text, found.end(), dates)
    if found := _EPOCH.match(text, at):  # journalctl -o short-unix
        peeled.realtime, peeled.accuracy = float(found[1]), 0.001
        return _peel_sender(peeled, text, found.end(), dates)
    if (found := _ANY_KERNEL.match(text, at)) and _foreign_date(found[1]):
        return _peel_brackets(peeled, text, found.end(), dates)
    return at


def _foreign_date(prefix: str) -> bool:
    """What stands before "kernel:" is a date in words we do not know, or nothing at all."""
    return prefix == "" or (prefix.endswith(" ") and re.search(r"\d\d?:\d\d", prefix) is not None)


def _peel_sender(peeled: Peeled, text: str, at: int, dates: Dates) -> int:
    found = _SENDER.match(text, at)
    if found is None:
        return at
    peeled.host = found[1]
    if found[2] == "kernel":
        return _peel_brackets(peeled, text, found.end(), dates)
    peeled.facility = peeled.facility or USER  # another program's words, whatever they look like
    return found.end()


def _peel_brackets(peeled: Peeled, text: str, at: int, dates: Dates) -> int:
    """dmesg's bracketed times: up to two of them (`--time-format` may be given twice since util-linux 2.40)."""
    for _ in range(2):
        if not text.startswith("[", at):
            break
        if found := _UPTIME.match(text, at):
            peeled.monotonic = float(found[1])
        elif found := _DELTA.match(text, at):
            moved = dates.delta(float(found[1]))
            if moved is not None and peeled.realtime is None:
                peeled.realtime, peeled.accuracy = moved, ZONE_UNKNOWN
        elif found := _MINUTE.match(text, at):
            month, day = _MONTHS[found[1]], int(found[2])
            year = dates.dated(month, day)
            whole = None if year is None else epoch(year, month, day, int(found[3]), int(found[4]), 0, timezone.utc)
            peeled.realtime = dates.minute(None if whole is None else whole + 30)
            peeled.accuracy = ZONE_UNKNOWN if whole is not None else 0.0
        elif found := _CTIME.match(text, at):
            peeled.realtime = epoch(
                int(found[6]),
                _MONTHS[found[1]],
                int(found[2]),
                int(found[3]),
                int(found[4]),
                int(found[5]),
                timezone.utc,
            )
            peeled.accuracy = ZONE_UNKNOWN if peeled.realtime is not None else 0.0
        elif (found := _LOCAL_DATE.match(text, at)) and _LOCAL_YEAR.search(found[0]):
            pass  # the date is in there, in a language that is not ours
        else:
            break
        at = found.end()
    return at


def _iso(peeled: Peeled, found: re.Match[str]) -> None:
    written = (found[9] or "").strip()
    zone: timezone | None = None
    if written in ("Z", "UTC", "GMT"):
        zone = timezone.utc
    elif written[:1] in ("+", "-"):
        digits = written[1:].replace(":", "")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
        if offset < timedelta(hours=24):
            zone = timezone(-offset if written[0] == "-" else offset)
    year, month, day, hour, minute, second = (int(found[at]) for at in range(1, 7))
    at = epoch(year, month, day, hour, minute, second, zone or timezone.utc)
    if at is None:
        return
    peeled.realtime = at + (float(f"0.{found[8]}") if found[8] else 0.0)
    # dmesg adds one constant to the kernel's clock: a second off between two calls, hours after a suspend.
    peeled.accuracy = ZONE_UNKNOWN if zone is None else (2.0 if found[7] == "," else 1.0)


class JournalEntry(msgspec.Struct):
    """The members of `journalctl -o json` that matter here; systemd.journal-fields(7). All numbers come as strings."""

    message: str | list[int] | None = msgspec.field(name="MESSAGE", default=None)
    facility: str | None = msgspec.field(name="SYSLOG_FACILITY", default=None)
    identifier: str | None = msgspec.field(name="SYSLOG_IDENTIFIER", default=None)
    transport: str | None = msgspec.field(name="_TRANSPORT", default=None)
    host: str | None = msgspec.field(name="_HOSTNAME", default=None)
    boot: str | None = msgspec.field(name="_BOOT_ID", default=None)
    source_monotonic: str | None = msgspec.field(name="_SOURCE_MONOTONIC_TIMESTAMP", default=None)
    realtime: str | None = msgspec.field(name="__REALTIME_TIMESTAMP", default=None)
    log: str | None = None  # Docker's json-file driver
    time: str | float | None = None


_entry = msgspec.json.Decoder(JournalEntry)


def journal_entry(raw: bytes) -> JournalEntry | None:
    try:
        return _entry.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def peel_journal(entry: JournalEntry) -> Peeled:
    peeled = Peeled()
    message = entry.message
    if isinstance(message, list):
        message = decoded(bytes(value & 255 for value in message[:_ARRAY_ITEMS]))
    peeled.text = printable((message or "")[:MAX_TEXT])
    facility = _whole(entry.facility)
    # Only what journald itself read from /dev/kmsg may be the kernel's: a sender on /dev/log can claim facility 0.
    if entry.transport == "kernel" or (entry.transport is None and entry.identifier == "kernel"):
        peeled.facility = facility if facility is not None else 0
    elif entry.transport is not None or entry.identifier is not None:
        peeled.facility = facility or USER
    else:
        peeled.facility = facility
    at = _whole(entry.realtime)
    if at is not None:
        peeled.realtime, peeled.accuracy = at / 1e6, 1.0  # when journald received it
    clock = _whole(entry.source_monotonic)
    peeled.monotonic = None if clock is None else clock / 1e6
    peeled.host = entry.host
    if entry.boot and re.fullmatch(r"[0-9a-f]{32}", entry.boot):  # as /proc/sys/kernel/random/boot_id spells it
        b = entry.boot
        peeled.boot_id = f"{b[:8]}-{b[8:12]}-{b[12:16]}-{b[16:20]}-{b[20:]}"
    return peeled


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 19 else None


class DmesgEntry(msgspec.Struct):
    """An object of `dmesg --json`. pri: facility * 8 + level, or the level's name together with `fac`."""

    msg: str
    pri: int | str | None = None
    fac: str | None = None
    time: float | str | None = None


_dmesg = msgspec.json.Decoder(DmesgEntry)


def dmesg_entry(raw: bytes) -> DmesgEntry | None:
    try:
        return _dmesg.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def peel_dmesg(entry: DmesgEntry) -> Peeled:
    peeled = Peeled()
    if isinstance(entry.pri, int):
        peeled.facility = entry.pri >> 3
    elif entry.fac is not None:
        peeled.facility = _FACILITIES.index(entry.fac) if entry.fac in _FACILITIES else USER
    if isinstance(entry.time, float):
        peeled.monotonic = entry.time
    elif isinstance(entry.time, str):  # -J with --time-format
        inner = peel(f"{entry.time} ", Dates(None))
        peeled.realtime, peeled.monotonic, peeled.accuracy = inner.realtime, inner.monotonic, inner.accuracy
    peeled.text = printable(entry.msg[:MAX_TEXT])
    return peeled


def messages(text: str, *, syslog: bool) -> Iterator[str]:
    """The single messages of one record: rsyslog writes a line feed as `#012` and a tab as `#011`."""
    if syslog and "#01" in text:
        text = text.replace("#012", "\n").replace("#011", "\t")
    if "\n" not in text:
        yield text
        return
    yield from text.split("\n")
