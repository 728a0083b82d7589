"""Any kernel log, whatever printed or stored it, as one `KernelLog`.

    read_kernel_log(chunks)          every format that docs/kernel-log.md lists, recognised line by line
    looks_like_kernel_log(head)      for inputs that are recognised by content
    parse_record(text)               one raw record of /dev/kmsg

Most lines of a log do not matter. `kernel_sieve` finds those with one of a few words, and only they are looked at;
after the head of a report also what follows. Memory is bounded by the events kept, whatever the size of the input.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

import msgspec

from ftforensics.model.basics import Gap
from ftforensics.model.kernel import Fault, KernelEvent, KernelLog, LogLine, Lost, OomKill, OomTask
from ftforensics.model.moment import Moment
from ftforensics.parsers import kernel_events, kernel_fault, kernel_oom
from ftforensics.parsers import kernel_prefix as prefix
from ftforensics.parsers.kernel_fault import FatalSignal
from ftforensics.parsers.kernel_oom import Kill, OomReports
from ftforensics.parsers.kernel_prefix import Dates, Peeled, Record, parse_record
from ftforensics.parsers.kernel_sieve import Sieve

__all__ = ["OVERRUN", "Record", "looks_like_kernel_log", "parse_record", "read_kernel_log"]

OVERRUN = prefix.OVERRUN

EVENTS_KEPT = 100_000
CHUNK = 1 << 17
HEAD = 1 << 16  # what the format is recognised by
PASTE = 1 << 20  # an input up to this size may be a terminal's text, wrapped at its width
MAX_LINE = 1 << 22
ANCHORS = (*kernel_oom.ANCHORS, *kernel_fault.ANCHORS, *kernel_events.ANCHORS, b"Linux version ")
EARLIER_BOOT = "earlier boot"  # in place of a boot id: so many restarts before the end of the log
AFTER_FAULT = 10
FIRST_LINES = 5
EDGE = 200  # lines in which the first and the last time are looked for
AT_START = 200  # messages read whatever they hold: a log may begin inside a report

_ANCHOR = re.compile(b"|".join(re.escape(word) for word in ANCHORS))
_INT_ARRAY = re.compile(rb'"MESSAGE"\s*:\s*\[')
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,16}[mK]")
_RELATIVE = re.compile(
    rb"(?m)^(?:\w+ *:\w+ *: )?\[(?: *\+\d+\.\d{6}|< *\d+\.\d{6}>|[A-Z][a-z]{2} {0,2}\d{1,2} \d\d:\d\d)\] "
)
_DMESG_JSON = re.compile(rb'\s*\{\s*"dmesg"\s*:\s*\[')

Draft = Kill | FatalSignal | kernel_events.OopsDraft | kernel_events.MismatchDraft


class Slot:
    """An event in its place, perhaps still a draft, with what its moment's year and boot depend on."""

    __slots__ = ("boot", "content", "yearless")

    def __init__(self, content: KernelEvent | Draft, boot: int, yearless: bool) -> None:
        self.content, self.boot, self.yearless = content, boot, yearless


def read_kernel_log(
    data: Iterable[bytes] | bytes,
    *,
    source: str = "file",
    path: str | None = None,
    live: bool = False,
    boot_id: str | None = None,
    host: str | None = None,
    year: int | None = None,
    since: float | None = None,
) -> KernelLog:
    """Read a kernel log. Never raises for what is in it.

    data: the bytes, or any pieces of them in order (the cuts do not matter); boot_id, host: of the log, where the
    caller knows; year: the one in which the log ends, for syslog dates; since: seconds since the epoch, events that are
    surely older are left out.
    """
    reader = _Reader(boot_id, year, since)
    chunks = _chunks(data)
    head = b""
    for piece in chunks:
        head += piece
        if len(head) > PASTE:
            break
    reader.read(head, chunks, whole=len(head) <= PASTE)
    return reader.finish(source=source, path=path, live=live, host=host)


def _chunks(data: Iterable[bytes] | bytes) -> Iterator[bytes]:
    """Pieces of CHUNK bytes or a little more."""
    if isinstance(data, bytes):
        for at in range(0, len(data), CHUNK):
            yield data[at : at + CHUNK]
        return
    held: list[bytes] = []
    size = 0
    for piece in data:
        held.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _whole_lines(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks of whole lines. A line is cut at MAX_LINE: nothing here is that long, and a disk image has no lines."""
    carry = b""
    skipping = False
    piece: bytes | None = head
    while piece is not None:
        if skipping:
            end = piece.find(b"\n")
            piece = b"" if end < 0 else piece[end:]
            skipping = end < 0
        block = carry + piece
        cut = block.rfind(b"\n") + 1
        carry = block[cut:]
        if len(carry) > MAX_LINE:
            carry, skipping = carry[:MAX_LINE], True
        if cut:
            yield block[:cut]
        piece = next(chunks, None)
    if carry:
        yield carry


class _Reader:
    def __init__(self, boot_id: str | None, year: int | None, since: float | None) -> None:
        self.boot_id = boot_id
        self.since = since
        self.sieve = Sieve((*ANCHORS, b'"MESSAGE":[', b'"MESSAGE" : ['))
        self.dates = Dates(year)
        self.oom = OomReports()
        self.single = kernel_events.SingleEvents()
        self.fatal: FatalSignal | None = None
        self.fatal_at = 0
        self.slots: list[Slot] = []
        self.dropped = 0
        self.appetite = AT_START
        self.number = 0  # of the last line read
        self.ordinal = 0  # of the last message
        self.messages = 0
        self.boots = 0
        self.clock: float | None = None  # the highest of this boot
        self.host: str | None = None
        self.first: Moment | None = None
        self.last: Moment | None = None
        self.sequence: int | None = None
        self.continuous = True
        self.pending: tuple[Peeled, int] | None = None
        self.placeless: deque[Slot] = deque(maxlen=8)  # faults that may still learn their file

    # The formats.

    def read(self, head: bytes, chunks: Iterator[bytes], *, whole: bool) -> None:
        begin = head[: min(HEAD, PASTE)]  # as much as there is however the input was cut
        sample = _COLOUR.sub(b"", begin)
        start = sample.lstrip()
        blocks = _whole_lines(head, chunks)
        while start.startswith(OVERRUN.encode()):
            start = start.partition(b"\n")[2]
        if prefix.is_record(start):
            for number, raw in self._lines(blocks):
                self._record(raw, number)
            self._flush()
        elif _DMESG_JSON.match(start):
            self._dmesg_json(blocks)
        elif _RELATIVE.search(sample):
            for number, raw in self._lines(blocks):
                self._text(raw, number, everything=True)
        elif whole:
            for number, raw in _unwrapped(head):
                self._text(raw, number, everything=False)
            self._edges(head, head)
            self.messages = sum(1 for raw in head.split(b"\n") if raw.strip())
        else:
            tail = b""
            for block in blocks:
                self._scan(block)
                tail = (tail + block)[-HEAD:]
            self.messages = self.number
            self._edges(begin, tail)

    def _lines(self, blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
        for block in blocks:
            for raw in block.split(b"\n") if not block.endswith(b"\n") else block[:-1].split(b"\n"):
                self.number += 1
                yield self.number, raw[:MAX_LINE]

    def _scan(self, block: bytes) -> None:
        """Only the lines with an anchor, and those that a report leads to expect."""
        kept = self.sieve.keeps(block)
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        before = self.number
        at = index = 0
        while at < len(lines):
            if self.appetite <= 0 and not self.oom.hungry:
                while index < len(kept) and kept[index] < at:
                    index += 1
                if index == len(kept) or kept[index] >= len(lines):
                    break
                at = kept[index]
            self._text(lines[at][:MAX_LINE], before + at + 1, everything=False)
            at += 1
        self.number = before + len(lines)

    def _record(self, raw: bytes, number: int) -> None:
        if raw.startswith(b" ") or not raw.strip():
            return  # dictionary of the record before
        text = raw.rstrip(b"\r").decode("utf-8", "backslashreplace")
        if text == OVERRUN:
            self._flush()
            self.continuous = False
            self._add(Lost(LogLine(text, number), "overrun"))
            return
        peeled = prefix.peel_record(text)
        if peeled is None:
            self.continuous = False
            return
        self._count(peeled)
        sequence = peeled.sequence
        if self.sequence is not None and sequence is not None and sequence != self.sequence + 1:
            self.continuous = False
            if sequence > self.sequence + 1:
                self._flush()
                self._add(Lost(peeled.log_line(number, self.boot_id), "sequence", sequence - self.sequence - 1))
        self.sequence = sequence
        # "+" goes on with the record before; so does "c" since 4.9 (a piece that printk could not join), while up to
        # 4.8 it begins a line. A piece that goes on starts with a blank, as far as seen. The place of a fault may
        # follow another task's record (seen on 6.18): `_place` finds the fault it belongs to.
        held = self.pending
        joins = peeled.flag.startswith("+") or (
            peeled.flag.startswith("c") and peeled.text.startswith(" ") and kernel_fault.place(peeled.text) is None
        )
        if held is not None and joins and held[0].caller == peeled.caller and held[0].facility == peeled.facility:
            held[0].text = (held[0].text + peeled.text)[: prefix.MAX_TEXT]
            return
        self._flush()
        self.pending = (peeled, number)

    def _flush(self) -> None:
        if self.pending is not None:
            peeled, number = self.pending
            self.pending = None
            self._offer(peeled, number)

    def _dmesg_json(self, blocks: Iterator[bytes]) -> None:
        members: list[bytes] = []
        start = 0
        for number, raw in self._lines(blocks):
            if raw.count(b'"msg"') > 1 or (b'"msg"' in raw and raw.rstrip(b", \r\t").endswith(b"}")):
                for piece in _objects(raw):
                    self._dmesg_object(piece, number)
                continue
            stripped = raw.strip()
            if stripped.startswith(b'"'):
                if not members:
                    start = number
                if len(members) < 16:
                    members.append(stripped.rstrip(b","))
            elif stripped.startswith(b"}") and members:
                self._dmesg_object(b"{" + b",".join(members) + b"}", start)
                members = []
            if stripped.endswith(b"{"):
                members = []
        # An object without its end is a cut file: what it says may be cut as well.

    def _dmesg_object(self, raw: bytes, number: int) -> None:
        entry = prefix.dmesg_entry(raw)
        if entry is None:
            return
        peeled = prefix.peel_dmesg(entry)
        self._count(peeled)
        self._offer(peeled, number)

    def _text(self, raw: bytes, number: int, *, everything: bool) -> None:
        wanted = self.appetite > 0 or self.oom.hungry or _ANCHOR.search(raw) is not None
        if not wanted and raw.lstrip()[:1] == b"{":
            wanted = _INT_ARRAY.search(raw) is not None
        if not wanted and not everything:
            return
        peeled = self._peel(raw, self.dates)
        if peeled is None:
            return
        if everything:
            self._count(peeled)
        if wanted:
            self._offer(peeled, number)

    def _peel(self, raw: bytes, dates: Dates) -> Peeled | None:
        dates.yearless = False
        if raw.lstrip()[:1] == b"{":
            entry = prefix.journal_entry(raw.strip())
            if entry is not None and entry.log is not None:
                return prefix.peel(entry.log.rstrip("\r\n"), dates)
            if entry is not None and entry.message is not None:
                return prefix.peel_journal(entry)
        text = prefix.decoded(_COLOUR.sub(b"", raw).rstrip(b"\r\n"))
        if prefix.is_record(raw):
            return prefix.peel_record(text)
        return prefix.peel(text, dates)

    def _edges(self, begin: bytes, end: bytes) -> None:
        """The first and the last time in a text, of its first and last lines."""
        first, _ = self._first_moment(begin[:HEAD].split(b"\n")[:EDGE])
        cut = len(end) >= HEAD  # then its first line may be the rest of one
        last, yearless = self._first_moment(reversed(end[-HEAD:].split(b"\n")[1 if cut else 0 :][-EDGE:]))
        if yearless and last is not None and last.realtime is not None:
            date = datetime.fromtimestamp(last.realtime, timezone.utc)
            self.dates.dated(date.month, date.day)  # the end of the log may be in a newer year than its last event
            if first is not None:
                first = _moved(first, -self.dates.turns, None)
        self.first, self.last = first, last

    def _first_moment(self, lines: Iterable[bytes]) -> tuple[Moment | None, bool]:
        """And whether its date had no year of its own."""
        dates = Dates(self.dates.year)
        for raw in lines:
            peeled = self._peel(raw, dates)
            if peeled is not None and (peeled.realtime is not None or peeled.monotonic is not None):
                return peeled.moment(self.boot_id), dates.yearless
        return None, False

    # The messages.

    def _count(self, peeled: Peeled) -> None:
        self.messages += 1
        if peeled.realtime is not None or peeled.monotonic is not None:
            moment = peeled.moment(self.boot_id)
            self.first = self.first or moment
            self.last = moment

    def _offer(self, peeled: Peeled, number: int) -> None:
        if self.host is None and peeled.host is not None:
            self.host = peeled.host
        self.appetite -= 1
        self.ordinal += 1
        if peeled.text.startswith("Linux version ") and peeled.facility in (None, 0) and self._restarted(peeled):
            self.boots += 1
            self.clock = None
        if peeled.monotonic is not None:
            self.clock = max(peeled.monotonic, self.clock or 0.0)
        whole = peeled.text
        for text in prefix.messages(whole, syslog=peeled.host is not None):
            peeled.text = text
            self._message(peeled.log_line(number, self.boot_id), peeled.caller)

    def _message(self, line: LogLine, caller: str | None) -> None:
        text = line.text
        if not text:
            return
        moment = line.moment
        if self.since is not None and moment.realtime is not None and moment.realtime + moment.accuracy < self.since:
            return
        cpu = kernel_oom.cpu_line(text)
        if cpu is not None:
            self._cpu(cpu, caller)
            return
        kill = self.oom.take(line, caller, self.ordinal)
        if kill is not None:
            self._add(kill)
            self.appetite = kernel_oom.AFTER_VICTIM
            return
        if "oom-kill" in text:
            self.appetite = kernel_oom.AFTER_HEADER if "invoked" in text else kernel_oom.AFTER_VICTIM
        elif self.oom.goes_on(text):
            self.appetite = max(self.appetite, kernel_oom.IN_DUMP)
            return
        fault = kernel_fault.fault(line)
        if isinstance(fault, FatalSignal):
            self.fatal, self.fatal_at = fault, self.ordinal
            self.appetite = max(self.appetite, kernel_oom.NEAR)
            self._add(fault)
            return
        if fault is not None:
            self._add(fault)
            if fault.file is None:
                self.placeless.append(self.slots[-1])
                self.appetite = max(self.appetite, AFTER_FAULT)
            return
        if text.startswith(" "):
            self._place(text)
            return
        event = self.single.take(line, caller, self.ordinal)
        if isinstance(event, kernel_events.OopsDraft):
            self.appetite = max(self.appetite, kernel_events.AFTER_OOPS)
        if event is not None:
            self._add(event)

    def _restarted(self, peeled: Peeled) -> bool:
        """The kernel's first line, or nearly: early microcode and console lines may stand before it."""
        if self.clock is None or peeled.monotonic is None:
            return self.ordinal > FIRST_LINES
        return self.clock > peeled.monotonic + 1

    def _place(self, text: str) -> None:
        """ " in FILE[MAP]" that stands apart from its fault: of the one whose ip lies in that mapping."""
        place = kernel_fault.place(text)
        if place is None:
            return
        for slot in reversed(self.placeless):
            fault = slot.content
            if isinstance(fault, Fault) and fault.ip is not None and 0 <= fault.ip - place.base < place.size:
                slot.content = kernel_fault.placed(fault, place)
                self.placeless.remove(slot)
                return

    def _cpu(self, cpu: kernel_oom.CpuLine, caller: str | None) -> None:
        """The line belongs to whatever was printed last and still wants one."""
        report = self.oom.wants_cpu(cpu, caller, self.ordinal)
        failure = self.single.wants_cpu(caller, self.ordinal)
        fatal = self.fatal
        fatal_at = self.fatal_at if fatal is not None and self.ordinal - self.fatal_at < kernel_oom.NEAR else -1
        newest = max(report.ordinal if report is not None else -1, failure, fatal_at)
        if newest < 0:
            return
        if report is not None and report.ordinal == newest:
            report.trigger_pid, report.kernel = cpu.pid, cpu.kernel
        elif failure == newest:
            self.single.cpu(cpu.pid, cpu.comm)
        elif fatal is not None:
            fatal.tid = cpu.pid if fatal.tid is None else fatal.tid
            fatal.comm = cpu.comm
            self.fatal = None

    def _add(self, content: KernelEvent | Draft) -> None:
        self.slots.append(Slot(content, self.boots, self.dates.yearless))
        if len(self.slots) >= 2 * EVENTS_KEPT:
            self.dropped += EVENTS_KEPT
            del self.slots[:EVENTS_KEPT]

    # The end.

    def finish(self, *, source: str, path: str | None, live: bool, host: str | None) -> KernelLog:
        if len(self.slots) > EVENTS_KEPT:
            self.dropped += len(self.slots) - EVENTS_KEPT
            del self.slots[:-EVENTS_KEPT]
        tables: dict[int, list[OomTask]] = {}
        events: list[KernelEvent] = []
        for slot in self.slots:
            event = _finished(slot.content, tables)
            if event is not None:
                events.append(self._settled(event, slot))
        if self.boots and self.first is not None:
            self.first = _moved(self.first, 0, f"{EARLIER_BOOT} {self.boots}")
        gaps: list[Gap] = []
        if self.dropped:
            gaps.append(
                Gap(source, f"only the last {EVENTS_KEPT} of {self.dropped + EVENTS_KEPT} events were kept", None)
            )
        if self.oom.rows_dropped:
            gaps.append(Gap(source, f"task tables beyond {kernel_oom.TASKS_KEPT} rows were not kept", None))
        return KernelLog(
            source=source,
            path=path,
            live=live,
            boot_id=self.boot_id,
            host=host or self.host,
            first=self.first,
            last=self.last,
            gap_free=self.sequence is not None and self.continuous,
            lines=self.messages,
            events=events,
            oom_blocks=self.oom.blocks,
            gaps=gaps,
        )

    def _settled(self, event: KernelEvent, slot: Slot) -> KernelEvent:
        """Give the moments their year and their boot, which only the rest of the log tells."""
        years = -self.dates.turns if slot.yearless else 0
        boot = None if self.boots == slot.boot else f"{EARLIER_BOOT} {self.boots - slot.boot}"
        if not years and boot is None:
            return event
        lines = {"line": event.line}
        if isinstance(event, OomKill):
            lines |= {name: line for name in ("header", "limits", "constraint") if (line := getattr(event, name))}
        moved = {
            name: msgspec.structs.replace(line, moment=_moved(line.moment, years, boot)) for name, line in lines.items()
        }
        return msgspec.structs.replace(event, **moved)


def _moved(moment: Moment, years: int, boot: str | None) -> Moment:
    at = moment.realtime
    if at is not None and years:
        was = datetime.fromtimestamp(at, timezone.utc)
        # 29 February in a year without one: the log's years were guessed from a wrong end, so say nothing
        try:
            at = was.replace(year=was.year + years).timestamp()
        except ValueError:
            at = None
    return msgspec.structs.replace(moment, realtime=at, boot_id=boot or moment.boot_id)


def _finished(content: KernelEvent | Draft, tables: dict[int, list[OomTask]]) -> KernelEvent | None:
    if isinstance(content, Kill):
        return kernel_oom.finished(content, tables)
    if isinstance(content, FatalSignal):
        return kernel_fault.fatal_signal(content)
    if isinstance(content, (kernel_events.OopsDraft, kernel_events.MismatchDraft)):
        return content.finished()
    return content


def _objects(raw: bytes) -> Iterator[bytes]:
    """The innermost objects of compact JSON; braces inside strings are skipped."""
    depth_start = -1
    for found in re.finditer(rb'"(?:[^"\\]|\\.)*"|[{}]', raw, re.DOTALL):
        if found[0] == b"{":
            depth_start = found.start()
        elif found[0] == b"}" and depth_start >= 0:
            yield raw[depth_start : found.end()]
            depth_start = -1


_PREFIXED = re.compile(
    rb"[\[<]|\d{4}-\d\d-\d\dT|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) |"
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-|kern +:|\{"
)
_QUOTED = re.compile(rb"[ \t]*(?:> ?)+")
NARROWEST = 40  # columns of a terminal; a log of shorter lines is not a wrapped one
BLANKS = 10  # so many at the end of a full line may have been dropped


def _unquoted(raw: bytes) -> bytes:
    found = _QUOTED.match(raw)
    return raw[found.end() :] if found else raw


def _unwrapped(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers; what a terminal or a mail program cut at its width is joined again.

    A message's rest has no prefix and stands behind a line that had no room for it. Only if that holds for nearly all
    lines without a prefix is the text a wrapped one.
    """
    lines = [_unquoted(raw).rstrip(b"\r") for raw in text.split(b"\n")]
    bare = [at for at, raw in enumerate(lines) if at and raw.strip() and _PREFIXED.match(raw.lstrip()) is None]
    # A word longer than a line stands alone and says nothing of the width.
    before = [lines[at - 1] for at in bare if b" " in lines[at - 1].strip() or len(bare) == 1]
    width = max((len(raw) for raw in before), default=0)
    full = sum(
        len(lines[at - 1]) > width - BLANKS or len(lines[at - 1].rstrip()) + 1 + len(lines[at].split()[0]) > width
        for at in bare
    )
    if not bare or width < NARROWEST or 2 * len(bare) > len(lines) or 10 * full < 9 * len(bare):
        yield from enumerate(lines, 1)
        return
    # A terminal cuts anywhere, so most of its lines have the full width; a mail program keeps words whole.
    by_width = 2 * sum(len(raw) == width for raw in before) >= len(before)
    rest = set(bare)
    number, joined = 1, b""
    for at, raw in enumerate(lines):
        if at not in rest:
            if at:
                yield number, joined
            number, joined = at + 1, raw
        elif by_width and len(lines[at - 1]) >= width:
            joined += raw
        else:  # a blank at the width was dropped, or words were kept whole
            joined = joined.rstrip() + b" " + raw.lstrip()
    yield number, joined


_KERNEL_WORDS = re.compile(
    r".{0,64} invoked oom-killer: gfp_mask=|oom-kill:constraint=|(?:.{1,64}: )?Kill(?:ed)? process \d+,? .{0,20}\(|"
    r".{0,64}\[\d+\]: segfault at [0-9a-f]+ r?ip|traps: .{0,64}\[\d+\] |NVRM: |Linux version \d|oom_reaper: |"
    r"Memory cgroup stats for /|Mem-Info:|Memory failure: 0x|Code: (?:[0-9a-f]{2} ){8}|CPU: \d+ .{0,20}PID: \d+ Comm: |"
    r"Call Trace:|\w{1,64}: \d+ callbacks suppressed|\[ *\d{1,10}\] +\d+ +\d+ +\d+ +\d+ +\d+ "
)
_DUMP_WORDS = re.compile(  # of stacks, registers and memory statistics
    r"\s*(?:\? )?[\w.]{1,99}\+0x[0-9a-f]+/0x|RIP: |RSP: |[RE][A-Z0-9]{2}: [0-9a-f]{8}|\s*</?(?:TASK|IRQ)>|"
    r"(?:memory|kmem|swap|memory\+swap): usage \d+kB|(?:total|hierarchical|workingset|inactive|active)_\w+ \d+\Z"
)
_DMESG_PREFIX = re.compile(
    r"(?:\w{3,8} *:\w{3,6} *: )?(?:<\d{1,3}>)?\[ {0,11}(\d{1,9}\.\d{6})(?: < *\d+\.\d+>)?\] ?|"
    r"\[(?: *\+\d+\.\d{6}|< *\d+\.\d{6}>)\] |"
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d |(?:kern|user|daemon) *:\w{3,6} *: "
)
_CTIME_PREFIX = re.compile(
    r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}(?: < *\d+\.\d+>)?\] |"
    r"\[[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d\] "
)
OLDEST_UPTIME = 1e8  # seconds, three years: a larger number in brackets is an epoch time, as UCX writes


def looks_like_kernel_log(head: bytes) -> bool:
    """By content: the beginning of a file is a kernel log in one of the formats, or a syslog with kernel lines.

    A program's own log is none, even if it quotes kernel lines: most lines must be the kernel's, or syslog's with some
    of the kernel's among them. An empty log looks like nothing.
    """
    sample = _COLOUR.sub(b"", head[:HEAD])
    start = sample.lstrip()
    if start.startswith(OVERRUN.encode()) or prefix.is_record(start) or _DMESG_JSON.match(start):
        return True
    lines = [raw for raw in sample.split(b"\n")[:2000] if raw.strip()]
    if len(head) > HEAD and len(lines) > 1:
        lines.pop()
    kinds = [_kind(_unquoted(raw)) for raw in lines]
    kernel, syslog, bare, dump = (kinds.count(kind) for kind in ("kernel", "syslog", "bare", "dump"))
    if kernel and (2 * kernel >= len(lines) or 10 * (kernel + syslog) >= 9 * len(lines)):
        return True
    # dmesg -t, journalctl -o cat: only the words tell, and most lines have none of ours
    return bare > 0 and (10 * (kernel + bare + dump) >= 3 * len(lines) or "bare" in kinds[:2])


def _kind(raw: bytes) -> str:
    entry = prefix.journal_entry(raw.strip()) if raw.lstrip()[:1] == b"{" else None
    if entry is not None:
        if entry.log is None:
            journal = entry.message is not None and entry.transport is not None
            return "kernel" if entry.transport == "kernel" or entry.identifier == "kernel" else "syslog" * journal
        raw = entry.log.encode("utf-8", "backslashreplace")
    text = prefix.without_wrapper(prefix.decoded(raw[:4096]).rstrip("\r\n"))
    found = _DMESG_PREFIX.match(text)
    if found is not None:
        return "kernel" if found[1] is None or float(found[1]) < OLDEST_UPTIME else ""
    if _CTIME_PREFIX.match(text):
        return "kernel"
    peeled = prefix.peel(text, Dates(None))
    if peeled.host is not None:
        return "kernel" if peeled.facility in (None, 0) else "syslog"
    if peeled.text == text:
        return "bare" if _KERNEL_WORDS.match(text) else "dump" if _DUMP_WORDS.match(text) else ""
    return "kernel" if _KERNEL_WORDS.match(peeled.text) else ""
