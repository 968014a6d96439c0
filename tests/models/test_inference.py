"""Layer-wise inference equals the forward over full neighborhoods, whatever the chunks and the storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from marks import needs_gpu

from loader.graph import Graph
from loader.samplers import FullSampler
from models import inference
from models.inference import layerwise_inference, layerwise_outputs
from models.sage import GraphSAGE


@pytest.mark.parametrize("widths", [(6, 16, 3), (30, 8, 12), (5, 5, 5)])  # projecting last, first, neither
@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("chunk_bytes", [1, 2000, 2**28])
def test_equals_the_full_neighborhood_forward(
    random_graph: Any, widths: tuple[int, int, int], norm: str, num_layers: int, chunk_bytes: int
) -> None:
    graph: Graph = random_graph(num_nodes=60, num_edges=200)
    torch.manual_seed(0)
    model = GraphSAGE(*widths, num_layers, norm=norm)
    x = torch.randn(60, widths[0])
    full = FullSampler(num_layers).sample(graph, torch.arange(60))
    if norm == "batch":
        model(full.blocks, x[full.nodes])  # running statistics that are not the initial ones
    model.eval()
    expected = model(full.blocks, x[full.nodes])
    model.train()
    got = layerwise_inference(model, graph, x, chunk_bytes=chunk_bytes, progress=False)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert model.training
    assert not got.requires_grad


@pytest.mark.parametrize("widths", [(6, 16, 3), (30, 8, 12)])
def test_means_of_half_features_are_not_rounded(random_graph: Any, widths: tuple[int, int, int]) -> None:
    graph: Graph = random_graph(num_nodes=60, num_edges=600)
    model = GraphSAGE(*widths, 2).eval()
    x = (torch.rand(60, widths[0]) * 100).half()
    found, wanted = (layerwise_inference(model, graph, rows, progress=False) for rows in (x, x.float()))
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-5)


def test_reads_features_that_lie_on_disk(random_graph: Any, tmp_path: Path) -> None:
    graph: Graph = random_graph(num_nodes=50, num_edges=150)
    x = torch.randn(50, 9)
    (tmp_path / "x").write_bytes(x.numpy().tobytes())
    mapped = torch.from_file(str(tmp_path / "x"), shared=False, size=450).view(50, 9)
    model = GraphSAGE(9, 4, 2, 2)
    assert torch.equal(
        layerwise_inference(model, graph, mapped, progress=False),
        layerwise_inference(model, graph, x, progress=False),
    )


@pytest.mark.parametrize("num_layers", [2, 3])
def test_embeddings_are_what_the_last_layer_reads(random_graph: Any, num_layers: int) -> None:
    graph: Graph = random_graph(num_nodes=60, num_edges=200)
    model, x = GraphSAGE(6, 16, 3, num_layers), torch.randn(60, 6)
    out, hidden = layerwise_outputs(model, graph, x, embeddings=True, progress=False)
    assert hidden is not None
    torch.testing.assert_close(out, layerwise_inference(model, graph, x, progress=False), rtol=0, atol=0)
    (block,) = FullSampler(1).sample(graph, torch.arange(60)).blocks
    model.eval()
    nodes = FullSampler(1).sample(graph, torch.arange(60)).nodes
    torch.testing.assert_close(model.convs[-1](hidden[nodes], block), out, rtol=1e-4, atol=1e-5)
    assert layerwise_outputs(model, graph, x, progress=False)[1] is None
    with pytest.raises(ValueError, match="has one layer, so it has no hidden rows"):
        layerwise_outputs(GraphSAGE(6, 16, 3, 1), graph, x, embeddings=True)


def test_shows_its_progress(random_graph: Any, capsys: pytest.CaptureFixture[str]) -> None:
    layerwise_inference(GraphSAGE(4, 8, 2, 2), random_graph(), torch.randn(200, 4))
    shown = capsys.readouterr().out
    assert "Inference, layer 1 of 2" in shown
    assert "Inference, layer 2 of 2" in shown
    assert shown.count("100%") == 2


def test_an_error_leaves_the_model_in_training_mode(random_graph: Any) -> None:
    model = GraphSAGE(4, 8, 2, 2)
    graph: Graph = random_graph()
    graph.indices[5] = 10_000
    with pytest.raises(ValueError, match="indices holds node 10000"):
        layerwise_inference(model, graph, torch.randn(200, 4), progress=False)
    assert model.training


def test_wrong_input_is_refused(random_graph: Any) -> None:
    graph, model = random_graph(), GraphSAGE(4, 8, 2, 2)
    with pytest.raises(ValueError, match=r"features have shape \(200, 5\); graph and model need \(200, 4\)"):
        layerwise_inference(model, graph, torch.randn(200, 5))
    with pytest.raises(ValueError, match=r"on meta, the model on cpu; move the \w+ there, or to the CPU"):
        layerwise_inference(model, graph, torch.empty(200, 4, device="meta"))
    with pytest.raises(TypeError, match="features is a list; it must be a torch tensor"):
        layerwise_inference(model, graph, [[0.0] * 4] * 200)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"graph is a list; it must be a loader\.Graph"):
        layerwise_inference(model, [[0, 1]], torch.randn(200, 4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="chunk_bytes is 0"):
        layerwise_inference(model, graph, torch.randn(200, 4), chunk_bytes=0)


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize("widths", [(6, 16, 3), (30, 8, 12), (5, 5, 5)])
    @pytest.mark.parametrize("norm", ["none", "batch"])
    @pytest.mark.parametrize("room", ["for all", "for a table alone", "for nothing"])
    @pytest.mark.parametrize("chunk_bytes", [2000, 2**28])
    def test_equals_the_cpu(
        self,
        random_graph: Any,
        monkeypatch: pytest.MonkeyPatch,
        widths: tuple[int, int, int],
        norm: str,
        room: str,
        chunk_bytes: int,
    ) -> None:
        graph: Graph = random_graph(num_nodes=600, num_edges=9000)
        torch.manual_seed(0)
        model, x = GraphSAGE(*widths, 3, norm=norm), torch.randn(600, widths[0])
        expected = layerwise_inference(model, graph, x, chunk_bytes=chunk_bytes, progress=False)
        asked: list[int] = []

        def room_for(self: Any, num_bytes: int) -> bool:
            asked.append(num_bytes)
            return {"for all": True, "for a table alone": len(asked) % 2 == 1, "for nothing": False}[room]

        monkeypatch.setattr(inference._GraphParts, "room_for", room_for)
        got = layerwise_inference(model.cuda(), graph, x, chunk_bytes=chunk_bytes, progress=False)
        assert got.device.type == "cpu"
        assert asked
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("on_gpu", ["graph", "features", "both"])
    def test_graph_and_features_may_lie_on_the_gpu(self, random_graph: Any, on_gpu: str) -> None:
        graph: Graph = random_graph(num_nodes=600, num_edges=9000)
        model, x = GraphSAGE(6, 16, 3, 2).cuda(), torch.randn(600, 6)
        expected = layerwise_inference(model, graph, x, progress=False)
        there = graph.to("cuda") if on_gpu != "features" else graph
        got = layerwise_inference(model, there, x.cuda() if on_gpu != "graph" else x, progress=False)
        assert got.device.type == "cpu"
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)

    def test_hubs_equal_float64_inference(self) -> None:
        n = 200_000
        v = torch.arange(n)
        graph = Graph.from_edges(torch.cat((v[1:], v[1:] * 0)), torch.cat((v[1:] * 0, v[1:])), n)
        model, x = GraphSAGE(20, 32, 5, 2), torch.randn(n, 20)
        expected = layerwise_inference(model.double(), graph, x.double(), progress=False)
        got = layerwise_inference(model.float().cuda(), graph, x, progress=False)
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)

    def test_an_edge_from_nowhere_is_named(self, random_graph: Any) -> None:
        graph: Graph = random_graph()
        graph.indices[5] = 10_000
        with pytest.raises(ValueError, match="indices holds node 10000; valid ids are 0 to 199"):
            layerwise_inference(GraphSAGE(4, 8, 2, 2).cuda(), graph, torch.randn(200, 4), progress=False)
