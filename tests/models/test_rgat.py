"""R-GAT: torch_geometric's layers, all expansions of mini-batches, and arrays with room for larger ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from hetero_datasets import make_hetero
from marks import HAS_GPU
from torch import Tensor
from torch.nn import functional as F

from loader.datamodules.nodes import GraphDataModule
from loader.datasets import HeteroDataset
from loader.loaders.nodes import NodeLoader
from loader.ops.captured_hetero_batch import CapturedHeteroBatch, HopRoom
from loader.samplers import FusedSampler, fused
from loader.samples import LazyRows
from loader.samples.hetero import HeteroMiniBatch
from loader.stores import DeviceFeatures
from models.rgat import RGAT
from models.training.cuda_graphs import GraphedLoss, _Call
from models.training.rgat_classifier import RGATClassifier


def module_of(fanouts: list[int], expand: str = "new", data: HeteroDataset | None = None) -> GraphDataModule:
    made = GraphDataModule(data or make_hetero(), FusedSampler(fanouts, expand=expand), batch_size=6)
    made.setup()
    return made


def with_whole_vectors() -> HeteroDataset:
    """With features that a GPU can read where they lie: of 8 columns."""
    data = make_hetero()
    return replace(data, features={name: F.pad(x, (0, 8 - x.shape[1])) for name, x in data.features.items()})


def net_of(module: GraphDataModule, **options: Any) -> RGAT:
    torch.manual_seed(0)
    sizes = module.sizes
    shape = {"hidden_channels": 8, "out_dim": 3, "heads": 2, "dropout": 0.0, **options}
    net = RGAT(sizes["num_features"], sizes["edge_types"], sizes["target"], **shape).double()
    for bias in net.bias:
        torch.nn.init.normal_(bias)
    return net


def batches_of(module: GraphDataModule, epochs: int = 2) -> Iterator[HeteroMiniBatch]:
    for _ in range(epochs):
        yield from module.train_dataloader()


def conv_of(net: RGAT, layer: int, relation: int) -> Any:
    """torch_geometric's layer of a relation, with our weights: `att_dst` picks a column of its second linear layer."""
    conv = pytest.importorskip("torch_geometric.nn").GATConv
    sink = net._ends[relation][1]
    heads, hidden = net.heads, net.hidden_channels
    weight = net.weights[layer - 1][relation] if layer else net.first[relation]
    own = net.own[layer - 1][sink].t() if layer else net.first_own[sink]
    slot = [r for r, _ in net._into[sink]].index(relation)
    queries = own[:, hidden + slot * heads : hidden + (slot + 1) * heads]
    made = conv((len(weight), len(own)), hidden // heads, heads, add_self_loops=False, bias=False).double()
    columns = [torch.cat([queries[:, k : k + 1], torch.zeros(len(own), hidden // heads - 1)], 1) for k in range(heads)]
    del made.lin_src.weight, made.lin_dst.weight, made.att_src, made.att_dst
    made.lin_src.weight, made.att_src = weight.t(), net.source[layer][relation].unsqueeze(0)
    made.lin_dst.weight = torch.cat(columns, 1).t()
    made.att_dst = torch.zeros(1, heads, hidden // heads, dtype=torch.float64)
    made.att_dst[:, :, 0] = 1
    return made


def by_pyg(net: RGAT, batch: HeteroMiniBatch) -> Tensor:
    """Relation by relation, layer by layer on all nodes."""
    x = {
        name: batch.x[name].double() if width else torch.ones(batch.num_nodes_of(name), 1, dtype=torch.float64)
        for name, width in net.in_dims.items()
    }
    hidden = net.hidden_channels
    for i in range(net.num_layers):
        out = {}
        for t, name in enumerate(net.names):
            own = net.own[i - 1][t].t() if i else net.first_own[t]
            out[name] = x[name] @ own[:, :hidden] + net.bias[i][t]
        for r, key in enumerate(net.edge_types):
            if batch.expands_all:
                edges = batch.blocks[i].edge_index_dict[key]
            else:  # of all hops up to its own
                edges = torch.cat([block.edge_index_dict[key] for block in batch.blocks[i:][::-1]], 1)
            source, _, sink = key
            out[sink] = out[sink] + conv_of(net, i, r)(
                (x[source], x[sink]), edges.long(), size=(len(x[source]), len(x[sink]))
            )
        if i < net.num_layers - 1:
            for t, name in enumerate(net.names):
                if len(net.scale):
                    out[name] = F.layer_norm(out[name], (hidden,), net.scale[i][t], net.shift[i][t])
                out[name] = F.leaky_relu(out[name])
        x = out
    return net.last(x[net.target][: batch.batch_size])


@pytest.mark.parametrize("expand", ["new", "all"])
@pytest.mark.parametrize(
    "options", [{}, {"heads": 1}, {"norm": "layer", "heads": 8}, {"num_layers": 1}, {"num_layers": 3}]
)
def test_it_is_torch_geometric_by_relation(expand: str, options: dict[str, Any]) -> None:
    module = module_of([3] * options.get("num_layers", 2), expand)
    net = net_of(module, **options)
    if len(net.scale):
        torch.nn.init.normal_(net.scale[0])
    known = [p for p in net.parameters() if p.requires_grad]
    for batch in batches_of(module):
        wanted = by_pyg(net, batch)
        torch.testing.assert_close(net(batch), wanted, rtol=1e-10, atol=1e-12)
        gradients = [
            torch.autograd.grad(out.square().sum(), known, allow_unused=True, materialize_grads=True)
            for out in (net(batch), wanted)
        ]
        for mine, other in zip(*gradients, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_every_parameter_that_learns_gets_a_gradient(num_layers: int) -> None:
    module = module_of([3] * num_layers)
    net = net_of(module, num_layers=num_layers)
    net(next(batches_of(module))).sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in net.parameters())


def room_for(batches: list[HeteroMiniBatch]) -> HopRoom:
    room = CapturedHeteroBatch.room_of(batches[0])
    for batch in batches[1:]:
        room = room.union(CapturedHeteroBatch.room_of(batch))
    return room


def model_of(module: GraphDataModule, **options: Any) -> RGATClassifier:
    torch.manual_seed(1)
    shape = {"hidden_channels": 8, "heads": 2, "dropout": 0.0, **options}
    return RGATClassifier(**module.sizes, **shape).double()


@pytest.mark.parametrize("step", [1, 32])
@pytest.mark.parametrize("options", [{}, {"norm": "layer", "num_layers": 3}])
def test_arrays_with_room_give_the_same(step: int, options: dict[str, Any]) -> None:
    module = module_of([3] * options.get("num_layers", 2))
    found = list(batches_of(module, 4))
    model = model_of(module, **options)
    captured = CapturedHeteroBatch(found[0], room_for(found).widened(0.1 if step > 1 else 0.0, step), -100)
    call = _Call(model.net, model._loss)
    weights = {f"module.{n}": p.detach().requires_grad_(p.requires_grad) for n, p in model.net.named_parameters()}
    known = [weight for weight in weights.values() if weight.requires_grad]
    assert len({batch.sizes for batch in found}) > 5
    for batch in found:
        captured.load(batch)
        loss, hits = torch.func.functional_call(call, weights, (captured.batch,))
        wanted, of_wanted = model._loss(batch)
        others = torch.autograd.grad(wanted, [p for p in model.net.parameters() if p.requires_grad])
        torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=1e-12)
        assert torch.equal(hits, of_wanted)
        for gradient, other in zip(torch.autograd.grad(loss, known), others, strict=True):
            torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"input_dropout": 0.3}])
def test_features_left_in_their_table_are_the_same(options: dict[str, Any]) -> None:
    module = module_of([3, 3])
    tables = {name: x.double() for name, x in make_hetero().features.items()}
    model = model_of(module, **options)
    known = [p for p in model.net.parameters() if p.requires_grad]
    for batch in batches_of(module):
        gathered = batch.replace(x={name: x.double() for name, x in batch.x.items()})
        rows = {f"node/{name}": LazyRows(table, batch.n_id[name]) for name, table in tables.items()}
        left = batch.replace(x=None).with_rows(rows)
        results = []
        for one in (gathered, left):
            torch.manual_seed(0)
            loss, _ = model._loss(one)
            results.append((loss, *torch.autograd.grad(loss, known)))
        torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-12)
        assert bool(left.x.made) == bool(options)  # whether something was gathered


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_near_the_exact_loss(dtype: torch.dtype) -> None:
    module = module_of([3, 3])
    model = model_of(module).float()
    for batch in batches_of(module, 1):
        wanted, _ = model._loss(batch)
        with torch.autocast("cpu", dtype):
            loss, _ = model._loss(batch)
        assert abs(float(loss.detach()) - float(wanted.detach())) < 0.05
    model = model.bfloat16()
    loss, _ = model._loss(batch)
    loss.backward()
    assert abs(float(loss.detach()) - float(wanted.detach())) < 0.1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"heads": 0}, "heads is 0"),
        ({"heads": 3}, "hidden_channels is 8, heads 3; the heads share the width"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be in"),
        ({"norm": "batch"}, "norm is 'batch'; it must be none or layer, which does not mix"),
        ({"target": "nobody"}, "no relation leads to nodes of type nobody"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], said: str) -> None:
    sizes = module_of([3, 3]).sizes
    options = {"target": "author", "hidden_channels": 8, "out_dim": 2, **given}
    with pytest.raises(ValueError, match=said):
        RGAT(sizes["num_features"], sizes["edge_types"], options.pop("target"), **options)


def test_other_mini_batches_are_refused() -> None:
    module = module_of([3, 3])
    batch = next(batches_of(module))
    with pytest.raises(ValueError, match="the mini-batch has 2 hops, the model 3 layers"):
        net_of(module, num_layers=3)(batch)
    with pytest.raises(ValueError, match="the mini-batch has 0 features of author, the model reads 5"):
        net_of(module)(batch.replace(x=None))


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("options", [{}, {"num_layers": 3, "norm": "layer", "heads": 8}])
def test_graphs_train_as_plain_steps_do(options: dict[str, Any]) -> None:
    """With losses that are equal to rounding over 200 steps, most of them replayed."""
    losses: dict[bool, list[float]] = {}
    fanouts, data = [3] * options.get("num_layers", 2), with_whole_vectors()
    sizes = module_of(fanouts, data=data).sizes
    for graph in (True, False):
        loader = NodeLoader(
            data.graph.to("cuda"), {name: DeviceFeatures(x, "cuda", lazy=True) for name, x in data.features.items()},
            data.labels, (data.target, data.splits["train"]), fused(fanouts, expand="new", device="cuda"), 6,
            shuffle=True, prefetch=0, device="cuda",
        )  # fmt: skip
        torch.manual_seed(0)
        model = RGATClassifier(**sizes, hidden_channels=16, dropout=0.0, matmul_precision="highest", **options).cuda()
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
        loader.close()
    assert losses[True] == pytest.approx(losses[False], rel=2e-3, abs=2e-4)
    assert losses[True][-1] < 0.5 * losses[True][0]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("whole", [False, True])  # features of whole vectors are read where they lie
@pytest.mark.parametrize("options", [{}, {"num_layers": 3, "hidden_channels": 24, "heads": 6}])
def test_a_gpu_gives_what_the_cpu_gives(options: dict[str, Any], whole: bool) -> None:
    data = with_whole_vectors() if whole else make_hetero()
    module = module_of([3] * options.get("num_layers", 2), data=data)
    model = model_of(module, **options).float()
    there = model_of(module, **options).float().cuda()
    known = [[p for p in one.net.parameters() if p.requires_grad] for one in (there, model)]
    torch.set_float32_matmul_precision("highest")
    for batch in batches_of(module, 1):
        moved = batch.to("cuda")
        rows = {f"node/{name}": LazyRows(x.cuda(), moved.n_id[name]) for name, x in data.features.items()}
        left = moved.replace(x=None).with_rows(rows)
        wanted = model._loss(batch)[0]
        others = torch.autograd.grad(wanted, known[1])
        for one in (moved, left):
            loss = there._loss(one)[0]
            torch.testing.assert_close(loss.cpu(), wanted, rtol=1e-4, atol=1e-5)
            for mine, other in zip(torch.autograd.grad(loss, known[0]), others, strict=True):
                torch.testing.assert_close(mine.cpu(), other, rtol=1e-3, atol=1e-4)
        assert bool(left.x.made) == (not whole)  # whether something was gathered


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_gpu_under_autocast_is_near_exact(dtype: torch.dtype) -> None:
    module = module_of([3, 3])
    model, there = model_of(module).float(), model_of(module).float().cuda()
    known = [[p for p in one.net.parameters() if p.requires_grad] for one in (there, model)]
    for batch in batches_of(module, 1):
        wanted = model._loss(batch)[0]
        with torch.autocast("cuda", dtype):
            loss = there._loss(batch.to("cuda"))[0]
        assert abs(float(loss.detach()) - float(wanted.detach())) < 0.05
        of_both = [torch.autograd.grad(one, p) for one, p in zip((loss, wanted), known, strict=True)]
        mine, exact = (torch.cat([of.cpu().flatten() for of in gradients]) for gradients in of_both)
        assert float((mine - exact).norm()) < 0.1 * float(exact.norm())  # single ones of a CPU, too, deviate by 0.16


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_equal_steps_have_equal_bits_on_gpus() -> None:
    module = module_of([3, 3, 3])
    model = model_of(module, num_layers=3).float().cuda()
    known = [p for p in model.net.parameters() if p.requires_grad]
    batch = next(batches_of(module)).to("cuda")
    first, second = (torch.autograd.grad(model._loss(batch)[0], known) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
