"""GraphSAGE: equal to the two well-known libraries, and its choices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from marks import needs_gpu
from torch import Tensor, nn

from loader.graph import Graph
from loader.machine.optional import import_dgl
from loader.samplers import FullSampler, HopwiseSampler
from loader.samples import Block, MiniBatch
from models.sage import GraphSAGE, SAGEConv


@pytest.fixture
def batch(random_graph: Any) -> MiniBatch:
    """Two hops from 40 seeds; some nodes have no in-neighbors."""
    graph: Graph = random_graph(num_nodes=300, num_edges=900, seed=1)
    return HopwiseSampler([4, 3], seed=2).sample(graph, torch.arange(0, 200, 5))


def destinations(block: Block) -> Tensor:
    return torch.repeat_interleave(torch.arange(block.num_dst), (block.indptr[1:] - block.indptr[:-1]).long())


@pytest.mark.parametrize("dims", [(6, 9), (40, 2)])  # the second projects first
def test_equals_dgl(batch: MiniBatch, dims: tuple[int, int]) -> None:
    try:
        dgl = import_dgl("this test")
    except ImportError as error:
        pytest.skip(str(error))
    from dgl.nn.pytorch import SAGEConv as DGLSAGEConv

    block = batch.blocks[0]
    theirs, ours = DGLSAGEConv(*dims, "mean"), SAGEConv(*dims)
    with torch.no_grad():
        ours.lin_self.weight.copy_(theirs.fc_self.weight)
        ours.lin_self.bias.copy_(theirs.bias if hasattr(theirs, "bias") else theirs.fc_self.bias)
        ours.lin_neigh.weight.copy_(theirs.fc_neigh.weight)
    their_block = dgl.create_block(
        (block.indices.long(), destinations(block)), num_src_nodes=block.num_src, num_dst_nodes=block.num_dst
    )
    compare(lambda x: ours(x, block), lambda x: theirs(their_block, x), block, dims[0])


@pytest.mark.parametrize("dims", [(6, 9), (40, 2)])
def test_equals_pyg(batch: MiniBatch, dims: tuple[int, int]) -> None:
    from torch_geometric.nn import SAGEConv as PyGSAGEConv

    block = batch.blocks[0]
    theirs, ours = PyGSAGEConv((dims[0], dims[0]), dims[1]), SAGEConv(*dims)
    with torch.no_grad():
        ours.lin_self.weight.copy_(theirs.lin_r.weight)
        ours.lin_self.bias.copy_(theirs.lin_l.bias)
        ours.lin_neigh.weight.copy_(theirs.lin_l.weight)
    edges = torch.stack((block.indices.long(), destinations(block)))
    compare(lambda x: ours(x, block), lambda x: theirs((x, x[: block.num_dst]), edges), block, dims[0])


def compare(ours: Any, theirs: Any, block: Block, dim: int) -> None:
    x = torch.randn(block.num_src, dim)
    results = []
    for layer in (ours, theirs):
        leaf = x.clone().requires_grad_()
        out = layer(leaf)
        out.pow(2).sum().backward()
        results.append((out.detach(), leaf.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_both_orders_of_projection_and_mean_agree(batch: MiniBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    block = batch.blocks[0]
    conv, x = SAGEConv(11, 5), torch.randn(block.num_src, 11)
    results = []
    for first in (True, False):
        monkeypatch.setattr(conv, "projects_first", lambda *_, first=first: first)
        results.append(conv(x, block))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_projects_first_only_if_it_saves_work() -> None:
    assert SAGEConv(256, 40).projects_first(num_src=1000, num_dst=1000, num_edges=10_000)  # a whole graph
    assert SAGEConv(256, 2).projects_first(num_src=1100, num_dst=100, num_edges=1000)
    assert not SAGEConv(256, 200).projects_first(num_src=1100, num_dst=100, num_edges=1000)
    assert not SAGEConv(128, 256).projects_first(num_src=1000, num_dst=1000, num_edges=10_000)


def test_projects_first_if_a_gpu_moves_less() -> None:
    assert SAGEConv(256, 40).projects_first(num_src=1000, num_dst=1000, num_edges=10_000, on_gpu=True)
    assert SAGEConv(256, 40).projects_first(num_src=1100, num_dst=100, num_edges=5000, on_gpu=True)
    assert not SAGEConv(256, 40).projects_first(num_src=1100, num_dst=100, num_edges=1100, on_gpu=True)
    assert not SAGEConv(128, 256).projects_first(num_src=1000, num_dst=1000, num_edges=10_000, on_gpu=True)


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_shapes_and_norms_follow_the_options(random_graph: Any, norm: str, num_layers: int) -> None:
    batch = FullSampler(num_layers).sample(random_graph(), torch.arange(10))
    model = GraphSAGE(7, 16, 3, num_layers, norm=norm)
    out = model(batch.blocks, torch.randn(batch.nodes.numel(), 7))
    assert out.shape == (10, 3)
    assert model.num_layers == num_layers
    assert model.out_dim == 3
    assert sum(isinstance(m, (nn.BatchNorm1d, nn.LayerNorm)) for m in model.modules()) == (
        0 if norm == "none" else num_layers - 1
    )
    out.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_dropout_acts_only_in_training(batch: MiniBatch) -> None:
    torch.manual_seed(0)
    x = torch.randn(batch.nodes.numel(), 4)
    for rates in ({"dropout": 0.5}, {"dropout": 0.0, "input_dropout": 0.5}):
        model = GraphSAGE(4, 32, 2, 2, **rates)
        assert not torch.equal(model(batch.blocks, x), model(batch.blocks, x))
        model.eval()
        assert torch.equal(model(batch.blocks, x), model(batch.blocks, x))
    model = GraphSAGE(4, 32, 2, 2, dropout=0.0)
    assert torch.equal(model(batch.blocks, x), model(batch.blocks, x))


def test_a_batch_of_another_depth_is_refused(batch: MiniBatch) -> None:
    with pytest.raises(ValueError, match="the mini-batch has 2 hops, the model 3 layers"):
        GraphSAGE(4, 8, 2, 3)(batch.blocks, torch.randn(batch.nodes.numel(), 4))


def test_features_of_another_width_are_refused(batch: MiniBatch) -> None:
    with pytest.raises(ValueError, match="x has 4 features, the model's in_dim is 5; they must be equal"):
        GraphSAGE(5, 8, 2, 2)(batch.blocks, torch.randn(batch.nodes.numel(), 4))
    with pytest.raises(TypeError, match="x is None, so the mini-batch has no features; give the loader some"):
        GraphSAGE(5, 8, 2, 2)(batch.blocks, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"blocks is a tensor \[2, 4\]; call model\(batch.blocks, batch.x\)"):
        GraphSAGE(5, 8, 2, 2)(torch.zeros(2, 4), torch.zeros(2, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden_channels": 0}, "hidden_channels is 0; it must be at least 1"),
        ({"num_layers": 0}, "num_layers is 0; it must be at least 1"),
        ({"dropout": 1.0}, r"dropout is 1.0; it must be in \[0, 1\)"),
        ({"input_dropout": -0.1}, "input_dropout is -0.1"),
        ({"norm": "group"}, "norm is 'group'; it must be one of none, batch, layer"),
        ({"norm": None}, "norm is None; it must be one of none, batch, layer"),
        ({"hidden_channels": "wide"}, "hidden_channels is 'wide'; it must be an integer of at least 1"),
        ({"hidden_channels": 10**12}, "hidden_channels is 1000000000000; it must be at most 2147483647"),
        ({"num_layers": 1.5}, "num_layers is 1.5; it must be an integer"),
        ({"num_layers": 10**9}, "num_layers is 1000000000; it must be at most 1024"),
        ({"dropout": "half"}, "dropout is 'half'; it must be a number"),
        ({"dropout": float("nan")}, "dropout is nan"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        GraphSAGE(**{"in_dim": 4, "hidden_channels": 8, "out_dim": 2, **wrong})


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("norm", ["none", "batch", "layer"])
    @pytest.mark.parametrize("widths", [(11, 32, 5), (60, 16, 2)])
    def test_equals_the_cpu(self, batch: MiniBatch, norm: str, widths: tuple[int, int, int]) -> None:
        torch.manual_seed(0)
        on_cpu = GraphSAGE(*widths, 2, dropout=0.0, norm=norm).double()
        on_gpu = GraphSAGE(*widths, 2, dropout=0.0, norm=norm).double().cuda()
        on_gpu.load_state_dict(on_cpu.state_dict())
        x = torch.randn(batch.nodes.numel(), widths[0], dtype=torch.float64)
        outs = on_cpu(batch.blocks, x), on_gpu(batch.to("cuda").blocks, x.cuda())
        torch.testing.assert_close(outs[1].cpu(), outs[0])
        for out in outs:
            out.pow(2).sum().backward()
        for a, b in zip(on_cpu.parameters(), on_gpu.parameters(), strict=True):
            torch.testing.assert_close(b.grad.cpu(), a.grad)

    @pytest.mark.parametrize("first", [True, False])
    def test_dropout_keeps_the_mean(self, batch: MiniBatch, monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
        """Over many draws, a layer of dropped inputs gives what it gives of the inputs."""
        conv, block = SAGEConv(8, 3).cuda(), batch.to("cuda").blocks[0]
        monkeypatch.setattr(conv, "projects_first", lambda *_: first)
        x = torch.randn(block.num_src, 8, device="cuda")
        torch.manual_seed(0)
        with torch.no_grad():
            mean = torch.stack([conv(x, block, relu=True, dropout=0.3) for _ in range(2000)]).mean(0)
            torch.testing.assert_close(mean, conv(x, block, relu=True), rtol=0, atol=0.1)
            torch.manual_seed(1)
            once = conv(x, block, dropout=0.3)
            if not first:
                torch.manual_seed(1)
                assert torch.equal(conv(x, block, dropout=0.3), once)

    @pytest.mark.parametrize("autocast", [False, True])
    def test_a_training_step_waits_for_no_gpu(self, batch: MiniBatch, autocast: bool) -> None:
        model = GraphSAGE(20, 32, 5, 2, norm="batch").cuda()
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        moved, x = batch.to("cuda"), torch.randn(batch.nodes.numel(), 20, device="cuda")
        y = torch.randint(5, (batch.batch_size,), device="cuda")
        torch.cuda.synchronize()
        for _ in range(2):  # the second time nothing is made for the first time
            torch.cuda.set_sync_debug_mode("error")
            try:
                optimizer.zero_grad()
                with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                    loss = nn.functional.cross_entropy(model(moved.blocks, x), y)
                loss.backward()
                optimizer.step()
            finally:
                torch.cuda.set_sync_debug_mode("default")
        assert torch.isfinite(loss)
