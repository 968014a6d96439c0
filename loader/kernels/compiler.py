"""Provides the kernels that the core asks for: from the cache on disk, or by NVRTC, several at a time."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

import torch

from loader import _core
from loader.kernels import cache as disk
from loader.kernels.nvrtc import NoCompilerError, compiler
from loader.machine.arguments import as_size
from loader.machine.cpus import available_cpus

OLDEST_ARCHITECTURE = 75
# An include of one of our headers, or of a stand-in for a standard one.
_INCLUDE = re.compile(r'^\s*#include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
_TELL_AFTER = 1.0  # seconds of compilation, until a line says what is being done
_MOST_TOGETHER = 16  # kernels of a program
_MOST_SOURCE = 1_200_000  # characters per program, its sources counted per kernel: the longest gain nothing beyond four
_PROGRAMS_PER_WORKER = 16  # at least: they take from a tenth of a second to many


class Wanted(NamedTuple):
    """A kernel, and the architecture that it is compiled for.

    Attributes:
        header: the file of the kernel, below csrc/.
        name: of the kernel, in C++.
        architecture: 10 * major + minor.
    """

    header: str
    name: str
    architecture: int


class Made(NamedTuple):
    entry: disk.Entry
    compiled: bool  # now; else it was kept from before


_lock = threading.Lock()
_under_way: dict[str, Future[disk.Entry]] = {}
_added: dict[str, str] = {}  # headers beside the core's


def compile_kernels(
    kernels: Iterable[tuple[str, str]], architecture: int, refused: bool = False
) -> list[tuple[bytes, str]]:
    """The code of kernels for a chip, and their names in the code. The core calls this when it first needs them.

    Args:
        kernels: (header, name) of each kernel.
        architecture: of the chip, 10 * major + minor.
        refused: the driver did not load the code that this function gave before, so the kernels are compiled again.

    Raises:
        NoCompilerError: a kernel must be compiled, but there is no NVRTC, or NVRTC or the chip is too old.
        CompilationError: a kernel does not compile.
    """
    _check_architecture(architecture)
    wanted = [Wanted(header, name, architecture) for header, name in kernels]
    if refused:
        for one in wanted:
            disk.remove(key_of(one))
    return [(made.entry.code, made.entry.symbol) for made in make(wanted, on_compile=_Announcement(architecture))]


def check_kernels(architecture: int) -> None:
    """Raises NoCompilerError if kernels cannot be compiled here for such a chip. The message says what to do."""
    _check_architecture(architecture)
    _check_driver(compiler().version)


def make(
    wanted: Sequence[Wanted],
    *,
    workers: int | None = None,
    on_compile: Callable[[int], Callable[[], None]] | None = None,
) -> list[Made]:
    """The kernels, in this order, compiled if they are not in the cache.

    Args:
        workers: threads that compile; by default one per usable core.
        on_compile: called with the number of kernels before some are compiled; what it gives is called afterwards.
    """
    by_key = {key_of(one): one for one in wanted}
    cached = {key: disk.read(key) for key in by_key}
    missing = {key: one for key, one in by_key.items() if cached[key] is None}
    compiled = _compile(missing, workers or available_cpus(), on_compile) if missing else {}
    return [Made(compiled.get(key) or _whole(cached[key]), key in compiled) for key in map(key_of, wanted)]


def key_of(wanted: Wanted) -> str:
    """The name of a kernel in the cache: it follows from all that decides its code."""
    made_by = torch.version.cuda or "", os.environ.get("LOADER_NVRTC", "")
    return disk.key_of(wanted.name, _source_digest(wanted.header), *_options(wanted.architecture), *made_by)


def all_kernels(architecture: int) -> list[Wanted]:
    """Every kernel that a run on such a chip can ask for."""
    return [Wanted(header, name, architecture) for header, name in _core.cuda_kernels()]


def _compile(
    missing: Mapping[str, Wanted], workers: int, on_compile: Callable[[int], Callable[[], None]] | None
) -> dict[str, disk.Entry]:
    _check_driver(compiler().version)
    found: dict[str, disk.Entry] = {}
    while left := [key for key in missing if key not in found]:
        with _lock:  # what another thread compiles is waited for
            futures = {key: _under_way.get(key, Future()) for key in left}
            own = [key for key in left if key not in _under_way]
            _under_way.update((key, futures[key]) for key in own)
        done = None
        try:
            done = on_compile(len(own)) if on_compile and own else None
            programs = _programs({key: missing[key] for key in own}, workers)
            with ThreadPoolExecutor(max(1, min(len(programs), workers)), "kernel-compiler") as pool:
                list(pool.map(partial(_compile_program, results=futures), programs))
        finally:
            with _lock:
                for key in own:
                    del _under_way[key]
                    futures[key].cancel()  # if this thread was interrupted before it was compiled
            if done:
                done()
        for key, future in futures.items():
            with suppress(CancelledError):  # another thread was interrupted: it is this one's turn
                found[key] = future.result()
    return found


def _programs(wanted: Mapping[str, Wanted], workers: int) -> list[dict[str, Wanted]]:
    """The kernels dealt to programs, which are compiled one by one. Several of one header take less time together.

    A kernel's code is then that of all its program. So where there are cores enough, each has its own.
    """
    most = max(1, min(_MOST_TOGETHER, len(wanted) // (_PROGRAMS_PER_WORKER * workers)))
    by_source: dict[tuple[str, int], list[str]] = {}
    for key, one in wanted.items():
        by_source.setdefault((one.header, one.architecture), []).append(key)
    programs = []
    for (header, _), keys in by_source.items():
        source = sum(map(len, closure_of(header).values()))  # 0 if there is no such header, which NVRTC will say
        each = min(most, max(1, _MOST_SOURCE // max(1, source)))
        programs += [{key: wanted[key] for key in keys[first : first + each]} for first in range(0, len(keys), each)]
    return programs


def _compile_program(wanted: Mapping[str, Wanted], results: Mapping[str, Future[disk.Entry]]) -> None:
    try:
        tool = compiler()
        header, _, architecture = next(iter(wanted.values()))
        names = [one.name for one in wanted.values()]
        code, symbols = tool.compile(f'#include "{header}"\n', closure_of(header), names, _options(architecture))
        made_by = f"NVRTC {tool.text}"
        program = {
            key: disk.Entry(name, architecture, made_by, symbol, code)
            for key, name, symbol in zip(wanted, names, symbols, strict=True)
        }
        disk.write(program)
        for key, entry in program.items():
            results[key].set_result(entry)
    except BaseException as error:
        for key in wanted:  # whoever asks for a result gets it
            if not results[key].done():
                results[key].set_exception(error)


def _options(architecture: int) -> list[str]:
    return [f"-arch=sm_{architecture}", "-std=c++17", "-default-device"]


def _check_architecture(architecture: int) -> None:
    as_size("architecture", architecture, least=0)  # of 9.0 it is 90
    if architecture < OLDEST_ARCHITECTURE:
        raise NoCompilerError(
            f"this GPU has compute capability {_version(architecture)}; the kernels need "
            f"{_version(OLDEST_ARCHITECTURE)} or newer. Use device=cpu"
        )


def _check_driver(version: tuple[int, int]) -> None:
    try:
        driver = _core.cuda_driver_version()
    except RuntimeError:
        return  # there is none: kernels are compiled ahead
    if driver // 1000 < version[0]:
        raise NoCompilerError(
            f"the NVIDIA driver is for CUDA {driver // 1000}.{driver % 1000 // 10}, and NVRTC {version[0]}."
            f"{version[1]} makes kernels that need CUDA {version[0]}: update the driver, or install a torch for CUDA "
            f"{driver // 1000}"
        )


def add_source(name: str, text: str) -> None:
    """Adds a header of a user's to those of the core. Its name follows from its text: it stays what it is."""
    if _added.setdefault(name, text) != text:
        raise ValueError(f"there is another source named {name}")


@cache
def _sources() -> dict[str, str]:
    return _core.cuda_sources()


@cache
def closure_of(header: str) -> dict[str, str]:
    """A header and all that it includes, by name."""
    found: dict[str, str] = {}
    left = [header]
    while left:
        name = left.pop()
        text = _sources().get(name) or _added.get(name)
        if name not in found and text is not None:
            found[name] = text
            left += _INCLUDE.findall(text)
    return found


@cache
def _source_digest(header: str) -> str:
    digest = hashlib.sha256()
    for name, text in sorted(closure_of(header).items()):
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()


class _Announcement:
    """Says in a line what is compiled, if it takes long, and how long it took."""

    def __init__(self, architecture: int) -> None:
        self.architecture = architecture

    def __call__(self, count: int) -> Callable[[], None]:
        begun = time.perf_counter()
        kernels = "1 GPU kernel" if count == 1 else f"{count} GPU kernels"
        where = f"for sm_{self.architecture}; the next start finds them in {disk.folder()}"
        timer = threading.Timer(_TELL_AFTER, _say, [f"compiling {kernels} {where}"])
        timer.daemon = True
        timer.start()

        def done() -> None:
            timer.cancel()
            if (seconds := time.perf_counter() - begun) > _TELL_AFTER:
                _say(f"compiled {kernels} in {seconds:.1f} s")

        return done


def _say(text: str) -> None:
    print(f"gnn-loader: {text}", file=sys.stderr, flush=True)


def _version(architecture: int) -> str:
    return f"{architecture // 10}.{architecture % 10}"


def _whole(entry: disk.Entry | None) -> disk.Entry:
    assert entry is not None
    return entry
