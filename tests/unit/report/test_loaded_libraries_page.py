"""The page of `ftforensics libraries`: what is told, widths, hostile names."""

from __future__ import annotations

import msgspec
import pytest
from rich.cells import cell_len

from ftforensics.model.basics import Gap
from ftforensics.model.crash import Driver, Gpu, Library
from ftforensics.model.software import BrokenFile, MissingSymbols, Pin, Software, TorchBuild
from ftforensics.model.stack import LoadedStack
from ftforensics.report import json
from ftforensics.report.libraries import render

SITE = "/opt/conda/envs/training/lib/python3.11/site-packages"


def library(name: str, **more: object) -> Library:
    values = {"path": f"{SITE}/nvidia/cudnn/lib/{name}", "kind": name.split(".so")[0], "origin": "wheel", **more}
    return Library(**values)  # type: ignore[arg-type]


CUDNN = library(
    "libcudnn.so.9",
    package="nvidia-cudnn-cu12",
    version="9.13.0.50",
    how="record",
    pin="9.10.2.21",
    pinned_by="torch 2.9.1",
    copies=1,
)
STRAY = library(
    "libcudnn.so.9.1.0",
    path="/usr/local/cuda-12.4/lib64/libcudnn.so.9.1.0",
    version="9.1.0",
    how="file-name",
    origin="system",
    copies=2,
    searched="/usr/local/cuda/lib64",
)
STACK = LoadedStack(
    pid=4242,
    libraries=[CUDNN, STRAY],
    software=Software(
        python="3.11.7",
        prefix="/opt/conda/envs/training",
        torch=TorchBuild("2.9.1+cu128", "12.8", how="version.py", origin="wheel"),
        pins=[
            Pin("nvidia-cudnn-cu12", "9.10.2.21", "torch 2.9.1", "9.13.0.50"),
            Pin("torch", "2.8.0", "torchaudio 2.8.0", "2.9.1"),
        ],
    ),
    driver=Driver(
        module_version="530.30.02",
        libcuda_path="/usr/lib/libcuda.so.530.30.02",
        libcuda_version="530.30.02",
        api_level=12010,
        gpus=[Gpu(0, "NVIDIA A100", "u", 80 << 30, 1 << 30, "8.0", True)],
    ),
)


def flat(stack: LoadedStack, width: int = 80) -> str:
    return " ".join(render(stack, width).split())


def test_what_it_tells() -> None:
    text = flat(STACK)
    for said in (
        "pid 4242 torch 2.9.1+cu128 for CUDA 12.8 (wheel) Python 3.11.7 in /opt/conda/envs/training",
        "libcudnn.so.9 9.13.0.50 9.10.2.21 nvidia-cudnn-cu12",
        "not the nvidia-cudnn-cu12 that torch 2.9.1 demands",
        "/usr/local/cuda-12.4/lib64 system, by LD_LIBRARY_PATH",
        "libcudnn.so.9.1.0 9.1.0 its file name one of 2 loaded libcudnn",
        "nvidia-cudnn-cu12 9.10.2.21: 9.13.0.50 is installed",
        "(torchaudio 2.8.0) torch 2.8.0: 2.9.1 is installed",
        "kernel module: 530.30.02 libcuda: /usr/lib/libcuda.so.530.30.02 530.30.02 reports CUDA: 12.1",
        "GPU 0: NVIDIA A100, compute capability 8.0, split into instances (MIG), 1024 of 81920 MiB in use",
    ):
        assert said in text, said
    assert "Files" not in text and "Not seen" not in text


def test_a_version_as_demanded() -> None:
    same = msgspec.structs.replace(CUDNN, version="9.10.2.21")
    text = flat(LoadedStack(libraries=[same], software=Software(pins=[Pin("nvidia-cudnn-cu12", "1", "torch 2", "1")])))
    assert "9.10.2.21 the same nvidia-cudnn-cu12" in text and "not the nvidia" not in text
    assert "the one package that is demanded in one version is installed in it" in text


def test_damaged_files_and_missing_names() -> None:
    broken = [BrokenFile("torch", "2.9.1", f"{SITE}/torch/lib/f{n}.so", "missing") for n in range(40)]
    software = Software(
        verified=True,
        checked=100,
        broken=broken,
        missing=[MissingSymbols("/x/flash.so", "flash-attn", "2.8.3", ["_ZN3c105ErrorC2Ev"], 7, "pre-cxx11")],
    )
    text = flat(LoadedStack(software=software))
    assert f"torch 2.9.1: {SITE}/torch/lib/f0.so: missing" in text
    assert "and 10 more 60 of 100 files are as installed" in text
    assert (
        "/x/flash.so (flash-attn 2.8.3): 7 that this torch does not export, built with the pre-cxx11 string ABI" in text
    )
    unverified = msgspec.structs.replace(software, verified=False)
    assert "as installed" not in flat(LoadedStack(software=unverified))


def test_extensions_are_counted_and_told_when_they_changed() -> None:
    one = Library(path="/s/a.abi3.so", kind="extension", package="a")
    other = Library(path="/s/b.abi3.so", kind="extension", package="b", drifted="deleted after it was loaded")
    text = flat(LoadedStack(libraries=[one, other]))
    assert "and 2 extension modules of 2 packages /s/b.abi3.so" in text and "deleted after it was loaded" in text
    assert "a.abi3.so" not in text
    alone = msgspec.structs.replace(one, package=None)
    assert "and 1 extension module of no package that is known" in flat(LoadedStack(libraries=[alone]))


@pytest.mark.parametrize("width", [1, 60, 80, 100, 300])
@pytest.mark.parametrize("name", ["x" * 400, "深" * 120, "a b " * 60, "\x1b[2J" * 50, "é" * 200, "\u202e\n" * 30])
def test_no_line_is_wider_than_the_screen(width: int, name: str) -> None:
    odd = library(f"{name}.so.9", path=f"/{name}/{name}.so.9", version=name, pin=name, pinned_by=name, package=name)
    stack = msgspec.structs.replace(
        STACK,
        record=f"/{name}",
        libraries=[odd, CUDNN, msgspec.structs.replace(odd, kind="extension", drifted=name)],
        software=msgspec.structs.replace(
            STACK.software,
            prefix=name,
            site_packages=[name],
            pins=[Pin(name, name, name, name)],
            verified=True,
            broken=[BrokenFile(name, name, name, name)],
            missing=[MissingSymbols(name, name, name, [name], 1)],
        ),
        driver=Driver(note=name, gpus=[Gpu(name=name)]),
        gaps=[Gap(name, name, name)],
    )
    text = render(stack, width)
    for line in text.splitlines():
        assert cell_len(line) <= max(60, min(width, 118)), line
        assert line.isprintable()


def test_nothing_known() -> None:
    assert render(LoadedStack(), 80) == "pid unknown\n"


def test_a_process_without_any_of_them_is_said_to_have_none() -> None:
    assert "no CUDA, torch, OpenMP or C++ runtime library is loaded" in flat(LoadedStack(pid=7))
    assert "is loaded" not in flat(LoadedStack(pid=7, record="x.crash.json"))


def test_what_is_installed_and_not_loaded_is_told_apart_from_what_is_missing() -> None:
    pins = [Pin("nvidia-nccl-cu12", "2.27.5", "torch 2.9.1", there) for there in (None, "2.27.3")]
    text = flat(LoadedStack(software=Software(pins=pins)))
    assert "2.27.5: it is not installed nvidia" in text and "2.27.3 is installed, not loaded" in text


def test_json_is_the_value() -> None:
    assert msgspec.json.decode(json.render(STACK), type=LoadedStack) == STACK
