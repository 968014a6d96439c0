"""Do tasks on tables reach the scores with our loader that RelBench's recipe reaches with torch_geometric's?

    PYTHONPATH=. python benchmarks/task_scores.py --data-dir data --processes 8

rel-f1's tasks by RelBench's recipe (Robinson et al. 2024): R-SAGE of width 128, fanouts (128, 64), mini-batches of 512
items, Adam with 0.005, ten epochs, of which the one with the best score of the validation items is tested. Tables end
where the test begins. Ours: `TaskPredictor` on `TaskDataModule`, rows encoded once, steps by CUDA graphs on a GPU.
Theirs: HeteroConv of SAGEConv and pytorch-frame's encoders, torch_geometric's NeighborLoader on our core's CPU sampler
(`import loader.pyg`). Binary tasks have AUROC in percent, regressions their mean absolute error. Two one-sided tests
(Welch) say whether the means differ by less than the margin. Seconds of a fit are those of `--processes` at once.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, write_json
from _intervals import compare
from tasks_gpu import HIDDEN, SIZE, Ours, TheirNet, as_pyg, their_loader
from torch.nn import functional as F
from torchmetrics.functional.classification import binary_auroc

from loader.datamodules.tasks import TaskDataModule
from loader.datasets import RelationalDataset
from loader.samplers import TreeSampler
from loader.stores import DeviceFeatures, HostFeatures

# Margins, and the scores of RelBench's GNN in its table of results.
TASKS = {"driver-dnf": (2.0, 72.6), "driver-top3": (2.0, 75.5), "driver-position": (0.15, 4.02)}
SIDES = ("ours", "theirs")
FANOUTS = [128, 64]


@cache
def module_of(task: str, device: str, data_dir: Path, cache_dir: Path | None, seed: int) -> TaskDataModule:
    data = RelationalDataset("rel-f1", task, schema="rel-f1", data_dir=data_dir, cache_dir=cache_dir)
    store = partial(DeviceFeatures, device=device) if device == "cuda" else HostFeatures
    sampler = TreeSampler(FANOUTS, times="both", device=device, seed=seed)
    module = TaskDataModule(data, sampler, features=store, batch_size=SIZE, seed=seed)
    module.setup()
    return module


class OurRun(Ours):
    """Trains and evaluates by our classes."""

    def __init__(self, module: TaskDataModule, device: str, seed: int) -> None:
        super().__init__(module, device, unique_rows=True, graph=device == "cuda", seed=seed)
        self._module, self._train, self._epoch = module, module.train_dataloader(), 0
        self.net: Any = self.model

    def epoch(self) -> None:
        self._train.set_epoch(self._epoch)
        self._epoch += 1
        self.model.train()
        for batch in self._train:
            self(batch)

    def outputs(self, split: str) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        loader = self._module.val_dataloader() if split == "val" else self._module.test_dataloader()
        return ((self.model(batch), batch.y) for batch in loader)


class TheirRun:
    """Trains and evaluates by torch_geometric's."""

    def __init__(self, module: TaskDataModule, device: str, seed: int) -> None:
        torch.manual_seed(seed)
        self.net = TheirNet(module.sizes, len(FANOUTS)).to(device)
        self._adam = torch.optim.Adam(self.net.parameters(), lr=0.005)
        self._device, self._tables, self._module = device, as_pyg(module), module
        kind = module.sizes["task_kind"]
        self._loss = F.binary_cross_entropy_with_logits if kind == "binary" else F.l1_loss

    def _batches(self, split: str) -> Iterable[Any]:
        return (batch.to(self._device) for batch in their_loader(self._module, self._tables, FANOUTS, split))

    def epoch(self) -> None:
        self.net.train()
        for batch in self._batches("train"):
            self._adam.zero_grad()
            self._loss(self.net(batch), batch[self.net.target].y.float()).backward()
            self._adam.step()

    def outputs(self, split: str) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        return ((self.net(batch), batch[self.net.target].y) for batch in self._batches(split))


def score(run: Any, split: str, sizes: dict[str, Any]) -> float:
    """AUROC in percent, or the mean absolute error."""
    run.net.eval()
    with torch.inference_mode():
        outputs, labels = (torch.cat(of).cpu() for of in zip(*run.outputs(split), strict=True))
    if sizes["task_kind"] == "binary":
        return 100 * float(binary_auroc(outputs.sigmoid(), labels.long()))
    return float((outputs.clamp(*sizes["label_range"]) - labels).abs().mean())


def fit(job: tuple[str, int, str], arguments: argparse.Namespace) -> dict[str, Any]:
    """The score of the test items after the best of ten epochs, and the seconds that it took."""
    task, seed, side = job
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    module = module_of(task, arguments.device, arguments.data_dir, arguments.cache_dir, seed)
    start = time.perf_counter()
    run: Any = (OurRun if side == "ours" else TheirRun)(module, arguments.device, seed)
    torch.manual_seed(seed)
    better = max if module.sizes["task_kind"] == "binary" else min
    best: tuple[float, Any] | None = None
    for _ in range(arguments.epochs):
        run.epoch()
        of_val = score(run, "val", module.sizes)
        if best is None or (of_val != best[0] and better(of_val, best[0]) == of_val):
            best = of_val, copy.deepcopy(run.net.state_dict())
    assert best is not None
    run.net.load_state_dict(best[1])
    found = score(run, "test", module.sizes)
    seconds = time.perf_counter() - start
    print(f"{task} seed {seed} {side}: test {found:.3f}, val {best[0]:.3f}, {seconds:.1f} s", flush=True)
    return {"task": task, "seed": seed, "side": side, "score": round(found, 4), "seconds": round(seconds, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=1, help="fits at once")
    parser.add_argument("--level", type=float, default=0.95)
    parser.add_argument("--json", type=Path, default=RESULTS / "task_scores.json")
    arguments = parser.parse_args()
    for task in arguments.tasks:  # converts the tables, once
        module_of(task, "cpu", arguments.data_dir, arguments.cache_dir, 0)
    jobs = list(
        product(arguments.tasks, range(arguments.first_seed, arguments.first_seed + arguments.seeds), reversed(SIDES))
    )
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        found = list(pool.map(partial(fit, arguments=arguments), jobs))
    rows = []
    for task in arguments.tasks:
        margin, published = TASKS[task]
        sides = {side: [one for one in found if (one["task"], one["side"]) == (task, side)] for side in SIDES}
        scores = {side: [one["score"] for one in of] for side, of in sides.items()}
        row: dict[str, Any] = {"task": task, "margin": margin, "published": published}
        for side, of in sides.items():
            row[side] = {
                "scores": scores[side],
                "mean": round(statistics.fmean(scores[side]), 4),
                "std": round(statistics.stdev(scores[side]), 4),
                "seconds": statistics.median(one["seconds"] for one in of),
            }
        row["difference"] = vars(compare(scores["ours"], scores["theirs"], margin, arguments.level))
        rows.append(row)
        print(row, flush=True)
    write_json(
        arguments.json,
        {
            "gpu": torch.cuda.get_device_name() if arguments.device == "cuda" else None,
            "seeds": arguments.seeds, "epochs": arguments.epochs, "processes": arguments.processes,
            "level": arguments.level, "width": HIDDEN, "rows": rows,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()
