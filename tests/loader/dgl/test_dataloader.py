"""DGL's signatures over our pipeline, beside DGL itself."""

import copy
import pickle

import pytest
import torch
from dgl_edges import edges_by_ids
from marks import HAS_GPU, needs_dgl

pytestmark = needs_dgl

NUM_NODES, NUM_EDGES = 60, 300


@pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")
def test_with_all_neighbors_blocks_hold_dgls_edges(g):
    import dgl

    import loader.dgl as ours

    seeds = torch.arange(0, NUM_NODES, 3, dtype=g.idtype)
    mine = ours.DataLoader(g, seeds, ours.MultiLayerFullNeighborSampler(2), batch_size=7)
    # DGL 1.1's fused call misses some nodes of a graph with 32-bit ids.
    theirs = dgl.dataloading.DataLoader(
        g, seeds, dgl.dataloading.MultiLayerFullNeighborSampler(2, fused=False), batch_size=7
    )
    assert len(mine) == len(theirs) == 3
    for (inputs, outputs, blocks), (their_inputs, their_outputs, their_blocks) in zip(mine, theirs, strict=True):
        assert inputs.dtype == outputs.dtype == g.idtype
        assert torch.equal(outputs, their_outputs)
        assert sorted(inputs.tolist()) == sorted(their_inputs.tolist())
        for block, their_block in zip(blocks, their_blocks, strict=True):
            assert block.idtype == their_block.idtype
            assert edges_by_ids(block) == edges_by_ids(their_block)


def test_a_gpu_cache_without_rows_is_none(g):
    import loader.dgl as ours

    base = {"batch_size": 20, "seed": 3}
    made = ours.DataLoader(g, torch.arange(40), ours.NeighborSampler([3]), gpu_cache={"node": {"feat": 0}}, **base)
    other = ours.DataLoader(g, torch.arange(40), ours.NeighborSampler([3]), **base)
    for (inputs, *_), (expected, *_) in zip(made, other, strict=True):
        assert torch.equal(inputs, expected)


@pytest.mark.parametrize("copied", ["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("edges", [False, True])
def test_a_copy_goes_on_where_its_original_is(g, copied, edges):
    import loader.dgl as ours

    def copy_of(made):
        return pickle.loads(pickle.dumps(made)) if copied == "pickle" else getattr(copy, copied)(made)

    sampler = ours.NeighborSampler([3, 2], prefetch_node_feats=["feat"])
    if edges:
        sampler = ours.as_edge_prediction_sampler(sampler, negative_sampler=ours.negative_sampler.Uniform(2))
    made = ours.DataLoader(g, torch.arange(NUM_NODES), sampler, batch_size=16, shuffle=True)
    fresh = copy_of(made)
    batches = iter(made)
    first = next(batches)[0].tolist()
    amid = copy_of(copy_of(made))
    rest = [batch[0].tolist() for batch in batches]
    assert [batch[0].tolist() for batch in amid] == rest
    assert [batch[0].tolist() for batch in fresh] == [first, *rest]
    for inputs, *_, blocks in amid:
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs.long()])


def test_graphs_of_lists_alone_work(g):
    import loader.dgl as ours

    def epoch(graph):
        sampler = ours.as_edge_prediction_sampler(ours.NeighborSampler([3, 2]))
        made = ours.DataLoader(graph, torch.arange(30), sampler, batch_size=16, shuffle=True, seed=4)
        return [(inputs.tolist(), [end.tolist() for end in pairs.edges()]) for inputs, pairs, _ in made]

    assert epoch(g.formats(["csc"])) == epoch(g.formats(["csr"])) == epoch(g)


def test_fanouts_are_counted_from_the_input(g):
    import loader.dgl as ours

    sampler = ours.NeighborSampler([7, 1])
    for _, _, blocks in ours.DataLoader(g, torch.arange(NUM_NODES), sampler, batch_size=20):
        assert int(blocks[0].in_degrees().max()) > 1
        assert int(blocks[0].in_degrees().max()) <= 7
        assert int(blocks[1].in_degrees().max()) == 1


@pytest.mark.parametrize("frame", ["ndata", "edata"])
def test_prefetched_features_that_need_gradients_are_refused(g, frame):
    import loader.dgl as ours

    kept = getattr(g, frame)
    option = {"ndata": "prefetch_node_feats", "edata": "prefetch_edge_feats"}[frame]
    kept["learned"] = torch.rand(g.num_nodes() if frame == "ndata" else g.num_edges(), 2, requires_grad=True)
    sampler = ours.NeighborSampler([3], **{option: ["learned"]})
    with pytest.raises(ValueError, match=r"'learned' needs gradients, which rows that are prefetched do not give"):
        ours.DataLoader(g, torch.arange(60), sampler)
    whole = kept["learned"]
    kept["learned"] = whole.detach()
    made = ours.DataLoader(g, torch.arange(60), sampler)
    kept["learned"] = whole
    with pytest.raises(ValueError, match="'learned' needs gradients"):
        next(iter(made))
    _, _, (block,) = next(iter(ours.DataLoader(g, torch.arange(60), ours.NeighborSampler([3]), batch_size=60)))
    (block.srcdata if frame == "ndata" else block.edata)["learned"].sum().backward()
    assert whole.grad is not None
    assert whole.grad.any()


def test_prefetched_features_are_there(g):
    import dgl

    import loader.dgl as ours

    sampler = ours.NeighborSampler(
        [3, 2], prefetch_node_feats=["feat", "more"], prefetch_labels=["label"], prefetch_edge_feats=["weight", "kind"]
    )
    seen = []
    for inputs, outputs, blocks in ours.DataLoader(g, torch.arange(NUM_NODES), sampler, batch_size=16, shuffle=True):
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs.long()])
        assert torch.equal(blocks[0].srcdata["more"], inputs.long())
        assert torch.equal(blocks[-1].dstdata["label"], outputs.long() % 4)
        for block in blocks:
            assert torch.equal(block.edata["weight"], g.edata["weight"][block.edata[dgl.EID].long()])
            assert torch.equal(block.edata["kind"], block.edata[dgl.EID].long())
        seen += outputs.tolist()
    assert sorted(seen) == list(range(NUM_NODES))


@pytest.mark.parametrize("options", [{}, {"layer_dependency": True}, {"batch_dependency": 3}])
def test_labor_picks_are_those_of_our_sampler(g, options):
    import loader.dgl as ours
    from loader import Graph
    from loader.samplers import FusedSampler

    src, dst = g.edges()
    graph = Graph.from_edges(src.long(), dst.long(), NUM_NODES, keep_edge_ids=True)
    expected = FusedSampler([2, 4], labor=True, edge_ids=True, seed=5, **options)
    seeds = torch.arange(NUM_NODES)
    made = ours.DataLoader(g, seeds, ours.LaborSampler([4, 2], **options), batch_size=9, seed=5)
    for epoch in range(2):
        for i, (inputs, _, blocks) in enumerate(made):
            batch = expected.sample(graph, seeds[9 * i :][:9], epoch=epoch, batch=i)
            assert torch.equal(inputs.long(), batch.input_nodes.long())
            for block, our_block in zip(blocks, batch.blocks, strict=True):
                ids = [eid for *_, eid in edges_by_ids(block)]
                assert sorted(ids) == sorted(our_block.edge_ids.tolist())


@pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")
def test_labor_blocks_are_as_large_as_dgls(g):
    import dgl

    import loader.dgl as ours

    sizes = []
    for package in (ours, dgl.dataloading):
        sampler = package.LaborSampler([3, 2], layer_dependency=True)
        made = package.DataLoader(g, torch.arange(NUM_NODES, dtype=g.idtype), sampler, batch_size=20, shuffle=True)
        sizes.append(
            torch.tensor(
                [
                    [len(inputs), *(block.num_edges() for block in blocks)]
                    for _ in range(70)
                    for inputs, _, blocks in made
                ]
            ).double()
        )
    mine, theirs = sizes
    spread = (mine.var(0) / len(mine) + theirs.var(0) / len(theirs)).sqrt()
    assert ((mine.mean(0) - theirs.mean(0)).abs() < 5 * spread).all()


def test_labor_leaves_out_edges_of_the_mini_batch(both):
    import loader.dgl as ours

    g, back = both
    sampler = ours.as_edge_prediction_sampler(
        ours.LaborSampler([3, 3], prefetch_node_feats=["feat"]), exclude="reverse_id", reverse_eids=back
    )
    for inputs, pairs, blocks in ours.DataLoader(g, torch.arange(40), sampler, batch_size=8):
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs])
        own = set(pairs.edata["_ID"].tolist())
        own |= {int(back[edge]) for edge in own}
        for block in blocks:
            assert not own & set(block.edata["_ID"].tolist())


@pytest.mark.parametrize("exclude", [None, "self", "reverse_id"])
@pytest.mark.parametrize("negatives", [None, "ours", "dgls", "global"])
def test_batches_of_edges_have_negatives_without_leaks(both, exclude, negatives):
    import dgl

    import loader.dgl as ours

    g, back = both
    drawn = {
        None: None,
        "ours": ours.negative_sampler.Uniform(2),
        "dgls": dgl.dataloading.negative_sampler.Uniform(2),
        "global": ours.negative_sampler.GlobalUniform(2, replace=True),
    }[negatives]
    sampler = ours.as_edge_prediction_sampler(
        ours.NeighborSampler([3, -1], prefetch_node_feats=["feat"]),
        exclude=exclude,
        reverse_eids=back if exclude == "reverse_id" else None,
        negative_sampler=drawn,
        prefetch_labels=["kind"],
    )
    chosen = torch.arange(0, 600, 2)
    met, leaks = [], {"forth": 0, "back": 0}
    for inputs, pairs, *rest in ours.DataLoader(g, chosen, sampler, batch_size=64, shuffle=True):
        blocks = rest[-1]
        nodes = pairs.ndata[dgl.NID]
        src, dst = (nodes[end] for end in pairs.edges())
        ids = pairs.edata[dgl.EID]
        want = g.find_edges(ids)
        assert torch.equal(src, want[0])
        assert torch.equal(dst, want[1])
        assert torch.equal(pairs.edata["kind"], ids)
        assert torch.equal(blocks[-1].dstdata[dgl.NID], nodes)
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs])
        met += ids.tolist()
        if drawn is None:
            assert len(rest) == 1
        else:
            (negative, _) = rest
            assert torch.equal(negative.ndata[dgl.NID], nodes)
            assert negative.num_edges() == 2 * pairs.num_edges()
            heads, tails = (nodes[end] for end in negative.edges())
            if negatives == "global":
                assert not bool(g.has_edges_between(heads, tails).any())
            else:
                assert torch.equal(heads, src.repeat_interleave(2))
        asked = set(zip(src.tolist(), dst.tolist(), strict=True))
        for block in blocks:
            seen = {edge[:2] for edge in edges_by_ids(block)}
            leaks["forth"] += len(seen & asked)
            leaks["back"] += len(seen & {(v, u) for u, v in asked})
    assert sorted(met) == chosen.tolist()
    assert (leaks["forth"] > 0) == (exclude is None)
    assert (leaks["back"] > 0) == (exclude != "reverse_id")


def test_loaders_of_one_graph_share_it(g):
    import loader.dgl as ours

    made = [ours.DataLoader(g, torch.arange(5), ours.NeighborSampler([2])) for _ in range(2)]
    assert made[0].loader.graph is made[1].loader.graph
    g.add_edges(0, 1)
    assert ours.DataLoader(g, torch.arange(5), ours.NeighborSampler([2])).loader.graph.num_edges == NUM_EDGES + 1


def test_only_the_seed_decides_an_epoch(g):
    import loader.dgl as ours

    def epoch(**options):
        made = ours.DataLoader(
            g, torch.arange(NUM_NODES), ours.NeighborSampler([3, 2]), batch_size=16, shuffle=True, **options
        )
        return [inputs.tolist() for inputs, _, _ in made]

    assert epoch(seed=3) == epoch(seed=3, num_workers=2) != epoch(seed=4)


@pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")
@pytest.mark.parametrize("own", [False, True])
def test_torch_decides_the_order_and_dgl_picks(g, own):
    import dgl

    import loader.dgl as ours

    kind = ours.NeighborSampler
    if own:
        kind = type("Own", (kind,), {"sample": lambda self, *given: super(kind, self).sample(*given)})

    def epoch(order, picks):
        torch.manual_seed(order)
        dgl.seed(picks)
        nodes = torch.arange(NUM_NODES, dtype=g.idtype)
        made = ours.DataLoader(g, nodes, kind([3, 2]), batch_size=16, shuffle=True)
        again = pickle.loads(pickle.dumps(made)) if not own else made
        found = [(outputs.tolist(), [edges_by_ids(block) for block in blocks]) for _, outputs, blocks in again]
        return [outputs for outputs, _ in found], [blocks for _, blocks in found]

    first = epoch(1, 1)
    assert epoch(1, 1) == first
    assert epoch(1, 2)[0] == first[0]
    assert epoch(1, 2)[1] != first[1]
    assert epoch(2, 1)[0] != first[0]


def test_unsupported_options_are_refused(g):
    import loader.dgl as ours

    sampler, seeds = ours.NeighborSampler([2]), torch.arange(4)

    def reversed_by(back):
        return ours.DataLoader(g, seeds, ours.as_edge_prediction_sampler(sampler, "reverse_id", back))

    for make, error, message in (
        (lambda: ours.NeighborSampler([2], "in", "w", "m"), ValueError, "prob is 'w' and mask 'm'; give one of them"),
        (lambda: ours.NeighborSampler([2], mask=3), TypeError, "prob is 3; it must be the name of the weights, or of"),
        (lambda: ours.NeighborSampler("5"), TypeError, "fanouts is '5'; it must be a list of integers"),
        (lambda: ours.NeighborSampler(5), TypeError, "fanouts is 5; it must be a list of integers"),
        (lambda: ours.NeighborSampler([2], replace="no"), TypeError, "replace is 'no'; it must be True or False"),
        (
            lambda: ours.NeighborSampler([2], prefetch_labels="y"),
            TypeError,
            "prefetch_labels is 'y'; it must be a list",
        ),
        (lambda: ours.MultiLayerFullNeighborSampler(9), ValueError, "num_layers is 9; it must be at most 8"),
        (lambda: ours.as_edge_prediction_sampler(sampler, "reverse_id", [1]), TypeError, r"reverse_eids is \[1\]"),
        (lambda: ours.DataLoader([g], seeds, sampler), TypeError, "graph is a list; it must be a dgl.DGLGraph"),
        (lambda: ours.DataLoader(g, "all", sampler), TypeError, "indices is 'all'; it must be a tensor or a list"),
        (lambda: ours.NeighborSampler([0, 2]), ValueError, "fanout 0 is not possible: give 1 to 1024, or -1"),
        (
            lambda: ours.DataLoader(g, seeds, ours.NeighborSampler([{"a": 2, "b": 3}])),
            ValueError,
            r"fanouts is of the types \['a', 'b'\]; the graph has the type",
        ),
        (
            lambda: ours.DataLoader(g, seeds, ours.NeighborSampler([{"a": 2}])),
            ValueError,
            r"fanouts is of type 'a'; the graph has the type \('_N', '_E', '_N'\)",
        ),
        (
            lambda: ours.DataLoader(g, seeds, ours.NeighborSampler([2], prefetch_labels={"a": ["x"], "b": ["x"]})),
            ValueError,
            r"prefetch_labels is of the types \['a', 'b'\]; the graph has the type '_N'",
        ),
        (
            lambda: ours.DataLoader(g, seeds, ours.NeighborSampler([2], prefetch_labels={"a": ["x"]})),
            ValueError,
            "prefetch_labels is of type 'a'; the graph has the type '_N'",
        ),
        (lambda: ours.as_edge_prediction_sampler(sampler, exclude="all"), NotImplementedError, "exclude is 'all'"),
        (lambda: ours.as_edge_prediction_sampler(sampler, exclude="reverse_id"), ValueError, "needs reverse_eids"),
        (lambda: ours.as_edge_prediction_sampler(None), TypeError, "must be a NeighborSampler or LaborSampler of"),
        (lambda: ours.LaborSampler([2], edge_dir="out"), NotImplementedError, "does not know edge_dir='out'"),
        (lambda: ours.LaborSampler([2], prob=3), TypeError, "prob is 3; it must be the name of the weights"),
        (lambda: ours.LaborSampler([2], importance_sampling=0.5), TypeError, "importance_sampling is 0.5; it must be"),
        (
            lambda: ours.LaborSampler([2], prob="weight", batch_dependency=2),
            NotImplementedError,
            "batch_dependency is 2, which does not go with prob; give 1",
        ),
        (
            lambda: ours.DataLoader(g, seeds, ours.LaborSampler([2], prob="gone")),
            ValueError,
            "prob is 'gone'; the edges of the graph have",
        ),
        (
            lambda: ours.LaborSampler([2], batch_dependency=0),
            ValueError,
            "batch_dependency is 0; it must be at least 1",
        ),
        (lambda: ours.LaborSampler([2], layer_dependency="no"), TypeError, "layer_dependency is .no.; it must be"),
        (lambda: ours.as_edge_prediction_sampler(sampler, negative_sampler=4), TypeError, "negative_sampler is an int"),
        (lambda: ours.negative_sampler.GlobalUniform(0), ValueError, "k is 0; it must be at least 1"),
        (lambda: ours.DataLoader(g, seeds, None), TypeError, "graph_sampler is None"),
        (
            lambda: ours.DataLoader(g, {"a": seeds}, sampler),
            ValueError,
            "indices is of type 'a'; the graph has the type '_N'",
        ),
        (lambda: ours.DataLoader(g, {"a": seeds, "b": seeds}, sampler), ValueError, "indices is of the types"),
        (lambda: ours.DataLoader(g, seeds, sampler, gpu_cache={"node": {"feat": 5}}), NotImplementedError, "gpu_cache"),
        (
            lambda: ours.DataLoader(g, seeds, sampler, pin_memory=True),
            NotImplementedError,
            "pin_memory=True does nothing",
        ),
        (lambda: ours.DataLoader(g, seeds, sampler, gpu_cache=5), TypeError, "gpu_cache is 5; it must be None, or a"),
        (lambda: ours.DataLoader(g, seeds, sampler, device="cpu", use_uva=True), ValueError, "use_uva lets a GPU"),
        (lambda: ours.DataLoader(g, seeds, sampler, use_ddp=True), ValueError, "use_ddp needs torch.distributed"),
        (lambda: ours.DataLoader(g, seeds, sampler, use_ddp=True, seed=2), ValueError, "use_ddp and seed=2 are given"),
        (lambda: ours.DataLoader(g, seeds, sampler, use_ddp=True, rank=0), ValueError, "use_ddp and rank=0 are given"),
        (lambda: ours.DataLoader(g, seeds, sampler, collate_fn=print), TypeError, "takes no collate_fn"),
        (lambda: ours.DataLoader(g, torch.tensor([1, 60]), sampler), ValueError, "indices holds node 60"),
        (
            lambda: ours.DataLoader(g, torch.arange(60) % 2, sampler),
            ValueError,
            "indices has 60 .* like a mask of dtype",
        ),
        (lambda: ours.DataLoader(g, torch.rand(3), sampler), TypeError, "indices has dtype torch.float32; it must be"),
        (lambda: ours.DataLoader(g, torch.tensor([60]), sampler), ValueError, "node 60; valid ids are 0 to 59"),
        (
            lambda: ours.DataLoader(g, seeds, ours.NeighborSampler([2], prefetch_labels=["y"])),
            ValueError,
            "'y' is to be prefetched; the graph has",
        ),
        (
            lambda: ours.DataLoader(g, torch.tensor([300]), ours.as_edge_prediction_sampler(sampler)),
            ValueError,
            "holds edge 300; valid ids are 0 to 299",
        ),
        (
            lambda: ours.DataLoader(g, torch.zeros(5, 2).long(), ours.as_edge_prediction_sampler(sampler)),
            ValueError,
            r"indices has shape \[5, 2\]; it must be ids of edges \[n\]: graph\.edge_ids\(src, dst\)",
        ),
        (
            lambda: ours.DataLoader(
                g, seeds, ours.as_edge_prediction_sampler(sampler, "reverse_id", torch.arange(NUM_EDGES))
            ),
            ValueError,
            "reverse_eids says that edge 0",
        ),
        *(
            (lambda back=back: reversed_by(back), ValueError, message)
            for back, message in (
                (torch.arange(3), r"reverse_eids has shape \[3\] and dtype torch\.int64; it must be int64 \[300\]"),
                (torch.rand(NUM_EDGES), r"reverse_eids has shape \[300\] and dtype torch\.float32"),
                (torch.full((NUM_EDGES,), 999), "reverse_eids holds edge 999; valid ids are 0 to 299"),
            )
        ),
    ):
        with pytest.raises(error, match=message):
            make()


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("use_uva", [False, True])
def test_a_gpu_gives_the_same(g, use_uva):
    import dgl

    import loader.dgl as ours

    try:
        g.to("cuda")
    except dgl.DGLError as error:
        pytest.skip(f"this DGL knows no GPU: {error}")
    sampler = ours.NeighborSampler([3, 2], prefetch_node_feats=["feat"])
    made = [
        ours.DataLoader(g, torch.arange(NUM_NODES), sampler, batch_size=16, shuffle=True, seed=1, **where)
        for where in ({}, {"device": "cuda", "use_uva": use_uva})
    ]
    for (inputs, outputs, blocks), (inputs_there, outputs_there, blocks_there) in zip(*made, strict=True):
        assert torch.equal(inputs, inputs_there.cpu())
        assert torch.equal(outputs, outputs_there.cpu())
        assert torch.equal(blocks[0].srcdata["feat"], blocks_there[0].srcdata["feat"].cpu())


def test_features_without_a_name_are_there_too(g):
    import dgl

    import loader.dgl as ours

    sampler = ours.NeighborSampler([3, 2], prefetch_node_feats=["more"])
    for inputs, outputs, blocks in ours.DataLoader(g, torch.arange(NUM_NODES), sampler, batch_size=25):
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs.long()])
        assert torch.equal(blocks[0].srcdata["more"], inputs.long())
        assert torch.equal(blocks[-1].dstdata["label"], outputs.long() % 4)
        for block in blocks:
            assert torch.equal(block.dstdata["feat"], g.ndata["feat"][block.dstdata[dgl.NID].long()])
            assert torch.equal(block.edata["kind"], block.edata[dgl.EID].long())
    pairs = ours.as_edge_prediction_sampler(sampler, negative_sampler=ours.negative_sampler.Uniform(2))
    for _, positive, negative, _ in ours.DataLoader(g, torch.arange(40), pairs, batch_size=25):
        assert torch.equal(positive.ndata["more"], positive.ndata[dgl.NID].long())
        assert torch.equal(positive.edata["kind"], positive.edata[dgl.EID].long())
        assert set(negative.ndata) == {dgl.NID}  # as in DGL


def test_features_are_those_of_the_epochs_begin(g):
    import loader.dgl as ours

    sampler = ours.NeighborSampler([3], prefetch_node_feats=["feat"], prefetch_labels=["label"])
    loader = ours.DataLoader(g, torch.arange(NUM_NODES), sampler, batch_size=20)
    g.ndata["feat"] = torch.zeros(NUM_NODES, 5)
    for step, change in enumerate((lambda: None, lambda: g.ndata["label"].add_(7), lambda: None)):
        stores = loader.loader.stores
        change()
        for _, outputs, blocks in loader:
            assert not blocks[0].srcdata["feat"].any()
            assert torch.equal(blocks[-1].dstdata["label"], g.ndata["label"][outputs.long()])
        assert loader.loader.epoch == step + 1
        assert step < 2 or loader.loader.stores is stores
    del g.ndata["feat"]
    with pytest.raises(ValueError, match="'feat' is to be prefetched; the graph has"):
        next(iter(loader))


def test_another_graph_needs_another_loader(g):
    import loader.dgl as ours

    g.edata["w"] = torch.rand(NUM_EDGES)
    plain, weighed = (
        ours.DataLoader(g, torch.arange(9), ours.NeighborSampler([2], prob=prob), batch_size=9) for prob in (None, "w")
    )
    for loader in (plain, weighed):
        next(iter(loader))
    g.edata["w"].mul_(2)
    next(iter(plain))
    with pytest.raises(ValueError, match="or other weights 'w'; make a new DataLoader"):
        next(iter(weighed))
    g.remove_edges(torch.arange(100, dtype=g.idtype))
    with pytest.raises(ValueError, match=r"60 nodes and 200 edges now, .* make a new DataLoader"):
        next(iter(plain))


@pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")
@pytest.mark.parametrize("option", ["mask", "prob"])
@pytest.mark.parametrize("own", [False, True])
def test_only_edges_inside_masks_are_picked(g, option, own):
    import dgl

    import loader.dgl as ours

    g.edata["m"] = torch.rand(NUM_EDGES, generator=torch.Generator().manual_seed(3)) > 0.4
    kind, seeds = ours.NeighborSampler, torch.arange(60, dtype=g.idtype)
    if own:
        kind = type("Own", (kind,), {"sample": lambda self, *given: super(kind, self).sample(*given)})
    whole = [
        [edges_by_ids(block) for *_, blocks in package.DataLoader(g, seeds, sampler, batch_size=25) for block in blocks]
        for package, sampler in (
            (ours, kind([-1, -1], **{option: "m"})),
            (dgl.dataloading, dgl.dataloading.NeighborSampler([-1, -1], mask="m", fused=False)),
        )
    ]
    assert whole[0] == whole[1]
    for _, _, blocks in ours.DataLoader(g, seeds, kind([3, 2], **{option: "m"}), batch_size=25):
        for block in blocks:
            assert block.num_edges() > 0
            assert bool(g.edata["m"][block.edata[dgl.EID].long()].all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_masks_that_are_not_boolean_are_refused(g, dtype):
    import loader.dgl as ours

    g.edata["m"] = torch.ones(NUM_EDGES, dtype=dtype)
    sampler = ours.NeighborSampler([2], mask="m")
    message = (
        rf"mask is 'm', which has dtype {dtype} for .*; a mask must be boolean \(.bool\(\)\), and weights are given"
    )
    for sample in (lambda: ours.DataLoader(g, torch.arange(4), sampler), lambda: sampler.sample(g, torch.arange(4))):
        with pytest.raises(TypeError, match=message):
            sample()


def test_neighbors_are_picked_by_weight(g):
    import loader.dgl as ours
    from loader import FusedSampler, Graph

    g.edata["w"] = torch.rand(NUM_EDGES, generator=torch.Generator().manual_seed(3))
    g.edata["w"][::2] = 0
    sampler = ours.NeighborSampler([3, -1], prob="w")
    ours_of = FusedSampler([-1, 3], edge_ids=True, weights="edge_weights", seed=6)
    graph = Graph.from_dgl(g, weight_attr="w")
    for number, (_, outputs, blocks) in enumerate(ours.DataLoader(g, torch.arange(60), sampler, batch_size=25, seed=6)):
        want = ours_of.sample(graph, outputs, batch=number).to_dgl()[2]
        for block, other in zip(blocks, want, strict=True):
            assert edges_by_ids(block) == edges_by_ids(other)
            assert bool((block.edata["kind"] % 2 == 1).all())
    with pytest.raises(ValueError, match="prob is 'v'; the edges of the graph have"):
        ours.DataLoader(g, torch.arange(60), ours.NeighborSampler([3], prob="v"))
    with pytest.raises(TypeError, match="prob is 3; it must be the name of the weights"):
        ours.NeighborSampler([3], prob=3)


def test_a_sampler_samples_by_itself(g):
    import loader.dgl as ours

    seeds = torch.tensor([5, 3, 40], dtype=g.idtype)
    sampler = ours.MultiLayerFullNeighborSampler(2)
    for sample in (sampler.sample, sampler.sample_blocks):
        inputs, outputs, blocks = sample(g, seeds)
        assert torch.equal(outputs, seeds)
        (want,) = ours.DataLoader(g, seeds, sampler, batch_size=3)
        assert torch.equal(inputs, want[0])
        assert [edges_by_ids(a) for a in blocks] == [edges_by_ids(b) for b in want[2]]
    with ours.DataLoader(g, seeds, sampler).enable_cpu_affinity():
        pass


def test_loaders_by_weight_share_their_graph(g):
    import loader.dgl as ours

    g.edata["w"] = torch.rand(NUM_EDGES)
    graphs = [
        ours.DataLoader(g, torch.arange(9), ours.NeighborSampler([2], prob=prob)).loader.graph
        for prob in ("w", "w", None, "weight")
    ]
    assert graphs[0] is graphs[1]
    assert graphs[2] is not graphs[0] is not graphs[3]


def test_attributes_of_samplers_are_options(g):
    import loader.dgl as ours

    def made(kind, **attributes):
        sampler = kind([3, 2])
        vars(sampler).update(attributes)
        return sampler

    seeds = torch.arange(9, dtype=g.idtype)
    for sampler, message in (
        (made(ours.NeighborSampler, edge_dir="out"), "edge_dir='out'"),
        (made(ours.NeighborSampler, output_device="cpu"), "output_device='cpu'"),
        (made(ours.LaborSampler, edge_dir="out"), "edge_dir='out'"),
    ):
        for use in (lambda sampler: ours.DataLoader(g, seeds, sampler), lambda sampler: sampler.sample(g, seeds)):
            with pytest.raises(NotImplementedError, match=f"does not know {message}; leave it out"):
                use(sampler)
    for sampler in (
        made(ours.NeighborSampler, fanouts=[1, 1]),
        made(ours.NeighborSampler, replace=True, fanouts=[1, 1]),
    ):
        _, _, blocks = next(iter(ours.DataLoader(g, seeds, sampler, batch_size=9)))
        assert [int(block.in_degrees().max()) for block in blocks] == [1, 1]
    with pytest.raises(TypeError, match="Mine has a set_seed, which nobody would call"):
        type("Mine", (ours.LaborSampler,), {"set_seed": print})([3])


def test_what_a_loader_was_made_with_stays(g):
    import loader.dgl as ours

    sampler = ours.as_edge_prediction_sampler(
        ours.NeighborSampler([3, 2]), negative_sampler=ours.negative_sampler.Uniform(2)
    )
    loader = ours.DataLoader(g, torch.arange(9), sampler, batch_size=4)
    for name, value in {"shuffle": True, "collate_fn": print, "batch_size": 2, "graph_sampler": None}.items():
        with pytest.raises(AttributeError, match=f"{name} of a DataLoader cannot be changed; make a new one"):
            setattr(loader, name, value)
    next(iter(loader))
    around = sampler.sampler
    for owner, name, value in (
        (around, "fanouts", [1, 1]),
        (around, "replace", True),
        (around, "prefetch_node_feats", ["feat"]),
        (sampler, "exclude", "self"),
        (sampler, "prefetch_labels", ["kind"]),
        (sampler.negative_sampler, "k", 5),
    ):
        before = getattr(owner, name)
        setattr(owner, name, value)
        with pytest.raises(
            ValueError, match=r"the EdgePredictionSampler has other settings now .* make a new DataLoader"
        ):
            next(iter(loader))
        setattr(owner, name, before)
    next(iter(loader))


@pytest.mark.parametrize("hook", ["collate_fn", "filter_fn"])
def test_loaders_with_uncalled_methods_are_refused(g, hook):
    import loader.dgl as ours

    kind = type("Mine", (ours.DataLoader,), {hook: lambda self, batch: batch})
    with pytest.raises(TypeError, match=f"Mine has a {hook}, which nobody would call"):
        kind(g, torch.arange(9), ours.NeighborSampler([3]))
