"""What counts as a change between two runs, in which order, and what is noise."""

from __future__ import annotations

import msgspec

from ftforensics.model.ledger import NOT_UNDERSTOOD, Change, ConfigFile, Fingerprint, Setting
from ftforensics.model.software import Package
from ftforensics.report.changes import line
from ftforensics.sources.differences import differences

GIB = 1 << 30
BASE = Fingerprint(
    host="gpu-07",
    python="3.11.7",
    prefix="/v",
    packages=[Package("numpy", "1.26.4"), Package("nvidia-cudnn-cu12", "9.1.0.70"), Package("torch", "2.4.1+cu121")],
    torch="2.4.1+cu121",
    driver="530.30.02",
    libcuda="530.30.02",
    kernel="5.15.0-91-generic",
    glibc="2.35",
    gpus=["NVIDIA A100-SXM4-80GB"] * 8,
    cpu="Xeon",
    cores=64,
    memory=512 * GIB,
    memory_limit=64 * GIB,
    shm=256 * GIB,
    world_size=8,
    variables=[Setting("NCCL_DEBUG", "INFO")],
    argv=["python", "train.py", "--lr", "1e-4", "--output_dir", "/o/2026-11-01", "--port", "1234"],
    cwd="/w",
    files=[ConfigFile("/w/ds_config.json", [Setting("zero_optimization.stage", "3"), Setting("steps", "5")])],
)


def changed(**values: object) -> list[str]:
    return [line(change) for change in differences(BASE, msgspec.structs.replace(BASE, **values))]


def test_nothing_changes_by_itself() -> None:
    assert differences(BASE, BASE) == []


def test_a_file_that_is_not_understood() -> None:
    def with_file(value: str) -> Fingerprint:
        file = ConfigFile("/w/ds_config.json", [Setting(NOT_UNDERSTOOD, value)])
        return msgspec.structs.replace(BASE, files=[file])

    one, other = with_file("100 bytes, CRC 00AB1234"), with_file("100 bytes, CRC 12345678")
    assert [line(change) for change in differences(one, other)] == [
        "ds_config.json: (content) 100 bytes, CRC 00AB1234 -> 100 bytes, CRC 12345678"
    ]
    assert differences(BASE, one) == []  # PyYAML is there on one side only


def test_the_most_telling_stands_first() -> None:
    after = msgspec.structs.replace(
        BASE,
        packages=[Package("nvidia-cudnn-cu12", "9.13.0.50"), Package("torch", "2.9.1"), Package("aaa", "1")],
        torch="2.9.1+cu128",
        driver="535.54.03",
        libcuda="535.54.03",
        kernel="5.15.0-92-generic",
        gpus=["NVIDIA H100"] * 8,
        memory_limit=None,
        world_size=16,
        variables=[Setting("NCCL_DEBUG", "WARN"), Setting("LD_LIBRARY_PATH", "/usr/local/cuda/lib64")],
        argv=["python", "train.py", "--lr", "2e-4"],
        files=[ConfigFile("/w/ds_config.json", [Setting("zero_optimization.stage", "2"), Setting("steps", "5")])],
    )
    assert [line(change) for change in differences(BASE, after)] == [
        "torch 2.4.1+cu121 -> 2.9.1+cu128",
        "driver 530.30.02 -> 535.54.03",
        "nvidia-cudnn-cu12 9.1.0.70 -> 9.13.0.50",
        "aaa 1 is new",
        "numpy 1.26.4 is gone",
        "kernel 5.15.0-91-generic -> 5.15.0-92-generic",
        "GPUs 8 x NVIDIA A100-SXM4-80GB -> 8 x NVIDIA H100",
        "memory limit 64.0 GiB -> none",
        "world size 8 -> 16",
        "LD_LIBRARY_PATH /usr/local/cuda/lib64 is new",
        "NCCL_DEBUG INFO -> WARN",
        "ds_config.json: zero_optimization.stage 3 -> 2",
        "--lr 1e-4 -> 2e-4",
    ]


def test_a_libcuda_of_its_own_is_told_and_one_that_goes_with_the_driver_is_not() -> None:
    assert changed(libcuda="590.48.01") == ["libcuda 530.30.02 -> 590.48.01"]
    assert changed(libcuda="535.54.03", driver="535.54.03")[0] == "driver 530.30.02 -> 535.54.03"


def test_what_one_side_does_not_know_is_no_change() -> None:
    folder = Fingerprint(python="3.11", prefix="/v2", packages=BASE.packages, torch=BASE.torch)
    assert differences(BASE, folder) == differences(folder, BASE) == []
    assert changed(packages=[], torch=None) == []
    assert changed(argv=[], files=[], world_size=None) == []


def test_two_pythons_of_one_release_are_told_apart_by_their_whole_version_only() -> None:
    assert changed(python="3.11") == []
    assert changed(python="3.1") == ["python 3.11.7 -> 3.1"]
    assert changed(python="3.12.1") == ["python 3.11.7 -> 3.12.1"]
    before, after = msgspec.structs.replace(BASE, python="3.11.1"), msgspec.structs.replace(BASE, python="3.11.10")
    assert [line(change) for change in differences(before, after)] == ["python 3.11.1 -> 3.11.10"]
    assert [line(change) for change in differences(after, before)] == ["python 3.11.10 -> 3.11.1"]


def test_ports_dates_ids_and_places_of_output_are_noise() -> None:
    argv = ["python", "train.py", "--lr", "1e-4", "--output_dir", "/elsewhere", "--port", "9", "--run-name", "x"]
    assert changed(argv=argv) == []
    variables = [*BASE.variables, Setting("CUDA_CACHE_PATH", "/c/run-1764434400")]
    other = [*BASE.variables, Setting("CUDA_CACHE_PATH", "/c/run-1764434999")]
    before = msgspec.structs.replace(BASE, variables=variables)
    assert differences(before, msgspec.structs.replace(BASE, variables=other)) == []


def test_a_number_is_no_date() -> None:
    before = msgspec.structs.replace(BASE, argv=["python", "train.py", "--tokens", "2048"])
    after = msgspec.structs.replace(BASE, argv=["python", "train.py", "--tokens", "4096"])
    assert [line(change) for change in differences(before, after)] == ["--tokens 2048 -> 4096"]


def test_a_configuration_file_that_moved_is_the_same_by_its_name() -> None:
    files = [ConfigFile("/elsewhere/ds_config.json", [Setting("zero_optimization.stage", "1"), Setting("steps", "5")])]
    assert changed(files=files) == ["ds_config.json: zero_optimization.stage 3 -> 1"]
    assert changed(files=[ConfigFile("/w/other.json", [])]) == []


def test_some_megabytes_of_memory_are_the_kernels() -> None:
    assert changed(memory=512 * GIB - (300 << 20)) == []
    assert changed(memory=256 * GIB) == ["memory 512.0 GiB -> 256.0 GiB"]


def test_another_program_is_one_change() -> None:
    assert changed(argv=["python", "other.py", "--lr", "5"]) == ["program /w/train.py -> /w/other.py"]


def test_two_versions_of_one_package_are_both_told() -> None:
    packages = [*BASE.packages, Package("numpy", "2.0.0")]
    assert changed(packages=packages) == ["numpy 1.26.4 -> 1.26.4 and 2.0.0"]


def test_the_kinds_that_causes_name() -> None:
    (change,) = differences(BASE, msgspec.structs.replace(BASE, torch="2.9.1+cu128"))
    assert change == Change("package", "torch", "2.4.1+cu121", "2.9.1+cu128")
