"""Which types a model on typed mini-batches reads and writes, layer by layer."""

from __future__ import annotations

from models.hetero_block_net import HeteroBlockNet

TYPES = {"author": 5, "paper": 0, "term": 3, "place": 2}
RELATIONS = [("author", "writes", "paper"), ("paper", "rev_writes", "author"), ("term", "of", "paper")]


def net_of(num_layers: int) -> HeteroBlockNet:
    return HeteroBlockNet(TYPES, RELATIONS, "author", 8, num_layers, dropout=0.0, input_dropout=0.0, norm="none")


def test_each_layer_writes_what_later_ones_read() -> None:
    net = net_of(3)
    assert net.written == [{"author", "paper", "term"}, {"author", "paper"}, {"author"}]
    assert net.read == {"author", "paper", "term"}
    assert net_of(1).written == [{"author"}]
    assert net_of(1).read == {"author", "paper"}


def test_relations_are_listed_by_destination() -> None:
    net = net_of(2)
    assert net._ends == [(0, 1), (1, 0), (2, 1)]
    assert net._into == [[(1, 1)], [(0, 0), (2, 2)], [], []]
    assert net._slots == [1, 2, 0, 0]
