"""Output that real launchers printed about real deaths (fixtures/launcher), and what may happen to it on its way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from ftforensics.model.launcher import (
    AttemptBegan,
    ExceptionSeen,
    LauncherEvent,
    LauncherLog,
    NativeText,
    Peer,
    ProcessDied,
    ProcessStarted,
    SignalledBy,
)
from ftforensics.model.moment import Moment
from ftforensics.parsers.launcher import looks_like_launcher_log, read_launcher_log

FOLDER = Path(__file__).parent / "fixtures" / "launcher"
LOGS = sorted(FOLDER.glob("*.log"))
NAMES = [log.stem for log in LOGS]


class Died(NamedTuple):
    pid: int | None
    signal: int | None
    code: int | None
    rank: int | None = None
    local_rank: int | None = None
    first: bool = False


GLOO = (0, "RuntimeError", True)
NAN = (1, "RuntimeError", False)


def torchrun(killed: int, teardown: int, signal: int | None, code: int | None = None) -> list[Died]:
    """Rank 1 fails, rank 0 gets SIGTERM from the agent: first the log line, then the summary, the root cause last."""
    return [
        Died(killed, signal, code, None, 1, True),
        Died(teardown, 15, None, 0, 0, False),
        Died(killed, signal, code, 1, 1, True),
    ]


DEATHS = {
    "dataloader-exit": [Died(24879, None, 5)],
    "dataloader-oom": [Died(10831, 9, None), Died(10831, None, None)],
    "dataloader-segfault": [Died(10840, 11, None)],
    "dataloader-shm": [],
    "deepspeed-oom": [Died(None, 9, None, first=True)],
    "deepspeed-raise": [Died(None, None, 1, first=True)],
    "deepspeed-sigkill": [Died(None, 9, None, first=True)],
    "lightning-segfault": [],
    "lightning-sigkill": [],
    "mpspawn-exit3": [Died(None, None, 3, None, 1)],
    "mpspawn-segfault": [Died(None, 11, None, None, 1)],
    "mpspawn-sigkill": [Died(None, 9, None, None, 1)],
    "torchrun-abort": torchrun(10785, 10784, 6),
    "torchrun-exit3": torchrun(18721, 18720, None, 3),
    "torchrun-oom": torchrun(10737, 10736, 9),
    "torchrun-raise": torchrun(10798, 10797, None, 1),
    "torchrun-record-raise": torchrun(23644, 23643, None, 1),
    "torchrun-segfault": torchrun(10761, 10760, 11),
    "torchrun-segfault-record": torchrun(10773, 10772, 11),
    "torchrun-sigkill": torchrun(10749, 10748, 9),
    "torchrun-sigterm": torchrun(23095, 23094, 15),
}
EXCEPTIONS = {
    **{name: [GLOO] for name in NAMES if name.startswith(("torchrun", "lightning", "deepspeed"))},
    "deepspeed-raise": [NAN, GLOO],
    "torchrun-raise": [NAN, GLOO],
    "torchrun-segfault-record": [GLOO, GLOO],  # the rank's own output, then the file that the summary quotes
    "torchrun-record-raise": [NAN, GLOO, GLOO, NAN],
    "dataloader-exit": [(None, "RuntimeError", False)],
    "dataloader-oom": [(None, "RuntimeError", False)] * 2,
    "dataloader-segfault": [(None, "EOFError", True), (None, "RuntimeError", False)],
    "dataloader-shm": [(None, "RuntimeError", False)] * 2,
    **{
        name: [(None, "torch.multiprocessing.spawn.ProcessExitedException", True)]
        for name in NAMES
        if name.startswith("mpspawn")
    },
}
# Every event with its line: nothing else is said, and of what is advice or a guess nothing is taken.
EVENTS = {
    "dataloader-exit": "12:died 12:raised",
    "dataloader-oom": "27:died 27:raised 45:died 45:raised",
    "dataloader-segfault": "4:native 34:raised 55:died 55:raised",
    "dataloader-shm": "17:raised 40:raised",
    "deepspeed-oom": "4:began 8:started 9:started 26:raised 27:signalled 28:signalled 29:died",
    "deepspeed-raise": "4:began 8:started 9:started 15:signalled 16:signalled 17:died 27:raised 42:raised",
    "deepspeed-sigkill": "4:began 8:started 9:started 26:raised 27:signalled 28:signalled 29:died",
    "lightning-segfault": "98:raised",
    "lightning-sigkill": "98:raised",
    "mpspawn-exit3": "1:signalled 14:died 14:raised",
    "mpspawn-segfault": "1:signalled 14:died 14:raised",
    "mpspawn-sigkill": "1:signalled 14:died 14:raised",
    "torchrun-abort": "6:native 19:raised 20:signalled 21:died 47:died 56:died",
    "torchrun-exit3": "20:raised 21:signalled 22:died 48:died 57:died",
    "torchrun-oom": "17:raised 18:signalled 19:died 45:died 54:died",
    "torchrun-raise": "14:raised 27:raised 28:signalled 29:died 55:died 64:died",
    "torchrun-record-raise": "18:raised 36:raised 37:signalled 38:died 65:died 82:raised 90:died 102:raised",
    "torchrun-segfault-record": "6:native 29:raised 30:signalled 31:died 57:died 71:raised 79:died",
    "torchrun-segfault": "17:raised 18:signalled 19:died 45:died 54:died",
    "torchrun-sigkill": "17:raised 18:signalled 19:died 45:died 54:died",
    "torchrun-sigterm": "20:raised 21:signalled 22:died 48:died 57:died",
}
KINDS = {
    "began": AttemptBegan,
    "died": ProcessDied,
    "native": NativeText,
    "raised": ExceptionSeen,
    "signalled": SignalledBy,
    "started": ProcessStarted,
}
# Whom a lost peer's text names: a port of this machine.
PORTS = {
    "deepspeed-raise": 15245,
    "lightning-segfault": 45954,
    "lightning-sigkill": 27818,
    "torchrun-exit3": 16782,
    "torchrun-record-raise": 5504,
    "torchrun-sigterm": 13712,
}
LAUNCHERS = {"mpspawn": ["mp.spawn"], "lightning": []}


def read(name: str) -> LauncherLog:
    return read_launcher_log((FOLDER / f"{name}.log").read_bytes(), name)


def deaths(log: LauncherLog) -> list[Died]:
    return [
        Died(one.pid, one.signal, one.code, one.rank, one.local_rank, one.first)
        for one in log.events
        if isinstance(one, ProcessDied)
    ]


def said(log: LauncherLog) -> list[LauncherEvent]:
    """The events without where and when they were found."""
    return [msgspec.structs.replace(one, line=msgspec.structs.replace(one.line, number=0)) for one in log.events]


@pytest.mark.parametrize("name", NAMES)
def test_who_died_of_what(name: str) -> None:
    log = read(name)
    assert deaths(log) == DEATHS[name]
    named = {one.launcher for one in log.events if isinstance(one, ProcessDied)}
    expected = LAUNCHERS.get(name.partition("-")[0], [name.partition("-")[0]])
    assert log.launchers == (expected if DEATHS[name] else [])
    assert named == set(log.launchers)
    assert all(one.worker == name.startswith("dataloader") for one in log.events if isinstance(one, ProcessDied))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_is_said(name: str) -> None:
    expected = [part.split(":") for part in EVENTS[name].split()]
    assert [(one.line.number, type(one)) for one in read(name).events] == [
        (int(number), KINDS[kind]) for number, kind in expected
    ]


@pytest.mark.parametrize("name", PORTS)
def test_the_peer_that_is_named(name: str) -> None:
    named = [one.peers for one in read(name).events if isinstance(one, ExceptionSeen) if one.peer_lost]
    assert named
    assert all(peers == [Peer(host="127.0.0.1", port=PORTS[name])] for peers in named)


def test_times_and_writers() -> None:
    """From the whole line, whatever of it is shown."""
    log = read("torchrun-sigterm")
    assert [one.line.writer for one in log.events if isinstance(one, SignalledBy)] == [22363]
    died = [one.line for one in log.events if isinstance(one, ProcessDied)]
    assert [line.wall for line in died] == [None, 1795960928.0, 1795960928.0]  # torch's prefix names no year
    assert [line.writer for line in died] == [22363, None, None]
    deepspeed = [one.line for one in read("deepspeed-raise").events if isinstance(one, ProcessDied)]
    assert [line.wall for line in deepspeed] == [1795961559.178]
    long = (
        b"[2026-11-29 14:12:39,178] [ERROR] [launch.py:259:sigkill_handler] ['"
        + b"x" * 900
        + b"'] exits with return code = -9"
    )
    (event,) = read_launcher_log(long).events
    assert event.line.text.startswith("...")
    assert event.line.wall == 1795961559.178
    (event,) = read_launcher_log(b"(train pid=4711, ip=10.0.0.2) [rank1]: Fatal Python error: Aborted").events
    assert event.line.writer == 4711


@pytest.mark.parametrize("name", NAMES)
def test_exceptions(name: str) -> None:
    seen = [one for one in read(name).events if isinstance(one, ExceptionSeen)]
    assert [(one.rank, one.type, one.peer_lost) for one in seen] == EXCEPTIONS[name]
    assert all(one.file and one.file_line and one.function for one in seen)


@pytest.mark.parametrize("path", LOGS, ids=NAMES)
def test_recognised_by_content(path: Path) -> None:
    assert looks_like_launcher_log(path.read_bytes()[:4096])


def test_every_line_is_counted_and_cited() -> None:
    for path in LOGS:
        lines = path.read_text(errors="replace").splitlines()
        log = read_launcher_log(path.read_bytes())
        assert log.lines == len(lines)
        for event in log.events:
            if "exitcode: " not in event.line.text or "(exitcode" in event.line.text:  # the summary's lines are joined
                assert event.line.text[:200] in lines[event.line.number - 1]


def test_deepspeed_started_and_killed_all() -> None:
    log = read("deepspeed-oom")
    started = [one for one in log.events if isinstance(one, ProcessStarted)]
    assert [(one.pid, one.rank, one.local_rank) for one in started] == [(10808, 0, 0), (10809, 1, 1)]
    killed = [one for one in log.events if isinstance(one, SignalledBy)]
    # The command that it prints of the dead one is the last that it started, whoever died.
    assert [one.one_of for one in log.events if isinstance(one, ProcessDied)] == [[10808, 10809]]
    # Its handler's name and the word "Killing" are no evidence of a SIGKILL.
    assert [(one.pid, one.signal, one.also_dead) for one in killed] == [(10808, None, True), (10809, None, True)]


def test_torchrun_teardown() -> None:
    log = read("torchrun-sigkill")
    assert [(one.pid, one.signal) for one in log.events if isinstance(one, SignalledBy)] == [(10748, 15)]
    root = [one for one in log.events if isinstance(one, ProcessDied)][-1]
    assert root.host == "localhost"
    assert root.line.text.startswith("time: 2026-11-29_14:29:01  host: localhost  rank: 1")
    assert root.line.moment.realtime is None  # local time without a zone


def test_native_texts() -> None:
    def texts(name: str) -> list[tuple[str, str | None, str | None]]:
        return [(one.kind, one.type, one.message) for one in read(name).events if isinstance(one, NativeText)]

    assert texts("torchrun-abort") == [("cxx-exception", "std::runtime_error", "boom from C++")]
    assert texts("torchrun-segfault-record") == [("fatal-python-error", None, "Segmentation fault")]
    assert texts("dataloader-segfault") == [("worker-fault", None, "segmentation fault")]
    assert [name for name in NAMES if texts(name)] == [
        "dataloader-segfault",
        "torchrun-abort",
        "torchrun-segfault-record",
    ]


def test_worker_named_by_its_parent() -> None:
    assert [one.worker_pid for one in read("dataloader-oom").events if isinstance(one, ExceptionSeen)] == [10831, 10831]
    assert [one.worker_pid for one in read("dataloader-shm").events if isinstance(one, ExceptionSeen)] == [None, None]


# --- on its way to us -------------------------------------------------------------------------------------------------


def _cri(line: bytes) -> bytes:
    return b"2026-11-29T14:29:31.123456789Z stderr F " + line


def _docker(line: bytes) -> bytes:
    log = line.decode("utf-8", "replace").lstrip("\0") + "\n"
    return json.dumps(
        {"log": log, "stream": "stderr", "time": "2026-11-29T14:29:31.5Z"}, separators=(",", ":")
    ).encode()


def _coloured(line: bytes) -> bytes:
    middle = len(line) // 2
    return b"\x1b[31m" + line[:middle] + b"\x1b[0m\x1b[1;32m" + line[middle:] + b"\x1b]8;;http://x\x07\x1b[0m"


WRAPPINGS = {
    "crlf": lambda line: line + b"\r",
    "colours": _coloured,
    "cri": _cri,
    "kubectl-timestamps": lambda line: b"2026-11-29T14:29:31.123456789Z " + line,
    "docker-json": _docker,
    "progress-bar": lambda line: b"\r 10%|#   | 1/10 [00:01<00:09,  1.0it/s]\r" + line,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", WRAPPINGS)
def test_wrapped(name: str, how: str) -> None:
    plain = (FOLDER / f"{name}.log").read_bytes().replace(b"\0", b"")
    wrapped = b"".join(WRAPPINGS[how](line) + b"\n" for line in plain.removesuffix(b"\n").split(b"\n"))
    got = read_launcher_log(wrapped, name)
    moment = [one.line.moment.realtime for one in got.events]
    assert all(moment) if how in ("cri", "kubectl-timestamps", "docker-json") else not any(moment)
    assert [_unstamped(one) for one in got.events] == read_launcher_log(plain, name).events


def _unstamped(event: LauncherEvent) -> LauncherEvent:
    return msgspec.structs.replace(event, line=msgspec.structs.replace(event.line, moment=Moment()))


def test_the_runtimes_stamp_becomes_the_time() -> None:
    line = b"E1129 14:29:31.4 1 x/api.py:1] failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: /usr/bin/python3\n"
    (event,) = read_launcher_log(b"2026-11-29T15:29:31.25+01:00 stdout F " + line).events
    assert event.line.moment.realtime == 1795962571.25
    assert event.line.moment.accuracy == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_two_runs_in_one_log(name: str) -> None:
    once = (FOLDER / f"{name}.log").read_bytes()
    assert said(read_launcher_log(once + once)) == said(read_launcher_log(once)) * 2


@pytest.mark.parametrize("name", NAMES)
def test_cut_anywhere(name: str) -> None:
    whole = (FOLDER / f"{name}.log").read_bytes()
    events = read_launcher_log(whole).events
    pids = {one.pid for one in events if isinstance(one, ProcessDied)} | {None}
    for at in range(0, len(whole), 211):
        head = read_launcher_log(whole[:at])
        sure = max(0, len(head.events) - 2)  # what stands in the torn line may lack its end
        assert head.events[:sure] == events[:sure]
        for part in (head, read_launcher_log(whole[at:])):
            # A number cut in its middle would be another number, but then the words behind it are gone as well.
            assert {one.pid for one in part.events if isinstance(one, ProcessDied)} <= pids
