"""Finds, opens and calls NVRTC, NVIDIA's run-time compiler. It needs no GPU and no CUDA toolkit.

It comes with torch's CUDA wheels (packages `nvidia-cuda-nvrtc` and `nvidia-cuda-nvrtc-cu12`). Source of the interface:
NVRTC's user guide.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

_SUCCESS = 0


class NoCompilerError(RuntimeError):
    """Kernels must be compiled, but there is no NVRTC here, or it cannot compile them."""


class CompilationError(RuntimeError):
    """A kernel does not compile."""


class Compiler:
    """One NVRTC.

    Attributes:
        path: of its library.
        version: (major, minor).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        folder = Path(path).parent
        # NVRTC asks for this one by its name alone; one that is open already is found.
        for builtins in sorted(folder.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self._library = ctypes.CDLL(path)
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "asking for NVRTC's version")
        self.version = (major.value, minor.value)

    def architectures(self) -> list[int]:
        """Those that it compiles for, as 10 * major + minor."""
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "asking for architectures")
        values = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(values), "asking for architectures")
        return list(values)

    def compile(
        self, source: str, headers: Mapping[str, str], kernels: Sequence[str], options: Sequence[str]
    ) -> tuple[bytes, list[str]]:
        """Compiles one program.

        Args:
            source: C++.
            headers: texts by the name that they are included by.
            kernels: names, as C++ spells them, of those that the program is to have.
            options: of NVRTC; `-arch=sm_NN` is among them.

        Returns:
            Code for the chip (a cubin), and the kernels' names in it.

        Raises:
            CompilationError: with the compiler's messages.
        """
        library, program = self._library, ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        included = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
        created = library.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernel.cu", len(headers), texts, included
        )
        self._check(created, "beginning a compilation")
        try:
            for name in kernels:
                self._check(library.nvrtcAddNameExpression(program, name.encode()), f"naming {name}")
            encoded = [option.encode() for option in options]
            if library.nvrtcCompileProgram(program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)):
                log = self._text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
                names = ", ".join(kernels)
                raise CompilationError(f"NVRTC {self.text} does not compile {names}: {log.decode().strip()}")
            symbols = [self._symbol(program, name) for name in kernels]
            return self._text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN", keep_end=True), symbols
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    @property
    def text(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"

    def _symbol(self, program: ctypes.c_void_p, name: str) -> str:
        symbol = ctypes.c_char_p()
        found = self._library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(symbol))
        self._check(found, f"looking up {name}")
        assert symbol.value is not None
        return symbol.value.decode()

    def _text(self, program: ctypes.c_void_p, size_of: str, get: str, *, keep_end: bool = False) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, size_of)(program, ctypes.byref(size)), "asking for a compilation's result")
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, get)(program, buffer), "asking for a compilation's result")
        return buffer.raw if keep_end else buffer.value

    def _check(self, status: int, what: str) -> None:
        if status != _SUCCESS:
            get = self._library.nvrtcGetErrorString
            get.restype = ctypes.c_char_p
            raise CompilationError(f"{what} failed: {get(status).decode()} ({self.path})")


def compiler() -> Compiler:
    """The NVRTC of this environment: torch's, else a CUDA toolkit's. `LOADER_NVRTC` names another library.

    Raises:
        NoCompilerError: there is none, with the way out.
    """
    found = _open(os.environ.get("LOADER_NVRTC"))
    if isinstance(found, Compiler):
        return found
    raise NoCompilerError(found)


@cache
def _open(named: str | None) -> Compiler | str:
    problems = []
    for path in [named] if named else _candidates():
        found = _opened(path)
        if isinstance(found, Compiler):
            return found
        problems.append(found)
    if named:
        return f"LOADER_NVRTC names {named}, which cannot be used ({problems[0]})"
    tried = f" ({'; '.join(problems[:2])})" if problems else ""
    return (
        "no NVRTC was found, which compiles GPU kernels; it comes with torch's CUDA builds: pip install "
        f"nvidia-cuda-nvrtc for CUDA 13, nvidia-cuda-nvrtc-cu12 for CUDA 12{tried}"
    )


def _opened(path: str) -> Compiler | str:
    """The compiler, or why it cannot be used."""
    try:
        return Compiler(path)
    except (OSError, AttributeError, CompilationError) as error:
        return f"{path}: {error}"


def _candidates() -> Iterator[str]:
    """Paths of libraries, best first: packages beside torch of its CUDA version, then toolkits, then the system's."""
    import torch

    major = (torch.version.cuda or "").split(".")[0]
    wanted = f"libnvrtc.so.{major}*" if major else "libnvrtc.so*"
    for folder in _package_folders():
        yield from (str(path) for path in sorted(folder.glob(wanted)) if ".alt." not in path.name)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield from (str(path) for path in sorted(Path(os.environ[variable], "lib64").glob(wanted)))
    for toolkit in sorted(Path("/usr/local").glob(f"cuda-{major}*" if major else "cuda*")):
        yield from (str(path) for path in sorted((toolkit / "lib64").glob(wanted)))
    if major:
        yield f"libnvrtc.so.{major}"


def _package_folders() -> Iterator[Path]:
    try:
        import nvidia
    except ImportError:
        roots = []
    else:
        roots = [Path(root) for root in nvidia.__path__]
    import torch

    for root in roots:
        yield from sorted(root.glob("cu*/lib"))  # CUDA 13
        yield root / "cuda_nvrtc" / "lib"  # CUDA 12
    yield Path(torch.__file__).parent / "lib"
