"""Trained rows: as features of the same values, as torch_geometric's one-hot ones, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hetero_datasets import make_hetero
from torch import Tensor

from loader.datamodules.nodes import GraphDataModule
from loader.graph import HeteroGraph
from loader.samplers import FusedSampler
from loader.samples.hetero import HeteroMiniBatch
from models.rgcn import RGCN
from models.trained_rows import TrainedRows, rows_in
from models.training.rgcn_classifier import RGCNClassifier

PAPERS = 40  # without features
NUM_NODES = {"author": 60, "paper": PAPERS, "term": 10}


def batches_of(fanouts: list[int], expand: str = "new") -> list[HeteroMiniBatch]:
    module = GraphDataModule(make_hetero(), FusedSampler(fanouts, expand=expand), batch_size=6)
    module.setup()
    return list(module.train_dataloader())


def net_of(**options: Any) -> RGCN:
    torch.manual_seed(0)
    data = make_hetero()
    in_dims = {name: data.num_features.get(name, 0) for name in data.graph.node_types}
    shape = {"hidden_channels": 8, "out_dim": 3, "dropout": 0.0, "num_nodes": NUM_NODES, **options}
    return RGCN(in_dims, data.graph.edge_types, "author", **shape).double()


@pytest.mark.parametrize("expand", ["new", "all"])
@pytest.mark.parametrize("options", [{}, {"bases": 2, "norm": "layer"}, {"trained_rows": 100}])
def test_rows_are_features_that_learn(expand: str, options: dict[str, Any]) -> None:
    net = net_of(**{"trained_rows": 4, **options})  # 100 columns are narrowed first
    (table,) = rows_in(net)
    others = [p for p in net.parameters() if p is not table]
    plain = net_of(**{**options, "trained_rows": None, "num_nodes": None})
    plain = RGCN({**plain.in_dims, "paper": table.shape[1]}, net.edge_types, "author", 8, 3, dropout=0.0,
                 bases=options.get("bases"), norm=options.get("norm", "none")).double()  # fmt: skip
    plain.load_state_dict({name: value for name, value in net.state_dict().items() if "tables" not in name})
    for batch in batches_of([3, 3], expand):
        rows = table.detach()[batch.n_id["paper"]].requires_grad_()
        x = {name: of.double() for name, of in (batch.x or {}).items()}
        wanted = plain(batch.replace(x={**x, "paper": rows}))
        found = net(batch)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)
        mine = torch.autograd.grad(found.square().sum(), [table, *others])
        theirs = torch.autograd.grad(wanted.square().sum(), [rows, *plain.parameters()])
        assert mine[0].is_sparse
        assert sorted(mine[0].coalesce().indices()[0].tolist()) == sorted(batch.n_id["paper"].tolist())
        dense = torch.zeros_like(table).index_add(0, batch.n_id["paper"], theirs[0])
        torch.testing.assert_close(mine[0].to_dense(), dense, rtol=1e-11, atol=1e-14)
        for gradient, other in zip(mine[1:], theirs[1:], strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-11, atol=1e-14)


def test_gradients_of_rows_are_differences_of_losses() -> None:
    for trained, bases in ((4, None), ("one-hot", None), ("one-hot", 2)):
        net = net_of(trained_rows=trained, bases=bases)
        (table,) = rows_in(net)
        (batch, *_) = batches_of([3, 3])
        net(batch).square().sum().backward()
        assert table.grad is not None
        step = torch.randn_like(table)
        predicted = (table.grad.to_dense() * step).sum()
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                table.add_(step, alpha=sign * 1e-5)
                ends.append(net(batch).square().sum())
                table.sub_(step, alpha=sign * 1e-5)
        torch.testing.assert_close((ends[0] - ends[1]) / 2e-5, predicted, rtol=1e-6, atol=1e-9)


def entities() -> tuple[HeteroGraph, Tensor, Tensor]:
    """A graph of one node type and three relations, and its edges and their relations."""
    g = torch.Generator().manual_seed(0)
    edges = [torch.randint(30, (2, 50), generator=g) for _ in range(3)]
    keys = [("v", f"relation {r}", "v") for r in range(3)]
    graph = HeteroGraph.from_edges(dict(zip(keys, edges, strict=True)), {"v": 30})
    return graph, torch.cat(edges, 1), torch.arange(3).repeat_interleave(50)


@pytest.mark.parametrize("bases", [None, 2])
def test_one_hot_features_are_those_of_torch_geometric(bases: int | None) -> None:
    convolution = pytest.importorskip("torch_geometric.nn").RGCNConv
    graph, ends, relations = entities()
    first, second = (convolution(*of, 3, num_bases=bases).double() for of in ((30, 8), (8, 4)))
    net = RGCN(
        {"v": 0}, graph.edge_types, "v", 8, 4, bases=bases, dropout=0.0, trained_rows="one-hot", num_nodes={"v": 30}
    ).double()
    (table,) = rows_in(net)
    with torch.no_grad():
        table.copy_(torch.cat([first.weight, first.root.unsqueeze(0)]).transpose(0, 1).reshape(30, -1))
        pairs = [(net.bias[0][0], first.bias), (net.bias[1][0], second.bias), (net.weights[1], second.weight),
                 (net.own[1][0], second.root.t())]  # fmt: skip
        if bases is not None:
            pairs += [(net.shares[0], first.comp), (net.shares[1], second.comp)]
        for mine, theirs in pairs:
            mine.copy_(theirs)
    for expand in "new", "all":
        sampler = FusedSampler([-1, -1], expand=expand)
        batch = sampler.sample(graph, {"v": torch.tensor([3, 17, 5])})
        wanted = second(first(None, ends, relations).relu(), ends, relations)[[3, 17, 5]]
        torch.testing.assert_close(net(batch), wanted, rtol=1e-10, atol=1e-12)
        found = torch.autograd.grad(net(batch).square().sum(), table)[0].to_dense().view(30, -1, 8)
        of_first = torch.autograd.grad(wanted.square().sum(), [first.weight, first.root])
        torch.testing.assert_close(found[:, :-1].transpose(0, 1), of_first[0], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found[:, -1], of_first[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bases", [None, 2])
def test_one_hot_features_stand_beside_given_ones(bases: int | None) -> None:
    net = net_of(trained_rows="one-hot", bases=bases, num_layers=1)
    assert net.one_hot is not None
    (batch, *_) = batches_of([3])
    (block,) = batch.blocks
    rows = net.one_hot.tables[0].weight.view(PAPERS, -1, 3)[batch.n_id["paper"]]
    relation = next(r for r, key in enumerate(net.edge_types) if key[1] == "rev_writes")
    of_relation = rows[:, 0 if relation == 1 else 1] if bases is None else None
    if of_relation is None:
        of_relation = torch.einsum("b,nbo->no", net.shares[0][relation], rows[:, :2])
    source, sink = block.edge_index_dict["paper", "rev_writes", "author"]
    wanted = []
    for author in range(batch.batch_size):
        x = net.inputs[0](batch.x["author"][author].double())
        out = net.own[0][0] @ x + net.bias[0][0]
        of_author = [int(p) for p, a in zip(source, sink, strict=True) if a == author]
        wanted.append(out + sum(of_relation[p] for p in of_author) / max(len(of_author), 1))
    torch.testing.assert_close(net(batch), torch.stack(wanted), rtol=1e-12, atol=1e-14)


def test_deep_one_hot_models_drop_nodes_out() -> None:
    net = net_of(trained_rows="one-hot", num_layers=3, input_dropout=0.5)
    (batch, *_) = batches_of([2, 2, 2])
    torch.manual_seed(1)
    once, again = net(batch), net(batch)
    assert once.shape == (6, 3)
    assert not torch.equal(once, again)  # nodes drop out
    net.eval()
    assert torch.equal(net(batch), net(batch))


def test_tables_are_only_of_types_that_are_read() -> None:
    net = net_of(trained_rows=4, num_layers=1)  # authors read papers
    assert [p.shape for p in rows_in(net)] == [(PAPERS, 4)]
    data = make_hetero()
    alone = RGCN({"author": 5, "paper": 0, "term": 0}, data.graph.edge_types, "author", 8, 3, 1, trained_rows=4,
                 num_nodes=NUM_NODES)  # fmt: skip
    assert len(list(rows_in(alone))) == 1  # terms are two hops away


def test_rows_begin_with_small_numbers() -> None:
    torch.manual_seed(0)
    rows = TrainedRows(1000, 8).weight
    bound = (6 / 1008) ** 0.5
    assert 0.9 * bound < float(rows.detach().abs().max()) <= bound


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trained_rows": 0}, "trained_rows is 0; it must be at least 1"),
        ({"trained_rows": "onehot"}, "trained_rows is 'onehot'; it must be a number of columns, one-hot or None"),
        ({"trained_rows": 4, "num_nodes": None}, "trained_rows is 4, and num_nodes has no number of nodes of type pap"),
        ({"trained_rows": "one-hot", "num_nodes": {"author": 60}}, "is one-hot, and num_nodes has no number of nodes"),
    ],
)
def test_other_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        net_of(**options)


def test_rows_without_a_type_for_them_are_refused() -> None:
    with pytest.raises(ValueError, match=r"trained_rows is 4, but all node types \(v\) have features; leave it out"):
        RGCN({"v": 3}, [("v", "to", "v")], "v", 8, 2, trained_rows=4, num_nodes={"v": 9})


def test_rows_that_no_layer_reads_are_refused() -> None:
    edge_types, widths = make_hetero().graph.edge_types, {"author": 5, "paper": 3, "term": 0}  # terms are two hops away
    with pytest.raises(ValueError, match=r"trained_rows is 4, but types without features \(term\) are further from"):
        RGCN(widths, edge_types, "author", 8, 3, 1, trained_rows=4, num_nodes=NUM_NODES)
    RGCN(widths, edge_types, "author", 8, 3, 2, trained_rows=4, num_nodes=NUM_NODES)


def test_rows_of_another_graph_are_refused() -> None:
    net = net_of(trained_rows=4, num_nodes={**NUM_NODES, "paper": 41})
    with pytest.raises(ValueError, match="graph has 40 nodes of type paper, the model rows of 41; make the model of"):
        net(batches_of([3, 3])[0])


def classifier(**options: Any) -> RGCNClassifier:
    data = make_hetero()
    in_dims = {name: data.num_features.get(name, 0) for name in data.graph.node_types}
    return RGCNClassifier(in_dims, 2, data.graph.edge_types, "author", num_nodes=NUM_NODES, **options)


def test_graphs_are_refused_and_not_taken() -> None:
    with pytest.raises(ValueError, match="cuda_graph is true, but the step of trained rows is not replayed by a graph"):
        classifier(trained_rows=4, cuda_graph=True)
    assert not classifier(trained_rows=4).may_be_graphed(batches_of([3, 3])[0])


def test_rows_are_not_exchanged_by_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    group = torch.distributed
    monkeypatch.setattr(group, "is_initialized", lambda: True)
    monkeypatch.setattr(group, "get_world_size", lambda: 2)
    monkeypatch.setattr(group, "get_backend", lambda: "nccl")
    with pytest.raises(ValueError, match="2 processes on GPUs would exchange sparse gradients, and NCCL cannot"):
        classifier(trained_rows=4).setup("fit")
