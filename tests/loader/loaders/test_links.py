"""The loader of links: items, labels, rows, the order of an epoch, and what is refused."""

import pytest
import reference_order
import torch

from loader import FusedSampler, Graph, LinkLoader, Links, LinkSampler
from loader.samplers import Negatives

NUM_NODES = 80


@pytest.fixture
def graph(random_graph):
    return random_graph(NUM_NODES, 400)


@pytest.fixture
def pairs():
    return torch.randint(NUM_NODES, (50, 2), generator=torch.Generator().manual_seed(1))


def make(graph, pairs, **options):
    sampler = LinkSampler(FusedSampler([3, 2], edge_ids=True), Negatives("binary", 2), exclude="reverse")
    features = torch.arange(NUM_NODES).float().view(-1, 1)
    return LinkLoader(graph, features, pairs, sampler, 8, labels=torch.arange(50), **options)


def test_links_have_rows_and_labels(graph, pairs):
    loader = make(graph, pairs, shuffle=True)
    met = []
    for batch in loader:
        assert isinstance(batch, Links)
        assert torch.equal(batch.around.x.view(-1).long(), batch.nodes.long())
        assert torch.equal(batch.labels, batch.places)
        ends = batch.nodes[torch.stack([batch.sources, batch.targets])]
        assert torch.equal(ends.t().long(), pairs[batch.places])
        met += batch.places.tolist()
    assert sorted(met) == list(range(50))
    assert len(loader) == 7


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_resume_keeps_the_order_of_pairs(graph, pairs, shuffle):
    whole = [b.digest() for b in make(graph, pairs, shuffle=shuffle, prefetch=0)]
    assert [b.digest() for b in make(graph, pairs, shuffle=shuffle)] == whole
    first = make(graph, pairs, shuffle=shuffle)
    running = iter(first)
    for _ in range(3):
        next(running)
    second = make(graph, pairs, shuffle=shuffle)
    second.load_state_dict(first.state_dict())
    assert [b.digest() for b in second] == whole[3:]
    parts = [[b.digest() for b in make(graph, pairs, shuffle=shuffle, rank=r, world_size=2)] for r in range(2)]
    assert [parts[i % 2][i // 2] for i in range(7)] == whole
    if not shuffle:
        assert torch.cat([b.places for b in make(graph, pairs)]).tolist() == list(range(50))


def test_a_shuffled_epoch_has_the_reference_order(graph, pairs):
    loader = make(graph, pairs, shuffle=True, seed=7)
    for epoch in range(2):
        places = torch.cat([batch.places for batch in loader]).tolist()
        assert places == reference_order.order(50, 7, epoch)


def test_a_state_of_other_links_is_refused(graph, pairs):
    other = make(graph, pairs.flip(1))
    with pytest.raises(ValueError, match="ordered items was"):
        other.load_state_dict(make(graph, pairs).state_dict())


def test_bad_arguments_are_refused(graph, pairs):
    sampler = LinkSampler(FusedSampler([2]))
    with pytest.raises(ValueError, match="pairs holds node 80; valid ids are 0 to 79"):
        LinkLoader(graph, None, torch.tensor([[1, 80]]), sampler, 1)
    bipartite = Graph(torch.tensor([0, 1]), torch.tensor([1]), num_src=3)
    with pytest.raises(ValueError, match="LinkLoader wants a graph of one set of nodes, this one has 1 destin"):
        LinkLoader(bipartite, None, pairs, sampler, 1)
    with pytest.raises(TypeError, match=r"must be a loader\.samplers\.LinkSampler, e\.g\. LinkSampler\("):
        LinkLoader(graph, None, pairs, FusedSampler([2]), 1)
    with pytest.raises(ValueError, match="features has 3 rows, the graph 80"):
        LinkLoader(graph, torch.zeros(3, 1), pairs, sampler, 1)
    with pytest.raises(ValueError, match=r"labels has shape \[3\], there are 50 pairs"):
        LinkLoader(graph, None, pairs, sampler, 1, labels=torch.zeros(3))
