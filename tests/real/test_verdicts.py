"""Deaths that are easily told wrongly: a real process each, and the verdict that an engineer would give."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from conditions import ROOT, needs_cxx, needs_no_huge_pages, needs_x86_64
from ftforensics.cli.analysis import diagnose_paths
from ftforensics.model.diagnosis import Diagnosis

pytestmark = needs_cxx
PROGRAMS = Path(__file__).parent / "programs"
JOB = """
import ctypes, sys, ftforensics
deaths = ctypes.CDLL(sys.argv[1])
ftforensics.install(dir=sys.argv[2], helper="none")
getattr(deaths, sys.argv[3])()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("deaths")
    flags = ["-O1", "-g0", "-fPIC", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer", "-fno-stack-protector"]
    for compiler, source in (("gcc", "deaths.c"), ("g++", "deaths.cc")):
        subprocess.run([compiler, *flags, "-c", PROGRAMS / source, "-o", build / f"{source}.o"], check=True)
    made = build / "libdeaths.so"
    subprocess.run(["g++", "-shared", *build.glob("*.o"), "-o", made, "-lpthread"], check=True)
    return made


def die(library: Path, folder: Path, way: str) -> Diagnosis:
    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    done = subprocess.run(
        [sys.executable, "-c", JOB, str(library), str(folder), way],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        preexec_fn=limits,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode < 0, done.stderr
    return diagnose_paths([str(folder)])


@pytest.mark.parametrize(
    ("way", "mechanism", "cause", "says"),
    [
        ("large_frame", "stack-overflow", "thread-stack-overflow", "one call wanted"),
        pytest.param(
            "overwritten_return", "non-canonical", "native-fault", "the stack was overwritten", marks=needs_x86_64
        ),
        pytest.param(
            "freed_vtable",
            "non-canonical",
            "native-fault",
            "freed_vtable (libdeaths.so): call through",
            marks=needs_x86_64,
        ),
        pytest.param("misaligned_vector", None, "native-fault", "not aligned to 16 bytes", marks=needs_x86_64),
        pytest.param("trapping_division", None, "native-fault", "with traps enabled", marks=needs_x86_64),
        pytest.param(
            "undefined_behaviour_trap", "illegal-instruction", "native-fault", "to stop the program", marks=needs_x86_64
        ),
        pytest.param("no_huge_page", None, "native-fault", "no huge page", marks=needs_no_huge_pages),
        ("beyond_memfd", "bus-truncated-file", "file-truncated-under-mmap", "/memfd:batch"),
        ("left_noexcept", "abort-cxx-exception", "uncaught-cxx-exception", "shard 3 is empty"),
        ("forgotten_thread", "abort-other", "raised-by-program", "std::terminate() was called by"),
        ("pure_virtual_call", "abort-other", "raised-by-program", "no exception is recorded"),
        ("abort_in_handler", "abort-other", "raised-by-program", "abort() was called by abort_in_handler"),
        ("fault_in_handler", "null-write", "native-fault", "fault_in_handler"),
    ],
)
def test_verdict(library: Path, tmp_path: Path, way: str, mechanism: str | None, cause: str, says: str) -> None:
    verdict = die(library, tmp_path / "run", way).verdict
    assert (verdict.mechanism, verdict.cause, says in verdict.summary) == (mechanism, cause, True), verdict
    assert verdict.confidence == "likely"
