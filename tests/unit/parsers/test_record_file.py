"""RECORD, every row of it."""

from __future__ import annotations

from ftforensics.parsers.dist_info import RecordedFile
from ftforensics.parsers.record_file import recorded_files

RECORD = """torch/__init__.py,sha256=abc_-,12
"torch/a,b.json",sha256=def,3\r
torch/__pycache__/__init__.cpython-311.pyc,,
torch-2.9.1.dist-info/RECORD,,
torch/md5.py,md5=xyz,7
torch/odd.py,sha256=,-5
torch/one-column
,sha256=x,1
"""


def test_files_with_a_size_or_a_hash() -> None:
    assert list(recorded_files(RECORD)) == [
        RecordedFile("torch/__init__.py", 12, "abc_-"),
        RecordedFile("torch/a,b.json", 3, "def"),
        RecordedFile("torch/md5.py", 7, None),
    ]


def test_what_is_no_record() -> None:
    assert list(recorded_files("")) == []
    assert list(recorded_files("\0\x01\n" * 100)) == []
    assert list(recorded_files('"' + "x" * 1_000_000)) == []
    assert list(recorded_files("a,sha256=x,²\n")) == [RecordedFile("a", None, "x")]
