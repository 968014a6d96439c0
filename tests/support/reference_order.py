"""The order of an epoch once more, in plain Python: slow, short, and with no line in common with the C++ core.

A Feistel network over a rectangle (Black and Rogaway, CT-RSA 2002), whose rounds are mixed by SplitMix64 (Steele, Lea
and Flood, OOPSLA 2014), and whose key is made by Philox.
"""

from __future__ import annotations

from itertools import count
from math import isqrt

from reference_sampler import ORDER, batch_key

WORD64 = 1 << 64


def splitmix64(state: int) -> int:
    """What SplitMix64 makes of one state."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ state >> shift) * factor % WORD64
    return state ^ state >> 31


def order_key(seed: int, epoch: int) -> int:
    low, high = batch_key(seed, epoch, 0, ORDER)
    return high << 32 | low


def position_to_item(position: int, num_items: int, key: int) -> int:
    """The item at one position of the order that belongs to `key`."""
    root = isqrt(num_items)
    # Where the root of a square is no power of two, a square with one row more would do; the core takes that.
    rows = root if root.bit_count() == 1 and root * root == num_items else root + 1
    columns = -(-num_items // rows)
    rounds = 24 if num_items < 65_536 else 12
    keys = [splitmix64((key + i * 0x9E3779B97F4A7C15) % WORD64) for i in range(1, rounds + 2)]
    item = position
    for walked in count():
        if walked and item < num_items:
            break
        halves = [*divmod(item, columns)]
        for turn in range(rounds):
            size = (rows, columns)[turn % 2]
            step = splitmix64(halves[1 - turn % 2] ^ keys[turn]) * size // WORD64
            halves[turn % 2] = (halves[turn % 2] + step) % size
        item = halves[0] * columns + halves[1]
    odd = num_items > 1 and keys[rounds] % 2 == 1
    return {0: 1, 1: 0}.get(item, item) if odd else item


def order(num_items: int, seed: int, epoch: int) -> list[int]:
    """The items of an epoch, in order."""
    key = order_key(seed, epoch)
    return [position_to_item(position, num_items, key) for position in range(num_items)]
