"""Whom the processes of a case name as gone, those first of which the case itself knows nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ftforensics.diagnose.matching import Machines
from ftforensics.model.death import Death
from ftforensics.model.launcher import Peer
from ftforensics.parsers.peer_lost import peers_of

MOST_PEERS = 16


def with_peers(deaths: Sequence[Death]) -> list[Death]:
    ranks = {death.rank for death in deaths if death.rank is not None}
    machines = Machines({death.host for death in deaths if death.host is not None})

    def is_known(peer: Peer) -> bool:
        if peer.rank is not None:
            return peer.rank in ranks
        host = peer.host or ""
        # An address says nothing about which name it has.
        return not _is_address(host) and machines.may_have(host)

    result = []
    for death in deaths:
        named = _named(death)
        peers = sorted(named, key=is_known)[:MOST_PEERS]
        result.append(msgspec.structs.replace(death, peers=peers) if peers else death)
    return result


def _named(death: Death) -> list[Peer]:
    found: dict[Peer, None] = {}
    if death.raised is not None and death.raised.peer_lost:
        for link in death.raised.exceptions:
            found.update(dict.fromkeys(peers_of(link.message)))
    for seen in death.exceptions:
        if seen.peer_lost:
            found.update(dict.fromkeys(seen.peers))
    return list(found)


def _is_address(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()
