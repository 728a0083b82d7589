"""Another process of the job went away, and this one only lost its connection to it.

## What it means

The ranks of a job talk to each other all the time. When one dies, hangs or loses its network, the others see a
connection closed, a collective that does not finish, or a worker that does not answer, and raise an exception about
that. They are the messengers. Where this is all that the input holds, the reason lies with a process of which nothing
is known here: another rank, another node, a worker.

## How it is told apart

All that the exception that ended this process says is that another one is gone: by its type (a broken process pool, a
dead actor), or by the words and the origin (gloo, NCCL's remote error, torch's store, multiprocessing). "Connection
reset by peer" from a download is not it. Where an exception of its own was the first one in the chain, that is named
instead. Likely at most, and it is a statement about this process alone: that it is a consequence is known, of what is
not. Whom to look at is taken from the text (a rank, a host), and from the ranks of the job of which this input holds
nothing. An address names a machine, not the guilty process on it.

## What to do

1. Look at the rank or node that is named: its log, its run folder, its kernel's log, and the scheduler about its node.
2. Give everything to one analysis: `ftforensics analyze FOLDER_OF_NODE_0 FOLDER_OF_NODE_1 ...`.
3. If nothing died there: a firewall, an interface that went down, or a rank that is only slow (a timeout).

## Seen in the field

- CGCL-codes/pFedSD#3, RVC-Project/Retrieval-based-Voice-Conversion-WebUI#1882: "Connection closed by peer
  [172.28.0.12]:14004" is all that was posted, of the rank that was still alive.
- With two torchrun agents the innocent node prints no failure summary, only a `RendezvousConnectionError`: the agent
  that holds the store had left.

## References

- PyTorch documentation, "Distributed communication package"; gloo source, transport/tcp/pair.cc
- NCCL documentation, ncclRemoteError
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ftforensics.causes.raised import own_exception, said
from ftforensics.causes.ranks import listed, ranks_text
from ftforensics.causes.registry import Kind
from ftforensics.model.basics import Gap
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding, Remedy
from ftforensics.parsers.launcher_dataloader import workers_of

KIND = Kind.RESIDUAL
ORDER = 40
REFINES = ("exit-code",)
_HERE = ("127.0.0.1", "::1", "localhost")
_MOST = 8  # ranks, hosts or ranges that a sentence names


def check_death(death: Death) -> Iterator[Finding]:
    own = own_exception(death)
    if own is None or not own.peer_lost:
        return
    workers = workers_of(own.failure.message)
    whom = _whom(death)
    everybody = not whom and death.world_size is not None and not death.missing
    look = f"; look at {whom}" if whom else "; look for the first failure on the other ranks and nodes"
    if everybody:
        look = f"; all {death.world_size} ranks of the job are known here: look for the first failure among them"
    what = f"Another process of the job went away, and this one only lost its connection to it{look}."
    if workers:
        pids = ", ".join(str(pid) for pid in workers[:_MOST])
        what = f"A worker process of this one went away (pid {pids}); its own end says why."
    seen = death.code is not None or own.recorded
    unknown = []
    if not everybody:
        unknown.append(
            Gap("job", f"how {whom or 'the other process'} ended", "ftforensics analyze FOLDER_OF_EACH_NODE...")
        )
    if not seen:
        unknown.append(Gap("launcher", "the exit status: somebody may have caught the exception"))
    yield Finding(
        cause="peer-lost",
        confidence=Confidence.LIKELY if seen else Confidence.POSSIBLE,
        summary=what,
        supports=[*own.cites, *death.ending],
        unknown=unknown,
        remedies=list(_remedies(death, said(own.failure), everybody)),
    )


def _whom(death: Death) -> str:
    """Whom its exceptions name, and the ranks of which nothing is known."""
    named = list(dict.fromkeys(peer.rank for peer in death.peers if peer.rank is not None))
    hosts = list(dict.fromkeys(peer.host for peer in death.peers if peer.host and peer.host not in _HERE))
    missing = [rank for rank in death.missing if rank not in named]
    parts = [ranks_text(named, _MOST)] if named else []
    if hosts:
        parts.append(f"the processes on {_places(hosts)}")
    if missing and not named:
        where = f" on {_places(death.missing_on)}" if death.missing_on else ""
        parts.append(f"{ranks_text(missing, _MOST)}{where}, of which nothing is known here")
    elif named and set(named) <= set(death.missing):
        parts[0] += f" ({'of which' if len(named) == 1 else 'of all of which'} nothing is known here)"
    return " and ".join(parts)


def _places(names: Sequence[str]) -> str:
    return listed([" ".join(one.split())[:100] for one in names], _MOST)


def _remedies(death: Death, text: str, everybody: bool) -> Iterator[Remedy]:
    """everybody: of all ranks of the job something is known."""
    if everybody:
        yield Remedy(
            "If none of the ranks failed by itself, the connection did: does each reach the others, by the interface"
            " that GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names?",
            "ip -brief address; env | grep -E 'SOCKET_IFNAME|MASTER_'",
            settles=True,
        )
    else:
        yield Remedy(
            "Give the records and logs of all nodes to one analysis: the first failure is on another one",
            "ftforensics analyze FOLDER_OF_NODE_0 FOLDER_OF_NODE_1 ...",
            settles=True,
        )
    if death.missing_on:
        yield Remedy(f"Look at {_places(death.missing_on)}: the kernel's log there, and what the scheduler says of it")
    if "imed out" in text or "timeout" in text:
        yield Remedy("If nothing died there, a rank was only slow: init_process_group(timeout=timedelta(hours=1))")
