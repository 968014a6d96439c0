"""What the virtual memory management of NVIDIA's driver is asked with (CUDA Driver API reference manual, section
"Virtual Memory Management").
"""

from __future__ import annotations

import ctypes
from typing import Any

PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
ON_HOST_NODE = 3  # CU_MEM_LOCATION_TYPE_HOST_NUMA
READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
RECOMMENDED = 1  # CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
U64 = ctypes.c_uint64


class Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class Prop(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("location", Location), ("flags", ctypes.c_int))


class Driver:
    """Calls of NVIDIA's driver in the context that is current; what it refuses is a RuntimeError.

    Args:
        advice: the end of the error's message.
    """

    def __init__(self, advice: str) -> None:
        self.library: Any = ctypes.CDLL("libcuda.so.1")
        self._advice = advice

    def __call__(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            word = ctypes.c_char_p()
            self.library.cuGetErrorName(status, ctypes.byref(word))
            what = word.value.decode() if word.value else f"error {status}"
            raise RuntimeError(f"{name}: {what}; {self._advice}")

    def granularity(self, prop: Prop) -> int:
        """Bytes of which lengths and addresses of such memory are multiples."""
        found = ctypes.c_size_t()
        self("cuMemGetAllocationGranularity", ctypes.byref(found), ctypes.byref(prop), RECOMMENDED)
        return found.value
