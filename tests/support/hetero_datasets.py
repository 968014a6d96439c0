"""A small dataset with types for training: authors of two classes, papers without features, terms."""

from __future__ import annotations

from pathlib import Path

import torch

from loader.datasets import HeteroDataset, write_hetero_npz
from loader.graph import HeteroGraph

NUM_AUTHORS = 60


def make_hetero(name: str = "typed") -> HeteroDataset:
    """Authors write papers of authors of their class, and terms are of papers; features of authors and terms."""
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(NUM_AUTHORS) % 2
    author = torch.arange(NUM_AUTHORS).repeat(3)
    paper = 2 * torch.randint(20, author.shape, generator=g) + labels[author]
    term, of = torch.randint(10, (80,), generator=g), torch.randint(40, (80,), generator=g)
    edges = {
        ("author", "writes", "paper"): torch.stack([author, paper]),
        ("paper", "rev_writes", "author"): torch.stack([paper, author]),
        ("term", "of", "paper"): torch.stack([term, of]),
        ("paper", "rev_of", "term"): torch.stack([of, term]),
    }
    features = {
        "author": labels[:, None] + 0.8 * torch.randn(NUM_AUTHORS, 5, generator=g),
        "term": torch.randn(10, 3, generator=g),
    }
    graph = HeteroGraph.from_edges(edges, {"author": NUM_AUTHORS, "paper": 40, "term": 10})
    ids = torch.arange(NUM_AUTHORS)
    splits = {"train": ids[:30], "val": ids[30:40], "test": ids[40:]}
    return HeteroDataset(name, graph, features, "author", labels, splits, num_classes=2)


def make_purchases() -> HeteroDataset:
    """Users buy 8 items of their group, of 4 groups; features of users tell the group. Nobody has labels."""
    g = torch.Generator().manual_seed(1)
    user = torch.arange(120).repeat_interleave(8)
    item = 4 * torch.randint(20, user.shape, generator=g) + user % 4
    edges = {
        ("user", "buys", "item"): torch.stack([user, item]),
        ("item", "rev_buys", "user"): torch.stack([item, user]),
    }
    features = {"user": torch.eye(4)[torch.arange(120) % 4] + 0.3 * torch.randn(120, 4, generator=g)}
    none = torch.empty(0, dtype=torch.int64)
    graph, splits = (
        HeteroGraph.from_edges(edges, {"user": 120, "item": 80}),
        dict.fromkeys(("train", "val", "test"), none),
    )
    return HeteroDataset("purchases", graph, features, "user", torch.full((120,), -1), splits, num_classes=0)


def write_hetero(folder: Path, data: HeteroDataset | None = None) -> str:
    """Writes `data`, by default `make_hetero`, to a file of `folder`, and returns the option that names it."""
    write_hetero_npz(data or make_hetero(), folder / "typed.npz")
    return f"dataset.path={folder / 'typed.npz'}"
