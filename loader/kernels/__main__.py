"""Lists the compiled GPU kernels, and compiles kernels ahead of their first use, without a GPU.

python -m loader.kernels                                    # lists the kernels in the cache
python -m loader.kernels compile --arch 90 --arch 100       # compiles every kernel, for these chips
python -m loader.kernels compile --arch 90 --match gather   # compiles those with this text in their name
python -m loader.kernels clear                              # empties the cache
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

from loader.kernels import cache as disk
from loader.kernels.compiler import OLDEST_ARCHITECTURE, Wanted, all_kernels, make
from loader.kernels.host import HOST
from loader.kernels.nvrtc import CompilationError, NoCompilerError, compiler
from loader.machine.command_line import OneLineParser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = OneLineParser(prog="python -m loader.kernels", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("list", help="list the kernels in the cache (the default)")
    commands.add_parser("clear", help="empty the cache")
    ahead = commands.add_parser("compile", help="compile kernels ahead of their first use")
    ahead.add_argument(
        "--arch",
        type=_architecture,
        action="append",
        required=True,
        help="compute capability of the chip without the dot, e.g. 90; may be given several times",
    )
    ahead.add_argument("--match", action="append", default=[], help="compile only kernels with this text in their name")
    ahead.add_argument("--widths", default="all", choices=["all", "two"], help=_WIDTHS_HELP)
    ahead.add_argument("--index-types", default="all", choices=["all", "int32"], help=_TYPES_HELP)
    ahead.add_argument("--workers", type=_workers, help="threads that compile; by default one per core")
    options = parser.parsed(arguments)
    if disk.folder().exists() and not disk.folder().is_dir():
        print(f"gnn-loader: the cache {disk.folder()} is no folder; let LOADER_KERNEL_CACHE name one", file=sys.stderr)
        return 2
    try:
        status = {"compile": _compile, "clear": _clear}.get(options.command, _list)(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest when it ends
        return 1
    except (NoCompilerError, CompilationError) as error:
        print(f"gnn-loader: {error}", file=sys.stderr)
        return 1


def _architecture(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"it is {text!r}; it must be an integer, e.g. 90 for sm_90")
    return int(text)


def _workers(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"workers is {text!r}; it must be an integer of at least 1")
    return int(text)


_WIDTHS_HELP = "of kernels that exist per range of fanouts: two: those for up to 10 and for any; all: all of them"
_TYPES_HELP = "of kernels that exist per type of indptr and indices: int32: those for int32; all: all of them"
_LEFT_OUT = tuple(f"_kernel<{width}," for width in (15, 20, 32))


def _compile(options: argparse.Namespace) -> int:
    supported = compiler().architectures()
    for arch in options.arch:
        if arch not in supported or arch < OLDEST_ARCHITECTURE:
            usable = ", ".join(str(known) for known in supported if known >= OLDEST_ARCHITECTURE)
            print(f"gnn-loader: --arch {arch}; NVRTC {compiler().text} compiles for {usable}", file=sys.stderr)
            return 2
    wanted = [one for arch in options.arch for one in all_kernels(arch) if _is_wanted(one, options)]
    if not wanted:
        print(
            f"gnn-loader: no kernel has {' or '.join(options.match)} in its name; leave out --match for all",
            file=sys.stderr,
        )
        return 2
    begun = time.perf_counter()
    made = make(wanted, workers=options.workers)
    compiled = sum(one.compiled for one in made)
    print(
        f"{len(made)} kernels for {_names(options.arch)}: {compiled} compiled in {time.perf_counter() - begun:.1f} s, "
        f"{len(made) - compiled} were there; in {disk.folder()}"
    )
    return 0


def _is_wanted(one: Wanted, options: argparse.Namespace) -> bool:
    if options.widths == "two" and any(text in one.name for text in _LEFT_OUT):
        return False
    if options.index_types == "int32" and "int64_t" in one.name:
        return False
    return not options.match or any(text in one.name for text in options.match)


def _list(_options: argparse.Namespace) -> int:
    held, damaged, sizes = Counter[tuple[int, str]](), 0, dict[int, int]()
    for path, entry in disk.entries():
        sizes[path.lstat().st_ino] = path.lstat().st_size  # kernels of one program are one file
        if entry is None:
            damaged += 1
            print(f"damaged: {path.name}")
        else:
            held[entry.architecture, entry.compiler] += 1
            print(f"{_chip(entry.architecture):<5}  {len(entry.code):>9,} bytes  {entry.name}")
    groups = "; ".join(f"{count} for {_chip(arch)} by {made_by}" for (arch, made_by), count in sorted(held.items()))
    broken = f"; {damaged} damaged" if damaged else ""
    print(f"{disk.folder()}: {groups or 'nothing'}{broken} ({sum(sizes.values()) / 2**20:.1f} MiB)")
    return 0


def _clear(_options: argparse.Namespace) -> int:
    count = 0
    for path, _ in disk.entries():
        path.unlink(missing_ok=True)
        count += 1
    print(f"{disk.folder()}: {count} kernels removed")
    return 0


def _chip(architecture: int) -> str:
    return "cpu" if architecture == HOST else f"sm_{architecture}"


def _names(architectures: Sequence[int]) -> str:
    return ", ".join(f"sm_{arch}" for arch in architectures)


if __name__ == "__main__":
    sys.exit(main())
