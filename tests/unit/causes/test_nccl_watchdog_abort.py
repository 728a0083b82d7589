from __future__ import annotations

import pytest

from ftforensics.causes.registry import find_cause
from ftforensics.diagnose.verdict import weigh
from ftforensics.model.crash import CxxException
from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.death import DeathBuilder, ended, killed
from synth.software import TORCH_CUDA, SoftwareBuilder, ask_record, ask_text, crashed, stack_text

ID = "nccl-watchdog-abort"
TIMEOUT = stack_text("nccl-watchdog", symbol="ALLREDUCE", seconds=600.0, number=20)


def aborted() -> SoftwareBuilder:
    stack = crashed().died("SIGABRT", Mechanism.ABORT_CXX_EXCEPTION, None).frame("abort", "/lib/libc.so.6")
    return stack.frame("std::terminate()", "/lib/libstdc++.so.6")


@pytest.mark.parametrize(
    "stack",
    [
        aborted().frame("c10d::ProcessGroupNCCL::ncclCommWatchdog()", TORCH_CUDA),
        aborted().frame("c10d::ProcessGroupNCCL::HeartbeatMonitor::runLoop()", TORCH_CUDA),
        aborted().process(thread_name="pt_nccl_watchdg"),
    ],
)
def test_fires(stack: SoftwareBuilder) -> None:
    (finding,) = ask_record(ID, stack)
    assert finding.confidence is Confidence.LIKELY and "the culprit may be another rank" in finding.summary
    assert any(one.settles for one in finding.remedies) and finding.unknown


def test_fires_with_the_collective_that_timed_out() -> None:
    (finding,) = ask_text(ID, TIMEOUT, death=ended(6))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == (
        "NCCL's watchdog ended the process: another rank did not come to a collective (allreduce) within 600 s."
    )


@pytest.mark.parametrize(
    "stack",
    [
        aborted().frame("c10d::ProcessGroupNCCL::allreduce", TORCH_CUDA),
        crashed().frame("c10d::ProcessGroupNCCL::ncclCommWatchdog()", TORCH_CUDA),  # a fault, no abort
        aborted().died("SIGABRT", Mechanism.SENT_BY_PROCESS, None).process(thread_name="pt_nccl_watchdg"),
        aborted().process(thread_name="pt_main_thread"),
        aborted().frame("c10d::ProcessGroupNCCL::ncclCommWatchdog()", TORCH_CUDA, trust="scan"),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


@pytest.mark.parametrize("death", [ended(11), killed(), ended(15), ended(code=1)])
def test_near_miss_of_another_end_stays_quiet(death: DeathBuilder) -> None:
    assert ask_text(ID, TIMEOUT, death=death) == []


def test_missing_evidence_weakens() -> None:
    """A CUDA error that the watchdog only passes on."""
    taken_down = stack_text("nccl-watchdog", number=20)
    (finding,) = ask_text(ID, stack_text("cuda-error", code=36, number=5), taken_down, death=ended(6))
    assert finding.confidence is Confidence.POSSIBLE and finding.against
    thrown = ended(6).text("cxx-exception", "CUDA error: an illegal memory access was encountered", "c10::Error")
    (finding,) = ask_text(ID, taken_down, death=thrown)
    assert finding.confidence is Confidence.POSSIBLE and finding.against
    (finding,) = ask_text(ID, taken_down, death=ended(6))
    assert finding.confidence is Confidence.LIKELY and "(" not in finding.summary
    passed_on = aborted().process(thread_name="pt_nccl_watchdg")
    passed_on = passed_on.set(cxx_exception=CxxException("N3c105ErrorE", "CUDA error: an illegal memory access"))
    (finding,) = ask_record(ID, passed_on)
    assert finding.confidence is Confidence.POSSIBLE and finding.against


def test_the_records_own_exception_names_the_collective() -> None:
    what = (
        "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: [Rank 1] "
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600020 milliseconds before timing out."
    )
    stack = aborted().set(cxx_exception=CxxException("N3c1016DistBackendErrorE", what))
    (finding,) = ask_record(ID, stack.process(thread_name="pt_nccl_watchdg"))
    assert finding.confidence is Confidence.LIKELY and "(allreduce) within 600 s" in finding.summary


def test_it_is_no_rival_of_the_exception_that_it_threw() -> None:
    death = ended(6).text("cxx-exception", "Watchdog caught collective operation timeout", "c10::DistBackendError")
    death = death.set(stack_texts=[TIMEOUT])
    findings = []
    for name in (ID, "uncaught-cxx-exception"):
        cause = find_cause(name)
        assert cause is not None and cause.check_death is not None
        findings += [(cause, one) for one in cause.check_death(death.death)]
    verdict = weigh(death.death, findings).verdict
    assert (verdict.cause, verdict.confidence) == (ID, "likely")
