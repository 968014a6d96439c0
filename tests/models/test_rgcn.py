"""R-GCN: the plain formula, mini-batches that expand all or only new nodes, and arrays with room for larger ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from hetero_datasets import make_hetero
from marks import HAS_GPU
from torch import Tensor

from loader.datamodules.nodes import GraphDataModule
from loader.loaders.nodes import NodeLoader
from loader.ops.captured_hetero_batch import CapturedHeteroBatch, HopRoom
from loader.samplers import FusedSampler, fused
from loader.samples import LazyRows
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.lazy_rows import LazyFeatures
from loader.stores import DeviceFeatures
from models import rgcn
from models.rgcn import RGCN
from models.training.cuda_graphs import GraphedLoss, _Call
from models.training.rgcn_classifier import RGCNClassifier


def module_of(fanouts: list[int], expand: str = "new", batch_size: int = 6, **options: Any) -> GraphDataModule:
    made = GraphDataModule(make_hetero(), FusedSampler(fanouts, expand=expand), batch_size=batch_size, **options)
    made.setup()
    return made


def net_of(module: GraphDataModule, **options: Any) -> RGCN:
    torch.manual_seed(0)
    sizes = module.sizes
    shape = {"hidden_channels": 8, "out_dim": 3, "dropout": 0.0, **options}
    return RGCN(sizes["num_features"], sizes["edge_types"], sizes["target"], **shape).double()


def batches_of(module: GraphDataModule, epochs: int = 2) -> Iterator[HeteroMiniBatch]:
    for _ in range(epochs):
        yield from module.train_dataloader()


def by_formula(net: RGCN, batch: HeteroMiniBatch) -> Tensor:
    """Sums over relations of means over edges, layer by layer on all nodes."""
    assert batch.x is not None
    x = {}
    for name, layer in zip(net.names, net.inputs, strict=True):
        count = batch.num_nodes_of(name)
        if name not in net.read:
            x[name] = torch.zeros(count, net.hidden_channels, dtype=torch.float64)
        elif net.in_dims[name]:
            x[name] = batch.x[name].double() @ layer.weight.t() + layer.bias
        else:
            x[name] = layer.bias.expand(count, -1)
    # What each layer may use: with the expansion of new nodes edges of all hops up to it, else those of its own hop.
    for i in range(net.num_layers):
        weights = net._weights(i)
        out = {name: x[name] @ net.own[i][t].t() + net.bias[i][t] for t, name in enumerate(net.names)}
        for r, key in enumerate(net.edge_types):
            source, _, sink = key
            if batch.expands_all:
                edges = batch.blocks[i].edge_index_dict[key]
            else:
                hops = batch.blocks[i:]
                edges = torch.cat([block.edge_index_dict[key] for block in hops[::-1]], 1)
            sums = torch.zeros_like(x[sink]).index_add(0, edges[1], x[source][edges[0]])
            length = torch.bincount(edges[1], minlength=len(sums)).clamp(min=1)
            out[sink] = out[sink] + (sums / length[:, None]) @ weights[r]
        if i < net.num_layers - 1:
            for t, name in enumerate(net.names):
                if len(net.scale):
                    out[name] = torch.nn.functional.layer_norm(
                        out[name], out[name].shape[1:], net.scale[i][t], net.shift[i][t]
                    )
                out[name] = out[name].relu()
        x = out
    return x[net.target][: batch.batch_size]


@pytest.mark.parametrize("expand", ["new", "all"])
@pytest.mark.parametrize(
    "options", [{}, {"bases": 2}, {"norm": "layer"}, {"num_layers": 1}, {"num_layers": 3, "norm": "layer"}]
)
def test_it_is_the_plain_formula(expand: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if "bases" in options:  # features that are narrowed first
        monkeypatch.setattr(rgcn, "_WIDE", 0)
    module = module_of([3] * options.get("num_layers", 2), expand)
    net = net_of(module, **options)
    if len(net.scale):
        torch.nn.init.normal_(net.scale[0])
    for batch in batches_of(module):
        wanted = by_formula(net, batch)
        torch.testing.assert_close(net(batch), wanted, rtol=1e-10, atol=1e-12)
        gradients = [torch.autograd.grad(out.square().sum(), list(net.parameters())) for out in (net(batch), wanted)]
        for mine, other in zip(*gradients, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


def room_for(batches: list[HeteroMiniBatch]) -> HopRoom:
    room = CapturedHeteroBatch.room_of(batches[0])
    for batch in batches[1:]:
        room = room.union(CapturedHeteroBatch.room_of(batch))
    return room


@pytest.mark.parametrize("step", [1, 32])
@pytest.mark.parametrize("options", [{}, {"bases": 2, "norm": "layer"}])
def test_arrays_with_room_give_the_same(step: int, options: dict[str, Any]) -> None:
    module = module_of([3, 3])
    found = list(batches_of(module, 4))
    sizes = module.sizes
    torch.manual_seed(1)
    model = RGCNClassifier(
        sizes["num_features"], 2, sizes["edge_types"], sizes["target"], hidden_channels=8, dropout=0.0, **options
    ).double()
    captured = CapturedHeteroBatch(found[0], room_for(found).widened(0.1 if step > 1 else 0.0, step), -100)
    call = _Call(model.net, model._loss)
    weights = {f"module.{name}": p.detach().requires_grad_() for name, p in model.net.named_parameters()}
    assert len({batch.sizes for batch in found}) > 5
    for batch in found:
        assert captured.holds(batch)
        captured.load(batch)
        loss, hits = torch.func.functional_call(call, weights, (captured.batch,))
        gradients = torch.autograd.grad(loss, list(weights.values()))
        wanted, of_wanted = model._loss(batch)
        others = torch.autograd.grad(wanted, list(model.net.parameters()))
        torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=1e-12)
        assert torch.equal(hits, of_wanted)
        for gradient, other in zip(gradients, others, strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)


def left_in_tables(batch: HeteroMiniBatch, tables: dict[str, Tensor]) -> HeteroMiniBatch:
    """The mini-batch as a store gives it that leaves features in its table."""
    rows = {f"node/{name}": LazyRows(table, batch.n_id[name]) for name, table in tables.items()}
    return batch.replace(x=None).with_rows(rows)


@pytest.mark.parametrize("options", [{}, {"input_dropout": 0.3}, {"wide": 0}])
def test_features_left_in_their_table_are_the_same(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    gathers = bool(options)
    monkeypatch.setattr(rgcn, "_WIDE", options.get("wide", 8))
    options = {name: value for name, value in options.items() if name != "wide"}
    module = module_of([3, 3])
    tables = {name: x.double() for name, x in make_hetero().features.items()}
    found = [batch.replace(x={n: x.double() for n, x in (batch.x or {}).items()}) for batch in batches_of(module)]
    lazy = [left_in_tables(batch, tables) for batch in found]
    sizes = module.sizes
    model = RGCNClassifier(**sizes, hidden_channels=8, dropout=0.0, **options).double()
    captured = CapturedHeteroBatch(lazy[0], room_for(lazy).widened(0.1, 16), -100)
    for batch, other in zip(found, lazy, strict=True):
        assert isinstance(other.x, LazyFeatures)
        captured.load(other)
        results = []
        for one in (batch, other, captured):
            torch.manual_seed(0)
            if options and one is captured:  # which draws for more rows
                continue
            loss, _ = model._loss(one)
            results.append((loss, *torch.autograd.grad(loss, list(model.net.parameters()))))
        for result in results[1:]:
            torch.testing.assert_close(result, results[0], rtol=1e-9, atol=1e-12)
        if not gathers:
            assert not other.x.made  # nothing was gathered
        assert other.digest() == batch.digest()
        assert other.map(torch.clone).digest() == batch.digest()
        assert torch.equal(other.to_pyg()["author"].x, batch.to_pyg()["author"].x)
        assert other.with_rows({"node/author": batch.x["author"]}).x.made["author"] is batch.x["author"]
    with pytest.raises(KeyError):
        lazy[0].x["nobody"]
    assert CapturedHeteroBatch.kind_of(lazy[0]) != CapturedHeteroBatch.kind_of(
        left_in_tables(found[0], {n: x.clone() for n, x in tables.items()})
    )


def test_fewer_seeds_have_their_own_mean() -> None:
    found = {size: list(module_of([3, 3], batch_size=size).train_dataloader()) for size in (6, 4, 1)}
    sizes = module_of([3, 3]).sizes
    model = RGCNClassifier(
        sizes["num_features"], 2, sizes["edge_types"], "author", hidden_channels=8, dropout=0.0
    ).double()
    captured = CapturedHeteroBatch(found[6][0], room_for(found[6] + found[4] + found[1]).widened(0.2, 8), -100)
    assert not CapturedHeteroBatch(found[4][0], captured.room).holds(found[6][0])
    for batch in (found[6][0], found[4][0], found[1][0], found[6][1]):
        captured.load(batch)
        for mine, other in zip(model._loss(captured.batch), model._loss(batch), strict=True):
            torch.testing.assert_close(mine, other)


def test_mini_batches_that_no_graph_has() -> None:
    every = next(batches_of(module_of([3, 3], "all")))
    new = next(batches_of(module_of([3, 3])))
    assert CapturedHeteroBatch.kind_of(every) is None
    assert CapturedHeteroBatch.kind_of(new.replace(y=None)) is None
    assert CapturedHeteroBatch.kind_of(new) is not None
    sizes = module_of([3, 3]).sizes
    model = RGCNClassifier(**sizes, cuda_graph=True)
    with pytest.raises(RuntimeError, match="hops expand all nodes so far"):
        model.training_step(every, 0)
    with pytest.raises(RuntimeError, match="cuda_graph is true, but the mini-batch is not on a GPU"):
        model.training_step(new, 0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bases": 0}, "bases is 0"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be in"),
        ({"input_dropout": -1}, "input_dropout is -1; it must be in"),
        ({"norm": "batch"}, "norm is 'batch'; it must be none or layer, which does not mix"),
        ({"target": "nobody"}, "no relation leads to nodes of type nobody"),
        ({"num_layers": 0}, "num_layers is 0"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], said: str) -> None:
    sizes = module_of([3, 3]).sizes
    options = {"target": "author", "hidden_channels": 8, "out_dim": 2, **given}
    with pytest.raises(ValueError, match=said):
        RGCN(sizes["num_features"], sizes["edge_types"], options.pop("target"), **options)


def test_other_mini_batches_are_refused() -> None:
    module = module_of([3, 3])
    batch = next(batches_of(module))
    with pytest.raises(ValueError, match="the mini-batch has 2 hops, the model 3 layers"):
        net_of(module, num_layers=3)(batch)
    with pytest.raises(ValueError, match="the mini-batch has 0 features of author, the model reads 5"):
        net_of(module)(batch.replace(x=None))
    sizes = module.sizes
    other = RGCN(sizes["num_features"], sizes["edge_types"][::-1], "author", 8, 2)
    with pytest.raises(ValueError, match="make the model of the same graph"):
        other(batch)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("options", [{}, {"bases": 2, "norm": "layer"}])
def test_graphs_train_as_plain_steps_do(options: dict[str, Any]) -> None:
    """With losses that are equal to rounding over 200 steps, most of them replayed, and without a wait of the host."""
    losses: dict[bool, list[float]] = {}
    data, sizes = make_hetero(), module_of([3, 3]).sizes
    for graph in (True, False):
        loader = NodeLoader(
            data.graph.to("cuda"), {name: DeviceFeatures(x, "cuda", lazy=True) for name, x in data.features.items()},
            data.labels, (data.target, data.splits["train"]), fused([3, 3], expand="new", device="cuda"), 6,
            shuffle=True, prefetch=0, device="cuda",
        )  # fmt: skip
        torch.manual_seed(0)
        model = RGCNClassifier(**sizes, hidden_channels=16, dropout=0.0, matmul_precision="highest", **options).cuda()
        graphed = GraphedLoss(model._loss, model.net, -100, stand_in=CapturedHeteroBatch)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
        losses[graph] = []
        for batch in chain.from_iterable(loader for _ in range(40)):
            optimizer.zero_grad()
            loss, _ = (graphed if graph else model._loss)(batch)
            loss.backward()
            optimizer.step()
            losses[graph].append(float(loss.detach()))
        if graph:
            assert graphed.replayed > 0.7 * len(losses[True])
            assert graphed.captures < 6
        loader.close()
    assert losses[True] == pytest.approx(losses[False], rel=2e-3, abs=2e-4)
    assert losses[True][-1] < 0.5 * losses[True][0]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("hidden", [8, 1])  # of width 1 features are narrowed before means are taken
@pytest.mark.parametrize("lazy", [False, True])
def test_a_gpu_gives_what_the_cpu_gives(hidden: int, lazy: bool) -> None:
    net = net_of(module_of([3, 3]), hidden_channels=hidden)
    there = copy.deepcopy(net).cuda()
    for batch in batches_of(module_of([3, 3]), 1):
        moved = batch.to("cuda")
        if lazy:
            ids = {name: torch.randperm(len(x)) for name, x in batch.x.items()}
            tables = {name: x[ids[name]].double().cuda() for name, x in batch.x.items()}
            back = {name: of.argsort().to(moved.nodes) for name, of in ids.items()}
            moved = moved.replace(x=LazyFeatures(lazy={n: LazyRows(tables[n], back[n]) for n in tables}))
        out, wanted = there(moved), net(batch)
        torch.testing.assert_close(out.cpu(), wanted)
        mix = torch.randn_like(wanted)
        gradients = torch.autograd.grad((out * mix.cuda()).sum(), list(there.parameters()), allow_unused=True)
        others = torch.autograd.grad((wanted * mix).sum(), list(net.parameters()), allow_unused=True)
        for mine, theirs in zip(gradients, others, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                torch.testing.assert_close(mine.cpu(), theirs)
