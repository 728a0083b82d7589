"""Logs whose lines are wrapped in JSON: Docker's driver, log collectors, structured loggers."""

from __future__ import annotations

import json

import pytest

from ftforensics.model.launcher import ExceptionSeen, LauncherEvent, ProcessDied
from ftforensics.parsers.launcher import looks_like_launcher_log, read_launcher_log

FAILED = (
    "E1130 03:01:00.000000 100 torch/x/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 77) of binary: python"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    x()\nValueError: bad'


def events(*records: object) -> list[LauncherEvent]:
    return read_launcher_log("".join(json.dumps(one) + "\n" for one in records).encode()).events


@pytest.mark.parametrize("member", ["log", "message", "msg", "text", "event"])
def test_members_that_hold_the_line(member: str) -> None:
    (event,) = events({"step": 3, member: "step 3"}, {member: FAILED, "host": "n1"})
    assert isinstance(event, ProcessDied)
    assert (event.pid, event.signal, event.line.number, event.line.writer) == (77, 9, 2, 100)
    assert event.line.text == FAILED


def test_a_traceback_over_lines_of_the_file() -> None:
    (event,) = events(*({"log": f"{line}\n", "stream": "stderr"} for line in TRACEBACK.splitlines()))
    assert isinstance(event, ExceptionSeen)
    assert (event.type, event.message, event.file_line, event.line.number) == ("ValueError", "bad", 3, 4)


@pytest.mark.parametrize("member", ["exc_info", "exception", "traceback", "stack_trace"])
def test_a_traceback_within_one_record(member: str) -> None:
    (event,) = events({"level": "error", "message": "step failed", member: TRACEBACK}, {"message": "done"})
    assert isinstance(event, ExceptionSeen)
    assert (event.type, event.file, event.line.number) == ("ValueError", "a.py", 1)
    (event,) = events({"level": "error", "message": f"step failed\n{TRACEBACK}"})
    assert isinstance(event, ExceptionSeen)


def test_the_records_time() -> None:
    (event,) = events({"message": FAILED, "timestamp": "2026-11-29T14:29:31.5Z"})
    assert event.line.moment.realtime == 1795962571.5
    (event,) = events({"message": FAILED, "timestamp": "2026-11-29 14:29:31"})  # no zone
    assert event.line.moment.realtime is None


def test_dockers_record_of_a_structured_logger() -> None:
    (event,) = events({"log": json.dumps({"level": "error", "msg": FAILED}) + "\n", "time": "2026-11-29T14:29:31.5Z"})
    assert isinstance(event, ProcessDied)
    assert event.line.moment.realtime == 1795962571.5


def test_words_that_are_not_ascii_may_be_escaped() -> None:
    (event,) = events({"log": "train.sh: 第 28 行: 8156 已杀死   python3 main.py\n"})
    assert isinstance(event, ProcessDied)
    assert (event.pid, event.signal) == (8156, 9)


def test_a_loggers_message_is_not_the_shells_word() -> None:
    assert events({"level": "INFO", "message": "Killed"}) == []
    (event,) = events({"log": "Killed\n"})
    assert isinstance(event, ProcessDied)


def test_a_quotation_is_none() -> None:
    assert events({"level": "INFO", "message": f"the last run ended with '{FAILED}'"}) == []
    assert events({"note": FAILED}) == []  # no member that holds lines


@pytest.mark.parametrize(
    "head",
    [
        b'{"message": "step 1", "level": "info"}\n',
        b'{"msg": "step 1"}\n{"msg": "step 2"}\n',
        b'{"log":"step 1\\n","stream":"stdout","time":"2026-11-29T14:29:31Z"}\n',
        b'{"log":"' + b"x" * 70_000,
        b'{"event": "x", "timestamp": "2026-11-29T14:29:31Z"}\n',
    ],
)
def test_recognised(head: bytes) -> None:
    assert looks_like_launcher_log(head)


@pytest.mark.parametrize(
    "head",
    [
        b'{"message": "RuntimeError: bad"}\n',  # an error file of torchrun's
        b'{"message": {"message": "RuntimeError: bad", "extraInfo": {}}}\n',
        b'{"kind": "Pod", "message": "x", "time": "y"}\n',
        b'{"items": []}\n',
        b'{\n  "message": "x"\n}\n',
        b'{"status":"die","id":"0123456789ab","timeNano":1}\n{"status":"die","id":"0123456789ab","timeNano":2}\n',
        b'{"MESSAGE": "x", "_HOSTNAME": "n1"}\n{"MESSAGE": "x"}\n',
        b'{"message": "x"}\nplain\n',
    ],
)
def test_documents_are_none(head: bytes) -> None:
    assert not looks_like_launcher_log(head)


def test_broken_records_are_plain_text() -> None:
    whole = json.dumps({"log": f"{FAILED}\n"})
    for at in range(1, len(whole)):
        found = read_launcher_log(whole[:at].encode()).events
        assert [one.pid for one in found if isinstance(one, ProcessDied)] in ([], [77])
    for odd in ('{"message": 3}', '{"message": ["Killed"]}', '{"a":' * 9000, '{"message": "\\ud800 Killed"}'):
        read_launcher_log(odd.encode())
