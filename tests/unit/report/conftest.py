"""A diagnosis built by hand: report must not need anything below it to be tested."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ftforensics.model.basics import Address, Cite, Gap
from ftforensics.model.diagnosis import (
    Confidence,
    Diagnosis,
    Event,
    Exit,
    Finding,
    Frame,
    ProcessReport,
    Remedy,
    SignalHandler,
    SignalOwners,
    ThreadStack,
    Verdict,
    Why,
)

# What somebody who means harm would put into a thread name, an argument or a path.
HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "c1": "\x9b31m",
    "clear": "\x1b[2J\x1b[H",
    "forged line": "x\nVerdict: nothing happened\r",
    "bidi": "\u202egnp.exe\u2066",
    "markup": "[red]red[/red] [link=http://x]y[/link]",
    "html": "<script>alert(1)</script>",
    "surrogate": "caf\udce9",
    "separator": "a\u2028b\u2029c",
    "zero width": "a\u200bb\ufeff",
    "null": "a\x00b",
    "delete": "abc\x08\x08\x7f",
    "marks": "a" + "\u0301" * 60,
    "tag": "a\U000e0041b",
}
DANGEROUS = [chr(number) for number in (*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0))] + list(
    "\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\udce9\U000e0041"
)

STACK = [
    Frame(
        function="at::native::cudnn_convolution(at::Tensor const&, c10::ArrayRef<long>)",
        library="/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so",
        offset=Address(0x1B2F2),
        trust="context",
    ),
    Frame(library="/usr/local/cuda-11.8/lib64/libcudnn.so.8", offset=Address(0xC35C), trust="scan"),
    Frame(function="forward", file="/venv/lib/python3.11/site-packages/torch/nn/modules/conv.py", line=41, python=True),
    Frame(function="train_step", file="/work/train.py", line=88, python=True),
]


def build(text: str = "plain", **changed: object) -> Diagnosis:
    """A failed run with everything in it; `text` stands wherever a record or a log could have put its own words."""
    cite = Cite("crash", f"signal.address {text}", f"address 0x28 lies in no mapping {text}")
    values: dict[str, object] = {
        "verdict": Verdict(
            outcome="failed",
            cause="native-fault",
            kind="native-fault",
            confidence="likely",
            summary=f"Read through a null pointer in libtorch_cuda.so {text}.",
            mechanism="null-read",
            why=[Why("memory-leak", Confidence.POSSIBLE, [cite])],
        ),
        "hypotheses": [
            Finding("native-fault", Confidence.LIKELY, f"it is {text}", supports=[cite], against=[], unknown=[]),
            Finding("thread-stack-overflow", Confidence.RULED_OUT, f"sp is far away {text}", against=[cite]),
            Finding("heap-corruption", Confidence.POSSIBLE, f"free() is on the stack {text}", supports=[cite]),
        ],
        "processes": [
            ProcessReport(
                host=f"gpu-07{text}",
                pid=4242,
                rank=0,
                worker_of=None,
                exit=Exit(signal="SIGSEGV"),
                role="root",
                phase=f"save {text}",
                step=500,
                time=1764434400.5,
                stack=[*STACK, Frame(function=f"f {text}", file=f"/work/{text}.py", line=1, python=True)],
                threads=[ThreadStack(tid=7, name=f"worker {text}", crashed=False, frames=STACK[:2])],
                record="run/gpu-07-rank0.crash.json",
                handlers=[
                    SignalOwners(
                        "SIGSEGV",
                        [
                            SignalHandler("ours"),
                            SignalHandler("library", f"steal{text}()", f"/x/libtheft{text}.so", taken_back=True),
                            SignalHandler("default"),
                        ],
                    )
                ],
            ),
            ProcessReport(
                host="gpu-07",
                pid=4243,
                rank=1,
                worker_of=None,
                exit=Exit(signal="SIGTERM"),
                role="collateral",
                time=1764434402.4,
            ),
        ],
        "remedies": [
            Remedy(f"Unset LD_LIBRARY_PATH {text}", "unset LD_LIBRARY_PATH"),
            Remedy(f"Ask {text}"),
            Remedy(f"Run {text}", settles=True),
        ],
        "gaps": [
            Gap("kmsg", f"not readable {text}"),
            Gap("ptrace", f"refused {text}", f"--cap-add SYS_PTRACE {text}"),
        ],
        "timeline": [Event(1764434400.5, f"SIGSEGV {text}", cite)],
    }
    return Diagnosis(**{**values, **changed})  # type: ignore[arg-type]


@pytest.fixture
def diagnosis() -> Diagnosis:
    return build()


@pytest.fixture
def make_diagnosis() -> Callable[..., Diagnosis]:
    return build


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE.keys())
def hostile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dangerous() -> list[str]:
    """Characters that must reach no terminal; the line feed is ours to use."""
    return DANGEROUS


@pytest.fixture
def undecided() -> Diagnosis:
    return build(
        verdict=Verdict("failed", None, None, "undecided", "Killed by SIGKILL; who sent it is not known.", "killed"),
        remedies=[],
        hypotheses=[Finding("cgroup-oom", Confidence.POSSIBLE, "usage was 91 % of the limit")],
    )
