"""/etc/ld.so.cache: which file ldconfig found for which library name.

Format: glibc sysdeps/generic/dl-cache.h. "glibc-ld.so.cache1.1" stands alone since 2.32, behind a table of the older
format "ld.so-1.7.0" before. The subdirectories of 2.33 (glibc-hwcaps/x86-64-v3) are a table in the extension; 2.36
misplaces its names in a cache of both formats (ldconfig -c compat), so that neither ldconfig nor the loader knows them.
Entries for the hardware subdirectories of earlier versions (haswell, tls; gone with 2.37) are left out: whether they
are taken depends on more than a CPU's flags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgspec

_OLD_MAGIC = b"ld.so-1.7.0"
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")  # libraries, string bytes, flags (byte order), extension offset
_ENTRY = struct.Struct("<iIIIQ")  # flags, name, path, unused, hwcap
_OLD_ENTRY_SIZE = 12
_EXTENSION_MAGIC = 0xEAA4_2174
_EXTENSION_HEADER = struct.Struct("<II")  # magic, sections
_EXTENSION_SECTION = struct.Struct("<IIII")  # tag, flags, offset, size
_HWCAPS_TAG = 1
_HWCAP_EXTENSION = 1 << 62
_LITTLE_ENDIAN, _ENDIAN_UNSET = 2, 0
_ENTRIES_LIMIT = 1 << 20
_TEXT_LIMIT = 4096  # PATH_MAX

_LIBC6 = 3
_KINDS = {62: 0x0300 | _LIBC6, 183: 0x0A00 | _LIBC6}  # EM_X86_64, EM_AARCH64: flags of a 64-bit library


class CachedLibrary(msgspec.Struct, frozen=True):
    """hwcap: the glibc-hwcaps subdirectory that the file lies in ("x86-64-v3"), None for the folder itself."""

    name: str
    path: str
    hwcap: str | None = None


def read_cache(content: bytes, machine: int) -> list[CachedLibrary]:
    """The entries for one machine (e_machine), in the file's order. Raises ValueError when it is something else."""
    start = _start(content)
    if len(content) < start + _HEADER.size:
        raise ValueError("not a cache of glibc 2.2 or later")
    magic, count, _, flags, extension = _HEADER.unpack_from(content, start)
    if magic != _MAGIC:
        raise ValueError("not a cache of glibc 2.2 or later")
    if flags & 3 not in (_LITTLE_ENDIAN, _ENDIAN_UNSET):
        raise ValueError("written for another byte order")
    entries_at = start + _HEADER.size
    if count > _ENTRIES_LIMIT or entries_at + count * _ENTRY.size > len(content):
        raise ValueError("ends inside its table")

    def text(offset: int) -> str:
        at = start + offset
        end = content.find(b"\0", at, at + _TEXT_LIMIT)
        return content[at : max(at, end)].decode("utf-8", "backslashreplace")

    hwcaps = _hwcaps(content, extension, text) if start == 0 else []
    found = []
    for at in range(entries_at, entries_at + count * _ENTRY.size, _ENTRY.size):
        kind, name, path, _, wanted = _ENTRY.unpack_from(content, at)
        if kind != _KINDS.get(machine):
            continue
        hwcap = None
        if wanted & _HWCAP_EXTENSION:
            index = wanted & 0xFFFF_FFFF
            hwcap = hwcaps[index] if index < len(hwcaps) else ""
        if hwcap == "" or (wanted and hwcap is None):
            continue
        found.append(CachedLibrary(text(name), text(path), hwcap))
    return found


def _start(content: bytes) -> int:
    if not content.startswith(_OLD_MAGIC) or len(content) < 16:
        return 0
    (count,) = struct.unpack_from("<I", content, 12)
    return int(16 + count * _OLD_ENTRY_SIZE + 7) // 8 * 8


def _hwcaps(content: bytes, extension: int, text: Callable[[int], str]) -> list[str]:
    at = extension
    if not extension or at + _EXTENSION_HEADER.size > len(content):
        return []
    magic, sections = _EXTENSION_HEADER.unpack_from(content, at)
    if magic != _EXTENSION_MAGIC:
        return []
    at += _EXTENSION_HEADER.size
    for place in range(at, at + min(sections, 64) * _EXTENSION_SECTION.size, _EXTENSION_SECTION.size):
        if place + _EXTENSION_SECTION.size > len(content):
            break
        tag, _, offset, size = _EXTENSION_SECTION.unpack_from(content, place)
        names = content[offset : offset + min(size, 4096)]
        if tag == _HWCAPS_TAG:
            return [text(name) for (name,) in struct.iter_unpack("<I", names[: len(names) // 4 * 4])]
    return []
