"""Builds `evidence.jsonl` as `ftforensics run` writes it, by itself: it shares no code with what it is read by.

RunText().started(argv=["train.py"]).died(7, signal=9).ended(code=1).data()
"""

from __future__ import annotations

import json

SCHEMA = "ftforensics.evidence/1"
BOOT = "0b00f000-0000-4000-8000-000000000001"


class RunText:
    """Lines are added in the order of the calls. Times are CLOCK_MONOTONIC, the start is at 1000 s."""

    def __init__(self) -> None:
        self._lines: list[dict[str, object]] = []

    def line(self, type: str, **members: object) -> RunText:
        self._lines.append({"type": type, **members})
        return self

    def started(self, at: float = 1000.0, **members: object) -> RunText:
        clocks = {"realtime": 1.7e9, "monotonic": at, "boottime": at + 5}
        base = {"schema": SCHEMA, "version": "0.1.0", "clocks": clocks, "boot_id": BOOT, "host": "gpu-07", "pid": 90}
        return self.line("started", **{**base, "child": 100, "argv": ["train.py"], "at": at, **members})

    def died(
        self, pid: int, at: float = 1010.0, *, signal: int | None = None, code: int | None = None, **members: object
    ) -> RunText:
        status = signal if signal is not None else None if code is None else code << 8
        return self.line("died", pid=pid, at=at, status=status, signal=signal, code=code, **members)

    def counted(self, at: float, why: str, *, oom_kill: int | None = None, **groups: int) -> RunText:
        """groups: oom_kill of each group, "/" for "_"."""
        levels = [{"path": "/" + name.replace("_", "/"), "version": 1, "oom_kill": n} for name, n in groups.items()]
        moment = {"realtime": 1.7e9 + at - 1000, "monotonic": at, "boot_id": BOOT}
        reading = {"moment": moment, "source": "run", "groups": levels, "oom_kill": oom_kill}
        return self.line("counted", at=at, why=why, reading=reading)

    def kernel(self, record: str, at: float = 1010.0) -> RunText:
        return self.line("kernel", at=at, record=record)

    def sent(self, signal: int, target: int, sender: int, at: float = 1010.0, code: int = 0) -> RunText:
        return self.line(
            "sent", at=at, signal=signal, code=code, sender_comm="bash", sender_tid=sender, target_comm="python",
            target_tid=target, result=0, sender_pid=sender, text="",
        )  # fmt: skip

    def gap(self, source: str, why: str) -> RunText:
        return self.line("gap", gap={"source": source, "why": why, "grant": None})

    def ended(self, at: float = 1020.0, *, signal: int | None = None, code: int | None = None) -> RunText:
        clocks = {"realtime": 1.7e9 + at - 1000, "monotonic": at, "boottime": at + 5}
        status = signal if signal is not None else None if code is None else code << 8
        return self.line("ended", at=at, clocks=clocks, status=status, signal=signal, code=code)

    def data(self) -> bytes:
        return b"".join(json.dumps(line).encode() + b"\n" for line in self._lines)
