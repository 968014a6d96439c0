"""torch_geometric's operators on our core, beside its walk through the picks of `HopwiseSampler`."""

import gc
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

import loader.pyg
from loader import Graph, HopwiseSampler, _core
from loader.pyg import checked_graphs

pytestmark = pytest.mark.skipif(loader.pyg.backend() != "loader", reason="pyg-lib or torch-sparse is installed")


def graph_of(seed, num_nodes=60, num_edges=400):
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(num_nodes, (num_edges,), generator=generator)
    return Graph.from_edges(src, torch.randint(num_nodes, (num_edges,), generator=generator), num_nodes)


def sample(graph, seeds, fanouts, *, dtype=torch.int64, draw=0, csc=True, replace=False, edge_ids=True):
    torch.manual_seed(draw)
    return torch.ops.pyg.neighbor_sample(
        graph.indptr.to(dtype),
        graph.indices.to(dtype),
        seeds.to(dtype),
        fanouts,
        None,
        None,
        None,
        None,
        csc,
        replace,
        True,
        False,
        "uniform",
        edge_ids,
    )


def drawn(draw):
    """What the operator draws from torch's generator."""
    torch.manual_seed(draw)
    return int(torch.empty((), dtype=torch.int64).random_())


def expected(graph, seeds, fanouts, draw, replace=False):
    sampler = HopwiseSampler(fanouts, replace=replace, edge_ids=True, seed=drawn(draw))
    return sampler.sample(graph, seeds).to_pyg()


def assert_same(out, data, dtype=torch.int64):
    row, col, nodes, ids, counts, edges = out
    assert row.dtype == col.dtype == nodes.dtype == ids.dtype == dtype
    assert torch.equal(torch.stack([row, col]).long(), data.edge_index)
    assert torch.equal(nodes.long(), data.n_id)
    assert torch.equal(ids.long(), data.e_id)
    assert counts == data.num_sampled_nodes
    assert edges == data.num_sampled_edges


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**20),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 5, 30]), min_size=1, max_size=4),
    replace=st.booleans(),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    num_seeds=st.integers(0, 60),
)
def test_neighbor_sample_gives_our_mini_batch(seed, fanouts, replace, dtype, num_seeds):
    graph = graph_of(seed)
    seeds = torch.randperm(60, generator=torch.Generator().manual_seed(seed))[:num_seeds]
    if num_seeds == 0:
        row, _, nodes, _, counts, edges = sample(graph, seeds, fanouts, dtype=dtype)
        assert row.numel() == nodes.numel() == 0
        assert counts == [0] * (len(fanouts) + 1)
        assert edges == [0] * len(fanouts)
        return
    out = sample(graph, seeds, fanouts, dtype=dtype, draw=seed, replace=replace)
    assert_same(out, expected(graph, seeds, fanouts, seed, replace), dtype)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("fanouts", [[15, 10], [-1, 3, 2]])
def test_any_number_of_threads_gives_the_same(threads, fanouts):
    graph = graph_of(3, num_nodes=20_000, num_edges=300_000)
    seeds = torch.arange(0, 20_000, 23)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        out = sample(graph, seeds, fanouts, draw=7)
    finally:
        torch.set_num_threads(before)
    assert_same(out, expected(graph, seeds, fanouts, 7))


def test_fanout_zero_and_no_hops_are_allowed():
    graph = graph_of(2)
    row, col, nodes, ids, counts, edges = sample(graph, torch.tensor([5, 9]), [0])
    assert (row.numel(), col.numel(), nodes.tolist(), ids.numel()) == (0, 0, [5, 9], 0)
    assert (counts, edges) == ([2, 0], [0])
    row, _, nodes, _, counts, edges = sample(graph, torch.tensor([5, 9, 5]), [])
    assert (row.numel(), nodes.tolist(), counts, edges) == (0, [5, 9, 5], [3], [])
    # A node's neighbors are picked at the hop after the one that met it, so nothing follows.
    assert sample(graph, torch.tensor([5, 9]), [0, 4])[5] == [0, 0]


def test_rows_and_columns_change_places_without_csc():
    graph, seeds = graph_of(4), torch.tensor([1, 2])
    row, col, *_ = sample(graph, seeds, [3], csc=True)
    other_row, other_col, *_ = sample(graph, seeds, [3], csc=False)
    assert torch.equal(row, other_col)
    assert torch.equal(col, other_row)


def test_edge_ids_are_omitted_if_not_wanted():
    assert sample(graph_of(4), torch.tensor([1, 2]), [3], edge_ids=False)[3] is None


def test_large_fanouts_may_take_all_of_short_lists():
    graph = graph_of(4)
    whole = sample(graph, torch.tensor([1, 2]), [-1])
    assert torch.equal(sample(graph, torch.tensor([1, 2]), [5000])[3], whole[3])
    with pytest.raises(ValueError, match="holds 5000; picks are possible up to 1024, and -1 takes all"):
        sample(graph, torch.tensor([1, 2]), [5000], replace=True)
    with pytest.raises(ValueError, match="33 entries; up to 32 are possible"):
        sample(graph, torch.tensor([1]), [1] * 33)


def test_torchs_seed_decides_the_sample():
    graph, seeds = graph_of(6), torch.arange(20)
    first, again, other = (sample(graph, seeds, [2, 2], draw=d) for d in (1, 1, 2))
    assert torch.equal(first[3], again[3])
    assert not torch.equal(first[3], other[3])


def test_induced_subgraphs_are_refused():
    graph = graph_of(0)
    with pytest.raises(NotImplementedError, match="leave directed at its default"):
        torch.ops.pyg.neighbor_sample(
            graph.indptr, graph.indices, torch.tensor([1], dtype=torch.int32), [2], directed=False
        )


def test_trees_know_nothing_later_than_their_seeds():
    graph = graph_of(3)
    times = torch.randperm(graph.num_nodes)
    seeds = torch.tensor([5, 5, 7], dtype=torch.int32)
    at = torch.tensor([10, 40, 30])
    row, col, nodes, edges, num_nodes, num_edges = torch.ops.pyg.neighbor_sample(
        graph.indptr, graph.indices, seeds, [-1, 3], node_time=times, seed_time=at, csc=True, disjoint=True
    )
    tree, ids = nodes.t()
    assert nodes[:3].tolist() == [[0, 5], [1, 5], [2, 7]]
    assert nodes.dtype == row.dtype == torch.int32
    assert torch.equal(tree[row], tree[col])
    assert bool((times[ids[row]] <= at[tree[row]]).all())
    assert torch.equal(graph.indices[edges.long()], ids[row])
    assert (sum(num_nodes), sum(num_edges)) == (nodes.shape[0], edges.numel())
    first = col < 3
    for i, v in enumerate(seeds.tolist()):
        begin, end = graph.indptr[v : v + 2].tolist()
        seen = [e for e in range(begin, end) if times[graph.indices[e]] <= at[i]]
        assert sorted(edges[first][col[first] == i].tolist()) == seen


def weighted(graph, weights, seeds, fanouts, *, dtype=torch.int64, draw=0, replace=False):
    torch.manual_seed(draw)
    arrays = graph.indptr.to(dtype), graph.indices.to(dtype), seeds.to(dtype)
    return torch.ops.pyg.neighbor_sample(*arrays, fanouts, edge_weight=weights, csc=True, replace=replace)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**20),
    fanouts=st.lists(st.sampled_from([-1, 1, 2, 5, 30]), min_size=1, max_size=3),
    replace=st.booleans(),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    kind=st.sampled_from([torch.float32, torch.float64]),
    zeros=st.sampled_from([0.0, 0.5, 0.95]),
)
def test_weighted_picks_are_those_of_a_mini_batch(seed, fanouts, replace, dtype, kind, zeros):
    generator = torch.Generator().manual_seed(seed)
    plain = graph_of(seed)
    weights = torch.rand(400, generator=generator, dtype=kind) * (torch.rand(400, generator=generator) >= zeros)
    seeds = torch.randperm(60, generator=generator)[:20]
    out = weighted(plain, weights, seeds, fanouts, dtype=dtype, draw=seed, replace=replace)
    graph = Graph(plain.indptr, plain.indices, edge_weights=weights)
    sampler = HopwiseSampler(fanouts, replace=replace, edge_ids=True, seed=drawn(seed), weights="edge_weights")
    assert_same(out, sampler.sample(graph, seeds).to_pyg(), dtype)
    assert bool((weights[out[3].long()] > 0).all())


def test_written_weights_are_looked_at_again():
    graph, weights, seeds = graph_of(5), torch.ones(400), torch.arange(60)
    arrays = graph.indptr, graph.indices, seeds.int(), [-1]
    assert torch.ops.pyg.neighbor_sample(*arrays, edge_weight=weights)[3].numel() == 400
    weights[7:] = 0
    assert torch.ops.pyg.neighbor_sample(*arrays, edge_weight=weights)[3].tolist() == list(range(7))
    assert torch.ops.pyg.neighbor_sample(*arrays)[3].numel() == 400
    weights[3] = -1
    with pytest.raises(ValueError, match=r"edge_weights\[3\], of the edge .* is -1.0; a weight must be finite"):
        torch.ops.pyg.neighbor_sample(*arrays, edge_weight=weights)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (torch.ones(399), ValueError, "edge_weight has 399 entries, col has 400"),
        (torch.ones(400, dtype=torch.int64), TypeError, "it must be float32 or float64"),
        (torch.ones(800)[::2], ValueError, "edge_weight is not contiguous"),
    ],
)
def test_bad_weights_are_refused(weights, error, message):
    with pytest.raises(error, match=message):
        weighted(graph_of(0), weights, torch.tensor([1]), [2])


def test_picks_that_need_scans_are_refused():
    graph = graph_of(0)
    with pytest.raises(TypeError, match="picks is a Race; it must be WeightTables, WeightOrder or None"):
        _core.SubgraphSampler(graph.indptr, graph.indices, 1, _core.Race(torch.ones(400)))


def test_torch_geometrics_loader_picks_by_weight():
    data = ring()
    data.w = torch.zeros(data.num_edges)
    data.w[::3] = torch.rand(data.w[::3].numel()) + 0.1
    met = []
    for batch in NeighborLoader(data, [2, 2], batch_size=8, weight_attr="w"):
        assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
        met += batch.e_id.tolist()
    assert met
    assert all(edge % 3 == 0 for edge in met)


@pytest.mark.parametrize(
    ("rowptr", "col", "seed", "message"),
    [
        ([0, 1, 2], [0, 2], [0], r"col \(indices\) are no graph: indices holds node 2"),
        ([0, 2, 1], [0], [0], "not monotone"),
        ([0, 1, 1], [0], [2], "seeds holds node 2; valid ids are 0 to 1"),
        ([0, 1, 1], [0], [-1, -1], "seeds holds node -1"),
    ],
)
def test_bad_arrays_are_refused(rowptr, col, seed, message):
    arrays = [torch.tensor(a) for a in (rowptr, col, seed)]
    with pytest.raises(ValueError, match=message):
        torch.ops.pyg.neighbor_sample(*arrays, [1])
    with pytest.raises(ValueError, match=message):
        torch.ops.torch_sparse.neighbor_sample(*arrays, [1], False, False)


def test_mixed_types_are_refused():
    with pytest.raises(TypeError, match="both be int32 or int64"):
        torch.ops.pyg.neighbor_sample(
            torch.tensor([0, 1]), torch.tensor([0], dtype=torch.int32), torch.tensor([0]), [1]
        )
    with pytest.raises(ValueError, match=r"must have 1 dimension and torch.int64, as rowptr"):
        torch.ops.pyg.neighbor_sample(
            torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([0], dtype=torch.int32), [1]
        )


def test_only_a_changed_graph_is_checked_again(monkeypatch):
    checks = []
    check = checked_graphs._check
    monkeypatch.setattr(checked_graphs, "_check", lambda *arrays: checks.append(1) or check(*arrays))
    rowptr, col, seed = torch.tensor([0, 1, 2]), torch.tensor([1, 0]), torch.tensor([0])
    for _ in range(3):
        torch.ops.pyg.neighbor_sample(rowptr, col, seed, [1])
    assert len(checks) == 1
    col[0] = 5
    with pytest.raises(ValueError, match="holds node 5"):
        torch.ops.pyg.neighbor_sample(rowptr, col, seed, [1])


def test_a_kept_graph_goes_with_its_tensors():
    rowptr, col = torch.tensor([0, 1, 2]), torch.tensor([1, 0])
    torch.ops.pyg.neighbor_sample(rowptr, col, torch.tensor([0]), [1])
    key = id(rowptr), id(col)
    assert key in checked_graphs._checked
    del col
    gc.collect()
    assert key not in checked_graphs._checked


@pytest.mark.parametrize("forked", [False, True])
def test_huge_pages_are_asked_for_by_parents(monkeypatch, forked):
    asked = []
    monkeypatch.setattr(checked_graphs, "use_huge_pages", asked.append)
    monkeypatch.setattr(checked_graphs, "_PROCESS", -1 if forked else os.getpid())
    rowptr, col = torch.tensor([0, 1, 2]), torch.tensor([1, 0])
    for _ in range(2):
        torch.ops.pyg.neighbor_sample(rowptr, col, torch.tensor([0]), [1])
    assert [array.data_ptr() for array in asked] == ([] if forked else [rowptr.data_ptr(), col.data_ptr()])


def test_few_graphs_are_kept():
    graphs = [(torch.tensor([0, 1]), torch.tensor([0])) for _ in range(20)]
    for rowptr, col in graphs:
        torch.ops.pyg.neighbor_sample(rowptr, col, torch.tensor([0]), [1])
    assert len(checked_graphs._checked) <= checked_graphs._MOST


@pytest.mark.parametrize("seeds", [[4, 8, 15], [4, 8, 4], [16]])
def test_an_induced_subgraph_has_all_its_edges(seeds):
    graph = graph_of(8, num_nodes=30, num_edges=200)
    indptr, indices, seed = graph.indptr.long(), graph.indices.long(), torch.tensor(seeds)
    torch.manual_seed(3)
    nodes, row, col, ids = torch.ops.torch_sparse.neighbor_sample(indptr, indices, seed, [2, 2], False, False)
    torch.manual_seed(3)
    directed = torch.ops.torch_sparse.neighbor_sample(indptr, indices, seed, [2, 2], False, True)
    assert torch.equal(nodes, directed[0])
    wanted, first = [], {}
    for place, v in enumerate(nodes.tolist()):
        first.setdefault(v, place)
    for target, v in enumerate(nodes.tolist()):
        places = range(int(indptr[v]), int(indptr[v + 1]))
        wanted += [(first[int(indices[at])], target, at) for at in places if int(indices[at]) in first]
    assert list(zip(row.tolist(), col.tolist(), ids.tolist(), strict=True)) == wanted


@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
def test_weights_count_or_are_refused(subgraph_type):
    edge_index = torch.stack([torch.arange(1, 11), torch.zeros(10, dtype=torch.int64)])
    data = Data(num_nodes=11, edge_index=edge_index, w=torch.eye(10)[4])
    options = {"input_nodes": torch.tensor([0]), "subgraph_type": subgraph_type}
    if subgraph_type == "induced":
        with pytest.raises(NotImplementedError, match="torch_geometric does not hand the weights on"):
            NeighborLoader(data, [3], weight_attr="w", **options)
        assert next(iter(NeighborLoader(data, [3], **options))).num_nodes == 4
    else:
        assert next(iter(NeighborLoader(data, [3], weight_attr="w", **options))).n_id.tolist() == [0, 5]


def ring(num_nodes=64):
    ids = torch.arange(num_nodes)
    edge_index = torch.cat([torch.stack([ids, (ids + k) % num_nodes]) for k in range(1, 9)], 1)
    return Data(x=ids.float().view(-1, 1), edge_index=edge_index, num_nodes=num_nodes)


@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
def test_torch_geometrics_loader_works_in_forked_workers(subgraph_type):
    data = ring()
    next(iter(NeighborLoader(data, [3, 2], batch_size=8)))  # the parent has sampled, in several threads

    def epoch():
        torch.manual_seed(11)
        loader = NeighborLoader(data, [3, 2], batch_size=8, num_workers=2, subgraph_type=subgraph_type)
        return list(loader)

    first, again = epoch(), epoch()
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a.e_id, b.e_id)
        assert torch.equal(a.x.view(-1).long(), a.n_id)
        if subgraph_type != "bidirectional":  # else some edges are turned round
            assert torch.equal(data.edge_index[:, a.e_id], a.n_id[a.edge_index])


def test_workers_draw_different_numbers():
    data = Data(edge_index=torch.stack([torch.arange(1, 2001), torch.zeros(2000, dtype=torch.int64)]), num_nodes=2001)
    torch.manual_seed(0)
    loader = NeighborLoader(data, [20], input_nodes=torch.zeros(4, dtype=torch.int64), batch_size=1, num_workers=2)
    assert len({tuple(batch.n_id.tolist()) for batch in loader}) == 4


def test_torch_geometric_does_not_see_pyg_lib():
    import torch_geometric.typing

    assert not torch_geometric.typing.WITH_PYG_LIB
    assert not torch_geometric.typing.WITH_TORCH_SPARSE
    loader.pyg.install()  # a second time changes nothing
    assert loader.pyg.backend() == "loader"


def test_walks_are_ours_and_stay_at_their_end():
    rowptr, col = torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0])  # nothing leads away from node 2
    seeds = torch.tensor([0, 1, 2, 0] * 50)
    torch.manual_seed(4)
    walks = torch.ops.pyg.random_walk(rowptr, col, seeds, 6, 0.5, 2.0)
    ours = loader.random_walk(Graph(rowptr, col), seeds, 6, p=0.5, q=2.0, seed=drawn(4))
    assert walks.dtype == torch.int64
    assert walks.shape == (200, 7)
    for walk, want in zip(walks.tolist(), ours.tolist(), strict=True):
        last = [v for v in want if v >= 0]
        assert walk == last + [last[-1]] * (7 - len(last))
    assert bool((ours < 0).any())


def test_torch_geometrics_walks_use_our_core():
    from torch_geometric.nn import Node2Vec
    from torch_geometric.utils import dropout_path

    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    model = Node2Vec(edge_index, 8, walk_length=4, context_size=2, p=0.5, q=2.0)
    positive, negative = model.sample(torch.arange(3))
    assert float(model.loss(positive, negative).detach()) > 0
    steps = set(map(tuple, positive.tolist()))
    assert steps <= set(map(tuple, edge_index.t().tolist()))
    left, mask = dropout_path(edge_index, p=1.0)
    assert left.shape[1] == int(mask.sum()) < 4
