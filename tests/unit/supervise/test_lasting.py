"""Which run folders go with their container."""

from __future__ import annotations

import pytest

from ftforensics.supervise.lasting import passing_file_system

CONTAINER = """\
600 500 0:50 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a:/b
601 600 0:51 / /proc rw - proc proc rw
602 600 0:52 / /dev/shm rw - tmpfs shm rw
603 600 259:1 /vol/x /data rw master:2 - ext4 /dev/nvme0n1p1 rw
604 603 0:60 / /data/scratch rw - tmpfs none rw
605 600 0:61 / /work\\040here rw shared:3 - nfs4 server:/x rw
"""
HOST = """\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:22 / /tmp rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/root/ftforensics/1", "overlay"),
        ("/database", "overlay"),
        ("/dev/shm/x", "tmpfs"),
        ("/data/run", None),
        ("/data", None),
        ("/data/scratch/run", "tmpfs"),
        ("/work here/run", None),
    ],
)
def test_in_a_container(path: str, kind: str | None) -> None:
    assert passing_file_system(path, {}, CONTAINER, ()) == kind


def test_on_a_machine_nothing_goes() -> None:
    assert passing_file_system("/tmp/x", {}, HOST, ()) is None
    assert passing_file_system("/tmp/x", {}, HOST, ("/proc",)) == "tmpfs"
    assert passing_file_system("/tmp/x", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, HOST, ()) == "tmpfs"


@pytest.mark.parametrize("text", ["", "garbage", "1 2 - x", "a b c d e f g h - "])
def test_what_cannot_be_read_warns_of_nothing(text: str) -> None:
    assert passing_file_system("/x", {}, text, ()) is None
