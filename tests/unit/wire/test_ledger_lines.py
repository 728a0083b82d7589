"""Lines of the environment ledger: joined to runs, whatever else stands between them."""

from __future__ import annotations

import json

from ftforensics.wire.ledger import compacted, read_runs


def begun(run: str, at: float, job: str = "/x/train.py", host: str = "a", **more: object) -> bytes:
    line = {"type": "begun", "run": run, "at": at, "job": job, "fingerprint": {"host": host}, **more}
    return json.dumps(line).encode() + b"\n"


def ended(run: str, at: float, how: str = "ok", host: str = "a", **more: object) -> bytes:
    return json.dumps({"type": "ended", "run": run, "at": at, "how": how, "host": host, **more}).encode() + b"\n"


def test_a_run_is_its_begin_and_its_end_in_any_order() -> None:
    (one, two) = read_runs(ended("1", 5.0) + begun("2", 7.0) + begun("1", 2.0))
    assert (one.begun.run, one.good, two.begun.run, two.ended) == ("1", True, "2", None)


def test_a_run_is_as_good_as_its_worst_end() -> None:
    worst = ended("1", 4.0, "signal", signal=11, cause="native-fault")
    for lines in (worst + ended("1", 5.0), ended("1", 5.0) + worst, ended("1", 3.0) + worst):
        (run,) = read_runs(begun("1", 2.0) + lines)
        assert run.ended is not None
        assert (run.ended.how, run.ended.signal, run.ended.cause) == ("signal", 11, "native-fault")


def test_programs_of_one_launch_end_each_for_itself() -> None:
    """In a Slurm step: one after the other, or beside each other; the end of another rank is the running one's."""
    lines = begun("7.0", 2.0, "/x/prepare.py", pid=10) + ended("7.0", 5.0, pid=10)
    lines += begun("7.0", 6.0, pid=20) + ended("7.0", 9.0, "signal", signal=11, pid=21) + ended("7.0", 9.5, pid=20)
    one, two = read_runs(lines)
    assert (one.begun.job, one.good, two.begun.job, two.good) == ("/x/prepare.py", True, "/x/train.py", False)
    beside = begun("8.0", 2.0, pid=10) + begun("8.0", 2.5, pid=20) + ended("8.0", 5.0, pid=20)
    assert [run.good for run in read_runs(beside)] == [False, True]
    assert [run.good for run in read_runs(beside + ended("8.0", 6.0, "code", code=1, pid=10))] == [False, True]


def test_machines_that_share_a_home_do_not_mix() -> None:
    runs = read_runs(begun("1", 2.0, host="a") + begun("1", 3.0, host="b") + ended("1", 5.0, host="b"))
    assert [(run.begun.fingerprint.host, run.good) for run in runs] == [("a", False), ("b", True)]


def test_a_time_that_no_clock_says_costs_its_line() -> None:
    odd = [begun("1", at) for at in (1e300, -1e18, 1e11)] + [ended("2", 1e300)]
    (run,) = read_runs(b"".join(odd) + begun("2", 2.0))
    assert (run.begun.run, run.ended) == ("2", None)


def test_lines_of_no_use_cost_themselves() -> None:
    torn = begun("3", 3.0)[:40]
    hostile = [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"type": "begun"}',
        b'{"type": "ended", "run": 7, "at": "x", "how": []}',
        b"\xff\xfe\0\x80",
        b'{"type": "wished", "run": "1"}',
        b'{"run": "' + b"x" * (2 << 20) + b'"}',
        b"",
    ]
    data = torn + b"\n" + b"\n".join(hostile) + b"\n" + begun("1", 2.0) + ended("1", 5.0) + begun("4", 9.0)[:-9]
    assert [(run.begun.run, run.good) for run in read_runs(data)] == [("1", True)]


def test_an_end_without_a_begin_is_left_out() -> None:
    assert read_runs(ended("1", 5.0)) == []


def test_compaction_keeps_the_newest_and_the_last_good_run_of_each_job() -> None:
    lines = begun("old", 1.0, "/x/a.py") + ended("old", 1.5)
    lines += begun("good", 2.0, "/x/a.py") + ended("good", 2.5)
    lines += b"".join(begun(str(n), 10.0 + n, "/x/b.py") + ended(str(n), 10.5 + n, "code", code=1) for n in range(9))
    kept = compacted(lines + ended("stray", 99.0), 3)
    assert [run.begun.run for run in read_runs(kept)] == ["good", "6", "7", "8"]
    assert read_runs(kept)[0].good
    assert b"stray" not in kept
    assert compacted(kept, 3) == kept
