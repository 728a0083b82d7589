"""Stack frames as lines: names folded, places short, repeats counted."""

from __future__ import annotations

import pytest

from ftforensics.model.basics import Address
from ftforensics.model.diagnosis import Frame
from ftforensics.report.frames import Line, bare_name, folded, line_of


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("at::native::add(at::Tensor const&, double)", "at::native::add(…)"),
        ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector<…>::push_back(…)"),
        ("f()", "f()"),
        ("PyObject_Call", "PyObject_Call"),
        ("operator<<(std::ostream&, int)", "operator<<(…)"),
        ("bool operator<<int>(int)", "bool operator<<…>(…)"),
        ("A::operator()(int) const", "A::operator()(…) const"),
        ("A::operator->()", "A::operator->()"),
        ("A::operator-(A const&)", "A::operator-(…)"),
        ("(anonymous namespace)::kernel(float*)", "(anonymous namespace)::kernel(…)"),
        ("void f<(int)3>(int)", "void f<…>(…)"),
        ("broken<name", "broken<name"),
        ("broken)name>", "broken)name>"),
        ("", ""),
    ],
)
def test_cxx_names_lose_arguments_and_keep_operators(name: str, bare: str) -> None:
    assert bare_name(name) == bare


def test_a_native_frame_without_a_name_shows_library_and_offset() -> None:
    frame = Frame(library="/usr/lib/libfoo.so.1", offset=Address(0x1136))
    assert line_of(frame) == Line("libfoo.so.1+0x1136", "/usr/lib")


def test_a_frame_in_no_file_says_so() -> None:
    assert line_of(Frame(offset=Address(0x10))).name == "address in no file+0x10"


def test_python_frames_show_file_and_line() -> None:
    assert line_of(Frame(function="f", file="/a/b/train.py", line=8, python=True)).place == "train.py:8"
    assert line_of(Frame(function="f", file="/a/torch/__init__.py", line=8, python=True)).place == "torch/__init__.py:8"
    assert line_of(Frame(function="f", file="/a/b/train.py", line=8, python=True), full=True).place == "/a/b/train.py:8"
    assert line_of(Frame(python=True)) == Line("?", "?")


def test_a_guessed_frame_says_that_it_is_a_guess() -> None:
    assert line_of(Frame(function="f", trust="scan")).remark
    assert not line_of(Frame(function="f", trust="cfi")).remark


def recursion(*names: str, times: int) -> list[Frame]:
    return [Frame(function=name, library="/l.so", offset=Address(index)) for index in range(times) for name in names]


def test_recursion_is_folded_whatever_its_period() -> None:
    for names in (("f",), ("f", "g"), ("a", "b", "c", "d", "e")):
        folds = folded([Frame(function="top"), *recursion(*names, times=500), Frame(function="main")])
        assert [(len(fold.frames), fold.times) for fold in folds] == [(1, 1), (len(names), 500), (1, 1)]


def test_two_in_a_row_are_not_worth_folding() -> None:
    assert [fold.times for fold in folded(recursion("f", times=2))] == [1]


def test_every_frame_is_accounted_for() -> None:
    frames = [*recursion("a", "b", times=7), Frame(function="a"), *recursion("c", times=40), Frame(function="z")]
    assert sum(len(fold.frames) * fold.times for fold in folded(frames)) == len(frames)
