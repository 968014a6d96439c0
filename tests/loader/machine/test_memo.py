"""What was made of an object goes with it."""

import gc

import pytest
import torch

from loader.machine.memo import Memo, Seen, version_of


class Owner:
    pass


def test_makes_once_per_owner_state_and_key():
    memo, owner, other = Memo(), Owner(), Owner()
    made = []

    def get(of, state, key):
        return memo.get(of, state, key, lambda: made.append(key) or len(made))

    assert [get(owner, 0, "a"), get(owner, 0, "a"), get(owner, 0, "b"), get(other, 0, "a")] == [1, 1, 2, 3]
    assert get(owner, 1, "a") == 4  # it was changed: all is made anew
    assert get(owner, 1, "b") == 5
    del other
    gc.collect()
    assert len(memo) == 1


def test_counts_the_writes_to_a_tensor():
    tensor = torch.zeros(3)
    before = version_of(tensor)
    tensor[0] = 1
    assert version_of(tensor) != before


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_values_count_where_torch_counts_nothing(dtype):
    with torch.inference_mode():
        tensor = torch.tensor([1, 0, 0]).to(dtype)
        before = version_of(tensor)
        assert version_of(tensor) == before
        tensor.copy_(torch.tensor([0, 1, 0]))
        assert version_of(tensor) != before
        assert version_of(torch.zeros(0, 4, dtype=dtype)) == version_of(torch.zeros(0, dtype=dtype))
        assert Seen.of(tensor).is_of(tensor)
