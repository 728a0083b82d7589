from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.software import TORCH_CUDA, SoftwareBuilder, ask_record, crashed

ID = "known-bad-version"
LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06"


def numba(version: str = "0.61.2", driver: str | None = "580.65.06") -> SoftwareBuilder:
    return crashed().package("numba", version).on_driver(driver, 13000, LIBCUDA)


def test_fires_with_the_reports_frame() -> None:
    stack = numba().frame("cuCtxGetDevice_v2", LIBCUDA).frame("ffi_call", "/venv/lib/libffi.so.8")
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.LIKELY and finding.against == []
    assert "numba 0.61.2 is known for it" in finding.summary
    assert finding.remedies[0].command == 'pip install "numba>=0.63"'
    assert finding.remedies[-1].settles


def test_fires_where_the_library_is_the_rule() -> None:
    stack = (
        crashed().package("pyarrow", "5.0.0").frame("f", "/venv/lib/python3.11/site-packages/pyarrow/libarrow.so.500")
    )
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.LIKELY


def test_fires_by_the_packages_of_mapped_libraries() -> None:
    stack = crashed().set(software=None).wheel("/x/libarrow.so.500", "libarrow", "pyarrow", "5.0.0")
    (finding,) = ask_record(ID, stack.frame("f", "/x/libarrow.so.500"))
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "stack",
    [
        numba("0.63.0").frame("cuCtxGetDevice_v2", LIBCUDA),
        numba(driver="570.124.06").frame("cuCtxGetDevice_v2", LIBCUDA),
        numba(driver=None).frame("cuCtxGetDevice_v2", LIBCUDA),
        numba("no version\x1b[0m").frame("cuCtxGetDevice_v2", LIBCUDA),
        crashed().package("pyarrow", "17.0.0").frame("f", "/x/libarrow.so"),  # bad on aarch64 only
        numba().died(mechanism=Mechanism.KILLED),
        numba().frame("at::native::add", TORCH_CUDA),  # the whole stack is known, and it is elsewhere
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


def test_missing_evidence_weakens() -> None:
    (elsewhere,) = ask_record(ID, numba().frame(None, TORCH_CUDA))
    assert elsewhere.confidence is Confidence.POSSIBLE and elsewhere.against
    (unseen,) = ask_record(ID, numba())
    assert unseen.confidence is Confidence.POSSIBLE and unseen.unknown
    guessed = numba().frame("cuCtxGetDevice_v2", LIBCUDA, trust="scan").frame(None, LIBCUDA, trust="scan")
    (scanned,) = ask_record(ID, guessed)
    assert scanned.confidence is Confidence.POSSIBLE
    unsure = crashed().package("triton", "3.7.1").python("/x/triton/backends/nvidia/driver.py", 600, "launcher")
    (reported,) = ask_record(ID, unsure)
    assert reported.confidence is Confidence.POSSIBLE


def test_a_line_of_python_shows_it_too() -> None:
    stack = numba().frame(None, LIBCUDA).python("/x/numba/cuda/driver.py", 300, "cuCtxGetDevice_v2")
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.LIKELY
    assert any(one.text.endswith("in cuCtxGetDevice_v2") for one in finding.supports)
    assert any(one.text == "driver 580.65.06 is in >=580" for one in finding.supports)
    (other,) = ask_record(ID, numba().frame(None, LIBCUDA).python("train.py", 3, "main"))
    assert other.confidence is Confidence.POSSIBLE


def test_a_hostile_version_is_no_version() -> None:
    assert ask_record(ID, numba("9" * 5000).frame("cuCtxGetDevice_v2", LIBCUDA)) == []
