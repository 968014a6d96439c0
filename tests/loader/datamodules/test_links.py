"""The data module of links: what is trained on, what is tested on, and that neither knows the other."""

import pytest
import torch

from loader.datamodules.links import LinkDataModule
from loader.datasets import NodeDataset
from loader.graph import Graph
from loader.samplers import FusedSampler, WalkSampler

NUM_NODES = 60


def dataset():
    generator = torch.Generator().manual_seed(2)
    src, dst = torch.randint(NUM_NODES, (2, 500), generator=generator)
    graph = Graph.from_edges(torch.cat([src, dst]), torch.cat([dst, src]), NUM_NODES)
    ids = torch.arange(NUM_NODES)
    splits = {"train": ids[:20], "val": ids[20:30], "test": ids[30:]}
    return NodeDataset("random", graph, torch.rand(NUM_NODES, 5), ids % 3, splits, 3)


def module(**options):
    made = LinkDataModule(dataset(), FusedSampler([4, 3], edge_ids=True, num_threads=1), batch_size=32, **options)
    made.setup("fit")
    return made


def pairs_of(links, ends):
    return set(map(tuple, links.nodes[ends].t().tolist()))


def test_training_never_sees_held_out_links():
    made = module()
    held = {tuple(pair) for name in ("val", "test") for pair in made.split.pairs[name].tolist()}
    held |= {(v, u) for u, v in held}
    known = held | {tuple(pair) for pair in made.split.pairs["train"].tolist()}
    known |= {(v, u) for u, v in known}
    met = []
    for batch in made.train_dataloader():
        ends, truth = batch.pairs()
        asked = pairs_of(batch, ends[:, truth == 1])
        assert not held & asked
        assert not known & pairs_of(batch, ends[:, truth == 0])
        met += [tuple(pair) for pair in batch.nodes[ends[:, truth == 1]].t().tolist()]
        for block in batch.around.blocks:
            dst = torch.arange(block.num_dst).repeat_interleave(block.indptr.diff().long())
            seen = pairs_of(batch, torch.stack([block.indices.long(), dst]))
            assert not seen & held
            assert not seen & asked
            assert not seen & {(v, u) for u, v in asked}
    train = [tuple(pair) for pair in made.split.pairs["train"].tolist()]
    assert sorted(met) == sorted(train + [(v, u) for u, v in train])


@pytest.mark.parametrize("name", ["val", "test"])
def test_negatives_of_held_out_links_are_no_links(name):
    made = module(ranked=7)
    held = made.held_out(name)
    dst = torch.arange(NUM_NODES).repeat_interleave(made.split.known.in_degrees().long())
    known = set(zip(made.split.known.indices.tolist(), dst.tolist(), strict=True))
    assert torch.equal(held.links, made.split.pairs[name])
    assert held.negatives.shape == held.links.shape
    assert held.targets.shape == (len(held.links), 7)
    assert not known & set(map(tuple, held.negatives.tolist()))
    for (source, _), targets in zip(held.links.tolist(), held.targets.tolist(), strict=True):
        assert not known & {(source, target) for target in targets}
    again = made.held_out(name)
    assert torch.equal(again.negatives, held.negatives)
    assert torch.equal(again.targets, held.targets)
    assert not torch.equal(module(seed=1).held_out(name).negatives, held.negatives)
    assert next(iter(held)) is held
    assert len(held) == 1


def test_bad_arguments_are_refused():
    for options, message in (
        ({"graph": "disk"}, "graph is 'disk'"),
        ({"exclude": "all"}, "exclude is 'all'"),
        ({"amount": 0}, "amount is 0"),
        ({"ranked": 0}, "ranked is 0"),
        ({"val": 1.0}, "val is 1.0; it must be above 0 and below 1"),
        ({"prefetch": -1}, "prefetch is -1"),
        ({"seed": -1}, "seed is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            module(**options)
    for options, message in (
        ({"dataset": 3}, "dataset is an int; give a NodeDataset"),
        ({"sampler": WalkSampler(3)}, "sampler is a WalkSampler; it must be one of vertices"),
        ({"features": 3}, "features is an int; it must be a function that makes a store"),
        ({"drop_last": "maybe"}, "drop_last is 'maybe'; it must be True or False"),
        ({"test": "x"}, "test is 'x'; it must be a number"),
    ):
        with pytest.raises(TypeError, match=message):
            LinkDataModule(**{"dataset": dataset(), "sampler": FusedSampler([2, 2]), **options})


def test_close_ends_threads_and_loaders():
    made = module()
    next(iter(made.train_dataloader()))
    made.close()
