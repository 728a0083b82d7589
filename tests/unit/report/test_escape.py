"""Foreign text never acts on the terminal and stays readable."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from ftforensics.report.escape import printable, shortened


def test_ordinary_text_of_any_language_passes() -> None:
    for text in ("train.py", "/home/müller/größe", "训练.py", "обучение", "a b", "c:\\temp", "é", "e\u0301"):
        assert printable(text) == text


def test_what_acts_on_a_terminal_is_shown_as_its_escape() -> None:
    assert printable("\x1b[31m") == "\\x1b[31m"
    assert printable("\x9b31m") == "\\x9b31m"
    assert printable("a\nb\tc\r") == "a\\nb\\tc\\r"
    assert printable("\u202egnp") == "\\u202egnp"
    assert printable("caf\udce9") == "caf\\udce9"
    assert printable("\U000e0041") == "\\U000e0041"
    assert printable("\u00ad\u00a0\u3164") == "\\xad\\xa0\\u3164"


def test_marks_do_not_pile_up_on_the_lines_above() -> None:
    shown = printable("a" + "\u0301" * 5)
    assert shown == "a\u0301\u0301\\u0301\\u0301\\u0301"
    assert printable("\u0301") == "\\u0301"  # nothing of ours may get the mark


@given(st.text(alphabet=st.characters()))
def test_no_character_that_acts_gets_through(text: str) -> None:
    shown = printable(text)
    assert all(character.isprintable() for character in shown)
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in shown)


@given(st.text(), st.integers(min_value=1, max_value=30))
def test_shortened_is_never_longer_than_asked(text: str, limit: int) -> None:
    shown = shortened(text, limit)
    assert len(shown) <= limit
    assert shown == text or len(text) > limit


def test_shortened_keeps_both_ends() -> None:
    assert shortened("/very/long/path/to/libtorch.so", 15) == "/very/l…orch.so"
