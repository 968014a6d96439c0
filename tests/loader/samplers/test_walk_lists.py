"""What walks read of a graph beside its lists, next to plain Python."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loader import _core
from loader.graph import Graph
from loader.samplers.walk_lists import copies_of


def _graph(lists: list[list[int]]) -> Graph:
    lengths = torch.tensor([0, *map(len, lists)])
    entries = torch.tensor([x for own in lists for x in sorted(own)], dtype=torch.int64)
    return Graph(lengths.cumsum(0), entries)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=4, max_size=6))
def test_each_list_has_its_most_frequent_node(lists: list[list[int]]) -> None:
    graph = _graph(lists)
    found = copies_of(graph, graph.indices)
    if all(len(set(own)) == len(own) for own in lists):
        assert found is None
        return
    assert found is not None
    powers, most = found
    for own, begin, power, row in zip(lists, graph.indptr.tolist(), powers.tolist(), most.tolist(), strict=False):
        counts = Counter(own)
        assert power == (max(counts.values(), default=1) - 1).bit_length()
        if not own:
            assert row[1:] == [0, 0]
            continue
        often = max(sorted(counts), key=counts.__getitem__)
        others = max((n for x, n in counts.items() if x != often), default=1)
        assert row == [begin + sorted(own).index(often), counts[often], others]


@pytest.mark.parametrize("row", [[-1, 1, 1], [3, 1, 1], [0, 4, 1], [0, -1, 0], [0, 0, 0], [0, 2, 3], [2**31 - 1, 1, 1]])
def test_places_beyond_their_list_are_refused(row: list[int]) -> None:
    graph = _graph([[1, 1], [0]])
    engine = _core.WalkEngine(graph.indptr, graph.indices, graph.indices, None, 0, 1)
    with pytest.raises(ValueError, match=r"most says that list 0 has .* must lie in its places 0 to 2"):
        engine.set_copies(torch.ones(2, dtype=torch.uint8), torch.tensor([row, [2, 1, 1]], dtype=graph.indptr.dtype))
