"""`global_uniform_negative_sampling` as a law."""

import numpy as np
import pytest
import torch
from marks import needs_dgl
from statistics_of_counts import LEVEL, p_equal, p_equal_subsets

from loader.dgl import sampling as ours

pytestmark = needs_dgl


def graph_of(sources, targets, kept):
    """An edge type that has the pairs that are not kept free."""
    import dgl

    edges = torch.tensor([(u, v) for u in range(sources) for v in range(targets) if (u, v) not in kept])
    one = sources == targets
    name = "a" if one else "b"
    return dgl.heterograph(
        {("a", "x", name): (edges[:, 0], edges[:, 1])}, {"a": sources} if one else {"a": sources, "b": targets}
    )


FREE = [(0, 0), (0, 3), (1, 2), (2, 2), (3, 1), (4, 4), (4, 0), (4, 1)]


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_pairs_are_equally_likely(loops, dense):
    import dgl

    size = 30 if dense else 5  # 8 of 900 pairs are too few to be tried
    g = graph_of(size, size, FREE)
    dgl.seed(1)
    source, target = ours.global_uniform_negative_sampling(g, 4000, exclude_self_loops=not loops, replace=True)
    free = [pair for pair in FREE if loops or pair[0] != pair[1]]
    drawn = list(zip(source.tolist(), target.tolist(), strict=True))
    assert set(drawn) == set(free)
    assert p_equal(np.array([drawn.count(pair) for pair in free])) > LEVEL


@pytest.mark.parametrize("count", [2, 6])
def test_without_replacement_subsets_are_equally_likely(count):
    import dgl

    g = graph_of(5, 6, FREE)
    dgl.seed(2)
    counts = dict.fromkeys(FREE, 0)
    for _ in range(500):
        pairs = list(zip(*(part.tolist() for part in ours.global_uniform_negative_sampling(g, count)), strict=True))
        assert len(set(pairs)) == count
        for pair in pairs:
            counts[pair] += 1
    assert p_equal_subsets(np.array(list(counts.values())), count) > LEVEL


def test_all_pairs_are_drawn_if_there_are_fewer():
    g = graph_of(5, 6, FREE)
    source, target = ours.global_uniform_negative_sampling(g, 50)
    assert sorted(zip(source.tolist(), target.tolist(), strict=True)) == sorted(FREE)


@pytest.mark.parametrize("replace", [False, True])
def test_full_graphs_have_no_negatives(replace):
    source, target = ours.global_uniform_negative_sampling(graph_of(4, 5, []), 3, replace=replace)
    assert len(source) == len(target) == 0


def test_ids_have_the_graphs_type(g, shop):
    import dgl

    made, theirs = (package.global_uniform_negative_sampling(g, 9) for package in (ours, dgl.sampling))
    assert [part.dtype for part in made] == [part.dtype for part in theirs]
    assert not g.has_edges_between(*made).any()
    source, target = ours.global_uniform_negative_sampling(shop, 100, etype="bought")
    assert not shop.has_edges_between(source, target, etype="bought").any()
    assert source.max() >= 20  # users, of whom there are more than items


def test_dgls_seed_decides(g):
    import dgl

    drawn = []
    for seed in (1, 1, 2):
        dgl.seed(seed)
        drawn.append([part.tolist() for part in ours.global_uniform_negative_sampling(g, 50)])
    assert drawn[0] == drawn[1] != drawn[2]


def test_bad_input_is_refused(g, shop):
    with pytest.raises(ValueError, match="etype is None, but the graph has the edge types"):
        ours.global_uniform_negative_sampling(shop, 5)
    with pytest.raises(ValueError, match="num_samples is -1"):
        ours.global_uniform_negative_sampling(g, -1)
    with pytest.raises(TypeError, match="redundancy"):
        ours.global_uniform_negative_sampling(g, 5, redundancy="many")
