"""This machine's kernel log, by the first way that is open and reaches back far enough.

In order: /dev/kmsg, the only one with record numbers; `dmesg`, the same ring through syslog(2), which a container may
have without the device; `journalctl -k`, which reaches back further and outlives a reboot; the files that a syslog
daemon writes. A log that is empty or begins too late is said in a Gap: it shows what it holds and excludes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

import msgspec

from ftforensics.host.host import KMSG, Completed, Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.kernel import KernelEvent, KernelLog, LogLine, OomKill
from ftforensics.model.moment import Moment
from ftforensics.parsers.kernel_log import OVERRUN, read_kernel_log
from ftforensics.parsers.kernel_prefix import ZONE_UNKNOWN
from ftforensics.sources.identity_here import Identity, read_identity

SOURCE = "kernel log"
DMESG_RESTRICT = "/proc/sys/kernel/dmesg_restrict"
KMSG_TIMEOUT = 2.0  # seconds
DMESG_TIMEOUT = 5.0
JOURNAL_TIMEOUT = 10.0
JOURNAL_LINES = 50_000  # the newest; about 500 bytes of JSON each
OUTPUT_LIMIT = 64 << 20
FILE_LIMIT = 32 << 20  # bytes from the end of a log file
FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
_PACKED = (".gz", ".xz", ".bz2", ".zst")
# printk's clock is not slewed by NTP, CLOCK_MONOTONIC is: they part by at most about this share of the time between.
_DRIFT = 1e-4
_BOOT_SLACK = 5.0  # seconds after boot: a log that begins earlier has all of it


class _Rung(msgspec.Struct, frozen=True):
    """What one way gave. log None: nothing, and gaps say why."""

    log: KernelLog | None = None
    gaps: list[Gap] = []


class _Wanted(msgspec.Struct, frozen=True):
    """boot_id: of the log that is wanted; since: seconds since the epoch, None = since that boot; now: both clocks."""

    identity: Identity
    boot_id: str | None
    since: float | None
    now: Moment

    @property
    def this_boot(self) -> bool:
        return self.boot_id is not None and self.boot_id == self.identity.boot_id


def read_kernel_logs(host: Host, *, boot_id: str | None, since: float | None) -> tuple[list[KernelLog], list[Gap]]:
    """boot_id: the boot that the evidence must be from, None for the running one; since: seconds since the epoch that
    the log must reach back to, None for its whole boot. Whether this machine is the right one the caller has asked
    `identity_here`; of an earlier boot only the journal is read here.

    The logs, most trusted first: one that covers the time, or every one there is. At most half a minute.
    """
    identity = read_identity(host)
    wanted = _Wanted(identity, boot_id or identity.boot_id, since, host.moment())
    logs: list[KernelLog] = []
    gaps: list[Gap] = []
    ring_seen = False
    for way in (_kmsg, _dmesg, _journal, _files):
        if way is _dmesg and ring_seen:
            continue  # the same records once more, without their numbers
        for rung in way(host, wanted):
            gaps += rung.gaps
            if rung.log is None:
                continue
            ring_seen = True
            short = _shortfall(rung.log, wanted)
            if rung.log.lines:
                logs.append(rung.log)
            if short is None:
                return logs, gaps
            gaps.append(short)
    return logs, gaps


def _shortfall(log: KernelLog, wanted: _Wanted) -> Gap | None:
    """Why this log does not show everything since the wanted time."""
    place = log.path or log.source
    if not log.lines:
        return Gap(SOURCE, f"{place} holds no lines of that time", _elsewhere(wanted))
    begin = _realtime(log.first, wanted.now)
    if begin is None:
        return Gap(SOURCE, f"{place} does not say when it begins", _elsewhere(wanted))
    needed = wanted.since
    if wanted.this_boot and wanted.now.monotonic is not None:
        # No log of a boot begins before it.
        needed = max(needed or 0.0, _boot_time(wanted.now) + _BOOT_SLACK)
    if needed is None:
        return None if log.source == "journal" else Gap(SOURCE, f"{place} may begin after the boot that is asked for")
    if begin[0] + begin[1] > needed:
        return Gap(
            SOURCE,
            f"{place} begins {begin[0] - needed:.0f} s after the time that is asked for; older lines are gone",
            "a larger ring: boot with log_buf_len=16M; older lines may be in `journalctl -k` or rotated files",
        )
    end = _realtime(log.last, wanted.now)
    # The ring is the kernel's own and always current. A file whose daemon stopped ends early and does not say so.
    if log.source in ("journal", "file") and (end is None or end[0] < needed):
        return Gap(SOURCE, f"{place} has no line since the time that is asked for; it may no longer be written")
    return None


def _realtime(at: Moment | None, now: Moment) -> tuple[float, float] | None:
    """Seconds since the epoch and their accuracy, of a line of a log that is read now."""
    if at is None:
        return None
    if at.realtime is not None:
        return at.realtime, at.accuracy
    if at.monotonic is None or now.monotonic is None or now.realtime is None:
        return None
    age = max(0.0, now.monotonic - at.monotonic)
    return now.realtime - age, at.accuracy + age * _DRIFT


def _boot_time(now: Moment) -> float:
    return (now.realtime or 0.0) - (now.monotonic or 0.0)


def _elsewhere(wanted: _Wanted) -> str:
    """Where a person can get the log when this place does not give it."""
    day = wanted.since if wanted.since is not None else (wanted.now.realtime or 0.0) - 3600
    begin = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(day))
    where = "on the node (outside the container)" if wanted.identity.container or wanted.identity.pod else "as root"
    return f"{where}: journalctl -k -o json --since '{begin}' > kernel.json; give the file to ftforensics analyze"


def _parsed(
    data: Iterable[bytes] | bytes, wanted: _Wanted, *, source: str, path: str, boot_id: str | None, year: int | None
) -> KernelLog:
    return read_kernel_log(
        data,
        source=source,
        path=path,
        live=boot_id is None or wanted.this_boot,
        boot_id=boot_id,
        host=wanted.identity.host,
        year=year,
        since=wanted.since,
    )


def _other_boot(wanted: _Wanted, place: str) -> list[_Rung]:
    why = f"{place} is of the running boot, the evidence is of boot {(wanted.boot_id or 'unknown')[:8]}"
    return [_Rung(gaps=[Gap(SOURCE, why)])]


def _kmsg(host: Host, wanted: _Wanted) -> list[_Rung]:
    if not wanted.this_boot:
        return _other_boot(wanted, KMSG)
    try:
        ring = host.kernel_ring(KMSG_TIMEOUT)
    except Refusal as refusal:
        return [_Rung(gaps=[refusal.gap(SOURCE, _ring_grant(host, wanted, refusal.absent))])]
    overrun = OVERRUN.encode() + b"\n"
    data = [overrun if record is None else record for record in ring.records]
    log = _parsed(data, wanted, source="kmsg", path=KMSG, boot_id=wanted.boot_id, year=None)
    gaps = []
    if None in ring.records:
        gaps.append(Gap(SOURCE, f"{KMSG}: records were overwritten while it was read"))
    if ring.cut:
        gaps.append(Gap(SOURCE, f"{KMSG}: it is written faster than it can be read; the newest records are missing"))
    if gaps:
        log = msgspec.structs.replace(log, gap_free=False, gaps=[*log.gaps, *gaps])
    return [_Rung(log, gaps)]


def _ring_grant(host: Host, wanted: _Wanted, absent: bool) -> str:
    contained = wanted.identity.container or wanted.identity.pod or wanted.identity.in_initial_pid_namespace is False
    if contained:
        device = " --device /dev/kmsg" if absent else ""
        return f"in a container: --cap-add SYSLOG{device}; or {_elsewhere(wanted)}"
    try:
        restricted = host.read_text(DMESG_RESTRICT, 64).strip() == "1"
    except Refusal:
        restricted = False
    if restricted:
        return "sudo sysctl kernel.dmesg_restrict=0, or run ftforensics analyze as root"
    return "run ftforensics analyze as root"


def _dmesg(host: Host, wanted: _Wanted) -> list[_Rung]:
    """-r, which util-linux and busybox both know, keeps the facility: who wrote a line can be told."""
    if not wanted.this_boot:
        return []  # as /dev/kmsg, which has said so
    try:
        done = _command(host, ["dmesg", "-r"], DMESG_TIMEOUT)
    except Refusal as refusal:
        return [_Rung(gaps=[refusal.gap(SOURCE, _ring_grant(host, wanted, absent=False))])]
    if done.timed_out or done.status != 0:
        why = f"dmesg: {done.complaint(round(done.seconds))}"
        return [_Rung(gaps=[Gap(SOURCE, why, _ring_grant(host, wanted, absent=False))])]
    log = _parsed(done.stdout, wanted, source="dmesg", path="dmesg", boot_id=wanted.boot_id, year=None)
    return [_Rung(log, [Gap(SOURCE, f"dmesg: only its first {OUTPUT_LIMIT} bytes were read")] if done.cut else [])]


def _journal(host: Host, wanted: _Wanted) -> list[_Rung]:
    """Two questions: everything since, and the last line before, which shows that nothing is rotated away between."""
    if wanted.boot_id is None:
        return [_Rung(gaps=[Gap(SOURCE, "journalctl: the boot is not known")])]
    start = ["journalctl", "-k", "-o", "json", "--no-pager", "-b", wanted.boot_id.replace("-", "")]
    try:
        data = b""
        if wanted.since is not None:
            before = _command(host, [*start, "--until", f"@{int(wanted.since)}", "-n", "1"], JOURNAL_TIMEOUT)
            data = before.stdout if before.status == 0 else b""
            start += ["--since", f"@{int(wanted.since)}"]
        done = _command(host, [*start, "-n", str(JOURNAL_LINES)], JOURNAL_TIMEOUT)
    except Refusal as refusal:
        return [_Rung(gaps=[refusal.gap(SOURCE, _elsewhere(wanted))])]
    grant = (
        "sudo usermod -aG systemd-journal $USER (or group adm) and log in again, or run as root; earlier boots are"
        " there where journald.conf has Storage=persistent"
    )
    if done.timed_out or done.status != 0:
        return [_Rung(gaps=[Gap(SOURCE, f"journalctl -k: {done.complaint(round(done.seconds))}", grant)])]
    gaps = [Gap(SOURCE, f"journalctl -k: only its first {OUTPUT_LIMIT} bytes were read")] if done.cut else []
    log = _parsed(data + done.stdout, wanted, source="journal", path="journalctl -k", boot_id=wanted.boot_id, year=None)
    if not log.lines:
        # Without the right, journalctl shows an empty journal and says so in a hint only.
        return [_Rung(gaps=[*gaps, Gap(SOURCE, "journalctl -k shows no kernel line of that boot and time", grant)])]
    return [_Rung(log, gaps)]


def _files(host: Host, wanted: _Wanted) -> list[_Rung]:
    """The current file, then the one that was rotated away last. A file may span boots, so that none is claimed."""
    if not wanted.this_boot:
        return [
            _Rung(gaps=[Gap(SOURCE, "log files are read for the running boot only", f"give {FILES[0]} to analyze")])
        ]
    rungs = []
    for path in FILES:
        found = [path, *_rotated(host, path)]
        for place in found:
            rung = _file(host, wanted, place)
            if rung is None:
                continue
            rungs.append(rung)
            if rung.log is not None and _shortfall(rung.log, wanted) is None:
                return rungs
    if not rungs:
        return [_Rung(gaps=[Gap(SOURCE, f"there is none of {', '.join(FILES)}", _elsewhere(wanted))])]
    return rungs


def _file(host: Host, wanted: _Wanted, path: str) -> _Rung | None:
    try:
        data = host.read_end(path, FILE_LIMIT)
        written = host.stat(path).st_mtime
    except Refusal as refusal:
        return None if refusal.absent else _Rung(gaps=[refusal.gap(SOURCE, "run as root, or join group adm")])
    if len(data) == FILE_LIMIT:
        data = data.partition(b"\n")[2]
    # Lines without a year: those of the file's end are of the year in which it was last written.
    year = time.localtime(written).tm_year
    log = _parsed(data, wanted, source="file", path=path, boot_id=None, year=year)
    return _Rung(_in_local_time(log) if host.live else log)


def _in_local_time(log: KernelLog) -> KernelLog:
    """Times that a syslog daemon of this machine wrote without a zone are in this machine's; the parser, which cannot
    know that, reads them as UTC, right to 14 hours."""
    return msgspec.structs.replace(
        log,
        first=log.first and _local(log.first),
        last=log.last and _local(log.last),
        events=[_event_in_local_time(event) for event in log.events],
    )


def _event_in_local_time(event: KernelEvent) -> KernelEvent:
    if isinstance(event, OomKill):
        return msgspec.structs.replace(
            event,
            line=_line_in_local_time(event.line),
            header=event.header and _line_in_local_time(event.header),
            limits=event.limits and _line_in_local_time(event.limits),
            constraint=event.constraint and _line_in_local_time(event.constraint),
        )
    return msgspec.structs.replace(event, line=_line_in_local_time(event.line))


def _line_in_local_time(line: LogLine) -> LogLine:
    return msgspec.structs.replace(line, moment=_local(line.moment))


def _local(moment: Moment) -> Moment:
    if moment.realtime is None or moment.accuracy < ZONE_UNKNOWN:
        return moment
    written = datetime.fromtimestamp(moment.realtime, timezone.utc).replace(tzinfo=None)
    at = written.timestamp()
    twice = written.replace(fold=1).timestamp() - at  # the hour that the end of summer time repeats
    return msgspec.structs.replace(moment, realtime=at, accuracy=1.0 + abs(twice))


def _rotated(host: Host, path: str) -> list[str]:
    """The newest rotated file that is not packed: kern.log.1, messages-20261129."""
    folder, _, name = path.rpartition("/")
    try:
        names = [
            one for one in host.names(folder) if one.startswith((f"{name}.", f"{name}-")) and not one.endswith(_PACKED)
        ]
        times = [(host.stat(f"{folder}/{one}").st_mtime, f"{folder}/{one}") for one in names[:100]]
    except Refusal:
        return []
    return [max(times)[1]] if times else []


def _command(host: Host, argv: Sequence[str], timeout: float) -> Completed:
    if not host.runs_commands:
        raise Refusal(argv[0], "not asked: it would speak of this machine, not of the copied files")
    return host.run(argv, timeout, OUTPUT_LIMIT)
