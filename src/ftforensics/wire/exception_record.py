"""Reads `*.exception.json`, whole or cut: what capture.exceptions wrote before the process ended."""

from __future__ import annotations

from ftforensics.model.basics import Gap
from ftforensics.model.exception import ExceptionRecord

MARK = b'"ftforensics.exception/'


def looks_like_an_exception_record(head: bytes) -> bool:
    """head: the first bytes of a file."""
    return MARK in head[:4096]


def read_exception_record(data: bytes) -> ExceptionRecord | Gap:
    """Every complete member of a file that may be cut at any byte. A Gap when there is none, or of a newer schema."""
    raise NotImplementedError
