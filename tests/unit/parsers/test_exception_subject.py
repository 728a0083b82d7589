"""What an exception's text tells beside its cause, and that no text takes long to read."""

from __future__ import annotations

import time

import pytest

from ftforensics.model.exception import Raised
from ftforensics.parsers.exception_subject import About, subject_of

GIB = 1 << 30
PIECES = [
    "loss ", "loss is ", "nan ", "nan or ", "loss=", "a loss: to into now ", "Os { code: ", "(os error ", "'", '"', "/",
    "NCCL error in: ", "Last error:", "CUDA error: ", "x: ", "[Errno 2] ", "nan in of for the ", "Tried to allocate ",
    "No module named '", "[1] ", "OOM when allocating tensor with ", "\n", "{", "a.", "1",
]  # fmt: skip


def test_sizes_are_bytes() -> None:
    said = (
        "CUDA out of memory. Tried to allocate 22.50 GiB. GPU 0 has a total capacity of 31.47 GiB. Of the allocated "
        "memory 9.08 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
    )
    subject = subject_of(Raised("torch.OutOfMemoryError", said))
    assert (subject.about, subject.by_type) == (About.GPU_MEMORY, True)
    assert (subject.tried, subject.reserved) == (int(22.5 * GIB), GIB // 2)


@pytest.mark.parametrize(
    ("raised", "path"),
    [
        (Raised("FileNotFoundError", "[Errno 2] No such file or directory: '/a b'"), "/a b"),
        (Raised("FileNotFoundError", '[Errno 2] No such file or directory: "/it\'s"'), "/it's"),
        (Raised("FileNotFoundError", "x", errno=2, filename="/recorded"), "/recorded"),
        (Raised("FileNotFoundError", "[Errno 2] No such file or directory: '/a' -> '/b'"), "/a"),
    ],
    ids=range(4),
)
def test_the_file_is_the_one_that_is_named(raised: Raised, path: str) -> None:
    subject = subject_of(raised)
    assert (subject.about, subject.errno, subject.path) == (About.NOT_FOUND, 2, path)


def test_a_class_of_ones_own_is_what_it_inherits_from() -> None:
    known = subject_of(Raised("job.NoCheckpoint", "none at step 5", bases=["FileNotFoundError", "OSError"]))
    assert known.about is About.NOT_FOUND
    assert subject_of(Raised("job.NoCheckpoint", "none at step 5")).about is About.OTHER


@pytest.mark.parametrize("kind", ["RuntimeError", "OSError", "torch.distributed.DistBackendError", "ValueError"])
def test_hostile_text_takes_no_time(kind: str) -> None:
    began = time.process_time()
    for piece in PIECES:
        for text in (piece * (4096 // len(piece) + 1), piece + "x" * 100_000, piece + " " * 5000):
            subject_of(Raised(kind, text))
    assert time.process_time() - began < 5
