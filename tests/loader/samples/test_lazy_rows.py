"""Rows that are read where they lie: the same as if they had been gathered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.precision import DoublePrecision, HalfPrecision
from marks import needs_gpu
from torch.nn import functional as F

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.ops import linear_self_mean
from loader.samplers import HopwiseSampler, fused
from loader.samples import Block, LazyRows, MiniBatch
from loader.stores import DeviceFeatures
from loader.stores import device as device_store
from models.sage import GraphSAGE
from models.training.module import NodeClassifier


def lazy_batch(graph: Graph) -> tuple[MiniBatch, MiniBatch]:
    """One on the CPU, and the same with its features gathered."""
    table = torch.randn(graph.num_nodes, 6, generator=torch.Generator().manual_seed(0))
    batch = HopwiseSampler([3, 2], seed=1).sample(graph, torch.arange(20))
    return batch.replace(rows=LazyRows(table, batch.nodes)), batch.replace(x=table[batch.nodes.long()])


def test_late_gathering_leaves_the_mini_batch_equal(random_graph: Any) -> None:
    lazy, eager = lazy_batch(random_graph())
    assert lazy.features is lazy.rows
    assert eager.features is eager.x
    assert lazy.rows is not None
    assert eager.x is not None
    assert (lazy.rows.shape, lazy.rows.dtype) == (eager.x.shape, eager.x.dtype)
    assert lazy.digest() == eager.digest()
    assert lazy.gathered().rows is None
    assert torch.equal(lazy.gathered().x, eager.x)
    assert eager.gathered() is eager
    assert torch.equal(lazy.to_pyg().x, eager.to_pyg().x)
    moved = lazy.to("cpu")
    assert moved.x is None
    assert moved.rows is not None
    assert moved.rows.table is lazy.rows.table
    away = lazy.to("meta")
    assert away.rows is None
    assert away.x is not None
    assert away.x.shape == eager.x.shape


@pytest.mark.parametrize(
    ("tensor", "options"),
    [
        (torch.zeros(4, dtype=torch.float32), {}),
        (torch.zeros(4, 2, dtype=torch.int64), {}),
        (torch.zeros(4, 2), {"dtype": "float16"}),
        (torch.zeros(4, 2, 2), {}),
    ],
)
def test_tables_not_readable_in_place_are_refused(tensor: torch.Tensor, options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="lazy rows are read as they are kept"):
        DeviceFeatures(tensor, lazy=True, **options)


def test_rows_beyond_32_bit_ids_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_store, "_MOST_LAZY", 3)
    with pytest.raises(ValueError, match=r"or of 8 bits, fewer than 2\^31; .*: give lazy=False"):
        DeviceFeatures(torch.ones(4, 2), lazy=True)


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_another_precision_leaves_the_table_unchanged(random_graph: Any, precision: str) -> None:
    lazy, eager = lazy_batch(random_graph())
    y = torch.arange(lazy.batch_size) % 3
    plugin = HalfPrecision("bf16-true") if precision == "bf16-true" else DoublePrecision()
    model = plugin.convert_module(NodeClassifier(6, 3, dropout=0.0))
    losses = []
    for batch in (lazy.replace(y=y), eager.replace(y=y)):
        converted = plugin.convert_input(batch)
        assert converted.rows is batch.rows
        losses.append(model.training_step(converted, 0))
    assert {loss.dtype for loss in losses} == {torch.bfloat16 if precision == "bf16-true" else torch.float64}
    assert losses[0] == losses[1]


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.fixture
    def block(self) -> Block:
        g = torch.Generator().manual_seed(0)
        degrees = torch.randint(9, (300,), generator=g)
        degrees[5] = 700
        indptr = torch.cat((torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)))
        indices = torch.randint(800, (int(indptr[-1]),), generator=g)
        return Block(indptr.cuda(), indices.int().cuda(), 800, 300)

    @pytest.mark.parametrize("autocast", [False, True])
    @pytest.mark.parametrize("dim", [1, 7, 100, 256])
    def test_the_layer_has_the_same_bits(self, block: Block, dim: int, autocast: bool) -> None:
        table = torch.randn(5000, dim, device="cuda")
        nodes = torch.randperm(5000, device="cuda")[:800].int()
        weights = [torch.randn(s, device="cuda", requires_grad=True) for s in ((8, dim), (8, dim), (8,))]
        results = []
        for x in (table[nodes.long()], LazyRows(table, nodes)):
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                out = linear_self_mean(x, block, *weights)
            results.append([out, *torch.autograd.grad(out.float().square().sum(), weights)])
        for eager, lazy in zip(*results, strict=True):
            assert torch.equal(eager, lazy)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
    def test_other_types_give_the_same_bits(self, block: Block, dtype: torch.dtype) -> None:
        table = torch.randn(5000, 24, device="cuda", dtype=dtype)
        nodes = torch.randperm(5000, device="cuda")[:800].int()
        weights = [torch.randn(s, device="cuda", dtype=dtype) for s in ((8, 24), (8, 24), (8,))]
        wanted = linear_self_mean(table[nodes.long()], block, *weights)
        assert torch.equal(linear_self_mean(LazyRows(table, nodes), block, *weights), wanted)

    def test_dropout_goes_by_the_row_of_the_table(self, block: Block) -> None:
        table = torch.randn(800, 24, device="cuda")
        eye, zero = torch.eye(24, device="cuda"), torch.zeros(24, 24, device="cuda")
        everyone = torch.arange(800, dtype=torch.int32, device="cuda")
        for weights in ((eye, zero), (zero, eye)):
            results = []
            for x in (table, LazyRows(table, everyone)):
                torch.manual_seed(4)
                results.append(linear_self_mean(x, block, *weights, zero[0], relu=True, dropout=0.3))
            assert torch.equal(*results)
        # A source has the same elements dropped as a destination and as a neighbor.
        own = Block(torch.arange(301, device="cuda"), torch.arange(300, device="cuda").int(), 800, 300)
        nodes = torch.randperm(800, device="cuda").int()
        results = []
        for weights in ((eye, zero), (zero, eye)):
            torch.manual_seed(4)
            results.append(linear_self_mean(LazyRows(table, nodes), own, *weights, zero[0], dropout=0.3))
        assert torch.equal(*results)
        assert 0.2 < (results[0] == 0).float().mean() < 0.4

    def test_wrong_arguments_are_refused(self, block: Block) -> None:
        table, nodes = torch.randn(5000, 24, device="cuda"), torch.arange(800, device="cuda").int()
        weights = [torch.randn(s, device="cuda") for s in ((8, 24), (8, 24), (8,))]
        for rows, error, message in (
            (LazyRows(table, nodes[:7]), ValueError, r"nodes \(7,\); the block needs \[num_nodes, F\] and \[800\]"),
            (LazyRows(table.cpu(), nodes.cpu()), ValueError, "the table lies on cpu"),
            (LazyRows(table, nodes.long()), TypeError, "nodes has dtype torch.int64, the block's indices torch.int32"),
            (LazyRows(table.requires_grad_(), nodes), ValueError, "the table gets no gradient"),
            (LazyRows(table.detach().t().contiguous().t(), nodes), ValueError, "must be contiguous"),
        ):
            with pytest.raises(error, match=message):
                linear_self_mean(rows, block, *weights)

    @pytest.mark.parametrize("sample_on", ["cpu", "cuda"])
    def test_a_loader_and_a_model_find_the_same(self, random_graph: Any, sample_on: str) -> None:
        graph = random_graph()
        x = torch.randn(graph.num_nodes, 30, generator=torch.Generator().manual_seed(1))
        y = x[:, :4].argmax(1)
        found = []
        for lazy in (False, True):
            store = DeviceFeatures(x, "cuda", lazy=lazy)
            batches = NodeLoader(
                graph.to(sample_on), store, y, torch.arange(150), fused([4, 3], device=sample_on), 40, device="cuda"
            )
            torch.manual_seed(0)
            net = GraphSAGE(30, 16, 4, 2, dropout=0.0).cuda()
            found.append([])
            for batch in batches:
                assert (batch.x is None) == lazy
                loss = F.cross_entropy(net(batch.blocks, batch.features), batch.y)
                loss.backward()
                found[-1].append((batch.digest(), loss.item()))
            found[-1].append(net.convs[0].lin_neigh.weight.grad.norm().item())
            batches.close()
            store.close()
            with pytest.raises(RuntimeError, match="was closed"):
                store.lazy_rows(torch.zeros(1))
        assert found[0] == found[1]
