"""Tracebacks that stand in another exception's message, as torch, multiprocessing and concurrent.futures really write
them."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from conditions import needs_torch
from ftforensics.parsers.quoted_traceback import is_of_data_worker, is_only_a_quotation, quoted_traceback


def fails(number: int) -> int:
    try:
        return [][number]
    except IndexError as error:
        raise ValueError(f"no sample {number}") from error


@pytest.mark.parametrize("kind", ["multiprocessing", "concurrent.futures"])
def test_what_a_pools_child_raised(kind: str) -> None:
    context = multiprocessing.get_context("fork")
    with pytest.raises(ValueError, match="no sample 3") as raised:
        if kind == "multiprocessing":
            with context.Pool(1) as pool:
                pool.map(fails, [3])
        else:
            with ProcessPoolExecutor(1, mp_context=context) as executor:
                executor.submit(fails, 3).result()
    cause = raised.value.__cause__
    assert cause is not None and is_only_a_quotation(type(cause).__name__)
    last, first = quoted_traceback(str(cause))
    assert (last.type, last.message, first.type, first.link) == ("ValueError", "no sample 3", "IndexError", "cause")
    assert last.frames[-1].function == "fails" and (last.frames[-1].file or "").endswith("test_quoted_traceback.py")


@needs_torch
def test_what_a_data_worker_raised() -> None:
    from torch.utils.data import DataLoader

    with pytest.raises(ValueError, match="no sample") as raised:
        list(DataLoader(Samples(), num_workers=1))
    message = str(raised.value)
    assert is_of_data_worker(message)
    last, first = quoted_traceback(message)
    assert (last.message, first.link) == ("no sample 0", "cause")
    assert last.frames[-1].function == "fails"


class Samples:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return fails(index)


@pytest.mark.parametrize(
    "text",
    ["", "loss is nan", "Traceback (most recent call last):", "\n".join(["Traceback (most recent call last):"] * 50)],
    ids=range(4),
)
def test_other_texts_hold_none(text: str) -> None:
    assert quoted_traceback(text) == []


def test_one_that_was_cut_gives_what_is_whole() -> None:
    text = "Traceback (most recent call last):\n  File \"/a.py\", line 3, in f\nKeyError: 'x'\n\nDuring handling of the"
    for cut in range(len(text)):
        for one in quoted_traceback(text[:cut]):
            assert one.frames[0].line == 3 and "KeyError".startswith(one.type)


def test_hostile_text_takes_no_time() -> None:
    began = time.process_time()
    for piece in ('  File "' + "x" * 3000 + "\n", "a." * 2000 + "\n", "Traceback (most recent call last):\n" * 2000):
        quoted_traceback(piece * 50)
    assert time.process_time() - began < 2
