"""C++ exceptions by name: the mangled type of `std::type_info::name()` (Itanium C++ ABI 2.9.4) made readable."""

from __future__ import annotations

from ftforensics.parsers.cxx_name import demangled

_BUILTIN = {
    "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "b": "bool", "c": "char", "d": "double",
    "f": "float", "PKc": "char const*", "Pc": "char*",
}  # fmt: skip
_LONG_STRING = "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"


def exception_type(mangled: str) -> str:
    """ "St13runtime_error" -> "std::runtime_error". What cannot be demangled is given back as it is."""
    if mangled in _BUILTIN:
        return _BUILTIN[mangled]
    # GCC puts a star before the names of types that other libraries cannot see; type_info::name() leaves it out.
    # A type name alone is no symbol; "typeinfo name for T" is the symbol that holds just that type.
    text = demangled("_ZTS" + mangled.removeprefix("*"))
    if text is None:
        return mangled
    return text.removeprefix("typeinfo name for ").removeprefix("_ZTS").replace(_LONG_STRING, "std::string")
