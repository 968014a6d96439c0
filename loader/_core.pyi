"""The C++ core (csrc/bindings). Tensors are checked (type, length, layout, device) before anything is read."""

from collections.abc import Sequence

from torch import Tensor

with_cuda: bool  # whether the CUDA part was built; names with Cuda and cuda exist only then

def batch_key(seed: int, epoch: int, batch: int) -> int:
    """The key of all picks of one mini-batch; arguments and result are unsigned 64-bit integers."""

class HopwiseSampler:
    def __init__(self, num_threads: int) -> None: ...
    def sample(
        self,
        indptr: Tensor,
        indices: Tensor,
        seeds: Tensor,
        fanouts: Sequence[int],
        replace: bool,
        edge_ids: bool,
        key: int,
    ) -> tuple[list[int], list[int]]:
        """Samples and keeps the result; returns the sizes of the frontiers `[hops + 1]` and of the blocks `[hops]`."""

    def write(
        self, nodes: Tensor, indptr: Sequence[Tensor], indices: Sequence[Tensor], edge_ids: Sequence[Tensor]
    ) -> None:
        """Writes the last sample, in hop order, to arrays of the sizes that `sample` returned."""

class FusedSampler:
    def __init__(self, num_threads: int, serial_edges: int) -> None:
        """Mini-batches that cannot reach `serial_edges` edges are sampled by one thread."""

    def sample(
        self,
        indptr: Tensor,
        indices: Tensor,
        seeds: Tensor,
        fanouts: Sequence[int],
        replace: bool,
        edge_ids: bool,
        key: int,
    ) -> tuple[list[int], list[int]]:
        """See `HopwiseSampler.sample`."""

    def write(
        self, nodes: Tensor, indptr: Sequence[Tensor], indices: Sequence[Tensor], edge_ids: Sequence[Tensor]
    ) -> None:
        """See `HopwiseSampler.write`."""

class _CudaSampler:
    """The sampler of a graph on a GPU. Arguments called address are of memory that the caller checked and owns."""

    def __init__(
        self,
        graph_indptr_address: int,
        graph_indices_address: int,
        num_nodes: int,
        totals_address: int,
        state_address: int,
        headers_address: int,
        num_headers: int,
        /,
    ) -> None: ...
    def plan(
        self,
        fanouts: Sequence[int],
        replace: bool,
        pad: bool,
        frontier_capacity: Sequence[int],
        edge_capacity: Sequence[int],
        indices_at: Sequence[int],
        indptr_at: Sequence[int],
        edge_ids_at: Sequence[int],
        num_seeds: int,
        tasks: int,
        schedule: int,
        vertex_set: int,
        /,
    ) -> tuple[int, int, int, int, int, int]:
        """Says what the following mini-batches are; returns entries of (rows, tasks, picks_at, picks) for `use`, and of
        (table, found) for `use_hash`."""

    def use(
        self,
        row_begin_address: int,
        row_degree_address: int,
        list_address: int,
        rows: int,
        tasks_address: int,
        num_tasks: int,
        picks_at_address: int,
        picks_address: int,
        positions_address: int,
        num_picks: int,
        /,
    ) -> None:
        """The arrays of the plan."""

    def use_bitmaps(self, bitmaps_address: int, bitmaps_stride: int, local_address: int, /) -> None:
        """The sets of a plan with bitmaps."""

    def use_hash(
        self,
        keys_address: int,
        local_address: int,
        table: int,
        found_address: int,
        places_address: int,
        offsets_address: int,
        grouped_address: int,
        grouped_place_address: int,
        found: int,
        counts_address: int,
        begins_address: int,
        /,
    ) -> None:
        """The set of a plan with a hash set."""

    def add(
        self,
        seeds_address: int,
        num_seeds: int,
        key: int,
        vertices_address: int,
        edges_address: int,
        sizes_address: int,
        /,
    ) -> int:
        """Adds a mini-batch to the next launch; returns the number by which it is known."""

    def launch(self, schedule: int, blocks: int, stream_address: int, /) -> int:
        """Launches what was added; returns the number of kernels."""

    def finish(
        self, number: int, hops: int, stream_address: int, /
    ) -> tuple[int, int, int, list[int], list[int], int, bool]:
        """Waits for the sizes: (status, detail, hops done, frontiers, edges, slots of the queue needed, whether one of
        these is the largest of all mini-batches that were finished)."""

    def peek(self, number: int, /) -> tuple[int, int] | None:
        """(status, detail), or None for a mini-batch that is not done."""

class CudaSampler_i32_i32(_CudaSampler): ...
class CudaSampler_i64_i32(_CudaSampler): ...
class CudaSampler_i64_i64(_CudaSampler): ...

def cuda_bitmap_entries(num_nodes: int, hops: int, /) -> int:
    """Entries of 32 bits of the bitmaps of a mini-batch and their ranks."""

cuda_ranges: int  # entries of 32 bits of a hash set's counts, a mini-batch of a launch
cuda_range_begins: int  # the same of its begins
cuda_workspace_totals: int  # entries of 32 bits, a mini-batch of a launch
cuda_state_bytes: int
cuda_header_bytes: int
cuda_max_batches_per_launch: int
cuda_max_task_vertices: int
cuda_part_edges: int  # of a longer list taken whole, in one task of a queue

class Gatherer:
    def __init__(self, num_threads: int) -> None: ...
    @property
    def num_threads(self) -> int: ...
    def gather(self, table: Tensor, ids: Tensor, out: Tensor) -> None:
        """`out[i] = table[ids[i]]`."""

class CudaGatherer:
    """One table's rows on one GPU. All memory is the caller's, and has to live as long as this and its kernels."""

    def __init__(
        self,
        table: Tensor,
        address: int,
        dtype: str,
        *,
        raised: Tensor,
        notes: Tensor,
        cache: Tensor | None = None,
        slots: Tensor | None = None,
        hits: Tensor | None = None,
    ) -> None:
        """
        Args:
            table: `[num_rows, ...]`, on the GPU or, pinned, on the CPU.
            address: where the GPU sees it.
            dtype: of the rows that are returned, e.g. "torch.float16".
            raised: `[1]` int32 on the GPU, zero.
            notes: `[cuda_notes_bytes]` uint8 on the CPU, pinned, zeros.
            cache, slots, hits: beside a table on the CPU: `[num_cached, ...]`, some of its rows, on the GPU;
                `[num_rows]` int32 there, where in `cache` a row is, or -1; `[1]` int64, to which is added how many rows
                were found in `cache`.
        """

    blocks: int  # that read from host memory at a time; 0 for the default

    order_from: int  # so many ids and more are read by where their rows lie, if those are in host memory; 0: always

    def scratch_bytes(self, n: int, /) -> int:
        """Device memory for the order of the next gather, of `n` ids; 0: they are read as they come."""

    def gather(self, ids: int, wide_ids: bool, n: int, out: int, scratch: int, stream_address: int, /) -> None:
        """`out[i] = table[ids[i]]` on the stream; raises what an earlier gather reported."""

    def raise_bad_id(self, stream_address: int, /) -> None:
        """Raises ValueError if a gather that is done met an id out of range; once."""

class HostRegistration:
    """Locks pages of the host for the GPU while it lives."""

    def __init__(self, address: int, nbytes: int) -> None: ...
    def release(self) -> None: ...

def cuda_device_address(host_address: int) -> int:
    """Where the current GPU sees pinned host memory."""

cuda_notes_bytes: int

class PooledBuffer:
    """Writable bytes that return to their pool with the last reference."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class BufferPool:
    def __init__(self, keep: int) -> None: ...
    def take(self, nbytes: int) -> PooledBuffer: ...
    def clear(self) -> None: ...
    @property
    def idle_bytes(self) -> int: ...

def mean_forward(indptr: Tensor, indices: Tensor, x: Tensor, out: Tensor, num_threads: int) -> None:
    """Writes the mean over each row's sources of x [num_src, F] to out [num_dst, F]."""

def mean_backward(indptr: Tensor, indices: Tensor, grad_out: Tensor, grad_x: Tensor, num_threads: int) -> None:
    """Writes the gradient of mean_forward with respect to x to grad_x [num_src, F]."""

# Groups of what a launch is told; csrc/bindings/aggregate_cuda.cpp gives the shapes.
_Where = tuple[int, int]  # device, stream
_Block = tuple[
    int, int, int, int, int, int, int, int
]  # indptr, indices, num_dst, num_src, num_edges, bytes, bytes, live
_Rows = tuple[int, int]  # address, stride in elements
_Activation = tuple[bool, int, int]  # ReLU, threshold, key

def cuda_mean_forward(
    where: _Where,
    block: _Block,
    dtype: int,
    x: _Rows,
    nodes: int,
    dim: int,
    out_dtype: int,
    mean: _Rows,
    own: _Rows,
    padding: int,
    activation: _Activation,
    workspace: int,
    /,
) -> None:
    """Launches the mean (csrc/aggregate/cuda/mean.h). Addresses: the caller checked and owns what lies there; those of
    `own`, of a live block and of `nodes`, the sources' rows in `x`, may be 0. Types are numbered by their place in
    `cuda_mean_dtypes`."""

def cuda_mean_backward(
    where: _Where,
    block: _Block,
    dtype: int,
    sorted_sources: int,
    order: int,
    grad_mean: _Rows,
    grad_own: _Rows,
    x: _Rows,
    dim: int,
    grad_x: int,
    activation: _Activation,
    workspace: int,
    /,
) -> None:
    """Launches the gradient of `cuda_mean_forward`; addresses that are not given are 0."""

def cuda_write_live_blocks(
    blocks: list[tuple[int, int, int, int, int, int, int, int]],
    to: int,
    copy_from: int,
    copy_to: int,
    copy_bytes: int,
    device: int,
    stream: int,
    /,
) -> None:
    """Launches the writing of live blocks to the address `to`: of each, addresses of indptr and indices, num_dst,
    num_edges, address (or 0) and stride of x, address of nodes (or 0), key of the activation. The same launch copies
    `copy_bytes` of GPU memory."""

cuda_live_block_bytes: int
cuda_max_live_blocks: int

def cuda_mean_forward_workspace(num_edges: int, /) -> int: ...
def cuda_mean_backward_workspace(num_src: int, num_edges: int, index_bytes: int, id_bytes: int, /) -> int: ...

cuda_mean_dtypes: tuple[str, ...]
cuda_mean_long_row: int  # rows with more edges are summed by thread blocks of their own
