"""The order of the seeds made ahead is the order."""

from __future__ import annotations

import pytest
import torch

from loader.items.batches import SeedBatches
from loader.items.orders import Orders

CPU = torch.device("cpu")


def batches(shuffle: bool = True) -> SeedBatches:
    return SeedBatches(torch.arange(1000), 10, shuffle=shuffle, seed=5)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("epochs", [[0, 1, 2, 3], [0, 5, 6, 2], [3, 3, 3], [4, 0]])
def test_every_epoch_has_its_order(epochs: list[int], ahead: bool) -> None:
    orders = Orders(batches(), CPU, ahead=ahead)
    for epoch in epochs:
        assert torch.equal(orders.get(epoch), batches().order(epoch))
        orders.draw_ahead(epoch + 1)
        orders.draw_ahead(epoch + 1)


def test_the_type_is_the_samplers() -> None:
    assert Orders(batches(), CPU, torch.int32).get(0).dtype == torch.int32
    assert Orders(batches(), CPU).get(0).dtype == torch.int64


def test_only_a_shuffled_order_is_made_ahead() -> None:
    orders = Orders(batches(shuffle=False), CPU)
    assert torch.equal(orders.get(3), torch.arange(1000))
    orders.draw_ahead(4)
    assert orders._thread is None
    orders = Orders(batches(), CPU)
    orders.get(0)
    orders.draw_ahead(1)
    assert orders._thread is not None
    assert not orders._thread.daemon  # the interpreter does not end amid its work
    orders._thread.join()


def test_an_error_ahead_is_raised_where_the_order_is_asked_for() -> None:
    class Broken(SeedBatches):
        def order(self, epoch: int) -> torch.Tensor:
            if epoch == 1:
                raise LookupError("epoch 1")
            return super().order(epoch)

    orders = Orders(Broken(torch.arange(10), 2, shuffle=True), CPU)
    orders.get(0)
    orders.draw_ahead(1)
    with pytest.raises(LookupError, match="epoch 1"):
        orders.get(1)


def test_drawing_ahead_for_an_iterator_that_was_dropped_changes_nothing() -> None:
    class Disturbed(SeedBatches):
        def order(self, epoch: int) -> torch.Tensor:
            if epoch == 5:  # meanwhile the dropped one gets that far
                orders.draw_ahead(1)
                assert orders._thread is not None
                orders._thread.join()
            return super().order(epoch)

    orders = Orders(Disturbed(torch.arange(1000), 10, shuffle=True, seed=5), CPU)
    assert torch.equal(orders.get(5), batches().order(5))
    for epoch in (1, 6, 5):
        assert torch.equal(orders.get(epoch), batches().order(epoch))
