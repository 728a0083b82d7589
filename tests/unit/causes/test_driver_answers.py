"""All causes together, on a torch for CUDA 12.8 or 13.0 and a driver that does not fit: which becomes the verdict."""

from __future__ import annotations

import pytest

from ftforensics.causes.registry import Cause, causes
from ftforensics.diagnose.verdict import Weighed, weigh
from ftforensics.model.death import Death
from ftforensics.model.diagnosis import Confidence, Finding
from synth.death import DeathBuilder, ended, killed
from synth.gpu_stack import (
    COMPAT,
    CTYPES,
    TOO_OLD,
    driver_note,
    error,
    in_nccl,
    null_call,
    null_write,
    on_driver,
    printed,
    recorded,
    thrown,
    xid,
)
from synth.software import NCCL, SoftwareBuilder

NEWER = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"
STUB = "/usr/local/cuda/lib64/stubs/libcuda.so"


def judge(builder: DeathBuilder) -> Weighed:
    """As the engine does: a cause that looked at both the record and the rest speaks once, with the stronger answer."""
    death: Death = builder.death
    found: list[tuple[Cause, Finding]] = []
    order = list(Confidence)
    for cause in causes():
        said = list(cause.check(death.crash)) if cause.check is not None and death.crash is not None else []
        said += list(cause.check_death(death)) if cause.check_death is not None else []
        if said:
            found.append((cause, min(said, key=lambda one: order.index(one.confidence))))
    return weigh(death, found)


def left(builder: SoftwareBuilder, signal: int = 11) -> DeathBuilder:
    """It died by the signal and left the record."""
    death = recorded(ended(signal), builder)
    return death.set(reading=builder.crash.reading)


@pytest.mark.parametrize(
    ("death", "cause", "confidence"),
    [
        # The driver within the window: only a missing function that a CUDA library called makes it the verdict.
        (left(in_nccl(on_driver())), "driver-minor-window", "likely"),
        (left(null_write(on_driver())), "native-fault", "likely"),
        (left(null_call(on_driver(), ("_call_function_pointer", CTYPES))), "native-fault", "likely"),
        (left(on_driver().frame("ncclGroupEnd", NCCL)), "native-fault", "likely"),
        (printed(ended(code=1), error(222)), "driver-minor-window", "likely"),
        # Of another major version.
        (printed(ended(code=1), error(35, TOO_OLD, version=12010)), "driver-too-old", "likely"),
        (printed(ended(11), error(35, TOO_OLD, "warning", version=12010)), "native-fault", "likely"),
        (printed(ended(code=1), error(35, version=0)), "driver-library-missing", "likely"),
        (left(null_write(on_driver().torch("2.11.0", "13.0"), "/usr/lib/libx.so")), "native-fault", "likely"),
        # What makes the driver unusable comes before its age.
        (left(in_nccl(on_driver("530.30.02", 12010, NEWER))), "driver-half-upgraded", "likely"),
        (left(in_nccl(on_driver("580.65.06", None, COMPAT))), "compat-driver-mismatch", "likely"),
        (left(in_nccl(on_driver(None, None, STUB))), "stub-driver", "likely"),
        (driver_note(ended(code=1)), "driver-half-upgraded", "likely"),
        (printed(ended(code=1), error(803)), "compat-driver-mismatch", "likely"),
        (driver_note(printed(ended(code=1), error(803))), "driver-half-upgraded", "likely"),
        (printed(ended(code=1), error(802)), "fabric-manager-down", "likely"),
        (printed(ended(code=1), error(209)), "gpu-architecture-unsupported", "likely"),
        # The text of an exception says more than that nobody caught it.
        (
            left(thrown(on_driver(), "CUDA error: PTX JIT compiler library not found"), 6),
            "driver-library-missing",
            None,
        ),
        (xid(ended(6), 31).text("cxx-exception", "CUDA error", "c10::Error"), "gpu-xid", "likely"),
        (xid(ended(code=1), 79), "gpu-xid", "likely"),
        (xid(killed(), 45), "killed-unknown", "undecided"),
        (xid(killed().oom("memcg"), 79), "cgroup-oom", "proven"),
        (printed(killed().oom("memcg"), error(35, TOO_OLD, version=12010)), "cgroup-oom", "proven"),
    ],
    ids=range(23),
)
def test_the_answer(death: DeathBuilder, cause: str, confidence: str | None) -> None:
    verdict = judge(death).verdict
    assert verdict.cause == cause, verdict
    assert confidence is None or verdict.confidence == confidence


@pytest.mark.parametrize("code", [35, 209, 222, 803])
def test_who_gives_up_over_something_else_had_gone_on_after_the_drivers_error(code: int) -> None:
    death = printed(ended(6).text("cxx-exception", "bad shard", "std::runtime_error"), error(code, form="line"))
    weighed = judge(death)
    assert weighed.verdict.cause == "uncaught-cxx-exception"
    assert weighed.hypotheses
    for other in weighed.hypotheses:
        assert other.confidence is Confidence.POSSIBLE and "bad shard" in other.against[0].text


def test_two_copies_of_a_library_come_before_the_driver() -> None:
    for crash in (in_nccl(on_driver()), null_write(on_driver())):
        builder = crash.system("/usr/local/cuda-12.1/lib64/libcudnn.so.9.1.0", "libcudnn", "9.1.0")
        weighed = judge(left(builder))
        driver = next(one for one in weighed.hypotheses if one.cause == "driver-minor-window")
        assert driver.confidence is Confidence.POSSIBLE


def test_nothing_of_the_driver_is_ever_proven() -> None:
    everything = left(in_nccl(on_driver("530.30.02", 12010, NEWER)))
    for code in (34, 35, 36, 209, 221, 222, 802, 803, 804):
        everything = printed(everything, error(code))
    everything = driver_note(xid(xid(everything, 31), 79))
    weighed = judge(everything)
    listed = [*weighed.hypotheses, *([weighed.best] if weighed.best else [])]
    assert len(listed) > 5 and all(one.confidence is not Confidence.PROVEN for one in listed)
