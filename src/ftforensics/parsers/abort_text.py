"""What glibc leaves in `__abort_msg` before it calls abort()."""

from __future__ import annotations

import re
from enum import Enum


class AbortKind(str, Enum):
    HEAP = "heap"
    ASSERT = "assert"
    STACK_SMASHED = "stack-smashed"
    BUFFER_OVERFLOW = "buffer-overflow"
    OTHER = "other"


# malloc/malloc.c, malloc_printerr(): the texts of 2.26 to 2.41, which name the function or the damaged field.
# Checked as a whole message start, since an assertion's text may hold the word "free" too.
_HEAP = re.compile(
    r"(malloc|free|realloc|calloc|memalign|mremap_chunk|munmap_chunk|malloc_consolidate|malloc_check_get_size|"
    r"systrim|sysmalloc|chunk_main_arena|unlink_chunk|tcache_thread_shutdown|_int_free|_int_malloc)\(\): "
    r"|corrupted (double-linked list|size vs\. prev_size)|double free or corruption|invalid fastbin entry"
    r"|break adjusted to free malloc space|malloc: |free: "
)
# assert/assert.c: "%s%s%s:%u: %s%sAssertion `%s' failed.\n"
_ASSERT = re.compile(r"Assertion [`'].*' failed\.", re.DOTALL)
# malloc's own consistency asserts (before 2.38 they came through __malloc_assert) name malloc.c or arena.c.
_MALLOC_ASSERT = re.compile(r"(^|: )(malloc|arena|morecore)\.c:\d+: ")


def abort_kind(text: str) -> AbortKind:
    """Which of glibc's own complaints `text` is."""
    message = text.strip()
    if _ASSERT.search(message):
        return AbortKind.HEAP if _MALLOC_ASSERT.search(message) else AbortKind.ASSERT
    if message.startswith("Fatal glibc error: "):
        message = message.removeprefix("Fatal glibc error: ")
        if re.match(r"(malloc|arena)\.c:\d+", message):
            return AbortKind.HEAP
        return AbortKind.ASSERT if "assertion failed" in message else AbortKind.OTHER
    if "stack smashing detected" in message:
        return AbortKind.STACK_SMASHED
    if "buffer overflow detected" in message:
        return AbortKind.BUFFER_OVERFLOW
    return AbortKind.HEAP if _HEAP.match(message) else AbortKind.OTHER
