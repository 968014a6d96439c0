"""What the cache holds and how it counts; that it returns the right bytes is in test_gpu.py."""

from __future__ import annotations

import numpy as np
import torch
from marks import needs_gpu

from loader.graph import Graph
from loader.samplers import HopwiseSampler
from loader.samples import MiniBatch
from loader.stores import CachedFeatures, StoreContext

pytestmark = needs_gpu


def test_hits_are_counted() -> None:
    table = torch.rand(1000, 100)
    scores = torch.zeros(1000)
    scores[300:400] = 1
    store = CachedFeatures(table, fraction=0.1, hotness=scores)
    assert store.num_cached == 100
    assert store.cached_bytes == 100 * 400 + 1000 * 4
    assert np.isnan(store.hit_rate)
    store.gather(torch.arange(1000).cuda())
    assert store.hit_rate == 0.1
    store.gather(torch.arange(300, 400))
    assert store.hit_rate == 200 / 1100
    store.reset_hit_rate()
    store.gather(torch.tensor([5, 300, 399, 400]))
    assert store.hit_rate == 0.5
    store.close()


def test_the_cache_holds_the_hottest_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    src = torch.randint(50, (4000,), generator=generator) ** 2 // 5
    graph = Graph.from_edges(src, torch.randint(500, (4000,), generator=generator), 500)
    table = torch.rand(500, 20)
    sampler, begins = HopwiseSampler(5, 2), range(0, 100, 20)

    def batches() -> list[MiniBatch]:
        return [sampler.sample(graph, torch.arange(begin, begin + 20)) for begin in begins]

    context = StoreContext(graph, batches)
    for hotness in ("degree", "visits"):
        store = CachedFeatures(table, fraction=0.1, hotness=hotness, context=context)
        nodes = torch.randint(500, (2000,), generator=generator)
        assert torch.equal(store.gather(nodes).cpu(), table[nodes])
        store.reset_hit_rate()
        for batch in batches():
            store.gather(batch.input_nodes)
        assert store.hit_rate > 0.15  # a tenth of the rows would be a tenth of the reads
        store.close()
