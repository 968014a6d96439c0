"""Graphs of DGL with several types over our pipeline, beside DGL itself."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from marks import needs_dgl

pytestmark = [needs_dgl, pytest.mark.filterwarnings("ignore:Dataloader CPU affinity")]

SIZES = {"author": 40, "paper": 60, "venue": 5}
ENDS = {
    ("author", "writes", "paper"): 150,
    ("paper", "written", "author"): 150,
    ("paper", "cites", "paper"): 200,
    ("venue", "has", "paper"): 60,
}


@pytest.fixture(params=[torch.int32, torch.int64])
def typed(request: pytest.FixtureRequest) -> Any:
    """Authors, papers and venues; an author's edge and its reverse have the same id."""
    import dgl

    generator = torch.Generator().manual_seed(3)
    edges: dict[tuple[str, str, str], Any] = {}
    for key, count in ENDS.items():
        pairs = [torch.randint(SIZES[end], (count,), generator=generator) for end in (key[0], key[2])]
        edges[key] = tuple(pairs)
    writes = edges["author", "writes", "paper"]
    edges["paper", "written", "author"] = writes[::-1]
    g = dgl.heterograph(edges, SIZES, idtype=request.param)
    for name, size in SIZES.items():
        g.nodes[name].data["feat"] = torch.rand(size, 3)
        g.nodes[name].data["label"] = torch.arange(size) % 3
    for key, count in ENDS.items():
        g.edges[key].data["kind"] = torch.arange(count)
    g.edges["cites"].data["weight"] = torch.rand(200) * (torch.rand(200) > 0.3)
    return g


def seeds_of(g: Any) -> dict[str, Any]:
    return {"paper": torch.arange(0, 60, 4, dtype=g.idtype), "author": torch.tensor([7, 3, 11], dtype=g.idtype)}


def edges_of(block: Any) -> dict[Any, list[tuple[int, int, int]]]:
    """Source, destination and id of each edge by type, ascending."""
    import dgl

    found = {}
    for key in block.canonical_etypes:
        src, dst = block.edges(etype=key)
        sources = block.srcnodes[key[0]].data[dgl.NID][src.long()].tolist()
        targets = block.dstnodes[key[2]].data[dgl.NID][dst.long()].tolist()
        found[key] = sorted(zip(sources, targets, block.edges[key].data[dgl.EID].tolist(), strict=True))
    return found


def sets_of(nodes: dict[str, Any]) -> dict[str, list[int]]:
    return {name: sorted(ids.tolist()) for name, ids in nodes.items() if ids.numel()}


@pytest.mark.parametrize("fanouts", ["full", "by type"])
def test_with_all_neighbors_blocks_hold_dgls_edges(typed: Any, fanouts: str) -> None:
    import dgl

    import loader.dgl as ours

    # The input layer takes all; the seeds' layer leaves two relations out.
    layers: list[Any] = [
        -1,
        dict.fromkeys(ENDS, -1) | {("venue", "has", "paper"): 0, ("paper", "written", "author"): 0},
    ]
    given = [-1, -1] if fanouts == "full" else layers
    mine = ours.DataLoader(typed, seeds_of(typed), ours.NeighborSampler(given), batch_size=8)
    theirs = dgl.dataloading.DataLoader(
        typed, seeds_of(typed), dgl.dataloading.NeighborSampler(given, fused=False), batch_size=8
    )
    assert len(mine) == len(theirs) == 3
    for (inputs, outputs, blocks), (their_inputs, their_outputs, their_blocks) in zip(mine, theirs, strict=True):
        assert list(outputs) == list(their_outputs) or set(outputs) == set(their_outputs)
        assert all(torch.equal(outputs[name], ids) for name, ids in their_outputs.items())
        assert all(ids.dtype == typed.idtype for ids in inputs.values())
        assert sets_of(inputs) == sets_of(their_inputs)
        for block, their_block in zip(blocks, their_blocks, strict=True):
            assert block.idtype == their_block.idtype
            assert edges_of(block) == edges_of(their_block)
            assert (block.srctypes, block.dsttypes) == (their_block.srctypes, their_block.dsttypes)
            for name in block.dsttypes:  # layers count on it
                count = block.num_dst_nodes(name)
                assert torch.equal(block.srcnodes[name].data[dgl.NID][:count], block.dstnodes[name].data[dgl.NID])
    for name, ids in outputs.items():
        assert torch.equal(blocks[-1].dstnodes[name].data[dgl.NID], ids)


def test_picks_have_dgls_law(typed: Any) -> None:
    import dgl

    import loader.dgl as ours

    layer = {"writes": 2, "written": 1, "cites": 1, "has": 0}
    counts = []
    torch.manual_seed(1)
    dgl.seed(1)
    for package in (ours, dgl.dataloading):
        # DGL 1.1's fused call returns sources that are not there, for a graph with 32-bit ids.
        sampler = package.NeighborSampler([layer], fused=False)
        found: Counter[Any] = Counter()
        made = package.DataLoader(typed, {"paper": torch.arange(20, dtype=typed.idtype)}, sampler, batch_size=20)
        for _ in range(400):
            ((_, _, (block,)),) = made
            found.update((key, edge[2]) for key, of in edges_of(block).items() for edge in of)
        counts.append(found)
    mine, theirs = counts
    assert mine.keys() == theirs.keys()
    for edge, count in theirs.items():
        p = (count + mine[edge]) / 800
        assert abs(mine[edge] - count) <= 5 * (2 * 400 * p * (1 - p)) ** 0.5


@pytest.mark.parametrize("options", [{"prob": "weight"}, {"replace": True}])
def test_options_hold_for_every_relation(typed: Any, options: dict[str, Any]) -> None:
    import dgl

    import loader.dgl as ours

    weights = typed.edges["cites"].data["weight"]
    met: set[int] = set()
    made = ours.DataLoader(typed, {"paper": torch.arange(60)}, ours.NeighborSampler([9], **options), batch_size=60)
    for _, _, (block,) in made:
        assert block.num_edges("has") > 0
        met |= set(block.edges["cites"].data[dgl.EID].tolist())
        if "replace" in options:
            degrees = block.in_degrees(etype="cites")
            assert set(degrees.tolist()) == {0, 9}
    if "prob" in options:
        assert met
        assert all(weights[sorted(met)] > 0)


def test_prefetched_features_are_there(typed: Any) -> None:
    import dgl

    import loader.dgl as ours

    sampler = ours.NeighborSampler(
        [3, 2],
        prefetch_node_feats={"paper": ["feat", "label"], "venue": ["feat"]},
        prefetch_labels={"author": ["label"], "paper": ["label"]},
        prefetch_edge_feats={"cites": ["kind", "weight"], ("author", "writes", "paper"): ["kind"]},
    )
    seen: dict[str, list[int]] = {"author": [], "paper": []}
    made = ours.DataLoader(typed, seeds_of(typed), sampler, batch_size=4, shuffle=True)
    for inputs, outputs, blocks in made:
        for name, feature in (("paper", "feat"), ("paper", "label"), ("venue", "feat"), ("author", "feat")):
            want = typed.nodes[name].data[feature][inputs[name].long()]
            assert torch.equal(blocks[0].srcnodes[name].data[feature], want)
        for name, ids in outputs.items():
            assert torch.equal(blocks[-1].dstnodes[name].data["label"], ids.long() % 3)
            seen[name] += ids.tolist()
        for block in blocks:
            for key, feature in (("cites", "kind"), ("cites", "weight"), ("writes", "kind"), ("has", "kind")):
                want = typed.edges[key].data[feature][block.edges[key].data[dgl.EID].long()]
                assert torch.equal(block.edges[key].data[feature], want)
    assert sets_of(seeds_of(typed)) == {name: sorted(ids) for name, ids in seen.items()}
    typed.nodes["paper"].data["feat"] = torch.ones(60, 3)
    for _, _, blocks in made:
        assert (blocks[0].srcnodes["paper"].data["feat"] == 1).all()


def test_a_copy_goes_on_where_its_original_is(typed: Any) -> None:
    import loader.dgl as ours

    made = ours.DataLoader(typed, seeds_of(typed), ours.NeighborSampler([3, 2]), batch_size=4, shuffle=True)
    batches = iter(made)
    next(batches)
    amid = copy.deepcopy(made)
    assert [sets_of(inputs) for inputs, *_ in amid] == [sets_of(inputs) for inputs, *_ in batches]


def test_changed_graphs_and_weights_are_refused(typed: Any) -> None:
    import loader.dgl as ours

    made = ours.DataLoader(typed, seeds_of(typed), ours.NeighborSampler([3], prob="weight"), batch_size=9)
    assert len(list(made)) == 2
    typed.edges["cites"].data["weight"][0] = 9
    with pytest.raises(ValueError, match="or other weights 'weight'; make a new DataLoader"):
        next(iter(made))


@pytest.mark.parametrize("dgls", [False, True])
def test_own_methods_get_dgls_arguments(typed: Any, dgls: bool, caplog: pytest.LogCaptureFixture) -> None:
    import dgl

    import loader.dgl as ours

    class Own((dgl.dataloading if dgls else ours).NeighborSampler):  # type: ignore[misc]
        def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> Any:
            asked.append(seed_nodes)
            return super().sample_blocks(g, seed_nodes, exclude_eids)

    asked: list[Any] = []
    made = ours.DataLoader(typed, seeds_of(typed), Own([3, 2]), batch_size=4, shuffle=True)
    for (_, outputs, blocks), seeds in zip(made, asked, strict=False):
        assert sets_of(seeds) == sets_of(outputs)
        for name, ids in outputs.items():
            assert torch.equal(blocks[-1].dstnodes[name].data[dgl.NID], ids)
    assert len(asked) == 5
    assert "Own.sample" in caplog.text


@pytest.mark.parametrize("exclude", [None, "self", "reverse_types"])
@pytest.mark.parametrize("negatives", [None, "uniform", "function"])
def test_mini_batches_of_edges_do_not_leak(typed: Any, exclude: str | None, negatives: str | None) -> None:
    import dgl

    import loader.dgl as ours

    def draw(g: Any, eids: Any) -> Any:
        return {key: (g.find_edges(ids, key)[0], torch.zeros_like(ids)) for key, ids in eids.items()}

    sampler = ours.as_edge_prediction_sampler(
        ours.NeighborSampler([-1, -1], prefetch_node_feats={"paper": ["feat"]}),
        exclude=exclude,
        reverse_etypes={"writes": "written", "written": "writes"} if exclude == "reverse_types" else None,
        negative_sampler={None: None, "uniform": ours.negative_sampler.Uniform(2), "function": draw}[negatives],
        prefetch_labels={"writes": ["kind"]},
    )
    chosen = {"writes": torch.arange(0, 150, 3, dtype=typed.idtype), "cites": torch.arange(9, dtype=typed.idtype)}
    met: dict[str, list[int]] = {"writes": [], "cites": []}
    leaks = Counter[str]()
    for inputs, pairs, *rest in ours.DataLoader(typed, chosen, sampler, batch_size=16, shuffle=True):
        blocks = rest[-1]
        for name in ("author", "paper"):
            assert torch.equal(blocks[-1].dstnodes[name].data[dgl.NID], pairs.nodes[name].data[dgl.NID])
        assert torch.equal(
            blocks[0].srcnodes["paper"].data["feat"], typed.nodes["paper"].data["feat"][inputs["paper"].long()]
        )
        asked = {}
        for name in ("writes", "cites"):
            key = typed.to_canonical_etype(name)
            ids, (src, dst) = pairs.edges[name].data[dgl.EID], pairs.edges(etype=name)
            ends = [pairs.nodes[t].data[dgl.NID][of.long()] for t, of in ((key[0], src), (key[2], dst))]
            assert all(map(torch.equal, ends, typed.find_edges(ids, name)))
            met[name] += ids.tolist()
            asked[name] = set(zip(*(end.tolist() for end in ends), strict=True))
        assert torch.equal(pairs.edges["writes"].data["kind"], pairs.edges["writes"].data[dgl.EID].long())
        if negatives is not None:
            each = 2 if negatives == "uniform" else 1
            assert rest[0].num_edges("writes") == each * pairs.num_edges("writes")
            assert rest[0].num_edges("has") == 0
            assert torch.equal(rest[0].nodes["paper"].data[dgl.NID], pairs.nodes["paper"].data[dgl.NID])
        for block in blocks:
            seen = {key[1]: {edge[:2] for edge in of} for key, of in edges_of(block).items()}
            leaks["self"] += len(seen["writes"] & asked["writes"]) + len(seen["cites"] & asked["cites"])
            leaks["reverse"] += len(seen["written"] & {(v, u) for u, v in asked["writes"]})
    assert {name: sorted(ids) for name, ids in met.items()} == {name: ids.tolist() for name, ids in chosen.items()}
    assert (leaks["self"] > 0) == (exclude is None)
    assert (leaks["reverse"] > 0) == (exclude != "reverse_types")


def test_without_left_out_edges_blocks_are_dgls(typed: Any) -> None:
    import dgl

    import loader.dgl as ours

    seeds = {"paper": torch.tensor([5, 2], dtype=typed.idtype)}
    left_out = {"cites": torch.arange(0, 200, 2, dtype=typed.idtype), "writes": torch.arange(50, dtype=typed.idtype)}
    inputs, _, blocks = ours.NeighborSampler([-1, -1]).sample_blocks(typed, seeds, left_out)
    theirs = dgl.dataloading.NeighborSampler([-1, -1], fused=False)
    canonical = {typed.to_canonical_etype(key): ids for key, ids in left_out.items()}
    their_inputs, _, their_blocks = theirs.sample_blocks(typed, seeds, canonical)
    assert sets_of(inputs) == sets_of(their_inputs)
    assert list(map(edges_of, blocks)) == list(map(edges_of, their_blocks))


def test_one_node_type_with_several_relations_has_tensors() -> None:
    import dgl

    import loader.dgl as ours

    g = dgl.heterograph({("n", "a", "n"): ([0, 1, 2], [1, 2, 3]), ("n", "b", "n"): ([3, 2], [0, 3])})
    for inputs, outputs, blocks in ours.DataLoader(g, torch.arange(4), ours.NeighborSampler([2, 2]), batch_size=2):
        assert torch.equal(inputs[:2], outputs)
        assert torch.equal(inputs, blocks[0].srcdata[dgl.NID])


def test_impossible_types_are_refused(typed: Any) -> None:
    import loader.dgl as ours

    sampler, seeds = ours.NeighborSampler([2]), {"paper": torch.arange(4)}
    short = {"writes": 2, "cites": 3}

    def loader_of(**options: Any) -> Any:
        return ours.DataLoader(typed, **{"indices": seeds, "graph_sampler": sampler, **options})

    def around(**options: Any) -> Any:
        return loader_of(
            indices={"writes": torch.arange(3)}, graph_sampler=ours.as_edge_prediction_sampler(sampler, **options)
        )

    for make, error, message in (
        (lambda: loader_of(indices=torch.arange(3)), TypeError, "indices must be given by type, as {'author': ...}"),
        (lambda: loader_of(indices={"book": torch.arange(3)}), ValueError, "indices names the node type 'book'; the"),
        (lambda: loader_of(indices={"paper": [60]}), ValueError, r"indices\['paper'\] holds node 60"),
        (lambda: loader_of(indices={"paper": [1, 1]}), ValueError, r"indices\['paper'\] holds node 1 more than once"),
        (lambda: loader_of(indices={"paper": []}), ValueError, "indices is empty"),
        (
            lambda: loader_of(graph_sampler=ours.NeighborSampler([short])),
            ValueError,
            "fanouts has none for the edge type .*'written'.*; give it, 0 where nothing is picked",
        ),
        (
            lambda: loader_of(graph_sampler=ours.NeighborSampler([{"reads": 2}])),
            ValueError,
            "fanouts names 'reads', but the graph has no such edge type; give one of",
        ),
        (lambda: ours.NeighborSampler([{"writes": 2000}]), ValueError, "the fanout 2000 of writes is not possible"),
        (
            lambda: loader_of(graph_sampler=ours.NeighborSampler([2], prob="w")),
            ValueError,
            r"prob is 'w'; the edges of the graph have \['kind', 'weight'\]",
        ),
        (
            lambda: loader_of(graph_sampler=ours.NeighborSampler([2], prefetch_node_feats=["feat"])),
            TypeError,
            "prefetch_node_feats must be given by type",
        ),
        (
            lambda: loader_of(graph_sampler=ours.NeighborSampler([2], prefetch_node_feats={"paper": ["x"]})),
            ValueError,
            r"'x' is to be prefetched; the graph has \['feat', 'label'\]",
        ),
        (lambda: around(exclude="reverse_types"), ValueError, "reverse_etypes, a dict .*, need each other"),
        (
            lambda: around(reverse_etypes={"writes": "written"}),
            ValueError,
            "reverse_etypes, a dict .*, need each other",
        ),
        (
            lambda: around(exclude="reverse_types", reverse_etypes={"writes": "cites"}),
            ValueError,
            "is the reverse of .*, which joins other types",
        ),
        (
            lambda: around(exclude="reverse_types", reverse_etypes={"cites": "reads"}),
            ValueError,
            "reverse_etypes names 'reads', but the graph has no such edge type",
        ),
        (
            lambda: around(exclude="reverse_id", reverse_eids={"cites": torch.arange(200)}),
            ValueError,
            "reverse_eids has none for the edge type",
        ),
        (
            lambda: around(exclude="reverse_id", reverse_eids={"writes": torch.arange(3)}),
            ValueError,
            r"reverse_eids has shape \[3\] and dtype torch.int64; it must be int64 \[150\]",
        ),
        (
            lambda: around(exclude="reverse_id", reverse_eids={"writes": torch.arange(150)}),
            ValueError,
            "edges of .*writes.* have no reverses of the same type; exclude='reverse_types' leaves out",
        ),
        (
            lambda: loader_of(
                indices={"cites": [1, 2]},
                graph_sampler=ours.as_edge_prediction_sampler(
                    sampler, exclude="reverse_id", reverse_eids={"cites": torch.arange(200)}
                ),
            ),
            ValueError,
            r"reverse_eids says that edge 1, \d+ -> \d+, is the reverse of edge 1, ",
        ),
        (
            lambda: loader_of(indices={"paper": [1]}, graph_sampler=ours.as_edge_prediction_sampler(sampler)),
            ValueError,
            "indices names 'paper', but the graph has no such edge type",
        ),
    ):
        with pytest.raises(error, match=message):
            make()


def test_edges_of_several_types_refuse_use_uva(typed: Any) -> None:
    import loader.dgl as ours

    sampler = ours.as_edge_prediction_sampler(ours.NeighborSampler([2]))
    with pytest.raises(
        NotImplementedError, match=r"use_uva is not possible with EdgePredictionSampler\.sample, which is"
    ):
        ours.DataLoader(typed, {"writes": torch.arange(3)}, sampler, use_uva=True)


def test_labor_takes_types(typed: Any) -> None:
    import loader.dgl as ours

    alike, apart = (
        sum(
            sum(map(len, inputs.values()))
            for _ in range(20)
            for inputs, *_ in ours.DataLoader(typed, {"paper": torch.arange(60)}, sampler, batch_size=30, seed=3)
        )
        for sampler in (ours.LaborSampler([1, 1], layer_dependency=True), ours.NeighborSampler([1, 1]))
    )
    assert alike < apart


def test_masks_hold_for_their_edge_types(typed: Any) -> None:
    import dgl

    import loader.dgl as ours

    typed.edges["cites"].data["m"] = torch.rand(200, generator=torch.Generator().manual_seed(1)) > 0.5
    whole = [
        [
            edges_of(block)
            for *_, blocks in package.DataLoader(typed, seeds_of(typed), sampler, batch_size=9)
            for block in blocks
        ]
        for package, sampler in (
            (ours, ours.NeighborSampler([-1, -1], mask="m")),
            (dgl.dataloading, dgl.dataloading.NeighborSampler([-1, -1], mask="m", fused=False)),
        )
    ]
    assert whole[0] == whole[1]
