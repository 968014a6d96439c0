"""Is loading hidden behind training on a GPU? Stages alone, epochs pipelined, and what is left exposed.

    python benchmarks/pipeline_gpu.py                                      # all stores, both fanouts
    python benchmarks/pipeline_gpu.py --stores device --fanouts 15,10,5 --timeline timeline
    python benchmarks/pipeline_gpu.py --stores device --soak 50            # memory and threads over 50 epochs

The graph has the shape of ogbn-products (2.45 M nodes, 123.7 M edges, 100 features, 47 classes, 196,615 seeds), with
skewed degrees, made on the GPU; an epoch is the 192 full mini-batches of its seeds. The model is GraphSAGE, 3 layers of
256. Every figure of a row is taken in the same run: epochs with and without `prefetch` and, as long and in turn with
them, the stages alone (on mini-batches that lie ready; training is one), medians, synchronised at both ends. `bound` is
the number of mini-batches times the slowest stage alone. Lightning's loop, with the profiler that `train.py` gives it,
is compared with one written by hand around the same `NodeClassifier`, scores included.
"""

from __future__ import annotations

import _thread
import argparse
import gc
import itertools
import json
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, command_and_provenance, ints, resident_bytes, write_json
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

import loader.stores as stores
from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import Sampler, fused
from loader.samples import MiniBatch
from loader.stages import AnnounceStage, SampleStage
from loader.stages.move import to_gpu
from loader.stores import FeatureStore, HostFeatures, StoreContext
from loader.timing import Timeline
from models.sage import GraphSAGE
from models.training.cuda_graphs import GraphedLoss
from models.training.module import NodeClassifier
from models.training.profiler import NoProfiler
from models.training.whole_step import ReplayedAdam

NUM_CLASSES, HIDDEN = 47, 256
STORES = ("lazy", "device", "cached", "pinned", "staged", "host")


def products_like(num_nodes: int, num_edges: int, device: str) -> Graph:
    """In-degrees are log-normal; sources are drawn in proportion to them, so hubs are met often."""
    generator = torch.Generator(device).manual_seed(0)
    weights = torch.randn(num_nodes, generator=generator, device=device).mul_(1.1).exp_().double().cumsum_(0)
    ends = (weights * (num_edges / weights[-1])).round_().long()
    ends[-1] = num_edges
    indptr = torch.cat((ends.new_zeros(1), ends))
    owner = torch.repeat_interleave(torch.arange(num_nodes, device=device, dtype=torch.int32), indptr.diff())
    picks = torch.randint(num_edges, (num_edges,), generator=generator, device=device)
    return Graph(indptr, owner[picks], validate=False)


def session_of(loader: NodeLoader) -> Any:
    """The session of the sampler of a loader, which may also announce gathers."""
    first = loader.stages[0]
    sampling = first.before if isinstance(first, AnnounceStage) else first
    assert isinstance(sampling, SampleStage)
    return sampling._session


def make_store(name: str, x: torch.Tensor, context: StoreContext) -> FeatureStore | str:
    """The store, or why there is none."""
    classes = {"lazy": "DeviceFeatures", "device": "DeviceFeatures", "cached": "CachedFeatures",
               "pinned": "PinnedFeatures", "staged": "StagedFeatures", "host": "HostFeatures"}  # fmt: skip
    kind: Any = getattr(stores, classes[name], None)
    if kind is None:
        return f"loader.stores has no {classes[name]}"
    if name == "host":
        return HostFeatures(x)
    if name == "lazy":
        return kind(x, "cuda", lazy=True)
    if name == "cached":
        return kind(x, "cuda", fraction=0.25, context=context)
    return kind(x, "cuda")


class Training:
    """Forward, backward, Adam: a loop written by hand."""

    def __init__(
        self,
        num_features: int,
        num_layers: int,
        *,
        graphed: bool,
        num_classes: int = NUM_CLASSES,
        device: torch.device | str = "cuda",
    ) -> None:
        torch.manual_seed(0)
        self.model = GraphSAGE(num_features, HIDDEN, num_classes, num_layers).to(device)
        # As `models.training.module.NodeClassifier`.
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3, fused=True)
        self.graphed = graphed
        self.replays = GraphedLoss(self.loss_and_logits, self.model)
        self.adam = ReplayedAdam(self.optimizer)

    def loss_and_logits(self, batch: MiniBatch) -> tuple[torch.Tensor, torch.Tensor]:
        assert batch.y is not None
        logits = self.model(batch.blocks, batch.features)
        return F.cross_entropy(logits, batch.y), logits

    def loss(self, batch: MiniBatch) -> torch.Tensor:
        return (self.replays if self.graphed else self.loss_and_logits)(batch)[0]

    def step(self, batch: MiniBatch) -> None:
        if self.graphed and self.replays.with_gradients(batch) is not None:  # as `WholeStep`
            self.adam.step()
            return
        self.optimizer.zero_grad()
        with torch.autograd.set_multithreading_enabled(False):  # as `NodeClassifier.backward`
            self.loss(batch).backward()
        self.optimizer.step()

    def epoch(self, batches: Any) -> float:
        """Seconds, the GPU's work included."""
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for batch in batches:
            self.step(batch)
        torch.cuda.synchronize()
        return time.perf_counter() - begin


def ready_batches(loader: NodeLoader, count: int) -> list[Any]:
    """Up to `count` mini-batches of the loader's stages, where the training reads them."""
    items: list[Any] = [loader.sequence.turn(1000, step) for step in range(min(count, len(loader)))]
    for stage in loader.stages:
        items = [stage.run(item) for item in items]
    return [to_gpu(item, loader.device)[0] for item in items] if loader.device.type == "cuda" else items


class Alone:
    """The stages by themselves, on `count` mini-batches that lie ready, as many calls of each as an epoch has.

    A GPU that begins to work is faster than one that has worked for a while: what is to be compared with epochs is
    measured between them.
    """

    def __init__(self, node_loader: NodeLoader, training: Training, count: int) -> None:
        self.calls = len(node_loader)
        items: list[Any] = [node_loader.sequence.turn(1000, step) for step in range(min(count, self.calls))]
        self.stages: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {}
        for stage in node_loader.stages:
            self.stages[stage.name] = stage.run, items
            items = [stage.run(item) for item in items]
        self.stages["train"] = training.step, [to_gpu(item, node_loader.device)[0] for item in items]
        self.seconds: dict[str, list[float]] = {stage: [] for stage in self.stages}
        self.host: dict[str, list[float]] = {stage: [] for stage in self.stages}  # of those, until all was launched

    def run(self) -> None:
        """Each stage once more."""
        for stage, (function, items) in self.stages.items():
            for item in items:
                function(item)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for item in itertools.islice(itertools.cycle(items), self.calls):
                function(item)
            launched = time.perf_counter()
            torch.cuda.synchronize()
            self.seconds[stage].append((time.perf_counter() - begin) / self.calls)
            self.host[stage].append((launched - begin) / self.calls)


class Classifier(NodeClassifier):
    """That of `train.py`, for mini-batches that are where they belong, as those of `GraphDataModule`."""

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch


def make_classifier(training: Training) -> Classifier:
    return Classifier(
        training.model.first.in_dim,
        NUM_CLASSES,
        num_layers=training.model.num_layers,
        hidden_channels=HIDDEN,
        lr=3e-3,
        cuda_graph=bool(training.graphed),
    )


def epochs_by_hand(node_loader: NodeLoader, model: Classifier, epochs: int) -> list[float]:
    """Seconds an epoch of the steps of a `Classifier`, scores included, in a loop written by hand."""
    model.cuda()
    optimizer, seconds = model.configure_optimizers(), []
    for _ in range(epochs):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for i, batch in enumerate(node_loader):
            optimizer.zero_grad()
            model.backward(model.training_step(batch, i))
            optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds


def epochs_of_lightning(node_loader: NodeLoader, model: Classifier, epochs: int) -> list[float]:
    """The same of Lightning's fit loop. It takes the model back to the CPU at the end."""
    import warnings

    from lightning.pytorch import Callback, Trainer

    class Clock(Callback):
        def __init__(self) -> None:
            self.seconds: list[float] = []
            self.begin = 0.0

        def on_train_epoch_start(self, *_: Any) -> None:
            torch.cuda.synchronize()
            self.begin = time.perf_counter()

        def on_train_epoch_end(self, *_: Any) -> None:
            torch.cuda.synchronize()
            self.seconds.append(time.perf_counter() - self.begin)

    clock = Clock()
    trainer = Trainer(
        accelerator="gpu", devices=1, max_epochs=epochs, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, callbacks=[clock],
        profiler=NoProfiler(),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(model, node_loader)
    return clock.seconds


def measure(make: Callable[[int], NodeLoader], training: Training, arguments: argparse.Namespace) -> dict[str, Any]:
    ahead, inline = make(arguments.prefetch), make(0)
    for _ in range(2):
        training.epoch(ahead)
    alone, batches = Alone(inline, training, arguments.alone), len(ahead)  # that one's sampler has the GPU to itself
    alone.run()  # to warm up: its times are left out below
    ahead.stats.reset()
    runs: dict[str, list[float]] = {"pipelined": [], "inline": []}
    for _ in range(arguments.epochs):
        runs["pipelined"].append(training.epoch(ahead))
        runs["inline"].append(training.epoch(inline))
        alone.run()
    stages, hosts = (
        {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
        for times in (alone.seconds, alone.host)
    )
    epoch, slowest = statistics.median(runs["pipelined"]), max(stages, key=lambda name: stages[name])
    only_training, stats = batches * stages["train"], ahead.stats
    row = {
        "ahead": ahead.ahead,
        "stages": [stage.name for stage in ahead.stages],
        "batches": batches,
        "alone_ms": {name: 1e3 * seconds for name, seconds in stages.items()},
        "alone_host_ms": {name: 1e3 * seconds for name, seconds in hosts.items()},
        "slowest": slowest,
        "epoch_s": epoch,
        "epochs_s": runs["pipelined"],
        "inline_epoch_s": statistics.median(runs["inline"]),
        "training_alone_s": only_training,
        "over_bound": epoch / (batches * stages[slowest]),
        "exposed": epoch / only_training - 1,
        "gpu_waiting_ms": 1e3 * stats.gpu_waiting / max(stats.gpu_items, 1),
        "gpu_ms": {name: 1e3 * seconds / max(stats.gpu_items, 1) for name, seconds in stats.gpu_busy.items()},
        "host_ms": {name: 1e3 * seconds / stats.items for name, seconds in stats.busy.items()},
        "host_waiting_ms": 1e3 * stats.waiting / stats.items,
        "throttled_ms": 1e3 * stats.throttled / stats.items,
        "max_mini_batches": ahead.max_items,
        "max_mib": ahead.max_bytes / 2**20,
    }
    if arguments.lightning:
        epochs: dict[str, list[float]] = {"module": [], "lightning": []}
        for _ in range(2):
            for name, run in (("module", epochs_by_hand), ("lightning", epochs_of_lightning)):
                epochs[name] += run(ahead, make_classifier(training), arguments.epochs + 2)[2:]
        by_hand, lightning = (statistics.median(epochs[name]) for name in ("module", "lightning"))
        row["module_epoch_s"], row["lightning_epoch_s"] = by_hand, lightning
        row["lightning_over_hand_written"] = lightning / by_hand
    ahead.close()
    return row


def pinned_bytes() -> int:
    """Page-locked memory that torch's allocator holds; -1 where this torch does not say."""
    stats: dict[str, Any] = getattr(torch.cuda, "host_memory_stats", dict)()
    return int(stats.get("allocated_bytes.current", stats.get("allocated_bytes.all.current", -1)))


def soak(node_loader: NodeLoader, training: Training, epochs: int) -> list[dict[str, float]]:
    """Memory and threads after each epoch."""
    rows = []
    for epoch in range(epochs):
        seconds = training.epoch(node_loader)
        gc.collect()
        rows.append(
            {
                "epoch": epoch,
                "seconds": seconds,
                "resident_mib": resident_bytes() / 2**20,
                "pinned_mib": pinned_bytes() / 2**20,
                "reserved_mib": torch.cuda.memory_reserved() / 2**20,
                "threads": threading.active_count(),
            }
        )
    return rows


def interrupted(node_loader: NodeLoader, training: Training) -> float:
    """Seconds from Ctrl-C in the middle of an epoch until it has ended and no thread of the loader is left."""
    begin = 0.0

    def interrupt() -> None:
        nonlocal begin
        begin = time.perf_counter()
        _thread.interrupt_main()

    timer = threading.Timer(0.2, interrupt)
    timer.start()
    try:
        while True:
            training.epoch(node_loader)
    except KeyboardInterrupt:
        node_loader.close()
    while any(thread.name.startswith("loader-") for thread in threading.enumerate()):
        time.sleep(0.001)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", nargs="+", default=STORES, choices=STORES)
    parser.add_argument("--fanouts", type=ints, nargs="+", default=[(15, 10, 5), (10, 10, 10)])
    parser.add_argument("--sample-on", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--edges", type=int, default=123_718_280)
    parser.add_argument("--seeds", type=int, default=196_615)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5, help="of each kind")
    parser.add_argument("--alone", type=int, default=24, help="mini-batches for the stages alone")
    parser.add_argument("--schedule", default="auto", help="of the GPU sampler, see CudaSampler")
    parser.add_argument("--blocks-per-sm", type=float, default=None)
    parser.add_argument("--no-priority", action="store_true", help="the stages' streams have no priority")
    parser.add_argument("--graphed", type=int, nargs="+", default=[0, 1], help="0: plain steps, 1: by CUDA graphs")
    parser.add_argument(
        "--batches-per-launch", type=int, nargs="+", default=[8], help="mini-batches that are sampled together"
    )
    parser.add_argument("--no-lightning", dest="lightning", action="store_false")
    parser.add_argument("--append", action="store_true", help="keep the rows of the file that this run does not repeat")
    parser.add_argument("--soak", type=int, default=0, help="epochs of the soak, with each store")
    parser.add_argument("--timeline", type=Path, default=None, help="writes <path>-<store>.json and .png")
    parser.add_argument("--json", type=Path, default=RESULTS / "pipeline_gpu.json")
    arguments = parser.parse_args()

    torch.set_float32_matmul_precision("high")
    console = Console(width=160)
    begin = time.perf_counter()
    on_gpu = products_like(arguments.nodes, arguments.edges, "cuda")
    graph = on_gpu if arguments.sample_on == "cuda" else on_gpu.to("cpu")
    degrees = on_gpu.in_degrees()
    console.print(f"{on_gpu!r}, in-degrees up to {int(degrees.max())}, {time.perf_counter() - begin:.1f} s")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(arguments.nodes, arguments.features, device="cuda").cpu()
    y = torch.randint(NUM_CLASSES, (arguments.nodes,), generator=generator)
    seeds = torch.randperm(arguments.nodes, generator=generator)[: arguments.seeds]
    rows: list[dict[str, Any]] = []
    earlier_rows = (
        json.loads(arguments.json.read_text())["rows"] if arguments.append and arguments.json.exists() else []
    )
    skipped: dict[str, str] = {}
    for fanouts, name, together in itertools.product(arguments.fanouts, arguments.stores, arguments.batches_per_launch):
        on_gpu_only = {
            "schedule": arguments.schedule,
            "blocks_per_sm": arguments.blocks_per_sm,
            "batches_per_launch": together,
        }
        sampler: Sampler = fused(
            fanouts, device=arguments.sample_on, **(on_gpu_only if arguments.sample_on == "cuda" else {})
        )
        visits = partial(
            NodeLoader, graph, None, None, seeds, sampler, arguments.batch_size, shuffle=True, seed=0, prefetch=0
        )
        context = StoreContext(graph, visits)
        store = make_store(name, x, context)
        if isinstance(store, str):
            skipped[name] = store
            console.print(f"{name}: left out, {store}")
            continue
        own_store: FeatureStore = store

        def make(prefetch: int, store: FeatureStore = own_store, sampler: Sampler = sampler) -> NodeLoader:
            return NodeLoader(
                graph, store, y, seeds, sampler, arguments.batch_size, shuffle=True, drop_last=True, prefetch=prefetch,
                device="cuda", prioritize_loading=not arguments.no_priority,
            )  # fmt: skip

        for graphed in arguments.graphed:
            training = Training(arguments.features, len(fanouts), graphed=graphed)
            measured = measure(make, training, arguments)
            row = {
                "store": name,
                "fanouts": list(fanouts),
                "graphed": graphed,
                "batches_per_launch": together,
                "schedule": arguments.schedule,
                "blocks_per_sm": arguments.blocks_per_sm,
                **measured,
                **command_and_provenance(),  # with --append the rows of a file come from several runs
            }
            rows.append(row)
            console.print_json(data={k: v for k, v in row.items() if k != "epochs_s"}, indent=None)
        if arguments.timeline is not None:
            from models.training.callbacks.timeline_record import LANES, draw

            timed = make(arguments.prefetch)
            timed.timeline = Timeline(len(timed) // 2, 3 * together)
            training.epoch(timed)
            path = arguments.timeline.with_name(f"{arguments.timeline.name}-{name}-{len(rows)}")
            timed.timeline.write_chrome(path.with_suffix(".json"), LANES)
            draw(timed.timeline, path.with_suffix(".png"), f"features {name}, fanouts {fanouts}, {together} a launch")
        if arguments.soak:
            row["soak"] = soak(make(arguments.prefetch), training, arguments.soak)
            row["interrupt_s"] = interrupted(make(arguments.prefetch), training)
            console.print_json(data=[*(row["soak"][i] for i in (0, 2, -1)), row["interrupt_s"]], indent=None)
        own_store.close()
        sampler.close()
        del own_store, store, training, context, sampler, make
        gc.collect()
        torch.cuda.empty_cache()

    table = Table(title=f"{on_gpu.num_edges:,} edges, batch {arguments.batch_size}, {torch.cuda.get_device_name()}")
    for head in _HEADS:
        table.add_column(head)
    for row in rows:
        ms = {name: f"{row['alone_ms'][name]:.3f}" if name in row["alone_ms"] else "" for name in (*_STAGES, "train")}
        table.add_row(
            row["store"], str(row["fanouts"]), "yes" if row["graphed"] else "no",
            str(row["batches_per_launch"]), row["ahead"], *ms.values(),
            f"{row['epoch_s']:.3f}",
            f"{row['over_bound']:.3f} x", f"{row['inline_epoch_s']:.3f}", f"{row['training_alone_s']:.3f}",
            f"{row['exposed']:.1%}",
            f"{row['lightning_over_hand_written']:.3f} x" if "lightning_over_hand_written" in row else "",
        )  # fmt: skip
    console.print(table)
    done = {_key(row) for row in rows}
    rows = [row for row in earlier_rows if _key(row) not in done] + rows
    write_json(
        arguments.json,
        {
            "gpu": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "num_nodes": on_gpu.num_nodes,
            "num_edges": on_gpu.num_edges,
            "max_degree": int(degrees.max()),
            "hidden": HIDDEN,
            "batch_size": arguments.batch_size,
            "sample_on": arguments.sample_on,
            "rows": rows,
            "left_out": skipped,
        },
    )


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        *(row["store"], tuple(row["fanouts"]), row["graphed"]),
        *(row.get("batches_per_launch", 1), row.get("schedule", "auto"), row.get("blocks_per_sm")),
    )


_STAGES = ("sample", "gather", "move")
_HEADS = (
    *(
        "features",
        "fanouts",
        "graphed",
        "together",
        "ahead",
        *(f"{stage} ms" for stage in _STAGES),
        "train ms",
        "epoch s",
        "over bound",
    ),
    *("prefetch=0 s", "training alone s", "exposed", "Lightning"),
)

if __name__ == "__main__":
    main()
