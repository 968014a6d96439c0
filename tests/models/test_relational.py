from __future__ import annotations

from typing import Any

import pytest
import torch
from marks import needs_frame
from shop import DAY, write_shop
from torch import Tensor

from loader.datamodules.tasks import TaskDataModule
from loader.datasets import RelationalDataset
from loader.ops.times_since import encode_since
from loader.ops.tree_layout import TreeLayout
from loader.samplers import TreeSampler
from models import relational
from models.relational import RelationalSAGE
from models.row_encoder import RowEncoder

pytestmark = needs_frame


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> TaskDataModule:
    folder = write_shop(tmp_path_factory.mktemp("relational") / "shop")
    data = RelationalDataset(folder, "again", cache_dir=folder.parent / "cache")
    made = TaskDataModule(data, TreeSampler([6, 4], times="both"), batch_size=16, prefetch=0)
    made.setup()
    return made


def net(module: TaskDataModule, **options: Any) -> RelationalSAGE:
    torch.manual_seed(0)
    sizes = module.sizes
    options = {"hidden_channels": 8, "dropout": 0.0, **options}
    return RelationalSAGE(sizes["columns"], sizes["edge_types"], sizes["target"], 3, **options).double()


def test_rows_encoded_once_give_equal_gradients(module: TaskDataModule) -> None:
    once = net(module)
    plain = net(module, unique_rows=False)
    copies = 0
    for batch in module.train_dataloader():
        copies += sum(len(ids) - len(batch.unique[name]) for name, ids in batch.n_id.items())
        results = []
        for one in (once, plain):
            one.zero_grad()
            out = one(batch)
            (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
            results.append((out, [p.grad for p in one.parameters() if p.grad is not None]))
        (out, gradients), (wanted, others) = results
        assert torch.allclose(out, wanted, rtol=1e-10, atol=1e-13)
        assert len(gradients) == len(others)
        for gradient, other in zip(gradients, others, strict=True):
            assert torch.allclose(gradient, other, rtol=1e-9, atol=1e-12)
    assert copies > 100


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_it_is_the_plain_formula(module: TaskDataModule, hops: int) -> None:
    """Sums over the edges, layer by layer on all nodes, without trimming."""
    deep = TaskDataModule(module.data, TreeSampler([4] * hops, times="both"), batch_size=16, prefetch=0)
    deep.setup()
    model = net(module, num_layers=hops).eval()
    assert ("reviews" in model.encoders) == (hops > 1)
    batch = next(iter(deep.val_dataloader()))
    x = model.rows(batch)
    sampled = batch.to_pyg()
    for convs, norms in zip(model.convs, model.norms, strict=True):
        out: dict[str, Tensor] = {}
        for name, layer in convs.items():
            key = tuple(name.split("__"))
            source, sink = sampled[key].edge_index
            sums = torch.zeros_like(x[key[2]]).index_add_(0, sink, x[key[0]][source])
            found = layer.lin_l(sums) + layer.lin_r(x[key[2]])
            out[key[2]] = out.get(key[2], 0) + found
        x = {name: norms[name](rows).relu() for name, rows in out.items()}
    wanted = model.head(x["customers"][: batch.batch_size])
    assert torch.allclose(model(batch), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm", ["layer", "none"])
def test_all_tables_together_are_encoded_as_each(module: TaskDataModule, norm: str) -> None:
    """By pytorch-frame's own network, table after table."""
    model = net(module, encoder_layers=3, encoder_norm=norm).eval()
    batch = next(iter(module.train_dataloader()))
    found = model._encoded(TreeLayout.of(batch), batch.segments)
    rows = [(model.encoders[name], batch.unique_x[name].double()) for name in batch.node_types]
    wanted = torch.cat([encoder(x, len(x)) for encoder, x in rows])
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    known = list(model.encoders.parameters())
    mix = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mine, others = (torch.autograd.grad((of * mix).sum(), known, materialize_grads=True) for of in (found, wanted))
    torch.testing.assert_close(mine, others, rtol=1e-9, atol=1e-12)


def test_times_are_encoded_as_pytorch_frame_does(module: TaskDataModule) -> None:
    encoding = pytest.importorskip("torch_frame.nn.encoding")
    layers = [layer for layer in net(module).modules() if type(layer).__name__ == "TimestampEncoder"]
    assert layers
    for layer in layers:
        years, parts = torch.arange(0.0, 90).double(), torch.linspace(0, 1, 50, dtype=torch.float64)
        assert torch.equal(layer.positional_encoding(years), encoding.PositionalEncoding(8).double()(years))
        torch.testing.assert_close(layer.cyclic_encoding(parts), encoding.CyclicEncoding(8)(parts))


def test_the_time_since_a_row_is_exact(module: TaskDataModule, monkeypatch: pytest.MonkeyPatch) -> None:
    model = net(module)
    seen: list[Tensor] = []

    def encoded(*given: Any) -> Tensor:
        low = torch.tensor([1e-6], dtype=torch.float64)
        seen.append(encode_since(*given[:4], low)[:, 0].asin() / low)
        return encode_since(*given)

    monkeypatch.setattr(relational, "encode_since", encoded)
    batch = next(iter(module.train_dataloader()))
    model(batch)
    times = module.data.graph.lists.node_times
    assert len(seen) == 1  # all rows at once
    for name in model.timed:
        days = batch.segments.of_type(seen[0], batch.segments.type_of(name))
        own = times[batch.n_id[name].long() + module.data.graph.node_types[name].start]
        wanted = (batch.seed_times[batch.tree_of(name).long()] - own).double() / DAY
        assert torch.allclose(days, wanted, rtol=0, atol=1e-9)
        assert (days >= 0).all()


@pytest.mark.parametrize("name", ["items", "type", "forward", "parameters", "a__b"])
def test_tables_may_be_called_as_methods_are(module: TaskDataModule, name: str) -> None:
    sizes = {**module.sizes, "columns": {**module.sizes["columns"]}}
    sizes["columns"][name] = sizes["columns"].pop("orders")
    sizes["edge_types"] = [tuple(name if end == "orders" else end for end in key) for key in sizes["edge_types"]]
    model = RelationalSAGE(sizes["columns"], sizes["edge_types"], "customers", 3, hidden_channels=4)
    assert name in model.encoders
    assert name in model.since


def test_every_weight_has_a_gradient(module: TaskDataModule) -> None:
    """Processes that train together exchange all of them, also if a mini-batch lacks a table."""
    model = net(module, num_layers=2)
    single = TaskDataModule(module.data, TreeSampler([6, 4], times="both"), batch_size=1, prefetch=0)
    single.setup()
    batch = next(one for one in single.train_dataloader() if not len(one.n_id["reviews"]))
    model(batch).sum().backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without
    assert "reviews" in model.encoders


def test_outputs_under_autocast_have_all_digits(module: TaskDataModule) -> None:
    model = net(module).float()
    model.head.bias.data.fill_(1000.0)  # as of labels far from 0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        out = torch.cat([model(batch.replace(x=batch.x)) for batch in module.train_dataloader()])
    assert out.dtype == torch.float32
    assert len(out[:, 0].unique()) > len(out[:, 0].bfloat16().unique()) + 5


def test_only_depth_and_times_that_fit_are_taken(module: TaskDataModule) -> None:
    batch = next(iter(module.train_dataloader()))
    with pytest.raises(ValueError, match=r"the mini-batch has 2 hops, the model 3 layers; give the sampler as many"):
        net(module, num_layers=3)(batch)
    with pytest.raises(ValueError, match="no times of its seeds; sample with times='both'"):
        net(module)(batch.replace(seed_times=None))
    with pytest.raises(ValueError, match=r"dtype torch.bfloat16, in which codes .* give trainer.precision=bf16-mixed"):
        net(module).bfloat16()(batch)
    with pytest.raises(ValueError, match=r"the mini-batch has no rows of \w+; a loader gathers them"):
        net(module)(batch.replace(x=None))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_channels": 7}, "hidden_channels is 7; times are encoded by pairs, so it must be even"),
        ({"dropout": 1}, r"dropout is 1; it must be in \[0, 1\)"),
        ({"encoder_norm": "batch"}, "encoder_norm is 'batch'; it must be layer or none: copies of a row would count"),
        ({"encoder_layers": 0}, "encoder_layers is 0"),
    ],
)
def test_options_out_of_range_are_refused(module: TaskDataModule, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        net(module, **options)


def test_a_table_without_columns_has_one_learned_row() -> None:
    encoder = RowEncoder([], 4, 1, 0.0, "layer")
    rows = encoder(None, 3)
    assert rows.shape == (3, 4)
    assert rows.requires_grad
    assert (rows == rows[0]).all()
