"""What a run runs on: a driver that is not here, from a copied root; processes and files that are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftforensics.host.host import Host, Refusal
from ftforensics.model.ledger import NOT_UNDERSTOOD, Begun, ConfigFile, Setting
from ftforensics.sources.driver import LIBRARY_FOLDERS
from ftforensics.sources.fingerprint import (
    Subject,
    compared_variables,
    environment_folder,
    read_fingerprint,
    subject_of_process,
)
from ftforensics.wire.ledger import encode_line, read_runs


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "ds.json").write_text('{"stage": 3}')
    process = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True); input()", "--deepspeed", "ds.json", "--api_key", "plain-secret"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "RANK": "1", "WORLD_SIZE": "2", "NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_x"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.read(1) == b"1"
    yield process
    process.communicate(b"\n")


def test_a_live_process(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    found = read_fingerprint(Host(), subject_of_process(Host(), sleeper.pid))
    assert (found.prefix, found.python, found.cwd) == (sys.prefix, sys.version.split()[0], str(tmp_path))
    assert found.argv[-2:] == ["--api_key", "[redacted]"]
    assert (found.world_size, found.variables) == (2, [Setting("NCCL_DEBUG", "INFO")])
    assert [(file.path, file.settings) for file in found.files] == [
        (str(tmp_path / "ds.json"), [Setting("stage", "3")])
    ]
    assert "msgspec" in {package.name for package in found.packages}
    assert len(found.packages) == len({(package.name, package.version) for package in found.packages})
    assert found.memory and found.kernel == os.uname().release and found.cores


def test_it_is_cheap(sleeper: subprocess.Popen[bytes]) -> None:
    begun = time.process_time()
    read_fingerprint(Host(), subject_of_process(Host(), sleeper.pid))
    assert time.process_time() - begun < 0.3


def test_packages_that_came_from_no_index(tmp_path: Path) -> None:
    site = tmp_path / "v/lib/python3.11/site-packages"
    for name in ("ours-0.1", "six-1.16.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (site / "ours-0.1.dist-info/direct_url.json").write_text('{"url": "file:///src/ours", "dir_info": {}}')
    (tmp_path / "v/pyvenv.cfg").write_text("")
    found = environment_folder(Host(), str(tmp_path / "v"))
    assert ([package.name for package in found.packages], found.elsewhere) == (["ours", "six"], ["ours"])


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    subject = Subject(argv=["python", "t.py", "c.json"], cwd=str(tmp_path))
    for text, value in (('{"a": 1}', "1"), ('{"a": 22}', "22")):
        file.write_text(text)
        for _ in range(2):  # the second time from the cache
            assert read_fingerprint(Host(), subject).files[0].settings == [Setting("a", value)]
    assert list((tmp_path / "cache" / "ftforensics").glob("config-*.json"))
    for text in (b"{" * 100, b"{" * 101):  # not understood: whether it is another can be told all the same
        file.write_bytes(text)
        (setting,) = read_fingerprint(Host(), subject).files[0].settings
        assert setting == Setting(NOT_UNDERSTOOD, f"{len(text)} bytes, CRC {zlib.crc32(text):08X}")
    with open(file, "wb") as large:
        large.truncate(2 << 20)
    assert read_fingerprint(Host(), subject).files == []


def test_a_process_that_is_gone_is_a_refusal() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(Refusal):
        subject_of_process(Host(), process.pid)


def test_a_driver_and_its_gpus(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        target = tmp_path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  530.30.02  Wed Feb 22 04:11:39 UTC 2023\n"
    write("/proc/driver/nvidia/version", version)
    write("/proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 43\n")
    write("/proc/sys/kernel/osrelease", "5.15.0-91-generic\n")
    write("/proc/sys/kernel/hostname", "gpu-07\n")
    write("/usr/lib/x86_64-linux-gnu/libcuda.so.530.30.02", "")
    (tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.1").symlink_to("libcuda.so.530.30.02")
    write("/run/.containerenv", 'engine="podman-4.3.1"\nimage="docker.io/nvidia/cuda:12.1.0-base"\n')
    found = read_fingerprint(Host(root=tmp_path), Subject())
    assert (found.driver, found.libcuda, found.gpus) == ("530.30.02", "530.30.02", ["NVIDIA A100-SXM4-80GB"])
    assert (found.host, found.kernel) == ("gpu-07", "5.15.0-91-generic")
    assert found.image == "docker.io/nvidia/cuda:12.1.0-base"


@pytest.mark.parametrize("folder", LIBRARY_FOLDERS)
def test_the_drivers_library_wherever_the_driver_is_looked_for(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder.lstrip("/")
    place.mkdir(parents=True)
    (place / "libcuda.so.535.183.01").write_text("")
    (place / "libcuda.so.1").symlink_to("libcuda.so.535.183.01")
    assert read_fingerprint(Host(root=tmp_path), Subject()).libcuda == "535.183.01"


def test_names_that_are_no_utf8_have_a_line_too(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"m\xfcller")
    (folder / "v").mkdir(parents=True)
    (folder / "v/pyvenv.cfg").write_text("")
    (folder / "c.json").write_text('{"a": 1}')
    environ = {"NCCL_DEBUG_FILE": f"{folder}/log", "DOCKER_IMAGE": os.fsdecode(b"m\xfc")}
    subject = Subject(["python", f"{folder}/t.py", "c.json"], str(folder), environ, prefix=f"{folder}/v")
    found = read_fingerprint(Host(), subject)
    told = f"{tmp_path}/m\\xfcller"
    assert (found.cwd, found.prefix, found.argv[1], found.image) == (told, f"{told}/v", f"{told}/t.py", "m\\xfc")
    assert found.variables == [Setting("NCCL_DEBUG_FILE", f"{told}/log")]
    assert found.files == [ConfigFile(f"{told}/c.json", [Setting("a", "1")])]
    assert environment_folder(Host(), f"{folder}/v").prefix == f"{told}/v"
    line = encode_line(Begun("r", 1.0, "job", found))
    assert read_runs(line)[0].begun.fingerprint == found


def test_an_empty_machine_is_all_unknown(tmp_path: Path) -> None:
    found = read_fingerprint(Host(root=tmp_path), Subject())
    assert (found.driver, found.kernel, found.memory, found.packages, found.image) == (None, None, None, [], None)


def test_only_listed_variables_that_say_something_of_a_job_are_compared() -> None:
    environ = {"RANK": "1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x", "MY_SECRET": "s", "OMP_NUM_THREADS": "4"}
    assert compared_variables(environ) == [Setting("OMP_NUM_THREADS", "4")]
    ours = {"LD_PRELOAD": "/x/libjemalloc.so:/p/ftforensics/_preload.abi3.so"}
    assert compared_variables(ours) == [Setting("LD_PRELOAD", "/x/libjemalloc.so")]
    assert compared_variables({"LD_PRELOAD": "/p/ftforensics/_preload.abi3.so"}) == []


def test_an_environments_folder(tmp_path: Path) -> None:
    found = environment_folder(Host(), sys.prefix)
    assert found.kernel is None and "msgspec" in {package.name for package in found.packages}
    with pytest.raises(Refusal, match="not a Python environment"):
        environment_folder(Host(), str(tmp_path))
