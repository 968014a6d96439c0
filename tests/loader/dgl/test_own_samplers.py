"""Samplers, negative samplers and functions of the user's: they are called."""

import copy
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from dgl_edges import edges_by_ids
from marks import needs_dgl

import loader.dgl as ours
from loader import FusedSampler
from loader.dgl.graphs import with_copies

pytestmark = needs_dgl


class Marked(ours.NeighborSampler):
    """Gives each edge a weight of its own, as users do."""

    def sample_blocks(self, g, seed_nodes, exclude_eids=None):
        inputs, outputs, blocks = super().sample_blocks(g, seed_nodes, exclude_eids)
        for block in blocks:
            block.edata["drawn"] = torch.rand(block.num_edges())
        return inputs, outputs, blocks


class LastSource(ours.negative_sampler.Uniform):
    """Negatives from the positive sources to the last node."""

    def _generate(self, g, eids, canonical_etype):
        sources = g.find_edges(eids, etype=canonical_etype)[0].repeat_interleave(self.k)
        return sources, torch.full_like(sources, g.num_nodes() - 1)


def last_source(g, eids):
    return LastSource(2)._generate(g, eids, g.canonical_etypes[0])


def seeds_of(g):
    return torch.arange(g.num_nodes(), dtype=g.idtype)


def ids_of(batches):
    return [
        (inputs.tolist(), outputs.tolist(), [edges_by_ids(b) for b in blocks]) for inputs, outputs, blocks in batches
    ]


def test_sample_blocks_of_a_subclass_is_called(g, caplog):
    sampler = Marked([3, 2], prefetch_node_feats=["feat"], prefetch_labels=["label"], prefetch_edge_feats=["kind"])
    with caplog.at_level(logging.WARNING, "loader"):
        made = ours.DataLoader(g, seeds_of(g), sampler, batch_size=16, shuffle=True)
    assert ["Marked.sample_blocks is called for each mini-batch" in text for text in caplog.messages] == [True]
    assert len(made) == 4
    seen = []
    for inputs, outputs, blocks in made:
        assert all("drawn" in block.edata for block in blocks)
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs.long()])
        assert torch.equal(blocks[0].srcdata["more"], inputs.long())
        assert torch.equal(blocks[-1].dstdata["label"], outputs.long() % 4)
        assert inputs.dtype == outputs.dtype == blocks[0].idtype == g.idtype
        for block, most in zip(blocks, (3, 2), strict=True):
            assert torch.equal(block.edata["kind"], block.edata["_ID"].long())
            assert int(block.in_degrees().max()) == most
        seen += outputs.tolist()
    assert sorted(seen) == list(range(g.num_nodes()))
    assert seen != sorted(seen)


@pytest.mark.parametrize("name", ["sample", "sample_blocks", "assign_lazy_features"])
@pytest.mark.parametrize("by", ["class", "instance"])
def test_each_method_of_a_sampler_is_called(g, name, by):
    calls = []

    def called(*args, **options):
        calls.append(len(args))
        return getattr(ours.NeighborSampler, name)(*(args if by == "class" else (sampler, *args)), **options)

    kind = type("Mine", (ours.NeighborSampler,), {name: called} if by == "class" else {})
    sampler = kind([3, 2], prefetch_node_feats=["feat"])
    if by == "instance":
        setattr(sampler, name, called)
    for inputs, _, blocks in ours.DataLoader(g, seeds_of(g), sampler, batch_size=25):
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs.long()])
    assert len(calls) == 3


@pytest.mark.parametrize("whose", ["ours", "dgls"])
def test_a_sampler_of_the_users_is_called(g, whose):
    from dgl import NID, to_block
    from dgl.dataloading import BlockSampler

    base = ours.BlockSampler if whose == "ours" else BlockSampler

    class InEdges(base):
        def sample_blocks(self, g, seed_nodes, exclude_eids=None):
            block = to_block(g.in_subgraph(seed_nodes), seed_nodes)
            return block.srcdata[NID], seed_nodes, [block]

    made = ours.DataLoader(g, seeds_of(g), InEdges(prefetch_labels=["label"]), batch_size=25)
    for _, outputs, (block,) in made:
        assert torch.equal(block.in_degrees(), g.in_degrees(outputs))
        assert torch.equal(block.dstdata["label"], outputs.long() % 4)


def test_a_sampler_without_sample_blocks_is_told(g):
    with pytest.raises(NotImplementedError, match="BlockSampler has no sample_blocks; implement it"):
        next(iter(ours.DataLoader(g, seeds_of(g), ours.BlockSampler())))


def test_samplers_of_dgl_are_called(g):
    from dgl.dataloading import ShaDowKHopSampler

    for inputs, outputs, part in ours.DataLoader(g, seeds_of(g), ShaDowKHopSampler([-1]), batch_size=25):
        assert torch.equal(inputs[: len(outputs)], outputs)
        assert torch.equal(part.ndata["feat"], g.ndata["feat"][inputs.long()])


def negative_samplers():
    import dgl

    class OfDGL(dgl.dataloading.negative_sampler.Uniform):
        _generate = LastSource._generate

    class Called:
        def __call__(self, g, eids):
            return last_source(g, eids)

    class CalledInPlace(ours.negative_sampler.GlobalUniform):
        def __call__(self, g, eids):
            return last_source(g, eids)

    on_instance = ours.negative_sampler.Uniform(2)
    on_instance._generate = lambda g, eids, etype: last_source(g, eids)
    by_type = lambda g, eids: {g.canonical_etypes[0]: last_source(g, eids)}  # noqa: E731
    return [LastSource(2), OfDGL(2), Called(), CalledInPlace(2, replace=True), on_instance, last_source, by_type]


@pytest.mark.parametrize("number", range(7))
def test_negative_samplers_of_the_users_are_called(g, number):
    sampler = ours.as_edge_prediction_sampler(
        ours.NeighborSampler([3, 2], prefetch_node_feats=["feat"]),
        negative_sampler=negative_samplers()[number],
        prefetch_labels=["kind"],
    )
    met = []
    for inputs, pairs, negative, blocks in ours.DataLoader(g, seeds_of(g), sampler, batch_size=25, shuffle=True):
        nodes, ids = pairs.ndata["_ID"], pairs.edata["_ID"]
        sources, targets = g.find_edges(ids)
        assert [nodes[end.long()].tolist() for end in pairs.edges()] == [sources.tolist(), targets.tolist()]
        heads, tails = (nodes[end.long()] for end in negative.edges())
        assert heads.tolist() == sources.repeat_interleave(2).tolist()
        assert tails.unique().tolist() == [g.num_nodes() - 1]
        assert torch.equal(pairs.edata["kind"], ids.long())
        assert torch.equal(blocks[-1].dstdata["_ID"], nodes)
        assert torch.equal(blocks[0].srcdata["feat"], g.ndata["feat"][inputs.long()])
        met += ids.tolist()
    assert sorted(met) == list(range(g.num_nodes()))


@pytest.mark.parametrize("name", ["sample", "_build_neg_graph", "assign_lazy_features"])
def test_each_method_of_an_edge_sampler_is_called(g, name):
    calls = []

    def called(self, *args):
        calls.append(name)
        return getattr(ours.EdgePredictionSampler, name)(self, *args)

    kind = type("Mine", (ours.EdgePredictionSampler,), {name: called})
    sampler = kind(ours.NeighborSampler([3]), negative_sampler=ours.negative_sampler.Uniform(2))
    for _, pairs, negative, _ in ours.DataLoader(g, seeds_of(g), sampler, batch_size=25):
        assert negative.num_edges() == 2 * pairs.num_edges()
    assert calls == [name] * 3


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("theirs", [False, True])
def test_global_negatives_have_dgls_defaults(g, theirs, loops, replace):
    import dgl

    package = dgl.dataloading.negative_sampler if theirs else ours.negative_sampler
    drawn = package.GlobalUniform(3, not loops, replace) if loops or replace else package.GlobalUniform(3)
    sampler = ours.as_edge_prediction_sampler(ours.NeighborSampler([3]), negative_sampler=drawn)
    made = ours.DataLoader(g, torch.arange(300, dtype=g.idtype), sampler, batch_size=100, seed=1)
    found = []
    for _, pairs, negative, _ in made:
        assert negative.num_edges() == 3 * pairs.num_edges()
        ends = [negative.ndata[dgl.NID][end.long()] for end in negative.edges()]
        assert not bool(g.has_edges_between(*ends).any())
        found.append(list(zip(*(end.tolist() for end in ends), strict=True)))
    assert any(u == v for part in found for u, v in part) == loops
    assert any(len(set(part)) < len(part) for part in found) == replace


@pytest.mark.parametrize("exclude", [None, "self", "reverse_id", "function"])
@pytest.mark.parametrize("negatives", ["uniform", "global"])
def test_excluded_edges_are_left_out(both, exclude, negatives):
    import dgl

    g, back = both
    src, dst = g.edges()
    g = dgl.graph((torch.cat([src, src[:9]]), torch.cat([dst, dst[:9]])))  # the first ones are there twice
    back = torch.cat([back, back[:9]])
    wanted = {"forth": exclude == "self", "back": False, "both": exclude == "reverse_id"}
    asked = []

    def function(eids):
        asked.append(eids)
        return torch.arange(0, g.num_edges(), 2)

    drawn = {
        "uniform": ours.negative_sampler.Uniform(2),
        "global": ours.negative_sampler.GlobalUniform(2, replace=True),
    }[negatives]
    sampler = ours.as_edge_prediction_sampler(
        Marked([3, -1]),
        exclude=function if exclude == "function" else exclude,
        reverse_eids=back if exclude == "reverse_id" else None,
        negative_sampler=drawn,
    )
    leaks = {"forth": 0, "back": 0}
    for _, pairs, negative, blocks in ours.DataLoader(g, torch.arange(300), sampler, batch_size=64):
        nodes = pairs.ndata["_ID"]
        ends = set(zip(*(nodes[end].tolist() for end in pairs.edges()), strict=True))
        ends_back = {(v, u) for u, v in ends}
        if negatives == "global":
            assert not bool(g.has_edges_between(*(nodes[end] for end in negative.edges())).any())
        for block in blocks:
            seen = edges_by_ids(block)
            leaks["forth"] += sum(edge[:2] in ends for edge in seen)
            leaks["back"] += sum(edge[:2] in ends_back - ends for edge in seen)
            if exclude == "function":
                assert all(edge[2] % 2 for edge in seen)
    assert (leaks["forth"] == 0) == (wanted["forth"] or wanted["both"])
    assert (leaks["back"] == 0) == wanted["both"]
    assert torch.equal(torch.cat(asked), torch.arange(300)) if exclude == "function" else not asked


def test_the_seed_decides_own_samplers(g):
    def epoch(sampler, seed, **options):
        made = ours.DataLoader(g, seeds_of(g), sampler, batch_size=16, shuffle=True, seed=seed, **options)
        return [(ids_of([batch]), [block.edata["drawn"].tolist() for block in batch[2]]) for batch in made]

    first = epoch(Marked([3, 2]), 5)
    assert first == epoch(Marked([3, 2]), 5) != epoch(Marked([3, 2]), 6)
    ranks = [epoch(Marked([3, 2]), 5, rank=rank, world_size=2) for rank in range(2)]
    assert [batch for pair in zip(*ranks, strict=True) for batch in pair] == first
    sampler = Marked([3, 2])
    made = ours.DataLoader(g, seeds_of(g), sampler, batch_size=16, seed=1)
    assert ids_of(made) != ids_of(made)  # the next epoch has other picks


def test_own_random_numbers_leave_torchs_generator(g):
    made = ours.DataLoader(g, seeds_of(g), Marked([3, 2]), batch_size=16, seed=5)
    state = torch.get_rng_state()
    for _ in made:
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(torch.get_rng_state(), state)


def test_dgls_generator_goes_on_as_it_was_seeded(g):
    import dgl

    made = ours.DataLoader(g, seeds_of(g), Marked([3, 2]), batch_size=16, seed=5)

    def drawn_after_an_epoch(seed):
        dgl.seed(seed)
        made.set_epoch(0)
        list(made)
        return dgl.random.choice(2**31 - 1, 8).tolist()

    first = drawn_after_an_epoch(1)
    assert first == drawn_after_an_epoch(1) != drawn_after_an_epoch(2)


@pytest.mark.parametrize("replace", [False, True])
def test_the_seed_decides_dgls_samplers_with_threads(replace):
    import dgl

    generator = torch.Generator().manual_seed(1)
    many = dgl.graph(tuple(torch.randint(500, (2, 20_000), generator=generator)), num_nodes=500)
    sampler = dgl.dataloading.NeighborSampler([5, 5], replace=replace)
    made = ours.DataLoader(many, torch.arange(500), sampler, batch_size=100, seed=5)
    threads = torch.get_num_threads()
    dgl.utils.set_num_threads(4)
    try:
        seen = []
        for _ in range(4):
            made.set_epoch(0)
            seen.append([(inputs.tolist(), [edges_by_ids(b) for b in blocks]) for inputs, _, blocks in made])
        assert dgl.utils.get_num_threads() == 4
    finally:
        dgl.utils.set_num_threads(threads)
    assert all(epoch == seen[0] for epoch in seen)


def test_loaders_in_two_threads_draw_as_alone(g):
    loaders = [ours.DataLoader(g, seeds_of(g), Marked([3, 2]), batch_size=1, seed=seed) for seed in (1, 2)]

    def epoch(made):
        made.set_epoch(0)
        return [block.edata["drawn"].tolist() for batch in made for block in batch[2]]

    alone = [epoch(made) for made in loaders]
    with ThreadPoolExecutor(2) as threads:
        for _ in range(5):
            assert list(threads.map(epoch, loaders)) == alone


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_mini_batch_that_failed_is_left(g, error):
    class Fails(Marked):
        fails = True

        def sample_blocks(self, g, seed_nodes, exclude_eids=None):
            if self.fails and seed_nodes[0] == 32:
                raise error("amid an epoch")
            return super().sample_blocks(g, seed_nodes, exclude_eids)

    made = ours.DataLoader(g, seeds_of(g), Fails([3, 2]), batch_size=16)
    seen = []
    with pytest.raises(error, match="amid an epoch"):
        seen.extend(batch[1] for batch in made)
    amid = copy.copy(made)
    made.graph_sampler.fails = False
    assert torch.equal(torch.cat(seen + [batch[1] for batch in amid]), seeds_of(g))


def test_an_iterator_that_was_replaced_takes_nothing_back(g):
    made = ours.DataLoader(g, seeds_of(g), Marked([3, 2]), batch_size=16)
    first = iter(made)
    next(first)
    made.set_epoch(0)
    second = iter(made)
    next(second)
    with pytest.raises(RuntimeError, match="this iterator was closed"):
        next(first)
    assert [batch[1].tolist() for batch in copy.copy(made)] == [batch[1].tolist() for batch in second]


@pytest.mark.parametrize("key", ["short", "full"])
def test_negatives_by_type_are_found(g, key):
    kind = g.etypes[0] if key == "short" else g.canonical_etypes[0]
    sampler = ours.as_edge_prediction_sampler(
        ours.NeighborSampler([3]), negative_sampler=lambda g, eids: {kind: last_source(g, eids)}
    )
    for _, pairs, negative, _ in ours.DataLoader(g, torch.arange(20), sampler, batch_size=8):
        assert negative.num_edges() == 2 * pairs.num_edges()
        assert (negative.ndata["_ID"][negative.edges()[1].long()] == g.num_nodes() - 1).all()


def test_negatives_of_another_type_are_refused(g):
    sampler = ours.as_edge_prediction_sampler(
        ours.NeighborSampler([3]), negative_sampler=lambda g, eids: {"other": last_source(g, eids)}
    )
    with pytest.raises(
        ValueError, match="the result of negative_sampler names 'other', but the graph has no such edge type"
    ):
        next(iter(ours.DataLoader(g, torch.arange(20), sampler)))


@pytest.mark.parametrize("copied", ["deepcopy", "pickle"])
def test_a_copy_with_an_own_sampler_goes_on(g, copied):
    made = ours.DataLoader(g, seeds_of(g), Marked([3, 2]), batch_size=16, shuffle=True)
    batches = iter(made)
    next(batches)
    amid = pickle.loads(pickle.dumps(made)) if copied == "pickle" else copy.deepcopy(made)
    assert ids_of(amid) == ids_of(batches)


def test_settings_of_own_samplers_may_change(g):
    sampler = Marked([3, 2])
    made = ours.DataLoader(g, seeds_of(g), sampler, batch_size=16)
    next(iter(made))
    sampler.fanouts = [1, 1]
    assert [int(block.in_degrees().max()) for block in next(iter(made))[2]] == [1, 1]


def test_errors_of_own_methods_arrive(g):
    def broken(g, eids):
        raise KeyError("mine")

    sampler = ours.as_edge_prediction_sampler(ours.NeighborSampler([3]), negative_sampler=broken)
    with pytest.raises(KeyError, match="mine"):
        next(iter(ours.DataLoader(g, seeds_of(g), sampler)))
    short = type("Short", (ours.NeighborSampler,), {"sample": lambda self, g, seed_nodes: None})
    with pytest.raises(TypeError, match=r"Short.sample takes no ids of edges to leave out; it must take"):
        ours.as_edge_prediction_sampler(short([3]))
    loose = type("Loose", (ours.NeighborSampler,), {"sample": lambda self, g, seed_nodes, **options: None})
    with pytest.raises(TypeError, match=r"Loose.sample takes no ids of edges to leave out; it must take"):
        ours.as_edge_prediction_sampler(loose([3]))
    with pytest.raises(NotImplementedError, match="batch_dependency is 3, but a mini-batch by itself follows no other"):
        ours.LaborSampler([3], batch_dependency=3).sample(g, seeds_of(g))


def test_dgls_samplers_serve_around_edges(g):
    import dgl

    drawn = ours.negative_sampler.Uniform(2)
    sampler = ours.as_edge_prediction_sampler(dgl.dataloading.ShaDowKHopSampler([-1]), "self", negative_sampler=drawn)
    for inputs, pairs, negative, part in ours.DataLoader(g, torch.arange(90, dtype=g.idtype), sampler, batch_size=40):
        assert torch.equal(part.ndata[dgl.NID], inputs)
        assert negative.num_edges() == 2 * pairs.num_edges()
        assert not set(pairs.edata[dgl.EID].tolist()) & set(part.edata[dgl.EID].tolist())


def test_own_exclusion_leaves_positive_edges_theirs(g):
    """DGL's sampler sorts the ids that it leaves out, in place."""
    import dgl

    around = dgl.dataloading.NeighborSampler([-1], fused=False)
    sampler = ours.as_edge_prediction_sampler(around, exclude=lambda ids: ids)
    items = torch.arange(60, dtype=g.idtype).flip(0)
    for (_, pairs, (block,)), own in zip(
        ours.DataLoader(g, items, sampler, batch_size=20), items.split(20), strict=True
    ):
        ids, nodes = pairs.edata[dgl.EID], pairs.ndata[dgl.NID]
        assert torch.equal(ids, own)
        for end, of in zip(pairs.edges(), g.find_edges(ids), strict=True):
            assert torch.equal(nodes[end.long()], of)
        assert not torch.isin(block.edata[dgl.EID], ids).any()


def test_repeated_nodes_are_seeds_each_time(g, caplog):
    import dgl

    seeds = torch.tensor([7, 3, 7, 12, 3, 40, 7, 59], dtype=g.idtype)
    made = ours.DataLoader(g, seeds, ours.NeighborSampler([3, -1], prefetch_labels=["label"]), batch_size=5, seed=2)
    assert "NeighborSampler.sample is called for each mini-batch" in caplog.text
    found = list(made)
    assert torch.equal(torch.cat([outputs for _, outputs, _ in found]), seeds)
    for inputs, outputs, (first, last) in found:
        assert torch.equal(last.dstdata[dgl.NID], outputs)
        assert torch.equal(last.in_degrees(), g.in_degrees(outputs).to(last.in_degrees()))
        assert torch.equal(last.dstdata["label"], outputs.long() % 4)
        assert torch.equal(first.dstdata[dgl.NID], last.srcdata[dgl.NID])
        assert torch.equal(first.srcdata[dgl.NID], inputs)
        assert torch.equal(inputs[: len(outputs)], outputs)
        for block in (first, last):
            source, target = g.find_edges(block.edata[dgl.EID])
            assert torch.equal(block.srcdata[dgl.NID][block.edges()[0].long()], source)
            assert torch.equal(block.dstdata[dgl.NID][block.edges()[1].long()], target)
            rows = {}
            for at, node in enumerate(block.dstdata[dgl.NID].tolist()):
                edges = sorted(block.edata[dgl.EID][block.in_edges(at, form="eid").long()].tolist())
                assert rows.setdefault(node, edges) == edges  # both copies picked the same
    again = list(ours.DataLoader(g, seeds, ours.NeighborSampler([3, -1]), batch_size=5, seed=2))
    assert [batch[0].tolist() for batch in again] == [batch[0].tolist() for batch in found]


def test_own_methods_see_repeated_nodes(g):
    seeds = torch.tensor([1, 1, 4], dtype=g.idtype)
    for _, outputs, (block,) in ours.DataLoader(g, seeds, Marked([2]), batch_size=3):
        assert torch.equal(outputs, seeds)
        assert block.num_dst_nodes() == 3


def test_without_repeats_copies_change_nothing(random_graph):
    batch = FusedSampler([4, 3], edge_ids=True, num_threads=1).sample(random_graph(90, 400), torch.tensor([5, 50, 7]))
    assert with_copies(batch, torch.arange(3)).digest() == batch.digest()


def test_the_fast_way_calls_nobody(g, caplog):
    with caplog.at_level(logging.WARNING, "loader"):
        for sampler in (
            ours.NeighborSampler([3]),
            ours.LaborSampler([3]),
            ours.as_edge_prediction_sampler(
                ours.NeighborSampler([3]), negative_sampler=ours.negative_sampler.Uniform(1)
            ),
            type("Named", (ours.NeighborSampler,), {"mine": 3})([3]),
        ):
            next(iter(ours.DataLoader(g, seeds_of(g), sampler)))
    assert caplog.messages == []


def test_a_state_of_other_settings_is_refused(g):
    g.edata["weight"] = torch.rand(g.num_edges())

    def made(*fanouts, **options):
        return ours.DataLoader(g, seeds_of(g), Marked(list(fanouts), **options), batch_size=16, seed=1)

    state = made(3, 2, prob="weight").state_dict()
    made(3, 2, prob="weight").load_state_dict(state)
    for other in (made(3, 4, prob="weight"), made(3, 2), made(3, 2, prob="weight", replace=True)):
        with pytest.raises(ValueError, match="cannot resume: the Marked was"):
            other.load_state_dict(state)
    g.edata["weight"] = 1 - g.edata["weight"]
    with pytest.raises(ValueError, match="cannot resume: weights 'weight' was"):
        made(3, 2, prob="weight").load_state_dict(state)
