"""phase, step and note: nested, cheap to call without capture, redacted with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ftforensics.capture import marks
from ftforensics.capture.marks import note, phase, step


class Native:
    """Takes what the extension would."""

    def __init__(self) -> None:
        self.phases: list[list[bytes]] = []
        self.steps: list[int] = []
        self.notes: list[bytes] = []
        self.threads_checked = 0

    def set_phase(self, names: list[bytes]) -> None:
        self.phases.append(list(names))

    def set_step(self, value: int) -> None:
        self.steps.append(value)

    def set_note(self, text: bytes) -> None:
        self.notes.append(text)

    def check_thread(self) -> None:
        self.threads_checked += 1


@pytest.fixture
def native() -> Iterator[Native]:
    taker = Native()
    before = marks._native
    marks.attach(taker)  # type: ignore[arg-type]
    yield taker
    marks.attach(before)


def test_phases_nest_and_close_also_through_an_exception(native: Native) -> None:
    with pytest.raises(KeyError), phase("train"), phase("save"):
        raise KeyError
    assert native.phases == [[b"train"], [b"train", b"save"], [b"train"], []]
    assert native.threads_checked == 4


def test_a_decorated_function_keeps_its_name_and_result(native: Native) -> None:
    @phase("evaluate")
    def evaluate(x: int) -> int:
        """Doc."""
        return 1 if x == 0 else x * evaluate(x - 1)

    assert evaluate(3) == 6
    assert (evaluate.__name__, evaluate.__doc__) == ("evaluate", "Doc.")
    assert max(len(names) for names in native.phases) == 4
    assert native.phases[-1] == []


def test_generators_and_coroutines_are_in_their_phase_while_they_run(native: Native) -> None:
    @phase("load")
    def load() -> Iterator[int]:
        yield 1
        yield 2

    @phase("serve")
    async def serve() -> int:
        await asyncio.sleep(0)
        return native.phases[-1] == [b"serve"]

    values = load()
    assert native.phases == []
    assert next(values) == 1 and native.phases[-1] == [b"load"]
    assert list(values) == [2] and native.phases[-1] == []
    assert asyncio.run(serve()) is True
    assert native.phases[-1] == []


def test_an_async_generator_is_refused_with_advice() -> None:
    async def numbers() -> Any:
        yield 1

    with pytest.raises(TypeError, match="inside"):
        phase("x")(numbers)


def test_one_object_can_be_used_again(native: Native) -> None:
    twice = phase("a")
    with twice, twice:
        assert native.phases[-1] == [b"a", b"a"]
    assert native.phases[-1] == []


def test_phases_of_two_threads_that_overlap(native: Native) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with phase("other"):
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=other)
    with phase("main"):
        thread.start()
        assert inside.wait(20)
    assert native.phases[-1] == [b"other"]
    leave.set()
    thread.join()
    assert native.phases[-1] == []


def test_arguments_are_checked_with_one_clear_error() -> None:
    for wrong in (None, 3, b"x"):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            phase(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=type(wrong).__name__):
            note(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty"):
        phase("  ")
    with pytest.raises(TypeError, match="str"):
        step("3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float"):
        step(3.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="64 bits"):
        step(1 << 63)
    with pytest.raises(TypeError, match="int"):
        phase("x")(3)  # type: ignore[type-var]


def test_step_takes_anything_that_is_an_integer(native: Native) -> None:
    step(7)
    step(SimpleIndex(500))  # type: ignore[arg-type]
    assert native.steps == [7, 500]


class SimpleIndex(SimpleNamespace):
    """As numpy.int64 and a torch scalar do it."""

    def __init__(self, value: int) -> None:
        super().__init__(value=value)

    def __index__(self) -> int:
        return int(self.value)


def test_notes_are_redacted_and_bounded(native: Native) -> None:
    note("resume with token=hunter2 from /ckpt/3")
    note("x" * 100 + " " + "word " * 100_000)
    note("caf\u00e9 \udce9")
    note("")
    assert native.notes[0] == b"resume with token=[redacted] from /ckpt/3"
    assert len(native.notes[1]) <= marks.MAX_NOTE
    assert native.notes[2] == "caf\u00e9 \\xe9".encode()
    assert native.notes[3] == b""


def test_a_secret_across_the_cut_leaves_no_head(native: Native) -> None:
    secret = "hf_" + "aB3" * 20
    for at in range(900, 1010):
        note("w " * (at // 2) + secret)
    assert not any(b"aB3aB3" in text for text in native.notes)


def test_phase_names_are_redacted(native: Native) -> None:
    with phase("login token=hunter2"):
        pass
    assert native.phases[0] == [b"login token=[redacted]"]


def test_without_capture_marks_are_dropped() -> None:
    before = marks._native
    marks.attach(None)
    try:
        with phase("a"):
            step(1)
            note("b")
    finally:
        marks.attach(before)


def test_phases_open_before_install_are_told() -> None:
    taker = Native()
    before = marks._native
    marks.attach(None)
    try:
        with phase("early"):
            marks.attach(taker)  # type: ignore[arg-type]
            assert taker.phases == [[b"early"]]
    finally:
        marks.attach(before)
