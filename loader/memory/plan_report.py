"""What a budget of GPU memory would choose, before training: a part of `python -m loader.inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loader.datasets import HeteroDataset, NodeDataset, RelationalData
from loader.machine.arguments import as_size
from loader.machine.gpu import cuda_device, require_cuda
from loader.machine.optional import import_optional
from loader.memory.budget import MemoryBudget, available_bytes
from loader.memory.hetero import seeds_of_splits
from loader.memory.plan import readable
from loader.samplers import resolve_fanouts
from loader.samplers.gpu.memory_needs import check_counted
from loader.samplers.gpu.sizes import TOGETHER, GpuOptions
from loader.stores import RowOptions

if TYPE_CHECKING:
    from rich.console import Console


def memory_card(
    memory: str | int,
    data: NodeDataset | HeteroDataset,
    fanouts: Sequence[int],
    sizes: tuple[int, int | None],
    prefetch: int,
    seed: int,
    storage_dtype: str | None = None,
) -> dict[str, Any]:
    """What a `GraphDataModule` with this budget and `sampler=fused` on a GPU chooses, see `MemoryPlan.card`, or of a
    dataset with types `HeteroPlan.card`.

    Args:
        memory: bytes, or "auto" for those of the current GPU.
        data: the dataset.
        fanouts: of the sampler.
        sizes: seeds of a mini-batch of training, and of validation (None: the same).
        prefetch: of the loaders.
        seed: of the order and of the picks.
        storage_dtype: see `RowOptions`.

    Raises:
        ValueError: the budget does not hold what training needs, see `MemoryBudget.plan`; or the dataset is a task on
            tables, which is sampled otherwise.
        NoGpuError: "auto" on a machine without a GPU.
    """
    if isinstance(data, RelationalData):
        raise ValueError(
            f"memory_gib is given, but {data.name} is a task on tables, whose items are sampled in trees; leave "
            "it out: the log of train.py memory=GIB says what was chosen"
        )
    sampler = GpuOptions(resolve_fanouts(fanouts), seed=seed)
    sampler.batches_per_launch = TOGETHER
    check_counted(sampler)
    available = None
    if memory == "auto":
        require_cuda("memory_gib='auto'")
        available = available_bytes(memory, cuda_device(None), None)
    size = as_size("batch_size", sizes[0])
    samplers = [(sampler, size), (sampler, size if sizes[1] is None else as_size("eval_batch_size", sizes[1]))]
    options: RowOptions = {} if storage_dtype is None else {"storage_dtype": storage_dtype}
    budget = MemoryBudget(memory, options)
    if isinstance(data, HeteroDataset):
        return budget.plan_types(data, seeds_of_splits(data), samplers, prefetch, seed, available).card()
    return budget.plan(data, samplers, prefetch, seed, available).card()


def show_memory(plan: dict[str, Any], console: Console) -> None:
    """Prints what `memory_card` returned."""
    Table = import_optional("rich.table", "loader.inspect", "datasets").Table
    console.print(f"\n{readable(plan['budget_bytes'])} of GPU memory, split so that the fewest bytes cross the bus")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    needs = plan["needs"]
    for what, name in (
        ("workspace of the sampler", "workspace"),
        ("mini-batches in flight", "outstanding"),
        ("rows of mini-batches in flight", "outstanding_rows"),
        ("labels, seeds, places of the lists", "tables"),
        *([("the host's part of a gather", "host_part")] if needs["host_part"] else []),
    ):
        table.add_row(what, readable(needs[name]))
    for what, share, nbytes in _shares(plan):
        table.add_row(what, f"{share:.1%}, {readable(nbytes)}")
    ahead = f" (fewer with lookahead {plan['lookahead']})" if plan.get("lookahead") else ""
    table.add_row("over the bus per mini-batch" + ahead, readable(plan["bus_bytes_a_batch"]))
    table.add_row("with nothing in GPU memory", readable(plan["bus_bytes_a_batch_without"]))
    if narrower := plan.get("narrower"):
        name, share = narrower["storage_dtype"], narrower["share_of_rows"]
        table.add_row(f"with rows of {name}, {share:.1%} of all in GPU memory", readable(narrower["bus"]))
    console.print(table)
    console.print(f"option of train.py: memory={plan['budget_bytes'] / 2**30:.6g}")


def _shares(plan: dict[str, Any]) -> list[tuple[str, float, int]]:
    """What is kept of lists and rows, in words, as a share and in bytes."""
    if isinstance(plan["features"], str):
        return [
            ("neighbor lists, of all edges", plan["share_of_edges"], plan["list_bytes"]),
            ("feature rows, of all rows", plan["share_of_rows"], plan["row_bytes"]),
        ]
    graph = ("the graph but for its places", float(plan["graph"] == "device"), plan["list_bytes"])
    shares, nbytes = plan["share_of_rows"], plan["row_bytes"]
    return [graph, *((f"feature rows of {name}", shares[name], nbytes[name]) for name in shares)]
