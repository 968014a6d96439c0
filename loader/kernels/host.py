"""C++ that is compiled at run time for the CPU, by the system's compiler, and kept on disk as GPU kernels are."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from loader.kernels import cache as disk
from loader.kernels.compiler import add_source, closure_of
from loader.kernels.nvrtc import CompilationError, NoCompilerError
from loader.machine.forks import ForkSafeLock
from loader.machine.trusted_files import check_code_folder

HOST = 0  # in the place of a chip's architecture
_OPTIONS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti", "-fvisibility=hidden")
_STRICT = "-Werror=return-type"  # what ends without return would do anything
_COMPILERS = ("c++", "g++", "clang++")
# What compilers, assemblers and linkers say of a full disk and of a file-size limit (the signal SIGXFSZ).
_NO_ROOM = re.compile(r"No space left|File size limit|Disk quota|File too large|final close failed", re.IGNORECASE)
_MORE_ROOM = (
    "free some space, let TMPDIR name another folder, raise a limit (`ulimit -f unlimited`), or let Python run it, "
    "which is slow: loader.Next(..., compiled=False)"
)

_lock = ForkSafeLock()
_open: dict[str, int] = {}  # addresses of functions, by key and name


def function_of(header: str, text: str, last_line: str, name: str, what: str) -> int:
    """The address of a function of C; it is valid until the process ends.

    What was compiled before is used if it was by the same compiler.

    Args:
        header: name of the source, which `text` is; it may include what the core's kernels are compiled from.
        text: C++.
        last_line: of the program, behind the header: that makes the function.
        name: of the function.
        what: is compiled, for messages.

    Raises:
        NoCompilerError: there is no compiler.
        CompilationError: it does not compile, with the compiler's messages; or there is no room for files.
    """
    tool = _compiler(what)
    add_source(header, text)
    # Without the stand-ins for standard headers, which have no suffix: this compiler has its own.
    sources = {named: source for named, source in closure_of(header).items() if Path(named).suffix}
    parts = [part for named in sorted(sources) for part in (named, sources[named])]
    key = disk.key_of("host", name, last_line, *_identity(tuple(tool)), *_OPTIONS, *parts)
    with _lock:
        if key not in _open:
            entry = disk.read(key)
            if entry is None:
                entry = _compile(tool, sources, f'#include "{header}"\n{last_line}\n', name, what)
                disk.write({key: entry})
            _open[key] = _address(entry)
        return _open[key]


def _compile(tool: list[str], sources: dict[str, str], program: str, name: str, what: str) -> disk.Entry:
    try:
        return _compiled(tool, sources, program, name, what)
    except OSError as error:
        raise CompilationError(f"{what} cannot be compiled: {error}; {_MORE_ROOM}") from None


def _compiled(tool: list[str], sources: dict[str, str], program: str, name: str, what: str) -> disk.Entry:
    with tempfile.TemporaryDirectory(prefix="gnn-loader-") as made:
        folder = Path(made)
        check_code_folder(folder)  # a folder that others can replace would be that of their library
        for named, text in sources.items():
            path = folder / named
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (folder / "program.cpp").write_text(program)
        command = [*tool, *_OPTIONS, _STRICT, "-I.", "program.cpp", "-o", "program.so"]
        done = _run(command, what, folder)
        if done.returncode < 0 or _NO_ROOM.search(done.stderr):
            said = " ".join(done.stderr.split())[-400:]
            ended = f"{Path(tool[0]).name} ended with status {done.returncode}"
            raise CompilationError(f"{what} cannot be compiled: {ended}: {said}; {_MORE_ROOM}")
        if done.returncode:
            raise CompilationError(f"{Path(tool[0]).name} does not compile {what}: {done.stderr.strip()[:4000]}")
        return disk.Entry(what, HOST, Path(tool[0]).name, name, (folder / "program.so").read_bytes())


def _run(command: list[str], what: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}  # a sanitizer's is not the compiler's
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise NoCompilerError(f"{what} cannot be compiled: {command[0]} does not start ({error})") from None


@cache
def _identity(tool: tuple[str, ...]) -> list[str]:
    """What decides the code beside the source: the compiler, its version, its arguments, and the machine.

    A compiler that is told to compile for the machine at hand (`-march=native`) makes what others may not run.
    """
    version = _run([*tool, "--version"], "what is asked for").stdout
    native = any("native" in argument for argument in tool[1:])
    return [*tool, version, platform.machine(), *(sorted(_cpu_features()) if native else ())]


def _cpu_features() -> set[str]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    return {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}


def _compiler(what: str) -> list[str]:
    """The command that compiles C++: `CXX`, which may have arguments, or what the path has."""
    named = shlex.split(os.environ.get("CXX", ""))
    for tool in [named] if named else [[name] for name in _COMPILERS]:
        found = shutil.which(tool[0])
        if found:
            return [found, *tool[1:]]
    missing = (
        f"CXX names {named[0]}, which is not there" if named else f"none of {', '.join(_COMPILERS)} is on the path"
    )
    raise NoCompilerError(
        f"{what} is compiled for the CPU by a C++ compiler, and {missing}: install one (apt install g++), or let "
        "Python run it, which is slow: loader.Next(..., compiled=False)"
    )


def _address(entry: disk.Entry) -> int:
    """Of a function of a library, which is opened from memory: what was checked is what is opened."""
    handle = os.memfd_create("gnn-loader") if sys.platform == "linux" else -1
    if handle < 0:
        raise NoCompilerError("functions of your own are compiled on Linux only; use loader.Next(..., compiled=False)")
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(entry.code)
    except OSError as error:
        os.close(handle)
        raise CompilationError(f"{entry.name} was compiled, but cannot be loaded: {error}; {_MORE_ROOM}") from None
    # The handle stays open: a later library of the same path would be taken for this one.
    library = ctypes.CDLL(f"/proc/self/fd/{handle}")
    address = ctypes.cast(getattr(library, entry.symbol), ctypes.c_void_p).value
    assert address is not None
    return address
