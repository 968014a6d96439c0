"""`ClusterData` and `ClusterLoader` give what torch_geometric's do with METIS."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.loader
import torch_geometric.loader.cluster as theirs
from marks import HAS_GPU, needs_metis
from torch import Tensor
from torch_geometric.data import Data

from loader.pyg import ClusterData, ClusterLoader

ADJ = torch.tensor(
    [
        [1, 1, 1, 0, 1, 0],
        [1, 1, 0, 1, 0, 1],
        [1, 0, 1, 0, 1, 0],
        [0, 1, 0, 1, 0, 1],
        [1, 0, 1, 0, 1, 0],
        [0, 1, 0, 1, 0, 1],
    ]
)


def data_of() -> Data:
    pairs = ADJ.nonzero().t()
    return Data(
        x=torch.arange(6.0)[:, None].expand(6, 2), edge_index=pairs, edge_attr=torch.arange(pairs.shape[1]), num_nodes=6
    )


class InHalves(ClusterData):
    """Parts that need no METIS: by the remainder of the id."""

    def _metis(self, edge_index: Tensor, num_nodes: int) -> Tensor:
        return torch.arange(num_nodes) % self.num_parts


def large(kind: Any = InHalves, parts: int = 7, **options: Any) -> Any:
    g = torch.Generator().manual_seed(1)
    pairs = torch.randint(300, (2, 4000), generator=g)
    data = Data(edge_index=pairs, e=torch.arange(4000), n=torch.arange(300), name="one", num_nodes=300)
    return kind(data, parts, log=False, **options)


@needs_metis
@pytest.mark.parametrize("inter", [False, True])
def test_parts_are_those_of_torch_geometrics_test(inter: bool) -> None:
    made = ClusterData(data_of(), num_parts=2, log=False, keep_inter_cluster_edges=inter)
    assert made.partition.partptr.tolist() == [0, 3, 6]
    assert made.partition.node_perm.tolist() == [0, 2, 4, 1, 3, 5]
    assert made.data.x[:, 0].tolist() == [0, 2, 4, 1, 3, 5]
    one, two = made[0], made[1]
    if inter:
        assert one.edge_attr.tolist() == [0, 2, 3, 1, 8, 9, 10, 14, 15, 16]
        assert two.edge_attr.tolist() == [4, 5, 6, 7, 11, 12, 13, 17, 18, 19]
        return
    assert one.edge_index.tolist() == two.edge_index.tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 1, 2] * 3]
    assert one.edge_attr.tolist() == [0, 2, 3, 8, 9, 10, 14, 15, 16]
    assert two.edge_attr.tolist() == [5, 6, 7, 11, 12, 13, 17, 18, 19]
    both = next(iter(ClusterLoader(made, batch_size=2)))
    assert both.num_nodes == 6
    assert both.edge_index.shape == (2, 20)


@pytest.mark.parametrize("sparse_format", ["csr", "csc"])
@pytest.mark.parametrize("workers", [0, 1])
def test_mini_batches_are_those_of_torch_geometric(sparse_format: str, workers: int) -> None:
    parts = large(sparse_format=sparse_format)
    orders = [torch.Generator().manual_seed(1) for _ in range(2)]
    options = {"batch_size": 3, "shuffle": True, "num_workers": workers}
    ours, base = (
        list(kind(parts, **options, generator=g))
        for kind, g in zip((ClusterLoader, theirs.ClusterLoader), orders, strict=True)
    )
    assert len(ours) == 3
    for one, two in zip(ours, base, strict=True):
        assert one.keys() == two.keys()
        for name in ("n", "e", "edge_index"):
            assert torch.equal(one[name], two[name])
        assert (one.num_nodes, one.name) == (two.num_nodes, two.name)


@needs_metis
def test_partitions_are_kept_in_a_folder(tmp_path: Path) -> None:
    one = large(ClusterData, save_dir=str(tmp_path))
    assert (tmp_path / "part_7" / "metis.pt").exists()
    two = large(ClusterData, save_dir=str(tmp_path))
    assert torch.equal(one.partition.node_perm, two.partition.node_perm)
    assert isinstance(two, torch_geometric.loader.ClusterData)


def test_kept_partitions_of_others_are_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"save_dir": str(tmp_path), "log": False}
    for sparse_format in ("csr", "csc"):
        options["filename"] = f"{sparse_format}.pt"
        made = InHalves(data_of(), 2, sparse_format=sparse_format, **options)
        again = InHalves(data_of(), 2, sparse_format=sparse_format, **options)
        assert torch.equal(made[0].edge_index, again[0].edge_index)
        other = data_of()
        other.edge_index = other.edge_index[:, torch.arange(20).roll(1)]
        with pytest.raises(ValueError, match="the partition in save_dir is of another graph, or of another sparse_f"):
            InHalves(other, 2, sparse_format=sparse_format, **options)
    with pytest.raises(ValueError, match="the partition in save_dir is of another graph, or of another sparse_format"):
        InHalves(data_of(), 2, sparse_format="csr", **options)


def test_without_metis_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r"ClusterData needs the package pymetis; pip install 'gnn-loader\[metis\]'"):
        large(ClusterData)


def test_torch_geometrics_names_are_ours() -> None:
    assert torch_geometric.loader.ClusterData is ClusterData
    assert torch_geometric.loader.ClusterLoader is ClusterLoader


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_a_gpu_gives_the_same_mini_batches() -> None:
    parts = large()
    for one, two in zip(
        ClusterLoader(parts, batch_size=3), ClusterLoader(parts, batch_size=3, device="cuda"), strict=True
    ):
        assert two.edge_index.is_cuda
        for name in ("n", "e", "edge_index"):
            assert torch.equal(one[name], two[name].cpu())
