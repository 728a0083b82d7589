from __future__ import annotations

import pytest

from ftforensics.parsers.abort_text import AbortKind, abort_kind
from ftforensics.parsers.exception_text import exception_type


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("free(): double free detected in tcache 2\n", AbortKind.HEAP),
        ("free(): invalid pointer\n", AbortKind.HEAP),
        ("double free or corruption (!prev)\n", AbortKind.HEAP),
        ("corrupted size vs. prev_size\n", AbortKind.HEAP),
        ("corrupted size vs. prev_size while consolidating\n", AbortKind.HEAP),
        ("malloc(): unaligned tcache chunk detected\n", AbortKind.HEAP),
        ("munmap_chunk(): invalid pointer\n", AbortKind.HEAP),
        (
            "malloc.c:2379: sysmalloc: Assertion `(old_top == initial_top (av) && old_size == 0)' failed.\n",
            AbortKind.HEAP,
        ),
        ("Fatal glibc error: malloc.c:2593 (sysmalloc): assertion failed: old_end\n", AbortKind.HEAP),
        ("python: train.c:150: step: Assertion `free_blocks == 8' failed.\n", AbortKind.ASSERT),
        ("python: pool.cc:3: void free(): Assertion `free(): x' failed.\n", AbortKind.ASSERT),
        ("Fatal glibc error: nptl/x.c:1 (f): assertion failed: x\n", AbortKind.ASSERT),
        ("*** stack smashing detected ***: terminated\n", AbortKind.STACK_SMASHED),
        ("*** buffer overflow detected ***: terminated\n", AbortKind.BUFFER_OVERFLOW),
        ("The futex facility returned an unexpected error code.\n", AbortKind.OTHER),
        ("the word free(): in the middle\n", AbortKind.OTHER),
        ("", AbortKind.OTHER),
    ],
)
def test_kinds(text: str, kind: AbortKind) -> None:
    assert abort_kind(text) is kind


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("St13runtime_error", "std::runtime_error"),
        ("St9bad_alloc", "std::bad_alloc"),
        ("N3c105ErrorE", "c10::Error"),
        ("N3c1016OutOfMemoryErrorE", "c10::OutOfMemoryError"),
        ("NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "std::string"),
        ("i", "int"),
        ("PKc", "char const*"),
        ("no type at all", "no type at all"),
        ("", ""),
    ],
)
def test_exception_types(mangled: str, readable: str) -> None:
    assert exception_type(mangled) == readable
