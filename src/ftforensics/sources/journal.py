"""What systemd, systemd-oomd and earlyoom wrote to the journal in a stretch of time."""

from __future__ import annotations

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.notice import Notice
from ftforensics.parsers.notices import read_notices

SOURCE = "journal"
TIMEOUT = 5.0  # seconds
OUTPUT_LIMIT = 16 << 20
LINES = 10_000  # the newest
GRANT = "sudo usermod -aG systemd-journal $USER (or group adm) and log in again, or run as root"
# Fields with a leading underscore are set by journald itself (man 7 systemd.journal-fields): `logger -t systemd` of
# any user does not fit. "+" means or.
_WRITERS = (
    "_SYSTEMD_UNIT=systemd-oomd.service",
    "+",
    "_SYSTEMD_UNIT=earlyoom.service",
    "+",
    "_UID=0",
    "_COMM=systemd",
)


def read_journal(host: Host, since: float, until: float | None) -> tuple[list[Notice], list[Gap]]:
    """since, until: seconds since the epoch, None = now. No statement and no Gap: the journal was read and there was
    nothing in it of the kind; without the right to read it journalctl shows a user his own lines only, so that this
    excludes nothing."""
    if not host.runs_commands:
        return [], [Gap(SOURCE, "journalctl: not asked: it would speak of this machine, not of the copied files")]
    argv = ["journalctl", "-o", "json", "--no-pager", "-n", str(LINES), "--since", f"@{int(since)}"]
    if until is not None:
        argv += ["--until", f"@{int(until) + 1}"]
    try:
        done = host.run([*argv, *_WRITERS], TIMEOUT, OUTPUT_LIMIT)
    except Refusal as refusal:
        # A machine without systemd has neither the journal nor the killers that write to it.
        return [], [] if refusal.absent else [refusal.gap(SOURCE, GRANT)]
    if done.timed_out:
        return [], [Gap(SOURCE, f"journalctl: {done.complaint(TIMEOUT)}")]
    if done.status != 0:
        return [], [Gap(SOURCE, f"journalctl: {done.complaint(TIMEOUT)}", GRANT)]
    gaps = []
    if done.cut:
        gaps.append(Gap(SOURCE, f"journalctl: only the first {OUTPUT_LIMIT} bytes of that time were read"))
    elif not done.stdout.strip():
        gaps.append(Gap(SOURCE, "the journal shows no line of systemd or a memory killer of that time", GRANT))
    found = read_notices(done.stdout, "journalctl")
    return [msgspec.structs.replace(notice, live=True) for notice in found], gaps
