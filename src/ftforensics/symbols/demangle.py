"""Mangled names to what the source says. A name that cannot be demangled stays as it is; nothing here raises.

C++ (Itanium ABI, prefix `_Z`) by cpp-demangle, in its own spelling: `f<(unsigned long)1>` where binutils prints
`f<1ul>`. Rust's v0 names (`_R`) and plain C names are left untouched; legacy Rust names look like C++ and come out as
paths with their hash at the end. `parsers.cxx_name` bounds what a name may cost.
"""

from __future__ import annotations

from ftforensics.parsers.cxx_name import demangled


def demangle(name: str) -> str:
    """The demangled name, or `name` itself. A symbol version (`f@@VERSION`) is kept at the end."""
    if not name.startswith("_Z"):
        return name
    bare, at, version = name.partition("@")
    text = demangled(bare)
    return name if text is None else text + at + version
