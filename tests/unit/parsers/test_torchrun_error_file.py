"""torchrun's error files: a real one of torch 2.13, the forms of other versions, and what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ftforensics.model.exception import Raised, RaisedFrame
from ftforensics.parsers.torchrun_error_file import read_torchrun_error_file
from ftforensics.parsers.traceback_text import read_traceback

REAL = (Path(__file__).parent / "fixtures" / "torchrun" / "error.json").read_bytes()


def test_a_real_one() -> None:
    record = read_torchrun_error_file(REAL, "logs/none_2tg6jvhr/attempt_2/3/error.json")
    assert record is not None
    assert record.hook == "torchrun error file"
    assert (record.attempt, record.peer_lost) == (2, False)
    assert record.job is not None
    assert (record.job.rank, record.job.local_rank) == (None, 3)
    assert record.time is not None
    assert record.time.realtime == 1796011428.0
    last, cause = record.exceptions
    assert (last.type, last.message, last.link) == ("RuntimeError", "loss is NaN\nsecond line", None)
    assert [frame.function for frame in last.frames] == ["wrapper", "main", "inner"]
    assert last.frames[-1] == RaisedFrame("/home/user/job/rec.py", 5, "inner")
    assert (cause.type, cause.message, cause.link) == ("KeyError", "'k'", "cause")
    assert [frame.line for frame in cause.frames] == [4]


def nested(message: str, stack: str | list[str] = "", **more: object) -> bytes:
    return json.dumps(
        {"message": {"message": message, "extraInfo": {"py_callstack": stack, "timestamp": "12"}, **more}}
    ).encode()


STACK = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    x()\n{}\n'
GLOO = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:5504."
    " This is typically caused by a remote worker crashing."
)


def exceptions(data: bytes, path: str | None = None) -> list[tuple[str, str]]:
    record = read_torchrun_error_file(data, path)
    assert record is not None
    return [(one.type, one.message) for one in record.exceptions]


def test_the_type_gets_its_module_from_the_call_stack() -> None:
    data = nested("OutOfMemoryError: CUDA out of memory.", STACK.format("torch.OutOfMemoryError: CUDA out of memory."))
    assert exceptions(data) == [("torch.OutOfMemoryError", "CUDA out of memory.")]


def test_other_forms() -> None:
    assert exceptions(nested("ValueError: bad", [f'  File "a.py", line {n}\n' for n in range(3)])) == [
        ("ValueError", "bad")
    ]
    assert exceptions(nested("ValueError: bad", errorCode=1)) == [("ValueError", "bad")]
    assert exceptions(b'{"message": "ValueError: bad", "timestamp": 12}') == [("ValueError", "bad")]
    assert exceptions(b'{"message": "ValueError: bad"}', "/x/reply.json") == [("ValueError", "bad")]
    assert exceptions(nested("KeyboardInterrupt: ", STACK.format("KeyboardInterrupt"))) == [("KeyboardInterrupt", "")]


def test_peer_lost() -> None:
    record = read_torchrun_error_file(nested(f"RuntimeError: {GLOO}", STACK.format(f"RuntimeError: {GLOO}")))
    assert record is not None
    assert record.peer_lost


def test_a_death_by_a_signal_is_no_exception() -> None:
    """Another program may fill the file for a rank that could not."""
    said = "rank 1 was killed by the kernel"
    assert exceptions(nested(said, said)) == []
    assert exceptions(nested("Signal: 9", "Signal: 9\nmore")) == []


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"{}", b"null", b'{"message": 3}', b'{"message": null}', b'{"message": {"message": 3}}',
        b"\xff", b'{"message": "Not Found", "documentation_url": "x"}',
        b'{"kind": "Status", "message": "pods not found"}',
        b"[" * 100_000, b'{"message":' * 100_000,
    ],
)  # fmt: skip
def test_other_documents_are_none(data: bytes) -> None:
    assert read_torchrun_error_file(data, "x.json") is None


def test_cut_or_odd_content_is_nothing_worse() -> None:
    for at in range(0, len(REAL), 13):
        read_torchrun_error_file(REAL[:at], "error.json")
    assert exceptions(nested("ValueError: " + "x" * 100_000, "Traceback" * 100_000)) == []
    record = read_torchrun_error_file(
        nested("ValueError: x", STACK.format("ValueError: x").replace("a.py", "\x1b[31m\0"))
    )
    assert record is not None
    stamp = json.dumps({"message": {"message": "E: x", "extraInfo": {"timestamp": "9" * 400}}}).encode()
    late = read_torchrun_error_file(stamp)
    assert late is not None
    assert late.time is None


def test_secrets_do_not_pass() -> None:
    secret = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    (found,) = exceptions(nested(f"ValueError: token {secret} refused"))
    assert secret not in found[1]


# --- the traceback within ---------------------------------------------------------------------------------------------


def test_chains_are_told_apart() -> None:
    text = (
        STACK.format("KeyError: 'k'")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + STACK.format("ValueError: v\nmore of v")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + STACK.format("torch.OutOfMemoryError: CUDA out of memory")
    )
    assert [(one.type, one.message, one.link) for one in read_traceback(text)] == [
        ("torch.OutOfMemoryError", "CUDA out of memory", None),
        ("ValueError", "v\nmore of v", "context"),
        ("KeyError", "'k'", "cause"),
    ]


def test_no_traceback_is_nothing() -> None:
    for text in ("", "ValueError: x", "Traceback (most recent call last):", STACK.format("  indented"), "\n" * 9):
        assert read_traceback(text) == []


def test_repeated_frames_and_syntax() -> None:
    deep = "Traceback (most recent call last):\n" + '  File "r.py", line 1, in g\n    g()\n' * 3
    deep += "  [Previous line repeated 996 more times]\nRecursionError: maximum recursion depth exceeded\n"
    (found,) = read_traceback(deep)
    assert (found.type, len(found.frames)) == ("RecursionError", 3)
    syntax = 'Traceback (most recent call last):\n  File "m.py", line 1, in <module>\n    import b\n'
    syntax += '  File "b.py", line 9\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'
    (found,) = read_traceback(syntax)
    assert found == Raised(
        "SyntaxError",
        "invalid syntax",
        [RaisedFrame("m.py", 1, "<module>"), RaisedFrame("b.py", 9, None)],
    )


def test_endless_ones_are_bounded() -> None:
    many = "".join(f'  File "r.py", line {n}, in g\n' for n in range(1, 5001))
    (found,) = read_traceback(f"Traceback (most recent call last):\n{many}E: x")
    assert [found.frames[0].line, found.frames[39].line, found.frames[40].line, found.frames[-1].line] == [
        1,
        40,
        4841,
        5000,
    ]
    chain = "\nDuring handling of the above exception, another exception occurred:\n\n"
    links = read_traceback(chain.join(STACK.format(f"E{n}: x") for n in range(300)))
    assert (links[0].type, links[-1].type, len(links)) == ("E299", "E0", 16)
