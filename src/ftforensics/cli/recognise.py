"""What a file is, by its first bytes; never by its name."""

from __future__ import annotations

import re
from enum import Enum

from ftforensics.parsers.kernel_log import looks_like_kernel_log
from ftforensics.parsers.launcher import looks_like_launcher_log
from ftforensics.parsers.launcher_line import looks_like_json_lines
from ftforensics.wire.exception_record import looks_like_an_exception_record
from ftforensics.wire.ring import looks_like_a_ring
from ftforensics.wire.run_evidence import looks_like_run_evidence

HEAD = 4096  # bytes; the first line of a record is shorter than 100
LOG_HEAD = 64 << 10  # bytes; the lines of a log that tell what it is stand somewhere at its beginning

RECORD_MARK = b'"ftforensics.crash/'
HELPER_MARK = b'"ftforensics.helper/'
REPORT_MARK = b'"ftforensics.report/'

# What people hand over by mistake, by its first bytes.
KNOWN = (
    (b"\x7fELF", "an ELF file (a core file, program or library)"),
    (b"\x1f\x8b", "compressed by gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it first"),
    (b"\xfd7zXZ", "compressed by xz: unpack it first"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"MDMP", "a minidump"),
)


# A log line may begin with a bracket too: "[2026-11-29 14:29:35,150] [INFO] ...", "[1,0]<stderr>: ...", "[0] ...".
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\{|\[\s*(?:[\[{\"\]]|\d+\s*,(?!\d+\]<)|\d+\s*\]\s*\Z))")


class Kind(Enum):
    """NOTHING: not one of the others as far as its beginning tells; whoever reads it as a record says what is wrong."""

    RECORD = "crash record"
    EXCEPTION = "exception record"
    HELPER = "report of the crash reporter"
    REPORT = "finished report"
    RING = "recorder ring"
    RUN = "evidence of a run"
    KERNEL = "kernel log"
    JSON = "JSON of a scheduler, container or torchrun"
    LOG = "launcher log"
    BLANK = "blank file"
    NOTHING = "nothing known"


def recognise(head: bytes, size: int) -> Kind:
    """head: the first LOG_HEAD bytes; size: of the whole file."""
    if looks_like_a_ring(head):
        return Kind.RING
    beginning = head[:HEAD]
    if RECORD_MARK in beginning:
        return Kind.RECORD
    if looks_like_an_exception_record(beginning):
        return Kind.EXCEPTION
    if HELPER_MARK in beginning:
        return Kind.HELPER
    if REPORT_MARK in beginning:
        return Kind.REPORT
    if looks_like_run_evidence(head):
        return Kind.RUN
    if size <= len(head) and not head.strip(b" \t\r\n\0\xef\xbb\xbf"):
        return Kind.BLANK
    # torch's own handler in a data worker ends its line with a NUL: a few make no binary file.
    if any(head.startswith(magic) for magic, _ in KNOWN) or beginning.count(0) > len(beginning) // 64:
        return Kind.NOTHING
    if looks_like_kernel_log(head):
        return Kind.KERNEL
    if _JSON.match(head) and not looks_like_json_lines(head):
        return Kind.JSON
    return Kind.LOG if looks_like_launcher_log(head) else Kind.NOTHING
