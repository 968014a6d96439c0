from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from marks import needs_gpu
from torch import Tensor

from loader.ops.side_streams import Branches, beside, keep


def test_without_branches_work_is_done_at_once() -> None:
    done: list[int] = []
    first = beside("a", lambda: done.append(1) or 7)
    done.append(2)
    assert done == [1, 2]
    assert first() == first.made == 7


def test_memory_of_all_tensors_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Held:
        rows: Tensor
        name: str

    kept: list[Any] = []

    class OnAGpu:
        """A tensor as far as `keep` looks at it."""

        is_cuda = True

        def record_stream(self, stream: Any) -> None:
            assert stream == "lane"
            kept.append(self)

    monkeypatch.setattr("loader.ops.side_streams.Tensor", OnAGpu)
    a, b, c, d = (OnAGpu() for _ in range(4))
    lane: Any = "lane"  # stands for a stream
    keep([a, {"x": (b, None, 3)}, Held(c, "rows"), [[d]], "text"], lane)
    assert kept == [a, b, c, d]


class TestOnAGpu:
    pytestmark = needs_gpu

    def test_a_graph_of_branches_computes_the_same(self) -> None:
        """Forward and backward pass of chains that lie side by side, with much memory that is given back meanwhile."""
        device = torch.device("cuda")
        weights = [(0.1 * torch.randn(64, 64, device=device)).requires_grad_() for _ in range(6)]
        x = torch.randn(5000, 64, device=device)

        def chain(weight: Tensor, rows: Tensor) -> Tensor:
            for _ in range(10):
                rows = (rows @ weight).tanh() + rows
            return rows

        def step() -> tuple[Tensor, ...]:
            rows = x * 2
            parts = [beside(i % 4, lambda w=w: chain(w, rows), rows) for i, w in enumerate(weights)]
            found = torch.cat([part() for part in parts])
            del parts
            loss = (found * found).mean()
            return (loss.detach(), *torch.autograd.grad(loss, weights))

        wanted = step()
        branches = Branches(device, -1)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), branches.open(), torch.autograd.set_multithreading_enabled(False):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.autograd.set_multithreading_enabled(False), branches.open(), torch.cuda.graph(graph, stream=stream):
            found = step()
        for _ in range(5):
            x.normal_()
            graph.replay()
            wanted = step()
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert len(branches._streams) == 4
