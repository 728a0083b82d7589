"""Lightning's DDP on two CPU processes; rank LOCAL_RANK of DEATHS dies at its step."""

from __future__ import annotations

import os

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset
from train import DEATHS, tell

RANK, KIND, STEP = os.environ["DEATHS"].split(":")


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        if self.global_rank == int(RANK) and index == int(STEP):
            os.environ["RANK"] = RANK
            tell(KIND)
            DEATHS[KIND]()
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(Model(), DataLoader(TensorDataset(torch.rand(256, 16)), batch_size=8))  # fmt: skip
