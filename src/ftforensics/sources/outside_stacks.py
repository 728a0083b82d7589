"""All threads' stacks of a live process, taken from outside by py-spy or pystack (ptrace).

py-spy first: it answers in a tenth of a second for a plain program, in one second with libtorch loaded. It shows only
threads that run Python, so that pystack adds the others. Neither gives addresses. Both stop the process while they
read; a tool that is cut at its deadline can leave it stopped (benfred/py-spy#390), which is undone here, and only when
it was not stopped before.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.helper_report import HelperThread
from ftforensics.parsers import pyspy_json, pystack_text
from ftforensics.parsers.proc_files import pending_signals

PYSPY_TIMEOUT = 3.0  # seconds
PYSTACK_TIMEOUT = 2.5
INSTALL = "pip install 'ftforensics[hang]'"
OWN_THREAD = "ftforensics"  # the name that csrc/ftf_watcher.c gives its thread
YAMA = "/proc/sys/kernel/yama/ptrace_scope"


class OutsideStacks(msgspec.Struct, frozen=True):
    """tool: which answered ("py-spy and pystack"), or refused; gap: why threads are missing; seconds: in all."""

    tool: str | None
    version: str | None
    threads: list[HelperThread]
    gap: Gap | None
    seconds: float


class _Tool(msgspec.Struct, frozen=True):
    name: str
    arguments: Callable[[int], list[str]]
    timeout: float
    parse: Callable[[bytes], list[HelperThread]]
    refused: Callable[[bytes], bool]


_TOOLS = (
    _Tool(
        "py-spy",
        lambda pid: ["dump", "--native", "--json", "--pid", str(pid)],
        PYSPY_TIMEOUT,
        pyspy_json.parse,
        pyspy_json.refused,
    ),
    _Tool(
        "pystack",
        lambda pid: ["remote", "--native-all", str(pid)],
        PYSTACK_TIMEOUT,
        lambda output: pystack_text.parse(output.decode("utf-8", "backslashreplace")),
        pystack_text.refused,
    ),
)


def outside_stacks(pid: int, host: Host) -> OutsideStacks:
    """Ask py-spy, and pystack when it failed or did not show every thread. A refusal by the kernel ends the search: the
    next tool would meet it too."""
    seconds = 0.0
    threads: list[HelperThread] = []
    answered: list[str] = []
    complaints: list[str] = []
    for tool in _TOOLS:
        program = _program(tool.name, host)
        if program is None:
            complaints.append(f"{tool.name} is not installed")
            continue
        stopped_before = _stopped(pid, host)
        try:
            done = host.run([program, *tool.arguments(pid)], tool.timeout)
        except Refusal as refusal:
            complaints.append(str(refusal))
            continue
        seconds += done.seconds
        if done.status != 0 and not stopped_before and _stopped(pid, host):
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)
        if done.status != 0 and not done.timed_out and tool.refused(done.stderr):
            gap = Gap("ptrace", f"the kernel did not let {tool.name} trace the process", _grant(host))
            return OutsideStacks(tool.name, _version(tool.name), [], gap, seconds)
        try:
            found = tool.parse(done.stdout) if done.status == 0 else []
        except ValueError as error:
            complaints.append(str(error))
            continue
        if not found:
            complaints.append(f"{tool.name}: {done.complaint(tool.timeout)}")
            continue
        answered.append(tool.name)
        known = {thread.tid for thread in threads}
        threads += [thread for thread in found if thread.tid not in known]
        if not _missing(pid, threads, host):
            break
    return OutsideStacks(
        tool=" and ".join(answered) or None,
        version=" and ".join(version for name in answered if (version := _version(name))) or None,
        threads=threads,
        gap=_shortfall(pid, threads, complaints, host),
        seconds=seconds,
    )


def _missing(pid: int, threads: list[HelperThread], host: Host) -> set[int]:
    """Threads of the process whose stack nobody gave. py-spy leaves out those that never ran Python.

    Our own watcher is one of these in every process; it is not worth another look.
    """
    try:
        alive = {int(name) for name in host.names(f"/proc/{pid}/task") if name.isdigit()}
    except Refusal:
        return set()
    left_out = alive - {thread.tid for thread in threads}
    return {tid for tid in left_out if _name(pid, tid, host) != OWN_THREAD}


def _name(pid: int, tid: int, host: Host) -> str | None:
    try:
        return host.read_text(f"/proc/{pid}/task/{tid}/comm", 4096).rstrip("\n")
    except Refusal:
        return None


def _shortfall(pid: int, threads: list[HelperThread], complaints: list[str], host: Host) -> Gap | None:
    not_installed = any(complaint.endswith("is not installed") for complaint in complaints)
    if not threads:
        return Gap("stacks", "; ".join(complaints) or "no thread was found", INSTALL if not_installed else None)
    missing = _missing(pid, threads, host)
    if not missing:
        return None
    why = (
        f"{len(missing)} of {len(missing) + len(threads)} threads are not shown: {'; '.join(complaints) or 'not read'}"
    )
    return Gap("stacks", why, INSTALL if not_installed else None)


def _program(name: str, host: Host) -> str | None:
    """Beside this interpreter (a virtual environment that is not activated), else on PATH."""
    folders = [os.path.dirname(sys.executable), *(os.environ.get("PATH") or os.defpath).split(os.pathsep)]
    for folder in folders:
        path = f"{folder}/{name}"
        if folder.startswith("/") and host.exists(path) and os.access(path, os.X_OK):
            return path
    return None


def _version(name: str) -> str | None:
    """Of the distribution in this environment; None for a tool from elsewhere on PATH."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _stopped(pid: int, host: Host) -> bool:
    """Is the process stopped by a signal ("T"; a tracer's own stop is "t", man 5 proc_pid_stat), or about to be?

    kill(2) comes back before that: SIGSTOP waits, then the thread that takes it stops, then the others (do_signal_stop
    in kernel/signal.c). Looked at in this order, so that it cannot slip by."""
    try:
        if signal.SIGSTOP in pending_signals(host.read_text(f"/proc/{pid}/status", 64 << 10)):
            return True
    except Refusal:
        return False
    return any(_state(pid, thread, host) == "T" for thread in host.listed(f"/proc/{pid}/task"))


def _state(pid: int, thread: str, host: Host) -> str | None:
    try:
        words = host.read_text(f"/proc/{pid}/task/{thread}/stat", 4096).rpartition(")")[2].split()
    except Refusal:
        return None
    return next(iter(words), None)


def _grant(host: Host) -> str:
    try:
        scope = host.read_text(YAMA, 64).strip()
    except Refusal:
        scope = "0"
    if scope != "0":
        return f"sysctl kernel.yama.ptrace_scope=0 (it is {scope}), or in a container: --cap-add SYS_PTRACE"
    return "in a container: --cap-add SYS_PTRACE (Kubernetes: securityContext.capabilities.add SYS_PTRACE)"
