"""What the container runtime says about one container's end: `docker inspect`, `podman inspect`.

Kubernetes is not asked: that needs rights on the API server, which this program never uses. The command is named
instead, for a person who has them.
"""

from __future__ import annotations

import re

import msgspec

from ftforensics.host.host import Host, Refusal
from ftforensics.model.basics import Gap
from ftforensics.model.notice import Notice
from ftforensics.parsers.notices import read_notices
from ftforensics.sources.identity_here import Identity

SOURCE = "container"
TIMEOUT = 5.0  # seconds
OUTPUT_LIMIT = 4 << 20
RUNTIMES = ("docker", "podman")
_ID = re.compile(r"[0-9a-f]{12,64}")


def read_container(host: Host, container: str | None, identity: Identity) -> tuple[list[Notice], list[Gap]]:
    """container: its id, at least the first 12 digits. Both lists are empty where there is none to ask about."""
    gaps = [_pod(identity)] if identity.pod else []
    if container is None:
        return [], gaps
    if not _ID.fullmatch(container):
        return [], [*gaps, Gap(SOURCE, f"{container[:80]!r} is no container id")]
    grant = f"on the node: docker inspect {container[:12]} > container.json; give the file to ftforensics analyze"
    if not host.runs_commands:
        return [], [
            *gaps,
            Gap(SOURCE, "docker: not asked: it would speak of this machine, not of the copied files", grant),
        ]
    refused = []
    for runtime in RUNTIMES:
        found = _inspect(host, runtime, container)
        if isinstance(found, str):
            refused.append(found)
        elif found:
            return found, gaps
        else:
            refused.append(f"{runtime} inspect says nothing about the end of {container[:12]}")
    return [], [*gaps, Gap(SOURCE, "; ".join(refused), grant)]


def _inspect(host: Host, runtime: str, container: str) -> list[Notice] | str:
    """The statements, or why there are none."""
    try:
        done = host.run([runtime, "inspect", "--type", "container", container], TIMEOUT, OUTPUT_LIMIT)
    except Refusal as refusal:
        return str(refusal)
    if done.timed_out or done.status != 0:
        return f"{runtime} inspect: {done.complaint(TIMEOUT)}"
    found = read_notices(done.stdout, f"{runtime} inspect {container[:12]}")
    return [msgspec.structs.replace(notice, live=True) for notice in found]


def _pod(identity: Identity) -> Gap:
    """A pod's host name is its name, unless it uses the node's network."""
    name = identity.host or "POD"
    return Gap(
        "kubernetes",
        "the pod's status is known to the API server only, which is never asked from here",
        f"kubectl get pod {name} -o json > pod.json; give the file to ftforensics analyze",
    )
