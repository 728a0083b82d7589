"""Crash records written by hand: the format of `ftforensics.crash/1`, stated once more and on purpose.

Nothing of `ftforensics` is imported here. If the reader and the model agreed on a wrong layout, tests built on them
would agree too; a builder of its own does not.

    data = CrashText().signal(11, "SIGSEGV", 1, "SEGV_MAPERR", address=0x28, access="read").data()
"""

from __future__ import annotations

import base64
import json
from typing import Any

# In the order of the file: what matters most is written first.
MEMBERS = (
    "schema", "tool", "time", "process", "signal", "mechanism", "registers", "phase", "step", "note",
    "abort_message", "cxx_exception", "fault_file", "native", "python", "code", "native_frame_pointer",
    "native_scan", "python_threads", "stack", "other_crashers", "signals_seen", "handlers", "job", "limits",
    "core", "driver", "libraries", "software", "modules", "threads", "status", "maps", "recorder", "stages", "end",
)  # fmt: skip

STACK = "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]"
THREAD_GUARD = "7f10007ff000-7f1000800000 ---p 00000000 00:00 0"
THREAD_STACK = "7f1000800000-7f1001000000 rw-p 00000000 00:00 0"
TEXT = "7f0000001000-7f0000002000 r-xp 00001000 08:01 77                         /usr/lib/libx.so"
RODATA = "7f0000002000-7f0000003000 r--p 00002000 08:01 77                         /usr/lib/libx.so"
SHARD = "7f2000000000-7f2000010000 r--s 00000000 08:01 4711                       /data/shard.bin"
SHM = "7f3000000000-7f3000010000 rw-s 00000000 00:19 9                          /dev/shm/torch_1_2"
MAPS = [TEXT, RODATA, SHARD, SHM, THREAD_GUARD, THREAD_STACK, STACK]

PC = 0x7F0000001136


class CrashText:
    """A record that died by nothing yet: pid 4242, in /usr/lib/libx.so, on x86-64."""

    def __init__(self) -> None:
        self.members: dict[str, Any] = dict.fromkeys(MEMBERS)
        self.members.update(
            schema="ftforensics.crash/1",
            tool={"name": "ftforensics", "version": "0.1.0", "python": "3.11.7", "helper": "none", "raw_stack": False},
            time={
                "realtime": 1764434400.5,
                "monotonic": 1000.5,
                "boottime": 1000.5,
                "installed": 990.0,
                "boot_id": "1f0c9e1e-6a43-4b7e-a6f1-f4c6a80d7a11",
            },
            process={"pid": 4242, "tid": 4242, "ppid": 4200, "nspid": [4242], "main_thread": True, "python": "running"},
            job={"host": "gpu-07", "rank": 3, "machine": "x86_64", "cpu_flags": "fpu sse2 avx avx2 fma"},
            limits={"core": 0, "stack": 8 << 20},
            modules=[{"path": "/usr/lib/libx.so", "base": "0x7f0000000000", "end": "0x7f0000200000", "build_id": "aa"}],
            maps=list(MAPS),
            stages=[{"name": "native", "ok": True, "ms": 0.4, "error": None}],
            end={"how": "refault", "next": "0x0", "total_ms": 3.2},
        )
        self.registers()
        self.frames(PC)

    def set(self, **members: Any) -> CrashText:
        self.members.update(members)
        return self

    def signal(
        self,
        number: int,
        name: str,
        code: int,
        code_name: str,
        *,
        address: int | None = None,
        access: str | None = None,
        sender: int | None = None,
        trap: int | None = None,
        **more: Any,
    ) -> CrashText:
        return self.set(
            signal={
                "number": number,
                "name": name,
                "code": code,
                "code_name": code_name,
                "address": None if address is None else hex(address),
                "access": access,
                "sender": None if sender is None else {"pid": sender, "uid": 1000},
                "trap": trap,
                **more,
            }
        )

    def segv(self, address: int, access: str, code: int = 1) -> CrashText:
        return self.signal(
            11, "SIGSEGV", code, {1: "SEGV_MAPERR", 2: "SEGV_ACCERR"}[code], address=address, access=access
        )

    def registers(self, pc: int = PC, sp: int = 0x7FFD00010000, arch: str = "x86_64", **values: int) -> CrashText:
        listed = [{"name": name, "value": hex(value)} for name, value in values.items()]
        listed += [{"name": "rsp", "value": hex(sp)}, {"name": "rip", "value": hex(pc)}] if arch == "x86_64" else []
        return self.set(registers={"arch": arch, "pc": hex(pc), "sp": hex(sp), "fp": "0x0", "values": listed})

    def code(self, at_pc: bytes, pc: int = PC, before: int = 16) -> CrashText:
        data = b"\x90" * before + at_pc
        text = base64.b64encode(data).decode()
        return self.set(code={"start": hex(pc - before), "data": text, "redacted": False})

    def frames(self, *pcs: int, trust: str = "cfi") -> CrashText:
        listed = [{"pc": hex(pc), "sp": None, "trust": "context" if i == 0 else trust} for i, pc in enumerate(pcs)]
        return self.set(native={"unwinder": "libgcc", "start": "context", "frames": listed, "complete": True})

    def python(self, *lines: tuple[str, int, str]) -> CrashText:
        text = "Stack (most recent call first):\n"
        text += "".join(f'  File "{file}", line {line} in {function}\n' for file, line, function in lines)
        return self.set(python={"text": text, "hex": None, "truncated": False})

    def data(self) -> bytes:
        """The whole file, as the handler would have written it."""
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in self.members.items()]
        return ("{" + ",\n".join(lines) + "}\n").encode()
