"""The ranks' meeting place: real sockets on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ftforensics.host.host import Completed, Host
from ftforensics.sources.rendezvous import ask_rendezvous


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one


def port_of(one: socket.socket) -> int:
    number: int = one.getsockname()[1]
    return number


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return port_of(one)


def test_a_store_that_listens_answers(listener: socket.socket) -> None:
    met = ask_rendezvous(Host(), "localhost", port_of(listener), listen=False)
    assert met is not None and met.outcome == "connected" and "127.0.0.1" in met.addresses


def test_nobody_listening_yet_is_told_from_no_answer() -> None:
    met = ask_rendezvous(Host(), "127.0.0.1", free_port(), listen=False)
    assert met is not None and met.outcome == "refused"


def test_a_port_that_is_taken_is_not_free(listener: socket.socket) -> None:
    met = ask_rendezvous(Host(), "127.0.0.1", port_of(listener), listen=True)
    assert met is not None and met.outcome == "in use"


def test_a_free_port_is_free() -> None:
    met = ask_rendezvous(Host(), "127.0.0.1", free_port(), listen=True)
    assert met is not None and met.outcome == "free"


@pytest.mark.parametrize("name", ["no-such-host.invalid", "", "a" * 300, "-h"])
def test_a_name_that_does_not_resolve_is_an_error(name: str) -> None:
    met = ask_rendezvous(Host(), name or " ", 29500, listen=False)
    assert met is not None and met.error and met.outcome is None


def test_a_look_up_without_end_is_silent(tmp_path: Path) -> None:
    def run(argv: Sequence[str], timeout: float, limit: int) -> Completed:
        return Completed(tuple(argv), None, b"", b"", timed_out=True)

    met = ask_rendezvous(Host(root=tmp_path, run=run), "node-1", 29500, listen=False)
    assert met is not None and met.silent and met.error is None


def test_a_copied_root_has_no_network(tmp_path: Path) -> None:
    assert ask_rendezvous(Host(root=tmp_path), "localhost", 1, listen=False) is None
