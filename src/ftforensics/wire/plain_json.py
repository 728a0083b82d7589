"""Values as JSON, also those with text that is no UTF-8: paths of a file system may be any bytes."""

from __future__ import annotations

import msgspec

from ftforensics.capture.identity import printable
from ftforensics.model.basics import encode_hook


def encode(value: object) -> bytes:
    """Addresses are hex strings; bytes that are not UTF-8 (surrogates, see PEP 383) become the four characters \\xNN,
    as in what the handler writes itself."""
    try:
        return msgspec.json.encode(value, enc_hook=encode_hook)
    except UnicodeEncodeError:
        return msgspec.json.encode(_plain(msgspec.to_builtins(value, enc_hook=encode_hook)))


def _plain(value: object) -> object:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value
