"""GraphSAGE in a loop of plain PyTorch. Needs only torch and numpy: python examples/own_loop.py"""

import torch
from torch import Tensor, nn

from loader import FusedSampler, Graph, NodeLoader
from loader.ops import aggregate_mean


class GraphSAGE(nn.Module):
    """Two layers. Each joins a node's own features with the mean of its neighbors' features."""

    def __init__(self, num_features: int, hidden_channels: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(2 * num_features, hidden_channels), nn.Linear(2 * hidden_channels, num_classes)]
        )

    def forward(self, blocks: tuple, x: Tensor) -> Tensor:
        for layer, block in zip(self.layers, blocks, strict=True):
            x = layer(torch.cat([x[: block.num_dst], aggregate_mean(x, block)], dim=1))
            if block is not blocks[-1]:
                x = x.relu()
        return x


def make_data(num_nodes: int = 5000, num_classes: int = 5) -> tuple[Graph, Tensor, Tensor]:
    """A graph in which most edges join nodes of one class, features that hint at the class, and labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(num_classes, (num_nodes,), generator=generator)
    src, dst = torch.randint(num_nodes, (2, 20 * num_nodes), generator=generator)
    kept = (labels[src] == labels[dst]) | (torch.rand(src.numel(), generator=generator) < 0.1)
    hint = nn.functional.one_hot(labels, num_classes).float()
    features = hint + torch.randn(num_nodes, num_classes, generator=generator)
    return Graph.from_edges(src[kept], dst[kept], num_nodes), features, labels


def main() -> None:
    torch.manual_seed(0)
    graph, features, labels = make_data()
    train_ids, test_ids = torch.randperm(graph.num_nodes).split([4000, 1000])
    sampler = FusedSampler(fanouts=[10, 10], seed=0)
    batches = NodeLoader(graph, features, labels, train_ids, sampler, batch_size=256, shuffle=True)
    tests = NodeLoader(graph, features, labels, test_ids, sampler, batch_size=256)
    model = GraphSAGE(features.shape[1], 64, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    for epoch in range(5):
        for batch in batches:
            loss = nn.functional.cross_entropy(model(batch.blocks, batch.x), batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = sum(int((model(b.blocks, b.x).argmax(1) == b.y).sum()) for b in tests)
        print(f"epoch {epoch}: loss {loss.item():.3f}, test accuracy {right / test_ids.numel():.3f}")


if __name__ == "__main__":
    main()
