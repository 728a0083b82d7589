"""What schedulers, containers and user-space memory killers say about an end."""

from __future__ import annotations

import msgspec

from ftforensics.model.basics import Cite
from ftforensics.model.moment import Moment


class Notice(msgspec.Struct, frozen=True):
    """One statement. authority: "slurm", "kubernetes", "docker", "systemd", "systemd-oomd", "earlyoom", "ray".

    kind: one of
      "oom"            the authority counted an OOM kill among the members of `unit`
      "killed"         the authority itself killed `pid`, or all of `group`
      "time-limit", "preempted", "cancelled", "requeued", "node-failed", "deadline"      the scheduler's decision
      "evicted"        Kubernetes eviction, `reason` says for which resource
      "stopped"        a stop was asked for (docker stop, kubelet, systemd)
      "limit-hit"      the limit was reached; nobody was killed for it (Slurm's failcnt message): no kill
      "state"          a final state (`state`), with `exit_code`, `signal`
    """

    authority: str
    kind: str
    cite: Cite
    moment: Moment = Moment()
    wall: float | None = None  # its date and time where they name no zone, read as if in UTC
    pid: int | None = None
    comm: str | None = None
    signal: int | None = None
    group: str | None = None  # cgroup path
    unit: str | None = None  # job id, step, container id, pod, systemd unit
    count: int | None = None
    state: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    host: str | None = None
    live: bool = False
    rss: int | None = None  # bytes, of the killed process, as the authority says
    tasks: int | None = None  # so many of the unit's tasks one statement is about, where it lists them
