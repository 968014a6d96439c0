"""Lists of items: cut into mini-batches, told apart, put where they are wanted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from loader.items import EdgeItems, HeteroNodeItems, NodeItems, Walkers

IDS = torch.arange(100, 200)


def test_items_are_taken_by_position_and_cut() -> None:
    items = NodeItems(IDS)
    assert len(items) == 100
    (alone,) = items.take(torch.tensor([5, 3, 99]), [3])
    assert alone.ids.tolist() == [105, 103, 199]
    parts = items.take(torch.tensor([5, 3, 99]), [2, 1])
    assert [part.ids.tolist() for part in parts] == [[105, 103], [199]]
    parts = items.take(slice(10, 14), [1, 3])
    assert [part.ids.tolist() for part in parts] == [[110], [111, 112, 113]]


def test_a_slice_copies_nothing() -> None:
    items = NodeItems(IDS)
    (seeds,) = items.take(slice(10, 20), [10])
    assert seeds.ids.data_ptr() == items.ids[10:].data_ptr()


@pytest.mark.parametrize("items", [NodeItems, EdgeItems, Walkers])
def test_items_stay_when_ids_are_written_to(items: Any) -> None:
    ids = torch.tensor([[0, 1], [2, 3]]) if items is EdgeItems else torch.tensor([0, 1, 2])
    made = items(ids)
    before = made.fingerprint(), made.take(slice(0, 2), [2])[0].ids.tolist()
    ids[0] = 10**8
    assert (made.fingerprint(), made.take(slice(0, 2), [2])[0].ids.tolist()) == before


def test_items_have_the_wanted_type_and_place() -> None:
    moved = NodeItems(IDS).to(torch.device("cpu"), torch.int32)
    assert moved.ids.dtype == torch.int32
    assert moved.device == torch.device("cpu")
    assert moved.take(slice(0, 2), [2])[0].ids.tolist() == [100, 101]
    assert moved.fingerprint() == NodeItems(IDS).fingerprint()


def test_items_with_times_are_pairs_with_positions() -> None:
    times = torch.tensor([5.0, -1.0, 7.0, 2**52], dtype=torch.float64)
    items = NodeItems(torch.tensor([9, 9, 4, 2]), first=2, times=times).to(torch.device("cpu"), torch.int32)
    first, second = items.take(torch.tensor([3, 1, 0]), [2, 1])
    assert first.ids.tolist() == [[2, 2**52], [9, -1]]
    assert first.ids.dtype == torch.int64
    assert second.ids.tolist() == [[9, 5]]
    assert (first.numbers.tolist(), second.numbers.tolist()) == ([3, 1], [0])
    assert items.take(slice(1, 3), [2])[0].numbers.tolist() == [1, 2]
    (plain,) = NodeItems(torch.tensor([9, 4]), numbered=True).take(torch.tensor([1]), [1])
    assert (plain.ids.tolist(), plain.numbers.tolist()) == ([4], [1])


def test_times_are_part_of_a_fingerprint() -> None:
    ids = torch.tensor([1, 2])
    every = [NodeItems(ids), *(NodeItems(ids, times=torch.tensor(times)) for times in ([1, 2], [2, 1]))]
    assert len({items.fingerprint() for items in every}) == 3


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (torch.tensor([1]), "times has 1 entries, seeds has 2; the numbers must be equal"),
        (torch.tensor([1.0, float("nan")]), "times has 1 missing times of 2, the first at 1; a seed needs a time"),
        (torch.tensor([1.5, 2]), r"times\[0\] is 1.5; times are whole numbers"),
    ],
)
def test_bad_times_are_refused(times: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NodeItems(torch.tensor([1, 2]), times=times)


def test_nodes_of_a_mini_batch_come_by_type() -> None:
    items = HeteroNodeItems(torch.tensor([12, 3, 25, 11, 1, 24]), torch.tensor([0, 10, 20]))
    narrow = items.to(torch.device("cpu"), torch.int32)
    assert isinstance(narrow, HeteroNodeItems)
    assert narrow.starts.dtype == torch.int32
    for one in (items, narrow):
        assert [seeds.ids.tolist() for seeds in one.take(slice(0, 6), [4, 2])] == [[3, 12, 11, 25], [1, 24]]
        assert [seeds.ids.tolist() for seeds in one.take(torch.tensor([5, 0]), [2])] == [[12, 24]]


def test_a_fingerprint_tells_lists_and_orders_apart() -> None:
    prints = {NodeItems(ids).fingerprint() for ids in (IDS, IDS.flip(0), IDS[:-1], IDS + 1)}
    assert len(prints) == 4
    assert NodeItems(IDS.repeat_interleave(2)[::2]).fingerprint() in prints


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([1, 2], TypeError, "seeds is a list"),
        (torch.ones(3, dtype=torch.bool), TypeError, r"turn a mask into ids with mask.nonzero\(\)"),
        (
            torch.ones(3, 9, dtype=torch.bool),
            TypeError,
            r"a mask of shape \[3, 9\]; .* one column, as ids: mask\[:, 0\]",
        ),
        (torch.ones(3), TypeError, "integer"),
        (torch.ones(3, dtype=torch.complex64), TypeError, "integer"),
        (torch.ones(3, 1, dtype=torch.int64), ValueError, "1 dimension"),
        (IDS[:0], ValueError, "seeds is empty"),
    ],
)
def test_bad_ids_are_refused(ids: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        NodeItems(ids)
