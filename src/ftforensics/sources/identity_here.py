"""Which machine, boot and container we run in: whether what can be read now is evidence about a given process.

Live places (kernel log, counters, control groups, the driver) speak about a process only on its own boot, and control
groups and drivers only in its own container too. The caller decides; this file gives what it needs.
"""

from __future__ import annotations

import os

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.parsers.cgroup_path import container_id
from ftforensics.parsers.proc_files import container_of_mounts

BOOT_ID = "/proc/sys/kernel/random/boot_id"
HOSTNAME = "/proc/sys/kernel/hostname"
# include/linux/proc_ns.h, PROC_PID_INIT_INO: the same number on every kernel since 3.8.
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
_SMALL = 4096


class Identity(msgspec.Struct, frozen=True):
    """boot_id: of the running kernel, which containers of one machine share; host: the host name in our namespace;
    container: 64 hex digits, None when no sign of one is seen (Apptainer and plain namespaces leave none);
    pid_namespace, cgroup_namespace: inode numbers of /proc/self/ns/*; in_initial_pid_namespace: our pids are the kernel
    log's, None when unknown; machine: "x86_64"; pod: we run in a Kubernetes pod."""

    boot_id: str | None = None
    host: str | None = None
    container: str | None = None
    pid_namespace: int | None = None
    cgroup_namespace: int | None = None
    in_initial_pid_namespace: bool | None = None
    machine: str | None = None
    pod: bool = False


def read_identity(host: Host) -> Identity:
    namespace = _namespace(host, "pid")
    groups = _text(host, "/proc/self/cgroup", 64 << 10) or ""
    mounts = _text(host, "/proc/self/mountinfo", 1 << 20) or ""
    return Identity(
        boot_id=boot_of(host),
        host=_line(host, HOSTNAME),
        container=next(filter(None, map(container_id, groups.splitlines())), None) or container_of_mounts(mounts),
        pid_namespace=namespace,
        cgroup_namespace=_namespace(host, "cgroup"),
        in_initial_pid_namespace=None if namespace is None else namespace == INITIAL_PID_NAMESPACE,
        machine=os.uname().machine if host.live else None,
        # Kubernetes mounts the service account there, unless the pod forbids it.
        pod="kubepods" in groups or host.exists("/var/run/secrets/kubernetes.io"),
    )


def same_boot(identity: Identity, boot_id: str | None, host: str | None = None) -> Gap | None:
    """None when this is the machine and boot that wrote `boot_id`: enough for the kernel log and /proc/vmstat, whose
    numbers all containers share. host: its host name, for the reason only."""
    if boot_id is None:
        return Gap("machine", "the input does not say on which boot of which machine it was written")
    if identity.boot_id is None:
        return Gap("machine", f"{BOOT_ID} cannot be read: this machine may be another one")
    if boot_id == identity.boot_id:
        return None
    if host is not None and host == identity.host:
        return Gap("machine", f"{host} was started again since: boot {boot_id[:8]} then, {identity.boot_id[:8]} now")
    why = f"it was written on another machine or boot than this: {host or 'no name'}, boot {boot_id[:8]}"
    return Gap("machine", why, f"run ftforensics analyze on {host}" if host else None)


def same_machine(identity: Identity, boot_id: str | None, host: str | None, container: str | None) -> Gap | None:
    """None when also control groups and drivers that are read here are those of the process that wrote all three; a Gap
    with the reason otherwise. None for host or container: the input does not name one."""
    if gap := same_boot(identity, boot_id, host):
        return gap
    if container is not None and identity.container is not None:
        if _same_container(container, identity.container):
            return None
        why = f"it ran in container {container[:12]}, this is container {identity.container[:12]} of the same machine"
        return Gap("machine", why, f"run ftforensics analyze in container {container[:12]}")
    if container is not None:
        why = f"it ran in container {container[:12]}, this is the machine itself or a container without a sign of one"
        return Gap("machine", why, f"run ftforensics analyze in container {container[:12]}")
    if identity.container is not None:
        return Gap("machine", f"it names no container, and this is container {identity.container[:12]}")
    # Namespaces without an id (unshare, Apptainer) show in the host name only, and often not even there.
    if host is None or host != identity.host:
        return Gap("machine", f"it was written under the host name {host or '(none)'}, here it is {identity.host}")
    return None


def _same_container(one: str, other: str) -> bool:
    """Docker's host name and short forms are the first 12 digits of the id."""
    length = min(len(one), len(other))
    return length >= 12 and one[:length] == other[:length]


def same_groups(identity: Identity, cgroup_namespace: int | None) -> Gap | None:
    """None when a group's path means the same here as to the process, as far as is known."""
    if None in (identity.cgroup_namespace, cgroup_namespace) or identity.cgroup_namespace == cgroup_namespace:
        return None
    return Gap(
        "cgroup",
        "it ran in a cgroup namespace of its own, where paths name other groups than here",
        "run ftforensics analyze in its container while that lives, or start the job by ftforensics run",
    )


def boot_of(host: Host) -> str | None:
    """Another one after every start of the machine; its containers share it."""
    return _line(host, BOOT_ID)


def host_name(host: Host) -> str | None:
    """Of our own namespace. A sandbox may hide /proc/sys; what the system call says counts for the machine we run on
    alone."""
    return _line(host, HOSTNAME) or (os.uname().nodename if host.live else None)


def _namespace(host: Host, kind: str) -> int | None:
    # /proc/self of a copied root is whoever copied it; the inode of a copy says nothing.
    if not host.live:
        return None
    try:
        return host.stat(f"/proc/self/ns/{kind}").st_ino
    except Refusal:
        return None


def _text(host: Host, path: str, limit: int) -> str | None:
    try:
        return host.read_text(path, limit)
    except Refusal:
        return None


def _line(host: Host, path: str) -> str | None:
    text = _text(host, path, _SMALL)
    return text.strip() or None if text else None
