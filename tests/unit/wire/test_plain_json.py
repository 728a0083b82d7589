"""What is no UTF-8 in a value is written all the same, and reads as what the handler writes of it."""

from __future__ import annotations

import os

import msgspec

from ftforensics.model.basics import Address
from ftforensics.model.crash import Module
from ftforensics.model.software import Package, Software
from ftforensics.wire.plain_json import encode


def test_a_folder_whose_name_is_no_utf8() -> None:
    folder = os.fsdecode(b"/m\xfcller/v")
    software = Software(prefix=folder, site_packages=[folder, "/\u00fc", "/\ud800"], packages=[Package("a", "1")])
    read = msgspec.json.decode(encode(software), type=Software)
    told = "/m\\xfcller/v"
    assert read == msgspec.structs.replace(software, prefix=told, site_packages=[told, "/\u00fc", "/\\ud800"])


def test_addresses_are_hex_strings() -> None:
    for path in ("/x", "/\udcff"):
        assert b'"base":"0xfff"' in encode(Module(path=path, base=Address(0xFFF)))
