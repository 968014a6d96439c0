"""The card: figures that can be known beforehand on graphs of one degree."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import equal_degrees, messy_graph
from hetero_datasets import make_hetero
from rich.console import Console
from shop import write_shop

from loader.datasets import HeteroDataset, NodeDataset, RelationalDataset
from loader.graph import Graph, HeteroGraph
from loader.inspect import CACHE_SHARES, inspect, main, show
from loader.inspect.types import show_types
from loader.loaders.nodes import NodeLoader
from loader.samplers import FusedSampler


def dataset(graph: Graph, num_train: int, num_features: int = 3) -> NodeDataset:
    n = graph.num_nodes
    ids = torch.arange(n)
    return NodeDataset(
        "graph",
        graph,
        torch.zeros(n, num_features),
        torch.zeros(n, dtype=torch.int64),
        {"train": ids[:num_train], "val": ids[num_train : num_train + 1], "test": ids[num_train + 1 :]},
        num_classes=1,
    )


def test_figures_of_a_graph_of_one_degree() -> None:
    data = dataset(equal_degrees(500, 9), 100)
    card = inspect(data, [5, 2], 10, batches=4, num_threads=1)
    first, second = card["hops"]
    assert first["edges"] == {"mean": 50, "min": 50, "max": 50}
    assert second["edges"]["mean"] == 2 * first["nodes"]["mean"]
    assert second["nodes"] == card["input_rows"]
    for hop in (first, second):
        assert hop["picked_degree"] == hop["drawn_degree"] == 9
        assert hop["edges_per_source"] >= 1
    assert card["batches_per_epoch"] == 10
    assert card["graph"]["mean_degree"] == card["graph"]["max_degree"] == 9
    assert card["graph"]["feature_bytes"] == 500 * 3 * 4
    assert card["memory"]["feature_bytes_a_batch"]["mean"] == pytest.approx(card["input_rows"]["mean"] * 12)
    assert card["memory"]["in_flight_bytes"] > card["memory"]["feature_bytes_a_batch"]["max"]
    assert all(ms > 0 for ms in card["milliseconds"].values())
    json.dumps(card)


def test_bytes_are_those_of_the_kept_type() -> None:
    data = dataset(equal_degrees(500, 9), 100, num_features=100)
    data.features.copy_(torch.rand(500, 100) + 1)
    whole = inspect(data, [5, 2], 10, batches=4, num_threads=1)
    assert whole["graph"]["feature_bytes"] == 500 * 400
    # A row of 100 codes begins on a line of 128 bytes; beside the rows lies a scale for each column.
    assert whole["graph"]["narrower_bytes"] == {"bfloat16": 500 * 200, "int8": 500 * 128 + 400}
    eight = inspect(data, [5, 2], 10, batches=4, num_threads=1, storage_dtype="float8")
    assert eight["graph"]["feature_bytes"] == 500 * 128 + 400
    assert eight["graph"]["narrower_bytes"] == {}
    assert eight["memory"]["feature_bytes_a_batch"] == whole["memory"]["feature_bytes_a_batch"]
    half = inspect(data, [5, 2], 10, batches=4, num_threads=1, storage_dtype="float16")
    assert half["graph"]["feature_bytes"] == 500 * 200
    assert half["memory"]["feature_bytes_a_batch"]["mean"] * 2 == whole["memory"]["feature_bytes_a_batch"]["mean"]
    console = Console(record=True, width=80)
    show(whole, console)
    assert "with storage_dtype=int8" in console.export_text()


def test_mini_batches_are_the_loaders() -> None:
    data = dataset(messy_graph(300, 3000, 0), 64)
    loader = NodeLoader(
        data.graph, None, None, data.splits["train"], FusedSampler([3, 2], seed=5), 16, shuffle=True, seed=5, prefetch=0
    )
    batches = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        batches += list(loader)
    card = inspect(data, [3, 2], 16, batches=6, num_threads=1, seed=5)
    nodes = [float(b.input_nodes.numel()) for b in batches[:6]]
    assert card["input_rows"] == {"mean": pytest.approx(np.mean(nodes)), "min": min(nodes), "max": max(nodes)}
    repeats = [b.blocks[0].num_edges / b.blocks[0].indices.unique().numel() for b in batches[:6]]
    assert card["hops"][1]["edges_per_source"] == pytest.approx(np.mean(repeats))


def test_a_cache_finds_the_rows_that_it_holds() -> None:
    # All 200 name nodes 0 to 9 as their neighbors: these few are gathered in every mini-batch.
    n, hubs = 200, 10
    graph = Graph.from_edges(torch.arange(hubs).repeat(n), torch.arange(n).repeat_interleave(hubs), n)
    card = inspect(dataset(graph, 100), [-1], 5, batches=8, num_threads=1)
    assert [row["share"] for row in card["cache"]] == list(CACHE_SHARES)
    five = card["cache"][0]
    assert five["rows"] == 10
    # Ten of the ten to fifteen rows of a mini-batch.
    assert 10 / 15 <= five["by_degree"] == five["by_visits"] <= 1
    for earlier, later in zip(card["cache"], card["cache"][1:], strict=False):
        assert earlier["by_degree"] <= later["by_degree"]
        assert earlier["by_visits"] <= later["by_visits"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 101}, "batch_size is 101; it must be 1 to 100"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batches": 1}, "batches is 1"),
        ({"prefetch": -1}, "prefetch is -1"),
        ({"fanouts": [0]}, "fanout 0 is not possible"),
        ({"fanouts": "3"}, "fanouts is the text '3'; give a list of integers"),
        ({"batch_size": "x"}, "batch_size is 'x'; it must be an integer"),
        ({"batches": 10**12}, "batches is 1000000000000; it must be at most 1000000"),
    ],
)
def test_bad_settings_are_refused(options, message) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        inspect(dataset(equal_degrees(200, 3), 100), **{"fanouts": [2], "batch_size": 10, **options})


def test_a_graph_is_no_dataset() -> None:
    with pytest.raises(TypeError, match="data is a Graph; it must be a loader"):
        inspect(equal_degrees(200, 3), [2])


def test_an_isolated_train_split_has_a_card() -> None:
    graph = Graph(torch.zeros(21, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    card = inspect(dataset(graph, 10), [3, 3], 5, batches=2, num_threads=1)
    assert card["hops"][1]["edges"]["max"] == 0
    show(card, Console(width=100, quiet=True))


def test_tables_of_large_graphs_fit_80_columns() -> None:
    card = inspect(dataset(equal_degrees(200, 3), 100), [2, 2], 10, batches=2)
    for hop in card["hops"]:
        hop["fanout"] = 1024
        hop["nodes"] = hop["edges"] = {"mean": 111_059_956.0, "min": 55_529_978.0, "max": 111_100_000.0}
        hop["picked_degree"] = hop["drawn_degree"] = 12345.6
    with Console(width=80) as console, console.capture() as captured:
        show(card, console)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert max(len(line) for line in lines) <= 80
    assert "  1    1024  111,059,956 ±50%  111,059,956 ±50%       1.00    12345.6    12345.6" in [
        line.replace(f"{card['hops'][0]['edges_per_source']:.2f}", "1.00") for line in lines
    ]


@pytest.mark.parametrize(("share", "graph"), [(3, "device"), (0.3, "cached"), (0, "pinned")])
def test_memory_is_split_over_lists_and_rows(share: float, graph: str) -> None:
    data = dataset(messy_graph(300, 9000, 0), 64, num_features=30)
    everything = data.graph.indptr.nbytes + data.graph.indices.nbytes + data.features.nbytes
    needed = inspect(data, [3, 2], 16, batches=2, num_threads=1, memory_gib=1)["plan"]["needed_bytes"]
    memory = needed + int(share * everything)
    card = inspect(data, [3, 2], 16, batches=2, num_threads=1, memory_gib=memory / 2**30)
    plan = card["plan"]
    assert plan["graph"] == graph
    assert plan["budget_bytes"] == memory >= plan["expected_bytes"] >= plan["needed_bytes"] == needed
    assert plan["bus_bytes_a_batch"] <= plan["bus_bytes_a_batch_without"]
    assert (plan["narrower"] is None) == (plan["features"] == "device")
    json.dumps(card)
    console = Console(record=True, width=80)
    show(card, console)
    text = console.export_text()
    assert "split so that the fewest bytes cross the bus" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (-1, "memory_gib is -1; it must be 'auto', or a finite number of GiB from 0 on"),
        (1e-4, r"memory is 104.9 KiB, less than the .* that training needs"),
        ("most", "memory_gib is 'most'; it must be 'auto', or a number of GiB"),
    ],
)
def test_memory_that_holds_nothing_is_refused(memory: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inspect(dataset(messy_graph(300, 3000, 0), 64), [3], 16, batches=2, memory_gib=memory)


class TestTypes:
    """Several types of nodes and edges."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        arrays = {
            "paper/features": np.eye(4, 3),
            "paper/labels": np.array([0, 1, 0, 1]),
            "author/num_nodes": np.array(2),
            "author/writes/paper/edge_index": np.array([[0, 1, 1], [2, 0, 2]]),
        }
        np.savez(tmp_path / "typed.npz", **arrays)
        return tmp_path / "typed.npz"

    def test_sizes_degrees_and_batches_are_shown(
        self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out, cache = tmp_path / "cards" / "card.json", ["--cache-dir", str(tmp_path / "cache")]
        main(["--dataset", str(file), "--json", str(out), "--fanouts", "2,1", "--batch-size", "2", *cache])
        shown = capsys.readouterr().out
        assert "typed: 6 nodes of 2 types, 3 edges of 1 relations" in shown
        assert "author writes paper" in shown
        assert "20 mini-batches of 2 seeds (2 per epoch), fanouts [2, 1]" in shown
        assert max(map(len, shown.splitlines())) <= 80
        card = json.loads(out.read_text())
        assert card["relations"][0]["max_degree"] == 2
        main(["--dataset", str(file), "--json", "-", "undirected=true", *cache])
        names = [one["edge_type"][1] for one in json.loads(capsys.readouterr().out)["relations"]]
        assert names == ["writes", "rev_writes"]

    def test_figures_of_batches_are_counted(self, tmp_path: Path) -> None:
        # Every paper has three authors, and every author writes all six papers.
        graph = HeteroGraph.from_edges(
            {
                ("author", "writes", "paper"): torch.cartesian_prod(torch.arange(3), torch.arange(6)).t(),
                ("paper", "rev_writes", "author"): torch.cartesian_prod(torch.arange(6), torch.arange(3)).t(),
            },
            {"author": 3, "venue": 0, "paper": 6},
        )
        ids = torch.arange(6)
        splits = {"train": ids[:4], "val": ids[4:5], "test": ids[5:]}
        data = HeteroDataset("made", graph, {"author": torch.rand(3, 5)}, "paper", ids % 2, splits, num_classes=2)
        card = inspect(data, [-1, -1], 2, batches=4, num_threads=1, prefetch=1)
        json.dumps(card)
        first, second = card["hops"]
        always = {3.0: dict.fromkeys(("mean", "min", "max"), 3.0), 0.0: dict.fromkeys(("mean", "min", "max"), 0.0)}
        assert first["nodes"] == {"author": always[3.0], "venue": always[0.0], "paper": always[0.0]}
        assert first["edges"]["mean"] == 2 * 3
        assert second["nodes"]["paper"]["mean"] == 4
        assert second["edges"]["mean"] == 2 * 3 + 3 * 6
        assert {name: spread["mean"] for name, spread in card["input_rows"].items()} == {
            "author": 3, "venue": 0, "paper": 6,
        }  # fmt: skip
        assert card["batches_per_epoch"] == 2
        assert card["input_share_of_graph"] == 1
        assert card["memory"]["feature_bytes_a_batch"] == {"mean": 60, "min": 60, "max": 60}
        assert card["memory"]["in_flight_bytes"] > 3 * card["memory"]["topology_bytes_a_batch"]["max"]
        assert all(ms > 0 for ms in card["milliseconds"].values())

    def test_a_budget_is_divided_over_types(self, capsys: pytest.CaptureFixture[str]) -> None:
        data = make_hetero()
        needed = inspect(data, [3, 2], 8, batches=2, num_threads=1, memory_gib=1)["plan"]["needed_bytes"]
        card = inspect(data, [3, 2], 8, batches=2, num_threads=1, memory_gib=(needed + 600) / 2**30, eval_batch_size=4)
        plan = card["plan"]
        assert plan["features"] == {"author": "pinned", "term": "device"}
        assert plan["share_of_rows"] == {"author": 0, "term": 1}
        assert plan["graph"] == "pinned"
        json.dumps(card)
        console = Console(record=True, width=80)
        show_types(card, console)
        text = console.export_text()
        (line,) = [line for line in text.splitlines() if line.startswith("feature rows of term")]
        assert line.split()[-3:] == ["100.0%,", "512", "B"]
        assert max(map(len, text.splitlines())) <= 80

    def test_options_that_types_lack_are_refused(self, file: Path, tmp_path: Path) -> None:
        with pytest.raises(SystemExit, match=r"error: .* is .*, but typed has several types of nodes; leave it out"):
            main(["--dataset", str(file), "--storage-dtype", "int8", "--cache-dir", str(tmp_path / "cache")])

    def test_tasks_on_tables_show_no_budget(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
        data = RelationalDataset(write_shop(tmp_path / "shop"), "again", cache_dir=tmp_path / "cache").load()
        with pytest.raises(ValueError, match=r"memory_gib is given, but .* is a task on tables, whose"):
            inspect(data, [3], 8, batches=2, memory_gib=1)

    def test_tasks_on_tables_are_sampled_by_time(self, tmp_path: Path) -> None:
        pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
        folder = write_shop(tmp_path / "shop")
        data = RelationalDataset(folder, "again", cache_dir=tmp_path / "cache").load()
        with open(folder / "orders.csv") as orders, open(folder / "items.csv") as items:
            known = [(row["customer"], row["at"]) for row in csv.DictReader(orders)]
            asked = [(row["who"], row["at"]) for row in csv.DictReader(items) if row["at"] < "2020-03-01"]
        seen = [order for who, at in asked for order in known if order[0] == who and order[1] <= at]
        # All items at once, so that their order counts for nothing.
        card = inspect(data, [-1], len(asked), batches=2, num_threads=1)
        assert card["batches_per_epoch"] == 1
        (hop,) = card["hops"]
        assert hop["edges"]["mean"] == hop["nodes"]["orders"]["mean"] == len(seen)
        rows = {"customers": len({who for who, _ in asked}), "orders": sum(order in set(seen) for order in known)}
        assert card["input_share_of_graph"] == sum(rows.values()) / data.graph.num_nodes
        features = 4 * sum(count * data.num_features[name] for name, count in rows.items())
        assert card["memory"]["feature_bytes_a_batch"]["mean"] == features

    def test_a_graph_of_types_is_refused_by_name(self) -> None:
        with pytest.raises(
            TypeError, match=r"data is a HeteroGraph; it must be a loader\.datasets\.NodeDataset or HeteroDataset"
        ):
            inspect(HeteroGraph.from_edges({}, {"a": 1}), [1])  # type: ignore[arg-type]
