"""One line of a service's log: what it says, who said it and when, without the log's own prefix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from ftforensics.model.basics import Cite
from ftforensics.model.moment import Moment
from ftforensics.parsers.launcher_line import LONGEST, job_line, moment_of, without_colours

_LONGEST = 4096
_EXCERPT = 300

# journalctl short ("Nov 29 14:29:01", no year and no zone, so no Moment), short-iso and rsyslog's ISO, short-unix,
# short-monotonic; then host and "name[pid]:".
_SYSLOG = re.compile(
    r"(?:<\d{1,3}>)?(?:(?P<short>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?)"
    r"|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d))"
    r"|(?P<unix>\d{9,11}\.\d{1,9})"
    r"|\[ *(?P<monotonic>\d{1,9}\.\d{1,9})\])"
    r" (?P<host>\S{1,255}) (?P<speaker>[^\s\[:]{1,100}(?:\([^)\s]{1,60}\))?)(?:\[\d{1,10}\])?: "
)


class NoticeLine(msgspec.Struct, frozen=True):
    """speaker: the syslog identifier ("systemd-oomd"); None where the line has no such prefix."""

    text: str
    number: int
    moment: Moment = Moment()
    host: str | None = None
    speaker: str | None = None

    def cite(self, authority: str, path: str | None) -> Cite:
        said = f"{self.speaker}: {self.text}" if self.speaker else self.text
        return Cite(authority, f"{path}:{self.number}" if path else f"line {self.number}", said[:_EXCERPT])


def document_cite(authority: str, path: str | None, where: str, said: str) -> Cite:
    """where: the place within a JSON document, "items[0].status"."""
    return Cite(authority, f"{path}: {where}" if path else where, said[:_EXCERPT])


class _JournalEntry(msgspec.Struct):
    """journalctl -o json; a message that is not UTF-8 is a list of its bytes."""

    MESSAGE: str | list[int] | None = None
    SYSLOG_IDENTIFIER: str | None = None
    hostname: str | None = msgspec.field(default=None, name="_HOSTNAME")
    realtime: str | None = msgspec.field(default=None, name="__REALTIME_TIMESTAMP")
    monotonic: str | None = msgspec.field(default=None, name="__MONOTONIC_TIMESTAMP")
    boot: str | None = msgspec.field(default=None, name="_BOOT_ID")


def notice_lines(text: str) -> Iterator[NoticeLine]:
    return numbered_lines(enumerate(text.split("\n"), 1))


def numbered_lines(lines: Iterable[tuple[int, str]]) -> Iterator[NoticeLine]:
    for number, raw in lines:
        if raw.startswith('{"') and '"MESSAGE"' in raw[:LONGEST]:
            entry = _journal(raw[:LONGEST], number)
            if entry is not None:
                yield entry
                continue
        yield _plain(without_colours(raw[:_LONGEST].rstrip("\r")), number)


def _plain(text: str, number: int) -> NoticeLine:
    syslog = _SYSLOG.match(text)
    if syslog is None:
        line = job_line(text.encode("utf-8", "replace"), number)
        return NoticeLine(line.text, number, line.moment)
    moment = Moment()
    if syslog["iso"]:
        moment = moment_of(syslog["iso"])
    elif syslog["unix"]:
        moment = Moment(realtime=float(syslog["unix"]), accuracy=1.0)
    elif syslog["monotonic"]:
        moment = Moment(monotonic=float(syslog["monotonic"]))
    return NoticeLine(text[syslog.end() :], number, moment, syslog["host"], syslog["speaker"])


def _journal(text: str, number: int) -> NoticeLine | None:
    try:
        entry = msgspec.json.decode(text, type=_JournalEntry)
    except (msgspec.DecodeError, UnicodeError):
        return None
    message = entry.MESSAGE
    if isinstance(message, list):
        message = bytes(byte & 255 for byte in message).decode("utf-8", "replace")
    if message is None:
        return None
    boot = entry.boot
    if boot is not None and re.fullmatch(r"[0-9a-f]{32}", boot):  # as /proc/sys/kernel/random/boot_id has it
        boot = f"{boot[:8]}-{boot[8:12]}-{boot[12:16]}-{boot[16:20]}-{boot[20:]}"
    moment = Moment(
        realtime=_microseconds(entry.realtime),
        monotonic=_microseconds(entry.monotonic),
        accuracy=0.1,  # when journald got it
        boot_id=boot,
    )
    return NoticeLine(message[:_LONGEST], number, moment, entry.hostname, entry.SYSLOG_IDENTIFIER)


def _microseconds(text: str | None) -> float | None:
    return int(text) / 1e6 if text is not None and text.isdecimal() and len(text) < 19 else None
