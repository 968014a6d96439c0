"""`Walks`: what every sample can do, and the rows of walks that ended."""

from __future__ import annotations

import pytest
import torch

from loader.samples import LazyRows, Walks


@pytest.fixture
def walks() -> Walks:
    nodes = torch.tensor([[3, 1, 0], [2, 4, -1], [1, -1, -1]], dtype=torch.int32)
    return Walks(nodes, torch.tensor([[7, 0], [5, -1], [-1, -1]]), epoch=2, index=1)


def test_shapes_and_ids_are_those_of_walks(walks: Walks) -> None:
    assert (walks.batch_size, walks.walk_length) == (3, 2)
    assert walks.starts.tolist() == [3, 2, 1]
    assert walks.ids("node").tolist() == [3, 1, 0, 2, 4, 0, 1, 0, 0]
    assert walks.ids("seed").tolist() == [3, 2, 1]
    assert walks.ids("edge").tolist() == [7, 0, 5, 0, 0, 0]
    with pytest.raises(KeyError, match="wants rows of"):
        walks.ids("node/paper")
    with pytest.raises(KeyError, match="'edge'"):
        walks.replace(edge_ids=None).ids("edge")
    assert repr(walks) == "Walks(epoch=2, index=1, walkers=3, walk_length=2, device='cpu')"


def test_rows_after_the_end_are_zero(walks: Walks) -> None:
    table = torch.arange(1, 11).float()[:, None] * torch.tensor([1.0, 10.0])
    rows = {"node": table[walks.ids("node")], "seed": torch.arange(10)[walks.ids("seed")]}
    full = walks.with_rows({**rows, "edge": table[walks.ids("edge")]})
    assert full.x is not None
    assert full.x[..., 0].tolist() == [[4, 2, 1], [3, 5, 0], [2, 0, 0]]
    assert full.edge_features is not None
    assert full.edge_features[..., 1].tolist() == [[80, 10], [60, 0], [0, 0]]
    assert full.y is not None
    assert full.y.tolist() == [3, 2, 1]
    assert [full.has(kind) for kind in ("node", "seed", "edge", "other")] == [True, True, True, False]
    assert not any(walks.has(kind) for kind in ("node", "seed", "edge"))
    lazy = walks.with_rows({"node": LazyRows(table, walks.ids("node"))})
    assert lazy.x is not None
    assert torch.equal(lazy.x, full.x)
    with pytest.raises(KeyError, match="it was given"):
        walks.with_rows({"other": table})
    with pytest.raises(KeyError, match="it was given"):
        walks.replace(edge_ids=None).with_rows({"edge": table})


def test_copies_have_digests_of_their_content(walks: Walks) -> None:
    doubled = walks.map(lambda t: t * 2)
    assert doubled.nodes[0].tolist() == [6, 2, 0]
    assert doubled.edge_ids is not None
    assert (doubled.epoch, doubled.index) == (2, 1)
    assert walks.to("cpu").digest() == walks.digest() != doubled.digest()
    assert walks.replace(edge_ids=None).digest() != walks.digest()
    assert walks.replace(index=0).digest() != walks.digest()
    assert walks.nbytes == 9 * 4 + 6 * 8
    assert len(walks.tensors()) == 2
