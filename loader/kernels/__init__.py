"""GPU kernels. NVRTC, which comes with torch, compiles them for the chip at hand when they are first needed.

`python -m loader.kernels` lists the compiled kernels, and compiles kernels ahead.
"""

from loader.kernels.compiler import check_kernels, compile_kernels
from loader.kernels.nvrtc import CompilationError, NoCompilerError

__all__ = ["CompilationError", "NoCompilerError", "check_kernels", "compile_kernels"]
