"""The recorder under version 2 control groups, on another real kernel."""

from __future__ import annotations

from pathlib import Path

from conditions import PYTHONS, ROOT, needs_second_kernel
from rings import read
from second_kernel import boot

PROGRAM = """
import os, time
import ftforensics
ftforensics.install(helper="none")
time.sleep(1.2)
blocks = []
while True:
    blocks.append(bytearray(b"x") * (1 << 20)); time.sleep(0.01)
"""


@needs_second_kernel
def test_limits_and_counters_of_version_2_up_to_the_top(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    rings = tmp_path / "rings"
    rings.mkdir()
    folder = tmp_path / "boot"
    folder.mkdir()
    script = f"""
    cd /sys/fs/cgroup; echo +memory >cgroup.subtree_control
    mkdir job; echo +memory >job/cgroup.subtree_control; mkdir job/step
    echo 150M >job/memory.max; echo 400M >job/step/memory.high
    mkdir /run/records; export FTFORENSICS_DIR=/run/records PYTHONPATH={ROOT / "src"} PYTHONDONTWRITEBYTECODE=1
    sh -c 'echo $$ >job/step/cgroup.procs; exec {PYTHONS[0].path} {program}'
    echo status $?
    cat job/memory.events
    echo inode $(stat -c %i job/step)
    cp /run/records/*.ring {rings}
    """
    out = boot(script, folder)
    assert "status 137" in out and "oom_kill 1" in out, out
    (path,) = rings.iterdir()
    ring = read(path)
    assert ring.end.how is None and ring.gaps == []
    readings = [sample.reading for sample in ring.slow if sample.reading]
    own, job, top = readings[-1].groups
    assert (own.path, job.path, top.path) == ("/job/step", "/job", "/")
    assert (own.version, own.limit, own.high, job.limit) == (2, None, 400 << 20, 150 << 20)
    assert own.usage is not None and own.usage > 50 << 20 and own.anon is not None and own.anon > 50 << 20
    assert (own.oom_kill, own.local_oom_kill, job.oom_group_kill, job.oom) == (0, 0, 0, 0)
    assert own.file is not None and own.max_events == 0
    assert own.shmem is not None and 0 < own.shmem < 4 << 20  # what lies in /run: the ring itself
    assert f"inode {own.inode}" in out
    assert top.usage is None and top.limit is None
    assert readings[-1].oom_kill == 0 and readings[-1].mem_total is not None
    assert ring.process.cgroup == ["0::/job/step"]
    last = ring.fast[-1]
    assert last.usage is not None and last.usage > 120 << 20
