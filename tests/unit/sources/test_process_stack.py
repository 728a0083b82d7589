"""A live process's libraries and software, on a copied root: what of /proc is read, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftforensics.host.host import Host, Refusal
from ftforensics.sources.process_stack import search_path, stack_of_process

SITE = "/v/lib/python3.11/site-packages"
MAPS = """\
55d0a0000000-55d0a0001000 r-xp 00000000 08:01 11         /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00000000 08:01 12         /v/lib/python3.11/site-packages/torch/lib/libc10.so
7f0000001000-7f0000002000 rw-p 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00000000 08:01 13                         /usr/lib/x86_64-linux-gnu/libcuda.so.530.30.02
7f0000003000-7f0000004000 r-xp 00000000 08:01 14                         /opt/a/libcudart.so.12.1.105 (deleted)
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
"""


class Processes:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = Host(root=root)

    def write(self, path: str, content: str | bytes) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    made = Processes(tmp_path)
    made.write("/proc/42/maps", MAPS)
    made.write(f"{SITE}/torch/version.py", "__version__ = '2.5.1+cu121'\ncuda = '12.1'\n")
    made.write(f"{SITE}/torch/lib/libc10.so", b"")
    made.write("/usr/lib/x86_64-linux-gnu/libcuda.so.530.30.02", b"")
    return made


def test_libraries_software_and_libcuda(processes: Processes) -> None:
    stack = stack_of_process(processes.host, 42)
    assert [library.kind for library in stack.libraries] == ["libc10", "libcuda", "libcudart"]
    assert stack.libraries[2].drifted == "deleted after it was loaded"
    assert stack.software.torch is not None and stack.software.torch.cuda == "12.1"
    assert (stack.libcuda, stack.mapped) == ("/usr/lib/x86_64-linux-gnu/libcuda.so.530.30.02", 4)


def test_a_large_environment_is_read_to_its_end(processes: Processes) -> None:
    """The kernel takes 6 MiB where the stack may grow so far."""
    processes.write("/proc/42/environ", b"A=" + b"x" * (5 << 20) + b"\0LD_LIBRARY_PATH=/b\0PATH=/v/bin\0")
    assert search_path(processes.host, 42) == "/b"


def test_of_the_environment_only_the_search_path_is_taken(processes: Processes) -> None:
    processes.write(
        "/proc/42/environ", b"A_TOKEN=x\0NOT_LD_LIBRARY_PATH=/a\0LD_LIBRARY_PATH=/b:/c\xff\0LD_LIBRARY_PATH=/d\0"
    )
    assert search_path(processes.host, 42) == "/b:/c\\xff"
    processes.write("/proc/42/environ", b"")
    assert search_path(processes.host, 42) is None
    assert search_path(processes.host, 43) is None


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        (b"/w/bin/python3\0train.py\0", "/w"),
        (b"bin/python3\0train.py\0", "/w"),
        (b"./bin/../bin/python\0train.py\0", "/w"),
        (b"python\0train.py\0", "/w"),
        (b"python9\0train.py\0", "/usr"),
        (b"/usr/bin/python3\0train.py\0", "/usr"),
        (b"", "/usr"),
    ],
)
def test_a_process_that_has_loaded_nothing_of_its_environment(
    processes: Processes, command: bytes, prefix: str
) -> None:
    processes.write("/proc/42/maps", MAPS.splitlines(keepends=True)[0])
    processes.write("/proc/42/cmdline", command)
    for path in ("/usr/bin/python3.11", "/w/pyvenv.cfg", "/w/bin/python", "/w/bin/python3"):
        processes.write(path, "")
    processes.write("/proc/42/environ", b"PATH=/nowhere:/w/bin:/usr/bin\0")
    (processes.root / "proc/42/exe").symlink_to("/usr/bin/python3.11")
    (processes.root / "proc/42/cwd").symlink_to("/w")
    processes.write("/w/lib/python3.12/site-packages/torch-2.9.1.dist-info/METADATA", "Name: torch\n")
    software = stack_of_process(processes.host, 42).software
    assert software.prefix == prefix
    assert (software.torch is not None) is (prefix == "/w")


def test_a_process_that_is_gone(processes: Processes) -> None:
    with pytest.raises(Refusal) as refused:
        stack_of_process(processes.host, 43)
    assert refused.value.absent


def test_a_part_of_the_kernel_has_nothing_mapped(processes: Processes) -> None:
    processes.write("/proc/2/maps", "")
    assert stack_of_process(processes.host, 2).mapped == 0
