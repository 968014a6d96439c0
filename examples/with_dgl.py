"""A DGL model on mini-batches of DGL's sampler, then of ours. Needs [datasets,dgl]: python examples/with_dgl.py"""

import os

os.environ.setdefault("DGLBACKEND", "pytorch")  # otherwise DGL writes a file to your home folder

import torch
from dgl.nn import SAGEConv
from torch import nn

from loader import DGLSampler, FusedSampler, NodeLoader
from loader.datasets import NodeDataset, open_dataset


class Net(nn.Module):
    """Two layers of DGL's SAGEConv."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SAGEConv(num_features, 64, "mean"), SAGEConv(64, num_classes, "mean")])

    def forward(self, blocks: list) -> torch.Tensor:
        x = blocks[0].srcdata["feat"]
        x = self.layers[0](blocks[0], x).relu()
        return self.layers[1](blocks[1], x)


def train(data: NodeDataset, sampler: DGLSampler | FusedSampler) -> float:
    """The accuracy on the test split after 5 epochs."""
    torch.manual_seed(0)
    common = (data.graph, data.features, data.labels)
    batches = NodeLoader(*common, data.splits["train"], sampler, batch_size=128, shuffle=True)
    model = Net(data.num_features, data.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        for batch in batches:
            _, _, blocks = batch.to_dgl()
            loss = nn.functional.cross_entropy(model(blocks), blocks[-1].dstdata["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    right = 0
    with torch.no_grad():
        for batch in NodeLoader(*common, data.splits["test"], sampler, batch_size=128):
            right += int((model(batch.to_dgl()[2]).argmax(1) == batch.y).sum())
    return right / data.splits["test"].numel()


def main() -> None:
    data = open_dataset("digits")
    for sampler in (DGLSampler(fanouts=[10, 5], seed=0), FusedSampler(fanouts=[10, 5], seed=0)):
        print(f"{type(sampler).__name__}: test accuracy {train(data, sampler):.3f}")


if __name__ == "__main__":
    main()
