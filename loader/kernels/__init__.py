"""GPU kernels, compiled when they are first needed: for the chip at hand, by the NVRTC that comes with torch.

`python -m loader.kernels` lists what was compiled, and compiles ahead.
"""

from loader.kernels.compiler import check_kernels, compile_kernels
from loader.kernels.nvrtc import CompilationError, NoCompilerError

__all__ = ["CompilationError", "NoCompilerError", "check_kernels", "compile_kernels"]
