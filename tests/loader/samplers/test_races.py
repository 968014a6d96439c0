"""Races in torch's integers are those of csrc/sampler/race.h, in plain Python."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from marks import HAS_GPU
from reference_picks import LAST, exponential
from reference_sampler import WORD, philox
from torch import Tensor

from loader.samplers.races import arrivals, node_words

EDGES = [0, 1, WORD - 1, WORD, 2**62, 2**63 - 1, 2**63, 2**63 + 1, *(2**64 - 2**k for k in range(63))]


def draws() -> tuple[list[int], Tensor, Tensor, Tensor]:
    """Numbers of 64 bits, their halves, and weights."""
    rng = random.Random(1)
    ys = EDGES + [rng.getrandbits(64) for _ in range(5000)]
    ys += [2**64 - 1 - rng.getrandbits(rng.randint(1, 63)) for _ in range(3000)]
    ys += [rng.getrandbits(rng.randint(1, 63)) for _ in range(3000)]
    weights = torch.tensor([rng.random() * 10 ** rng.randint(-3, 40) + 1e-9 for _ in ys], dtype=torch.float64)
    return ys, torch.tensor([y % WORD for y in ys]), torch.tensor([y >> 32 for y in ys]), weights


def test_arrivals_are_those_of_the_core() -> None:
    ys, low, high, weights = draws()
    expected = [min(float(exponential(y)) / w, LAST) for y, w in zip(ys, weights.tolist(), strict=True)]
    assert arrivals(low, high, weights).tolist() == expected


def test_infinite_times_become_the_last_one() -> None:
    late = arrivals(torch.tensor([5, 0]), torch.tensor([9, 0]), torch.tensor([1e-320, 1e-320], dtype=torch.float64))
    assert late.tolist() == [LAST, 0.0]


def test_words_are_those_of_philox() -> None:
    g = torch.Generator().manual_seed(2)
    nodes = torch.cat([torch.randint(2**31, (300,), generator=g), torch.randint(2**62, (300,), generator=g)])
    for key, step in ((0, 0), (2**64 - 1, 7), (0x123456789ABCDEF0, 2**20)):
        words = zip(*(of.tolist() for of in node_words(nodes, key, step)), strict=True)
        halves = key % WORD, key >> 32
        assert list(words) == [philox((v % WORD, v >> 32, step, 0), halves)[:2] for v in nodes.tolist()]


def test_arrivals_are_exponential() -> None:
    times = arrivals(*node_words(torch.arange(200_000), 5, 1), torch.full((200_000,), 2.0, dtype=torch.float64))
    shares = times.numpy() * 2.0 / 2.0**57 * np.log(2)  # of mean 1
    quantiles = -np.log1p(-np.arange(1, 10) / 10)
    below = (shares[:, None] < quantiles).mean(0)
    assert np.abs(below - np.arange(1, 10) / 10).max() < 5 * 0.5 / np.sqrt(len(shares))


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_a_gpu_has_the_same_bytes() -> None:
    _, low, high, weights = draws()
    there = arrivals(low.cuda(), high.cuda(), weights.cuda())
    assert torch.equal(there.cpu(), arrivals(low, high, weights))
    nodes = torch.cat([torch.arange(10_000), torch.arange(2**40, 2**40 + 10_000)])
    for here, on_gpu in zip(node_words(nodes, 2**63 + 9, 4), node_words(nodes.cuda(), 2**63 + 9, 4), strict=True):
        assert torch.equal(here, on_gpu.cpu())
