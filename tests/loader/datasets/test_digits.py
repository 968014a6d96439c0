from __future__ import annotations

import os

import pytest
import torch
from sklearn.datasets import load_digits

from loader.datasets import Digits


def test_digits_are_symmetric_and_their_neighbors_look_alike(tmp_path):
    data = Digits(data_dir=tmp_path).load()
    assert (data.num_nodes, data.num_features, data.num_classes) == (1797, 64, 10)
    assert int(data.graph.in_degrees().min()) >= 8
    src = data.graph.indices.long()
    dst = torch.repeat_interleave(torch.arange(data.num_nodes), data.graph.in_degrees().long())
    assert torch.equal((src * 1797 + dst).sort()[0], dst * 1797 + src)
    assert not (src == dst).any()
    # What a classifier of neighborhoods can reach: the majority of the neighbors is of the node's own class.
    votes = torch.zeros(1797, 10).index_put_((dst, data.labels[src]), torch.ones(src.numel()), accumulate=True)
    assert (votes.argmax(1) == data.labels).float().mean() > 0.97
    assert (float(data.features.min()), float(data.features.max())) == (0.0, 1.0)


@pytest.mark.parametrize("num_neighbors", [1, 8, 1796])
def test_of_equally_near_digits_the_lower_counts(tmp_path, num_neighbors):
    """The search counts in floating point and in parallel; here it is one digit after another, in integers."""
    pixels = load_digits().data.astype(int).tolist()
    options = {"undirected": False, "self_loops": "keep", "parallel_edges": "keep"}
    data = Digits(num_neighbors=num_neighbors, data_dir=tmp_path, **options).load()
    for v in (0, 5, 1796):
        by = [(sum((a - b) ** 2 for a, b in zip(pixels[v], other, strict=True)), u) for u, other in enumerate(pixels)]
        expected = sorted(u for _, u in sorted(pair for pair in by if pair[1] != v)[:num_neighbors])
        first, last = data.graph.indptr[v], data.graph.indptr[v + 1]
        assert sorted(data.graph.indices[first:last].tolist()) == expected


def test_another_split_seed_shares_the_conversion(tmp_path):
    first, again, other = (Digits(data_dir=tmp_path, split_seed=seed).load().splits for seed in (0, 0, 1))
    assert torch.equal(first["train"], again["train"])
    assert not torch.equal(first["train"], other["train"])
    assert [ids.numel() for ids in first.values()] == [1078, 360, 359]
    assert len(os.listdir(tmp_path / "cache")) == 1


def test_another_graph_is_another_conversion(tmp_path):
    few, many = (Digits(data_dir=tmp_path, num_neighbors=k).load().graph.num_edges for k in (3, 12))
    assert few < many
    assert len(os.listdir(tmp_path / "cache")) == 2


def test_impossible_numbers_of_neighbors_are_refused():
    with pytest.raises(ValueError, match="num_neighbors is 0"):
        Digits(num_neighbors=0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_neighbors": "8"}, TypeError, "num_neighbors is .8.; it must be an integer"),
        ({"num_neighbors": 1797}, ValueError, "num_neighbors is 1797; it must be at most 1796"),
        ({"split": None}, ValueError, r"split is None; give three fractions \(train, val, test\)"),
        ({"split": "abc"}, ValueError, "split is 'abc'; give three fractions"),
    ],
)
def test_options_of_the_wrong_kind_are_refused(options, error, message) -> None:
    with pytest.raises(error, match=message):
        Digits(**options)
