"""Samples some mini-batches of a graph and shows their sizes, repeats, degrees, cache hits, memory and time.

python -m loader.inspect --dataset ogbn-arxiv --data-dir data --fanouts 15,10,5 --batch-size 1024
python -m loader.inspect --dataset mygraph.npz --json card.json
python -m loader.inspect --dataset synthetic num_nodes=100000 mean_degree=30
python -m loader.inspect --dataset orders.npz --fanouts 10,10 --leaks

Of a dataset with several types of nodes and edges it shows sizes by type and degrees by relation. With --leaks it looks
in place of that for what is later than the seed that sees it; if there is any, the command ends with exit code 3.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loader.datasets import DatasetError, HeteroDataset, open_dataset
from loader.datasets.locations import check_output
from loader.datasets.named import option_names
from loader.graph.times import TIMES
from loader.inspect.batch_report import inspect, show
from loader.inspect.batches import check_numbers, items_of
from loader.inspect.leaks import leaks_of, show_leaks
from loader.inspect.types import show_types
from loader.machine.command_line import OneLineParser, called
from loader.machine.gpu import NoGpuError
from loader.machine.optional import import_optional
from loader.memory.plan import as_memory
from loader.samplers import resolve_fanouts

if TYPE_CHECKING:
    from rich.console import Console

LEAKS = 3  # the exit code if there are any


def _fanouts(text: str) -> list[int]:
    words: list[Any] = [word.strip() for word in text.strip("[]").split(",")]  # brackets: as of train.py
    try:
        return list(resolve_fanouts([int(word) if word.lstrip("-").isdecimal() else word for word in words]))
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _memory(text: str) -> str | float:
    memory: str | float = text
    with suppress(ValueError):
        memory = float(text)
    try:
        as_memory(memory)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return memory


def _put(
    card: dict[str, Any], shower: Callable[[dict[str, Any], Console], None], file: str | None, note: str = ""
) -> None:
    """Prints figures below a note, and writes them to a file; only their JSON is printed if `file` is "-"."""
    text = json.dumps(card, indent=1)
    if file == "-":
        print(text)
        return
    console = import_optional("rich.console", "loader.inspect", "datasets").Console(highlight=False)
    if note:
        console.print(note)
    shower(card, console)
    if file is not None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(text + "\n", encoding="utf-8")


def _refuse_others(parser: OneLineParser, arguments: Sequence[str]) -> None:
    """Ends with one line for an argument as train.py takes it, or an option of the dataset with dashes."""
    for argument in arguments:
        name, _, value = argument.partition("=")
        group, _, key = name.rpartition(".")
        own = f"--{key.replace('_', '-')}"
        if name == "dataset":
            parser.error(f"{argument} is as train.py takes it; here it is --dataset {value}")
        if group == "dataset":
            parser.error(f"{argument} is as train.py takes it; here it is {key}={value}")
        if group in ("sampler", "datamodule", "features") and own in parser.options:
            parser.error(f"{argument} is as train.py takes it; here it is {own} {value}")
        key = name.lstrip("-").replace("-", "_")
        if name.startswith("--") and not parser.has(name) and key in option_names():
            parser.error(f"there is no {name}; an option of the dataset has no dashes: {key}={value or 'VALUE'}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = OneLineParser(
        prog=called("inspect"),
        description=str(__doc__).replace("python -m loader.inspect", called("inspect")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dataset", required=True, help="name of a dataset (a file in conf/dataset), or a .npz file")
    parser.add_argument(
        "options", nargs="*", metavar="KEY=VALUE", help="options of the dataset, as for train.py without 'dataset.'"
    )
    parser.add_argument("--data-dir", default="data", help="folder of the raw files (default: data)")
    parser.add_argument("--cache-dir", default=None, help="folder of the converted graphs (default: data-dir/cache)")
    parser.add_argument(
        "--conf", type=Path, default=None, help="folder with dataset/NAME.yaml (default: the loader's own)"
    )
    fanouts = "neighbors per node of each hop, from the seeds outward (default: 10,10)"
    parser.add_argument("--fanouts", type=_fanouts, default=[10, 10], help=fanouts)
    parser.add_argument("--batch-size", type=int, default=1024, help="seeds of a mini-batch (default: 1024)")
    parser.add_argument("--batches", type=int, default=20, help="number of mini-batches to sample (default: 20)")
    parser.add_argument(
        "--prefetch", type=int, default=None, help="mini-batches that the loader holds ready per stage (default: 2)"
    )
    memory = "budget of GPU memory, or auto; what memory=GIB of train.py chooses is shown"
    parser.add_argument("--memory", type=_memory, default=None, metavar="GIB", help=memory)
    parser.add_argument(
        "--eval-batch-size", type=int, default=None, help="seeds of a mini-batch of validation (default: --batch-size)"
    )
    help_of_type = "type in which features are kept: float16, bfloat16, int8 or float8 (default: that of the dataset)"
    parser.add_argument("--storage-dtype", default=None, help=help_of_type)
    parser.add_argument("--num-threads", type=int, default=None, help="default: one per processor")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    leaks = "look for edges, nodes and features that are later than the seed that sees them"
    parser.add_argument("--leaks", action="store_true", help=leaks)
    times = "with --leaks: whose times the sampler counts, see TreeSampler (default: both)"
    parser.add_argument("--times", choices=("none", *TIMES), default=None, help=times)
    parser.add_argument(
        "--json", default=None, metavar="FILE", help="write the figures to this file; with - print only them"
    )
    _refuse_others(parser, sys.argv[1:] if arguments is None else arguments)
    args = parser.parsed(arguments)
    try:
        if args.json not in (None, "-"):
            check_output("--json", Path(args.json), args.dataset)
        options = {"--times": args.times, "--memory": args.memory, "--storage-dtype": args.storage_dtype}
        options |= {"--eval-batch-size": args.eval_batch_size, "--prefetch": args.prefetch}
        for option, given in options.items():
            if given is not None and args.leaks == (option != "--times"):
                raise ValueError(f"{option} is {given}, which goes {'without' if args.leaks else 'with'} --leaks")
        prefetch = 2 if args.prefetch is None else args.prefetch
        planned = args.memory is not None
        check_numbers(args.batches, prefetch, args.num_threads, args.seed, args.eval_batch_size, planned=planned)
        data = open_dataset(
            args.dataset, args.options, data_dir=args.data_dir, cache_dir=args.cache_dir, seed=args.seed, conf=args.conf
        )
        if args.leaks:  # whose seeds are the items of a task on tables
            card = leaks_of(
                data, args.fanouts, args.batch_size, batches=args.batches, times=args.times or "both", seed=args.seed,
                num_threads=args.num_threads,
            )  # fmt: skip
            _put(card, show_leaks, args.json)
            if card["leaks"]:
                sys.exit(LEAKS)
            return
        batch_size = min(args.batch_size, len(items_of(data)))
        card = inspect(
            data,
            args.fanouts,
            batch_size,
            batches=args.batches,
            prefetch=prefetch,
            num_threads=args.num_threads,
            seed=args.seed,
            memory_gib=args.memory,
            # Other splits may have more seeds than the train split, to which `batch_size` is cut.
            eval_batch_size=args.batch_size if planned and args.eval_batch_size is None else args.eval_batch_size,
            storage_dtype=args.storage_dtype,
        )
        note = ""
        if batch_size < args.batch_size:
            note = f"[dim]--batch-size {args.batch_size}: the train split has {batch_size} nodes only[/]"
        _put(card, show_types if isinstance(data, HeteroDataset) else show, args.json, note)
    except (ValueError, TypeError, ImportError, OSError, NoGpuError, DatasetError) as error:
        sys.exit(f"error: {' '.join(str(error).split())}")
