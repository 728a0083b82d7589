"""Deaths that damage what the handler needs before they happen, or that hide what it looks for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from conditions import needs_cxx, needs_root, needs_x86_64
from harness import PROGRAMS, ROOT, Workplace

PROGRAM = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[2])  # before install(), which looks for libstdc++
import ftforensics
ftforensics.install(dir=sys.argv[1], helper="none")
getattr(library, sys.argv[3])()
"""

CUT_SHARED_MEMORY = """
import mmap, os, sys
import ftforensics
ftforensics.install(dir=sys.argv[1], helper="none")
path = f"/dev/shm/ftf-test-{os.getpid()}"
with open(path, "w+b") as file:
    file.truncate(1 << 20)
    memory = mmap.mmap(file.fileno(), 1 << 20)
    os.unlink(path)  # as torch does
    os.truncate(file.fileno(), 4096)
memory[8192]
"""


def die(place: Workplace, function: str) -> tuple[int, dict[str, Any]]:
    library: Path = place.build / "damage.so"
    if not library.exists():
        subprocess.run(["g++", "-O0", "-w", "-shared", "-fPIC", "-o", library, PROGRAMS / "damage.cc"], check=True)
    folder = place.fresh() / "records"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(library), function],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    (path,) = folder.glob("*.crash.json")
    return done.returncode, json.loads(path.read_text())


@needs_cxx
def test_a_heap_overrun_to_its_end(place: Workplace) -> None:
    status, record = die(place, "overrun_the_heap")
    assert status == -signal.SIGSEGV
    assert record["job"]["argv"][-1] == "overrun_the_heap"
    assert record["end"]


@needs_cxx
def test_a_rethrown_exception_keeps_its_name_and_text(place: Workplace) -> None:
    status, record = die(place, "rethrow")
    assert status == -signal.SIGABRT
    assert record["cxx_exception"] == {"type": "St13runtime_error", "what": "thrown elsewhere, thrown again here"}


@needs_x86_64
@needs_cxx
def test_a_handler_entered_under_alignment_check(place: Workplace) -> None:
    status, record = die(place, "misaligned_under_alignment_check")
    assert status == -signal.SIGBUS
    assert record["signal"]["code_name"] == "BUS_ADRALN"
    assert record["end"]


@needs_root
def test_a_file_without_a_name_is_asked_through_its_mapping(place: Workplace) -> None:
    folder = place.fresh() / "records"
    done = subprocess.run(
        [sys.executable, "-c", CUT_SHARED_MEMORY, str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == -signal.SIGBUS
    (path,) = folder.glob("*.crash.json")
    file = json.loads(path.read_text())["fault_file"]
    assert file["size"] == 4096
    assert file["filesystem"] == 0x01021994
