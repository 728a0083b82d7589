"""The environment that a process was started with; what it has set since is its own."""

from __future__ import annotations

from ftforensics.host.host import Host

# bytes; the kernel allows that much for arguments and environment together, less where the stack may not grow to
# 24 MiB (fs/exec.c, bprm_stack_limits: a quarter of the limit, at most 6 MiB).
LIMIT = 6 << 20


def started_with(host: Host, pid: int) -> list[tuple[bytes, bytes]]:
    """Names and values, in their order; a name may stand there twice. Raises Refusal when the process is gone or
    another user's."""
    entries = host.read_start(f"/proc/{pid}/environ", LIMIT).split(b"\0")
    return [(name, value) for name, mark, value in (entry.partition(b"=") for entry in entries) if mark]


def variable(host: Host, pid: int, name: bytes) -> bytes | None:
    """Its first value, which is the one that getenv(3) and the dynamic loader take. Raises Refusal."""
    return next((value for one, value in started_with(host, pid) if one == name), None)
