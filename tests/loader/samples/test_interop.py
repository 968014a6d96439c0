"""Mini-batches as DGL blocks and as PyG Data."""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from loader.graph import Graph
from loader.samplers import FullSampler, HopwiseSampler
from loader.samples import MiniBatch, interop

SEEDS = torch.tensor([5, 150, 7, 33, 90])


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph(200, 900)


def sample(graph: Graph, *, full: bool = False, edge_ids: bool = True, hops: int = 3) -> MiniBatch:
    sampler = (
        FullSampler(hops, edge_ids=edge_ids, num_threads=1)
        if full
        else HopwiseSampler(2, hops, edge_ids=edge_ids, num_threads=1)
    )
    batch = sampler.sample(graph, SEEDS)
    return batch.replace(x=batch.nodes.float()[:, None].repeat(1, 4), y=batch.output_nodes % 3)


MESSAGES = ["copy_u", "copy_e"] + [
    f"{left}_{op}_{right}"
    for left, right in itertools.permutations("uve", 2)
    for op in ("add", "sub", "mul", "div", "dot")
]


def block_and_dgls_own(graph: Graph, wide: bool) -> tuple[Any, Any]:
    """A block of ours, and one that DGL builds from its edges; both have the same data."""
    import dgl

    batch = sample(graph)
    if wide:
        batch = batch.replace(blocks=tuple(replace(b, indptr=b.indptr.long()) for b in batch.blocks))
    ours = batch.to_dgl()[2][0]
    sizes = ours.num_src_nodes(), ours.num_dst_nodes()
    theirs = dgl.create_block(ours.edges(order="eid"), *sizes, idtype=ours.idtype)
    generator = torch.Generator().manual_seed(3)
    data = [torch.rand(n, 4, generator=generator) + 1 for n in (*sizes, ours.num_edges())]
    for block in (ours, theirs):
        block.srcdata["u"], block.dstdata["v"], block.edata["e"] = data
    return ours, theirs


def sources_of(graph: Graph) -> tuple[Tensor, Tensor]:
    """Source and destination of each edge, by position in the CSC."""
    dst = torch.arange(graph.num_nodes).repeat_interleave(graph.in_degrees())
    return graph.indices.long(), dst


class TestDGL:
    @pytest.fixture(autouse=True)
    def _dgl(self) -> None:
        pytest.importorskip("dgl", exc_type=ImportError)

    @pytest.mark.parametrize("wide", [False, True])
    def test_blocks_hold_the_same_edges(self, graph: Graph, wide: bool) -> None:
        import dgl

        batch = sample(graph)
        if wide:  # as in a graph of more than 2**31 edges
            blocks = tuple(
                type(b)(b.indptr.long(), b.indices, b.num_src, b.num_dst, b.edge_ids.long()) for b in batch.blocks
            )
            batch = batch.replace(blocks=blocks)
        input_nodes, output_nodes, blocks = batch.to_dgl()
        assert torch.equal(input_nodes, batch.input_nodes)
        assert torch.equal(output_nodes, SEEDS.int())
        assert len(blocks) == 3
        src, dst = sources_of(graph)
        for ours, theirs in zip(batch.blocks, blocks, strict=True):
            assert theirs.is_block
            assert theirs.idtype == (torch.int64 if wide else torch.int32)
            assert (theirs.num_src_nodes(), theirs.num_dst_nodes()) == (ours.num_src, ours.num_dst)
            assert torch.equal(theirs.srcdata[dgl.NID], batch.nodes[: ours.num_src])
            assert torch.equal(theirs.dstdata[dgl.NID], batch.nodes[: ours.num_dst])
            ids = theirs.edata[dgl.EID].long()
            u, v = (end.long() for end in theirs.edges())
            assert torch.equal(theirs.srcdata[dgl.NID][u].long(), src[ids])
            assert torch.equal(theirs.dstdata[dgl.NID][v].long(), dst[ids])
            assert torch.equal(theirs.in_degrees().long(), ours.indptr.diff().long())
        assert torch.equal(blocks[0].srcdata["feat"], batch.x)
        assert torch.equal(blocks[-1].dstdata["label"], batch.y)

    def test_dgl_blocks_lack_unrequested_data(self, graph: Graph) -> None:
        import dgl

        batch = sample(graph, edge_ids=False).replace(x=None, y=None)
        _, _, blocks = batch.to_dgl()
        assert all(dgl.EID not in block.edata for block in blocks)
        assert "feat" not in blocks[0].srcdata
        assert "label" not in blocks[-1].dstdata

    def test_a_dgl_layer_averages_our_neighbors(self, graph: Graph) -> None:
        import dgl.function as fn

        batch = sample(graph)
        block = batch.to_dgl()[2][0]
        block.update_all(fn.copy_u("feat", "m"), fn.mean("m", "h"))
        ours = batch.blocks[0]
        for i in range(ours.num_dst):
            rows = batch.x[ours.indices[ours.indptr[i] : ours.indptr[i + 1]].long()]
            expected = rows.mean(0) if len(rows) else torch.zeros(4)
            torch.testing.assert_close(block.dstdata["h"][i], expected)

    @pytest.mark.parametrize("wide", [False, True])
    @pytest.mark.parametrize("message", MESSAGES)
    def test_messages_equal_those_of_dgls_block(self, graph: Graph, message: str, wide: bool) -> None:
        import dgl.function as fn

        fields = message[-1] if message.startswith("copy") else (message[0], message[-1])
        for reduce in ("sum", "max", "min", "mean"):
            found = []
            for block in block_and_dgls_own(graph, wide):
                assert block.idtype == (torch.int64 if wide else torch.int32)
                leaves = [data[name].requires_grad_() for data in (block.srcdata, block.dstdata, block.edata)
                          for name in data if name in "uve"]  # fmt: skip
                block.update_all(getattr(fn, message)(*fields, "m"), getattr(fn, reduce)("m", "h"))
                block.dstdata["h"].square().sum().backward()
                found.append([block.dstdata["h"].detach(), *(leaf.grad for leaf in leaves)])
            torch.testing.assert_close(*found)
            assert any(grad is not None and bool(grad.any()) for grad in found[0][1:])

    @pytest.mark.parametrize("wide", [False, True])
    def test_layers_by_edge_equal_those_of_dgls_block(self, graph: Graph, wide: bool) -> None:
        import dgl.nn.pytorch as nn

        def run(layer: Any, block: Any, *more: Any) -> list[Tensor]:
            layer.zero_grad()
            out = layer(block, block.srcdata["u"], *more)
            out.square().sum().backward()
            return [out.detach(), *(p.grad.clone() for p in layer.parameters())]

        ours, theirs = block_and_dgls_own(graph, wide)
        kinds = torch.arange(ours.num_edges()) % 3
        for layer, *more in (
            (nn.GATConv(4, 3, 2, allow_zero_in_degree=True),),
            (nn.GATv2Conv(4, 3, 2, allow_zero_in_degree=True),),
            (nn.EdgeConv(4, 3, allow_zero_in_degree=True),),
            (nn.RelGraphConv(4, 3, 3), kinds),
            (nn.NNConv(4, 3, torch.nn.Linear(4, 12)), ours.edata["e"]),
            (nn.GINEConv(torch.nn.Linear(4, 3)), ours.edata["e"]),
        ):
            torch.testing.assert_close(run(layer, ours, *more), run(layer, theirs, *more))

    @pytest.mark.parametrize("wide", [False, True])
    def test_other_calls_equal_those_of_dgls_block(self, graph: Graph, wide: bool) -> None:
        import dgl

        calls: dict[str, Callable[[Any], Any]] = {
            "edges": lambda b: b.edges("all", order="eid"),
            "by source": lambda b: b.edges("all", order="srcdst"),
            "degrees": lambda b: (b.in_degrees(), b.out_degrees()),
            "lists": lambda b: (*b.adj_tensors("csc")[:2], *b.adj_tensors("csr"), *b.adj_tensors("coo")),
            "found": lambda b: b.find_edges(torch.tensor([0, 3, 5], dtype=b.idtype)),
            "ids": lambda b: b.edge_ids(*(end[:5] for end in b.edges(order="eid"))),
            "in edges": lambda b: b.in_edges(torch.tensor([0, 1], dtype=b.idtype), form="all"),
            "softmax": lambda b: dgl.nn.functional.edge_softmax(b, b.edata["e"]),
            "pickled": lambda b: pickle.loads(pickle.dumps(b)).edges(order="eid"),
            "moved": lambda b: b.to("cpu").edges(order="eid"),
            "cast": lambda b: (*b.int().edges(order="eid"), *b.long().edges(order="eid")),
            "graph": lambda b: dgl.block_to_graph(b).edges(order="eid"),
            "graph's data": lambda b: dgl.block_to_graph(b).edata["e"],
            "part": lambda b: b.edge_subgraph(torch.tensor([4, 2], dtype=b.idtype), relabel_nodes=False).edges(),
            "filtered": lambda b: b.filter_edges(lambda edges: edges.data["e"][:, 0] > 1.5),
        }
        ours, theirs = block_and_dgls_own(graph, wide)
        for name, call in calls.items():
            torch.testing.assert_close(call(ours), call(theirs), msg=lambda text, name=name: f"{name}: {text}")


def test_without_dgl_the_message_names_the_package(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(ImportError, match=r"to_dgl\(\) needs DGL.*dgl==1\.1\.3"):
        interop.to_dgl(sample(graph))


def test_pyg_data_is_laid_out_by_hops(graph: Graph) -> None:
    batch = sample(graph)
    data = batch.to_pyg()
    data.validate(raise_on_error=True)
    nodes, edges = data.num_sampled_nodes, data.num_sampled_edges
    assert data.batch_size == nodes[0] == len(SEEDS)
    assert torch.equal(data.n_id[: len(SEEDS)], SEEDS)
    assert data.n_id.unique().numel() == data.n_id.numel() == sum(nodes) == data.num_nodes
    assert data.edge_index.shape == (2, sum(edges))
    assert torch.equal(data.x, data.n_id.float()[:, None].repeat(1, 4))
    assert torch.equal(data.y, SEEDS % 3)
    src, dst = sources_of(graph)
    assert torch.equal(data.n_id[data.edge_index[0]], src[data.e_id])
    assert torch.equal(data.n_id[data.edge_index[1]], dst[data.e_id])
    assert data.e_id.unique().numel() == data.e_id.numel()  # each edge counts once

    begin = 0
    for hop, count in enumerate(edges):
        u, v = data.edge_index[:, begin : begin + count]
        assert int(u.max()) < sum(nodes[: hop + 2])  # at most the nodes that this hop met
        assert int(v.min()) >= sum(nodes[:hop])  # exactly those that the hop before met
        assert int(v.max()) < sum(nodes[: hop + 1])
        begin += count
    met = torch.zeros(data.num_nodes, dtype=torch.bool)
    met[data.edge_index[0]] = True
    assert met[len(SEEDS) :].all()  # every node beside the seeds is read by someone


def test_each_node_keeps_the_picks_of_one_hop(graph: Graph) -> None:
    batch = sample(graph)
    data = batch.to_pyg()
    place = {int(v): i for i, v in enumerate(batch.nodes)}
    hop_of = torch.arange(4).repeat_interleave(torch.tensor(data.num_sampled_nodes))
    picked: dict[int, list[int]] = {}
    for edge, target in zip(data.e_id.tolist(), data.edge_index[1].tolist(), strict=True):
        picked.setdefault(target, []).append(edge)
    for i in range(sum(data.num_sampled_nodes[:3])):
        block = batch.blocks[3 - 1 - int(hop_of[i])]
        row = place[int(data.n_id[i])]
        assert picked.get(i, []) == block.edge_ids[block.indptr[row] : block.indptr[row + 1]].tolist()


def test_pyg_data_may_lack_ids_features_labels(graph: Graph) -> None:
    data = sample(graph, edge_ids=False).replace(x=None, y=None).to_pyg()
    assert data.x is None
    assert data.y is None
    assert "e_id" not in data
    assert data.num_nodes == data.n_id.numel()


def full_graph_data(graph: Graph) -> tuple[Tensor, Tensor]:
    src, dst = sources_of(graph)
    features = torch.randn(graph.num_nodes, 4, generator=torch.Generator().manual_seed(0))
    return features, torch.stack([src, dst])


@pytest.mark.parametrize("trim", [False, True])
def test_a_pyg_model_equals_the_full_graph(graph: Graph, trim: bool) -> None:
    from torch_geometric.nn import GraphConv
    from torch_geometric.utils import trim_to_layer

    torch.manual_seed(0)
    layers = [GraphConv(4, 4, aggr="add") for _ in range(3)]  # a sum: an edge that counted twice would show
    features, edge_index = full_graph_data(graph)
    expected = features
    for layer in layers:
        expected = layer(expected, edge_index).relu()

    data = sample(graph, full=True).to_pyg()
    h, edges = features[data.n_id], data.edge_index
    for i, layer in enumerate(layers):
        if trim:
            h, edges, _ = trim_to_layer(i, data.num_sampled_nodes, data.num_sampled_edges, h, edges)
        h = layer(h, edges).relu()
    torch.testing.assert_close(h[: data.batch_size], expected[SEEDS])


def with_edge_features(batch: MiniBatch) -> MiniBatch:
    """Each edge has its id as its feature."""
    blocks = tuple(replace(block, edge_features=block.edge_ids.float()[:, None]) for block in batch.blocks)
    return batch.replace(blocks=blocks)


def test_pyg_data_holds_edge_features(graph: Graph) -> None:
    data = with_edge_features(sample(graph)).to_pyg()
    assert data.edge_attr.shape == (data.edge_index.shape[1], 1)
    assert torch.equal(data.edge_attr[:, 0].long(), data.e_id)


def test_dgl_blocks_hold_edge_features(graph: Graph) -> None:
    dgl = pytest.importorskip("dgl", exc_type=ImportError)
    for block in with_edge_features(sample(graph)).to_dgl()[2]:
        assert torch.equal(block.edata["feat"][:, 0].long(), block.edata[dgl.EID].long())
