"""A job's output that begins like JSON is a job's output."""

from __future__ import annotations

import pytest

from ftforensics.cli.recognise import Kind, recognise

TRACEBACK = b"Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    "label", [b"[1,0]<stderr>: ", b"[1]<stdout>:", b"[0] ", b"[rank0]: ", b"[2026-11-29 14:29:35,150] [INFO] "]
)
def test_a_label_in_brackets_begins_no_list(label: bytes) -> None:
    assert recognise(label + TRACEBACK, 4000) is Kind.LOG


@pytest.mark.parametrize("document", [b"[]", b"[1, 0]", b"[1,0]\n", b" [\n 1\n]\n", b'[{"a": 1}]', b'{"a": 1}'])
def test_lists_and_objects(document: bytes) -> None:
    assert recognise(document, len(document)) is Kind.JSON
