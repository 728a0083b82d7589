"""Which lines of a huge log are worth a look, at a few nanoseconds a byte.

A log says the same few things over and over with other numbers. So digits and the letters a to f, of which numbers,
addresses and ids are made, are deleted from a block; what is left of a line, its skeleton, has mostly been seen before.
Only new skeletons are searched for the words, with the same characters deleted from them. A skeleton may match where
the line does not; the caller looks at the line itself. Where every line is new this costs what a search for each word
costs (bytes.find, in CPython several times as fast as one regular expression of all).
"""

from __future__ import annotations

VARIABLE = b"0123456789abcdef"
REMEMBERED = 8192  # skeletons; more would be a log without repetition, for which remembering is no use
LONGEST = 1024


class Sieve:
    """Finds the lines with one of `words`, and some others."""

    def __init__(self, words: tuple[bytes, ...]) -> None:
        self._words = tuple({word.translate(None, VARIABLE) for word in words})
        self._dull: set[bytes] = set()

    def keeps(self, block: bytes) -> list[int]:
        """Indexes into `block.split(b"\\n")`."""
        skeletons = block.translate(None, VARIABLE).split(b"\n")
        fresh = set(skeletons)
        fresh -= self._dull
        wanted = self._search(fresh)
        fresh -= wanted
        if len(self._dull) + len(fresh) > REMEMBERED:
            self._dull.clear()
        if len(fresh) <= REMEMBERED:
            self._dull.update(one for one in fresh if len(one) <= LONGEST)
        return [at for at, skeleton in enumerate(skeletons) if skeleton in wanted] if wanted else []

    def _search(self, skeletons: set[bytes]) -> set[bytes]:
        text = b"\n".join(skeletons)
        wanted: set[bytes] = set()
        for word in self._words:
            at = text.find(word)
            while at >= 0:
                end = text.find(b"\n", at)
                end = len(text) if end < 0 else end
                wanted.add(text[text.rfind(b"\n", 0, at) + 1 : end])
                at = text.find(word, end)
        return wanted
