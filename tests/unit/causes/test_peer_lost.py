from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.causes.registry import Kind, find_cause
from ftforensics.model.diagnosis import Confidence, Finding
from ftforensics.model.launcher import Peer
from synth.death import TORCH, TRAIN, DeathBuilder, ended

AskDeath = Callable[[str, DeathBuilder], list[Finding]]
ID = "peer-lost"
LOST = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:28055"


def logged(code: int | None = 1, **fields: object) -> DeathBuilder:
    return ended(code=code, **fields).exception("RuntimeError", LOST, file=TORCH, peer_lost=True)


def test_fires(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged(peers=[Peer(rank=5)], missing=[5]))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == (
        "Another process of the job went away, and this one only lost its connection to it; look at rank 5 (of which "
        "nothing is known here)."
    )
    assert finding.supports[0].text == f"RuntimeError: {LOST}"


def test_fires_for_a_record(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, ended(code=1, watched=True).raised("RuntimeError", LOST, TRAIN, TORCH, peer_lost=True))
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    ("known", "look"),
    [
        ({"peers": [Peer(host="10.0.0.2", port=28055)]}, "look at the processes on 10.0.0.2."),
        ({"peers": [Peer(host="127.0.0.1", port=28055)]}, "look for the first failure on the other ranks and nodes."),
        (
            {"missing": [4, 5, 6, 7], "missing_on": ["node 1 (10.0.0.2)"]},
            "look at ranks 4-7 on node 1 (10.0.0.2), of which nothing is known here.",
        ),
        ({"missing": list(range(1, 4000, 2))}, "and 1992 more, of which nothing is known here."),
        ({"peers": [Peer(rank=1), Peer(rank=2)]}, "look at ranks 1-2."),
        ({}, "look for the first failure on the other ranks and nodes."),
        ({"world_size": 4}, "all 4 ranks of the job are known here: look for the first failure among them."),
        ({"world_size": 4, "missing": [2]}, "look at rank 2, of which nothing is known here."),
    ],
    ids=range(8),
)
def test_it_says_whom_to_look_at(ask_death: AskDeath, known: dict[str, object], look: str) -> None:
    (finding,) = ask_death(ID, logged(**known))
    assert finding.summary.endswith(look)


def test_a_worker_is_named_as_one(ask_death: AskDeath) -> None:
    said = "DataLoader worker (pid 4711) is killed by signal: Killed. "
    (finding,) = ask_death(ID, ended(code=1).exception("RuntimeError", said, file=TORCH, worker_pid=4711))
    assert "A worker process of this one went away (pid 4711)" in finding.summary


def test_it_is_a_residual_that_says_more_than_the_status() -> None:
    cause = find_cause(ID)
    assert cause is not None and cause.kind is Kind.RESIDUAL and "exit-code" in cause.refines


@pytest.mark.parametrize(
    "death",
    [
        ended(code=1),
        ended(code=1).exception("ConnectionResetError", "[Errno 104] Connection reset by peer", file=TRAIN),
        ended(code=1).exception("ValueError", "own", file=TRAIN),
        ended(code=1)
        .exception("ValueError", "own", file=TRAIN, number=20)
        .exception("RuntimeError", LOST, file=TORCH, peer_lost=True, chained=True, handling=True),
        ended(15).exception("RuntimeError", LOST, file=TORCH, peer_lost=True),
        ended(code=1).exception("x.ChildFailedError", "train.py FAILED"),
    ],
    ids=range(6),
)
def test_near_miss_stays_quiet(ask_death: AskDeath, death: DeathBuilder) -> None:
    assert ask_death(ID, death) == []


def test_missing_evidence_weakens(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged(None))
    assert finding.confidence is Confidence.POSSIBLE
    assert any("exit status" in gap.why for gap in finding.unknown)


def test_where_all_ranks_are_here_no_other_node_is_asked_for(ask_death: AskDeath) -> None:
    (finding,) = ask_death(ID, logged(world_size=4))
    assert not finding.unknown
    assert "FOLDER_OF_NODE" not in "".join(remedy.command or "" for remedy in finding.remedies)
    (finding,) = ask_death(ID, logged(world_size=4, missing=[3]))
    assert finding.unknown and "FOLDER_OF_NODE" in (finding.remedies[0].command or "")
