"""C++ exceptions by name: the mangled type of `std::type_info::name()` (Itanium C++ ABI 2.9.4) made readable."""

from __future__ import annotations

_BUILTIN = {
    "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "b": "bool", "c": "char", "d": "double",
    "f": "float", "PKc": "char const*", "Pc": "char*",
}  # fmt: skip
_LONG_STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"


def exception_type(mangled: str) -> str:
    """ "St13runtime_error" -> "std::runtime_error". What cannot be demangled is given back as it is."""
    if mangled in _BUILTIN:
        return _BUILTIN[mangled]
    try:
        from cpp_demangle import demangle
    except ImportError:
        return mangled
    try:
        # A type name alone is no symbol; "typeinfo name for T" is the symbol that holds just that type.
        text = str(demangle("_ZTS" + mangled))
    except ValueError:
        return mangled
    text = text.removeprefix("typeinfo name for ").removeprefix("_ZTS")
    return text.replace(_LONG_STRING, "std::string")
