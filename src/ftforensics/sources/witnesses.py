"""Which places on this machine would speak about a death here, and what opens those that would not.

The same doors as after a death, tried before one: docs/granting.md lists them."""

from __future__ import annotations

import os
import sys

import msgspec

from ftforensics.host.host import KMSG, Host, Refusal
from ftforensics.model.reading import Reading
from ftforensics.sources.identity_here import Identity

DMESG_RESTRICT = "/proc/sys/kernel/dmesg_restrict"
YAMA = "/proc/sys/kernel/yama/ptrace_scope"
FILESYSTEMS = "/proc/filesystems"
TRACING = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_TIMEOUT = 2.0  # seconds


class Witness(msgspec.Struct, frozen=True):
    """name: "kernel-log", "ptrace", "control-group", "signal-trace"; tells: what it would say; why: what refused, None
    when it is open; grant: what opens it."""

    name: str
    tells: str
    why: str | None = None
    grant: str | None = None


class _Answer(msgspec.Struct):
    allowed: bool = False
    why: str | None = None


def read_witnesses(host: Host, identity: Identity, memory: Reading | None) -> list[Witness]:
    return [_kernel_log(host, identity), _ptrace(host), _control_group(memory), _signal_trace(host)]


def _contained(identity: Identity) -> bool:
    return bool(identity.container or identity.pod or identity.in_initial_pid_namespace is False)


def _kernel_log(host: Host, identity: Identity) -> Witness:
    tells = "whom the kernel killed and for which limit, GPU errors (Xid), faults"
    try:
        host.kernel_ring(timeout=_TIMEOUT, limit=0)  # one record
    except Refusal as refusal:
        if _contained(identity):
            device = " --device /dev/kmsg" if refusal.absent else ""
            grant = f"docker run --cap-add SYSLOG{device} ..."
        elif _line(host, DMESG_RESTRICT) == "1":
            grant = "sudo sysctl kernel.dmesg_restrict=0"
        else:
            grant = f"sudo setfacl -m u:$USER:r {KMSG}"
        return Witness("kernel-log", tells, str(refusal), grant)
    return Witness("kernel-log", tells)


def _ptrace(host: Host) -> Witness:
    tells = "the native stacks of all threads"
    if not host.runs_commands:
        return Witness("ptrace", tells, "a copy of files cannot be asked")
    program = os.path.join(os.path.dirname(__file__), "ptrace_child.py")
    try:
        done = host.run([sys.executable, "-I", "-S", program], _TIMEOUT, 4096)
        answer = msgspec.json.decode(done.stdout, type=_Answer)
    except Refusal as refusal:
        return Witness("ptrace", tells, str(refusal))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Witness("ptrace", tells, done.complaint(_TIMEOUT))
    if answer.allowed:
        return Witness("ptrace", tells)
    scope = _line(host, YAMA)
    grant = "sudo sysctl kernel.yama.ptrace_scope=1" if scope in ("2", "3") else "docker run --cap-add SYS_PTRACE ..."
    return Witness("ptrace", tells, f"tracing a process: {answer.why}", grant)


def _control_group(memory: Reading | None) -> Witness:
    tells = "the job's memory limit, its use and the kills in it"
    if memory and memory.groups:
        return Witness("control-group", tells)
    why = "no control group of this process counts memory here"
    return Witness("control-group", tells, why, "systemd-run --user --scope COMMAND")


def _signal_trace(host: Host) -> Witness:
    """Looked at, not tried: a trace instance is the machine's."""
    tells = "which process sent a SIGKILL or SIGTERM"
    if "\ttracefs\n" not in _text(host, FILESYSTEMS):
        return Witness("signal-trace", tells, "this kernel has no tracefs")
    place = next((place for place in TRACING if host.exists(f"{place}/instances")), None)
    if place is None and os.geteuid() == 0:
        return Witness("signal-trace", tells)  # `run` mounts one for itself
    if place is None or (host.live and not os.access(f"{place}/instances", os.W_OK)):
        if os.geteuid() == 0:
            return Witness("signal-trace", tells, f"{place} is mounted read-only", "docker run --privileged ...")
        return Witness("signal-trace", tells, "only root may trace signals", "sudo -E ftforensics run -- COMMAND")
    return Witness("signal-trace", tells)


def _text(host: Host, path: str) -> str:
    try:
        return host.read_text(path, 64 << 10)
    except Refusal:
        return ""


def _line(host: Host, path: str) -> str | None:
    return _text(host, path).strip() or None
