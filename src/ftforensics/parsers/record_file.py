"""pip's RECORD, whole: every file of an installed package with its size and content hash.

Format: packaging.python.org, "Recording installed projects": CSV, path relative to the site-packages folder, hash as
"sha256=" and URL-safe base64 without padding. Of shared libraries alone `parsers.dist_info` reads it faster.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from ftforensics.parsers.dist_info import RecordedFile


def recorded_files(record: str) -> Iterator[RecordedFile]:
    """The files with a size or a sha256. A line that is no row of a RECORD is left out."""
    try:
        for row in csv.reader(record.splitlines()):
            if len(row) != 3 or not row[0]:
                continue
            algorithm, _, value = row[1].partition("=")
            digest = value if algorithm == "sha256" and value else None
            size = int(row[2]) if row[2].isascii() and row[2].isdigit() and len(row[2]) < 19 else None
            if digest is not None or size is not None:
                yield RecordedFile(row[0], size, digest)
    except csv.Error:  # a field above the module's limit of 128 KiB: no path
        return
