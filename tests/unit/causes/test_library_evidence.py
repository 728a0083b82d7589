"""Questions that the causes of the CUDA stack share: each has one answer, whoever asks."""

from __future__ import annotations

import msgspec
import pytest

from ftforensics.causes.cuda_stack import gave_up, is_cuda_library, is_fault
from ftforensics.causes.ending import ended_badly, ended_from_outside, shortly_before
from ftforensics.causes.library_evidence import is_bad_pointer, own_fault, signal_name_of
from ftforensics.causes.library_set import is_cuda_or_torch
from ftforensics.model.crash import Signal
from ftforensics.model.mechanism import Mechanism
from synth.death import DeathBuilder, ended
from synth.software import SoftwareBuilder, cu128


def only_a_number(number: int) -> SoftwareBuilder:
    """A record whose signal has no name; how it came is not known."""
    crash = cu128().died(mechanism=None).crash
    record = msgspec.structs.replace(crash.record, signal=Signal(number))
    return SoftwareBuilder(msgspec.structs.replace(crash, record=record))


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    abort, fault, asked = (only_a_number(number).crash for number in (6, 11, 15))
    assert (gave_up(abort), is_bad_pointer(abort), signal_name_of(abort)) == (True, False, "SIGABRT")
    assert (gave_up(fault), is_bad_pointer(fault), signal_name_of(fault)) == (False, True, "SIGSEGV")
    assert not is_fault(asked) and not own_fault(asked)
    assert signal_name_of(cu128().set(signal=None).crash) == "A crash"


@pytest.mark.parametrize("mechanism", [Mechanism.BUS_TRUNCATED_FILE, Mechanism.BUS_SHM_FULL, Mechanism.BUS_HARDWARE])
def test_a_file_or_the_hardware_is_a_fault_and_no_wrong_code(mechanism: Mechanism) -> None:
    crash = cu128().died("SIGBUS", mechanism).crash
    assert is_fault(crash) and not own_fault(crash)


@pytest.mark.parametrize(
    ("path", "cuda", "either"),
    [
        ("/x/libcuda.so.1", True, True),
        ("/x/libcudnn_ops-74a4c495.so.9.1.0", True, True),
        ("/x/libnvidia-ptxjitcompiler.so.570.1", True, True),
        ("/x/libtorch_cuda_linalg.so", True, True),
        ("/x/libc10_cuda.so", True, True),
        ("/x/libc10.so", False, True),
        ("/x/libtorch_cpu.so", False, True),
        ("/x/libnvinfer.so.10", False, True),
        ("/usr/lib/libcurl.so.4", False, False),
        ("/usr/lib/libnvme.so.1", False, False),
        ("/usr/lib/libstdc++.so.6", False, False),
    ],
)
def test_what_is_a_library_of_cuda(path: str, cuda: bool, either: bool) -> None:
    assert (is_cuda_library(path), is_cuda_or_torch(path)) == (cuda, either)


@pytest.mark.parametrize(
    ("death", "badly", "outside"),
    [
        (ended(code=0), False, False),
        (ended(code=1), True, False),
        (ended(11), True, False),
        (ended(code=139), True, False),
        (ended(15), True, True),
        (ended(code=137), True, True),
        (ended(code=1).set(code=None), True, False),
        (ended(code=1).set(alive=True, code=None), False, False),
    ],
)
def test_how_it_ended(death: DeathBuilder, badly: bool, outside: bool) -> None:
    assert (ended_badly(death.death), ended_from_outside(death.death)) == (badly, outside)


def test_shortly_before_the_end() -> None:
    assert [shortly_before(before) for before in (None, 0.0, -1.5, 119.0, 121.0, -3.0)] == [
        None, True, True, True, False, False,
    ]  # fmt: skip
