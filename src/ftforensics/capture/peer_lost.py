"""Is an exception only the news that another process went away? Such a process is never the first to fail.

The wording alone does not do: a data download says "Connection reset by peer" too. It must come from a library that
talks to other ranks or children: by the exception's type, by the message, or by the file that raised it.

The standard library alone: the process that an exception ends judges by it, and so does who reads its log.
"""

from __future__ import annotations

# By type alone: these exist to report another process's end.
_TYPES = frozenset({
    "BrokenProcessPool", "TerminatedWorkerError", "ProcessExitedException", "ProcessRaisedException",
    "RendezvousConnectionError", "RendezvousClosedError", "HorovodInternalError", "HostsUpdatedInterrupt",
    "ActorDiedError", "RayActorError", "WorkerCrashedError", "NodeDiedError", "OwnerDiedError", "LocalRayletDiedError",
    "ActorUnavailableError", "CalledProcessError",
})  # fmt: skip
# What libraries between ranks say about a peer, whatever the type.
_SAYS = (
    r"ncclRemoteError|remote process (?:has )?exit|Connection closed by remote peer|NCCL communicator was aborted"
    r"|(?:caught|detected) collective operation timeout|Connection was likely closed"
    r"|Connection (?:closed|reset) by peer.{0,200}?remote worker"
    r"|gloo/transport/.{0,400}?(?:closed by peer|reset by peer|Broken pipe|Connection refused|Timed out waiting)"
    r"|(?:TCPStore|\[c10d\]|c10d::|nccl).{0,600}?(?:Broken pipe|Connection (?:reset|refused|closed)|got 0 bytes)"
    r"|wait timeout after \d{1,12}ms, keys: "
    r"|failed to pass monitoredBarrier in |reached monitoredBarrier, but received errors while waiting"
)
# One of these is in each of them, in lower case.
_MARKS = (
    "nccl", "peer", "remote process", "collective operation timeout", "connection was likely", "gloo/", "tcpstore",
    "c10d", "wait timeout after", "monitoredbarrier",
)  # fmt: skip
_LOST = frozenset(
    {"ConnectionResetError", "ConnectionAbortedError", "ConnectionRefusedError", "BrokenPipeError", "EOFError"}
)
_CHANNELS = ("/multiprocessing/", "/torch/distributed/", "/gloo/", "/joblib/", "/loky/")


# torch's store and process groups raise it for whatever befalls a socket; an address that is taken is nobody's end.
_NETWORK = "DistNetworkError"
_OWN_ADDRESS = ("address already in use", "eaddrinuse", "failed to bind", "failed to listen", "permission denied")


def says_peer_lost(kind: str, message: str, file: str | None) -> bool:
    """kind: the exception's type, dotted or not; file: of the frame that raised it."""
    name = kind.rpartition(".")[2]
    if name in _TYPES:
        return True
    if name == _NETWORK:
        lowered = message[:2000].lower()
        return not any(words in lowered for words in _OWN_ADDRESS)
    if name in _LOST and file is not None and any(part in file for part in _CHANNELS):
        return True
    return _says(message[:2000])


def _says(message: str) -> bool:
    """A process that is out of memory asks too, and an import there is more than lost: what 3.12 and 3.13 leave of `re`
    when memory ends on the way makes the garbage collector crash at exit."""
    lowered = message.lower()
    if not any(mark in lowered for mark in _MARKS):
        return False
    import re

    return re.search(_SAYS, message, re.IGNORECASE | re.DOTALL) is not None
