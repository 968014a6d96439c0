"""Numbers and flags are taken in every form that means them, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from loader.machine.arguments import (
    as_64_bits,
    as_finite,
    as_flag,
    as_fraction,
    as_number,
    as_seed,
    as_size,
    check_dense,
    kind_of,
)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), torch.tensor(3)])
def test_every_integer_is_a_size(value):
    assert as_size("size", value) == 3
    assert type(as_size("size", value)) is int
    assert as_seed(value) == 3


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (True, TypeError, "size is True; it must be an integer of at least 1"),
        (np.True_, TypeError, "it must be an integer of at least 1"),
        (1.0, TypeError, "size is 1.0; it must be an integer of at least 1"),
        ("1", TypeError, "size is '1'; it must be an integer of at least 1"),
        (None, TypeError, "size is None; it must be an integer of at least 1"),
        (np.arange(100), TypeError, "size is an ndarray; it must be an integer of at least 1"),
        (0, ValueError, "size is 0; it must be at least 1"),
        (8, ValueError, "size is 8; it must be at most 7"),
    ],
)
def test_other_sizes_are_refused(value, error, message):
    with pytest.raises(error, match=f"{message}$"):
        as_size("size", value, most=7)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (True, TypeError, "epoch is True; it must be an integer"),
        (1.5, TypeError, "epoch is 1.5; it must be an integer"),
        (-1, ValueError, r"epoch is -1; it must be in \[0, 2\*\*64\)"),
        (2**64, ValueError, rf"epoch is {2**64}; it must be in \[0, 2\*\*64\)"),
    ],
)
def test_other_words_of_64_bits_are_refused(value, error, message):
    with pytest.raises(error, match=f"{message}$"):
        as_64_bits("epoch", value)


@pytest.mark.parametrize("value", [True, np.True_, 1, np.int64(1)])
def test_true_is_a_flag_in_every_form(value):
    assert as_flag("flag", value) is True
    assert as_flag("flag", value * 0 if type(value) is not np.bool_ else ~value) is False


@pytest.mark.parametrize("value", ["yes", "false", "", None, 2, 0.0, [], np.zeros(3)])
def test_other_flags_are_refused(value):
    with pytest.raises(TypeError, match=r"^flag is .*; it must be True or False$"):
        as_flag("flag", value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_only_ordinary_tensors_are_dense():
    check_dense("x", torch.zeros(2, 0))
    with pytest.raises(ValueError, match=r"x has the layout torch.sparse_coo; it must be dense: \.to_dense\(\)"):
        check_dense("x", torch.eye(2).to_sparse())
    with pytest.raises(ValueError, match=r"x is nested; it must be dense: \.to_padded_tensor\(\)"):
        check_dense("x", torch.nested.nested_tensor([torch.rand(3), torch.rand(2)]))
    with pytest.raises(ValueError, match=r"x is a conjugate view of other numbers in memory; .*: \.resolve_conj\(\)"):
        check_dense("x", torch.rand(3, dtype=torch.complex64).conj())
    with pytest.raises(ValueError, match=r"x is a negative view of other numbers in memory; .*: \.resolve_neg\(\)"):
        check_dense("x", torch.rand(3, dtype=torch.complex64).conj().imag)


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), torch.tensor(0.5)])
def test_every_number_is_a_float(value):
    assert as_number("p", value) == 0.5
    assert type(as_number("p", value)) is float


@pytest.mark.parametrize("value", ["0.5", None, True, np.True_, [0.5], np.zeros(3), torch.zeros(3), 10**400, 1j])
def test_other_numbers_are_refused(value):
    with pytest.raises(TypeError, match=r"^p is .*; it must be a number$"):
        as_number("p", value)


@pytest.mark.parametrize(("value", "positive"), [(0, False), (0.5, False), (0.5, True), (5e-324, True)])
def test_finite_numbers_are_floats(value, positive):
    assert as_finite("p", value, positive=positive) == value


@pytest.mark.parametrize(
    ("value", "positive", "message"),
    [
        (-0.5, False, "p is -0.5; it must be at least 0 and finite"),
        (0, True, "p is 0; it must be greater than 0 and finite"),
        (float("inf"), True, "p is inf; it must be greater than 0 and finite"),
        (float("nan"), False, "p is nan; it must be at least 0 and finite"),
    ],
)
def test_numbers_out_of_range_are_refused(value, positive, message):
    with pytest.raises(ValueError, match=message):
        as_finite("p", value, positive=positive)


@pytest.mark.parametrize("value", [0, 0.5, 1 - 2**-53])
def test_fractions_are_floats_below_one(value):
    assert as_fraction("p", value) == value


@pytest.mark.parametrize("value", [-0.5, 1, float("nan"), float("inf")])
def test_other_fractions_are_refused(value):
    with pytest.raises(ValueError, match=rf"^p is {value}; it must be in \[0, 1\)$"):
        as_fraction("p", value)


def test_a_kind_is_said_with_its_article() -> None:
    values = {"None": None, "an int": 3, "an ndarray": np.arange(3), "a Tensor": torch.ones(3), "the class list": list}
    assert [kind_of(value) for value in values.values()] == list(values)
