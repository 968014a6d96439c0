"""Numbers that a user's methods draw follow from the seed."""

import threading
import time

import torch

from loader.loaders.own_batches import seeded


def test_the_key_decides_numbers_for_a_while():
    state = torch.get_rng_state()
    with seeded(1, 2, 3):
        first = torch.rand(4)
    with seeded(1, 2, 3):
        assert torch.equal(torch.rand(4), first)
    with seeded(1, 2, 4):
        assert not torch.equal(torch.rand(4), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_threads_draw_their_own_numbers():
    def draw(seed, out):
        for batch in range(20):
            with seeded(seed, 0, batch):
                first = torch.rand(1)
                time.sleep(0.0005)  # the other thread may run now
                out.append((first.item(), torch.rand(1).item()))

    alone, beside = {1: [], 2: []}, {1: [], 2: []}
    for seed, out in alone.items():
        draw(seed, out)
    threads = [threading.Thread(target=draw, args=both) for both in beside.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert beside == alone
