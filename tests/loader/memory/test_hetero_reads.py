"""What typed mini-batches read: by a count in plain Python, and by degrees where little was seen."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hetero_datasets import make_hetero

from loader.graph import HeteroGraph
from loader.memory.hetero_reads import HeteroReads, _degrees
from loader.samplers import FusedSampler, TreeSampler


@pytest.mark.parametrize("trees", [False, True])
def test_reads_are_those_of_mini_batches(trees: bool) -> None:
    graph = make_hetero().graph
    sampler = TreeSampler([3, 2], num_threads=1) if trees else FusedSampler([3, 2], num_threads=1)
    batches = [sampler.sample(graph, {"author": torch.arange(5 * i, 5 * i + 5)}, batch=i) for i in range(6)]
    reads = HeteroReads.of(graph, batches, ["author", "term"])
    assert reads.counted == 6
    assert reads.lists == 32 * sum(block.num_edges for batch in batches for block in batch.blocks) / 6
    for name in ("author", "term"):
        of_type = graph.node_types[name]
        found = [{v for v in batch.nodes.tolist() if v in of_type} for batch in batches]  # a row once each
        assert reads.rows_of[name].tolist() == [len(one) for one in found]
        assert float(reads.rows[name].sum()) == pytest.approx(sum(map(len, found)) / 6)
        counts = Counter(v - of_type.start for one in found for v in one)
        often, never = max(counts, key=counts.__getitem__), next((v for v in range(len(of_type)) if v not in counts), 0)
        assert float(reads.rows[name][often]) >= float(reads.rows[name][never])


def test_degrees_are_counted_over_relations() -> None:
    graph = make_hetero().graph
    degrees = _degrees(graph)
    for name, ids in graph.node_types.items():
        own, listed = [0] * len(ids), [0] * len(ids)
        for key in graph.edge_types:
            places, rows = graph.entries(key)
            for v, row in zip((graph.lists.indices[places].long()).tolist(), rows.tolist(), strict=True):
                if key[2] == name:
                    own[row] += 1
                if v in ids:
                    listed[v - ids.start] += 1
        assert [part.tolist() for part in degrees[name]] == [own, listed]


def test_types_without_relations_have_reads() -> None:
    graph = HeteroGraph.from_edges({("a", "to", "a"): torch.tensor([[0], [1]])}, {"a": 2, "alone": 3, "none": 0})
    batch = FusedSampler([2], num_threads=1).sample(graph, {"alone": torch.tensor([1])})
    reads = HeteroReads.of(graph, [batch], ["a", "alone", "none"])
    assert reads.lists == 0
    assert {name: of.tolist() for name, of in reads.rows_of.items()} == {"a": [0], "alone": [1], "none": [0]}
    assert float(reads.rows["alone"].sum()) == 1


def test_no_mini_batch_tells_nothing() -> None:
    with pytest.raises(ValueError, match="there is no mini-batch that shows which rows are read: there are 0 seeds"):
        HeteroReads.of(make_hetero().graph, [], ["author"])
