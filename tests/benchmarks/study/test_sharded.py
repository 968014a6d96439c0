"""Rows in the memory of several GPUs: each process reads all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from marks import needs_gpu, needs_two_gpus
from study.sharded import ShardedFeatures
from torch import Tensor

import loader
from loader.machine.gpu import NoGpuError
from loader.stores import DeviceFeatures, HostFeatures

ROWS, WIDTH = 400_003, 33  # rows that lie on two parts


def table() -> Tensor:
    return torch.arange(ROWS * WIDTH, dtype=torch.float32).view(ROWS, WIDTH)


def some_ids() -> Tensor:
    return torch.randint(ROWS, (20_000,), generator=torch.Generator().manual_seed(0))


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(NoGpuError, match="ShardedFeatures needs an NVIDIA GPU"):
        ShardedFeatures(table())


# Called by each of several processes, after one more argument: the number of its GPU.
def one_rank(gpu: int) -> None:
    device, x, ids = torch.device("cuda", gpu), table(), some_ids()
    torch.cuda.set_device(device)
    small = ShardedFeatures(x[:3, :1].contiguous(), device)  # of which only one process has a part
    assert small.gather(torch.tensor([2, 0])).tolist() == [[2 * WIDTH], [0.0]]
    stores, taken = [], []
    for _ in range(3):  # other processes take memory of this GPU meanwhile, but hardly each time
        free = torch.cuda.mem_get_info(device)[0]  # the first store also took what the driver needs to map any
        stores.append(ShardedFeatures(x, device, storage_dtype="float32"))
        taken.append(free - torch.cuda.mem_get_info(device)[0])
    for store in stores:
        assert torch.equal(store.gather(ids).cpu(), x[ids])
    half = ShardedFeatures(x, device, storage_dtype="bfloat16")
    assert torch.equal(half.gather(ids.to(device)).cpu(), x[ids].bfloat16())
    eight = ShardedFeatures(x, device, storage_dtype="int8")
    assert torch.equal(eight.gather(ids).cpu(), HostFeatures(x, 1, storage_dtype="int8").gather(ids))
    for store in stores:
        store.check()
    print(min(taken))
    sys.stdout.flush()
    sys.stdin.readline()  # nobody frees memory that another still reads
    for each in (*stores, small, half, eight):
        each.close()


def run_ranks(gpus: list[int], port: str) -> list[int]:
    """The bytes that the table took of each GPU."""
    root = Path(loader.__file__).parent.parent
    paths = [root, root / "benchmarks", Path(__file__).parent, Path(__file__).parents[2] / "support"]
    shared = {
        **os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]),
        "LOCAL_WORLD_SIZE": str(len(gpus)), "MASTER_PORT": port,
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", f"import test_sharded as t; t.one_rank({gpu})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**shared, "LOCAL_RANK": str(rank)},
        )
        for rank, gpu in enumerate(gpus)
    ]
    try:
        lines = [rank.stdout.readline() for rank in ranks if rank.stdout is not None]
        for rank in ranks:
            rank.communicate("\n", timeout=300)
        assert [rank.returncode for rank in ranks] == [0] * len(gpus)
        return [int(line) for line in lines]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


class TestOnGPU:
    pytestmark = needs_gpu

    def test_one_process_has_all_rows(self) -> None:
        x, ids = table(), some_ids()
        store, whole = ShardedFeatures(x), DeviceFeatures(x)
        assert torch.equal(store.gather(ids), whole.gather(ids))
        assert not store.gather(torch.tensor([0, ROWS]))[1].any()
        with pytest.raises(ValueError, match=rf"ids\[1\] = {ROWS}"):
            store.check()
        store.close()
        empty = ShardedFeatures(torch.empty(0, 5))
        assert empty.gather(torch.tensor([], dtype=torch.int64)).shape == (0, 5)

    def test_rows_may_be_read_in_place(self) -> None:
        x, ids = table(), some_ids().cuda()
        store = ShardedFeatures(x, lazy=True)
        rows = store.lazy_rows(ids)
        store.close()
        assert torch.equal(rows.gather().cpu(), x[ids.cpu()])  # which keep the table

    def test_processes_share_one_gpu(self, tmp_path: Path) -> None:
        run_ranks([0, 0, 0], str(tmp_path))

    @needs_two_gpus
    def test_each_gpu_has_half(self, tmp_path: Path) -> None:
        taken = run_ranks([0, 1], str(tmp_path))
        assert max(taken) < 0.75 * ROWS * WIDTH * 4
