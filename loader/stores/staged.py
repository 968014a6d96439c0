"""Features in host memory, which threads gather and which are then copied to the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from loader import _core
from loader.machine.arguments import as_size
from loader.machine.cpus import as_threads, available_cpus
from loader.machine.forks import ForkSafeLock
from loader.machine.gpu import cuda_device, require_cuda
from loader.machine.mapped import is_mapped, watch
from loader.machine.pages import use_huge_pages
from loader.machine.pinning import PinnedTensor, host_memory
from loader.stores.rows import RowFormat, RowOptions, StoreOfRows, check_ids, check_range

if TYPE_CHECKING:
    from typing_extensions import Unpack

_BUFFERS = 4
_MEBI = 1 << 20


class StagedFeatures(StoreOfRows):
    """Rows of a CPU tensor, gathered by threads of the C++ core into pinned buffers and copied from there to the GPU.

    A gather works in parts, through a ring of buffers: while one part is copied to the GPU on the current stream, the
    next part is gathered. A buffer is written again only after an event says that its copy is done. The host works,
    without the GIL, until the last part is gathered. It does not wait for the copy of that part.

    Ids on the GPU are copied to the host first, and the host waits for the work on the current stream. Rows are copied
    in the type in which they are kept, and converted on the GPU.

    Args:
        tensor: `[num_rows, ...]` of any type, contiguous, on the CPU; it may be memory-mapped, and is not copied
            unless `storage_dtype` differs. Memory that is not mapped from a file is put on huge pages, in place, which
            takes about a second per GiB.
        device: the GPU, by default the current one.
        num_threads: threads of one gather. By default, seven per eight processors, or all if there are fewer than
            eight. The others are for the threads that launch kernels: if one thread of a gather shares its processor,
            all others wait for it.
        buffer_mib: size of each of the four pinned buffers, in MiB, at least that of one row. Buffers are never larger
            than the table.
        options: see `RowOptions`.

    Raises:
        TypeError, ValueError: as `RowFormat`; `device` is no GPU; `num_threads` or `buffer_mib` < 1.
        RuntimeError: the build or the machine has no CUDA, or the buffers could not be locked.
    """

    serves_alone = True  # not one store of several, one for each type: copies go through buffers of its own

    needs_gpu = True

    def __init__(
        self,
        tensor: Tensor,
        device: str | int | torch.device | None = None,
        *,
        num_threads: int | None = None,
        buffer_mib: int = 32,
        **options: Unpack[RowOptions],
    ) -> None:
        self._format = RowFormat(tensor, **options)
        buffer_mib = as_size("buffer_mib", buffer_mib)
        cpus = available_cpus()
        self.num_threads = cpus - cpus // 8 if num_threads is None else as_threads(num_threads)
        require_cuda("features=staged")
        self._device = cuda_device(device)
        self.tensor = self._stored(tensor, self._format)
        use_huge_pages(self.tensor)
        watch(self.tensor)
        self._lock = ForkSafeLock()
        self._ring: UploadRing | None = UploadRing(
            self._format, buffer_mib * _MEBI, self._device, self.num_threads, in_file=is_mapped(self.tensor)
        )

    @property
    def asynchronous(self) -> bool:
        return False

    def gather(self, ids: Tensor) -> Tensor:
        """Returns the rows of `ids`, see `FeatureStore.gather`. Safe to call from several threads; they take turns.

        Raises:
            ValueError: an id is out of range.
        """
        check_ids(ids)
        if ids.device.type != "cpu" and ids.device != self._device:
            raise ValueError(f"ids lies on {ids.device}; it must lie on the CPU or on {self._device}")
        with self._lock, torch.cuda.device(self._device):
            if self._ring is None:
                raise RuntimeError("this StagedFeatures was closed; make a new one")
            stream = torch.cuda.current_stream(self._device)
            given, ids = ids, _on_host(ids, stream)
            rows = self._format
            if rows.coded:
                out = torch.empty((ids.numel(), rows.nbytes), dtype=torch.uint8, device=self._device)
            else:
                out = torch.empty((ids.numel(), *rows.shape), dtype=self.storage_dtype, device=self._device)
            if self.dim:
                self._ring.core.upload(self.tensor, ids, out, stream.cuda_stream)
            elif ids.numel():
                check_range(ids, self.num_rows)
            if rows.coded:
                return rows.decoded(out, given)
            return out.to(self.dtype)

    def check(self) -> None:
        """Does nothing: `gather` raises its errors itself."""

    def close(self) -> None:
        """Waits for the copies and frees threads and buffers."""
        with self._lock:
            if self._ring is not None:
                self._ring.close()
                self._ring = None
            self._format.forget_scales()

    def __repr__(self) -> str:
        return f"StagedFeatures({self._format.describe()}, device='{self._device}', num_threads={self.num_threads})"


class UploadRing:
    """Pinned buffers, and threads of the C++ core that bring rows through them to a GPU.

    Args:
        form: of the rows.
        nbytes: of a buffer; it has room for one row at least, and for no more than the table has.
        device: the GPU.
        num_threads, in_file: see `_core.Gatherer`.

    Attributes:
        threads: that gather.
        core: what copies.

    Raises:
        RuntimeError: the buffers could not be locked.
    """

    def __init__(
        self, form: RowFormat, nbytes: int, device: torch.device, num_threads: int, *, in_file: bool = False
    ) -> None:
        rows = max(1, min(nbytes // max(form.nbytes, 1), form.num_rows))
        with torch.cuda.device(device):
            self._memory = PinnedTensor(host_memory(_BUFFERS * max(rows * form.nbytes, 1)))
        self.threads = _core.Gatherer(num_threads, in_file)
        self.core = _core.RowUploader(self.threads, self._memory.tensor, _BUFFERS, device.index)

    def close(self) -> None:
        """Waits for the copies and frees the buffers."""
        self.core.wait()
        self._memory.release()


def _on_host(ids: Tensor, stream: torch.cuda.Stream) -> Tensor:
    """`ids` on the CPU, through pinned memory."""
    if ids.device.type == "cpu":
        return ids.contiguous()
    here = torch.empty(ids.shape, dtype=ids.dtype, pin_memory=True)
    here.copy_(ids, non_blocking=True)
    event = torch.cuda.Event()
    event.record(stream)
    event.synchronize()
    return here
