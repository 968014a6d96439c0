"""Samplers and batch samplers of torch's, which decide what a loader's mini-batches are made of."""

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from torch_geometric.data import Data
from torch_geometric.loader import ImbalancedSampler

from loader.pyg import NeighborLoader

NUM_NODES, NUM_EDGES = 120, 700
SEEDS = torch.arange(0, NUM_NODES, 2)


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(2)
    return Data(
        x=torch.randn(NUM_NODES, 3, generator=generator),
        y=torch.randint(3, (NUM_NODES,), generator=generator),
        edge_index=torch.randint(NUM_NODES, (2, NUM_EDGES), generator=generator),
    )


def all_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a.input_id, b.input_id)
        assert torch.equal(a.n_id, b.n_id)
        assert torch.equal(a.e_id, b.e_id)


def test_samplers_of_torch_decide_the_order(data):
    order = [3, 3, 50, 7, 11]
    made = NeighborLoader(data, [3], input_nodes=SEEDS, batch_size=2, sampler=order, seed=1)
    assert len(made) == 3
    assert [batch.input_id.tolist() for batch in made] == [[3, 3], [50, 7], [11]]
    batches = [[1, 2, 3], [4]]
    made = NeighborLoader(data, [3], input_nodes=SEEDS, batch_sampler=batches, seed=1)
    for batch, positions in zip(made, batches, strict=True):
        assert batch.input_id.tolist() == positions
        assert torch.equal(batch.n_id[: batch.batch_size], SEEDS[positions])
        assert torch.equal(batch.x, data.x[batch.n_id])
    in_order = NeighborLoader(data, [3, 2], input_nodes=SEEDS, batch_size=8, seed=4)
    drawn = NeighborLoader(data, [3, 2], input_nodes=SEEDS, batch_size=8, seed=4, sampler=SequentialSampler(SEEDS))
    all_same(drawn, in_order)


@pytest.mark.parametrize(
    "sampler",
    [
        lambda data: ImbalancedSampler(data, input_nodes=SEEDS),
        lambda data: RandomSampler(SEEDS),
        lambda data: SubsetRandomSampler(range(40)),
        lambda data: BatchSampler(RandomSampler(SEEDS), 7, drop_last=True),
    ],
)
def test_epochs_of_torchs_samplers_follow_from_the_seed(data, sampler):
    def made():
        one = sampler(data)
        more = {"batch_sampler": one} if isinstance(one, BatchSampler) else {"sampler": one, "batch_size": 16}
        return NeighborLoader(data, [4], input_nodes=SEEDS, seed=3, **more)

    first, second = made(), made()
    epochs = [list(first), list(first)]
    assert [b.input_id.tolist() for b in epochs[0]] != [b.input_id.tolist() for b in epochs[1]]
    torch.rand(5)
    for epoch in epochs:
        all_same(second, epoch)


def test_an_abandoned_epoch_is_not_drawn_again(data):
    def made():
        return NeighborLoader(data, [4], input_nodes=SEEDS, seed=3, batch_size=16, sampler=RandomSampler(SEEDS))

    whole, left = made(), made()
    epochs = [list(whole) for _ in range(2)]
    next(iter(left))
    running = iter(left)
    all_same([next(running)], epochs[1][:1])
    resumed = made()
    resumed.load_state_dict(left.state_dict())
    all_same(resumed, epochs[1][1:])


def test_resuming_with_a_samplers_other_state_is_refused(data):
    def made():
        sampler = RandomSampler(SEEDS, generator=torch.Generator().manual_seed(1))
        return NeighborLoader(data, [4], input_nodes=SEEDS, seed=3, batch_size=16, sampler=sampler)

    first = made()
    list(first)
    running = iter(first)
    next(running)
    again = made()  # whose generator is at its first epoch
    again.load_state_dict(first.state_dict())
    with pytest.raises(
        ValueError, match="cannot resume: the sampler of this NeighborLoader gives other mini-batches in"
    ):
        next(iter(again))


class Drawn:
    """Gives the mini-batches of each epoch, and has the number of those that come next as its length."""

    def __init__(self, *epochs):
        self.epochs, self.epoch = epochs, 0

    def __len__(self):
        return len(self.epochs[self.epoch])

    def __iter__(self):
        self.epoch, given = min(self.epoch + 1, len(self.epochs) - 1), self.epochs[self.epoch]
        return iter(given)


@pytest.mark.parametrize(("second", "number"), [([[0]], "1"), ([[0]] * 3, "more")])
def test_another_number_of_mini_batches_is_refused(data, second, number):
    made = NeighborLoader(data, [4], seed=3, batch_sampler=Drawn([[0], [1]], second))
    assert [batch.input_id.tolist() for batch in made] == [[0], [1]]
    with pytest.raises(ValueError, match=f"gives {number} mini-batches in epoch 1, and its length was 2"):
        next(iter(made))


def test_a_sampler_without_an_end_is_refused(data):
    class Endless(torch.utils.data.Sampler):
        def __len__(self):
            return 4

        def __iter__(self):
            return iter(lambda: [0], None)

    with pytest.raises(ValueError, match="gives more mini-batches in epoch 0, and its length was 4"):
        next(iter(NeighborLoader(data, [4], batch_sampler=Endless(), seed=3)))


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ([0, 40], ValueError, "gives position 40; there are 30 items, 0 to 29"),
        ([-31], ValueError, "gives position -31"),
        ([1.5], TypeError, r"gives \[1.5\]; it must give lists of positions"),
        (7, TypeError, "gives 7; it must give lists of positions"),
    ],
)
def test_what_is_no_position_is_refused(data, batch, error, message):
    made = NeighborLoader(data, [4], input_nodes=torch.arange(30), seed=3, batch_sampler=[[0], batch])
    with pytest.raises(error, match=message):
        next(iter(made))


def test_a_sampler_without_mini_batches_is_refused(data):
    few = {"sampler": RandomSampler(range(3)), "batch_size": 4, "drop_last": True}
    with pytest.raises(ValueError, match="the sampler of this NeighborLoader has no mini-batch; lower batch_size"):
        NeighborLoader(data, [4], input_nodes=torch.arange(3), seed=3, **few)
