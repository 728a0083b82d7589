"""What the analyser fills in afterwards, and on which conditions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from ftforensics.host.host import Host
from ftforensics.model.basics import Address, Gap
from ftforensics.model.case import Case, CaseRecord
from ftforensics.model.crash import CrashRecord, Driver, EnvironmentVariable, Job, Library, Module, Time, Tool
from ftforensics.model.software import Pin, Software, TorchBuild
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
    record = msgspec.structs.replace(crash(host), modules=[], libraries=[library], driver=driver)
    assert (found := loaded(record, host)).libraries == [library] and found.driver == driver
    assert found.gaps == []


def test_same_machine_and_boot(host: Host) -> None:
    found = loaded(crash(host), host)
    assert [library.version for library in found.libraries or []] == ["12.8.90"]
    assert found.driver and found.driver.module_version == "530.30.02"
    said = {gap.source: gap.why for gap in found.gaps}
    assert "package and version of 1 were read now from the same paths, 1 checked" in said["libraries"]
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


def test_what_was_loaded_late_is_added(host: Host) -> None:
    """The list is made some seconds after install; CUDA often comes later."""
    early = Library(path="/early/libcudart.so.11", kind="libcudart", version="11.8.89", copies=1)
    record = msgspec.structs.replace(crash(host), libraries=[early], driver=Driver(module_version="530.30.02"))
    found = loaded(record, host)
    assert [(library.version, library.copies) for library in found.libraries or []] == [("11.8.89", 2), ("12.8.90", 2)]
    assert [gap.source for gap in found.gaps] == ["libraries"]
    assert "were loaded after the record's list was made" in found.gaps[0].why
    assert found.driver == record.driver


def test_a_library_that_was_replaced_before_it_was_looked_at(host: Host) -> None:
    module = Module(path="/x/libcudart.so.12", base=Address(0x7F00), build_id="aa")
    read = Library(path=module.path, kind="libcudart", package="p", version="12.8.90", how="record", build_id="bb")
    same = msgspec.structs.replace(read, build_id="aa")
    record = CrashRecord(modules=[module], libraries=[read], driver=Driver())
    (library,) = loaded(record, host).libraries or []
    assert (library.package, library.version, library.build_id) == (None, None, "aa")
    assert library.drifted == "replaced after it was loaded: build-id aa in memory, bb on disk"
    assert loaded(msgspec.structs.replace(record, libraries=[same]), host).libraries == [same]


def test_a_driver_that_was_loaded_late_is_asked(host: Host) -> None:
    (host.root / "usr/lib").mkdir(parents=True)
    (host.root / "usr/lib/libcuda.so.530.30.02").write_bytes(b"")
    module = Module(path="/usr/lib/libcuda.so.530.30.02", base=Address(0x7F00))
    record = CrashRecord(
        time=Time(boot_id="boot-1"), job=Job(host="gpu-07"), modules=[module], libraries=[], driver=Driver(note="none")
    )
    found = loaded(record, host)
    assert found.driver and (found.driver.libcuda_version, found.driver.module_version) == ("530.30.02", "530.30.02")


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


SITE = "/v/lib/python3.11/site-packages"


@pytest.fixture
def with_torch(host: Host) -> CrashRecord:
    """A process that has loaded the torch of an environment that is still there, and a runtime from elsewhere."""
    site = host.root / SITE.lstrip("/")
    (site / "torch/lib").mkdir(parents=True)
    (site / "torch/version.py").write_text("__version__ = '2.9.1+cu128'\ncuda = '12.8'\n")
    (site / "torch-2.9.1.dist-info").mkdir()
    (site / "torch-2.9.1.dist-info/METADATA").write_text(
        "Name: torch\n"
        "Requires-Dist: nvidia-nccl-cu12==2.27.5; platform_machine == 'x86_64' and python_version < '3.12'\n"
    )
    for path in ("torch/lib/libc10.so", "nvidia/nccl/lib/libnccl.so.2"):
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(site / path)], check=True)
    (site / "nvidia_nccl_cu12-2.20.5.dist-info").mkdir()
    (site / "nvidia_nccl_cu12-2.20.5.dist-info/RECORD").write_text("nvidia/nccl/lib/libnccl.so.2,,\n")
    paths = [CUDART, f"{SITE}/torch/lib/libc10.so", f"{SITE}/nvidia/nccl/lib/libnccl.so.2"]
    return msgspec.structs.replace(
        crash(host),
        tool=Tool(python="3.11.7"),
        job=Job(host="gpu-07", machine="x86_64", environment=[EnvironmentVariable("LD_LIBRARY_PATH", "/x:/opt/lib")]),
        modules=[Module(path=path, base=Address(0x7F00)) for path in paths],
    )


def test_software_is_read_where_the_record_holds_none(host: Host, with_torch: CrashRecord) -> None:
    found = loaded(with_torch, host)
    assert found.software is not None and found.software.torch is not None
    assert (found.software.torch.cuda, found.software.python, found.software.prefix) == ("12.8", "3.11.7", "/v")
    assert found.software.pins == [Pin("nvidia-nccl-cu12", "2.27.5", "torch 2.9.1", "2.20.5")]
    runtime, _, nccl = found.libraries or []
    assert (runtime.searched, runtime.pin) == ("/opt/lib", None)
    assert (nccl.version, nccl.pin, nccl.pinned_by) == ("2.20.5", "2.27.5", "torch 2.9.1")
    assert "read now, after the crash" in {gap.source: gap.why for gap in found.gaps}["packages"]


def test_software_elsewhere_is_a_gap(host: Host, with_torch: CrashRecord) -> None:
    record = msgspec.structs.replace(with_torch, time=Time(boot_id="boot-0"), libraries=[Library("/c10.so", "libc10")])
    found = loaded(record, host)
    assert found.software is None
    assert "this machine was started again since" in {gap.source: gap.why for gap in found.gaps}["packages"]


def test_the_records_own_software_is_left_alone(host: Host, with_torch: CrashRecord) -> None:
    theirs = Software(torch=TorchBuild("2.5.1+cu121"), pins=[Pin("nvidia-nccl-cu12", "2.21.5", "torch 2.5.1", None)])
    found = loaded(msgspec.structs.replace(with_torch, software=theirs), host)
    assert found.software == theirs
    assert (found.libraries or [])[2].pin == "2.21.5"
    assert "packages" not in {gap.source for gap in found.gaps}


def test_software_that_was_looked_at_before_torch_was_loaded(host: Host, with_torch: CrashRecord) -> None:
    early = msgspec.structs.replace(with_torch, software=Software(python="3.11", prefix="/v"))
    assert (found := loaded(early, host).software) is not None and found.torch is not None


def test_a_process_without_torch_misses_no_software(host: Host) -> None:
    library = Library(path="/usr/lib/libstdc++.so.6", kind="libstdc++")
    record = msgspec.structs.replace(crash(host), modules=[], libraries=[library], driver=Driver())
    assert (found := loaded(record, host)).software is None and found.gaps == []
