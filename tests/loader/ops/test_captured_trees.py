"""Trees in arrays with room for larger ones: the model finds the same in them as in the mini-batch itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from marks import needs_frame
from shop import write_shop

from loader.datamodules.tasks import TaskDataModule
from loader.datasets import RelationalDataset
from loader.ops import captured_hetero_batch
from loader.ops.captured_hetero_batch import HopRoom
from loader.ops.captured_trees import CapturedTrees
from loader.samplers import TreeSampler
from loader.samples import LazyRows, TreeMiniBatch
from loader.samples.lazy_rows import LazyFeatures
from models.relational import RelationalSAGE
from models.training.cuda_graphs import _Call
from models.training.task_predictor import TaskPredictor

pytestmark = needs_frame


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> tuple[TaskDataModule, list[TreeMiniBatch]]:
    folder = write_shop(tmp_path_factory.mktemp("relational") / "shop")
    data = RelationalDataset(folder, "again", cache_dir=folder.parent / "cache")
    module = TaskDataModule(data, TreeSampler([6, 4], times="both"), batch_size=16, prefetch=0)
    module.setup()
    found = [batch for _ in range(3) for batch in module.train_dataloader()]
    return module, [batch for batch in found if batch.batch_size == 16]


def room_for(batches: list[TreeMiniBatch]) -> HopRoom:
    room = CapturedTrees.room_of(batches[0])
    for batch in batches[1:]:
        room = room.union(CapturedTrees.room_of(batch))
    return room


def in_tables(module: TaskDataModule, batches: list[TreeMiniBatch]) -> list[TreeMiniBatch]:
    """The same, whose rows were left in their tables, as a store in GPU memory leaves them."""
    tables = {name: rows.float() for name, rows in module.data.features.items()}
    return [
        batch.with_rows({f"node/{name}": LazyRows(of, batch.ids(f"node/{name}")) for name, of in tables.items()})
        for batch in batches
    ]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("unique_rows", [True, False])
@pytest.mark.parametrize("step", [1, 32])
def test_model_finds_the_same(batches: Any, lazy: bool, unique_rows: bool, step: int) -> None:
    module, found = batches
    gathered, found = found, in_tables(module, found) if lazy else found
    sizes = module.sizes
    torch.manual_seed(0)
    options: dict[str, Any] = {"hidden_channels": 8, "dropout": 0.0, "unique_rows": unique_rows}
    net = RelationalSAGE(sizes["columns"], sizes["edge_types"], sizes["target"], 1, **options).double()
    captured = CapturedTrees(found[0], room_for(found).widened(0.1 if step > 1 else 0.0, step))
    assert len({batch.sizes for batch in found}) > 5
    assert isinstance(captured.layout.unique_x, LazyFeatures) == lazy
    for batch, plain in zip(found, gathered, strict=True):
        assert captured.holds(batch)
        captured.load(batch)
        results = []
        for one in (plain, captured):
            net.zero_grad()
            out = net(one)[: batch.batch_size]
            (out[:, 0] * torch.linspace(-1, 1, len(out), dtype=out.dtype)).sum().backward()
            results.append((out.detach(), [p.grad.clone() for p in net.parameters()]))
        (wanted, gradients), (out, others) = results
        assert torch.allclose(out, wanted, rtol=1e-10, atol=1e-12)
        for gradient, other in zip(gradients, others, strict=True):
            assert torch.allclose(other, gradient, rtol=1e-9, atol=1e-12)
        assert captured.y is not batch.y
        assert torch.equal(captured.y, batch.y)


def test_products_of_distinct_rows_are_the_same(batches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the products of sums by relation, which the first layer has where those would be more."""
    module, found = batches
    sizes = module.sizes
    torch.manual_seed(0)
    options: dict[str, Any] = {"hidden_channels": 8, "dropout": 0.0}
    net = RelationalSAGE(sizes["columns"], sizes["edge_types"], sizes["target"], 1, **options).double()
    captured = CapturedTrees(found[0], room_for(found).widened(0.1, 32))
    captured.load(found[1])
    assert net._mapped(captured.layout, captured.segments) is not None
    results = []
    for _ in range(2):
        net.zero_grad()
        out = net(captured)
        (out * torch.linspace(-1, 1, len(out), dtype=out.dtype).unsqueeze(1)).sum().backward()
        results.append([out.detach(), *(p.grad.clone() for p in net.parameters())])
        monkeypatch.setattr(net, "_mapped", lambda *_: None)
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)


def test_model_takes_weights_of_a_graph(batches: Any) -> None:
    """As a capture calls it: with tensors in the place of the parameters, whose gradients are asked for."""
    module, found = batches
    predictor = TaskPredictor(**module.sizes, hidden_channels=8, encoder_layers=2, dropout=0.0)
    captured = CapturedTrees(found[0], room_for(found).widened(0.1, 16))
    call = _Call(predictor.net, predictor._loss_and_outputs)
    weights = {f"module.{name}": p.detach().requires_grad_() for name, p in predictor.net.named_parameters()}
    for batch in found[:4]:
        captured.load(batch)
        loss, out = torch.func.functional_call(call, weights, (captured.batch,))
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        predictor.zero_grad()
        wanted, outputs = predictor._loss_and_outputs(batch)
        wanted.backward()
        torch.testing.assert_close(out, outputs, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
        for gradient, parameter in zip(gradients, predictor.net.parameters(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("task", ["again", "mood", "spent"])
def test_fewer_seeds_have_their_own_mean(tmp_path: Path, task: str) -> None:
    """After a whole mini-batch, whose last labels then lie behind those of the smaller one."""
    data = RelationalDataset(write_shop(tmp_path / "shop"), task, cache_dir=tmp_path / "cache")
    found = {}
    for size in (16, 5, 1):
        module = TaskDataModule(data, TreeSampler([6, 4], times="both"), batch_size=size, prefetch=0)
        module.setup()
        found[size] = [batch for batch in module.train_dataloader() if batch.batch_size == size]
    predictor = TaskPredictor(**module.sizes, hidden_channels=8, encoder_layers=1, dropout=0.0)
    captured = CapturedTrees(found[16][0], room_for(found[16]).widened(0.5, 16))
    assert not CapturedTrees(found[5][0], captured.room).holds(found[16][0])
    for batch in (found[16][0], found[5][0], found[16][1], found[1][0], found[5][1]):
        assert captured.holds(batch)
        captured.load(batch)
        results = []
        for one in (batch, captured):
            predictor.zero_grad()
            loss, _ = predictor._loss_and_outputs(one)
            loss.backward()
            results.append((loss.detach(), [p.grad.clone() for p in predictor.net.parameters()]))
        (wanted, gradients), (loss, others) = results
        torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(others, gradients, rtol=1e-3, atol=1e-5)


def test_layout_moves_segments_apart(batches: Any) -> None:
    _, found = batches
    captured = CapturedTrees(found[0], room_for(found).widened(0.2, 16))
    for batch in found:
        captured.load(batch)
        layout = captured.layout
        begins = [segment for of_hop in layout.segments for segment in of_hop]
        nodes = torch.full((layout.row.numel(),), -1)
        own = 0
        for (h, t), segment in zip(
            ((h, t) for h in range(3) for t in range(len(captured.sizes[0]))), begins, strict=True
        ):
            size = batch.sizes[h][t]
            nodes[segment.begin : segment.begin + size] = batch.nodes[own : own + size]
            own += size
        # Entries of each row, as ids of nodes; rows that are too many have none.
        lists = [
            nodes[layout.indices[a:b].long()].tolist() for a, b in zip(layout.indptr, layout.indptr[1:], strict=False)
        ]
        wanted = [
            batch.nodes[block.indices[a:b].long()].tolist()
            for block in batch.blocks[::-1]
            for a, b in zip(block.indptr, block.indptr[1:], strict=False)
        ]
        assert [entries for entries in lists if entries] == [entries for entries in wanted if entries]
        assert len(lists) > len(wanted)


def test_larger_mini_batches_do_not_fit(batches: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = batches
    captured = CapturedTrees(found[0], CapturedTrees.room_of(found[0]))
    assert captured.holds(found[0])
    assert not all(captured.holds(batch) for batch in found)
    assert not captured.holds(found[0].replace(y=None))
    assert not captured.holds(found[0].replace(y=found[0].y.double()))
    assert CapturedTrees.kind_of(found[0].replace(blocks=())) is None
    with pytest.raises(ValueError, match="cannot be captured: it needs labels, hops, the rows"):
        CapturedTrees(found[0].replace(y=None), CapturedTrees.room_of(found[0]))
    monkeypatch.setattr(captured_hetero_batch, "_MOST", found[0].nodes.numel() - 1)
    assert CapturedTrees.kind_of(found[0]) is None
