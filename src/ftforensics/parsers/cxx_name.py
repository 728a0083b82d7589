"""C++ names: mangled ones read (Itanium C++ ABI 5.1), demangled ones shortened.

The demangler is `cpp-demangle`. It has no budget of its own: a name made to hurt doubles its result with every ten
characters, because a substitution (`S0_`) may stand for text that was built from substitutions. So the size of the
result is estimated from the name before it is tried, and a name that is too long, might become too long, or makes the
demangler panic, has no demangled form here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

# The longest name in libtorch 2.13 has 1,466 characters, the longest result 12,601.
MAX_LENGTH = 8192
MAX_RESULT = 64 << 10
MAX_ESTIMATE = 1 << 25  # an upper bound, in nested templates far above the size that comes out

_TOKEN = re.compile(
    r"""C[1-5]|D[0-5]                        # constructors and destructors: no length follows
      | L(?:[a-z]|Dn)n?\d*E                  # a literal of a built-in type
      | A\d*_                                # an array's bound
      | _Z|__\d+_|_\d                        # nested encoding; discriminators of local names
      | (?P<length>\d+)                      # an identifier
      | (?P<standard>S[abdiost])
      | (?P<reference>[ST][0-9A-Z]*_)
      | (?P<opening>Ul|D[tT]|[INJFXLZ])
      | (?P<close>E)
      | .""",
    re.VERBOSE | re.DOTALL,
)
_LAMBDA_NUMBER = re.compile(r"\d*_")
_LONGEST_WORD = 12  # "unsigned int"
_LONGEST_STANDARD = 80  # std::basic_string<char, std::char_traits<char>, std::allocator<char> >


def short_name(name: str) -> str:
    """A demangled name as people say it: no return type, arguments, template arguments, clones or lambdas.

    "void at::native::(anonymous namespace)::add_kernel(at::Tensor&)::{lambda()#1}::operator()() const" is
    "at::native::add_kernel". A C name stays, without its symbol version and compiler suffix.
    """
    name = re.sub(r"@.*|\.(?:cold|part|isra|constprop|lto_priv)\b.*| \[clone .*\]", "", name)
    if not _CXX.search(name):
        return name
    bare = bare_name(name).partition("::{lambda")[0].replace("(anonymous namespace)::", "")
    folded = re.sub(r"(?<!operator)(?:<…?>|\(…?\)|\[abi:\w+\])", "", bare)
    folded = re.sub(r" (?:const|volatile|&|&&)$", "", folded)
    # A template function carries its return type in front.
    return folded if "operator" in folded else folded.rpartition(" ")[2] or name


_CXX = re.compile(r"::|[(<]")


def bare_name(name: str) -> str:
    """A C++ name with template arguments and parameters folded: `at::native::run<…>(…)`.

    `operator<`, `operator<<`, `operator->` and `operator()` keep their signs; lambdas and `(anonymous namespace)` stay.
    """
    kept: list[str] = []
    depth = 0  # inside how many folded brackets
    open_signs: list[str] = []
    index = 0
    while index < len(name):
        rest = name[index:]
        if depth == 0 and (sign := _operator_sign(name, index)):
            kept.append(sign)
            index += len(sign)
            continue
        if depth == 0 and rest.startswith("(anonymous namespace)"):
            kept.append("(anonymous namespace)")
            index += len("(anonymous namespace)")
            continue
        character = name[index]
        if character in "<(":
            if depth == 0:
                kept.append(character)
            open_signs.append(character)
            depth += 1
        elif character in ">)" and open_signs and name[index - 1] != "-":
            open_signs.pop()
            depth -= 1
            if depth == 0:
                kept.append(("" if kept[-1] in "<(" and name[index - 1] in "<(" else "…") + character)
        elif depth == 0:
            kept.append(character)
        index += 1
    # Brackets that never close are no C++ name we know: show it as it is.
    return "".join(kept) if depth == 0 else name


def _operator_sign(name: str, index: int) -> str:
    """The sign of an operator whose name ends at `index`, "" when none does."""
    if not name.endswith("operator", 0, index):
        return ""
    if name.startswith("()", index):
        return "()"
    end = index
    while end < len(name) and name[end] in "<>=-*!+/%&|^~":
        end += 1
    sign = name[index:end]
    # operator<<int> is operator< with an argument list; the list's bracket is left for the caller.
    return sign[:-1] if sign == "<<" and ">" in name[end:].partition("(")[0] else sign


def demangled(mangled: str) -> str | None:
    """The readable form of one mangled name (`_Z...`); None when there is none, or none of sane size. Never raises."""
    if len(mangled) > MAX_LENGTH or estimated_size(mangled) > MAX_ESTIMATE:
        return None
    try:
        text = _demangler()(mangled)
    except ValueError:  # not well-formed, too deep, or not UTF-8
        return None
    except BaseException as error:
        # A panic in the Rust code arrives as pyo3_runtime.PanicException, which is no Exception and cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        return None
    return text if len(text) <= MAX_RESULT else None


@lru_cache(maxsize=1)
def _demangler() -> Callable[[str], str]:
    # Late: many reports have no native frame to name.
    try:
        from cpp_demangle import demangle
    except ImportError:  # installed with --no-deps: mangled names are better than no report
        return str
    return demangle  # type: ignore[no-any-return]


def estimated_size(mangled: str) -> int:
    """An upper bound, in characters, of what the name expands to; reading stops above MAX_ESTIMATE.

    Not a parser: it knows what opens a part and that `E` closes it, and the parts are numbered in the order of their
    ends. Mostly fewer parts are counted than the ABI counts (no pointers, no qualifiers; but functions, which are no
    types), so with some room the part that `S<n>_` stands for is among the first n counted here, and its size at most
    the largest of theirs. The room keeps the bound good to a small factor, which is all that a budget needs.
    """
    total = 0
    largest = [0]  # of the first n parts, by n
    kinds, sizes, lasts = [""], [0], [0]  # of the open parts: opening letters, size so far, size of the last name

    def add(size: int, *, is_part: bool = True) -> None:
        sizes[-1] += size
        lasts[-1] = sizes[-1] if kinds[-1] == "N" else size
        if is_part:
            largest.append(max(largest[-1], lasts[-1]))

    index, end = 0, len(mangled)
    while index < end and total <= MAX_ESTIMATE:
        token = _TOKEN.match(mangled, index)
        assert token is not None  # its last branch takes any character
        index = token.end()
        if number := token["length"]:
            if kinds[-1] == "L" and sizes[-1]:  # the value of an enumerator, behind its type
                continue
            length = int(number[:6])
            index += length
            add(length + 4)
        elif reference := token["reference"]:
            known = largest[-1]
            if reference[0] == "S":
                number = reference[1:-1]
                place = int(number, 36) + 1 if number else 0
                known = largest[min(place + place // 2 + 4, len(largest) - 1)]
            add(known + 4, is_part=False)
        elif token["standard"]:
            add(_LONGEST_STANDARD, is_part=False)
        elif opening := token["opening"]:
            kinds.append(opening)
            sizes.append(0)
            lasts.append(0)
        elif token["close"]:
            if len(kinds) > 1:
                kind, size = kinds.pop(), sizes.pop()
                lasts.pop()
                if kind == "Ul":
                    rest = _LAMBDA_NUMBER.match(mangled, index)
                    index = rest.end() if rest else index
                if kind == "I":  # the name in front of the arguments, with them
                    sizes[-1] += size
                    lasts[-1] = sizes[-1] if kinds[-1] == "N" else lasts[-1] + size
                    largest.append(max(largest[-1], lasts[-1]))
                else:
                    add(size + 8, is_part=kind == "F")
        else:
            sizes[-1] += _LONGEST_WORD
        total = sizes[-1] if len(sizes) == 1 else sum(sizes)
    return total
