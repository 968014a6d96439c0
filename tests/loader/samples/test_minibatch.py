"""The mini-batch: its accessors, copies and digest."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import ClassVar

import pytest
import torch
from lightning_utilities.core.apply_func import apply_to_collection

from loader.samples import Block, MiniBatch


def make() -> MiniBatch:
    """Two hops from the seeds 7, 4: 4 nodes within one hop, 5 within two."""
    outer = Block(
        torch.tensor([0, 2, 3]), torch.tensor([2, 3, 0]), num_src=4, num_dst=2, edge_ids=torch.tensor([9, 8, 7])
    )
    inner = Block(
        torch.tensor([0, 1, 1, 2, 4]),
        torch.tensor([4, 0, 1, 2]),
        num_src=5,
        num_dst=4,
        edge_ids=torch.tensor([1, 2, 3, 4]),
    )
    return MiniBatch(torch.tensor([7, 4, 0, 2, 9]), (2, 4, 5), (inner, outer), epoch=3, index=6)


def test_accessors_describe_the_mini_batch() -> None:
    batch = make()
    assert batch.input_nodes.tolist() == [7, 4, 0, 2, 9]
    assert batch.output_nodes.tolist() == [7, 4]
    assert batch.batch_size == 2
    assert [block.num_edges for block in batch.blocks] == [4, 3]
    assert batch.num_edges == 7
    assert batch.nbytes == 8 * (5 + 5 + 4 + 4 + 3 + 3 + 3)
    assert repr(batch) == "MiniBatch(epoch=3, index=6, frontier_sizes=(2, 4, 5), num_edges=7, device='cpu')"


def test_held_bytes_counts_each_memory_once() -> None:
    batch = make()
    assert batch.held_bytes == batch.nbytes
    buffer = torch.arange(100)
    cut = batch.replace(nodes=buffer[:5], y=buffer[10:12])
    assert cut.held_bytes == batch.nbytes - 5 * 8 + 800


def test_tensors_come_in_a_fixed_order() -> None:
    batch = make().replace(x=torch.ones(5, 2), y=torch.tensor([1, 0]))
    inner, outer = batch.blocks
    expected = [batch.nodes, inner.indptr, inner.indices, inner.edge_ids, outer.indptr, outer.indices, outer.edge_ids]
    expected += [batch.x, batch.y]
    assert [id(a) for a in batch.tensors()] == [id(b) for b in expected]
    bare = make()
    without = tuple(dataclasses.replace(b, edge_ids=None) for b in bare.blocks)
    assert len(bare.replace(blocks=without).tensors()) == 5


def test_replace_shares_tensors_and_leaves_the_original() -> None:
    batch = make()
    x = torch.zeros(5, 3)
    changed = batch.replace(x=x)
    assert changed.x is x
    assert changed.nodes is batch.nodes
    assert batch.x is None
    with pytest.raises(TypeError, match="MiniBatch has no attribute 'z'"):
        batch.replace(z=x)


def test_names_of_torch_geometric_get_a_way() -> None:
    with pytest.raises(AttributeError, match=r"MiniBatch has no attribute 'edge_index'; batch\.to_pyg\(\) has it"):
        _ = make().edge_index
    with pytest.raises(AttributeError, match=r"MiniBatch has no attribute 'other'$"):
        _ = make().other


def test_edges_of_a_block_are_sources_and_destinations() -> None:
    block = Block(torch.tensor([0, 2, 2, 3], dtype=torch.int32), torch.tensor([4, 0, 3], dtype=torch.int32), 5, 3)
    assert block.edge_index.tolist() == [[4, 0, 3], [0, 0, 2]]
    assert block.edge_index.dtype == torch.int64


def test_equal_mini_batches_have_equal_digests() -> None:
    a = make().replace(x=torch.ones(5, 2), y=torch.tensor([1, 0]))
    b = make().replace(x=torch.ones(5, 2), y=torch.tensor([1, 0]))
    assert a.digest() == b.digest()
    assert len(a.digest()) == hashlib.sha256().digest_size * 2
    strided = torch.ones(5, 4)[:, ::2]
    assert a.replace(x=strided).digest() == a.digest()
    none = torch.empty(0, dtype=torch.int64)
    assert a.replace(y=torch.zeros(1, dtype=torch.int64).expand(0)).digest() == a.replace(y=none).digest()


def changes() -> dict[str, MiniBatch]:
    batch = make()
    inner, outer = batch.blocks

    def with_inner(**values: object) -> MiniBatch:
        return batch.replace(blocks=(dataclasses.replace(inner, **values), outer))

    return {
        "nodes": batch.replace(nodes=torch.tensor([7, 4, 0, 2, 8])),
        "nodes' type": batch.replace(nodes=batch.nodes.int()),
        "epoch": batch.replace(epoch=4),
        "index": batch.replace(index=7),
        "frontiers": batch.replace(frontier_sizes=(2, 3, 5)),
        "indptr": with_inner(indptr=torch.tensor([0, 1, 2, 2, 4])),
        "indices": with_inner(indices=torch.tensor([4, 0, 2, 2])),
        "edge ids": with_inner(edge_ids=torch.tensor([1, 2, 3, 5])),
        "no edge ids": with_inner(edge_ids=None),
        "order of blocks": batch.replace(blocks=(outer, inner)),
        "x": batch.replace(x=torch.zeros(5, 2)),
        "shape of x": batch.replace(x=torch.zeros(2, 5)),
        "y": batch.replace(y=torch.zeros(2)),
    }


def test_every_part_counts_in_the_digest() -> None:
    digests = {name: batch.digest() for name, batch in changes().items()}
    digests["unchanged"] = make().digest()
    assert len(set(digests.values())) == len(digests), digests


def test_to_moves_every_tensor() -> None:
    batch = make().replace(x=torch.ones(5, 2), y=torch.tensor([1, 0]))
    moved = batch.to("meta")
    assert {a.device.type for a in moved.tensors()} == {"meta"}
    assert len(moved.tensors()) == len(batch.tensors())
    assert (moved.frontier_sizes, moved.epoch, moved.index) == ((2, 4, 5), 3, 6)
    assert [(b.num_src, b.num_dst) for b in moved.blocks] == [(5, 4), (4, 2)]
    assert batch.to("cpu").digest() == batch.digest()
    with pytest.raises(ValueError, match="device is 'gpu'; it must be cpu, cuda or cuda:N"):
        batch.to("gpu")
    with pytest.raises(ValueError, match="device is 'mps'; it must be cpu, cuda or cuda:N"):
        batch.to("mps")
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="device is 'cuda', but torch finds no NVIDIA GPU here; give 'cpu'"):
            batch.to("cuda")
        with pytest.raises(RuntimeError, match="for copies to a GPU, and torch finds none here; leave it out"):
            batch.pin_memory()
    bare = make().to("meta")
    assert bare.x is None
    assert bare.y is None


def test_tools_that_exchange_tensors_get_a_changed_copy() -> None:
    """What Lightning's precision plugins do with a batch."""
    batch = make().replace(x=torch.ones(5, 2), y=torch.tensor([1, 0]))
    digest = batch.digest()
    changed = apply_to_collection(batch, torch.Tensor, lambda t: t.bfloat16() if t.is_floating_point() else t)
    assert isinstance(changed, MiniBatch)
    assert changed.x.dtype == torch.bfloat16
    assert changed.blocks[0].indices.tolist() == batch.blocks[0].indices.tolist()
    assert (changed.frontier_sizes, changed.blocks[1].num_src) == (batch.frontier_sizes, 4)
    assert batch.digest() == digest


def test_edge_features_are_moved_and_counted() -> None:
    batch = make()
    inner, outer = batch.blocks
    rows = torch.arange(8.0).view(4, 2)
    batch = batch.replace(blocks=(dataclasses.replace(inner, edge_features=rows), outer))
    assert any(t is rows for t in batch.tensors())
    assert batch.nbytes == make().nbytes + 32
    assert batch.digest() != make().digest()
    assert batch.to("meta").blocks[0].edge_features.is_meta
    assert batch.to("meta").blocks[1].edge_features is None


def test_rows_of_nodes_seeds_and_edges_are_taken() -> None:
    batch = make()
    assert batch.wants == ("node", "seed", "edge")
    assert batch.ids("node") is batch.nodes
    assert batch.ids("seed").tolist() == [7, 4]
    assert batch.ids("edge").tolist() == [1, 2, 3, 4, 9, 8, 7]
    assert not any(batch.has(kind) for kind in batch.wants)
    x, y, edges = torch.ones(5, 2), torch.tensor([1, 0]), torch.arange(7.0).view(7, 1)
    full = batch.with_rows({"node": x, "seed": y, "edge": edges})
    assert all(full.has(kind) for kind in batch.wants)
    assert full.x is x
    assert full.y is y
    assert [block.edge_features.flatten().tolist() for block in full.blocks] == [[0, 1, 2, 3], [4, 5, 6]]
    assert not any(batch.has(kind) for kind in batch.wants)  # a copy was changed


def test_rows_of_other_kinds_are_refused() -> None:
    with pytest.raises(KeyError, match=r"MiniBatch wants rows of \['node', 'seed', 'edge'\], not of 'walker'"):
        make().ids("walker")
    with pytest.raises(KeyError, match=r"MiniBatch wants rows of .*; it was given \['walker'\]"):
        make().with_rows({"walker": torch.ones(1)})


class OnGpu(torch.Tensor):
    """A tensor that says it lies on a GPU, and notes which memory was recorded."""

    recorded: ClassVar[list[int]] = []
    is_cuda = True

    def record_stream(self, stream: object) -> None:
        assert stream == "stream"
        self.recorded.append(self.untyped_storage().data_ptr())


def test_each_memory_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, edges = torch.arange(40), torch.arange(40, dtype=torch.int32)
    inner = Block(edges[:3], nodes[10:13], 3, 2, edges[10:13])
    outer = Block(edges[5:7], nodes[13:15], 2, 1, edges[13:15], torch.ones(2, 3))
    batch = MiniBatch(nodes[:4], (1, 2, 4), (inner, outer), x=torch.ones(4, 2), y=torch.tensor([1]))
    monkeypatch.setattr(OnGpu, "recorded", [])
    batch.record_stream("stream")
    assert not OnGpu.recorded  # there is nothing to be told of memory of the host
    batch.map(lambda t: t.as_subclass(OnGpu)).record_stream("stream")
    parts = (nodes, edges, outer.edge_features, batch.x, batch.y)
    assert sorted(OnGpu.recorded) == sorted(t.data_ptr() for t in parts)


@pytest.mark.gpu
def test_a_pinned_mini_batch_moves_to_the_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    batch = make().replace(x=torch.ones(5, 2))
    pinned = batch.pin_memory()
    assert all(a.is_pinned() for a in pinned.tensors())
    moved = pinned.to("cuda", non_blocking=True)
    stream = torch.cuda.Stream()
    moved.record_stream(stream)
    torch.cuda.synchronize()
    assert moved.digest() == batch.digest()
