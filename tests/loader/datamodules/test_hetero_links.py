"""The data module of links between nodes of several types: what is trained on, what is tested on."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hetero_datasets import NUM_AUTHORS, make_hetero
from small_loader import no_threads

from loader.datamodules.hetero_links import split_hetero_links
from loader.datamodules.links import LinkDataModule
from loader.datasets import DatasetError, HeteroDataset, NodeDataset
from loader.graph import Graph, HeteroGraph
from loader.samplers import FusedSampler

WRITES, REV = ("author", "writes", "paper"), ("paper", "rev_writes", "author")


def module(data: HeteroDataset | None = None, **options: Any) -> LinkDataModule:
    arguments: dict[str, Any] = {
        "sampler": FusedSampler([4, 3], edge_ids=True, num_threads=1),
        "batch_size": 32,
        "edge_type": "author__writes__paper",
        "reverse": "paper__rev_writes__author",
        **options,
    }
    made = LinkDataModule(data or make_hetero(), **arguments)
    made.setup("fit")
    return made


def ends_of(relation: Graph) -> set[tuple[int, int]]:
    dst = torch.arange(relation.num_dst).repeat_interleave(relation.in_degrees().long())
    return set(zip(relation.indices.tolist(), dst.tolist(), strict=True))


def turned(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(v, u) for u, v in pairs}


def as_set(pairs: torch.Tensor) -> set[tuple[int, int]]:
    return set(map(tuple, pairs.tolist()))


def test_training_never_sees_held_out_links() -> None:
    made = module()
    assert made.split is not None
    parts = {name: as_set(pairs) for name, pairs in made.split.pairs.items()}
    known = ends_of(make_hetero().graph.relation(WRITES))
    assert set.union(*parts.values()) == known
    assert sum(map(len, parts.values())) == len(known)
    graph = made.split.graph
    assert isinstance(graph, HeteroGraph)
    assert ends_of(graph.relation(WRITES)) == turned(ends_of(graph.relation(REV))) == parts["train"]
    of = ("term", "of", "paper")
    assert ends_of(graph.relation(of)) == ends_of(make_hetero().graph.relation(of))
    met = []
    for batch in made.train_dataloader():
        n_id = batch.around.n_id
        ends, truth = batch.pairs()
        pairs = torch.stack([n_id["author"][ends[0]], n_id["paper"][ends[1]]], 1)
        assert not known & as_set(pairs[truth == 0])
        asked = as_set(pairs[truth == 1])
        met += pairs[truth == 1].tolist()
        for block in batch.around.blocks:
            seen = {key: n_id[key[0]][of[0]].tolist() for key, of in block.edge_index_dict.items()}
            to = {key: n_id[key[2]][of[1]].tolist() for key, of in block.edge_index_dict.items()}
            edges = {key: set(zip(seen[key], to[key], strict=True)) for key in seen}
            assert not edges[WRITES] & asked
            assert not turned(edges[REV]) & asked
    assert sorted(map(tuple, met)) == sorted(parts["train"])  # each once: ends have two types


@pytest.mark.parametrize("name", ["val", "test"])
def test_negatives_of_held_out_links_are_no_links(name) -> None:
    made = module(eval_negatives=7)
    assert made.split is not None
    known = ends_of(make_hetero().graph.relation(WRITES))
    held = made.held_out(name)
    assert torch.equal(held.links, made.split.pairs[name])
    assert held.negatives.shape == held.links.shape
    assert held.targets.shape == (len(held.links), 7)
    assert int(held.negatives[:, 0].max()) < NUM_AUTHORS
    assert int(held.targets.max()) < 40
    assert not known & as_set(held.negatives)
    for (source, _), targets in zip(held.links.tolist(), held.targets.tolist(), strict=True):
        assert not known & {(source, target) for target in targets}
    assert torch.equal(made.held_out(name).negatives, held.negatives)


def test_all_nodes_of_a_type_come_in_order() -> None:
    made = module(drop_last=True)
    held = made.held_out("val")
    given = []
    for _ in range(2):
        batches = held.all_nodes("author")
        ids = []
        for batch in batches:
            ids += batch.ids("seed").tolist()
            given.append(batch.digest())
            assert batch.x.keys() == {"author", "term"}
        batches.release()
        assert ids == list(range(NUM_AUTHORS))
    assert given[: len(given) // 2] == given[len(given) // 2 :]  # the same each time
    made.close()
    assert no_threads()


def test_an_own_reverse_has_both_directions() -> None:
    cites = torch.randint(30, (2, 200), generator=torch.Generator().manual_seed(0))
    graph = HeteroGraph.from_edges({("paper", "cites", "paper"): cites}, {"paper": 30})
    key = ("paper", "cites", "paper")
    split = split_hetero_links(graph, key, key, val=0.1, test=0.2, seed=3)
    held = as_set(torch.cat([split.pairs["val"], split.pairs["test"]]))
    assert all(u < v for u, v in held)
    seen = ends_of(split.graph.relation(key))
    assert not seen & (held | turned(held))
    assert ends_of(split.known.relation(key)) >= held | turned(held)
    ids = torch.arange(30)
    splits = {"train": ids[:9], "val": ids[9:12], "test": ids[12:]}
    data = HeteroDataset("cited", graph, {"paper": torch.rand(30, 3)}, "paper", ids % 2, splits, 2)
    made = module(data, edge_type=key, reverse=key)
    met = [
        tuple(pair)
        for batch in made.train_dataloader()
        for pair in batch.around.n_id["paper"][torch.stack([batch.sources, batch.targets], 1)].tolist()
    ]
    assert sorted(met) == sorted(turned(set(met)))
    made.close()


def test_a_reverse_that_is_not_named_is_refused() -> None:
    way = r"links that are held out: name it, reverse=paper__rev_writes__author, with exclude=reverse"
    with pytest.raises(ValueError, match=rf"has the reverse of (\d+) of the \1 links of .*, .* {way}"):
        module(exclude="self", reverse=None)


@pytest.mark.parametrize(("kept", "refused"), [(19, True), (11, True), (10, False), (0, False)])
def test_most_reverses_without_a_name_are_refused(kept, refused) -> None:
    links = torch.stack([torch.arange(20), torch.arange(20) % 7])
    links = torch.cat([links, links[:, :9]], 1)  # a link is a pair, however many edges it has
    graph = HeteroGraph.from_edges({WRITES: links, REV: links[:, :kept].flip(0)}, {"author": 20, "paper": 7})
    options: dict[str, Any] = {"val": 0.1, "test": 0.1, "seed": 0}
    split_hetero_links(graph, WRITES, REV, **options)
    if refused:
        with pytest.raises(ValueError, match=f"has the reverse of {kept} of the 20 links of .*, more than half of the"):
            split_hetero_links(graph, WRITES, None, **options)
    else:
        split_hetero_links(graph, WRITES, None, **options)


@pytest.mark.parametrize(
    ("same", "others", "answer"),
    [(20, 0, "refused"), (19, 1, "refused"), (18, 2, "warned"), (11, 10, "warned"), (10, 0, ""), (20, 20, "")],
)
def test_a_second_relation_of_same_links(same, others, answer, caplog) -> None:
    links = torch.stack([torch.arange(20), torch.arange(20) % 7])
    more = torch.stack([torch.arange(20), (torch.arange(20) + 1) % 7])[:, :others]
    again = torch.cat([links[:, :same], links[:, :same], more], 1)  # a link is a pair, however many edges it has
    what = f"has {same} of the 20 links of .* its {same + others}, "
    for authors, papers in (("author", "paper"), ("node", "node")):
        first, second = (authors, "writes", papers), (authors, "signs", papers)
        graph = HeteroGraph.from_edges({first: links, second: again}, {authors: 20, papers: 20})
        if answer == "refused":
            with pytest.raises(ValueError, match=f"{what}nearly the same ones, so a model would see"):
                split_hetero_links(graph, first, None, val=0.1, test=0.1, seed=0)
        elif authors != papers:
            split_hetero_links(graph, first, None, val=0.1, test=0.1, seed=0)
            assert bool(re.search(f"{what}so a model sees many", caplog.text)) == (answer == "warned")


def test_a_relation_with_both_directions_is_its_reverse() -> None:
    pairs = torch.tensor([[i, j] for i in range(8) for j in range(i)]).t()
    cites, by, loops = ("paper", "cites", "paper"), ("paper", "by", "paper"), torch.arange(30).expand(2, 30)
    options: dict[str, Any] = {"val": 0.1, "test": 0.1, "seed": 0}
    graph = HeteroGraph.from_edges({cites: torch.cat([pairs, pairs.flip(0)], 1), by: pairs[:, :3]}, {"paper": 8})
    split_hetero_links(graph, cites, cites, **options)
    for reverse, way in (
        (None, "name it, reverse=paper__cites__paper,"),
        (by, "leave it out of the graph, as reverse"),
    ):
        with pytest.raises(ValueError, match=f"has the reverse of 56 of the 56 links of .* held out: {way}"):
            split_hetero_links(graph, cites, reverse, **options)
    graph = HeteroGraph.from_edges({cites: pairs, by: pairs}, {"paper": 8})  # of an own reverse, direction counts not
    with pytest.raises(ValueError, match="has the reverse of 28 of the 28 links of "):
        split_hetero_links(graph, cites, cites, **options)
    split_hetero_links(HeteroGraph.from_edges({cites: loops}, {"paper": 30}), cites, None, **options)


def test_bad_relations_are_refused() -> None:
    for options, message in (
        ({"edge_type": None, "reverse": None}, r"task=link predicts links of one relation; name it, .*author__writes"),
        ({"edge_type": "author__likes__paper"}, r"edge_type is \('author', 'likes', 'paper'\), which is no relation"),
        ({"reverse": "paper__by__author"}, r"reverse is \('paper', 'by', 'author'\), which is no relation of the gr"),
        ({"reverse": "term__of__paper"}, "it must go the other way, from 'paper' to 'author'"),
        ({"reverse": None}, "name the relation that has the links' reverses"),
    ):
        with pytest.raises((DatasetError, ValueError), match=message):
            module(**options)
    splits = {"train": torch.arange(2), "val": torch.arange(2, 3), "test": torch.arange(3, 4)}
    graph = Graph.from_edges(torch.arange(3), torch.arange(1, 4), 4)
    one_type = NodeDataset("plain", graph, torch.rand(4, 2), torch.arange(4) % 2, splits, 2)
    plain = LinkDataModule(one_type, FusedSampler([2, 2]), exclude="self", edge_type=WRITES)
    with pytest.raises(DatasetError, match=r"has one type of nodes and edges, and datamodule\.edge_type is"):
        plain.prepare_data()
