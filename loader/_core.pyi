"""The C++ core (csrc/bindings). Tensors are checked (type, length, layout, device) before anything is read."""

from collections.abc import Sequence

from torch import Tensor

def cuda_sources() -> dict[str, str]:
    """The headers that kernels are compiled from, by the name that they are included by."""

def cuda_kernels() -> list[tuple[str, str]]:
    """(header, name) of every kernel that a run can ask for."""

def cuda_driver_version() -> int:
    """The CUDA version that the driver is for, 1000 * major + 10 * minor; RuntimeError: there is no driver."""

def batch_key(seed: int, epoch: int, batch: int) -> int:
    """The key of all picks of one mini-batch; arguments and result are unsigned 64-bit integers."""

def order_key(seed: int, epoch: int) -> int:
    """The key of the order of an epoch's items."""

def items_at(num_items: int, key: int, first: int, length: int, stride: int, out: Tensor) -> None:
    """Writes to `out` `[count]` int64 the items at `count` positions of the order with that key.

    The positions are runs of `length`, the first of which begins at `first` and each other `stride` after the last
    one. The last run may be shorter.
    """

def cuda_items_at(num_items: int, key: int, first: int, length: int, stride: int, out: Tensor, stream: int) -> None:
    """The same on the GPU of `out`, which is the current one, on `stream`."""

max_threads: int  # of a pool

class SampledBuffer:
    """The memory of a mini-batch's arrays, as a writable buffer; it is used again after the last reference."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class Sampled:
    """A mini-batch that was sampled."""

    def take(self) -> tuple[list[int], list[int], list[int], list[int], SampledBuffer]:
        """The sizes of the frontiers `[hops + 1]`, edges and rows of the blocks `[hops]` each, and where the arrays
        begin in the buffer. A node is a row, or has one for each relation into its type.

        Offsets in bytes: nodes `[frontiers[-1]]`, then for each hop outward indptr `[rows[h] + 1]`, indices
        `[edges[h]]` and, if wanted, edge ids `[edges[h]]`. Raises what the sampling of this mini-batch ended with.
        """

def make_weight_tables(indptr: Tensor, weights: Tensor, cells: Tensor, ends: Tensor, num_threads: int) -> None:
    """Writes the tables to pick by weight from, `cells` and `ends` `[num_edges]` int64 (csrc/weights/cpu/tables.h).

    `weights` `[num_edges]`, float32 or float64, are positive and finite: the caller looked.
    """

def order_by_weight(indptr: Tensor, weights: Tensor, order: Tensor, num_threads: int) -> None:
    """Writes to `order` `[num_edges]` int32 the places of each list from the heaviest edge to the lightest."""

def turns_key(seed: int) -> int:
    """The key of when sources have a new number in LABOR with batch_dependency."""

class WeightTables:
    def __init__(self, cells: Tensor, ends: Tensor) -> None:
        """Picks by weight, from `make_weight_tables`."""

class WeightOrder:
    def __init__(self, order: Tensor) -> None:
        """Picks the heaviest, from `order_by_weight`."""

class Race:
    def __init__(self, weights: Tensor) -> None:
        """Picks by the weights `[num_edges]` as they are at each call, without tables (csrc/sampler/race.h)."""

class Labor:
    def __init__(self, layer_dependency: bool, batch_dependency: int, turns_key: int) -> None:
        """Picks by LABOR-0."""

class HopwiseSampler:
    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        fanouts: Sequence[int],
        replace: bool,
        edge_ids: bool,
        num_threads: int,
        part_edges: int,
        picks: WeightTables | WeightOrder | Labor | Race | None = None,
    ) -> None:
        """Samples the graph of these arrays, on the CPU. `part_edges` >= 1 has no meaning for this class."""

    def sample(
        self, seeds: Sequence[Tensor], keys: Sequence[int], next_keys: Sequence[int] = (), phases: Sequence[int] = ()
    ) -> list[Sampled]:
        """Samples a group of mini-batches; seeds `[n]` of the nodes' type, and the key of each. Thread-safe.

        LABOR with batch_dependency > 1 also has the next key and the phase of each.
        """

class FusedSampler:
    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        fanouts: Sequence[int],
        replace: bool,
        edge_ids: bool,
        num_threads: int,
        part_edges: int,
        picks: WeightTables | WeightOrder | Labor | Race | None = None,
        in_file: bool = False,
    ) -> None:
        """As `HopwiseSampler`. Threads share out parts of at least `part_edges` edges.

        `in_file`: a part of the graph may be on disk only, so its pages are asked for before they are read.
        """

    def sample(
        self, seeds: Sequence[Tensor], keys: Sequence[int], next_keys: Sequence[int] = (), phases: Sequence[int] = ()
    ) -> list[Sampled]:
        """See `HopwiseSampler.sample`."""

class HeteroHopwiseSampler:
    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        fanouts: Sequence[Sequence[int]],
        types: Sequence[tuple[int, int]],
        once: bool,
        replace: bool,
        edge_ids: bool,
        num_threads: int,
        part_edges: int,
        picks: WeightTables | WeightOrder | Labor | Race | None = None,
        in_file: bool = False,
    ) -> None:
        """Samples lists of nodes of several types, which have one for each relation into their type.

        `fanouts` `[hops][relations]`, relations in the order of the types that they lead to. `types`: of each type how
        many nodes it has, and how many relations lead to them. `once`: only what the hop before found is expanded.
        """

    def sample(
        self, seeds: Sequence[Tensor], keys: Sequence[int], next_keys: Sequence[int] = (), phases: Sequence[int] = ()
    ) -> list[Sampled]:
        """See `HopwiseSampler.sample`."""

class HeteroFusedSampler:
    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        fanouts: Sequence[Sequence[int]],
        types: Sequence[tuple[int, int]],
        once: bool,
        replace: bool,
        edge_ids: bool,
        num_threads: int,
        part_edges: int,
        picks: WeightTables | WeightOrder | Labor | Race | None = None,
        in_file: bool = False,
        copies: bool = False,
    ) -> None:
        """As `HeteroHopwiseSampler`, in the way of `FusedSampler`. `copies`, with `once`: a node may be a seed several
        times. Each of its seeds then picks by itself, and the lowest is the end of edges that lead from it.
        """

    def sample(
        self, seeds: Sequence[Tensor], keys: Sequence[int], next_keys: Sequence[int] = (), phases: Sequence[int] = ()
    ) -> list[Sampled]:
        """See `HopwiseSampler.sample`."""

class Times:
    def __init__(
        self,
        ranks: Tensor,
        coarse: Tensor,
        always: Tensor,
        values: Tensor,
        *,
        strict: bool,
        window: int | None,
        of_edge: bool,
        first_of: Tensor | None,
    ) -> None:
        """The times of a graph's entries, and what is seen.

        Args:
            ranks: `[num_edges]` int32, places of times in `values`, ascending in each list; -1 is always seen.
            coarse: `[(num_edges + 31) / 32]` int32, every 32nd of the ranks, which is looked at first.
            always: `[(relations + 31) / 32]` int32, a bit for each relation that is visible at any time.
            values: `[n]` int64, the distinct times, ascending.
            strict: what is as late as the bound is not seen.
            window: what is as late as the bound minus this is not seen.
            of_edge: the bound of a picked node is the time of the edge that led to it.
            first_of: `[n]` int32, with `of_edge` and a window: of each time the first rank that is seen.
        """

class TreeSampler:
    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        fanouts: Sequence[Sequence[int]],
        types: Sequence[tuple[int, int]],
        times: Times | None,
        paths: bool,
        last: bool,
        replace: bool,
        edge_ids: bool,
        num_threads: int,
        picks: Labor | Race | None = None,
    ) -> None:
        """Samples trees on the CPU, see `loader.samplers.TreeSampler`; for `types` see `HeteroHopwiseSampler`."""

    def sample(
        self, seeds: Tensor, times: Tensor | None, key: int, next_key: int = 0, phase: int = 0
    ) -> tuple[list[int], list[int], list[int], list[int], list[int], SampledBuffer]:
        """Samples a mini-batch. `times`: `[n]` int64, of the seeds.

        Returns:
            Nodes within each number of hops; edges and lists of each hop; new nodes, `[hops + 1][types]`, flat; offsets
            of the arrays, and their memory: nodes, trees, and each hop's indptr, indices and edge ids, if asked for.
        """

max_walk_length: int
max_metapath: int  # types of edges

def walk_key(seed: int, epoch: int, batch: int) -> int:
    """The key of all walks of one mini-batch; arguments and result are unsigned 64-bit integers."""

def negatives_key(seed: int, epoch: int, batch: int) -> int:
    """The key of all negative samples of one mini-batch; see `walk_key`."""

class WalkEngine:
    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        sorted: Tensor | None,
        cells: Tensor | None,
        groups: int,
        num_threads: int,
    ) -> None:
        """Walks through these lists, on the CPU.

        `sorted` `[num_edges]` has each list in ascending order. Walks of the second order search there; if they do not
        go by weight, they follow these lists, and `places` are of these. With `cells`, from `walk_cells`, walks go by
        weight. With `groups` > 0 a node has that many lists, one behind the other, and walks a metapath.
        """

    def walk(
        self,
        starts: Tensor,
        first_lane: int,
        key: int,
        length: int,
        stop_below: int,
        home_below: int,
        accept: tuple[int, int, int, int] | None,
        path: Sequence[int],
        nodes: Tensor,
        places: Tensor | None,
    ) -> None:
        """Writes the walks of walkers `first_lane` on: `nodes` `[n, length + 1]` of the nodes' type and, if
        wanted, `places` `[n, length]` of `indptr`'s type. Thread-safe; ValueError for a start that is no node."""

    def walk_by(
        self,
        function: int,
        starts: Tensor,
        first_lane: int,
        key: int,
        length: int,
        turns: int,
        constants: Sequence[int],
        weights: Tensor | None,
        searches: bool,
        by_weight: bool,
        nodes: Tensor,
    ) -> tuple[int, int, int, int, int] | None:
        """As `walk`, by a compiled function: the address of a `WalkCustom` (csrc/walks/custom/call.h) of these types.

        Gives what the function did wrong, in the first row that it did so in, or None; then there are no walks.
        `weights` `[num_edges]`: bits of integers, as int32. `searches`, `by_weight`: what the function needs.
        """

    def negatives(self, first_lane: int, key: int, walkers: int, count: int, bound: int, out: Tensor) -> None:
        """Writes `count` numbers at random in `[0, bound)` for each of the walkers to `out` `[walkers, count]`."""

    def sift_by(self, words: Tensor) -> None:
        """Makes a filter of all edges in `words` `[filter_words(num_edges)]`, int64 zeros that the caller keeps."""

    def set_copies(self, copies: Tensor, most: Tensor) -> None:
        """Says how often lists have a node; if it is not called, none has one twice. For walks of the second order.

        The caller keeps both. `copies` `[num_nodes]` uint8: list v has no node more than `2**copies[v]` times. `most`
        `[num_nodes, 3]` of indptr's type: in each sorted list, the first place of the node that is there most often,
        how often, and how often any other at most.
        """

class CudaWalkEngine:
    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        sorted: Tensor | None,
        cells: Tensor | None,
        groups: int,
        bad: Tensor,
        device: int,
    ) -> None:
        """As `WalkEngine`, on GPU `device`; the arrays in its memory or in pinned memory.

        `bad`: `[2]` int64 zeros in pinned memory, where kernels say that a start was no node.
        """

    def walk(
        self,
        starts: Tensor,
        first_lane: int,
        key: int,
        length: int,
        stop_below: int,
        home_below: int,
        accept: tuple[int, int, int, int] | None,
        path: Sequence[int],
        nodes: Tensor,
        places: Tensor | None,
        stream: int,
    ) -> None:
        """As `WalkEngine.walk`, on `stream`; `starts` `[count]` may be int32 or int64. One call at a time."""

    def step(
        self,
        starts: Tensor,
        key: int,
        length: int,
        stop_below: int,
        home_below: int,
        order: Tensor,
        step: int,
        nodes: Tensor,
        places: Tensor | None,
        stream: int,
    ) -> None:
        """One step of the same walks, of the first order; `order` `[count]` int64: the walkers. The steps before it
        were taken.
        """

    def walk_by(
        self,
        header: str,
        starts: Tensor,
        first_lane: int,
        key: int,
        length: int,
        turns: int,
        constants: Sequence[int],
        weights: Tensor | None,
        searches: bool,
        by_weight: bool,
        nodes: Tensor,
        fault: Tensor,
        reported: Tensor,
        stream: int,
    ) -> None:
        """As `WalkEngine.walk_by`, on `stream`, with `starts` as `walk` takes them, by the function in `header`.

        `fault`: `[5]` int64 zeros in pinned memory, where a kernel writes what `WalkEngine.walk_by` gives; `reported`:
        `[1]` int32 zero on the GPU, 1 from then on.
        """

    def negatives(
        self, first_lane: int, key: int, walkers: int, count: int, bound: int, out: Tensor, stream: int
    ) -> None:
        """As `WalkEngine.negatives`, on `stream`."""

    def sift_by(self, words: Tensor, stream: int) -> None:
        """As `WalkEngine.sift_by`, on `stream`."""

    def set_copies(self, copies: Tensor, most: Tensor) -> None:
        """As `WalkEngine.set_copies`, both on the GPU."""

    def check(self) -> None:
        """Raises ValueError for a start that was no node, of walks that are done; once."""

def walk_cells(indptr: Tensor, indices: Tensor, cells: Tensor, out: Tensor, num_threads: int) -> None:
    """Writes what walks by weight read to `out`, of the type of `indices`: for each edge 4 numbers of int32, or 3 of
    int64 (csrc/walks/weighted.h), of the `cells` of `make_weight_tables`."""

def filter_words(num_edges: int) -> int:
    """Length of the filter of that many edges."""

class CudaResult:
    """A mini-batch that was launched, until its sizes were told."""

    def wait(self) -> tuple[int, int, int, list[int], list[int], int, bool, int]:
        """Waits for the sizes: (status, detail, hops done, frontiers, edges, rows of a graph with types or picks of
        trees, whether one of these is the largest of all mini-batches that were finished, lines of pinned memory that
        its launch copied). Once."""

    def peek(self) -> tuple[int, int] | None:
        """(status, detail), once; or None for a mini-batch that is not done."""

class _CudaSampler:
    """The sampler of a graph on a GPU. The caller keeps the graph's arrays and those that `use` takes."""

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        *,
        fanouts: Sequence[int],
        replace: bool,
        edge_ids: bool,
        pad: bool,
        device: int,
        picks: WeightTables | WeightOrder | Labor | Race | None = None,
        reads: int = 0,
        cached_begins: Tensor | None = None,
        cached_entries: Tensor | None = None,
    ) -> None:
        """`indptr` `[num_nodes + 1]` and `indices` `[num_edges]`: in GPU memory or in pinned host memory. `reads`:
        how lists are read, a Reads of csrc/sampler/cuda/pinned_lines.h.
        `cached_begins` and `cached_entries`: those of a `ListCache`. With `device=-1` the graph's arrays are meta
        tensors, no GPU is needed, and only `plan` can be called.
        """

    def plan(
        self,
        *,
        num_seeds: int,
        slots: int,
        schedule: int,
        node_set: int,
        frontier_capacity: Sequence[int],
        edge_capacity: Sequence[int],
        indices_at: Sequence[int],
        indptr_at: Sequence[int],
        edge_ids_at: Sequence[int],
        edges_at: int,
        lines: int = 0,
    ) -> list[tuple[str, str, int, bool]]:
        """Says what the following mini-batches are, of up to `num_seeds` seeds, `slots` at most by one launch.
        `lines`: of pinned memory that a launch has room for, if lists are read by the line.

        Returns the arrays for `use`: (name, dtype, length, whether it is zero at first and between launches).
        """

    def use(self, arrays: dict[str, Tensor], /) -> None:
        """The arrays that `plan` asked for, in GPU memory."""

    def add_headers(self, memory: Tensor, /) -> None:
        """Headers for mini-batches under way: `[n * cuda_header_bytes]` uint8, zero, in pinned host memory. Kept."""

    @property
    def free_headers(self) -> int:
        """Those that no mini-batch has."""

    fetch_blocks: int  # that copy lines, of launches whose number of blocks is given; 0 for all

    def launch(
        self, batches: Sequence[tuple[Tensor, tuple[int, int, int], Tensor, Tensor | None]], blocks: int, stream: int, /
    ) -> tuple[int, list[CudaResult]]:
        """Launches mini-batches by the last plan; returns the number of kernels, and what tells the sizes of each.

        A mini-batch is (seeds, its key, next key and phase, memory, sizes), on the GPU: seeds of the type of `indices`,
        memory of any type for what was planned, and `[2 * hops + 1]` int64 for its sizes, or None. The caller keeps
        them. After an error arrays that are zero between launches may not be: the caller makes them so.
        """

class CudaSampler_i32_i32(_CudaSampler): ...
class CudaSampler_i64_i32(_CudaSampler): ...
class CudaSampler_i64_i64(_CudaSampler): ...

cuda_header_bytes: int
cuda_hetero_header_bytes: int  # of a graph with types
cuda_max_batches_per_launch: int

def watch_file(begin: int, length: int, handle: int, offset: int, path: str) -> int:
    """From now on, a read of these mapped bytes that fails ends the process in one line that names the file.

    They are mapped from byte `offset` on of the file that `handle` has open, which is duplicated. Returns the number
    to `forget_file` it by, before the memory is unmapped (csrc/disk/faults.h).
    """

def is_watched(at: int) -> bool:
    """Whether a watched file has the byte at this address."""

def require_whole(begin: int, length: int) -> None:
    """Ends the process in one line if a watched file that has some of these bytes was cut short."""

def forget_file(number: int) -> None: ...

class Gatherer:
    """`in_file`: a part of the table may be on disk only, so its pages are asked for before they are read."""

    def __init__(self, num_threads: int, in_file: bool = False) -> None: ...
    @property
    def num_threads(self) -> int: ...
    def gather(self, table: Tensor, ids: Tensor, out: Tensor) -> None:
        """`out[i] = table[ids[i]]`."""

    def gather_converted(
        self, table: Tensor, ids: Tensor, out: Tensor, code: str = "", scales: Tensor | None = None
    ) -> None:
        """`out[i] = table[ids[i]]` in the type of `out`, rounded as by `Tensor.to`. Both are float32, float16 or
        bfloat16.

        Of codes it is `code(table[ids[i]]) * scale`, a product of float32. `table`: `[num_rows, bytes]` uint8, of which
        the first `out.shape[1]` of a row are codes; `code`: "int8" or "float8_e4m3fn"; `scales`: `[1, columns]` or
        `[num_rows, 1]` float32."""

class RowUploader:
    """Threads gather rows of tables in host memory into pinned buffers, which are copied to a GPU."""

    def __init__(self, gatherer: Gatherer, ring: Tensor, buffers: int, device: int) -> None:
        """
        Args:
            gatherer: its threads.
            ring: `[bytes]` uint8, pinned: the buffers, of equal sizes. The caller's, until `wait` has returned.
            device: index of the GPU.
        """

    def upload(self, table: Tensor, ids: Tensor, out: Tensor, stream: int) -> None:
        """`out[i] = table[ids[i]]`, in the order of the stream. Returns when the last rows are in a buffer. `out` lies
        on the GPU, the others on the CPU. Raises ValueError before anything is copied, if an id is out of range."""

    def wait(self) -> None:
        """Waits for the copies."""

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
        code: str = "",
        columns: int = 0,
        scales: Tensor | None = None,
    ) -> None:
        """
        Args:
            table: `[num_rows, ...]`, on the GPU or, pinned, on the CPU.
            address: where the GPU sees it: on the GPU its own, else `cuda_device_address`.
            dtype: of the rows that are returned, e.g. "torch.float16".
            raised: `[1]` int32 on the GPU, zero.
            notes: `[cuda_notes_bytes]` uint8 on the CPU, pinned, zeros.
            cache, slots, hits: beside a table on the CPU: `[num_cached, ...]`, some of its rows, on the GPU;
                `[num_rows]` int32 there, where in `cache` a row is, or -1; `[1]` int64, to which is added how many rows
                were found in `cache`.
            code, columns, scales: of a table and a cache of codes, `[num_rows, bytes]` uint8: "int8" or
                "float8_e4m3fn", codes of a row, and `[1, columns]` or `[num_rows, 1]` float32 on the GPU.
        """

    blocks: int  # that read from host memory at a time; 0 for the default

    order_from: int  # so many ids and more are read by where their rows lie, if those are in host memory; 0: always

    def scratch_bytes(self, n: int, /) -> int:
        """Device memory for the order of the next gather, of `n` ids; 0: they are read as they come."""

    def gather(
        self,
        ids: Tensor,
        out: Tensor,
        scratch: Tensor | None,
        stream: int,
        *,
        misses_below: int = ...,
        marks: Tensor | None = None,
    ) -> None:
        """`out[i] = table[ids[i]]` on the stream; raises what an earlier gather reported. `out` is left as it is for
        rows that are not in the cache, of ids from `misses_below` on. With `marks`, which `mark_misses` wrote, only the
        marked rows are read, wherever they lie meanwhile, and those of ids out of range.

        Args:
            ids: `[n]` int32 or int64.
            out: `[n, ...]` of `dtype`; where that is the table's, of any type with as many bytes.
            scratch: uint8, as many as `scratch_bytes` said; None: rows are read as they come.
        """

    rows_a_range: int  # see `find_misses`

    def find_misses(self, ids: Tensor, from_id: int, found: Tensor, positions: Tensor, stream: int) -> None:
        """Finds the ids of rows that are not in the cache, on the stream, in any order.

        Args:
            ids: `[n]` int32 or int64.
            from_id: it finds ids from this one on.
            found: `[2 + miss_ranges + words]` int64, zeros before. First come counts: how many it found; 1 if any id
                is out of range; and how many of all ids of rows that are not in the cache lie in each range of
                `rows_a_range` rows. Then come the ids that it found, of the type of `ids`, of which `words` words have
                room for `n`; none if the table has no row from `from_id` on.
            positions: `[n]` int64, or `[0]` if the table has no such row: where in `ids` these are.
        """

    def mark_misses(self, ids: Tensor, marks: Tensor, stream: int) -> None:
        """Sets a bit of `marks` `[(n + 31) / 32]` int32 for each of `ids` `[n]` whose row is not in the cache, on the
        stream: the lowest bit of a word is the first id's."""

    def raise_bad_id(self, stream_address: int, /) -> None:
        """Raises ValueError if a gather that is done met an id out of range; once."""

class HostRegistration:
    """Locks pages of the host for the GPU while it lives."""

    def __init__(self, tensor: Tensor, device: int) -> None:
        """`tensor`: of any type, not empty, contiguous, on the CPU."""

    def release(self) -> None: ...

def cuda_device_address(pinned: Tensor, device: int) -> int:
    """Where a GPU sees a tensor in pinned host memory."""

cuda_notes_bytes: int
miss_ranges: int  # see CudaGatherer.find_misses

class CudaRenewal:
    """Replaces rows of a cache by those that the next gathers of a group need. See csrc/features/cuda/renewal.h.

    All memory is the caller's, on one GPU, and has to live as long as this and its kernels."""

    def __init__(
        self,
        rows: Tensor,
        *,
        slots: Tensor,
        owners: Tensor,
        uses: Tensor,
        leaving: Tensor,
        coming: Tensor,
        tally: Tensor,
    ) -> None:
        """
        Args:
            rows: `[count, ...]`, the cached rows.
            slots: `[num_rows]` int32, where in `rows` a row is, or -1.
            owners: `[count]` int32, the rows that are cached, as unsigned numbers.
            uses: `[num_rows]` uint8, filled up to a multiple of four: 0x7f, and 0x80 more for a hot row.
            leaving, coming: `[count]` int32, for lists.
            tally: `[renewal_tally_bytes]` uint8.
        """

    def forget(self, stream: int) -> None:
        """Forgets the uses of a group of gathers."""

    def note(self, ids: Tensor, next: Tensor, turn: int, stream: int) -> None:
        """Notes the uses of gather `turn` of a group, the last one first: of `ids` `[n]`, in `next` `[n]` uint8."""

    def renew(
        self,
        ids: Tensor,
        next: Tensor,
        turn: int,
        rows: Tensor,
        choice_stream: int,
        bus_stream: int,
        stream: int,
    ) -> None:
        """Keeps what is worth most of the cached rows and of those of gather `turn`, `rows` `[n, ...]`.

        The rows that were not cached come on `bus_stream`, the others on `stream`. What stays is chosen on
        `choice_stream`, that of `note`, as soon as those are there. Then `stream` waits for both of the others.
        """

renewal_tally_bytes: int
most_together: int  # gathers of a group, see CudaRenewal

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
# indptr, indices, num_dst, captured, whether rows are summed, lists and places of the rows
_Block = tuple[Tensor, Tensor, int, Tensor | None, bool, tuple[Tensor, Tensor] | None]
_Activation = tuple[bool, int, int]  # ReLU, threshold, key
_Scales = tuple[Tensor | None, bool]  # of codes, whether each row of the table has one

def cuda_mean_forward(
    where: _Where,
    block: _Block,
    x: Tensor,
    nodes: Tensor | None,
    out: Tensor,
    mean_at: int,
    own_at: int,
    padding: int,
    activation: _Activation,
    workspace: Tensor | None,
    scales: _Scales,
    /,
) -> None:
    """Launches the mean (csrc/aggregate/cuda/mean.h) to columns of `out` from `mean_at` on, and the own rows to those
    from `own_at` on, unless that is -1. `nodes`: the sources' rows in `x`. Types are those of `cuda_mean_dtypes`, and
    of `cuda_mean_codes`, whose rows have scales. Values of index arrays are trusted."""

def cuda_mean_backward(
    where: _Where,
    block: _Block,
    sorted_sources: Tensor | None,
    order: Tensor | None,
    grad_mean: Tensor | None,
    grad_own: Tensor | None,
    x: Tensor | None,
    grad_x: Tensor,
    activation: _Activation,
    workspace: Tensor,
    /,
) -> None:
    """Launches the gradient of `cuda_mean_forward`."""

# indptr, indices, place among the distinct nodes, tree; see loader/ops/captured_hetero_moves.py.
_HopArrays = tuple[Tensor, Tensor, Tensor | None, Tensor | None]

def cuda_move_hops(
    where: _Where, sizes: Tensor, of_types: Tensor, fixed: tuple[Tensor, ...], loaded: _HopArrays, to: _HopArrays, /
) -> None:
    """Launches `moved` (csrc/layout/cuda/hops.h)."""

def cuda_map_entries(
    where: _Where,
    lists: tuple[Tensor, Tensor, Tensor],
    places: tuple[Tensor, Tensor, Tensor, Tensor],
    begins: Tensor,
    found: Tensor,
    /,
) -> None:
    """Launches `MappedRows.entries`: `lists` has indptr, indices and the distinct node of each source."""

def cuda_encode_times(
    where: _Where, nodes: tuple[Tensor, Tensor, Tensor], known: Tensor, frequency: Tensor, out: Tensor, /
) -> None:
    """Launches `encode_since`: `nodes` has the seeds' times, the tree and the row of each node."""

# Tensors of types, rows of a tile; weight, shift and bias by type.
_LayerWeights = tuple[Tensor, int, Tensor, Tensor, Tensor | None]
# Epsilon of the norm, ReLU, threshold of dropout and its key.
_LayerActivation = tuple[float, bool, int, Tensor | None]

def cuda_norm(
    where: _Where,
    x: Tensor,
    weights: _LayerWeights,
    activation: _LayerActivation,
    residual: Tensor | None,
    out: Tensor,
    moments: Tensor | None,
    /,
) -> None:
    """Launches the norm of rows in tiles and what follows it (csrc/layers/cuda/norm.h)."""

def cuda_norm_gradient(
    where: _Where,
    x: Tensor,
    weights: _LayerWeights,
    activation: _LayerActivation,
    grad: Tensor,
    moments: Tensor,
    grad_x: Tensor,
    parts: int,
    sums: Tensor,
    /,
) -> None:
    """Launches its gradient; `sums`, `[tiles * parts, 2 or 3, F]`: of weight, shift and, if there is one, bias."""

def cuda_sum_tiles(where: _Where, rows: Tensor, order: Tensor, begins: Tensor, out: Tensor, /) -> None:
    """Launches sums `[types, ...]` of `rows`, `[tiles * parts, ...]`: `order[begins[t]:begins[t + 1]]` are the tiles of
    type t.
    """

cuda_most_normed: int  # columns

# indptr of all rows and entries, int32; of some rows which they are, and where their sums begin, int64.
_AttendedLists = tuple[Tensor, Tensor, Tensor, Tensor]
# Elements from a head to the next, heads, slope of scores below 0, whether tensor cores may be used.
_AttendedShape = tuple[int, int, float, bool]

def cuda_attend(
    where: _Where,
    lists: _AttendedLists,
    shape: _AttendedShape,
    x: Tensor,
    source: Tensor,
    sink: Tensor,
    shares: Tensor,
    out: Tensor,
    /,
) -> None:
    """Launches attention over rows of one relation (csrc/attention/cuda/attend.h)."""

def cuda_attend_parts(where: _Where, lists: _AttendedLists, shape: _AttendedShape, x: Tensor, /) -> int:
    """Parts of the gradient of `source`."""

def cuda_attend_gradient(
    where: _Where,
    lists: _AttendedLists,
    shape: _AttendedShape,
    x: Tensor,
    shares: Tensor,
    grad: Tensor,
    scores: Tensor,
    sink: Tensor,
    source: Tensor,
    /,
) -> None:
    """Launches its gradient: of `scores`, `[entries, heads]`, of `sink`, and of `source`, `[parts, heads, F]`."""

def cuda_attend_sources(
    where: _Where,
    by_source: tuple[Tensor, Tensor, Tensor, Tensor],
    places: tuple[Tensor, Tensor, Tensor],
    heads: int,
    vectors: Tensor,
    shares: Tensor,
    scores: Tensor,
    grad: Tensor,
    out: Tensor,
    /,
) -> None:
    """Launches its gradient of `x`, from the entries in the order of their sources."""

def cuda_write_captured_blocks(
    blocks: list[tuple[Tensor, Tensor, int, Tensor | None, Tensor | None, int]],
    captured: Tensor,
    labels: Tensor,
    labels_to: Tensor,
    device: int,
    stream: int,
    /,
) -> None:
    """Launches the writing of captured blocks to `captured`, `[blocks * cuda_captured_block_bytes]` uint8: of each,
    indptr, indices, num_dst, x and nodes or None, and the key of the activation. The same launch copies `labels` to
    the beginning of `labels_to`."""

cuda_captured_block_bytes: int
cuda_max_captured_blocks: int

def cuda_mean_forward_workspace(num_edges: int, /) -> int: ...
def cuda_mean_backward_workspace(num_src: int, num_edges: int, /) -> int: ...

cuda_mean_dtypes: tuple[str, ...]
cuda_mean_codes: tuple[str, ...]
cuda_mean_long_row: int  # rows with more edges may be summed by thread blocks of their own

class SubgraphSampler:
    def __init__(
        self, indptr: Tensor, indices: Tensor, num_threads: int, picks: WeightTables | WeightOrder | None = None
    ) -> None:
        """Samples the graph of these arrays, both int32 or int64, on the CPU. Any number of threads may call."""

    def sample(
        self, seeds: Tensor, fanouts: Sequence[int], key: int, replace: bool, edge_ids: bool, induced: bool
    ) -> tuple[list[int], list[int], list[int], SampledBuffer]:
        """Samples a subgraph as torch_geometric has them, around seeds `[n]`, any of them several times.

        Returns the numbers of new nodes `[hops + 1]` and of edges `[hops]` (`induced`: `[1]`) by hop, and where the
        arrays begin in the buffer, in bytes: nodes, sources, targets and, if wanted, edge ids, of the graph's type.
        """

def negatives(
    num_sources: int,
    num_targets: int,
    one_type: bool,
    seed: int,
    epoch: int,
    batch: int,
    given: Tensor | None,
    sources: Tensor | None,
    targets: Tensor,
    indptr: Tensor | None,
    indices: Tensor | None,
    strict: bool,
    source_counts: Tensor | None = None,
    source_order: Tensor | None = None,
    target_counts: Tensor | None = None,
    target_order: Tensor | None = None,
) -> None:
    """Writes negative links: to `sources` and `targets` `[n]` int64; or, where sources `given` `[m]` int64 are, to
    `targets` `[m * k]`, those of each source one behind the other. Sources are below `num_sources`, targets below
    `num_targets`. `strict`: no edges of indptr and indices, whose lists ascend; and no loops, if both ends are of
    `one_type`. Negative `i` has an end among the first `counts[i]` nodes of `order`, both int64; by default among all
    nodes."""

most_sorted_ends: int  # that CudaLinkEngine.ends keeps once

class CudaLinkEngine:
    """Finds the ends of links on a GPU. `sources` and `targets` are the first of the ids that they may have, and the
    one after the last. `indptr` and `indices` are of the edges that strict negatives must not be, numbered from these
    first ids on, each list ascending, on the GPU or in pinned memory; or both are None."""

    def __init__(
        self,
        sources: tuple[int, int],
        targets: tuple[int, int],
        num_nodes: int,
        indptr: Tensor | None,
        indices: Tensor | None,
        device: int,
    ) -> None: ...
    def ends(
        self,
        pairs: Tensor,
        negatives: int,
        each: int,
        key: int,
        strict: bool,
        ends: Tensor,
        seeds: Tensor | None,
        local: Tensor | None,
        outcome: Tensor | None,
        stream: int,
    ) -> None:
        """Writes the ends of `pairs` `[links, 2]`, int32 or int64, and of negatives to `ends`, int64: sources, targets,
        sources of negatives unless there are `each` for every link, targets of negatives. With `seeds`, int32 or int64
        and as long as `ends`, writes the distinct ends there, ascending, to `local`, int64 and as long, each end's
        place among them, and to `outcome` `[2]` int64 their number and the place of an end that is no node, or -1."""

def cuda_find_links(
    slots: Tensor,
    seeds: int,
    sources: Tensor,
    targets: Tensor,
    reverse: bool,
    hops: list[tuple[Tensor | None, Tensor, Tensor | None, Tensor]],
    found: Tensor,
    device: int,
    stream: int,
) -> None:
    """Finds the edges of each hop that are links, from `sources` to `targets` `[links]` int64, numbers of seeds.

    `slots` int64 are -1, a power of two of them and more than there are links; `found` `[hops]` int64 are 0. Of a hop,
    the first edges of which lead to the seeds: indptr or None; sources `[edges]`; destinations `[edges]` or None; and
    where to write positions of edges, in any order, of the type of indptr. With destinations, as many edges are
    looked at as there is room for positions; with indptr there is room for all.
    """

def cuda_drop(
    arrays: list[tuple[Tensor, Tensor]],
    indptr: tuple[Tensor, Tensor] | None,
    gone: Tensor,
    device: int,
    stream: int,
) -> None:
    """Copies arrays (from, to), int32 or int64, without the entries at ascending positions, and corrects indptr."""

def subgraph_scratch(nodes: int, edges: int) -> int:
    """How many int32 of scratch memory `cuda_find_subgraph` wants for a mini-batch of this size."""

def cuda_find_subgraph(
    hops: list[tuple[Tensor, Tensor, Tensor | None, int]],
    seeds: int,
    nodes: Tensor,
    scratch: Tensor,
    sizes: Tensor,
    out_nodes: Tensor,
    out_edges: Tensor,
    out_ids: Tensor | None,
    device: int,
    stream: int,
) -> None:
    """Finds the subgraph of a mini-batch. A hop, from the seeds outward, is indptr, indices, edge ids or None, and its
    number of source nodes. `sizes` `[2, hops + 1]` receives the numbers of nodes after each hop, then those of edges.
    `out_edges` `[2 * edges]` receives sources, then destinations, one row after the other."""

class InducedEdges:
    """The edges of lists (indptr, indices) among nodes, on the CPU.

    `nodes` `[n]`, of the type of indices and below `num_ids`; `sets` `[n]` int32 below `num_sets`, or None; `rows`
    `[m]` int64, numbers of the lists to look at, with their sets `of_rows`, or None: those of the nodes.

    `repeated`: set * num_ids + node, the least that is given twice, or -1; `wrong`: the first place of a node that
    is none, or -1. In both cases no edges were looked for.
    """

    def __init__(
        self,
        lists: tuple[Tensor, Tensor],
        num_ids: int,
        nodes: Tensor,
        sets: Tensor | None,
        rows: Tensor | None,
        of_rows: Tensor | None,
        num_sets: int,
        num_threads: int,
    ) -> None: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def repeated(self) -> int: ...
    @property
    def wrong(self) -> int: ...
    def write(self, sources: Tensor, rows: Tensor, edges: Tensor) -> None:
        """Writes of each edge the place of its source in `nodes`, the number of its list among those looked at, and its
        place in indices, all `[num_edges]` int64."""

induced_chunk: int  # entries that a warp looks at

induced_report_words: int

def induced_words(num_nodes: int, num_rows: int, room: int) -> int:
    """Number of words of `CudaInducedEdges`' memory for this many nodes, lists and entries of these."""

class CudaInducedEdges:
    """`InducedEdges` on a GPU: its search is on the stream once it is made."""

    def __init__(
        self,
        lists: tuple[Tensor, Tensor],
        num_ids: int,
        nodes: Tensor,
        sets: Tensor | None,
        rows: Tensor | None,
        of_rows: Tensor | None,
        num_sets: int,
        memory: Tensor,
        room: int,
        device: int,
        stream: int,
    ) -> None:
        """memory: `[induced_words(...)]` int64. Its first `induced_report_words` receive 2**63 - 1 less `repeated` and
        less `wrong`, or 0; the number of entries in the lists; and the number of edges, which is right if there are at
        most `room` entries."""
    def write(self, out: Tensor, entries: int, edges: int) -> None:
        """Puts the writing on the same stream: `out` is `[3, edges]` int64, for what `InducedEdges.write` writes.
        `entries` and `edges` are those of the report."""

def traverse_bfs(
    onward: tuple[Tensor, ...],
    back: tuple[Tensor, ...] | None,
    sources: Tensor,
    most: int,
    turns: bool,
    distances: Tensor,
    predecessors: Tensor | None,
    num_threads: int,
) -> None:
    """Writes the number of edges from the nearest source to each node, at most `most`, else -1, and the smallest
    nodes before them. Lists are (indptr, indices). With `turns` steps may go back, by the lists `back`, which
    predecessors take, too."""

def traverse_sssp(
    onward: tuple[Tensor, ...], weights: Tensor, sources: Tensor, delta: float, lengths: Tensor, num_threads: int
) -> None:
    """Writes the lengths of shortest paths, as csrc/traverse/lists.h has them, of the type of the weights."""

def traverse_components(lists: tuple[Tensor, ...], symmetric: bool, labels: Tensor, num_threads: int) -> None:
    """Writes the smallest node of each node's weakly connected component."""

def traverse_pagerank(
    back: tuple[Tensor, ...],
    damping: int,
    own: Tensor | None,
    close: int,
    max_iter: int,
    ranks: Tensor,
    num_threads: int,
) -> tuple[int, int]:
    """Writes the ranks, float64. `damping`, `own` and `close` are shares of 2**62. Returns the change by the last
    iteration, such a share, and the number of iterations."""

def traverse_symmetric(lists: tuple[Tensor, ...], weights: Tensor | None, num_threads: int) -> bool:
    """Whether each edge has its reverse, of the same weight; wrong with a probability of 2**-64."""

def traverse_memory(lists: tuple[Tensor, ...], with_numbers: bool) -> int:
    """Bytes of GPU memory that a traversal takes beside its result; PageRank takes it `with_numbers`."""

def traverse_bfs_cuda(
    onward: tuple[Tensor, ...],
    back: tuple[Tensor, ...] | None,
    line: int,
    sources: Tensor,
    most: int,
    turns: bool,
    distances: Tensor,
    memory: Tensor,
    device: int,
    stream: int,
) -> None:
    """`traverse_bfs` on a GPU, on a stream. `line` entries of a list cost as much as one to read: 1 in GPU memory, more
    over the bus. `memory` has the bytes that `traverse_memory` says."""

def traverse_sssp_cuda(
    onward: tuple[Tensor, ...],
    weights: Tensor,
    line: int,
    sources: Tensor,
    delta: float,
    least_weight: float,
    lengths: Tensor,
    memory: Tensor,
    device: int,
    stream: int,
) -> None:
    """`traverse_sssp` on a GPU, see `traverse_bfs_cuda`. No weight is less than `least_weight`."""

def traverse_components_cuda(
    lists: tuple[Tensor, ...],
    symmetric: bool,
    line: int,
    labels: Tensor,
    memory: Tensor,
    device: int,
    stream: int,
) -> None:
    """`traverse_components` on a GPU, see `traverse_bfs_cuda`."""

def traverse_pagerank_cuda(
    back: tuple[Tensor, ...],
    damping: int,
    own: Tensor | None,
    close: int,
    max_iter: int,
    line: int,
    ranks: Tensor,
    memory: Tensor,
    device: int,
    stream: int,
) -> None:
    """`traverse_pagerank` on a GPU, see `traverse_bfs_cuda`. Its result is written to bytes 8 to 24 of `memory`."""
