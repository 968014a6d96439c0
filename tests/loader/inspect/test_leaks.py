"""Leaks are found where they were planted, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tree_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import needs_gpu
from shop import write_shop
from torch import Tensor

from loader.graph import HeteroGraph
from loader.graph.checks import MISSING_TIME
from loader.inspect import Kind, find_leaks, main
from loader.inspect.batches import places_of
from loader.items import NodeItems
from loader.samplers import FusedSampler, TreeSampler
from loader.samplers.tree_subgraph import TreeSubgraphSampler

BUYS, REVERSE = ("user", "buys", "item"), ("item", "rev_buys", "user")


def graph_of(node_times: dict[str, Tensor] | None = None, shift: int = 0) -> HeteroGraph:
    g = torch.Generator().manual_seed(0)
    pairs = torch.stack([torch.randint(20, (200,), generator=g), torch.randint(30, (200,), generator=g)])
    times = torch.randint(100, (200,), generator=g) + shift
    sizes, of_edges = {"item": 30, "user": 20}, {BUYS: times, REVERSE: times}
    return HeteroGraph.from_edges(
        {BUYS: pairs, REVERSE: pairs.flip(0)}, sizes, edge_times=of_edges, node_times=node_times
    )


SEEDS = 30 + torch.randint(20, (60,), generator=torch.Generator().manual_seed(1))
AT = torch.randint(100, (60,), generator=torch.Generator().manual_seed(2))


def later(found: list[Kind]) -> dict[tuple[str, str], int]:
    return {(kind.what, kind.of): kind.later for kind in found if kind.later}


@pytest.mark.parametrize("rule", ["<=", "<"])
@pytest.mark.parametrize("trees", ["unique", "paths"])
@pytest.mark.parametrize("shift", [0, -50, 2**62])
def test_samplers_by_time_leak_nothing(shift: int, trees: str, rule: str) -> None:
    sampler = TreeSampler([5, 5], times="both", rule=rule, trees=trees, edge_ids=True)
    graph = graph_of({"user": torch.zeros(20, dtype=torch.int64) + shift - 5}, shift)
    found = find_leaks(graph, sampler, SEEDS, AT + shift, batch_size=20, batches=4)
    assert {(kind.what, kind.of) for kind in found} == {
        ("edges", "user buys item"),
        ("edges", "item rev_buys user"),
        ("nodes", "user"),
    }
    assert all(kind.seen for kind in found)
    assert later(found) == {}


@pytest.mark.parametrize("shift", [0, 2**62])
def test_a_sampler_that_ignores_times_leaks(shift: int) -> None:
    graph = graph_of(shift=shift)
    found = find_leaks(graph, TreeSampler([5, 5], edge_ids=True), SEEDS, AT + shift, batch_size=20, batches=4)
    counts = later(found)
    assert counts["edges", "item rev_buys user"] > 100
    assert counts["edges", "user buys item"] > 100
    assert 50 < max(kind.worst for kind in found) < 100


class TestOnGpu:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("times", ["both", "none"])
    def test_leaks_are_the_cpus(self, times: str) -> None:
        graph = graph_of({"user": torch.arange(20) * 5})
        found = []
        for device in ("cpu", "cuda"):
            sampler = TreeSampler([5, 5], times=times, edge_ids=True, device=device)
            found.append(find_leaks(graph.to(device), sampler, SEEDS, AT, batch_size=20, batches=3))
        assert found[0] == found[1]


def test_differences_of_times_are_exact() -> None:
    edges, times = torch.tensor([[0], [0]]), {("a", "to", "b"): torch.tensor([2**63 - 1])}
    graph = HeteroGraph.from_edges({("a", "to", "b"): edges}, {"a": 1, "b": 1}, edge_times=times)
    sampler, seeds, at = TreeSampler([1], edge_ids=True), torch.tensor([1, 1]), torch.tensor([-(2**63) + 1, 2**63 - 1])
    (kind,) = find_leaks(graph, sampler, seeds, at, batch_size=2, batches=1)
    assert (kind.seen, kind.later, kind.worst) == (2, 1, 2**64 - 2)


def test_a_wrong_rule_shows_equal_times() -> None:
    graph = graph_of()
    assert graph.lists.edge_times is not None
    at = torch.full((60,), int(graph.lists.edge_times.mode().values))
    sampler: Any = TreeSampler([-1], times="edge", edge_ids=True)
    assert later(find_leaks(graph, sampler, SEEDS, at, batch_size=20, batches=2)) == {}
    sampler.rule = "<"  # what it samples by was read when its session was opened
    counts = later(find_leaks(graph, sampler, SEEDS, at, batch_size=20, batches=2))
    assert list(counts) == [("edges", "item rev_buys user")]


def test_merged_mini_batches_are_as_their_earliest_seed() -> None:
    """A seed of time 1 reads, over an item, what a seed of time 9 may see."""
    pairs = torch.tensor([[0, 1], [0, 0]])
    times = {REVERSE: torch.tensor([0, 0]), BUYS: torch.tensor([0, 5])}
    graph = HeteroGraph.from_edges({REVERSE: pairs.flip(0), BUYS: pairs}, {"item": 1, "user": 2}, edge_times=times)
    sampler = FusedSampler([-1, -1], edge_ids=True)
    seeds = torch.tensor([1, 2])
    both = find_leaks(graph, sampler, seeds, torch.tensor([1, 9]), batch_size=2, batches=2)
    assert later(both) == {("edges", "user buys item"): 2}
    late = find_leaks(graph, sampler, seeds, torch.tensor([5, 9]), batch_size=2, batches=2)
    assert later(late) == {}


def test_nodes_and_features_are_looked_up() -> None:
    of_users = torch.arange(20) * 5
    graph = graph_of({"user": of_users})
    sampler = TreeSampler([5, 5], times="both", edge_ids=True)
    seeds, own = torch.arange(30, 50), of_users
    assert later(find_leaks(graph, sampler, seeds, own, batch_size=20, batches=2)) == {}
    early = find_leaks(graph, sampler, seeds, own - 1, batch_size=20, batches=2)
    assert later(early)["nodes", "user"] == 40  # the seeds themselves
    filled = {"user": torch.stack([of_users, of_users + 1], 1), "item": torch.zeros(30, dtype=torch.int64)}
    found = find_leaks(graph, sampler, seeds, own, batch_size=20, batches=2, feature_times=filled)
    assert [(kind.what, kind.of) for kind in found if kind.later] == [("features", "user")]
    kinds = {(kind.what, kind.of): kind for kind in found}
    assert kinds["features", "user"].seen == 2 * kinds["nodes", "user"].seen
    assert kinds["features", "user"].later >= 40


@given(number=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_counts_are_those_of_the_oracle(number: int) -> None:
    """Every entry that the oracle picks is compared with the seed of its tree, one by one."""
    case = tree_cases.case_of(number)
    graph = tree_cases.graph_of(case.graph)
    if not graph.num_nodes or not (graph.timed_types or graph.timed_relations):
        return
    ids = max(graph.node_types.values(), key=len)
    g = torch.Generator().manual_seed(number)
    seeds, at = torch.randint(ids.start, ids.stop, (9,), generator=g), torch.randint(-50, 50, (9,), generator=g)
    sampler = TreeSampler([3, 2], trees="paths", edge_ids=True, seed=number)
    found = find_leaks(graph, sampler, seeds, at, batch_size=9, batches=1, seed=number)
    ((_, _, pairs),) = places_of(NodeItems(seeds, times=at), 9, 1, number)
    batch = sampler.sample(graph, pairs[:, 0].contiguous())
    counts: dict[tuple[str, str], int] = {}
    tree = batch.tree.tolist()
    for block in batch.blocks:
        row = 0
        for t, part, _ in batch.segments.rows(block.first_dst, block.num_dst):
            for place in range(part.begin, part.begin + part.size):
                for r in batch.segments.into[t]:
                    key = graph.edge_types[r]
                    begin, end = block.indptr[row].item(), block.indptr[row + 1].item()
                    for edge in block.edge_ids[begin:end].tolist():
                        of = (case.graph.edge_times or {}).get(key)
                        if of is not None and of[edge] > pairs[tree[place], 1].item():
                            counts["edges", " ".join(key)] = counts.get(("edges", " ".join(key)), 0) + 1
                    row += 1
    for place, node in enumerate(batch.nodes.tolist()):
        for name, ids in graph.node_types.items():
            if node in ids and name in graph.timed_types:
                of = (case.graph.node_times or {})[name]
                if of[node - ids.start] > pairs[tree[place], 1].item():
                    counts["nodes", name] = counts.get(("nodes", name), 0) + 1
    assert later(found) == counts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampler": TreeSampler([2], times="edge")}, "give it edge_ids=True"),
        ({"graph": HeteroGraph.from_edges({BUYS: torch.tensor([[0], [0]])}, {"item": 1, "user": 1})}, "has a time"),
        ({"times": AT[:3]}, "times has 3 entries"),
        ({"batch_size": 61}, "batch_size is 61; it must be 1 to 60"),
        ({"feature_times": {"shop": AT}}, "feature_times names 'shop'"),
        ({"feature_times": {"user": AT}}, r"feature_times\['user'\] has 60 rows, the type 20 nodes"),
        ({"sampler": TreeSubgraphSampler([2], times="edge", edge_ids=True)}, "it must give a HeteroMiniBatch"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"graph": graph_of(), "sampler": TreeSampler([2], times="edge", edge_ids=True)}
    given |= {"seeds": SEEDS, "times": AT, "batch_size": 10, "batches": 1} | change
    with pytest.raises((TypeError, ValueError), match=message):
        find_leaks(given.pop("graph"), given.pop("sampler"), given.pop("seeds"), given.pop("times"), **given)


# The command


def typed_file(path: Path, **more: Any) -> Path:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 40, (2, 300))
    arrays = {
        "review/num_nodes": np.array(40),
        "review/node_times": np.arange(40) * 10,
        "review/features": rng.random((40, 3)),
        "review/labels": np.arange(40) % 2,
        "user/num_nodes": np.array(40),
        "review/of/user/edge_index": pairs,
        "user/rev_of/review/edge_index": pairs[::-1],
        "user/rev_of/review/edge_times": rng.integers(0, 400, 300),
    }
    np.savez(path, **arrays | more)
    return path


def run(path: Path, *arguments: str) -> None:
    folder = ["--data-dir", str(path.parent), "--batches", "3", "--batch-size", "16"]
    main(["--dataset", str(path), "--leaks", *arguments, *folder])


def run_into_leaks(path: Path, *arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(path, *arguments)
    assert ended.value.code == 3


def test_the_command_says_that_nothing_leaks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = typed_file(tmp_path / "typed.npz"), tmp_path / "leaks.json"
    run(path, "--json", str(out), "--fanouts", "4,4")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "no leaks"
    assert [line.split(":")[0] for line in lines[-3:-1]] == ["edges of user rev_of review", "nodes of review"]
    assert all("0 later than a seed that sees them" in line for line in lines[-3:-1])
    card = json.loads(out.read_text())
    assert card["leaks"] == 0
    assert card["types_without_times"] == ["user"]
    assert any(line.startswith("not checked, since they have no times: nodes of user;") for line in lines)


@pytest.mark.parametrize(("times", "kinds"), [("none", ["edges", "nodes"]), ("node", ["edges"]), ("edge", ["nodes"])])
def test_times_that_do_not_count_leak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: str, kinds: list[str]
) -> None:
    run_into_leaks(typed_file(tmp_path / "typed.npz"), "--times", times, "--json", "-", "--fanouts", "4,4")
    card = json.loads(capsys.readouterr().out)
    assert [kind["what"] for kind in card["kinds"] if kind["later"]] == kinds
    assert card["leaks"] == sum(kind["later"] for kind in card["kinds"]) > 10


def test_features_that_are_filled_in_later_leak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled = np.arange(40) * 10.0
    filled[7:9] += 5, np.nan
    path = typed_file(tmp_path / "typed.npz", **{"review/feature_times": filled})
    run_into_leaks(path, "--fanouts", "4,4")
    shown = capsys.readouterr().out
    assert "features of review: " in shown
    assert ", by up to 5, " in shown
    assert " without a time" in shown
    filled[7] -= 5
    run(typed_file(tmp_path / "fixed.npz", **{"review/feature_times": filled}), "--fanouts", "4,4")


def test_a_graph_of_one_type_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "plain.npz"
    np.savez(
        path, edge_index=rng.integers(0, 50, (2, 400)), edge_times=rng.integers(0, 99, 400), num_nodes=np.array(50)
    )
    run(path, "--fanouts", "3")
    assert "drawn from those of the graph, as node has none" in " ".join(capsys.readouterr().out.split())
    run_into_leaks(path, "--fanouts", "3", "--times", "none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--leaks", "--memory", "1"], "error: --memory is 1.0, which goes without --leaks"),
        (["--leaks", "--eval-batch-size", "5"], "error: --eval-batch-size is 5, which goes without --leaks"),
        (["--leaks", "--prefetch", "2"], "error: --prefetch is 2, which goes without --leaks"),
        (["--times", "node"], "error: --times is node, which goes with --leaks"),
        (
            ["--eval-batch-size", "5"],
            r"error: eval_batch_size is 5, but only a plan .* give memory_gib \(--memory\), too",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        main(["--dataset", "nowhere", *arguments])


def test_a_dataset_without_times_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.npz"
    np.savez(path, edge_index=np.random.default_rng(0).integers(0, 50, (2, 400)), num_nodes=np.array(50))
    with pytest.raises(SystemExit, match="error: plain has no times, so nothing in it can be later than a seed"):
        main(["--dataset", str(path), "--leaks", "--data-dir", str(tmp_path)])
    features = {"review/feature_times": np.arange(39)}
    with pytest.raises(SystemExit, match=r"error: .*feature_times\['review'\] has .*39.*40 nodes"):
        main(["--dataset", str(typed_file(tmp_path / "short.npz", **features)), "--leaks", "--data-dir", str(tmp_path)])


def test_seeds_of_tables_are_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="tables need pip install 'gnn-loader[tables]'")
    options = [f"path={write_shop(tmp_path / 'shop')}", "task=again", "--fanouts", "4,4", "--batch-size", "100"]
    main(["--dataset", "relational", *options, "--cache-dir", str(tmp_path), "--leaks", "--json", "-"])
    card = json.loads(capsys.readouterr().out)
    assert (card["batch_size"], card["leaks"]) == (100, 0)  # of 360 items about 40 customers


def test_missing_times_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = np.arange(40) * 10
    times[:5] = MISSING_TIME
    path = typed_file(tmp_path / "typed.npz", **{"review/node_times": times})
    run(path, "--fanouts", "4,4")
    shown = capsys.readouterr().out
    assert "5 seeds without a time are left out" in shown
    assert "without a time" in shown.splitlines()[-2]


def test_seeds_that_all_lack_times_are_refused(tmp_path: Path) -> None:
    path = typed_file(tmp_path / "typed.npz", **{"review/node_times": np.full(40, MISSING_TIME)})
    with pytest.raises(SystemExit, match="error: none of the 40 training nodes of typed has a time to compare with"):
        run(path, "--fanouts", "4,4")
