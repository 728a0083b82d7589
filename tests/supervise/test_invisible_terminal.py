"""On a terminal: size, keys, raw mode, job control."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

from conditions import needs_bash
from supervised import RUN, environment, wait_for

SHOW_SIZE = """
import fcntl, os, signal, struct, sys, termios
def show(*_):
    sizes = [struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))[:2] for fd in (0, 1, 2)]
    os.write(1, ("sizes %s\\n" % sizes).encode())
signal.signal(signal.SIGWINCH, show)
show()
while sys.stdin.readline().strip() != "end":
    pass
"""

COUNT_SIGNALS = """
import os, signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: got.append(number))
os.write(1, b"ready\\n")
while not got:
    time.sleep(0.01)  # not pause(): the signal may have come just before
until = time.monotonic() + 0.5
while (left := until - time.monotonic()) > 0:
    time.sleep(left)
os.write(1, ("got %s\\n" % [int(one) for one in got]).encode())
"""


def under(*command: str) -> list[str]:
    return [*RUN, "--quiet", "--dir", "folder", "--", *command]


def test_the_size_is_the_terminals_and_follows_it(terminal) -> None:
    window = terminal(*under(sys.executable, "-c", SHOW_SIZE), size=(31, 77))
    assert b"[(31, 77), (31, 77), (31, 77)]" in window.expect(b"\n")
    window.resize(40, 100)
    window.expect(b"sizes [(40, 100), (40, 100), (40, 100)]")
    window.type(b"end\n")
    assert window.wait() == 0


def test_one_ctrl_c_is_one_sigint(terminal) -> None:
    window = terminal(*under(sys.executable, "-c", COUNT_SIGNALS))
    window.expect(b"ready")
    window.type(b"\x03")
    window.expect(b"got [2]")
    assert window.wait() == 0


def test_ctrl_c_ends_both_as_it_would_end_one(terminal) -> None:
    window = terminal(*under("sleep", "60"))
    wait_for(
        lambda: Path(f"/proc/{window.process.pid}/comm").read_text() == "python\n" and children(window.process.pid)
    )
    window.type(b"\x03")
    assert window.wait() == -signal.SIGINT


def children(pid: int) -> list[str]:
    """Names of the direct children."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    names = [Path(f"/proc/{one}/comm").read_text().strip() for one in pids]
    return [name for name in names if name == "sleep"]


RAW = """
import os, sys, termios, tty
tty.setraw(0)
os.write(1, b"raw\\n")
data = b""
while len(data) < 4:
    data += os.read(0, 10)
os.write(1, b"keys %r\\n" % data)
"""


def test_raw_mode_is_the_terminals(terminal) -> None:
    """No echo, no line buffer, ^C is a byte, no carriage return is added."""
    window = terminal(*under(sys.executable, "-c", RAW))
    assert window.expect(b"raw\n").endswith(b"raw\n")
    window.type(b"a\x03\x1a\r")
    assert window.expect(b"\n") == b"keys b'a\\x03\\x1a\\r'\n"
    assert window.wait() == 0


@needs_bash
def test_suspended_and_resumed(terminal) -> None:
    """^Z gives the prompt back, `fg` goes on, the job's end is the shell's to see."""
    shell = terminal("bash", "--norc", "--noprofile", "-i", env=environment(PS1="$ ", TERM="dumb"))
    shell.expect(b"$ ")
    shell.type(b" ".join(_quoted(word) for word in under("sh", "-c", "echo ready; exec cat")) + b"\n")
    shell.expect(b"\nready\r\n")
    shell.type(b"one\n")
    shell.expect(b"one\r\n")  # the echo
    shell.expect(b"one\r\n")  # cat's
    shell.type(b"\x1a")
    shell.expect(b"Stopped")
    shell.expect(b"$ ")
    shell.type(b"fg\n")
    shell.expect(b"exec cat'\r\n")
    shell.type(b"two\n")
    shell.expect(b"two\r\n")
    shell.expect(b"two\r\n")
    shell.type(b"\x04")
    shell.expect(b"$ ")
    shell.type(b"echo status $?; exit\n")
    shell.expect(b"status 0")


def _quoted(word: str) -> bytes:
    return shlex.quote(word).encode()


def test_the_terminal_is_the_jobs_controlling_one(terminal) -> None:
    """A program that asks for a password opens /dev/tty."""
    ask = "import os; fd = os.open('/dev/tty', os.O_RDWR); os.write(fd, b'Password: '); print(os.read(fd, 10))"
    window = terminal(*under(sys.executable, "-c", ask))
    window.expect(b"Password: ")
    window.type(b"abc\n")
    window.expect(b"b'abc\\n'")


def test_a_terminal_that_goes_away_ends_the_job(terminal, tmp_path: Path) -> None:
    """Hang-up: the session leader gets SIGHUP, which is the job itself without us."""
    window = terminal(
        *under(
            sys.executable,
            "-c",
            COUNT_SIGNALS.replace("got %s", "") + f"open({str(tmp_path / 'got')!r}, 'w').write(str(got))",
        )
    )
    window.expect(b"ready")
    os.close(window.slave)
    os.close(window.master)
    window.master = window.slave = os.open(os.devnull, os.O_RDWR)
    window.slave = os.dup(window.master)
    window.process.wait(30)
    assert str(int(signal.SIGHUP)) in (tmp_path / "got").read_text()
