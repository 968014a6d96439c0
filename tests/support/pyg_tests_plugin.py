"""A plugin of pytest, for torch_geometric's own tests: they find a sampler in the place of pyg-lib.

    cd CHECKOUT_OF_PYTORCH_GEOMETRIC
    PYTHONPATH=THIS_REPOSITORY:THIS_REPOSITORY/tests/support python -m pytest -p pyg_tests_plugin test/loader ...

Their decorators and conditions skip what needs pyg-lib. They are told that it is there; torch_geometric itself is not.
"""

import torch_geometric.testing.decorators as decorators
import torch_geometric.typing as typing

import loader.pyg

if loader.pyg.backend() != "loader":
    raise RuntimeError(f"{loader.pyg.backend()} samples here, so the tests would say nothing of loader.pyg")

_has_package = decorators.has_package
decorators.WITH_PYG_LIB = True
decorators.has_package = lambda package: package == "pyg_lib" or _has_package(package)
# Read by conditions of the tests alone: torch_geometric's sampler was told by `loader.pyg`.
typing.WITH_WEIGHTED_NEIGHBOR_SAMPLE = typing.WITH_EDGE_TIME_NEIGHBOR_SAMPLE = True
