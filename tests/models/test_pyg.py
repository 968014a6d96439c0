"""torch_geometric's models: a sample with all neighbors, layer-wise inference and torch_geometric's own call agree."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.precision import HalfPrecision
from torch import Tensor, nn

from loader.graph import Graph
from loader.samplers import FullSampler, FusedSampler
from models import pyg
from models.inference import blockwise_outputs
from models.pyg import ARCHITECTURES, PyGNet

pytest.importorskip("torch_geometric")

NODES, IN, HIDDEN, OUT = 60, 6, 8, 3


def make(architecture: str, graph: Graph, num_layers: int = 2, **options: Any) -> PyGNet:
    torch.manual_seed(0)
    net = PyGNet(architecture, IN, HIDDEN, OUT, num_layers, **options)
    net.read_graph(graph, fit=True)
    return net.eval()


def exact(net: PyGNet, graph: Graph, x: Tensor, chunk_bytes: int = 2**20) -> tuple[Tensor, Tensor | None]:
    return blockwise_outputs(
        net, net.layer, net.num_layers, graph, x, embeddings=net.num_layers > 1, chunk_bytes=chunk_bytes, progress=False
    )


def as_pyg_calls_it(net: PyGNet, graph: Graph, x: Tensor) -> Tensor:
    """The class of torch_geometric with the same weights and its own settings, on the edges of the whole graph."""
    from torch_geometric.nn import models as theirs

    targets = torch.arange(NODES).repeat_interleave(graph.indptr.diff())
    edges = torch.stack((graph.indices.long(), targets))
    options: dict[str, Any] = {"norm": nn.LayerNorm(HIDDEN)} if isinstance(net.net.norms[0], nn.LayerNorm) else {}
    if net.architecture.startswith("gat"):
        options |= {"heads": 4, "v2": net.architecture == "gatv2"}
    if net.architecture == "pna":
        options |= {
            "aggregators": ["mean", "min", "max", "std"],
            "scalers": ["identity", "amplification", "attenuation"],
            "deg": torch.bincount(graph.indptr.diff()),
        }
    name = {"gatv2": "GAT"}.get(net.architecture, net.architecture.upper())
    model = getattr(theirs, name)(IN, HIDDEN, net.num_layers, OUT, **options)
    model.load_state_dict(net.net.state_dict())
    found: Tensor = model.eval()(x, edges)
    return found.detach()


OPTIONS: dict[str, dict[str, Any]] = {"gat": {"heads": 4}, "gatv2": {"heads": 4}}


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_three_ways_give_the_same(random_graph: Any, architecture: str, num_layers: int) -> None:
    graph: Graph = random_graph(NODES, 200)  # with loops, parallel edges, and nodes without neighbors
    assert (graph.indptr.diff() == 0).any()
    net = make(architecture, graph, num_layers, norm="layer", **OPTIONS.get(architecture, {}))
    x = torch.randn(NODES, IN)
    expected = as_pyg_calls_it(net, graph, x)
    torch.testing.assert_close(exact(net, graph, x)[0], expected, rtol=1e-4, atol=1e-5)
    seeds = torch.arange(0, NODES, 2)
    batch = FullSampler(num_layers).sample(graph, seeds)
    torch.testing.assert_close(net(batch, x[batch.nodes.long()]), expected[seeds], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("chunk_bytes", [1, 2000])
def test_chunks_change_nothing(random_graph: Any, architecture: str, chunk_bytes: int) -> None:
    graph: Graph = random_graph(NODES, 200)
    net = make(architecture, graph)
    x = torch.randn(NODES, IN)
    for found, wanted in zip(exact(net, graph, x, chunk_bytes), exact(net, graph, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_embeddings_are_read_by_the_last_layer(random_graph: Any) -> None:
    graph: Graph = random_graph(NODES, 200)
    net = make("gcn", graph)
    logits, hidden = exact(net, graph, torch.randn(NODES, IN))
    assert hidden is not None
    assert hidden.shape == (NODES, HIDDEN)
    whole = FullSampler(1).sample(graph, torch.arange(NODES)).blocks[0]
    torch.testing.assert_close(net.layer(1, hidden, whole, torch.arange(NODES)), logits, rtol=1e-4, atol=1e-5)


def test_gcn_on_picks_has_the_mean_of_gcn(random_graph: Any) -> None:
    graph: Graph = random_graph(NODES, 1200)
    net, x = make("gcn", graph, 1), torch.randn(NODES, IN)
    sampler = FusedSampler([5], seed=0)
    batches = [sampler.sample(graph, torch.arange(NODES), batch=i) for i in range(400)]
    with torch.no_grad():
        found = torch.stack([net(batch, x[batch.nodes.long()]) for batch in batches]).double()
    errors = (found.mean(0) - as_pyg_calls_it(net, graph, x)) / (found.std(0) / len(batches) ** 0.5)
    assert errors.abs().max() < 4.5  # of 180 outputs
    assert errors.abs().mean() < 1.0


def test_gcn_counts_many_neighbors_in_bfloat16() -> None:
    """A trainer's bf16-true makes bfloat16 torch's default type, in which 256 + 1 is 256."""
    graph = Graph.from_edges(torch.arange(1, 1001), torch.zeros(1000, dtype=torch.int64), 1001)
    net, x = make("gcn", graph, 1), torch.ones(1001, IN)
    expected = exact(net, graph, x)[0]
    with HalfPrecision("bf16-true").forward_context():
        found = exact(net.bfloat16(), graph, x.bfloat16())[0]
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


def test_loops_are_counted_in_parts(random_graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    graph: Graph = random_graph(20, 300)
    targets = torch.arange(20).repeat_interleave(graph.indptr.diff())
    expected = torch.bincount(targets[graph.indices == targets], minlength=20)
    assert expected.sum() > 5
    for edges in (1, 40, 10**6):
        monkeypatch.setattr(pyg, "_EDGES", edges)
        assert torch.equal(pyg._loops(graph), expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_graph_without_edges_gives_numbers(architecture: str) -> None:
    none = torch.empty(0, dtype=torch.int64)
    graph = Graph.from_edges(none, none, NODES)
    net = make(architecture, graph, **OPTIONS.get(architecture, {}))
    x = torch.randn(NODES, IN)
    batch = FullSampler(2).sample(graph, torch.arange(5))
    found = net(batch, x[batch.nodes])
    assert found.isfinite().all()
    torch.testing.assert_close(exact(net, graph, x)[0][:5], found.detach(), rtol=1e-4, atol=1e-5)


def test_gcn_without_its_graph_is_refused(random_graph: Any) -> None:
    graph: Graph = random_graph(NODES, 200)
    batch = FullSampler(2).sample(graph, torch.arange(4))
    with pytest.raises(RuntimeError, match=r"read_graph\(graph, fit=False\)"):
        PyGNet("gcn", IN, HIDDEN, OUT)(batch, torch.randn(batch.nodes.numel(), IN))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "sage"}, "architecture is 'sage'; it must be one of gcn, gat"),
        ({"heads": 2}, "heads is 2, but gcn has no attention"),
        ({"architecture": "gat", "heads": 3}, "hidden_channels is 8, heads 3"),
        ({"norm": "batch"}, "norm is 'batch'; it must be none or layer"),
        ({"dropout": 1.0}, r"dropout is 1.0; it must be in \[0, 1\)"),
        ({"act": "nope"}, "act is 'nope'; it must be an activation"),
        ({"hidden_channels": 0}, "hidden_channels is 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    arguments = {"architecture": "gcn", "in_dim": IN, "hidden_channels": HIDDEN, "out_dim": OUT, **options}
    with pytest.raises(ValueError, match=message):
        PyGNet(**arguments)


def test_other_mini_batches_are_refused(random_graph: Any) -> None:
    graph: Graph = random_graph(NODES, 200)
    batch = FullSampler(1).sample(graph, torch.arange(4))
    net = make("gat", graph)
    with pytest.raises(ValueError, match="1 hops, the model 2 layers"):
        net(batch, torch.randn(batch.nodes.numel(), IN))
    with pytest.raises(ValueError, match="x has 5 features, the model's in_dim is 6"):
        net(FullSampler(2).sample(graph, torch.arange(4)), torch.randn(NODES, 5))
