"""Answers for programs: the Diagnosis (report.json, schema `ftforensics.report/1`) and the Preflight, as they are."""

from __future__ import annotations

import re

import msgspec

from ftforensics.model.basics import encode_hook
from ftforensics.model.diagnosis import Diagnosis
from ftforensics.model.preflight import Preflight
from ftforensics.model.stack import LoadedStack


def render(diagnosis: Diagnosis | Preflight | LoadedStack) -> str:
    """Indented JSON with a final line feed; addresses are hex strings.

    Characters that do not print are written as JSON escapes: the value is the same, and a terminal that shows the file
    stays as it was. Lone surrogates, which are no UTF-8, become U+FFFD.
    """
    try:
        encoded = msgspec.json.encode(diagnosis, enc_hook=encode_hook)
    except UnicodeEncodeError:
        builtins = msgspec.to_builtins(diagnosis, enc_hook=encode_hook)
        encoded = msgspec.json.encode(_without_surrogates(builtins))
    return harmless(msgspec.json.format(encoded, indent=2).decode()) + "\n"


def harmless(text: str, encoding: str = "utf-8") -> str:
    """The same JSON with what does not print, or has no place in `encoding`, as JSON escapes."""
    text = _UNPRINTABLE.sub(_escape, text)
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _BEYOND_ASCII.sub(_escape, text)
    return text


# Controls (C1 too), format characters with the bidirectional ones, line and paragraph separators, exotic blanks.
_UNPRINTABLE = re.compile(
    "[\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"
)
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number <= 0xFFFF:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_surrogates(item) for name, item in value.items()}
    return value
