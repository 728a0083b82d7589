"""What the flight recorder is told at install, and taking away the rings of children that this process ended itself.

The ring is made and written by the extension (csrc/ftf_recorder.c); `wire.ring` reads it.
"""

from __future__ import annotations

import os

from ftforensics.capture import VERSION, cgroup, environment, identity, spawn
from ftforensics.capture.folder import private_place
from ftforensics.capture.imports import Patch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType
    from typing import Any

SUFFIX = ".ring"
_MAGIC = b"FTFRING\0"
_ARGUMENTS, _ARGUMENT = 64, 1000
_TERM, _KILL = 15, 9


def configure(native: ModuleType, environ: Mapping[str, str], cgroup_lines: list[str], removable: list[str]) -> None:
    """Tell the extension what a ring says about this process. removable: folders that go when they are empty at the
    end, innermost first. Raises OSError when there is no memory for it."""
    mountinfo = cgroup.read_mountinfo()
    mount = cgroup.memory_mount(cgroup_lines, mountinfo)
    native.configure_recorder(
        VERSION.encode(),
        _text(environ, cgroup_lines, mountinfo),
        os.fsencode(mount.directory) if mount else b"",
        os.fsencode(mount.root) if mount else b"",
        mount.version if mount else 0,
        os.fsencode(private_place(environ)),
        _device(environ),
        [os.fsencode(path) for path in removable],
        _number(environment.rank(environ)),
        _number(environment.local_rank(environ)),
        _number(environment.world_size(environ)),
        spawn.worker_of,
    )


def _text(environ: Mapping[str, str], cgroup_lines: list[str], mountinfo: str) -> bytes:
    """`key=value` entries, each ended by a zero byte."""
    entries = [("exe", identity.link("/proc/self/exe")), ("host", os.uname().nodename)]
    attempt = environment.attempt(environ)
    entries.append(("attempt", None if attempt is None else str(attempt)))
    entries.append(("container", cgroup.container_id(cgroup_lines, mountinfo)))
    entries += [("argv", argument) for argument in identity.command_line(_ARGUMENTS, _ARGUMENT)]
    text = "".join(f"{key}={value}\0" for key, value in entries if value is not None)
    return identity.printable(text).encode("utf-8")


def _number(value: int | None) -> int:
    return -1 if value is None or value >= 1 << 62 else value


def _device(environ: Mapping[str, str]) -> bytes:
    """The GPU of this rank, as NVML finds it: an index or a UUID; b"" when nothing says which. A rank takes the visible
    device with the number of its local rank, or the only one."""
    number = environment.local_rank(environ) or 0
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return str(number).encode() if number < 1000 else b""
    devices = [device.strip() for device in visible.split(",") if device.strip()]
    if len(devices) == 1:
        number = 0
    if number >= len(devices):
        return b""
    device = devices[number]
    plain = device.isascii() and (device.isdigit() or device.startswith(("GPU-", "MIG-")))
    return device.encode() if plain and len(device) < 80 else b""


class EndedChildren:
    """Children of multiprocessing that this process itself ends by SIGTERM or SIGKILL: nobody need wonder what killed
    them. Their rings go when their status says that it was this signal (or that they handled it: torch's DataLoader
    workers leave with 0), or when this process ends well before it has seen a status."""

    def __init__(self, native: ModuleType) -> None:
        self._native = native
        self._signals: dict[int, int] = {}

    def watch(self, popen: ModuleType) -> list[Patch]:
        """popen: the module multiprocessing.popen_fork, whose Popen the other start methods derive from."""
        owner: Any = popen.Popen
        if not all(hasattr(owner, name) for name in ("_send_signal", "poll")):
            return []
        return [
            Patch(owner, "_send_signal", lambda: self._send_signal(owner._send_signal)),
            Patch(owner, "poll", lambda: self._poll(owner.poll)),
        ]

    def _send_signal(self, original: Any) -> Any:
        def _send_signal(popen: Any, sig: int) -> Any:
            if sig in (_TERM, _KILL) and popen.poll() is None:
                self._signals[popen.pid] = int(sig)
            return original(popen, sig)

        return _send_signal

    def _poll(self, original: Any) -> Any:
        def poll(popen: Any, *args: Any, **kwargs: Any) -> Any:
            status = original(popen, *args, **kwargs)
            if status is not None and self._signals:
                sent = self._signals.pop(popen.pid, None)
                if sent is not None and status in (-sent, 0):
                    self._remove([popen.pid])
            return status

        return poll

    def leave(self) -> None:
        """This process ends well."""
        self._remove(list(self._signals))
        self._signals.clear()

    def forget(self) -> None:
        """In a forked child: they are its parent's."""
        self._signals.clear()

    def _remove(self, pids: list[int]) -> None:
        own = self._native.record_path() if pids else None
        if own is None:
            return
        folder, _, name = os.fsdecode(own).rpartition("/")
        stem = name[: name.rfind(f"-{os.getpid()}-")]
        try:
            for entry in os.listdir(folder):
                if entry.endswith(SUFFIX) and entry.startswith(tuple(f"{stem}-{pid}-" for pid in pids)):
                    _remove_if_childs(os.path.join(folder, entry))
        except OSError:
            pass  # the folder is gone, or not ours to read any more


def _remove_if_childs(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        head = os.read(fd, 80)
    finally:
        os.close(fd)
    if len(head) < 80 or not head.startswith(_MAGIC):
        return
    # csrc/ftf_ring.h: ppid, fork_of, worker_of
    parents = [int.from_bytes(head[at : at + 4], "little") for at in (52, 64, 68)]
    if os.getpid() in parents:
        real = os.path.realpath(path)
        os.unlink(path)
        if real != path:  # on a network file system the folder holds a link
            os.unlink(real)
