from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers.cxx_name import MAX_ESTIMATE, MAX_RESULT, demangled, estimated_size, short_name
from ftforensics.parsers.exception_text import exception_type

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def doubling(depth: int) -> str:
    """f(a<int>, a<int><a<int>, a<int>>, ...): every parameter is made of two of the one before."""
    name = "_Z1f1aIiE"
    for level in range(depth):
        name += f"S{DIGITS[level]}_IS{DIGITS[level]}_S{DIGITS[level]}_E"
    return name


def nested(depth: int) -> str:
    """a<a<...>, ...> where each level names the level below twice, by std::pair."""
    name = "_Z1fSt4pairIiiE"
    for level in range(depth):
        name += f"St4pairIS{DIGITS[level] if level else ''}_S{DIGITS[level] if level else ''}_E"
    return name


@pytest.mark.parametrize("evil", [doubling(30), nested(35)])
def test_a_name_that_explodes_costs_nothing(evil: str) -> None:
    started = time.process_time()
    text = demangled(evil)
    assert time.process_time() - started < 0.5
    assert text is None or len(text) <= MAX_RESULT


def test_an_exception_type_is_guarded_too() -> None:
    evil = doubling(30).removeprefix("_Z1f")
    started = time.process_time()
    assert exception_type(evil) == evil
    assert time.process_time() - started < 0.5
    assert exception_type("St13runtime_error") == "std::runtime_error"
    assert exception_type("*St13runtime_error") == "std::runtime_error"


def test_a_result_that_is_long_without_being_evil_is_refused() -> None:
    name = "_Z1f" + "N1a" + "1b" * 20 + "E" + "S_" * 0 + "PK".join(["S0_"] * 1500)
    text = demangled(name)
    assert text is None or len(text) <= MAX_RESULT


@pytest.mark.parametrize(
    "real",
    [
        "_ZN3c1012function_refIFvPPcPKlllEE11callback_fnIZN2at18TensorIteratorBase8for_eachES7_lEUlS1_S4_llE_EEvlS1_S3_ll",
        "_ZNSt6vectorIN2at6TensorESaIS1_EE17_M_realloc_insertIJRKS1_EEEvN9__gnu_cxx17__normal_iteratorIPS1_S3_EEDpOT_",
        "_ZSt4copyISt13move_iteratorIPiES1_ET0_T_S4_S3_",
    ],
)
def test_real_names_are_far_below_the_limit(real: str) -> None:
    assert estimated_size(real) < MAX_ESTIMATE // 1000


@given(st.text("_ZNKSTt0123456789aAEIJXLFvi.@$", max_size=80))
def test_any_text_has_an_estimate_and_no_exception(name: str) -> None:
    assert estimated_size(name) >= 0
    demangled("_Z" + name)
    short_name(name)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void c10::function_ref<void (char**, long)>::callback_fn<at::f(int)::{lambda()#1}>(long)",
         "c10::function_ref::callback_fn"),
        ("at::native::(anonymous namespace)::add_kernel(at::T&, c10::S const&)::{lambda()#1}::operator()() const",
         "at::native::add_kernel"),
        ("at::TensorIteratorBase::for_each(long) const", "at::TensorIteratorBase::for_each"),
        ("A::f() [clone .cold]", "A::f"),
        ("fatal_error.cold", "fatal_error"),
        ("abort@@GLIBC_2.2.5", "abort"),
        ("foo::operator()(int) const", "foo::operator()"),
        ("operator new(unsigned long)", "operator new"),
        ("__strlen_evex", "__strlen_evex"),
        ("", ""),
    ],
)  # fmt: skip
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
