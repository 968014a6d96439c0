"""A plugin of pytest, for torch_geometric's own tests: they find a sampler in the place of pyg-lib.

    cd CHECKOUT_OF_PYTORCH_GEOMETRIC
    PYTHONPATH=THIS_REPOSITORY:THIS_REPOSITORY/tests/support python -m pytest -p pyg_tests_plugin test/loader ...

Their decorators and conditions skip what needs pyg-lib. They are told that it is there; torch_geometric itself is not.
With PYG_TESTS_OF=subgraphs they are also told that torch-sparse and METIS are there, which the tests of ShaDow,
GraphSAINT, Cluster-GCN and HGT ask for.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import torch
import torch_geometric.testing as testing
import torch_geometric.testing.decorators as decorators
import torch_geometric.typing as typing
from torch import Tensor

import loader.pyg

if loader.pyg.backend() != "loader":
    raise RuntimeError(f"{loader.pyg.backend()} samples here, so the tests would say nothing of loader.pyg")

_has_package = decorators.has_package
decorators.WITH_PYG_LIB = True
decorators.has_package = lambda package: package == "pyg_lib" or _has_package(package)
# Read by conditions of the tests alone: torch_geometric's sampler was told by `loader.pyg`.
typing.WITH_WEIGHTED_NEIGHBOR_SAMPLE = typing.WITH_EDGE_TIME_NEIGHBOR_SAMPLE = True


class MatrixOfTests(typing.SparseTensor):
    """The little of torch-sparse's `SparseTensor` that the tests of ShaDow and HGT ask for."""

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, **_: Any) -> None:
        order = torch.argsort(row * (1 + int(torch.cat([row, col]).max())) + col, stable=True)
        self._entries = row[order], col[order], value[order]

    @property
    def storage(self) -> Any:
        row, col, value = self._entries
        return SimpleNamespace(row=lambda: row, col=lambda: col, value=lambda: value)

    def __getitem__(self, ids: tuple[Tensor, Tensor]) -> MatrixOfTests:
        order, places = zip(*(of.sort() for of in ids), strict=True)
        there, found = torch.ones_like(self._entries[0], dtype=torch.bool), []
        for sorted_ids, place, entries in zip(order, places, self._entries, strict=False):
            at = torch.searchsorted(sorted_ids, entries).clamp(max=len(place) - 1)
            there &= sorted_ids[at] == entries
            found.append(place[at])
        return MatrixOfTests(found[0][there], found[1][there], self._entries[2][there])

    def nnz(self) -> int:
        return self._entries[0].numel()

    def coo(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._entries

    def t(self) -> MatrixOfTests:
        row, col, value = self._entries
        return MatrixOfTests(col, row, value)


if os.environ.get("PYG_TESTS_OF") == "subgraphs":  # test_shadow, test_graph_saint, test_cluster, test_hgt_loader
    decorators.has_package = lambda package: package in ("pyg_lib", "torch_sparse") or _has_package(package)
    typing.SparseTensor = MatrixOfTests
    testing.withMETIS = lambda test: test
