"""From install to record: the C thread starts the inventory outside the job, and the crash record holds its answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from conditions import ROOT
from ftforensics.wire.record import ReadRecord, read_record
from inventory_wait import WAIT

JOB = f"""{WAIT}
import ctypes, sys, ftforensics
ftforensics.install(dir=sys.argv[1])
kept = ctypes.CDLL(sys.argv[2])
wait_for_inventory()
wait_for_inventory(answered=True)
ctypes.string_at(0)
"""


def test_the_record_holds_libraries_and_driver(tmp_path: Path) -> None:
    site = tmp_path / "site"
    library = site / "nvidia/cudnn/lib/libcudnn.so.9"
    library.parent.mkdir(parents=True)
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", library, "-Wl,--build-id=sha1"], check=True)
    record = site / "nvidia_cudnn_cu12-9.10.2.21.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text(f"nvidia/cudnn/lib/libcudnn.so.9,,{library.stat().st_size}\n")
    folder = tmp_path / "run"
    folder.mkdir()
    environment = {"PYTHONPATH": str(ROOT / "src"), **os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(folder), str(library)], env=environment, capture_output=True, timeout=60
    )
    assert done.returncode == -signal.SIGSEGV, done.stderr
    (path,) = folder.glob("*.crash.json")
    crash = json.loads(path.read_text())
    (cudnn,) = [one for one in crash["libraries"] if one["kind"] == "libcudnn"]
    assert (cudnn["package"], cudnn["version"], cudnn["how"]) == ("nvidia-cudnn-cu12", "9.10.2.21", "record")
    (module,) = [one for one in crash["modules"] if one["path"] == str(library)]
    assert module["build_id"] == cudnn["build_id"]
    assert crash["driver"]["note"] or crash["driver"]["module_version"]
    assert {"name": "nvidia-cudnn-cu12", "version": "9.10.2.21"} in crash["software"]["packages"]
    reading = read_record(path.read_bytes())
    assert isinstance(reading, ReadRecord) and reading.losses == ()
    assert reading.record.software is not None and reading.record.software.site_packages == [str(site)]
