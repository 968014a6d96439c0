"""Layers over tiles of rows on the host: Python, bindings and kernels as they are, compared with torch in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cuda_on_host import module_on_host
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from loader import _core
from loader.ops import tiles as ops_tiles
from loader.ops.tiles import Norm, Tiles, norm_of_tiles

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("layers_on_host", tmp_path_factory)


@pytest.fixture(autouse=True)
def on_host(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda_norm", "cuda_norm_gradient"):
        monkeypatch.setattr(_core, name, getattr(core, name))
    monkeypatch.setattr(ops_tiles, "launch_place", lambda like: (0, 0))


def rows_of(generator: torch.Generator, count: int, columns: int, apart: int) -> Tensor:
    """Rows that lie `apart` elements further apart than they are long, from a multiple of 16 bytes on."""
    whole = torch.randn(count, columns + apart, generator=generator)
    return whole[:, :columns]


TYPES, KEY = 3, 2**31 + 77
slow = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@slow
@given(
    columns=st.sampled_from([4, 12, 100, 128, 132, 256, 300, 512]),
    size=st.sampled_from([1, 3, 8, 40, 128]),
    of_tiles=st.lists(st.integers(0, TYPES - 1), max_size=5),
    apart=st.sampled_from([0, 4]),
    bias=st.booleans(),
    residual=st.booleans(),
    relu=st.booleans(),
    threshold=st.sampled_from([0, 20_000]),
    seed=st.integers(0, 1000),
)
def test_it_is_torch_layer_by_layer(
    columns: int, size: int, of_tiles: list[int], apart: int, bias: bool, residual: bool, relu: bool, threshold: int,
    seed: int,
) -> None:  # fmt: skip
    g = torch.Generator().manual_seed(seed)
    tiles = Tiles.of(size, of_tiles, TYPES, torch.device("cpu"))
    n = size * len(of_tiles)
    given_rows = [rows_of(g, n, columns, apart), *(rows_of(g, TYPES, columns, apart) for _ in range(3))]
    given_rows.append(rows_of(g, n, columns, apart))
    x, weight, shift, of_bias, of_residual = (rows.detach().requires_grad_() for rows in given_rows)
    known = [x, weight, shift] + [of_bias] * bias + [of_residual] * residual
    after = Norm(relu, threshold, torch.tensor([KEY]) if threshold else None)
    out = norm_of_tiles(x, weight, shift, of_bias if bias else None, of_residual if residual else None, tiles, after)

    types = tiles.types.repeat_interleave(size)
    exact = {id(of): of.detach().double().requires_grad_() for of in known}
    y = exact[id(x)] + (exact[id(of_bias)][types] if bias else 0)
    y = F.layer_norm(y, (columns,)) * exact[id(weight)][types] + exact[id(shift)][types]
    base = exact[id(of_residual)] if residual else 0.0
    if threshold:  # which elements were dropped, as the result says
        stays = (out.detach().double() - base).detach().abs() > 1e-7
        assert n * columns < 2000 or abs(float((stays | (y <= 0 if relu else False)).double().mean()) - 1) < 0.5
        y = y * stays * 65536 / (65536 - threshold)
    wanted = base + (y.relu() if relu else y)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-4, atol=1e-4)
    mix = torch.randn(n, columns, generator=g)
    found = torch.autograd.grad((out * mix).sum(), known)
    others = torch.autograd.grad((wanted * mix).sum(), list(exact.values()))
    for mine, theirs in zip(found, others, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=2e-3)


def test_dropout_has_its_share_by_the_key() -> None:
    n, columns, threshold = 400, 128, 13_107
    tiles = Tiles.of(n, [0], 1, torch.device("cpu"))
    x, ones = torch.randn(n, columns), torch.ones(1, columns)
    dropped = []
    for key in (1, 1, 2):
        after = Norm(False, threshold, torch.tensor([key]))
        dropped.append(norm_of_tiles(x, ones, 100 * ones, None, None, tiles, after) == 0)
    assert torch.equal(dropped[0], dropped[1])
    share, count = threshold / 65536, n * columns
    for one in dropped:
        assert abs(int(one.sum()) - share * count) < 5 * (share * (1 - share) * count) ** 0.5
    both = int((dropped[0] & dropped[2]).sum())
    assert abs(both - share**2 * count) < 5 * (share**2 * count) ** 0.5


@slow
@given(
    width=st.sampled_from([4, 100, 128, 132, 1024]),
    of_tiles=st.lists(st.integers(0, TYPES - 1), max_size=90),
    parts=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 1000),
)
def test_sums_are_of_the_tiles_of_a_type(core: Any, width: int, of_tiles: list[int], parts: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    tiles = Tiles.of(1, of_tiles, TYPES, torch.device("cpu"))
    rows, out = torch.randn(len(of_tiles) * parts, width, generator=g), torch.full((TYPES, width), 7.0)
    core.cuda_sum_tiles((0, 0), rows, tiles.order, tiles.begins, out)
    types = tiles.types.repeat_interleave(parts)
    wanted = torch.zeros(TYPES, width, dtype=torch.float64).index_add_(0, types, rows.double())
    torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused(core: Any) -> None:
    x, row, types = torch.zeros(6, 8), torch.zeros(2, 8), torch.zeros(3, dtype=torch.int64)
    moments, out = torch.zeros(6, 2), torch.zeros(6, 8)

    def norm(**given: Any) -> None:
        of = {"x": x, "types": types, "tile": 2, "weight": row, "shift": row, "bias": None, "threshold": 0, "key": None}
        of |= {"residual": None, "out": out, "moments": moments, **given}
        weights = (of["types"], of["tile"], of["weight"], of["shift"], of["bias"])
        activation = (1e-5, True, of["threshold"], of["key"])
        core.cuda_norm((0, 0), of["x"], weights, activation, of["residual"], of["out"], of["moments"])

    norm()
    for given_values, message in (
        ({"x": torch.zeros(6, 6)}, "x has 6 columns; it must have a multiple of 4 up to 512"),
        ({"tile": 4}, "x has 6 rows; it must be a multiple of those of a tile, 4"),
        ({"types": types[:2]}, "types has 2 elements; it must have 3"),
        ({"shift": row[:1]}, "shift has shape [1, 8]; it must be [2, 8]"),
        ({"bias": row.double()}, "bias has dtype torch.float64; it must be torch.float32"),
        ({"residual": torch.zeros(6, 9)[:, 1:]}, "residual has rows that do not begin at multiples of 16 bytes"),
        ({"threshold": 9}, "threshold is 9; it must be at most 65535, with a key unless it is 0"),
        ({"out": out[:5]}, "out has 40 elements; it must have 48"),
        ({"moments": moments[:, :1]}, "moments is not contiguous"),
    ):
        with pytest.raises((ValueError, TypeError)) as raised:
            norm(**given_values)
        assert message in str(raised.value)
    with pytest.raises(ValueError, match="rows has 6 columns; it must have a multiple of 4"):
        core.cuda_sum_tiles((0, 0), torch.zeros(3, 6), types, torch.zeros(3).long(), torch.zeros(2, 6))
    with pytest.raises(ValueError, match="rows has 4 rows; it must have as many for each element of order, 3"):
        core.cuda_sum_tiles((0, 0), torch.zeros(4, 8), types, torch.zeros(3).long(), torch.zeros(2, 8))
    weights, activation = (types, 2, row, row, None), (1e-5, True, 0, None)
    with pytest.raises(ValueError, match="parts is 3; it must divide the rows of a tile, 2"):
        core.cuda_norm_gradient((0, 0), x, weights, activation, x, moments, out, 3, torch.zeros(9, 2, 8))
