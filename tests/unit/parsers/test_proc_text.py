"""/proc's text about one process, real and hostile."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ftforensics.parsers import proc_text

SELF = Path("/proc/self")


def test_this_process() -> None:
    stat = proc_text.stat((SELF / "stat").read_text())
    assert stat is not None and stat.parent == os.getppid() and stat.state == "R" and stat.start > 0
    status = proc_text.status((SELF / "status").read_text())
    assert status.uid == os.getuid() and status.nspid[-1] == os.getpid()
    assert bool(status.ignored >> (signal.SIGPIPE - 1) & 1) == (signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limits = [number for number in (soft, hard) if number != resource.RLIM_INFINITY]
    assert proc_text.cpu_limit((SELF / "limits").read_text()) == limits


def test_a_limit() -> None:
    text = "Limit   Soft Limit  Hard Limit  Units\nMax cpu time              10        unlimited  seconds   \n"
    assert proc_text.cpu_limit(text) == [10]


def test_a_name_like_the_fields_moves_nothing() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    stat = proc_text.stat(f"7 (a) R 1 (b\n) S 3 {fields}")
    assert stat == proc_text.Stat("a) R 1 (b\n", "S", 3, 21, 51)


def test_of_a_variable_that_stands_twice_the_first_counts() -> None:
    assert proc_text.variables("RANK=1\0LONE\0RANK=2\0EMPTY=\0A=b=c\0") == {"RANK": "1", "EMPTY": "", "A": "b=c"}


def test_pressure() -> None:
    text = "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.25 avg60=0.00\n"
    assert proc_text.avg10(text) == {"some": 1.5, "full": 0.25}


@given(st.text(alphabet="()SR 0123456789:=.avg1NSpidUSigIgnf\n\0\t-²x"))
def test_what_is_no_such_file_raises_nothing(text: str) -> None:
    proc_text.stat(text)
    proc_text.status(text)
    proc_text.status(f"Uid:{text}\nNSpid:{text}\nSigIgn:{text}")
    proc_text.variables(text)
    proc_text.cpu_limit(f"Max cpu time {text}")
    proc_text.avg10(f"some avg10={text}")
    proc_text.stat(f"1 (x) {text} " + "9 " * 50)
