from __future__ import annotations

import pytest

from ftforensics.model.diagnosis import Confidence
from ftforensics.model.mechanism import Mechanism
from synth.software import CUDART, SITE, TORCH, TORCH_CUDA, SoftwareBuilder, ask_record, crashed

ID = "import-order-clash"
DECORD = f"{SITE}/decord/libdecord.so"
CUDA_INIT = f"{SITE}/torch/cuda/__init__.py"


def decord_first() -> SoftwareBuilder:
    return crashed().module(DECORD).module(f"{TORCH}/libtorch_cpu.so").module(TORCH_CUDA)


def test_fires_at_the_first_use_of_cuda() -> None:
    stack = (
        decord_first()
        .frame("cudaGetDeviceCount", CUDART)
        .frame("THCPModule_initExtension", f"{TORCH}/libtorch_python.so")
    )
    (finding,) = ask_record(ID, stack.python(CUDA_INIT, 372, "_lazy_init").python("train.py", 9, "main"))
    assert finding.confidence is Confidence.LIKELY
    assert finding.summary == "SIGSEGV at the use of CUDA, with decord loaded before torch."
    assert any("loaded before it" in one.text for one in finding.supports)
    assert finding.remedies[0].command == "python -c 'import torch; torch.cuda.init()'" and finding.remedies[-1].settles


@pytest.mark.parametrize(
    "stack",
    [
        crashed().module(TORCH_CUDA).module(DECORD).frame("f", CUDART),  # torch came first
        decord_first().frame("step", "/home/me/own.so"),
        crashed().module(TORCH_CUDA).frame("f", CUDART),
        crashed().module(DECORD).frame("f", DECORD),
        decord_first().aborted().frame("f", CUDART),
        decord_first().died(mechanism=Mechanism.SENT_BY_PROCESS),
        decord_first().set(modules=None),
    ],
)
def test_near_miss_stays_quiet(stack: SoftwareBuilder) -> None:
    assert ask_record(ID, stack) == []


def test_tensorflow_beside_torch_is_possible_only_with_a_frame_in_it() -> None:
    tensorflow = f"{SITE}/tensorflow/libtensorflow_framework.so.2"
    stack = crashed().module(tensorflow).module(TORCH_CUDA)
    (finding,) = ask_record(ID, stack.frame("google::protobuf::Message::~Message", tensorflow))
    assert finding.confidence is Confidence.POSSIBLE
    assert ask_record(ID, stack.frame("at::native::add", TORCH_CUDA)) == []


def test_missing_evidence_weakens() -> None:
    (later,) = ask_record(ID, decord_first().frame("cudaMalloc", CUDART))
    assert later.confidence is Confidence.POSSIBLE and later.against
    (unseen,) = ask_record(ID, decord_first())
    assert unseen.confidence is Confidence.POSSIBLE and unseen.unknown
