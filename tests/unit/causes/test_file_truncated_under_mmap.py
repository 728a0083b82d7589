from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.diagnosis import Confidence, Finding
from synth.crash_record import CrashText

Ask = Callable[..., list[Finding]]
CUT = {"path": "/data/shard.bin", "size": 0x1000, "filesystem": 0xEF53, "free": 1 << 40}


def bus(address: int = 0x7F2000002000) -> CrashText:
    return CrashText().signal(7, "SIGBUS", 2, "BUS_ADRERR", address=address, access="read")


def test_fires(ask: Ask) -> None:
    (finding,) = ask("file-truncated-under-mmap", bus().set(fault_file=CUT))
    assert finding.confidence is Confidence.LIKELY
    assert "/data/shard.bin, 4096 bytes long" in finding.summary


def test_commands_quote_the_path(ask: Ask) -> None:
    maps = ["7f2000000000-7f2000010000 r--s 00000000 08:01 4711     /data/a b;reboot"]
    (finding,) = ask("file-truncated-under-mmap", bus().set(maps=maps, fault_file={**CUT, "path": "/data/a b;reboot"}))
    assert [remedy.command for remedy in finding.remedies] == ["lsof '/data/a b;reboot'", "stat '/data/a b;reboot'"]


def test_a_deleted_file_is_not_looked_for(ask: Ask) -> None:
    maps = ["7f2000000000-7f2000010000 r--s 00000000 08:01 4711     /data/shard.bin (deleted)"]
    (finding,) = ask("file-truncated-under-mmap", bus().set(maps=maps))
    assert finding.summary == "A mapped file, deleted since, became shorter while it was in use: /data/shard.bin."
    assert [remedy.command for remedy in finding.remedies] == [None]


def test_a_shared_memory_file_that_is_shown_to_be_cut_fires_too(ask: Ask) -> None:
    (finding,) = ask(
        "file-truncated-under-mmap", bus(0x7F3000002000).set(fault_file={**CUT, "path": "/dev/shm/torch_1_2"})
    )
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "text",
    [
        bus().set(fault_file={**CUT, "size": 0x10000}),  # long enough: the disk, not the length
        bus(0x7F3000002000),  # /dev/shm
        bus(0x7F1000900000),  # no file
        bus().signal(7, "SIGBUS", 4, "BUS_MCEERR_AR", address=0x7F2000002000),
        bus().signal(7, "SIGBUS", 0, "SI_USER", sender=999),
    ],
)
def test_near_miss_stays_quiet(ask: Ask, text: CrashText) -> None:
    assert ask("file-truncated-under-mmap", text) == []


def test_missing_evidence_weakens(ask: Ask) -> None:
    (finding,) = ask("file-truncated-under-mmap", bus())
    assert finding.confidence is Confidence.LIKELY
    assert {gap.source for gap in finding.unknown} == {"file", "kmsg"}
    assert ask("file-truncated-under-mmap", bus().set(maps=None)) == []
