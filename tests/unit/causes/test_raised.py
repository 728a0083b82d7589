"""Which exception ended a process, by its own record and by its log."""

from __future__ import annotations

import pytest

from ftforensics.causes.raised import own_exception, place_text, said
from ftforensics.causes.uncaught import sentence, uncaught
from ftforensics.model.death import Death
from ftforensics.model.exception import ExceptionRecord, Raised, RaisedFrame
from ftforensics.model.launcher import ExceptionSeen, TextLine

TRAIN = RaisedFrame("/home/user/train.py", 88, "train_step")
TORCH = RaisedFrame("/env/lib/python3.11/site-packages/torch/nn/functional.py", 3000, "cross_entropy")
LOST = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:1234"
HANDED_ON = """Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]
  File "/home/user/data.py", line 12, in __getitem__
    return self.rows["image"]
KeyError: 'image'
"""


def recorded(*chain: Raised, **fields: object) -> Death:
    known: dict[str, object] = {"hook": "sys.excepthook", "exceptions": list(chain)}
    record = ExceptionRecord(**(known | fields))  # type: ignore[arg-type]
    return Death(code=1, watched=True, raised=record, raised_path="rank1.exception.json")


def logged(*seen: ExceptionSeen, code: int | None = 1, signal: int | None = None) -> Death:
    return Death(code=code, signal=signal, exceptions=list(seen))


def line(number: int, type: str, message: str = "", **fields: object) -> ExceptionSeen:
    return ExceptionSeen(TextLine(f"{type}: {message}", number), type, message, **fields)  # type: ignore[arg-type]


def test_the_place_is_the_innermost_line_of_the_programs_own_code() -> None:
    own = own_exception(recorded(Raised("ValueError", "bad target", [TRAIN, TORCH])))
    assert own is not None and own.recorded and not own.peer_lost
    assert own.place == TRAIN and place_text(TRAIN) == "train.py:88 in train_step"
    assert own.cites[0].locator == "rank1.exception.json exceptions[0]"
    bare = own_exception(recorded(Raised("ValueError", "bad target", [TORCH])))
    assert bare is not None and bare.place == TORCH


def test_the_first_failure_of_a_chain_is_named() -> None:
    first = Raised("RuntimeError", "loss is NaN", [TRAIN], link="context")
    own = own_exception(recorded(Raised("RuntimeError", LOST, [TORCH]), first, peer_lost=True))
    assert own is not None and own.failure is first and not own.peer_lost
    assert own.raised.message == LOST and own.origin == [first]


@pytest.mark.parametrize(
    ("inner", "link", "named"),
    [
        ("KeyError", "context", "outer"),
        ("KeyError", "cause", "outer"),
        ("ImportError", "context", "outer"),
        ("ImportError", "cause", "inner"),
        ("OSError", "context", "inner"),
    ],
)
def test_a_question_that_had_no_for_an_answer_is_no_failure(inner: str, link: str, named: str) -> None:
    own = own_exception(recorded(Raised("ValueError", "outer"), Raised(inner, "inner", link=link)))
    assert own is not None and own.failure.message == named


def test_the_first_failure_is_found_behind_such_a_question() -> None:
    first = Raised("ValueError", "batch 3 holds no label", [TRAIN], link="context")
    chain = Raised("ValueError", "no such group"), Raised("AttributeError", "no attribute", link="context"), first
    own = own_exception(recorded(*chain))
    assert own is not None and own.failure is first


SAVE, WRITE, CLOSE = (RaisedFrame("/venv/lib/python3.11/site-packages/torch/serialization.py", 1003, name) for name in
                      ("save", "_save", "__exit__"))  # fmt: skip


@pytest.mark.parametrize(
    ("instead", "place"),
    [
        ([TRAIN, SAVE, CLOSE], TRAIN),
        ([SAVE, CLOSE], WRITE),  # caught in the library as well
        ([TRAIN, CLOSE], WRITE),  # raised elsewhere: who called is not known
        ([], WRITE),
    ],
)
def test_a_failure_that_a_library_caught_is_placed_at_its_caller(
    instead: list[RaisedFrame], place: RaisedFrame
) -> None:
    first = Raised("RuntimeError", "iostream error", [SAVE, WRITE], link="context")
    own = own_exception(recorded(Raised("RuntimeError", "unexpected pos 704 vs 598", instead), first))
    assert own is not None and own.failure is first and own.place == place


def test_what_a_data_worker_raised_is_the_workers() -> None:
    own = own_exception(recorded(Raised("KeyError", HANDED_ON, [TRAIN, TORCH])))
    assert own is not None and own.of_worker
    assert said(own.failure) == "KeyError: 'image'" and own.place == RaisedFrame(
        "/home/user/data.py", 12, "__getitem__"
    )
    seen = own_exception(
        logged(
            line(10, "KeyError", "Caught KeyError in DataLoader worker process 0.", of_worker=True),
            line(18, "KeyError", "'image'", file="/home/user/data.py", file_line=12, function="__getitem__"),
        )
    )
    assert seen is not None and seen.of_worker and not seen.recorded
    assert seen.place == own.place and said(seen.failure) == "KeyError: 'image'"


def test_a_data_worker_that_died_is_another_process() -> None:
    message = "DataLoader worker (pid(s) 4711) exited unexpectedly"
    own = own_exception(recorded(Raised("RuntimeError", message), Raised("_queue.Empty", link="cause")))
    assert own is not None and own.peer_lost and own.failure.message == message
    seen = own_exception(
        logged(line(3, "_queue.Empty"), line(9, "RuntimeError", message, worker_pid=4711, chained=True))
    )
    assert seen is not None and seen.peer_lost and seen.failure.message == message


def test_what_a_pools_child_raised_is_named_not_its_quotation() -> None:
    quoted = (
        '\n"""\nTraceback (most recent call last):\n  File "/home/user/map.py", line 3, in f\n    x()\nOSError: no\n"""'
    )
    remote = Raised("multiprocess.pool.RemoteTraceback", quoted, link="cause")
    own = own_exception(recorded(Raised("OSError", "no", [TORCH]), remote))
    assert own is not None and own.failure.type == "OSError"
    assert own.place == RaisedFrame("/home/user/map.py", 3, "f")


@pytest.mark.parametrize(
    "seen",
    [
        [line(5, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "train.py FAILED")],
        [line(5, "torch.multiprocessing.spawn.ProcessRaisedException"), line(9, "ValueError", "a child's")],
        [line(5, "subprocess.CalledProcessError", "died", file="/x/accelerate/commands/launch.py", peer_lost=True)],
        [line(5, "ValueError", "of a destructor", ignored=True)],
        [],
    ],
    ids=range(5),
)
def test_a_launchers_own_exception_is_not_its_childs(seen: list[ExceptionSeen]) -> None:
    assert own_exception(logged(*seen)) is None


def test_the_last_uncaught_one_in_a_log_ended_it() -> None:
    own = own_exception(logged(line(5, "OSError", "retried"), line(900, "ValueError", "fatal")))
    assert own is not None and own.failure.message == "fatal"


def test_what_is_printed_on_the_way_out_did_not_end_it() -> None:
    seen = [line(5, "ValueError", "fatal"), line(30, "RuntimeError", LOST, peer_lost=True)]
    own = own_exception(logged(*seen))
    assert own is not None and own.failure.message == "fatal" and not own.peer_lost
    late = own_exception(logged(seen[0], line(5000, "RuntimeError", LOST, peer_lost=True)))
    assert late is not None and late.peer_lost


@pytest.mark.parametrize("fields", [{"signal": 9}, {"code": 137}, {"code": 0}], ids=str)
def test_before_a_signal_it_is_context(fields: dict[str, int]) -> None:
    known: dict[str, int | None] = {"code": None} | fields
    assert own_exception(logged(line(5, "ValueError", "x"), **known)) is None


def test_a_threads_record_gives_way_to_what_the_main_thread_printed() -> None:
    of_thread = recorded(Raised("OSError", "thread's"), hook="threading.excepthook", thread="Thread-1")
    own = own_exception(of_thread)
    assert own is not None and own.thread == "Thread-1"
    death = Death(code=1, raised=of_thread.raised, exceptions=[line(9, "ValueError", "main's")])
    main = own_exception(death)
    assert main is not None and main.failure.message == "main's" and main.thread is None


def test_a_sentence_stays_on_one_line() -> None:
    text = said(Raised("x.Error", "a:\nb" + "c" * 5000 + "\nd"))
    assert text.startswith("Error: a: bccc") and len(text) < 330 and "\n" not in text
    assert said(Raised("x.Error", "\n first\nsecond")) == "Error: first"
    assert said(Raised("x.Error")) == "Error"


def test_the_place_of_a_logged_exception_is_the_programs_own_line() -> None:
    seen = ExceptionSeen(
        TextLine("RuntimeError: no", 9),
        "RuntimeError",
        "no",
        file=TORCH.file,
        file_line=TORCH.line,
        frames=[TRAIN, TORCH],
    )
    own = own_exception(logged(seen))
    assert own is not None and own.place == TRAIN and own.raised.frames == [TRAIN, TORCH]


def test_the_task_of_rays_that_raised_is_named() -> None:
    known = {"file": "/home/user/data.py", "file_line": 12, "function": "step"}
    found = uncaught(logged(line(9, "KeyError", "'image'", task_pid=4711, **known)))
    assert found is not None and found.own.task_pid == 4711
    assert sentence(found) == "KeyError: 'image', raised at data.py:12 in step in Ray's worker process 4711"
