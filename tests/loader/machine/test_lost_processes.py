"""How a lost process is told from other errors."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from loader.machine.lost_processes import LostProcessError, is_lost, named_losses

GLOO = "[/__w/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29618. This is"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(GLOO),
        dist.DistBackendError("NCCL error"),
        dist.DistNetworkError("no store"),
        dist.DistStoreError("wait timeout after 3000ms"),
    ],
)
def test_errors_of_the_network_are_losses(error: RuntimeError) -> None:
    assert is_lost(error)
    message = "another process of this run ended or no longer answers"
    with pytest.raises(LostProcessError, match=message) as raised, named_losses():
        raise error
    assert is_lost(raised.value)
    assert raised.value.__cause__ is error


def test_a_message_of_gloo_is_shortened() -> None:
    message = r"answers \(Connection closed by peer \[127.0.0.1\]:29618\)$"
    with pytest.raises(LostProcessError, match=message), named_losses():
        raise RuntimeError(GLOO)


@pytest.mark.parametrize("error", [RuntimeError("shape"), NotImplementedError("NCCL"), ConnectionError("a database")])
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert not is_lost(error)
    with pytest.raises(type(error)) as raised, named_losses():
        raise error
    assert raised.value is error
