"""A small database with times, and tasks on it: do customers order again, how much, and what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

DAY = 86_400
FIRST = 1_577_836_800  # 2020-01-01
SCHEMA = """
tables:
  customers: {file: customers.csv, key: id}
  products: {file: products.csv, key: [brand, number]}
  orders:
    file: orders.csv
    key: id
    time: at
    foreign: [{customer: customers}, {columns: [brand, number], table: products}]
  reviews: {file: reviews.csv, time: order_id.at, foreign: {order_id: orders}}
split: {val: 2020-03-01, test: 2020-04-01}
tasks:
  again: {file: items.csv, table: customers, entity: who, time: at, label: again, kind: binary}
  spent: {file: items.csv, table: customers, entity: who, time: at, label: spent, kind: regression}
  mood: {file: items.csv, table: customers, entity: who, time: at, label: mood, kind: multiclass}
"""


def write_shop(folder: Path, *, customers: int = 40, orders: int = 400, seed: int = 0) -> Path:
    """Writes a shop whose good customers, those with a high mean rating, order more and again."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    good = rng.random(customers) < 0.5
    lines = ["id,city,born"]
    lines += [
        f"c{number},{['Rome', 'Oslo', ''][rng.integers(3)]},{1960 + rng.integers(40)}-0{1 + rng.integers(9)}-11"
        for number in range(customers)
    ]
    _write(folder / "customers.csv", lines)
    _write(folder / "products.csv", ["brand,number,price", *(f"{b},{n},{5 + 3 * n}" for b in "xy" for n in range(5))])
    lines, reviews = ["id,customer,brand,number,amount,at"], ["order_id,stars,text"]
    for number in range(orders):
        who, day = rng.integers(customers), rng.integers(0, 120)
        amount = f"{rng.normal(30 if good[who] else 10, 4):.2f}" if rng.random() < 0.9 else ""
        at = np.datetime64(FIRST + int(day) * DAY, "s")
        lines.append(f"{1000 + number},c{who},{'xy'[rng.integers(2)]},{rng.integers(5)},{amount},{at}")
        if rng.random() < 0.5:
            reviews.append(f"{1000 + number},{rng.integers(4, 6) if good[who] else rng.integers(1, 4)},text {number}")
    _write(folder / "orders.csv", lines)
    _write(folder / "reviews.csv", reviews)
    items = ["who,at,again,spent,mood"]
    for day in range(30, 120, 10):
        for who in range(customers):
            yes = good[who] ^ (rng.random() < 0.05)
            spent = f"{30.0 * yes + rng.normal():.3f}"
            items.append(
                f"c{who},{np.datetime64(FIRST + day * DAY, 's')},{int(yes)},{spent},{'happy' if yes else 'sad'}"
            )
    _write(folder / "items.csv", items)
    (folder / "schema.yaml").write_text(SCHEMA)
    return folder


def edit(path: Path, change: Callable[[str], str]) -> None:
    """Changes a text file."""
    before = path.read_text()
    after = change(before)
    assert after != before
    path.write_text(after)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join([*lines, ""]))
