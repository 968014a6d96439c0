"""DGL's samplers of induced subgraphs: the subgraphs are DGL's, the laws those of its samplers."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import needs_dgl, needs_metis
from statistics_of_counts import LEVEL, p_expected
from torch import Tensor

from loader.dgl import ClusterGCNSampler, DataLoader, SAINTSampler, ShaDowKHopSampler, as_edge_prediction_sampler
from loader.machine.optional import import_dgl

pytestmark = needs_dgl


@pytest.fixture(scope="module")
def dgl() -> Any:
    return import_dgl("this test")


def random_graph(dgl: Any, num_nodes: int = 60, num_edges: int = 500, seed: int = 1, idtype: Any = torch.int64) -> Any:
    g = torch.Generator().manual_seed(seed)
    made = dgl.graph(tuple(torch.randint(num_nodes, (2, num_edges), generator=g)), num_nodes=num_nodes, idtype=idtype)
    made.ndata["feat"], made.edata["number"] = torch.rand(num_nodes, 3, generator=g), torch.arange(num_edges)
    made.edata["prob"] = torch.rand(num_edges, generator=g)
    return made


def typed_graph(dgl: Any) -> Any:
    g = torch.Generator().manual_seed(2)

    def ends(a: int, b: int) -> tuple[Tensor, Tensor]:
        return torch.randint(a, (150,), generator=g), torch.randint(b, (150,), generator=g)

    made = dgl.heterograph(
        {("u", "f", "u"): ends(30, 30), ("u", "p", "v"): ends(30, 20), ("v", "r", "u"): ends(20, 30)},
        {"u": 30, "v": 20},
    )
    made.nodes["u"].data["x"] = torch.arange(30)
    return made


def check_subgraph(dgl: Any, g: Any, made: Any, nodes: Any) -> None:
    """It is what `g.subgraph` gives, but for the order of the edges."""
    theirs = g.subgraph(nodes)
    assert (made.idtype, made.ntypes, made.canonical_etypes) == (g.idtype, theirs.ntypes, theirs.canonical_etypes)
    for name in g.ntypes:
        assert torch.equal(made.nodes[name].data[dgl.NID], theirs.nodes[name].data[dgl.NID])
        for column, rows in theirs.nodes[name].data.items():
            assert torch.equal(made.nodes[name].data[column], rows)
    for key in g.canonical_etypes:
        ids = made.edges[key].data[dgl.EID]
        assert sorted(ids.tolist()) == sorted(theirs.edges[key].data[dgl.EID].tolist())
        source, target = made.edges(etype=key)
        whole = g.find_edges(ids, etype=key)
        assert torch.equal(made.nodes[key[0]].data[dgl.NID][source.long()], whole[0])
        assert torch.equal(made.nodes[key[2]].data[dgl.NID][target.long()], whole[1])
        assert torch.equal(target, target.sort().values)
        for column, rows in g.edges[key].data.items():
            assert torch.equal(made.edges[key].data[column], rows[ids.long()])


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"prob": "prob"}])
def test_shadow_induces_its_neighborhood(dgl: Any, idtype: Any, options: dict[str, Any]) -> None:
    g = random_graph(dgl, idtype=idtype)
    made = DataLoader(g, torch.arange(60), ShaDowKHopSampler([3, 2], **options), batch_size=7, shuffle=True, seed=1)
    for inputs, outputs, sub in made:
        assert torch.equal(inputs[: len(outputs)], outputs)
        check_subgraph(dgl, g, sub, inputs)
        near = {*outputs.tolist()}
        for _ in range(2):
            near |= {*g.in_edges(torch.tensor(sorted(near), dtype=idtype))[0].tolist()}
        assert {*inputs.tolist()} <= near


def test_shadow_takes_whole_neighborhoods(dgl: Any) -> None:
    g = random_graph(dgl)
    inputs, _, sub = ShaDowKHopSampler([-1, -1]).sample(g, torch.tensor([5, 9]))
    near = {5, 9}
    for _ in range(2):
        near |= {*g.in_edges(sorted(near))[0].tolist()}
    assert {*inputs.tolist()} == near
    check_subgraph(dgl, g, sub, inputs)


def test_shadow_keeps_the_types(dgl: Any) -> None:
    g = typed_graph(dgl)
    fanouts = [{"f": 2, "p": 1, "r": 0}, {"f": 0, "p": 3, "r": 2}]
    for layers in (fanouts, [2, 2]):
        made = DataLoader(g, {"v": torch.arange(20), "u": torch.arange(4)}, ShaDowKHopSampler(layers), batch_size=6)
        for inputs, outputs, sub in made:
            check_subgraph(dgl, g, sub, inputs)
            for name, ids in outputs.items():
                assert torch.equal(inputs[name][: len(ids)], ids)


def test_shadow_leaves_edges_out(dgl: Any) -> None:
    g = random_graph(dgl)
    out = torch.arange(0, 500, 2)
    inputs, _, sub = ShaDowKHopSampler([-1]).sample(g, torch.tensor([5, 9]), out)
    assert not torch.isin(sub.edata[dgl.EID], out).any()
    left = dgl.remove_edges(g, out)
    assert {*inputs.tolist()} == {5, 9, *left.in_edges([5, 9])[0].tolist()}
    around = as_edge_prediction_sampler(ShaDowKHopSampler([2]), exclude="self")
    for inputs, pairs, sub in DataLoader(g, torch.arange(40), around, batch_size=20):
        assert not torch.isin(sub.edata[dgl.EID], pairs.edata[dgl.EID]).any()
        assert torch.equal(inputs, sub.ndata[dgl.NID])


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_shadow_leaves_edges_of_types_out(dgl: Any, idtype: Any) -> None:
    g = typed_graph(dgl).astype(idtype)
    key = ("u", "f", "u")
    around = as_edge_prediction_sampler(ShaDowKHopSampler([-1]), exclude="self")
    for inputs, pairs, sub in DataLoader(g, {key: torch.arange(60)}, around, batch_size=30):
        whole = g.subgraph(inputs)
        for other in g.canonical_etypes:
            left, of = sub.edges[other].data[dgl.EID], whole.edges[other].data[dgl.EID]
            source, target = (ends.tolist() for ends in g.find_edges(of, etype=other))
            gone: set[Any] = set()
            if other == key:  # parallel edges, too
                gone = {
                    *zip(
                        *(ends.tolist() for ends in g.find_edges(pairs.edges[key].data[dgl.EID], etype=key)),
                        strict=True,
                    )
                }
            wanted = [i for i, *ends in zip(of.tolist(), source, target, strict=True) if tuple(ends) not in gone]
            assert sorted(left.tolist()) == sorted(wanted)


def test_seed_and_epoch_decide_subgraphs(dgl: Any, tmp_path: Path) -> None:
    g = random_graph(dgl)
    torch.save((torch.arange(0, 61, 6), torch.arange(60)), tmp_path / "parts")
    samplers = [
        ShaDowKHopSampler([2, 2]),
        SAINTSampler("node", 9),
        SAINTSampler("edge", 9),
        SAINTSampler("walk", (3, 2)),
        ClusterGCNSampler(g, 10, str(tmp_path / "parts")),
    ]

    def shown(made: Any) -> list[Any]:
        batches = [batch[2] if isinstance(batch, (list, tuple)) else batch for batch in made]
        return [(sub.ndata[dgl.NID].tolist(), sub.edata[dgl.EID].tolist()) for sub in batches]

    for sampler in samplers:
        options = {"batch_size": 3, "shuffle": True}
        one = DataLoader(g, torch.arange(10), sampler, **options, seed=4)
        first, second = shown(one), shown(one)
        assert first != second
        two = DataLoader(g, torch.arange(10), pickle.loads(pickle.dumps(sampler)), **options, seed=4)
        assert (shown(two), shown(two)) == (first, second)
        assert shown(DataLoader(g, torch.arange(10), sampler, **options, seed=5)) != first
        dgl.seed(3)
        torch.manual_seed(3)
        third = shown(DataLoader(g, torch.arange(10), sampler, **options))
        dgl.seed(3)
        torch.manual_seed(3)
        assert shown(DataLoader(g, torch.arange(10), sampler, **options)) == third


def test_features_are_prefetched(dgl: Any) -> None:
    g = random_graph(dgl)
    for sampler in (
        ShaDowKHopSampler([2], prefetch_node_feats=["feat"], prefetch_edge_feats=["number"]),
        SAINTSampler("node", 9, prefetch_ndata=["feat"], prefetch_edata=["number"]),
    ):
        for batch in DataLoader(g, torch.arange(10), sampler, batch_size=5):
            sub = batch[2] if isinstance(batch, (list, tuple)) else batch
            assert torch.equal(sub.ndata["feat"], g.ndata["feat"][sub.ndata[dgl.NID]])
            assert torch.equal(sub.edata["number"], sub.edata[dgl.EID])


def uneven(dgl: Any) -> Any:
    """Parallel edges, and nodes without edges in or out."""
    g = torch.Generator().manual_seed(3)
    weights = torch.tensor([0.0, 1, 1, 2, 3, 4])
    source = torch.multinomial(weights, 25, True, generator=g)
    return dgl.graph((source, torch.multinomial(weights.flip(0), 25, True, generator=g)), num_nodes=6)


def union_law(one: list[tuple[frozenset[int], float]]) -> dict[tuple[int, ...], float]:
    """Of two independent draws."""
    found: Counter[tuple[int, ...]] = Counter()
    for a, p in one:
        for b, q in one:
            found[tuple(sorted(a | b))] += p * q  # type: ignore[assignment]
    return dict(found)


@pytest.mark.parametrize("mode", ["node", "edge", "walk"])
def test_saint_has_dgls_law(dgl: Any, mode: str) -> None:
    g = uneven(dgl)
    source, target = (ends.tolist() for ends in g.edges())
    out, into = g.out_degrees().clamp(min=1).tolist(), g.in_degrees().clamp(min=1).tolist()
    one: Counter[frozenset[int]] = Counter()
    if mode == "node":
        for v in range(6):
            one[frozenset([v])] += out[v]
    elif mode == "edge":
        for a, b in zip(source, target, strict=True):
            one[frozenset([a, b])] += 1 / into[b] + 1 / out[a]  # type: ignore[assignment]
    else:
        for v in range(6):
            onward = g.successors(v).tolist() if g.out_degrees(v) else [v]
            of = [b for a, b in zip(source, target, strict=True) if a == v] or onward
            for u in of:
                one[frozenset([v, u])] += 1 / len(of)  # type: ignore[assignment]
    total = sum(one.values())
    expected = union_law([(s, p / total) for s, p in one.items()])
    sampler = SAINTSampler(mode, (2, 1) if mode == "walk" else 2)
    found: Counter[tuple[int, ...]] = Counter()
    for sub in DataLoader(g, torch.arange(4000), sampler, seed=1):
        found[tuple(sub.ndata[dgl.NID].tolist())] += 1
    assert {*found} <= {*expected}
    counts = np.array([found[s] for s in expected])
    assert p_expected(counts, np.array([*expected.values()])) > LEVEL


def test_saint_asks_each_graph_anew(dgl: Any) -> None:
    one, two = uneven(dgl), random_graph(dgl, 6, 20)
    for cache in (True, False):
        sampler = SAINTSampler("node", 50, cache=cache)
        dgl.seed(1)
        alone = sampler.sample(two, None).ndata[dgl.NID]
        sampler.sample(one, None)
        dgl.seed(1)
        assert torch.equal(sampler.sample(two, None).ndata[dgl.NID], alone)


@needs_metis
@pytest.mark.parametrize("options", [{}, {"mode": "recursive"}, {"balance_edges": True}])
def test_clusters_are_parts_of_the_graph(dgl: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    g, path = random_graph(dgl), tmp_path / "parts"
    sampler = ClusterGCNSampler(g, 10, str(path), **options)
    again = ClusterGCNSampler(g, 10, str(path), **options)
    assert torch.equal(sampler.partition_node_ids, again.partition_node_ids)
    assert sorted(sampler.partition_node_ids.tolist()) == list(range(60))
    offset, seen = sampler.partition_offset, []
    order = DataLoader(g, torch.arange(10), sampler, batch_size=4)
    for i, sub in enumerate(order):
        nodes = sampler.partition_node_ids[offset[4 * i] : offset[min(4 * i + 4, 10)]]
        check_subgraph(dgl, g, sub, nodes)
        seen += nodes.tolist()
    assert sorted(seen) == list(range(60))


def test_files_of_others_are_refused(dgl: Any, tmp_path: Path) -> None:
    g, path = random_graph(dgl), tmp_path / "parts"
    path.write_bytes(pickle.dumps((torch.arange(11), torch.arange(60))))
    with pytest.raises(dgl.DGLError, match="holds no parts that ClusterGCNSampler has written"):
        ClusterGCNSampler(g, 10, str(path))
    torch.save((torch.arange(0, 61, 6), torch.arange(60)), path)
    with pytest.raises(ValueError, match="holds 10 parts of 60 nodes, not 9 of 60; remove"):
        ClusterGCNSampler(g, 9, str(path))
    sampler = ClusterGCNSampler(g, 10, str(path))
    with pytest.raises(ValueError, match="partition_ids holds 10; valid ids are 0 to 9"):
        sampler.sample(g, torch.tensor([1, 10]))


def test_parts_of_other_edges_are_refused(dgl: Any, tmp_path: Path) -> None:
    pytest.importorskip("pymetis")
    g, path = random_graph(dgl), tmp_path / "parts"
    ClusterGCNSampler(g, 10, str(path))
    with pytest.raises(dgl.DGLError, match="holds parts that are of other edges; remove"):
        ClusterGCNSampler(random_graph(dgl, seed=2), 10, str(path))
    with pytest.raises(ValueError, match="holds parts that are made with mode='k-way'; remove"):
        ClusterGCNSampler(g, 10, str(path), mode="recursive")
    with pytest.raises(ValueError, match="holds parts that are made with balance_edges=False; remove"):
        ClusterGCNSampler(g, 10, str(path), balance_edges=True)
    torch.save(torch.load(path)[:2], path)  # as releases before wrote it
    ClusterGCNSampler(g, 10, str(path), mode="recursive")


def test_ended_processes_leave_no_half_parts(dgl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymetis")

    def half(_: Any, file: Any) -> None:
        file.write(b"PK")
        assert not (tmp_path / "parts").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(KeyboardInterrupt):
        ClusterGCNSampler(random_graph(dgl), 4, str(tmp_path / "parts"))
    assert not list(tmp_path.iterdir())


def test_parts_without_a_folder_are_refused(dgl: Any, tmp_path: Path) -> None:
    with pytest.raises(
        dgl.DGLError, match=r"cache_path needs the folder .*/no, which is not there; make it, or give a"
    ):
        ClusterGCNSampler(random_graph(dgl), 4, str(tmp_path / "no" / "parts"))


def test_fanouts_that_are_written_to_are_seen(dgl: Any) -> None:
    g = random_graph(dgl)
    sampler = ShaDowKHopSampler([1])
    few = sampler.sample(g, torch.arange(3))[0].numel()
    sampler.fanouts[0] = -1
    assert sampler.sample(g, torch.arange(3))[0].numel() > few


def test_without_metis_an_error_says_what_to_install(dgl: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"ClusterGCNSampler needs the package pymetis; pip install 'gnn-loader\[m"):
        ClusterGCNSampler(random_graph(dgl), 4, str(tmp_path / "parts"))


def test_wrong_arguments_are_refused(dgl: Any, tmp_path: Path) -> None:
    g, typed = random_graph(dgl), typed_graph(dgl)
    with pytest.raises(dgl.DGLError, match="mode is 'any'; it must be one of node, edge, walk"):
        SAINTSampler("any", 3)
    with pytest.raises(TypeError, match=r"budget is 3; with mode 'walk' it must be \(walks, steps\)"):
        SAINTSampler("walk", 3)
    with pytest.raises(ValueError, match="budget is 0"):
        SAINTSampler("node", 0)
    with pytest.raises(ValueError, match="SAINTSampler takes a graph of one type"):
        SAINTSampler("node", 3).sample(typed, None)
    with pytest.raises(ValueError, match="seed_nodes has 2 nodes, and some of them twice"):
        ShaDowKHopSampler([2]).sample(g, torch.tensor([3, 3]))
    with pytest.raises(ValueError, match="fanout"):
        ShaDowKHopSampler([-3])
    with pytest.raises(NotImplementedError, match="balance_ntypes"):
        ClusterGCNSampler(g, 3, str(tmp_path / "parts"), balance_ntypes=torch.zeros(60))
    with pytest.raises(ValueError, match="mode is 'ways'; it must be 'k-way' or 'recursive'"):
        ClusterGCNSampler(g, 3, str(tmp_path / "parts"), mode="ways")
    with pytest.raises(ValueError, match="ClusterGCNSampler takes a graph of one type"):
        ClusterGCNSampler(typed, 3, str(tmp_path / "parts"))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.integers(0, 40), st.integers(0, 99), st.data())
def test_induced_graphs_are_dgls(num_nodes: int, num_edges: int, seed: int, data: Any) -> None:
    from loader.dgl.subgraphs import induced

    dgl = import_dgl("this test")
    g = random_graph(dgl, num_nodes, num_edges, seed)
    nodes = torch.tensor(data.draw(st.lists(st.integers(0, num_nodes - 1), unique=True))).long()
    check_subgraph(dgl, g, induced(g, nodes), nodes)
