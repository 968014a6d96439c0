"""The oracle of trees: what others say of real data, and what the law says of each tree, checked slowly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hetero_oracle
import numpy as np
import pytest
import relational
import tree_oracle as oracle


@relational.needs_data
@pytest.mark.parametrize("known", relational.golden(), ids=lambda known: f"{known['set']}{known['fanout']}")
def test_trees_of_tables_are_the_known_ones(known: dict[str, Any]) -> None:
    graph = relational.graph_of(known["set"])
    lists = graph.lists
    start = dict(zip(graph.num_nodes, lists.bounds.tolist(), strict=False))
    found = oracle.sample(
        graph,
        start[known["seed_type"]] + np.array(known["seeds"]),
        np.array(known["times"]),
        known["fanout"],
        trees="unique",
        sight=oracle.Sight("node"),
        picking=hetero_oracle.Picking(last=known.get("strategy") == "last"),
    )
    counts, digests = {}, {}
    for r, key in enumerate(graph.edges):
        triples = [triples_of(graph, found, hop, r) for hop in found.hops]
        tree, source, target = (np.concatenate(column) for column in zip(*triples, strict=True))
        if len(tree):
            counts["__".join(key)] = len(tree)
            digests["__".join(key)] = relational.digest(tree, source - start[key[0]], target - start[key[2]])
    assert counts == known["edges"]
    if "sha256" in known:
        assert digests == known["sha256"]


def triples_of(
    graph: oracle.TimedGraph, found: oracle.TreeBatch, hop: oracle.Hop, relation: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tree, source and target of each edge of a relation at a hop."""
    slots = graph.lists.num_slots[graph.lists.types_of(found.nodes[hop.first_dst : hop.first_dst + hop.num_dst])]
    target_of_row = hop.first_dst + np.repeat(np.arange(hop.num_dst), slots)
    row = np.repeat(np.arange(len(hop.relations)), np.diff(hop.indptr))
    mine = hop.relations[row] == relation
    target, source = target_of_row[row[mine]], hop.indices[mine]
    assert np.array_equal(found.tree[target], found.tree[source])
    return found.tree[target], found.nodes[source], found.nodes[target]


def entries(graph: oracle.TimedGraph, sight: oracle.Sight, relation: int, v: int) -> list[tuple[Any, int, int]]:
    """The list of a node (id within its type): (time, source, edge id) in order. Times are None where none counts, and
    -inf or inf for a missing one.
    """
    key = list(graph.edges)[relation]
    unknown = float("-inf") if sight.missing_times == "always" else float("inf")
    found: list[tuple[Any, int, int]] = []
    src, dst = graph.edges[key]
    for e in np.flatnonzero(dst == v).tolist():
        s, times = int(src[e]), []
        if sight.times in ("node", "both") and key[0] in (graph.node_times or {}):
            times.append(int(graph.node_times[key[0]][s]))
        if sight.times in ("edge", "both") and key in (graph.edge_times or {}):
            times.append(int(graph.edge_times[key][e]))
        found.append((max((unknown if t == oracle.MISSING else t for t in times), default=None), s, e))
    return sorted(found, key=lambda entry: (entry[0] is not None and entry[0], *entry[1:]))


def visible(time: Any, bound: Any, sight: oracle.Sight) -> bool:
    if time is None or time == float("-inf"):  # earlier than everything, also than an edge without a time
        return True
    if time == float("inf") or not (time <= bound if sight.rule == "<=" else time < bound):
        return False
    return sight.window is None or time > bound - sight.window


@pytest.mark.parametrize("number", range(160))
def test_trees_obey_the_law(number: int) -> None:
    case = oracle.random_case(np.random.default_rng([2, number]))
    graph, sight, found = case.graph, case.sight, oracle.sample_case(case)
    keys, bounds = list(graph.edges), graph.lists.bounds
    types = graph.lists.types_of(found.nodes)
    assert found.nodes[: len(case.seeds)].tolist() == case.seeds.tolist()
    assert found.tree[: len(case.seeds)].tolist() == list(range(len(case.seeds)))
    bound: list[Any] = [None] * len(found.nodes) if case.times is None else case.times[found.tree].tolist()
    for h, hop in enumerate(found.hops):
        row, picked = 0, []
        for node in range(hop.first_dst, hop.first_dst + hop.num_dst):
            for r in (r for r, key in enumerate(keys) if key[2] == list(graph.num_nodes)[types[node]]):
                assert hop.relations[row] == r
                fanout = (case.fanouts[keys[r]] if isinstance(case.fanouts, dict) else case.fanouts)[h]
                mine = range(hop.indptr[row], hop.indptr[row + 1])
                whole = entries(graph, sight, r, int(found.nodes[node] - bounds[types[node]]))
                seen = [entry for entry in whole if bound[node] is None or visible(entry[0], bound[node], sight)]
                places = {entry[2]: place for place, entry in enumerate(seen)}
                chosen = [places[edge] for edge in hop.edge_ids[mine].tolist()]  # nothing that is not visible
                assert chosen == sorted(chosen)
                check_picks(case, [entry[2] for entry in seen], keys[r], fanout, chosen)
                for e, place in zip(mine, chosen, strict=True):
                    source, time = hop.indices[e], seen[place][0]
                    assert found.tree[source] == found.tree[node]
                    assert found.nodes[source] == bounds[list(graph.num_nodes).index(keys[r][0])] + seen[place][1]
                    if sight.bound == "edge":
                        bound[source] = bound[node] if time is None else time
                    picked.append((source, (types[source], found.tree[source], found.nodes[source])))
                row += 1
        new = range(hop.first_dst + hop.num_dst, hop.num_src)
        if case.trees == "paths":  # stable in the order of the picks
            in_order = sorted(picked, key=lambda pick: pick[1][:2])
            assert [source for source, _ in in_order] == list(new)
        else:
            order = [(types[i], found.tree[i], found.nodes[i]) for i in new]
            assert order == sorted({at for source, at in picked if source in new})
        first_dst, counts = hop.first_dst, np.bincount(types[new], minlength=len(graph.num_nodes))
        assert found.sizes[h + 1] == tuple(counts.tolist())
        assert first_dst == (0 if h == 0 else found.hops[h - 1].first_dst + found.hops[h - 1].num_dst)
    if case.trees == "unique":
        assert len(
            {*zip(found.tree.tolist(), found.nodes.tolist(), strict=True)} - {*enumerate(case.seeds.tolist())}
        ) == (len(found.nodes) - len(case.seeds))


def check_picks(case: oracle.Case, edges: list[int], key: Any, fanout: int, chosen: list[int]) -> None:
    """As many as the fanout asks for, each once, and of all if there are not more."""
    degree, picking = len(edges), case.picking
    if picking.labor:
        assert len({*chosen}) == len(chosen)
        assert len(chosen) == degree or 0 <= fanout < degree
    elif picking.weighted:
        weighed = sum(case.graph.weights[key][edges] > 0) if key in case.graph.weights else degree
        assert len({*chosen}) == len(chosen) == (weighed if fanout < 0 else min(fanout, weighed))
    elif picking.replace and fanout >= 0:
        assert len(chosen) == (fanout if degree else 0)
    else:
        count = degree if fanout < 0 else min(fanout, degree)
        assert len({*chosen}) == len(chosen) == count
        if picking.last:
            assert chosen == list(range(degree - count, degree))


def test_an_untimed_tree_is_a_hetero_mini_batch() -> None:
    for number in range(60):
        rng = np.random.default_rng([3, number])
        graph = hetero_oracle.random_graph(rng, weighted=False, largest=60)
        filled = np.flatnonzero(np.diff(graph.lists.bounds))
        if not len(filled):
            continue
        seeds = graph.lists.bounds[rng.choice(filled, 1)]
        timed = oracle.TimedGraph(graph.num_nodes, graph.edges)
        at = {"seed": 3, "epoch": number, "batch": 5}
        # The lane of tree 0 is the node's id: picks are those of a mini-batch of one seed.
        found = oracle.sample(timed, seeds, None, [3, 2, 5], trees="unique", sight=oracle.Sight("none"), **at)
        wanted = hetero_oracle.sample(graph, seeds, [3, 2, 5], expand="new", **at)
        assert found.nodes.tolist() == wanted.nodes.tolist()
        assert found.sizes == wanted.sizes
        for mine, other in zip(found.hops, wanted.hops, strict=True):
            for name in ("indptr", "indices", "edge_ids"):
                assert getattr(mine, name).tolist() == getattr(other, name).tolist()


def test_copies_of_a_node_pick_independently() -> None:
    hub = np.arange(100), np.zeros(100, np.int64)
    graph = oracle.TimedGraph({"a": 100}, {("a", "to", "a"): hub})
    for trees in ("unique", "paths"):
        found = oracle.sample(graph, np.zeros(40, np.int64), None, [3], trees=trees, sight=oracle.Sight("none"))
        picks = found.hops[0].edge_ids.reshape(40, 3)
        assert len({*map(tuple, picks.tolist())}) > 35


def test_random_cases_cover_what_they_promise() -> None:
    cases = [oracle.random_case(np.random.default_rng([4, number])) for number in range(300)]
    for name, values in {
        "times": {"none", "node", "edge", "both"},
        "rule": {"<=", "<"},
        "bound": {"seed", "edge"},
        "missing_times": {"error", "always", "never"},
    }.items():
        assert {getattr(case.sight, name) for case in cases} == values
    assert {case.trees for case in cases} == {"unique", "paths"}
    assert {len(oracle.sample_case(case).hops) for case in cases} == {1, 2, 3, 4}
    assert any(case.sight.window for case in cases)
    timed = [case.times for case in cases if case.times is not None and len(case.times)]
    assert any((times < 0).any() for times in timed)
    assert any((times > 2**53).any() for times in timed)
    assert any(len({*case.seeds.tolist()}) < len(case.seeds) for case in cases)
    assert any(0 in case.graph.num_nodes.values() for case in cases)
    for kind in ({"last": True}, {"replace": True}, {"weighted": True, "race": True}, {"labor": True}):
        assert any(
            replace(case.picking, batch_dependency=1, layer_dependency=False) == hetero_oracle.Picking(**kind)
            for case in cases
        )
    edges = [sum(len(hop.indices) for hop in oracle.sample_case(case).hops) for case in cases]
    assert np.median(edges) > 20
