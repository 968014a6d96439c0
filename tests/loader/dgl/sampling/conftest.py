"""Graphs of DGL on which its functions and ours are compared."""

import pytest
import torch

USERS, ITEMS = 30, 20


@pytest.fixture
def shop():
    """A graph of two node types and three edge types, one of which has weights and a mask."""
    import dgl

    generator = torch.Generator().manual_seed(2)

    def ends(sources, targets, count):
        return tuple(torch.randint(size, (count,), generator=generator) for size in (sources, targets))

    bought = ends(USERS, ITEMS, 120)
    made = dgl.heterograph(
        {
            ("user", "follows", "user"): ends(USERS, USERS, 150),
            ("user", "bought", "item"): bought,
            ("item", "bought_by", "user"): bought[::-1],
        },
        {"user": USERS, "item": ITEMS},
    )
    made.nodes["user"].data["feat"] = torch.rand(USERS, 2, generator=generator)
    made.edges["bought"].data["weight"] = torch.rand(120, generator=generator)
    made.edges["bought"].data["mask"] = torch.rand(120, generator=generator) > 0.3
    made.edges["follows"].data["kind"] = torch.arange(150)
    return made


@pytest.fixture
def full():
    """A graph where each of `count` nodes has an edge from each of `width` others, which have the lowest ids."""
    import dgl

    def make(width, count):
        sources = torch.arange(width).repeat(count)
        targets = width + torch.arange(count).repeat_interleave(width)
        return dgl.graph((sources, targets), num_nodes=width + count)

    return make
