"""GraphSAINT's samplers have torch_geometric's laws and coefficients."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.loader
from lightning.pytorch.utilities.data import _update_dataloader as remade
from marks import HAS_GPU
from statistics_of_counts import LEVEL, p_expected
from torch import Tensor
from torch.utils.data import DistributedSampler
from torch_geometric.data import Data

import loader.pyg
from loader.pyg import GraphSAINTEdgeSampler, GraphSAINTNodeSampler, GraphSAINTRandomWalkSampler, GraphSAINTSampler

KINDS = [(GraphSAINTNodeSampler, {}), (GraphSAINTEdgeSampler, {}), (GraphSAINTRandomWalkSampler, {"walk_length": 2})]
kinds = pytest.mark.parametrize(("kind", "more"), KINDS)


def data_of() -> Data:
    """torch_geometric's test has this graph."""
    adj = torch.tensor(
        [
            [1, 2, 3, 0, 4, 0],
            [5, 6, 0, 7, 0, 8],
            [9, 0, 10, 0, 11, 0],
            [0, 12, 0, 13, 0, 14],
            [15, 0, 16, 0, 17, 0],
            [0, 18, 0, 19, 0, 20],
        ]
    )
    pairs = adj.nonzero().t()
    x = torch.arange(6.0)[:, None].expand(6, 2).contiguous()
    return Data(edge_index=pairs, x=x, n_id=torch.arange(6), edge_id=adj[pairs[0], pairs[1]], num_nodes=6)


def uneven(num_nodes: int = 7, num_edges: int = 30) -> Data:
    """Directed, with parallel edges, and nodes without edges in or out."""
    g = torch.Generator().manual_seed(3)
    weights = torch.tensor([0.0, 1, 1, 2, 3, 4, 9])
    source = torch.multinomial(weights, num_edges, True, generator=g)
    target = torch.multinomial(weights.flip(0), num_edges, True, generator=g)
    return Data(edge_index=torch.stack([source, target]), n_id=torch.arange(num_nodes), num_nodes=num_nodes)


def same(one: Data, two: Data) -> bool:
    return one.keys() == two.keys() and all(
        torch.equal(one[k], two[k]) if isinstance(one[k], Tensor) else one[k] == two[k]
        for k in one.keys()  # noqa: SIM118
    )


@kinds
def test_mini_batches_are_those_of_torch_geometric(kind: Any, more: dict[str, int]) -> None:
    data = data_of()
    made = kind(data, batch_size=3, num_steps=4, sample_coverage=10, log=False, **more)
    assert len(made) == 4
    for sample in made:
        nodes = sample.n_id.tolist()
        assert nodes == sorted(set(nodes))
        assert sample.num_nodes == len(nodes)
        assert torch.equal(sample.x, data.x[sample.n_id])
        whole = data.edge_index[:, torch.isin(data.edge_index, sample.n_id).all(0)]
        assert torch.equal(sample.n_id[sample.edge_index], whole)  # they ascend by source and target
        assert sample.edge_id.tolist() == data.edge_id[torch.isin(data.edge_index, sample.n_id).all(0)].tolist()
        assert sample.node_norm.shape == (sample.num_nodes,)
        assert sample.edge_norm.shape == (sample.num_edges,)


@kinds
def test_seed_epoch_and_step_decide_everything(kind: Any, more: dict[str, int]) -> None:
    options = {"batch_size": 2, "num_steps": 5, "seed": 4, "log": False, **more}
    made = kind(data_of(), **options)
    first, second = list(made), list(made)
    assert [s.n_id.tolist() for s in first] != [s.n_id.tolist() for s in second]
    for workers in (0, 2):
        again = kind(data_of(), **options, num_workers=workers)
        assert all(map(same, first, again))
        assert all(map(same, second, again))
    again.set_epoch(0)
    assert all(map(same, first, again))
    for other in (pickle.loads(pickle.dumps(kind(data_of(), **options))), copy.deepcopy(kind(data_of(), **options))):
        assert all(map(same, first, list(other)))
    assert not all(map(same, first, kind(data_of(), **{**options, "seed": 5})))
    order = [tuple(s.n_id.tolist()) for s in kind(data_of(), **options, shuffle=True)]
    assert sorted(order) == sorted(tuple(s.n_id.tolist()) for s in first)


def law(made: Any, batches: int) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for _ in range(batches):
        found.update(tuple(sample.n_id.tolist()) for sample in made)
    return found


def check_law(found: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    sets = sorted(expected)
    assert set(found) <= set(sets)
    counts = np.array([found[s] for s in sets])
    assert p_expected(counts, np.array([expected[s] for s in sets])) > LEVEL


def pairs_of(one: list[tuple[frozenset[int], float]]) -> dict[tuple[int, ...], float]:
    """The law of the union of two independent draws."""
    found: Counter[tuple[int, ...]] = Counter()
    for a, p in one:
        for b, q in one:
            found[tuple(sorted(a | b))] += p * q  # type: ignore[assignment]
    return dict(found)


def test_nodes_are_drawn_by_out_degree() -> None:
    data = uneven()
    degrees = torch.bincount(data.edge_index[0], minlength=7).double() / 30
    one = [(frozenset([v]), p) for v, p in enumerate(degrees.tolist()) if p]
    check_law(law(GraphSAINTNodeSampler(data, 2, 2000, seed=1), 3), pairs_of(one))


def test_edges_are_drawn_by_degrees() -> None:
    data = uneven()
    source, target = data.edge_index
    weight = torch.bincount(target, minlength=7)[source] + torch.bincount(source, minlength=7)[target]
    ends = zip(source.tolist(), target.tolist(), (weight / weight.sum()).tolist(), strict=True)
    one = [(frozenset([a, b]), p) for a, b, p in ends if p]
    assert len(one) < 30  # some edges begin where none ends, and end where none begins
    check_law(law(GraphSAINTEdgeSampler(data, 2, 2000, seed=1), 3), pairs_of(one))


def test_walks_go_along_the_edges() -> None:
    data = uneven()
    onward = [data.edge_index[1][data.edge_index[0] == v].tolist() for v in range(7)]
    one: Counter[frozenset[int]] = Counter()
    for start in range(7):
        for u in onward[start] or [start]:
            for w in onward[u] or [u]:
                p = 1 / 7 / max(len(onward[start]), 1) / max(len(onward[u]), 1)
                one[frozenset([start, u, w])] += p  # type: ignore[assignment]
    made = GraphSAINTRandomWalkSampler(data, 1, 2, 2000, seed=1)
    check_law(law(made, 3), {tuple(sorted(s)): p for s, p in one.items()})
    two = pairs_of(list(one.items()))
    check_law(law(GraphSAINTRandomWalkSampler(data, 2, 2, 2000, seed=2), 3), two)


@kinds
def test_coefficients_are_counted(kind: Any, more: dict[str, int]) -> None:
    data = data_of()
    options = {"batch_size": 2, "num_steps": 3, "seed": 4, "log": False, **more}
    made = kind(data, **options, sample_coverage=5)
    plain = kind(data, **options)
    nodes, edges, steps, epoch = torch.zeros(6), torch.zeros(20), 0, 2**62
    while nodes.sum() < 5 * 6:
        plain.set_epoch(epoch)
        for sample in plain:
            nodes[sample.n_id] += 1
            edges[sample.edge_id - 1] += 1
        steps, epoch = steps + 3, epoch + 1
    expected = [
        0.1 if n == 0 == e else min(n / e, 1e4) if e else 1e4
        for n, e in zip(nodes[data.edge_index[0]].tolist(), edges.tolist(), strict=True)
    ]
    assert made.edge_norm.tolist() == pytest.approx(expected)
    assert made.node_norm.tolist() == pytest.approx([steps / (n or 0.1) / 6 for n in nodes.tolist()])
    assert all(torch.equal(s.n_id, t.n_id) for s, t in zip(made, kind(data, **options), strict=True))


def test_coefficients_are_kept_in_a_folder(tmp_path: Path) -> None:
    options = {"batch_size": 2, "walk_length": 1, "sample_coverage": 3, "log": False, "save_dir": str(tmp_path)}
    one = GraphSAINTRandomWalkSampler(data_of(), **options, seed=1)
    assert (tmp_path / "graphsaintrandomwalksampler_1_3.pt").exists()
    two = GraphSAINTRandomWalkSampler(data_of(), **options, seed=2)
    assert torch.equal(one.node_norm, two.node_norm)
    assert torch.equal(one.edge_norm, two.edge_norm)


def test_coefficients_of_another_graph_are_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"sample_coverage": 3, "log": False, "save_dir": str(tmp_path)}
    made = GraphSAINTNodeSampler(data_of(), 2, **options)
    turned = data_of()
    turned.edge_index = turned.edge_index.flip(0)
    for data, batch_size in ((turned, 2), (data_of(), 3)):
        with pytest.raises(ValueError, match=r"_3\.pt has the coefficients of another graph or batch_size; remove it"):
            GraphSAINTNodeSampler(data, batch_size, **options)
    path = tmp_path / "graphsaintnodesampler_3.pt"
    torch.save((made.node_norm * 2, made.edge_norm), path)  # as torch_geometric writes it
    assert torch.equal(GraphSAINTNodeSampler(data_of(), 3, **options).node_norm, made.node_norm * 2)
    torch.save((made.node_norm[1:], made.edge_norm), path)
    with pytest.raises(ValueError, match="of another graph"):
        GraphSAINTNodeSampler(data_of(), 2, **options)


def test_ended_processes_leave_no_half_coefficients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(_: Any, file: Any) -> None:
        file.write(b"PK")
        assert not list(tmp_path.glob("*.pt"))
        raise KeyboardInterrupt

    options: dict[str, Any] = {"sample_coverage": 3, "log": False, "save_dir": str(tmp_path)}
    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        GraphSAINTNodeSampler(data_of(), 2, **options)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_lacks_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphSAINTNodeSampler, "_sample_nodes", lambda *_: pytest.fail("drawn before it was told"))
    with pytest.raises(ValueError, match=r"save_dir needs the folder .*/no, which is not there; make it, or give anot"):
        GraphSAINTNodeSampler(data_of(), 2, sample_coverage=3, log=False, save_dir=str(tmp_path / "no"))


def test_as_many_edges_as_nodes_keep_their_rows() -> None:
    ring = torch.arange(6)
    data = Data(edge_index=torch.stack([ring, (ring + 1) % 6]), x=ring, edge_attr=10 * ring, num_nodes=6)
    for made in GraphSAINTNodeSampler(data, 3, 4, seed=1):
        assert torch.equal(made.edge_attr, 10 * made.x[made.edge_index[0]])


def test_a_sampler_of_the_users_is_called() -> None:
    class Few(GraphSAINTSampler):
        def _sample_nodes(self, batch_size: int) -> Tensor:
            return torch.randint(self.N, (2, batch_size))

    made = [[s.n_id.tolist() for s in Few(data_of(), 2, 6, seed=s, num_workers=w)] for s, w in ((1, 0), (1, 2), (2, 0))]
    assert made[0] == made[1] != made[2]
    assert len({tuple(nodes) for nodes in made[0]}) > 1


def test_steps_are_items_of_the_loader() -> None:
    made = GraphSAINTNodeSampler(data_of(), 3, 4, seed=1)
    (first, *_) = list(made)
    nodes, pairs, ids = made[0]
    assert torch.equal(first.n_id, nodes)
    assert torch.equal(first.edge_index, pairs)
    assert torch.equal(first.edge_id, ids + 1)
    assert made.dataset is made


def test_torch_geometrics_names_are_ours() -> None:
    assert loader.pyg.backend() == "loader"
    for kind in (GraphSAINTSampler, *(kind for kind, _ in KINDS)):
        assert getattr(torch_geometric.loader, kind.__name__) is kind


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"num_steps": 0}, ValueError, "num_steps is 0"),
        ({"sample_coverage": -1}, ValueError, "sample_coverage is -1"),
        ({"data": Data(num_nodes=3)}, TypeError, "takes a torch_geometric.data.Data with edge_index"),
        ({"data": Data(edge_index=torch.empty(2, 0).long(), num_nodes=3)}, ValueError, "data has no edges"),
        ({"data": data_of().update({"node_norm": torch.ones(6)})}, ValueError, "data has node_norm, which the mini-"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        GraphSAINTNodeSampler(**{"data": data_of(), "batch_size": 2, **given})


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@kinds
def test_a_gpu_gives_the_same_mini_batches(kind: Any, more: dict[str, int]) -> None:
    options = {"batch_size": 4, "num_steps": 6, "seed": 4, "sample_coverage": 4, "log": False, **more}
    here = list(kind(data_of(), **options))
    there = list(kind(data_of(), **options, device="cuda"))
    assert all(sample.edge_index.is_cuda for sample in there)
    assert all(map(same, here, [sample.cpu() for sample in there]))


@kinds
def test_processes_of_lightning_share_the_steps(kind: Any, more: dict[str, int]) -> None:
    options = {"batch_size": 4, "num_steps": 6, "seed": 4, "sample_coverage": 2, "log": False, **more}
    made = kind(uneven(), **options)
    ranks = [remade(made, DistributedSampler(range(6), 2, rank, shuffle=False)) for rank in range(2)]
    alternating = [one for pair in zip(*ranks, strict=True) for one in pair]
    assert all(same(a, b) for a, b in zip(alternating, made, strict=True))
