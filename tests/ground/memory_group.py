"""A control group with a memory limit, version 1, for real OOM kills. Removed afterwards, whatever happened."""

from __future__ import annotations

import errno
import time
import uuid
from types import TracebackType

from conditions import CGROUP_V1_MEMORY


class MemoryGroup:
    """`with MemoryGroup(200 << 20) as group: Popen([*group.enter, "python", ...])`. limit: bytes, None = unlimited."""

    def __init__(self, limit: int | None, parent: MemoryGroup | None = None) -> None:
        above = parent.path if parent is not None else CGROUP_V1_MEMORY
        self.path = above / f"ftf-test-{uuid.uuid4().hex[:12]}"
        self.limit = limit

    @property
    def name(self) -> str:
        """As the kernel's log and /proc/PID/cgroup say it."""
        return str(self.path.relative_to(CGROUP_V1_MEMORY.parent / "memory")).join(("/", ""))

    @property
    def enter(self) -> list[str]:
        """Words to put in front of a command that is to run in the group."""
        return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.path)]

    def kills(self) -> int:
        words = (self.path / "memory.oom_control").read_text().split()
        return int(words[words.index("oom_kill") + 1])

    def __enter__(self) -> MemoryGroup:
        self.path.mkdir()
        if self.limit is not None:
            (self.path / "memory.limit_in_bytes").write_text(str(self.limit))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A group is busy until the last of its processes has been reaped by whoever its parent is.
        deadline = time.monotonic() + 10
        while True:
            try:
                self.path.rmdir()
                return
            except OSError as problem:
                if problem.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
