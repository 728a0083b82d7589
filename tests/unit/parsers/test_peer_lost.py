"""Whom an exception names that only tells of another process's end. Texts are of real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftforensics.model.launcher import ExceptionSeen, Peer, ProcessDied
from ftforensics.parsers.launcher import read_launcher_log
from ftforensics.parsers.peer_lost import peers_of, says_peer_lost

FOLDER = Path(__file__).parent / "fixtures"
GLOO = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
NAMED = {
    GLOO + "Connection closed by peer [127.0.0.1]:15245. This is typically": [Peer(host="127.0.0.1", port=15245)],
    GLOO + "Read error [fe80::1%eth0]:13712: Connection reset by peer.": [Peer(host="fe80::1", port=13712)],
    "Gloo connectFullMesh failed with " + GLOO + "timed out connecting: SO_ERROR: Connection refused,"
    " remote=[10.0.0.7]:33205$0": [Peer(host="10.0.0.7", port=33205)],
    "recvValue failed on SocketImpl(fd=3, addr=[node-0]:57318, remote=[node-1]:29500): failed to recv, got 0 bytes."
    " Connection was likely closed. Did the remote server shutdown or crash?": [Peer(host="node-1", port=29500)],
    "The client socket has timed out after 60000ms while trying to connect to (10.0.0.1, 29500).": [
        Peer(host="10.0.0.1", port=29500)
    ],
    "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1275, internal error, NCCL version 2.14.3\n"
    "ncclInternalError: Internal check failed.\nLast error:\nNet : Connection closed by remote peer user<50260>": [
        Peer(host="user", port=50260)
    ],
    "Net : Connect to 10.1.2.3<4567> failed : Connection refused": [Peer(host="10.1.2.3", port=4567)],
    "NET/IB : Got completion from peer fd00::3%ib0<49189> with error 12": [Peer(host="fd00::3", port=49189)],
    "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2000 ms": [Peer(rank=1), Peer(rank=2)],
    "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms": [Peer(rank=1)],
    # It is well; its own words name who is missing.
    "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please"
    " check rank 0 logs for faulty rank.": [],
    "wait timeout after 2000ms, keys: /default_pg/0//nokey": [],
    GLOO + "Timed out waiting 4000ms for recv operation to complete": [],
    "The actor died unexpectedly before finishing this task.\n\tclass_name: Worker\n\tpid: 6944\n\tip: 10.0.0.9": [
        Peer(host="10.0.0.9")
    ],
    # The watchdog speaks of itself.
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE)": [],
    # A server binds to every address.
    "failed to bind to [::]:29500, and [0.0.0.0]:29500": [],
}


@pytest.mark.parametrize("message", NAMED)
def test_named(message: str) -> None:
    assert peers_of(message) == NAMED[message]


def test_each_once_and_not_endlessly() -> None:
    assert peers_of("closed by peer [n1]:1 and [n1]:1") == [Peer(host="n1", port=1)]
    assert len(peers_of("".join(f"[n{one}]:1 " for one in range(5000)))) == 64
    ranks = ", ".join(map(str, range(9000)))
    assert len(peers_of(f"Ranks {ranks} failed to pass monitoredBarrier in 1 ms")) <= 64
    assert peers_of("[" * 5000 + "<" * 5000) == []


def seen(text: bytes) -> list[ExceptionSeen]:
    return [one for one in read_launcher_log(text).events if isinstance(one, ExceptionSeen)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torchrun/barrier-all", [(0, [1, 2])]),
        ("torchrun/barrier", [(0, [1]), (2, [])]),
        ("torchrun/hang", [(0, [])]),
        ("torchrun/store", [(1, []), (0, [])]),
    ],
)
def test_ranks_of_real_runs(name: str, expected: list[tuple[int, list[int]]]) -> None:
    found = seen((FOLDER / f"{name}.log").read_bytes())
    assert [(one.rank, [peer.rank for peer in one.peers]) for one in found] == expected
    assert all(one.peer_lost for one in found)


@pytest.mark.parametrize(("name", "port"), [("lightning-segfault", 45954), ("lightning-sigkill", 27818)])
def test_lightning_says_nothing_of_the_dead_rank(name: str, port: int) -> None:
    """All that its log holds is what the rank beside it saw."""
    log = read_launcher_log((FOLDER / "launcher" / f"{name}.log").read_bytes())
    (event,) = log.events
    assert isinstance(event, ExceptionSeen)
    assert (event.rank, event.peer_lost, event.line.number) == (0, True, 98)
    assert event.peers == [Peer(host="127.0.0.1", port=port)]
    assert log.launchers == []


def test_nccl_over_several_lines() -> None:
    text = (
        b"[rank0]: Traceback (most recent call last):\n"
        b'[rank0]:   File "a.py", line 3, in f\n'
        b"[rank0]: torch.distributed.DistBackendError: NCCL error in: a.cpp:1275, remote process exited or there was a"
        b" network error, NCCL version 2.18\n"
        b"[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.\n"
        b"[rank0]: Last error:\n"
        b"[rank0]: socketProgress: Connection closed by remote peer node-3<43210>\n"
        b"[rank0]: step 7\n"
    )
    (event,) = seen(text)
    assert event.peer_lost
    assert event.peers == [Peer(host="node-3", port=43210)]
    assert "step 7" not in event.message


def test_ray_over_several_lines() -> None:
    text = (
        b"Traceback (most recent call last):\n"
        b'  File "base.py", line 42, in func\n'
        b"    output = ray.get(output)\n"
        b"ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        b"\tclass_name: WorkerDict\n\tactor_id: 772b\n\tpid: 694415\n\tip: 10.0.0.9\n"
        b"The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail:"
        b" There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer\n"
        b"step 8\n"
    )
    died, event = read_launcher_log(text).events  # its three guesses are nothing else
    assert isinstance(event, ExceptionSeen)
    assert event.peer_lost
    assert isinstance(died, ProcessDied)
    assert (died.launcher, died.pid, died.signal, died.code) == ("ray", 694415, None, None)
    assert event.peers == [Peer(host="10.0.0.9")]


def test_own_failures_name_nobody() -> None:
    text = b'Traceback (most recent call last):\n  File "a.py", line 3, in f\nOSError: no route to [10.0.0.1]:80\n'
    (event,) = seen(text)
    assert not event.peer_lost
    assert event.peers == []


def test_barrier_words_of_a_job_are_its_own() -> None:
    assert not says_peer_lost("ValueError", "my monitoredBarrier is broken", None)
