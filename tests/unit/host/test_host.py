"""The door to a machine: a real root, a copied root, refusals, commands with deadlines."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conditions import needs_root
from ftforensics.host.host import Host, Refusal


def test_reads_this_machine() -> None:
    host = Host()
    assert "-" in host.read_text("/proc/sys/kernel/random/boot_id")
    assert host.live
    assert "self" in host.names("/proc")


def test_a_copied_root_is_a_world_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/libcuda.so.530.30.02").write_bytes(b"x")
    (tmp_path / "usr/lib/libcuda.so.1").symlink_to("/usr/lib/libcuda.so.530.30.02")
    (tmp_path / "lib").symlink_to("usr/lib")
    host = Host(root=tmp_path)

    assert host.real_path("/lib/libcuda.so.1") == "/usr/lib/libcuda.so.530.30.02"
    assert host.read_bytes("/lib/libcuda.so.1") == b"x"
    assert not host.live


@pytest.mark.parametrize("target", ["/etc/hostname", "../../../../../../../../etc/hostname"])
def test_a_link_cannot_lead_out_of_a_copied_root(tmp_path: Path, target: str) -> None:
    (tmp_path / "escape").symlink_to(target)
    with pytest.raises(Refusal) as refused:
        Host(root=tmp_path).read_bytes("/escape")
    assert refused.value.absent


def test_a_link_loop_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(Refusal, match="symbolic links"):
        Host(root=tmp_path).read_bytes("/a")


@pytest.mark.parametrize("path", ["/a\0b", "/\ud800"])
def test_what_is_no_path_is_refused(path: str, tmp_path: Path) -> None:
    for host in (Host(), Host(root=tmp_path)):
        for ask in (host.real_path, host.read_bytes, host.stat, host.names):
            with pytest.raises(Refusal):
                ask(path)
        assert not host.exists(path) and not host.guarded(path)


def test_a_folder_that_is_not_there_lists_nothing(tmp_path: Path) -> None:
    (tmp_path / "b").touch()
    (tmp_path / "a").mkdir()
    host = Host(root=tmp_path)
    assert (host.listed("/"), host.listed("/a"), host.listed("/b"), host.listed("/c")) == (["a", "b"], [], [], [])


def test_a_refusal_becomes_a_gap(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        Host(root=tmp_path).read_bytes("/nothing")
    gap = refused.value.gap("driver", "modprobe nvidia")
    assert (gap.source, gap.why, gap.grant) == ("driver", "/nothing: No such file or directory", "modprobe nvidia")


def test_half_a_file_is_not_given(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 100)
    host = Host(root=tmp_path)
    assert len(host.read_bytes("/long", limit=100)) == 100
    with pytest.raises(Refusal, match="larger than 99"):
        host.read_bytes("/long", limit=99)
    assert host.read_start("/long", 10) == b"x" * 10


def test_a_fifo_with_a_waiting_writer_is_not_opened(tmp_path: Path) -> None:
    """To open is to do something, on a device more so: here a writer would find its reader."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Refusal, match="not a regular file"):
        Host(root=tmp_path).read_bytes("/fifo")
    opened: list[int] = []
    writer = threading.Thread(target=lambda: opened.append(os.open(tmp_path / "fifo", os.O_WRONLY)))
    writer.start()
    with pytest.raises(Refusal, match="not a regular file"):
        Host(root=tmp_path).read_bytes("/fifo")
    assert not opened
    os.close(os.open(tmp_path / "fifo", os.O_RDONLY))  # lets the writer go
    writer.join()
    os.close(opened[0])


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    start = time.monotonic()
    with pytest.raises(Refusal, match="not a regular file"):
        Host(root=tmp_path).read_bytes("/fifo")
    assert time.monotonic() - start < 1


def test_a_path_with_nul_is_refused() -> None:
    with pytest.raises(Refusal, match="not a path"):
        Host().read_bytes("/tmp/\0")


def test_a_command_gets_a_bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent.so")
    done = Host().run([sys.executable, "-I", "-c", "import os; print(sorted(os.environ))"], timeout=20)
    assert done.status == 0
    assert b"HF_TOKEN" not in done.stdout and b"LD_PRELOAD" not in done.stdout
    assert done.stderr == b""


def test_a_command_is_ended_with_its_children_at_the_deadline() -> None:
    # The shell's child holds the pipe: killing the shell alone would leave both.
    done = Host().run(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], timeout=0.5)
    assert done.timed_out and done.status == -9 and done.seconds < 5
    grandchild = int(done.stdout)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{grandchild}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
    pytest.fail("the grandchild outlived the deadline")


def test_a_command_that_closes_its_pipes_is_ended_too() -> None:
    done = Host().run(["/bin/sh", "-c", "exec >&- 2>&-; sleep 60"], timeout=0.5)
    assert done.timed_out and done.status == -9


def test_a_command_ends_with_us() -> None:
    program = "import sys; from ftforensics.host.host import Host; Host().run([sys.executable, '-c', sys.argv[1]], 60)"
    read, write = os.pipe()
    here = f"/proc/{os.getpid()}/fd/{write}"
    child = f"import os, time; print(os.getpid(), file=open({here!r}, 'w'), flush=True); time.sleep(60)"
    ours = subprocess.Popen([sys.executable, "-c", program, child])
    pid = int(os.read(read, 32))
    os.close(read)
    os.close(write)
    ours.kill()
    ours.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
    pytest.fail("the command outlived the process that ran it")


def test_a_flood_is_cut() -> None:
    done = Host().run(["/bin/sh", "-c", "yes"], timeout=20, output_limit=1000)
    assert done.cut and not done.timed_out and len(done.stdout) == 1000 and done.seconds < 10


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(Refusal) as refused:
        Host().run(["/nonexistent/py-spy"], timeout=1)
    assert refused.value.absent


def test_a_file_is_guarded_when_only_root_and_we_can_have_put_it_there(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "folder" / "file"
    folder.mkdir()
    file.write_text("")
    link = tmp_path / "link"
    link.symlink_to(file)
    assert Host().guarded(file) and Host().guarded(link)
    for place in (file, folder):
        place.chmod(0o777)
        assert not Host().guarded(file) and not Host().guarded(link)
        place.chmod(0o700)
    folder.chmod(0o1777)  # sticky, as /tmp: others may add files and not replace this one
    assert Host().guarded(file)
    assert not Host().guarded(tmp_path / "missing") and not Host().guarded("a\0b")


@needs_root
def test_somebody_elses_file_is_not_guarded(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    os.chown(file, 65534, 65534)
    assert not Host().guarded(file)
