"""Rows of a tensor, kept in fewer bytes than they are returned in."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loader.stores.tensor import TensorRows, narrowest_dtype

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@given(st.sampled_from(INTEGERS), st.data())
def test_narrowest_type_holds_each_element(dtype: torch.dtype, data: st.DataObject) -> None:
    info = torch.iinfo(dtype)
    bits = data.draw(st.integers(1, info.bits))
    values = st.integers(max(info.min, -(2**bits)), min(info.max, 2**bits))
    tensor = torch.tensor(data.draw(st.lists(values, min_size=1, max_size=20)), dtype=dtype)
    narrow = narrowest_dtype(tensor)
    assert torch.equal(tensor.to(narrow).to(dtype), tensor)
    assert narrow.itemsize <= dtype.itemsize
    for other in INTEGERS:
        if other.itemsize < narrow.itemsize:
            assert not torch.equal(tensor.to(other).to(dtype), tensor)


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(3), torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.complex64), torch.zeros(0).long()],
)
def test_other_tensors_keep_their_type(tensor: torch.Tensor) -> None:
    assert narrowest_dtype(tensor) == tensor.dtype


def test_rows_are_returned_in_another_type() -> None:
    labels = torch.tensor([3, 200, 0, 7])
    store = TensorRows(labels.to(torch.uint8), torch.int64)
    rows = store.gather(torch.tensor([1, 1, 3]))
    assert (store.dtype, rows.dtype, store.tensor.dtype) == (torch.int64, torch.int64, torch.uint8)
    assert rows.tolist() == [200, 200, 7]
    assert "torch.int64" in repr(store)
