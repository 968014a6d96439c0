"""A PyTorch Geometric model on our mini-batches. Needs [datasets]: python examples/with_pyg.py"""

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

from loader import FusedSampler, NodeLoader
from loader.datasets import open_dataset


def main() -> None:
    torch.manual_seed(0)
    data = open_dataset("digits")
    sampler = FusedSampler(fanouts=[10, 5], seed=0)
    common = (data.graph, data.features, data.labels)
    batches = NodeLoader(*common, data.splits["train"], sampler, batch_size=128, shuffle=True)
    tests = NodeLoader(*common, data.splits["test"], sampler, batch_size=128)
    model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=data.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    for epoch in range(5):
        for batch in batches:
            part = batch.to_pyg()
            out = model(part.x, part.edge_index)[: part.batch_size]
            loss = cross_entropy(out, part.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right = 0
        with torch.no_grad():
            for batch in tests:
                part = batch.to_pyg()
                right += int((model(part.x, part.edge_index)[: part.batch_size].argmax(1) == part.y).sum())
        print(f"epoch {epoch}: loss {loss.item():.3f}, test accuracy {right / data.splits['test'].numel():.3f}")


if __name__ == "__main__":
    main()
