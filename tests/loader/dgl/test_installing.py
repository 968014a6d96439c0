"""Our names in the place of DGL's."""

import pytest
import torch
from dgl_edges import edges_by_ids
from marks import needs_dgl

import loader.dgl as ours

pytestmark = [needs_dgl, pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")]


@pytest.fixture
def installed(monkeypatch):
    """DGL with our names, until the test ends."""
    import dgl

    for module, names in ((dgl.dataloading, ours.__all__), (dgl.sampling, ours.sampling.__all__)):
        for name in names:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))
    before = dgl.dataloading.negative_sampler, dgl.dataloading.Sampler
    ours.install()
    ours.install()
    assert before == (dgl.dataloading.negative_sampler, dgl.dataloading.Sampler)
    return dgl


def test_names_are_ours(installed):
    theirs = ["install", "negative_sampler", "sampling"]
    for name in ours.__all__:
        assert name in theirs or getattr(installed.dataloading, name) is getattr(ours, name)
    for name in ours.sampling.__all__:
        assert getattr(installed.sampling, name) is getattr(ours.sampling, name)


@pytest.mark.parametrize("own", [False, True])
def test_scripts_run_on_the_pipeline(installed, g, own):
    kind = installed.dataloading.NeighborSampler
    if own:
        kind = type("Own", (kind,), {"sample": lambda self, *given: super(kind, self).sample(*given)})
    seeds = torch.arange(40, dtype=g.idtype)
    made = installed.dataloading.DataLoader(g, seeds, kind([3, 2]), batch_size=16, seed=1)
    for _, outputs, blocks in made:
        assert blocks[-1].num_dst_nodes() == len(outputs)
    assert isinstance(made, ours.DataLoader)


def test_dgls_other_samplers_still_work(installed, g):
    seeds = torch.arange(40, dtype=g.idtype)
    from dgl.dataloading.shadow import ShaDowKHopSampler

    shadow = ShaDowKHopSampler([-1])
    for _, outputs, part in installed.dataloading.DataLoader(g, seeds, shadow, batch_size=16, seed=1):
        assert part.num_nodes() >= len(outputs)
    drawn = installed.dataloading.negative_sampler.GlobalUniform(2)
    sampler = installed.dataloading.as_edge_prediction_sampler(
        installed.dataloading.NeighborSampler([-1]), negative_sampler=drawn
    )
    for _, pairs, negative, _ in installed.dataloading.DataLoader(g, seeds, sampler, batch_size=16, seed=1):
        assert negative.num_edges() == 2 * pairs.num_edges()


def test_our_sampler_of_dgl_stays(installed, g):
    from loader import Graph
    from loader.samplers import DGLSampler

    graph = Graph.from_dgl(g)
    batch = DGLSampler([-1], edge_ids=True).sample(graph, torch.arange(5))
    (block,) = ours.MultiLayerFullNeighborSampler(1).sample(g, torch.arange(5))[2]
    assert edges_by_ids(block) == edges_by_ids(batch.to_dgl()[2][0])
