"""Mini-batches of several types: views by type and relation, copies, and what PyG and DGL get of them."""

from __future__ import annotations

import hetero_oracle as oracle
import numpy as np
import pytest
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from loader.samples import Block, HeteroBlock, HeteroMiniBatch, MiniBatch

Batch = oracle.HeteroBatch


def made(graph: oracle.HeteroGraph, found: Batch, edge_ids: bool = True) -> HeteroMiniBatch:
    """What a sampler makes of these arrays."""
    blocks = [
        HeteroBlock(
            torch.from_numpy(hop.indptr),
            torch.from_numpy(hop.indices),
            hop.first_dst,
            hop.num_dst,
            hop.num_src,
            torch.from_numpy(hop.edge_ids) if edge_ids else None,
        )
        for hop in reversed(found.hops)
    ]
    bounds = graph.lists.bounds.tolist()
    types = {name: range(bounds[t], bounds[t + 1]) for t, name in enumerate(graph.num_nodes)}
    return HeteroMiniBatch(torch.from_numpy(found.nodes), found.sizes, tuple(blocks), types, tuple(graph.edges), 3, 6)


def random_batches(seed: int, count: int, expand: str):
    """Cases, what the oracle makes of them, and the mini-batches."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        case = oracle.random_case(rng, uniform=True)
        found = oracle.sample(
            case.graph, case.seeds, case.fanouts, expand=expand, seed=case.seed, epoch=case.epoch, batch=case.batch
        )
        yield case, found, made(case.graph, found)


def small() -> HeteroMiniBatch:
    """Two hops from the papers 1 and 0; authors write papers, papers cite papers."""
    writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
    edges = {writes: ([0, 1, 2, 0], [0, 1, 2, 2]), cites: ([2, 0, 1], [1, 2, 0])}
    arrays = {key: (np.array(src), np.array(dst)) for key, (src, dst) in edges.items()}
    graph = oracle.HeteroGraph({"author": 3, "paper": 3}, arrays)
    return made(graph, oracle.sample(graph, np.array([4, 3]), [-1, -1], expand="new"))


@pytest.mark.parametrize("expand", ["all", "new"])
def test_views_by_type_and_relation(expand) -> None:
    edges_seen = 0
    for case, found, batch in random_batches(1, 15, expand):
        written = oracle.edges_by_hop(case.graph, found)
        types = case.graph.lists.types_of(found.nodes)
        for t, (name, ids) in enumerate(batch.n_id.items()):
            expected = found.nodes[types == t] - case.graph.lists.bounds[t]
            assert ids.tolist() == expected.tolist() == batch.ids(f"node/{name}").tolist()
            assert batch.num_nodes_of(name) == len(expected)
        for block, hop, edges in zip(reversed(batch.blocks), found.hops, written, strict=True):
            index = block.edge_index_dict
            assert list(index) == list(case.graph.edges)
            for key, of in edges.items():
                src, dst, ids = oracle.columns(of)
                assert index[key].tolist() == [src, dst]
                one = block.relation(key)
                assert isinstance(one, Block)
                assert one.indices.tolist() == src
                assert one.edge_ids.tolist() == ids
                names = list(case.graph.num_nodes)
                dst_types = types[hop.first_dst : hop.first_dst + hop.num_dst]
                assert one.num_dst == one.indptr.numel() - 1 == (dst_types == names.index(key[2])).sum()
                assert one.num_src == (types[: hop.num_src] == names.index(key[0])).sum()
                first = (types[: hop.first_dst] == names.index(key[2])).sum()
                assert (one.edge_index[1] + first).tolist() == dst
                edges_seen += len(src)
        for key in case.graph.edges:
            expected = [edge[2] for edges in written for edge in edges[key]]
            assert batch.ids("edge/" + "__".join(key)).tolist() == expected
    assert edges_seen > 1_000


def test_ids_of_several_kinds_are_those_of_each() -> None:
    kinds = ["node/paper/year", "seed", "node/paper", "edge/paper__cites__paper", "node/author"]
    batch = small()
    for some in ([], kinds[:1], kinds[1:3], kinds):
        for kind, ids in zip(some, batch.ids_of(some), strict=True):
            assert torch.equal(ids, batch.ids(kind))
    for wrong in ("node/venue", "other"):
        with pytest.raises(KeyError, match=wrong):
            batch.ids_of([*kinds, wrong])


def test_a_relation_may_be_named_in_one_word() -> None:
    block = small().blocks[-1]
    assert (
        block.relation("paper__cites__paper").indices.tolist()
        == block.relation(("paper", "cites", "paper")).indices.tolist()
    )
    with pytest.raises(KeyError, match=r"'paper__likes__paper' is no edge type of the graph; its edge types are \[\("):
        block.relation("paper__likes__paper")
    with pytest.raises(
        KeyError, match=r"'venue' is no node type of the graph; its node types are \['author', 'paper'\]"
    ):
        small().num_nodes_of("venue")


def test_one_relation_behaves_as_a_mini_batch() -> None:
    rng = np.random.default_rng(2)
    edges = rng.integers(0, 50, (2, 300))
    graph = oracle.HeteroGraph({"a": 50}, {("a", "to", "a"): (edges[0], edges[1])})
    batch = made(graph, oracle.sample(graph, np.array([7, 3]), [3, 2]))
    blocks = [Block(b.indptr, b.indices, b.num_src, b.num_dst, b.edge_ids) for b in batch.blocks]
    frontiers = tuple(np.cumsum([size for (size,) in batch.sizes]).tolist())
    plain = MiniBatch(batch.nodes, frontiers, tuple(blocks), 3, 6)
    assert [id(t) for t in batch.tensors()] == [id(t) for t in plain.tensors()]
    assert batch.batch_size == plain.batch_size
    assert batch.num_edges == plain.num_edges
    assert batch.output_nodes.tolist() == plain.output_nodes.tolist()
    for mine, theirs in zip(batch.blocks, plain.blocks, strict=True):
        one = mine.relation("a__to__a")
        assert one.indptr is theirs.indptr
        assert one.indices is theirs.indices
        assert (one.num_src, one.num_dst) == (theirs.num_src, theirs.num_dst)
    ours, theirs = batch.to_pyg(), plain.to_pyg()
    assert ours["a"].n_id.tolist() == theirs.n_id.tolist()
    assert ours["a", "to", "a"].edge_index.tolist() == theirs.edge_index.tolist()
    assert ours["a", "to", "a"].e_id.tolist() == theirs.e_id.tolist()
    assert ours["a"].num_sampled_nodes == theirs.num_sampled_nodes
    assert ours["a", "to", "a"].num_sampled_edges == theirs.num_sampled_edges


def test_expand_all_has_what_expand_new_gives() -> None:
    longer = 0
    for (_, _, every), (_, _, new) in zip(random_batches(3, 40, "all"), random_batches(3, 40, "new"), strict=True):
        part = every.first_picks()
        longer += every.num_edges > part.num_edges
        assert part.digest() == new.digest()
        assert part.first_picks() is part
    assert longer > 10


def with_all_rows(batch: HeteroMiniBatch) -> HeteroMiniBatch:
    """Rows that say which ids they are of."""
    rows: dict[str, Tensor] = {}
    for kind in batch.wants:
        what = kind.partition("/")[0]
        if what != "seed":
            ids = batch.ids(kind)
            rows[kind] = torch.stack([ids, ids + 1], 1).float()
            rows[f"{kind}/other"] = batch.ids(f"{kind}/other").clone()
    return batch.with_rows(rows)


@pytest.mark.parametrize("expand", ["all", "new"])
def test_torch_geometrics_form(expand) -> None:
    hetero_data = pytest.importorskip("torch_geometric.data").HeteroData
    for case, _, batch in random_batches(4, 20, expand):
        found = oracle.sample(
            case.graph, case.seeds, case.fanouts, expand="new", seed=case.seed, epoch=case.epoch, batch=case.batch
        )
        written = oracle.edges_by_hop(case.graph, found)
        data = with_all_rows(batch).to_pyg()
        assert isinstance(data, hetero_data)
        assert data.metadata() == (list(case.graph.num_nodes), list(case.graph.edges))
        types = case.graph.lists.types_of(found.nodes)
        for t, name in enumerate(case.graph.num_nodes):
            store = data[name]
            assert store.n_id.tolist() == (found.nodes[types == t] - case.graph.lists.bounds[t]).tolist()
            assert store.n_id.dtype == torch.int64
            assert store.num_nodes == store.n_id.numel()
            assert store.num_sampled_nodes == [size[t] for size in found.sizes]
            assert store.x.tolist() == torch.stack([store.n_id, store.n_id + 1], 1).tolist()
            assert store.other.tolist() == store.n_id.tolist()
            seeds = found.sizes[0][t]
            assert store.get("batch_size", 0) == seeds
            if seeds:
                assert store.input_id.tolist() == store.n_id[:seeds].tolist()
        for key in case.graph.edges:
            src, dst, ids = oracle.columns([edge for edges in written for edge in edges[key]])
            assert data[key].edge_index.tolist() == [src, dst]
            assert data[key].e_id.tolist() == ids
            assert data[key].num_sampled_edges == [len(edges[key]) for edges in written]
            assert data[key].edge_attr[:, 0].tolist() == ids
            assert data[key].other.tolist() == ids


def test_dgls_form() -> None:
    dgl = pytest.importorskip("dgl")
    for case, found, batch in random_batches(5, 15, "all"):
        if not case.graph.edges:
            continue
        written = oracle.edges_by_hop(case.graph, found)
        input_nodes, output_nodes, blocks = with_all_rows(batch).to_dgl()
        for name, ids in batch.n_id.items():
            assert input_nodes[name].tolist() == ids.tolist()
            seeds = dict(zip(batch.node_types, batch.sizes[0], strict=True))[name]
            assert output_nodes[name].tolist() == ids[:seeds].tolist()
            assert blocks[0].srcnodes[name].data["feat"][:, 0].tolist() == ids.tolist()
        reached = dict(zip(batch.node_types, batch.sizes[0], strict=True))
        for h, (block, edges) in enumerate(zip(reversed(blocks), written, strict=True)):
            assert block.is_block
            for t, name in enumerate(batch.node_types):
                assert block.num_dst_nodes(name) == reached[name]
                reached[name] += batch.sizes[h + 1][t]
                assert block.num_src_nodes(name) == reached[name]
                assert block.srcnodes[name].data[dgl.NID].tolist() == batch.n_id[name][: reached[name]].tolist()
            for key, of in edges.items():
                src, dst, ids = oracle.columns(of)
                u, v = block.edges(etype=key, order="eid")
                assert (u.tolist(), v.tolist()) == (src, dst)
                assert block.edges[key].data[dgl.EID].tolist() == ids
                assert block.edges[key].data["feat"][:, 0].tolist() == ids


def test_dgl_takes_no_expand_new() -> None:
    pytest.importorskip("dgl")
    with pytest.raises(ValueError, match=r"sampled with expand='new'; make its sampler with expand='all'"):
        small().to_dgl()


def test_labels_are_those_of_the_seeds_type() -> None:
    batch = small()
    assert batch.seed_type == "paper"
    assert batch.ids("seed").tolist() == [1, 0]
    labelled = batch.with_rows({"seed": torch.tensor([5, 6])})
    assert labelled.has("seed")
    assert not batch.has("seed")
    data = labelled.to_pyg()
    assert data["paper"].y.tolist() == [5, 6]
    assert "y" not in data["author"]
    both = made(*of_both_types())
    with pytest.raises(ValueError, match=r"the seeds of the mini-batch have 2 types \['a', 'b'\]; one is needed here"):
        both.ids("seed")
    data = both.to_pyg()
    assert (data["a"].batch_size, data["b"].batch_size) == (1, 2)


def of_both_types() -> tuple[oracle.HeteroGraph, Batch]:
    graph = oracle.HeteroGraph({"a": 2, "b": 2}, {("a", "to", "b"): (np.array([0, 1]), np.array([0, 1]))})
    return graph, oracle.sample(graph, np.array([1, 2, 3]), [1])


def test_rows_are_kept_by_kind() -> None:
    batch = small()
    assert batch.wants == (
        "node/author",
        "node/paper",
        "seed",
        "edge/author__writes__paper",
        "edge/paper__cites__paper",
    )
    assert not any(batch.has(kind) for kind in batch.wants)
    full = with_all_rows(batch)
    assert all(full.has(kind) for kind in batch.wants if kind != "seed")
    assert full.x is not None
    assert full.x["author"][:, 0].tolist() == batch.n_id["author"].tolist()
    assert batch.x is None
    for kind in ("node/venue", "edge/a__b__c", "other"):
        with pytest.raises(KeyError):
            batch.ids(kind)
    without = HeteroMiniBatch(
        batch.nodes,
        batch.sizes,
        tuple(HeteroBlock(b.indptr, b.indices, b.first_dst, b.num_dst, b.num_src) for b in batch.blocks),
        batch.node_types,
        batch.edge_types,
    )
    with pytest.raises(ValueError, match=r"no edge ids; make its sampler with edge_ids=True"):
        without.ids("edge/paper__cites__paper")


def test_copies_have_all_parts() -> None:
    batch = with_all_rows(small()).with_rows({"seed": torch.tensor([5, 6])})
    seen: list[int] = []
    copy = batch.map(lambda t: seen.append(id(t)) or t.clone())
    assert sorted(seen) == sorted(id(t) for t in batch.tensors())
    assert copy.digest() == batch.digest()
    assert copy.to("cpu").digest() == batch.digest()
    assert copy.to("meta").nodes.device.type == "meta"
    assert [b.relation("author__writes__paper").indices.tolist() for b in copy.blocks] == [
        b.relation("author__writes__paper").indices.tolist() for b in batch.blocks
    ]
    assert copy.held_bytes >= copy.nbytes > small().nbytes
    assert not {t.data_ptr() for t in copy.tensors() if t.numel()} & {
        t.data_ptr() for t in batch.tensors() if t.numel()
    }


def test_every_part_counts_in_the_digest() -> None:
    batch = with_all_rows(small())
    assert batch.digest() == with_all_rows(small()).digest()
    block = batch.blocks[0]
    others = [
        small(),
        batch.replace(nodes=batch.nodes + 1),
        batch.replace(sizes=batch.sizes[::-1]),
        batch.replace(epoch=4),
        batch.replace(index=7),
        batch.replace(x={**batch.x, "paper": batch.x["paper"] + 1}),
        batch.replace(y=torch.tensor([1, 2])),
        batch.replace(rows={kind: rows for kind, rows in batch.rows.items() if "other" in kind}),
        batch.replace(blocks=batch.blocks[1:]),
        batch.replace(blocks=(HeteroBlock(block.indptr, block.indices + 1, 0, 1, 1), *batch.blocks[1:])),
    ]
    assert len({one.digest() for one in [batch, *others]}) == len(others) + 1


def test_tools_that_copy_dataclasses_reach_the_floats() -> None:
    batch = with_all_rows(small())
    half = apply_to_collection(batch, Tensor, lambda t: t.half() if t.is_floating_point() else t)
    assert half.x["paper"].dtype == torch.float16
    assert batch.x["paper"].dtype == torch.float32
    assert half.rows["edge/paper__cites__paper"].dtype == torch.float16
    assert half.nodes is batch.nodes
    assert half.node_types == batch.node_types
    assert half.to_pyg()["paper"].x.dtype == torch.float16


def test_names_of_torch_geometric_get_a_way() -> None:
    with pytest.raises(AttributeError, match=r"HeteroMiniBatch has no attribute 'x_dict'; batch\.to_pyg\(\) has it"):
        _ = small().x_dict
    with pytest.raises(AttributeError, match=r"HeteroMiniBatch has no attribute 'other'$"):
        _ = small().other
    assert "num_nodes={'author': 3, 'paper': 3}" in repr(small())
