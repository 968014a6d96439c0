"""Graphs with one named type, and blocks without some edges."""

import gc

import pytest
import torch
from dgl_edges import edges_by_ids
from marks import needs_dgl

import loader.dgl as ours
from loader import FusedSampler, Graph
from loader.dgl import graphs
from loader.dgl.graphs import graph_of, without_edges

pytestmark = [needs_dgl, pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")]

ETYPE = ("u", "r", "u")


@pytest.fixture
def named(g):
    """A graph whose one type has names."""
    import dgl

    made = dgl.heterograph({ETYPE: g.edges()}, {"u": g.num_nodes()}, idtype=g.idtype)
    for name in ("feat", "label"):
        made.ndata[name] = g.ndata[name]
    made.edata["kind"] = g.edata["kind"]
    return made


class Own(ours.NeighborSampler):
    """One whose method has to be called."""

    def sample_blocks(self, *args, **options):
        return super().sample_blocks(*args, **options)


class OwnNegatives(ours.negative_sampler.Uniform):
    """One whose method has to be called."""

    def _generate(self, *args):
        return super()._generate(*args)


def shape_of(value):
    """How a mini-batch is built: types of graphs, keys of dicts, names of features; without values."""
    if isinstance(value, torch.Tensor):
        return value.dtype
    if isinstance(value, dict):
        return {key: shape_of(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [shape_of(each) for each in value]
    data = value.srcdata, value.dstdata, value.edata
    names = [sorted(each) for each in data]
    return value.is_block, value.canonical_etypes, value.srctypes, value.dsttypes, value.idtype, names


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_mini_batches_are_shaped_as_dgls(named, typed, own):
    import dgl

    seeds = torch.arange(0, 60, 3, dtype=named.idtype)
    shapes, edges = [], []
    for package in (ours, dgl.dataloading):
        options = {"prefetch_node_feats": {"u": ["feat"]}, "prefetch_edge_feats": {"r": ["kind"]}} if typed else {}
        kind = Own if own and package is ours else package.NeighborSampler
        sampler = kind([{ETYPE: -1}, {"r": -1}] if typed else [-1, -1], fused=False, **options)
        made = list(package.DataLoader(named, {"u": seeds} if typed else seeds, sampler, batch_size=7))
        shapes.append(shape_of(made))
        edges.append([[edges_by_ids(block) for block in blocks] for *_, blocks in made])
        for (inputs, outputs, blocks), part in zip(made, seeds.split(7), strict=True):
            assert torch.equal(outputs["u"] if typed else outputs, part)
            assert torch.equal(blocks[0].srcdata["feat"], named.ndata["feat"][inputs.long()])
    assert shapes[0] == shapes[1]
    assert edges[0] == edges[1]


@pytest.mark.parametrize("given", ["ids", "short", "full"])
@pytest.mark.parametrize("negatives", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_batches_of_edges_are_shaped_as_dgls(named, given, negatives, own):
    import dgl

    ids = torch.arange(0, 300, 4, dtype=named.idtype)
    shapes = []
    for package in (ours, dgl.dataloading):
        drawn = OwnNegatives(2) if own and package is ours else package.negative_sampler.Uniform(2)
        sampler = package.as_edge_prediction_sampler(
            package.NeighborSampler([2], fused=False),
            negative_sampler=drawn if negatives else None,
            prefetch_labels={ETYPE: ["kind"]},
        )
        indices = {"ids": ids, "short": {"r": ids}, "full": {ETYPE: ids}}[given]
        made = list(package.DataLoader(named, indices, sampler, batch_size=20))
        shapes.append(shape_of(made))
        for _, pairs, *_ in made:
            sources, targets = (pairs.ndata["_ID"][end.long()] for end in pairs.edges())
            want = named.find_edges(pairs.edata["_ID"])
            assert torch.equal(torch.stack([sources, targets]), torch.stack(want))
            assert torch.equal(pairs.edata["kind"], pairs.edata["_ID"].long())
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("key", ["r", ETYPE])
def test_own_negatives_get_edges_by_full_type(named, key):
    seen = []

    def drawn(g, eids):
        seen.append(eids)
        return {kind: g.find_edges(ids, etype=kind) for kind, ids in eids.items()}

    sampler = ours.as_edge_prediction_sampler(
        ours.NeighborSampler([2]), exclude=lambda eids: seen.append(eids), negative_sampler=drawn
    )
    ids = torch.arange(20, dtype=named.idtype)
    for _, pairs, negative, _ in ours.DataLoader(named, {key: ids}, sampler, batch_size=20):
        assert [end.tolist() for end in negative.edges()] == [end.tolist() for end in pairs.edges()]
    assert [[(kind, found.tolist()) for kind, found in each.items()] for each in seen] == [[(ETYPE, ids.tolist())]] * 2


def test_layers_by_type_find_their_edges(named):
    from dgl.nn.pytorch import GraphConv, HeteroGraphConv

    layer = HeteroGraphConv({"r": GraphConv(3, 2, allow_zero_in_degree=True)})
    for _, outputs, (block,) in ours.DataLoader(named, torch.arange(20), ours.NeighborSampler([3]), batch_size=8):
        found = layer(block, {"u": block.srcdata["feat"]})
        assert found["u"].shape == (len(outputs), 2)


@pytest.mark.parametrize("typed", [False, True])
def test_reverse_ids_may_have_a_type(both, typed):
    import dgl

    g, back = both
    g = dgl.heterograph({ETYPE: g.edges()}, {"u": g.num_nodes()})
    sampler = ours.as_edge_prediction_sampler(
        ours.NeighborSampler([-1]), "reverse_id", reverse_eids={ETYPE: back} if typed else back
    )
    for _, pairs, (block,) in ours.DataLoader(g, {"r": torch.arange(40)}, sampler, batch_size=8):
        own = pairs.edata["_ID"]
        assert not torch.isin(block.edata["_ID"], torch.cat([own, back[own]])).any()


def test_other_types_are_refused(named):

    seeds, sampler = torch.arange(5), ours.NeighborSampler([2])
    for make, error, message in (
        (
            lambda: ours.DataLoader(named, {"v": seeds}, sampler),
            ValueError,
            "indices is of type 'v'; the graph has .*'u'",
        ),
        (
            lambda: ours.DataLoader(named, {"r": seeds}, sampler),
            ValueError,
            "indices is of type 'r'; the graph has the type 'u'",
        ),
        (
            lambda: ours.DataLoader(named, {"u": seeds}, ours.as_edge_prediction_sampler(sampler)),
            ValueError,
            "indices is of type 'u'; the graph has the type .*'r'",
        ),
    ):
        with pytest.raises(error, match=message):
            make()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_left_out_edges_lead_nowhere(random_graph, share):
    graph: Graph = random_graph(200, 900)
    seeds = torch.tensor([5, 150, 7, 33, 90])
    batch = FusedSampler([4, 3, 2], edge_ids=True, num_threads=1).sample(graph, seeds)
    gone = torch.rand(900, generator=torch.Generator().manual_seed(0)) < share
    made = without_edges(batch, gone.nonzero().view(-1))
    if share == 0:
        assert made.digest() == batch.digest()
    reached = seeds.tolist()
    for hop, (block, whole) in enumerate(zip(reversed(made.blocks), reversed(batch.blocks), strict=True)):
        rows = {}
        for i, v in enumerate(batch.nodes[: whole.num_dst].tolist()):
            edges = range(int(whole.indptr[i]), int(whole.indptr[i + 1]))
            kept = [(int(batch.nodes[whole.indices[e]]), int(whole.edge_ids[e])) for e in edges]
            rows[v] = [(u, e) for u, e in kept if not gone[e]]
        assert made.nodes[: block.num_dst].tolist() == reached
        for i, v in enumerate(reached):
            edges = slice(int(block.indptr[i]), int(block.indptr[i + 1]))
            sources = made.nodes[block.indices[edges].long()].tolist()
            assert list(zip(sources, block.edge_ids[edges].tolist(), strict=True)) == rows[v]
        new = {u for v in reached for u, _ in rows[v]} - set(reached)
        reached = reached + sorted(new)
        assert made.frontier_sizes[hop + 1] == block.num_src == len(reached)
    assert made.nodes.tolist() == reached


def test_weights_belong_to_their_name_and_relation():
    import dgl

    ends, weights, cpu = torch.tensor([0, 1]), torch.tensor([2.0, 3.0]), torch.device("cpu")
    ab, cb = ("a", "x", "b"), ("c", "y", "b")
    g = dgl.heterograph({ab: (ends, ends), cb: (ends, ends)})
    g.edges[ab].data["p"] = g.edges[cb].data["q"] = weights
    for prob, key in (("p", ab), ("q", cb), ("p", ab)):
        made = graph_of(g, prob, cpu)
        for each in (ab, cb):
            expected = weights if each == key else torch.ones(2)
            assert made.relation(each).edge_weights.tolist() == expected.tolist()
    g.edges[ab].data["q"] = g.edges[cb].data.pop("q")
    assert graph_of(g, "q", cpu).relation(ab).edge_weights.tolist() == weights.tolist()
    assert graph_of(g, "q", cpu) is graph_of(g.local_var(), "q", cpu)  # loaders of one graph share it


def test_a_graph_is_made_anew_for_other_edges():
    import dgl

    weights, made = torch.ones(1), []
    for names in (("a", "r", "b"), ("a", "s", "b")):
        g = dgl.heterograph({names: ([0], [0])}, {"a": 2, "b": 1})
        g.edata["w"] = weights
        made.append(graph_of(g, "w", torch.device("cpu")))
        assert list(made[-1].edge_types) == [names]
    other = dgl.DGLGraph(g._graph, ["a", "b"], ["t"])  # the same edges by another name
    assert list(graph_of(other, None, torch.device("cpu")).edge_types) == [("a", "t", "b")]
    assert list(graph_of(g, None, torch.device("cpu")).edge_types) == [("a", "s", "b")]


def test_a_graph_goes_with_dgls():
    import dgl

    gc.collect()  # those of other tests
    before, weights = len(graphs._graphs), torch.ones(1)
    for prob in (None, "w"):
        g = dgl.graph(([0], [1]))
        g.edata["w"] = weights
        made = graph_of(g, prob, torch.device("cpu"))
        assert len(graphs._graphs) == before + 1
        assert made.num_edges == 1
        del g
        gc.collect()
        assert len(graphs._graphs) == before
