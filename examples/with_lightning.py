"""Your own LightningModule on GraphDataModule. Needs [train,datasets]: python examples/with_lightning.py"""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from loader import FusedSampler, GraphDataModule, MiniBatch
from loader.datasets import open_dataset
from loader.ops import aggregate_mean


class Classifier(LightningModule):
    """Two layers of GraphSAGE. Each joins a node's own features with the mean of its neighbors' features."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2 * num_features, 64), nn.Linear(2 * 64, num_classes)])
        self.right = self.seen = 0

    def forward(self, batch: MiniBatch) -> Tensor:
        x = batch.x
        for layer, block in zip(self.layers, batch.blocks, strict=True):
            x = layer(torch.cat([x[: block.num_dst], aggregate_mean(x, block)], dim=1))
            if block is not batch.blocks[-1]:
                x = x.relu()
        return x

    def training_step(self, batch: MiniBatch, index: int) -> Tensor:
        return cross_entropy(self(batch), batch.y)

    def test_step(self, batch: MiniBatch, index: int) -> None:
        self.right += int((self(batch).argmax(1) == batch.y).sum())
        self.seen += batch.y.numel()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    torch.manual_seed(0)
    data = open_dataset("digits")
    datamodule = GraphDataModule(data, FusedSampler(fanouts=[10, 5], seed=0), batch_size=128, seed=0)
    model = Classifier(data.num_features, data.num_classes)
    trainer = Trainer(max_epochs=5, accelerator="cpu", logger=False, limit_val_batches=0, enable_checkpointing=False)
    trainer.fit(model, datamodule=datamodule)
    trainer.test(model, datamodule=datamodule, verbose=False)
    print(f"test accuracy {model.right / model.seen:.3f}")
    datamodule.close()


if __name__ == "__main__":
    main()
