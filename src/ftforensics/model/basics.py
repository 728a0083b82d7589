"""The words every layer shares: addresses, gaps, cites.

Values are frozen; a thing that may be unknown is `None` only when the record says
nothing about it, and a `Gap` when somebody looked and was refused.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Address(int):
    """A machine address or register value. In files a hex string ("0x7f00"): JSON numbers lose 64-bit values."""

    def __repr__(self) -> str:
        return f"0x{self:x}"

    __str__ = __repr__


def decode_hook(wanted: type, value: Any) -> Any:
    """msgspec `dec_hook`: hex strings (or plain integers) become `Address`."""
    if wanted is Address:
        return Address(int(value, 16) if isinstance(value, str) else int(value))
    raise NotImplementedError(f"no decoder for {wanted!r}")


def encode_hook(value: Any) -> Any:
    """msgspec `enc_hook`: an `Address` becomes its hex string."""
    if isinstance(value, Address):
        return hex(value)
    raise NotImplementedError(f"no encoder for {type(value)!r}")


class Gap(msgspec.Struct, frozen=True):
    """Something that was looked for and could not be seen.

    source: where we looked ("ptrace", "symbols", "kmsg"); why: what refused; grant: the command or
    setting that would make it readable, or None when nothing would.
    """

    source: str
    why: str
    grant: str | None = None


class Cite(msgspec.Struct, frozen=True):
    """One piece of evidence that a person can check by hand.

    source: "crash", "helper", "maps", "file"; locator: where in it ("signal.address", "native.frames[0]");
    text: what it said, an excerpt.
    """

    source: str
    locator: str
    text: str
