"""What does sampling cost the training beside it? The kernels of an epoch, alone and beside the sampler.

    PYTHONPATH=. python benchmarks/beside_gpu.py                    # one launch, as `sampler=fused` does
    PYTHONPATH=. python benchmarks/beside_gpu.py --schedule hopwise --blocks-per-sm 0.5

The graph, the model and the loop are those of `pipeline_gpu.py`, with features in GPU memory that the first layer reads
(lazy), and with CUDA graphs. "alone" trains on mini-batches that lie ready, "beside" on those that the loader makes.
Both are timed in turns, and then each is run once more under torch's profiler, which tells when each kernel began and
ended. `gaps` is the time between two kernels of training that lie next to each other, all added up.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ints, write_json
from pipeline_gpu import NUM_CLASSES, Training, make_store, products_like, ready_batches
from report import SECTIONS, show
from torch.profiler import ProfilerActivity, profile

from loader.loaders.nodes import NodeLoader
from loader.samplers import fused
from loader.stores import FeatureStore, StoreContext

NUM_NODES, NUM_EDGES, NUM_SEEDS, NUM_FEATURES = 2_449_029, 123_718_280, 196_615, 100
READY = 24  # mini-batches


def kernels_of(run: Callable[[], Any]) -> list[tuple[int, int, str, int]]:
    """Begin and duration in nanoseconds, name and stream of what the GPU does meanwhile, in the order of beginning."""
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Profiler clears events")  # of earlier cycles, and there is one
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            run()
            torch.cuda.synchronize()
    events: Any = profiler.profiler.kineto_results.events()
    on_gpu = (e for e in events if e.device_type() == torch.autograd.DeviceType.CUDA and e.duration_ns() > 0)
    return sorted((e.start_ns(), e.duration_ns(), e.name(), e.device_resource_id()) for e in on_gpu)


def summary(kernels: list[tuple[int, int, str, int]], batches: int) -> dict[str, Any]:
    """Microseconds per mini-batch."""
    per_stream: dict[int, int] = defaultdict(int)
    for _, duration, _, stream in kernels:
        per_stream[stream] += duration
    training = max(per_stream, key=per_stream.__getitem__)
    micros = 1e-3 / batches
    own = [k for k in kernels if k[3] == training]
    gaps = sum(max(b[0] - a[0] - a[1], 0) for a, b in itertools.pairwise(own))
    per_kernel: dict[str, dict[str, float]] = {"training": defaultdict(float), "sampling": defaultdict(float)}
    for _, duration, name, stream in kernels:
        per_kernel["training" if stream == training else "sampling"][name] += duration * micros
    return {
        "epoch": (max(k[0] + k[1] for k in kernels) - kernels[0][0]) * micros,
        "training": per_stream[training] * micros,
        "gaps": gaps * micros,
        "sampling": (sum(per_stream.values()) - per_stream[training]) * micros,
        "kernels": per_kernel,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fanouts", type=ints, default=(15, 10, 5))
    parser.add_argument("--schedule", default="auto", help="of the GPU sampler, see CudaSampler")
    parser.add_argument("--blocks-per-sm", type=float, default=0)
    parser.add_argument("--epochs", type=int, default=7, help="of each kind, without the profiler")
    parser.add_argument("--json", type=Path, default=RESULTS / "beside_gpu.json")
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    generator = torch.Generator().manual_seed(0)
    graph = products_like(NUM_NODES, NUM_EDGES, "cuda")
    x = torch.randn(NUM_NODES, NUM_FEATURES, generator=generator)
    y = torch.randint(NUM_CLASSES, (NUM_NODES,), generator=generator)
    seeds = torch.randperm(NUM_NODES, generator=generator)[:NUM_SEEDS]
    sampler = fused(
        arguments.fanouts,
        device="cuda",
        batches_per_launch=8,
        schedule=arguments.schedule,
        blocks_per_sm=arguments.blocks_per_sm,
    )
    store = make_store("lazy", x, StoreContext(graph, None))
    assert isinstance(store, FeatureStore)

    def loader(prefetch: int) -> NodeLoader:
        return NodeLoader(
            graph, store, y, seeds, sampler, 1024, shuffle=True, drop_last=True, prefetch=prefetch, device="cuda"
        )

    training, ahead, inline = Training(NUM_FEATURES, len(arguments.fanouts), graphed=True), loader(2), loader(0)
    ready = ready_batches(inline, READY)
    runs = {
        "alone": lambda: training.epoch(itertools.islice(itertools.cycle(ready), len(ahead))),
        "beside": lambda: training.epoch(ahead),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.epochs + 2):
        for name, run in runs.items():
            seconds[name].append(run())
    epochs = {name: statistics.median(times[2:]) for name, times in seconds.items()}
    found = {name: summary(kernels_of(run), len(ahead)) for name, run in runs.items()}

    settings = {"fanouts": arguments.fanouts, "schedule": arguments.schedule, "blocks_per_sm": arguments.blocks_per_sm}
    gpu = torch.cuda.get_device_name()
    content = {"gpu": gpu, **settings, "batches": len(ahead), "epoch_s": epochs, "profile": found}
    print("\n".join(show(SECTIONS["beside_gpu"], content)))
    write_json(arguments.json, content)
    sampler.close()


if __name__ == "__main__":
    main()
