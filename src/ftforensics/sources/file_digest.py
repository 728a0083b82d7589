"""The digest of a file's content, written as a RECORD has it."""

from __future__ import annotations

import base64
import hashlib

from ftforensics.host.host import Host, Refusal

_PIECE = 1 << 20  # bytes


def record_sha256(host: Host, path: str) -> str | None:
    """SHA-256 in the base64 of URLs, without padding (PEP 376, PEP 427); None for a file that cannot be read. Reads
    every byte: a second for two gigabytes, or so."""
    digest = hashlib.sha256()
    try:
        with host.open(path) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except (Refusal, OSError):
        return None
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()
