"""All tables, for the command that prints them and the test that loads each one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ftforensics.facts import cuda_errors, driver, gpus, known_bad, torch, xid
from ftforensics.facts.tables import Table, read_table


class Listed(msgspec.Struct, frozen=True):
    """name: what a person types; file: in facts/data, without ".tsv"; about: one phrase; load: reads it with every
    check, raises FactsError; follows: one sentence that follows from the rows, None where none does."""

    name: str
    file: str
    about: str
    load: Callable[[], object]
    follows: Callable[[], str] | None = None

    def table(self) -> Table:
        self.load()
        return read_table(self.file)


def _last_of_variants() -> str:
    return "The last torch of each variant: " + ", ".join(f"{one.variant} {one.torch}" for one in torch.last_wheels())


CATALOGUE = (
    Listed("drivers", "cuda_drivers", "the oldest driver for each CUDA toolkit", driver.toolkit_drivers),
    Listed("branches", "driver_branches", "the CUDA version that each driver branch reports", driver.branches),
    Listed("floors", "cuda_floors", "where minor-version compatibility begins", driver.floors),
    Listed(
        "torch", "torch_wheels", "wheels: CUDA, Pythons, GPU code, cuDNN, NCCL, Triton", torch.wheels, _last_of_variants
    ),
    Listed("companions", "torch_companions", "the torchvision and torchaudio of each torch", torch.wheels),
    Listed("known-bad", "known_bad", "releases that are known to crash", known_bad.known_bad),
    Listed("xid", "xid", "what the driver's Xid numbers mean", xid.xid_meanings),
    Listed("cuda-errors", "cuda_errors", "CUDA errors that speak about the installation", cuda_errors.cuda_errors),
    Listed("architectures", "architectures", "what still serves each GPU architecture", gpus.architectures),
    Listed("gpus", "gpus", "GPU models and their compute capability", gpus.models),
)
