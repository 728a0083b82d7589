"""What the analyser fills in afterwards, and on which conditions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from ftforensics.host.host import Host
from ftforensics.model.basics import Address, Gap
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.crash import CrashRecord, Driver, Job, Library, Module, Time
from ftforensics.sources.libraries import Mapped, loaded_libraries
from ftforensics.sources.loaded import loaded, with_loaded

CUDART = "/opt/lib/libcudart.so.12.8.90"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    (tmp_path / "proc/sys/kernel/hostname").write_text("gpu-07\n")
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("530.30.02\n")
    (tmp_path / "opt/lib").mkdir(parents=True)
    command = ["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(tmp_path) + CUDART, "-Wl,--build-id=sha1"]
    subprocess.run(command, check=True)
    return Host(root=tmp_path)


def crash(
    host: Host, *, boot: str | None = "boot-1", name: str | None = "gpu-07", build_id: bool = True
) -> CrashRecord:
    (library,) = loaded_libraries([Mapped(CUDART)], host)
    module = Module(path=CUDART, base=Address(0x7F00), build_id=library.build_id if build_id else None)
    return CrashRecord(time=Time(boot_id=boot), job=Job(host=name), modules=[module])


def test_what_the_record_holds_is_left_alone(host: Host) -> None:
    library = Library(path="/x", kind="libcudart", version="1")
    driver = Driver(module_version="1")
    record = msgspec.structs.replace(crash(host), libraries=[library], driver=driver)
    assert (found := loaded(record, host)).libraries == [library] and found.driver == driver
    assert found.gaps == []


def test_same_machine_and_boot(host: Host) -> None:
    found = loaded(crash(host), host)
    assert [library.version for library in found.libraries or []] == ["12.8.90"]
    assert found.driver and found.driver.module_version == "530.30.02"
    said = {gap.source: gap.why for gap in found.gaps}
    assert "read now from the same paths, 1 of 1 checked by build-id" in said["libraries"]
    assert "read now, after the crash" in said["driver"]


@pytest.mark.parametrize(
    ("boot", "name", "why"),
    [
        ("boot-0", "gpu-07", "this machine was started again since"),
        ("boot-1", "gpu-08", "was written on gpu-08, another machine or container than this"),
        (None, "gpu-07", "does not say on which machine and boot"),
        ("boot-1", None, "does not say on which machine and boot"),
    ],
)
def test_elsewhere_only_the_build_id_ties_a_file_to_the_process(
    host: Host, boot: str | None, name: str | None, why: str
) -> None:
    found = loaded(crash(host, boot=boot, name=name), host)
    assert [library.version for library in found.libraries or []] == ["12.8.90"]
    assert found.driver is None
    assert all(why in gap.why for gap in found.gaps) and len(found.gaps) == 2

    unknown = loaded(crash(host, boot=boot, name=name, build_id=False), host)
    assert unknown.libraries is None and unknown.driver is None
    assert [gap.source for gap in unknown.gaps] == ["libraries", "driver"]


def test_elsewhere_another_file_at_the_same_path_says_nothing(host: Host) -> None:
    module = Module(path=CUDART, base=Address(0x7F00), build_id="00ff")
    record = msgspec.structs.replace(crash(host, name="gpu-08"), modules=[module])
    assert loaded(record, host).libraries is None


def test_a_case_is_completed(host: Host) -> None:
    known = Gap("record", "cut")
    case = with_loaded(Case([CaseRecord(crash(host), path="/a", gaps=[known]), CaseRecord(CrashRecord())]), host)
    first, second = case.records
    assert first.path == "/a" and first.record.driver and len(first.record.libraries or []) == 1
    assert [gap.source for gap in first.gaps] == ["record", "libraries", "driver"]
    assert (second.record, len(second.gaps)) == (CrashRecord(), 2)


def test_an_empty_record(host: Host) -> None:
    found = loaded(CrashRecord(), host)
    assert (found.libraries, found.driver) == (None, None)
    assert len(found.gaps) == 2
