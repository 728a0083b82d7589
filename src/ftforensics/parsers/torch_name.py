"""Names of torch's C++ interface as the linker sees them, and which C++ string they were compiled with.

Mangling: Itanium C++ ABI 5.1. libstdc++ has two std::string: the old one is mangled `Ss`, the one of C++11 by its
namespace `NSt7__cxx1112basic_stringI...`; functions that only return it carry the tag `B5cxx11` ("Dual ABI" in the
libstdc++ manual). torch's wheels took the old one up to 2.6, except 2.6 for CUDA 12.6.
"""

from __future__ import annotations

import re

# Functions, variables, vtables and type information that belong to one of torch's namespaces. Names of std:: with a
# torch type in their arguments are made in the extension itself.
_OWN = re.compile(r"^_Z(?:T[VITS]|GV)?N[rVK]*[RO]?(?:3c10|2at|5torch|6caffe2)(?=[0-9A-Z])")
_PLAIN = re.compile(r"^(?:_Z\d{1,3})?THP[A-Z]\w|^aoti_torch_\w")  # libtorch_python's; the C interface of AOTInductor

_TOKEN = re.compile(
    r"C[1-5]|D[0-5]|L[a-z]n?\d*E|A\d*_|__\d+_|_\d|(?P<length>\d+)|(?P<old>Ss)|S[abdiot]|[ST][0-9A-Z]*_|.", re.DOTALL
)
_LONGEST = 8192


def is_torch_name(name: str) -> bool:
    """Can only torch define it?"""
    return _OWN.match(name) is not None or _PLAIN.match(name) is not None


def string_abi(name: str) -> str | None:
    """ "pre-cxx11" or "cxx11" where a mangled name shows which std::string it takes; None where it takes none."""
    at = 2
    while name.startswith("_Z") and at < min(len(name), _LONGEST):
        token = _TOKEN.match(name, at)
        assert token is not None  # its last alternative takes any character
        at = token.end()
        if token["old"]:
            return "pre-cxx11"
        if token["length"]:
            identifier = name[at : at + int(token["length"][:5])]
            if identifier == "__cxx11" or (identifier == "cxx11" and name[token.start() - 1] == "B"):
                return "cxx11"
            at += len(identifier)
    return None
