"""Descriptors: what was a terminal, a pipe, or closed, is one under `run`; bytes arrive as they were written."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from ftforensics.wire.run_evidence import read_run_evidence
from supervised import RUN, environment, wait_for

LOOK = """
import os, sys
def kind(fd):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return "closed"
    return "terminal" if os.isatty(fd) else oct(mode >> 12)
found = " ".join(kind(fd) for fd in range(3))
with open(sys.argv[1], "w") as file:
    file.write(found)
"""


def looked(tmp_path: Path, name: str, under: list[str], shape: tuple[str, ...]) -> str:
    """What a process sees on 0, 1 and 2 when each is a "terminal", a "pipe" or "closed"."""
    ours, theirs = os.openpty()
    pipes: list[int] = []

    def given(number: int) -> int:
        if shape[number] != "pipe":
            return theirs
        ends = os.pipe()
        pipes.extend(ends)
        return ends[0] if number == 0 else ends[1]

    closing = "".join(f" {number}{'<' if number == 0 else '>'}&-" for number in range(3) if shape[number] == "closed")
    place = tmp_path / name
    try:
        made = subprocess.run(
            ["sh", "-c", f'exec "$@"{closing}', "-", *under, sys.executable, "-S", "-c", LOOK, str(place)],
            cwd=tmp_path,
            env=environment(),
            stdin=given(0),
            stdout=given(1),
            stderr=given(2),
            timeout=30,
        )
    finally:
        for fd in (ours, theirs, *pipes):
            os.close(fd)
    assert made.returncode == 0
    return place.read_text()


@pytest.mark.parametrize("shape", list(itertools.product(["terminal", "pipe", "closed"], repeat=3)), ids="-".join)
def test_each_stream_is_what_it_was(tmp_path: Path, shape: tuple[str, ...]) -> None:
    bare = looked(tmp_path, "bare", [], shape)
    assert looked(tmp_path, "under", [*RUN, "--"], shape) == bare
    assert bare == " ".join({"pipe": "0o1"}.get(one, one) for one in shape)


@pytest.mark.parametrize("options", [[], ["--no-log"]], ids=["log", "no-log"])
def test_standard_input_is_passed_through(job, options: list[str]) -> None:
    data = bytes(range(256)) * 5000
    assert job("cat", data=data, options=options).out == data


def test_two_streams_stay_two(job) -> None:
    ended = job("sh", "-c", "echo one; echo two >&2; echo three; echo four >&2")
    assert ended.out == b"one\nthree\n" and ended.err == b"two\nfour\n"


def test_one_stream_keeps_its_order(shell) -> None:
    """`2>&1`: two pipes would mix the two up."""
    ended = shell("$RUN -- bash -c 'for i in {1..2000}; do echo $i; echo $i >&2; done' 2>&1")
    assert ended.out == b"".join(b"%d\n%d\n" % (number, number) for number in range(1, 2001))


BLOCKS = 1024
WRITE = f"""
import os, zlib
for number in range({BLOCKS}):
    block = (b"%08d" % number) * 131072
    view = memoryview(block)
    while view:
        view = view[os.write(1, view):]
"""


def test_a_gigabyte_arrives_as_it_was(tmp_path: Path) -> None:
    command = [*RUN, "--dir", str(tmp_path / "folder"), "--", sys.executable, "-S", "-c", WRITE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        for number in range(BLOCKS):
            block = process.stdout.read(1 << 20)
            assert block == (b"%08d" % number) * 131072, f"block {number} has crc {zlib.crc32(block):x}"
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_a_failed_gigabyte_leaves_a_bounded_log(shell) -> None:
    ended = shell(
        '$RUN -- bash -c \'head -c 1000000000 /dev/zero | tr "\\0" "x"; echo; echo the end; exit 1\' >/dev/null'
    )
    log = (ended.folder / "launcher.log").read_bytes()
    assert len(log) < 65 << 20
    assert b"left out here" in log and log.rstrip().endswith(b"the end")
    done = ended.evidence.ended
    assert done is not None and done.log_cut


def test_the_log_has_both_streams_and_no_secret(job) -> None:
    ended = job("sh", "-c", "echo one; echo HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345 >&2; printf two; exit 1")
    log = ended.folder / "launcher.log"
    text = log.read_text()
    assert "one\n" in text and "HF_TOKEN=[redacted]" in text and "two" in text
    assert log.stat().st_mode & 0o777 == 0o600
    assert b"hf_abcdefghijklmnopqrstuvwxyz012345" in ended.err, "what the person sees is as it was"


def test_a_slow_reader_gets_everything(tmp_path: Path) -> None:
    """More than all buffers hold is written before the first byte is read."""
    command = [*RUN, "--dir", str(tmp_path / "folder"), "--", "sh", "-c", "head -c 8000000 /dev/zero; echo done >&2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout is not None and process.stderr is not None
    first = process.stdout.read(1)
    assert len(first + process.stdout.read()) == 8_000_000
    assert process.stderr.read() == b"done\n" and process.wait() == 0
    process.stdout.close()
    process.stderr.close()


def test_a_closed_output_reaches_its_reader(start) -> None:
    """The job closes its standard output and works on: whoever reads it sees the end at once."""
    job = start("sh", "-c", "echo last; exec >&-; read line", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout.read() == b"last\n"
    assert job.poll() is None
    job.stdin.write(b"go\n")
    job.stdin.close()
    assert job.wait(30) == 0


def test_a_broken_input_reaches_its_writer(start) -> None:
    """The job closes its standard input: whoever writes there gets EPIPE, and is not held by us."""
    job = start("sh", "-c", "exec <&-; echo closed; sleep 60", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout.readline() == b"closed\n"
    with pytest.raises(BrokenPipeError):
        while True:
            os.write(job.stdin.fileno(), b"x")
    job.send_signal(signal.SIGTERM)
    assert job.wait(30) == -signal.SIGTERM


def test_inherited_descriptors_are_the_jobs_and_not_our_helpers(tmp_path: Path) -> None:
    """A jobserver's pipe, a process substitution: at the job's end nobody of ours may hold it."""
    reading, writing = os.pipe()
    script = f"echo through >&{writing}; exec {writing}>&-; (exec sleep 60) & exit 0"
    made = subprocess.run(
        [*RUN, "--dir", str(tmp_path / "folder"), "--", "bash", "-c", script + " >/dev/null 2>&1"],
        pass_fds=[writing],
        env=environment(),
        stdout=subprocess.DEVNULL,
        timeout=30,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert stream.read() == b"through\n"
    assert made.returncode == 0


@pytest.mark.parametrize("script", ["echo out", "echo out; exit 3"])
def test_output_that_could_not_be_written_is_not_passed_over(shell, script: str) -> None:
    """The job cannot know: it wrote to our pipe."""
    ended = shell(f"$RUN -- sh -c '{script}' > /dev/full")
    assert ended.err.startswith(b"ftforensics: not all of the job's output could be written: No space left on device\n")


def helper(supervisor: int, name: str) -> int:
    for child in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text().strip() == name:
            return int(child)
    raise AssertionError(f"there is no {name}")


def held(folder: Path) -> list[Path]:
    """What a process has open."""
    found = []
    for fd in folder.iterdir():
        with suppress(FileNotFoundError):  # closed since
            found.append(fd.readlink())
    return found


def test_a_log_that_does_not_get_on_does_not_hold_up_a_good_end(start, tmp_path: Path) -> None:
    """A file server that is away; here its writer is stopped. What was begun of the log is gone all the same."""
    process = start(
        "sh", "-c", "echo ready; read go; yes | head -c 9000000", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    os.kill(helper(process.pid, "ftf-log"), signal.SIGSTOP)
    begun = time.monotonic()
    out, _ = process.communicate(b"go\n", timeout=60)
    assert (process.returncode, len(out)) == (0, 9_000_000)
    assert time.monotonic() - begun < 4
    assert not (tmp_path / "folder").exists()


def test_a_killed_copier_is_named(start, tmp_path: Path) -> None:
    """The job's next write fails, and nobody else could say why."""
    process = start("sh", "-c", "echo ready; read go; echo more", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    copier = helper(process.pid, "ftf-copier")
    # The other two were forked with the pipes open and let go of them first thing.
    pipe = Path(f"/proc/{helper(process.pid, 'sh')}/fd/1").readlink()
    others = [Path(f"/proc/{helper(process.pid, name)}/fd") for name in ("ftf-log", "ftf-witness")]
    wait_for(lambda: all(pipe not in held(folder) for folder in others))
    os.kill(copier, signal.SIGKILL)
    # Not only a zombie: its main thread is one while the others still hold the pipe.
    wait_for(lambda: not Path(f"/proc/{copier}").exists())
    process.communicate(b"go\n", timeout=60)
    assert process.returncode == -signal.SIGPIPE
    gaps = [gap.why for gap in read_run_evidence((tmp_path / "folder" / "evidence.jsonl").read_bytes()).gaps]
    assert any("was killed" in why for why in gaps)
