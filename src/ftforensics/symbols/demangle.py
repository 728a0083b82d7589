"""Mangled names to what the source says. A name that cannot be demangled stays as it is; nothing here raises.

C++ (Itanium ABI, prefix `_Z`) by cpp-demangle, in its own spelling: `f<(unsigned long)1>` where binutils prints
`f<1ul>`. Rust's v0 names (`_R`) and plain C names are left untouched; legacy Rust names look like C++ and come out as
paths with their hash at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

# The longest name in libtorch 2.13 has 1,466 characters, the longest result 12,601. A name made to hurt can double its
# result with every ten characters, and cpp-demangle has no budget for that; only the length is bounded here. Such a
# name would have to stand in a library that the dead job had loaded.
MAX_LENGTH = 8192


def demangle(name: str) -> str:
    """The demangled name, or `name` itself. A symbol version (`f@@VERSION`) is kept at the end."""
    if not name.startswith("_Z") or len(name) > MAX_LENGTH:
        return name
    bare, at, version = name.partition("@")
    try:
        return _cxx_demangler()(bare) + at + version
    except ValueError:  # not well-formed, too deep, or not UTF-8
        return name
    except BaseException as error:
        # A panic in the Rust code arrives as pyo3_runtime.PanicException, which is no Exception and cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        return name


@lru_cache(maxsize=1)
def _cxx_demangler() -> Callable[[str], str]:
    # Late: many reports have no native frame to name.
    try:
        from cpp_demangle import demangle as cxx
    except ImportError:  # installed with --no-deps: mangled names are better than no report
        return str
    return cxx  # type: ignore[no-any-return]
