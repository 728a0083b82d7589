"""Is an exception only the news that another process went away, and which one? Such a process is never the first to
fail.

The words are in capture.peer_lost: a process that writes its own record judges by the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ftforensics.capture.peer_lost import says_peer_lost
from ftforensics.model.launcher import Peer

__all__ = ["peers_of", "says_peer_lost"]

_SEEN = 4000  # characters of a message
_MOST = 64
# torch/csrc/distributed/c10d/ProcessGroup.cpp. A rank that waits for rank 0 in there says "errors while waiting for
# send/recv from rank 0": that one is well, and itself names who is missing.
_BARRIER = re.compile(r"\bRanks? (\d{1,7}(?:, ?\d{1,7}){0,2000}) failed to pass monitoredBarrier")
# gloo/transport/tcp and c10d's sockets: "closed by peer [fe80::1%eth0]:1234", "addr=[a]:1, remote=[b]:2"; their own
# end is called local or addr.
_BRACKETED = re.compile(r"(?<!local=)(?<!addr=)\[([0-9A-Za-z_.:%-]{1,255})\]:(\d{1,5})(?!\d)")
# NCCL's ncclSocketToString: "remote peer node-3<43210>", "Connect to 10.1.2.3<4567> failed".
_ANGLED = re.compile(r"(?<![\w.:%-])([0-9A-Za-z_.:%-]{1,255})<(\d{1,5})>")
# c10d's TCPStore client, "while trying to connect to (10.0.0.1, 29500)".
_STORE = re.compile(r"connect to \(([0-9A-Za-z_.:%-]{1,255}), (\d{1,5})\)")
# Ray, of an actor that died: "\tip: 10.0.0.7" among its particulars, or "Node IP address: 10.0.0.7".
_RAY = re.compile(r"(?:^\s*ip|Node IP(?: address)?): ([0-9A-Fa-f.:]{2,45})\s*$", re.MULTILINE)
_NOBODY = frozenset({"", "0.0.0.0", "::"})


def peers_of(message: str) -> list[Peer]:
    """Whom the message of a peer_lost exception names, in its order, each once. A port is as a rule one that the
    system chose, so it tells machines apart only by its host."""
    found: dict[Peer, None] = {}
    for peer in _named(message[:_SEEN]):
        found.setdefault(peer)
        if len(found) == _MOST:
            break
    return list(found)


def _named(message: str) -> Iterator[Peer]:
    for ranks in _BARRIER.finditer(message):
        for rank in ranks[1].split(","):
            yield Peer(rank=int(rank))
    for pattern in (_BRACKETED, _ANGLED, _STORE):
        for place in pattern.finditer(message):
            host = place[1].partition("%")[0]  # the zone is an interface of the machine that speaks
            if host not in _NOBODY:
                yield Peer(host=host, port=int(place[2]) or None)
    for place in _RAY.finditer(message):
        yield Peer(host=place[1])
