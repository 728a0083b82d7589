from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers import cxx_name as module
from ftforensics.symbols.demangle import demangle


@pytest.mark.parametrize(
    ("mangled", "expected"),
    [
        (
            "_ZNK2at6Tensor7defined" + "Ev",
            "at::Tensor::defined() const",
        ),
        (
            "_ZN3c106detail14torchCheckFailEPKcS2_jS2_",
            "c10::detail::torchCheckFail(char const*, char const*, unsigned int, char const*)",
        ),
        ("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()() const"),
        ("_ZN1A1fEv.cold", "A::f() [clone .cold]"),
        ("_ZN1A1fEv@@VERS_1", "A::f()@@VERS_1"),
        ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt::h0123456789abcdef"),
    ],
)
def test_cxx_and_legacy_rust(mangled: str, expected: str) -> None:
    assert demangle(mangled) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "main",
        "cblas_sgemm",
        "_PyEval_EvalFrameDefault",
        "_RNvC6_123foo3bar",  # Rust v0
        "_Z",
        "_ZN",
        "_ZN2at6Tens",  # cut
        "_ZGVcN4v_Sleef_acos_u10",  # a vector function, no C++ name
        "_Z\udc80",
        "_Z" + "N1a" * 5000,
        "_Z1f" + "P" * 4000 + "i",  # too deep
        "_Z1f" + "i" * 9000,  # too long
    ],
)
def test_what_cannot_be_demangled_stays(name: str) -> None:
    assert demangle(name) == name


@given(st.text("_ZNKSt0123456789aAEIvLi.@$", max_size=60).map("_Z".__add__))
def test_it_never_raises(name: str) -> None:
    assert isinstance(demangle(name), str)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cpp_demangle", None)
    module._demangler.cache_clear()
    try:
        assert demangle("_Z1fv") == "_Z1fv"
    finally:
        module._demangler.cache_clear()


def test_a_panic_of_the_demangler_is_swallowed_and_an_interrupt_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As PyO3's: not an Exception."""

    def raising(error: BaseException) -> object:
        def cxx(name: str) -> str:
            raise error

        return lambda: cxx

    monkeypatch.setattr(module, "_demangler", raising(PanicException("index out of bounds")))
    assert demangle("_Z1fv") == "_Z1fv"
    monkeypatch.setattr(module, "_demangler", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        demangle("_Z1fv")
