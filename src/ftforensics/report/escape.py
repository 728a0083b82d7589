"""Foreign text made harmless and visible.

Thread names, argv, paths, exception texts and log lines are whatever somebody put there: escape codes that repaint the
screen, bidirectional overrides that swap words, line feeds that forge a line of ours. Each such character is shown as
its Python escape. Only printable characters, and the ordinary space, pass.
"""

from __future__ import annotations

import unicodedata

# More marks than this on one letter climb into the lines above and below.
MOST_MARKS = 2

# Printable by category, and yet nothing to see: the Hangul fillers and the blank Braille pattern.
BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800")


def printable(text: str) -> str:
    """`text` on one line, with every character that does not print as itself escaped (`\\x1b`, `\\u202e`, `\\n`).

    A backslash that is already there stays single: paths would be unreadable otherwise, and an escape that somebody
    typed does no harm. Variation selectors and joiners are escaped too, which breaks some emoji apart.
    """
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        # A mark with no letter before it would land on our own text.
        stray = marks > MOST_MARKS or (marks == 1 and not shown)
        if not character.isprintable() or character in BLANK or stray:
            shown.append(escaped(character))
        else:
            shown.append(character)
    return "".join(shown)


def escaped(character: str) -> str:
    if character in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[character]
    number = ord(character)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def shortened(text: str, limit: int) -> str:
    """`text` in at most `limit` characters, cut in the middle: both ends of a path or a mangled name tell something."""
    if len(text) <= limit:
        return text
    if limit <= 1:
        return text[:limit]
    head = (limit - 1) // 2
    return text[:head] + "…" + text[len(text) - (limit - 1 - head) :]
