from __future__ import annotations

import shlex

import pytest

from ftforensics.causes.driver_fit import (
    Fit,
    compat_trouble,
    driver_fit,
    gpus_without_code,
    half_upgraded,
    opened,
    settling_run,
    stub_loaded,
    torch_for_driver,
    uses_cuda,
)
from ftforensics.model.crash import Driver, Gpu, Library
from ftforensics.model.software import Software, TorchBuild

# The branches of 450 to 615 with a driver of each, and the CUDA that it offers.
BRANCHES = {
    "450.80.02": "11.0", "455.32": "11.1", "460.32.03": "11.2", "465.19.01": "11.3", "470.82.01": "11.4",
    "495.29.05": "11.5", "510.47.03": "11.6", "515.48.07": "11.7", "520.61.05": "11.8", "525.60.13": "12.0",
    "530.30.02": "12.1", "535.104.05": "12.2", "545.23.08": "12.3", "550.54.15": "12.4", "555.42.06": "12.5",
    "560.35.05": "12.6", "565.57.01": "12.7", "570.124.06": "12.8", "575.57.08": "12.9", "580.65.06": "13.0",
    "590.48.01": "13.1", "595.71.05": "13.2", "610.43.02": "13.3", "615.71.09": "13.4",
}  # fmt: skip


def torch_of(cuda: str | None) -> Software:
    return Software(python="3.11.7", machine="x86_64", torch=TorchBuild("2.9.1", cuda, origin="wheel"))


def expected(level: str, cuda: str) -> Fit:
    have, want = (tuple(map(int, one.split("."))) for one in (level, cuda))
    return Fit.EXACT if have >= want else Fit.WINDOW if have[0] == want[0] else Fit.TOO_OLD


@pytest.mark.parametrize("cuda", ["11.8", "12.1", "12.6", "12.8", "13.0", "13.2"])
@pytest.mark.parametrize("driver", BRANCHES)
def test_every_branch_with_every_cuda(driver: str, cuda: str) -> None:
    fit = driver_fit(torch_of(cuda), Driver(driver, f"/usr/lib/libcuda.so.{driver}", driver))
    assert (fit.level, fit.fit) == (BRANCHES[driver], expected(BRANCHES[driver], cuda))
    assert fit.supports and not fit.unknown and not fit.compat


@pytest.mark.parametrize(
    ("driver", "cuda", "fit"),
    [
        ("525.60.12", "12.1", Fit.TOO_OLD),
        ("525.60.13", "12.1", Fit.WINDOW),
        ("450.66", "11.8", Fit.TOO_OLD),
        ("440.33", "10.2", Fit.EXACT),
        ("418.39", "10.2", Fit.TOO_OLD),
        ("340.108", "12.1", Fit.TOO_OLD),  # older than every table
        ("700.10.01", "13.2", Fit.EXACT),  # newer than every table
        ("700.10.01", "14.2", Fit.UNKNOWN),
    ],
)
def test_the_edges(driver: str, cuda: str, fit: Fit) -> None:
    assert driver_fit(torch_of(cuda), Driver(driver)).fit is fit


@pytest.mark.parametrize(
    "driver",
    [
        None,
        Driver(),
        Driver("abc", api_level=0),
        Driver(""),
        Driver("1" * 10_000, api_level=10**9),
        Driver("５３０.30.02"),  # digits, but not ours
        Driver("530.30.02; rm -rf", api_level=-5),
    ],
    ids=range(7),
)
def test_what_is_no_version_is_not_there(driver: Driver | None) -> None:
    fit = driver_fit(torch_of("12.8"), driver)
    assert fit.fit is Fit.UNKNOWN and any(gap.source == "driver" for gap in fit.unknown)
    torch_for_driver(torch_of("12.8"), driver)
    assert half_upgraded(driver) == []


@pytest.mark.parametrize("cuda", [None, "", "abc", "12", "12.", "9" * 5000, "12.8; x"])
def test_a_torch_without_a_readable_cuda(cuda: str | None) -> None:
    driver = Driver("530.30.02", api_level=12010, gpus=[Gpu(0, capability="8.0")])
    fit = driver_fit(torch_of(cuda), driver)
    assert fit.fit is Fit.UNKNOWN and fit.unknown and gpus_without_code(torch_of(cuda), driver) == []


def test_libcuda_tells_the_level_where_the_module_is_not_seen() -> None:
    wsl = Driver(None, "/usr/lib/wsl/lib/libcuda.so.1.1", None, 12010, "12.531.14")
    fit = driver_fit(torch_of("12.8"), wsl)
    assert (fit.fit, fit.level, fit.driver) == (Fit.WINDOW, "12.1", None)
    assert half_upgraded(wsl) == []
    remedies = torch_for_driver(torch_of("12.8"), wsl)
    assert "torch==2.5.1" in (remedies[0].command or "")
    # Windows counts its drivers in another way.
    assert not any("570.26" in remedy.text for remedy in remedies) and any("Windows" in one.text for one in remedies)


def test_a_package_for_forward_compatibility_raises_the_level() -> None:
    compat = "/usr/local/cuda-12.8/compat/libcuda.so.570.124.06"
    raised = driver_fit(torch_of("12.8"), Driver("530.30.02", compat, "570.124.06", 12080))
    assert (raised.fit, raised.bare, raised.level, raised.compat) == (Fit.EXACT, Fit.WINDOW, "12.8", True)
    # Also a copy in a folder of another name, as nvidia-smi's "CUDA Version" shows it.
    copied = driver_fit(torch_of("12.8"), Driver("530.30.02", "/opt/x/libcuda.so.1", None, 12080))
    assert (copied.fit, copied.compat) == (Fit.EXACT, True)
    # Not where the two halves of a driver differ: that one does not work at all.
    torn = driver_fit(torch_of("12.8"), Driver("530.30.02", "/usr/lib/libcuda.so.570.124.06", "570.124.06", 12080))
    assert (torn.fit, torn.compat) == (Fit.WINDOW, False)


def test_of_a_libcuda_of_the_modules_own_version_its_word_counts() -> None:
    between = driver_fit(torch_of("13.2"), Driver("592.10.01", "/usr/lib/libcuda.so.592.10.01", "592.10.01", 13020))
    assert (between.fit, between.level, between.compat) == (Fit.EXACT, "13.2", False)


@pytest.mark.parametrize(
    ("folder", "compat"),
    [
        ("/usr/local/cuda-12.8/compat", True),
        ("/usr/local/cuda/compat-12.8", True),
        ("/opt/conda/cuda-compat", True),
        ("/opt/compatible", False),
        ("/opt/compat_old/lib", False),
    ],
)
def test_which_folders_are_a_compatibility_packages(folder: str, compat: bool) -> None:
    path = f"{folder}/libcuda.so.570.124.06"
    geforce = Gpu(0, "NVIDIA GeForce RTX 3090", capability="8.6")
    assert bool(compat_trouble(Driver("530.30.02", path, "570.124.06", 12080, gpus=[geforce]), None)) is compat
    # Of two versions outside such a folder one was left over by an upgrade.
    assert bool(half_upgraded(Driver("530.30.02", path, "570.124.06"))) is not compat


def test_a_compatibility_package_is_in_trouble_where_all_gpus_refuse_it() -> None:
    compat = "/usr/local/cuda-12.8/compat/libcuda.so.570.124.06"
    geforce, a100 = Gpu(0, "NVIDIA GeForce RTX 3090"), Gpu(1, "NVIDIA A100-SXM4-80GB")
    driver = Driver("530.30.02", compat, "570.124.06", 12080, gpus=[geforce])
    assert compat_trouble(driver, None)
    assert driver_fit(torch_of("12.8"), driver).fit is Fit.WINDOW  # it raises nothing
    assert not compat_trouble(Driver("530.30.02", compat, "570.124.06", 12080, gpus=[geforce, a100]), None)
    assert not compat_trouble(Driver("530.30.02", compat, "570.124.06", 12080, gpus=[Gpu(0, "NVIDIA X900")]), None)


def test_the_runtime_stands_in_for_torch() -> None:
    runtimes = [
        Library("/a/libcudart.so.12", "libcudart", version="12.1.105"),
        Library("/b/libcudart.so.12", "libcudart", version="12.8.90"),
    ]
    fit = driver_fit(None, Driver("530.30.02"), runtimes)
    assert (fit.fit, fit.cuda, fit.built) == (Fit.WINDOW, "12.8", "the CUDA runtime")
    torch = Library("/t/libtorch_cuda.so", "libtorch_cuda", version="2.11.0", cuda="13.0")
    fit = driver_fit(None, Driver("530.30.02"), [*runtimes, torch])
    assert (fit.fit, fit.built) == (Fit.TOO_OLD, "torch 2.11.0")


def test_a_stub_is_named_once() -> None:
    path = "/usr/local/cuda/lib64/stubs/libcuda.so"
    driver, libraries = Driver(None, path), [Library(path, "libcuda")]
    assert len(stub_loaded(driver, libraries)) == len(stub_loaded(driver, None)) == 1
    assert stub_loaded(None, None) == []


def test_whether_the_driver_was_opened() -> None:
    driver = Driver("530.30.02")
    assert not uses_cuda(driver, []) and not opened(driver, [])
    assert uses_cuda(None, None) and opened(None, None)  # nobody looked
    libcuda = [Library("/usr/lib/libcuda.so.1", "libcuda")]
    assert uses_cuda(driver, libcuda) and opened(driver, libcuda)
    # The runtime lets a driver go that it refuses.
    runtime = [Library("/a/libcudart.so.12", "libcudart")]
    assert uses_cuda(driver, runtime) and not opened(driver, runtime)


def test_without_a_torch_that_fits_the_same_one_is_tried_in_a_clean_environment() -> None:
    remedy = settling_run(torch_of("12.8"), None)
    assert remedy.settles and "pip install torch==2.9.1 " in (remedy.command or "")


def test_a_version_from_a_foreign_record_is_one_word_of_the_shell() -> None:
    hostile = Software(torch=TorchBuild("2.9.1$(touch /tmp/x);", cuda="12.8"))
    command = settling_run(hostile, Driver("340.108")).command or ""
    assert "torch==2.9.1$(touch /tmp/x);" in shlex.split(command)
