"""What the job says about itself arrives whole in the record, however much it is."""

from __future__ import annotations

from conditions import Interpreter
from jobs import CRASH, Jobs


def test_the_longest_note_and_name_arrive_whole(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        ftforensics.note("\\U0001f525" * 2000)
        ftforensics.step(-(1 << 63))
        with ftforensics.phase("\\u00fc" * 300):
            {CRASH}
        """
    record = jobs.run(python, code).record
    assert record["note"] == "\U0001f525" * 1000
    assert record["phase"]["names"] == ["\u00fc" * 200]
    assert record["step"] == -(1 << 63)


def test_of_many_open_phases_the_innermost_are_told(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        import contextlib
        with contextlib.ExitStack() as stack:
            for number in range(40):
                stack.enter_context(ftforensics.phase(f"level {{number}}"))
            {CRASH}
        """
    names = jobs.run(python, code).record["phase"]["names"]
    assert names == [f"level {number}" for number in range(24, 40)]


def test_a_phase_that_has_ended_is_not_told(python: Interpreter, jobs: Jobs) -> None:
    code = f"""
        with ftforensics.phase("over"):
            pass
        {CRASH}
        """
    assert jobs.run(python, code).record["phase"] is None


def test_phases_of_many_threads(python: Interpreter, jobs: Jobs) -> None:
    """They share one list, and Python may change threads between any two steps of ours."""
    code = """
        import sys, threading
        sys.setswitchinterval(1e-6)
        def work():
            for _ in range(10_000):
                with ftforensics.phase("p"):
                    pass
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        from ftforensics.capture import marks
        print(len(marks._open))
        """
    done = jobs.run(python, code)
    assert (done.status, done.out, done.err) == (0, "0\n", "")
