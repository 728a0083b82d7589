"""Whether a process that a ring or record names still runs."""

from __future__ import annotations

import errno

from ftforensics.host.host import Host, Refusal
from ftforensics.parsers.proc_files import process_state
from ftforensics.sources.identity_here import Identity, read_identity, same_boot

_ENDED = ("Z", "X", "x")  # man 5 proc_pid_stat: zombie, dead


def is_alive(
    host: Host,
    pid: int,
    start_ticks: int | None,
    boot_id: str | None,
    pid_namespace: int | None = None,
    *,
    identity: Identity | None = None,
) -> bool | None:
    """True: this very process runs, by pid, start time and boot. False: it ended. None: not known, because it is of
    another boot, machine or pid namespace than ours, or /proc does not say.

    pid_namespace: inode number of the namespace that `pid` counts in, None for ours. identity: of `host`, for whoever
    asks about many.
    """
    identity = identity or read_identity(host)
    if start_ticks is None or same_boot(identity, boot_id) is not None:
        return None
    if pid_namespace is not None and pid_namespace != identity.pid_namespace:
        return None
    try:
        state = process_state(host.read_text(f"/proc/{pid}/stat", 4096))
    except Refusal as refusal:
        return False if refusal.absent or refusal.code == errno.ESRCH else None
    if state is None:
        return None
    return state.start_ticks == start_ticks and state.state not in _ENDED
