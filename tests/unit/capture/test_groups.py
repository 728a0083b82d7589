"""Where the memory groups are mounted, and which container this is, from the texts of different machines."""

from __future__ import annotations

import pytest

from ftforensics.capture import cgroup, recorder

ID = "0123456789abcdef" * 4
V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = V1 + "42 31 0:39 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
DOCKER_V1 = f"35 31 0:32 /docker/{ID} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("lines", "mountinfo", "expected"),
    [
        (["4:memory:/job", "0::/"], V1, ("/sys/fs/cgroup/memory", "/", 1)),
        (["0::/job"], V2, ("/sys/fs/cgroup", "/", 2)),
        (["4:cpu,memory:/job", "0::/"], HYBRID, ("/sys/fs/cgroup/memory", "/", 1)),
        (["1:name=systemd:/", "0::/"], HYBRID, ("/sys/fs/cgroup/unified", "/", 2)),
        ([f"4:memory:/docker/{ID}"], DOCKER_V1, ("/sys/fs/cgroup/memory", f"/docker/{ID}", 1)),
        (["0::/"], V2.replace("/sys/fs/cgroup", "/my\\040groups"), ("/my groups", "/", 2)),
        (["0::/"], V2 + V2.replace("/sys/fs/cgroup", "/later"), ("/later", "/", 2)),
        (["0::/"], V1, None),
        ([], "", None),
        (["nonsense"], "nonsense - - -\n- cgroup2\n", None),
    ],
)
def test_the_mount_of_the_memory_controller(
    lines: list[str], mountinfo: str, expected: tuple[str, str, int] | None
) -> None:
    mount = cgroup.memory_mount(lines, mountinfo)
    assert (None if mount is None else (mount.directory, mount.root, mount.version)) == expected


HOSTNAME = f"50 31 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"


@pytest.mark.parametrize(
    ("lines", "mountinfo", "expected"),
    [
        ([f"4:memory:/docker/{ID}"], "", ID),
        ([f"0::/system.slice/docker-{ID}.scope"], "", ID),
        ([f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"], "", ID),
        ([f"11:memory:/kubepods/burstable/pod1/{ID}"], "", ID),
        ([f"0::/machine.slice/libpod-{ID}.scope/container"], "", ID),
        (["0::/"], HOSTNAME, ID),
        (["0::/slurm/uid_0/job_1"], "", None),
        ([f"0::/{ID[:-1]}"], "", None),
        ([f"0::/{ID[:-1]}x"], HOSTNAME.replace(ID, "short"), None),
    ],
)
def test_the_container(lines: list[str], mountinfo: str, expected: str | None) -> None:
    assert cgroup.container_id(lines, mountinfo) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, b"0"),
        ({"LOCAL_RANK": "3"}, b"3"),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"}, b"6"),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "6"}, b"6"),
        ({"LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": "4,6"}, b""),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8a1f"}, b"GPU-8a1f"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-GPU-8a1f/1/0"}, b"MIG-GPU-8a1f/1/0"),
        ({"CUDA_VISIBLE_DEVICES": ""}, b""),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, b""),
        ({"CUDA_VISIBLE_DEVICES": "nonsense"}, b""),
    ],
)
def test_the_gpu_of_this_rank(environ: dict[str, str], expected: bytes) -> None:
    assert recorder._device(environ) == expected
