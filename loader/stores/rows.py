"""Options and format of rows, and checks of tables and ids, for all stores."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypedDict

import torch
from torch import Tensor

from loader.machine.arguments import check_dense, kind_of
from loader.machine.pinning import host_memory
from loader.stores import scaled_codes
from loader.stores.deviations import check_deviations, sample_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

CONVERTIBLE = (torch.float32, torch.float16, torch.bfloat16)
_PART = 1 << 22  # numbers that are looked at together
_NAMES = {"float8": "float8_e4m3fn"}  # of torch's types, where they differ


class RowOptions(TypedDict, total=False):
    """Options of every store but `TensorRows`, given by keyword.

    Rows of float32, float16 and bfloat16 can be converted into each other, and kept as int8 or float8_e4m3fn. Rows of
    other types keep theirs: another `dtype` or `storage_dtype` raises TypeError.

    Attributes:
        dtype: element type of the rows that `gather` returns, or its name, e.g. "float16"; by default (None)
            `storage_dtype`, or that of the tensor if rows are kept in 8 bits. What is too large for it becomes
            infinite; a column whose differences it does not keep is refused.
        storage_dtype: element type in which the store keeps the rows, or its name; by default (None) that of the
            tensor. Numbers that are too large for it are refused. "int8" and "float8" (e4m3fn) have scales, see
            `RowFormat`.
    """

    dtype: torch.dtype | str | None
    storage_dtype: torch.dtype | str | None


class RowFormat:
    """The rows of a store: their number, their shape, and the element types in which they are kept and returned.

    Args:
        tensor: `[num_rows, ...]`.
        device_types: types of the devices that the tensor may lie on.
        line: bytes in which the store's memory is read, see `loader.stores.scaled_codes.pitch_of`.
        options: see `RowOptions`.

    float32, float16 and bfloat16 can be converted to each other, rounded to nearest even as by `Tensor.to`. A NaN stays
    a NaN, but its payload is not defined. Rows of other types are returned in their own type.

    Rows of these three types can be kept in 8 bits, as int8 or float8_e4m3fn: then `stored` makes codes `[num_rows,
    nbytes]` and sets `scales`, one for each column or one for each row. An element is its code times its scale, one
    multiplication of float32, and then converted to `dtype`. All stores return equal bytes.

    Attributes:
        coded: whether rows are kept so.
        nbytes: of a row, as it is kept. Codes may be followed by some bytes, so that a row is read in fewer lines.
        by_row: whether codes have a scale for each row, once `choose` was called.
        scales: of codes, once there are any.

    Raises:
        TypeError: `tensor` is not a tensor, or a type cannot be converted.
        ValueError: `tensor` has no dimension, is not contiguous or lies elsewhere.
    """

    def __init__(
        self,
        tensor: Tensor,
        device_types: tuple[str, ...] = ("cpu",),
        line: int = 128,
        **options: Unpack[RowOptions],
    ) -> None:
        if unknown := options.keys() - RowOptions.__annotations__:
            raise TypeError(
                f"{min(unknown)} is no option of this store; all know {', '.join(RowOptions.__annotations__)}"
            )
        if not isinstance(tensor, Tensor):
            raise TypeError(f"features is {kind_of(tensor)}; give a torch tensor (torch.from_numpy)")
        check_dense("features", tensor)
        if tensor.requires_grad:  # it would stay as it is, without a word
            raise ValueError(
                "features requires a gradient, and gathered rows carry none; give features.detach(), and look up "
                "learned rows in the model: torch.nn.Embedding of batch.input_nodes"
            )
        if tensor.dim() == 0:
            raise ValueError("features has no dimension; it must be [num_rows, ...]")
        if tensor.device.type not in device_types:
            raise ValueError(f"features lies on {tensor.device}; it must lie on {' or '.join(device_types)}: .cpu()")
        if not tensor.is_contiguous():
            raise ValueError(f"features has strides {tensor.stride()}; it must be contiguous: .contiguous()")
        self.num_rows = tensor.shape[0]
        self.shape = tuple(tensor.shape[1:])
        self.dim = math.prod(self.shape)
        self.storage_dtype = _converted("storage_dtype", options.get("storage_dtype"), tensor.dtype, scaled_codes.MOST)
        self.coded = self.storage_dtype in scaled_codes.MOST and self.storage_dtype != tensor.dtype
        self.dtype = _converted("dtype", options.get("dtype"), tensor.dtype if self.coded else self.storage_dtype)
        self.nbytes = scaled_codes.pitch_of(self.dim, line) if self.coded else self.dim * self.storage_dtype.itemsize
        self.scales: scaled_codes.Scales | None = None
        self.by_row: bool | None = None if self.coded else False
        self._scales_on: dict[torch.device, Tensor] = {}

    def stored(self, tensor: Tensor, device: torch.device | None = None) -> Tensor:
        """`tensor` in the type in which it is kept, or `tensor` itself if it has that type; codes are `[num_rows,
        nbytes]` uint8.

        Args:
            tensor: all rows, from which this format was made.
            device: where to, by default the CPU. Codes are made in parts, so nothing but them takes memory.

        Raises:
            ValueError: a finite number is too large for that type, or a column loses too much; or one that is not
                finite does not become codes.
        """
        if self.coded:
            where, nbytes = torch.device("cpu") if device is None else device, self.num_rows * self.nbytes
            if where.type == "cpu" and nbytes:  # which begins on a line, unlike torch's memory
                table = host_memory(nbytes).view(self.num_rows, self.nbytes)
            else:
                table = torch.empty(self.num_rows, self.nbytes, dtype=torch.uint8, device=where)
            self.write_codes(tensor, table)
            return table
        self.check(tensor)
        table = self.narrowed(tensor)
        return table if device is None else table.to(device)

    def check(self, tensor: Tensor) -> None:
        """Raises ValueError if a type loses too much of a column's deviation, which a sample of the rows tells.

        Args:
            tensor: all rows, from which this format was made.
        """
        kinds = {self.storage_dtype: "storage_dtype"}
        kinds.setdefault(self.dtype, "dtype")
        narrower = [kind for kind in kinds if kind not in (tensor.dtype, torch.float32)]
        if not tensor.numel() or not narrower:
            return
        flat = tensor.view(self.num_rows, self.dim)
        of = sample_of(flat)
        some = flat[of]
        if self.coded:
            self._scaled(tensor)
            assert self.scales is not None
            scales = self.scales.of[of] if self.scales.by_row else self.scales.of
            read = scaled_codes.decode(scaled_codes.encode(some, self.storage_dtype, scales), scales)
        else:
            read = some.to(self.storage_dtype)
        for kind in narrower:
            read = read if kind == self.storage_dtype else read.to(kind)
            check_deviations(some, read, kinds[kind], kind)

    def write_codes(self, tensor: Tensor, table: Tensor) -> scaled_codes.Scales:
        """Writes the codes of `tensor`, that of the format, to `table`, `[num_rows, nbytes]` uint8; see `stored`."""
        flat = self._scaled(tensor)
        assert self.scales is not None
        self.check(tensor)
        if flat.numel():
            loss = scaled_codes.write_codes(flat, self.storage_dtype, self.scales, table)
            scaled_codes.say(self.storage_dtype, self.scales, loss)
        return self.scales

    def codes_of(self, tensor: Tensor, begin: int, end: int) -> Tensor:
        """Codes of some rows, as `stored` has them: for stores that keep a part of the rows."""
        flat = self._scaled(tensor)
        assert self.scales is not None
        of = self.scales.of[begin:end] if self.scales.by_row else self.scales.of
        table = torch.zeros(end - begin, self.nbytes, dtype=torch.uint8)
        table[:, : self.dim] = scaled_codes.encode(flat[begin:end], self.storage_dtype, of).view(torch.uint8)
        return table

    def decoded(self, table: Tensor, ids: Tensor) -> Tensor:
        """`[n, *shape]` of `dtype`: what gathered codes stand for.

        Args:
            table: `[n, nbytes]` uint8, codes.
            ids: `[n]`, whose rows they are, anywhere.
        """
        of = self.scales_on(table.device)
        if self.by_row:
            of = of[ids.to(table.device).long()]
        rows = scaled_codes.decode(self.view_of(table), of)
        return rows.to(self.dtype).view(len(table), *self.shape)

    def view_of(self, table: Tensor) -> Tensor:
        """Codes `[n, nbytes]` uint8 as `[n, dim]` of `storage_dtype`, without what follows those of a row."""
        return table[:, : self.dim].view(self.storage_dtype)

    def for_core(self, device: torch.device) -> dict[str, Any]:
        """What the core's gathers are told of codes on top; nothing of other rows."""
        if not self.coded:
            return {}
        name = str(self.storage_dtype).removeprefix("torch.")
        return {"code": name, "columns": self.dim, "scales": self.scales_on(device)}

    def scales_on(self, device: torch.device) -> Tensor:
        """`[1, dim]` or `[num_rows, 1]` float32: the scales of codes, copied to the device once."""
        assert self.scales is not None
        if device not in self._scales_on:
            self._scales_on[device] = self.scales.of.to(device)
        return self._scales_on[device]

    def forget_scales(self) -> None:
        """Frees copies of scales on devices."""
        self._scales_on.clear()

    def choose(self, tensor: Tensor) -> None:
        """Chooses whether codes have a scale for each row, by a sample of `tensor`, the format's own."""
        if self.by_row is None:
            self.by_row = scaled_codes.better_by_row(tensor.view(self.num_rows, self.dim), self.storage_dtype)

    @property
    def all_scale_bytes(self) -> int:
        """Bytes of all scales, once that is chosen; 0 of rows that are no codes."""
        return 4 * (self.num_rows if self.by_row else self.dim) if self.coded else 0

    @property
    def scale_bytes(self) -> int:
        """Bytes of scales for each row of the table, which lie where rows are decoded: 0 or 4, once that is chosen."""
        return 4 if self.by_row else 0

    def _scaled(self, tensor: Tensor) -> Tensor:
        """`tensor` as `[num_rows, dim]`, after which `scales` is known."""
        flat = tensor.view(self.num_rows, self.dim)
        if self.scales is None:
            self.choose(tensor)
            if flat.numel():
                self.scales = scaled_codes.scales_of(flat, self.storage_dtype, bool(self.by_row))
            else:
                self.scales = scaled_codes.Scales(torch.ones(1, self.dim, dtype=torch.float32), by_row=False)
        return flat

    def narrowed(self, tensor: Tensor) -> Tensor:
        """Some rows in the type in which they are kept, if those are no codes."""
        if tensor.dtype == self.storage_dtype:
            return tensor
        if tensor.numel():
            ends = torch.stack(torch.aminmax(tensor))
            if not bool(ends.isfinite().all()):  # the other numbers may be too large all the same
                ends = _finite_ends(tensor)
            if bool(ends.to(self.storage_dtype).isinf().any()):
                most = torch.finfo(self.storage_dtype).max
                raise ValueError(
                    f"storage_dtype is {self.storage_dtype}, whose numbers end at {most:g}, and features go from "
                    f"{float(ends[0]):g} to {float(ends[1]):g}; scale them, or take bfloat16"
                )
        return tensor.to(self.storage_dtype)

    def describe(self) -> str:
        """For a `repr`."""
        storage = "" if self.storage_dtype == self.dtype and not self.coded else f", storage_dtype={self.storage_dtype}"
        return f"num_rows={self.num_rows}, row_shape={self.shape}, dtype={self.dtype}{storage}"


def _finite_ends(tensor: Tensor) -> Tensor:
    """`[2]` the least and the largest of the finite numbers of a tensor, zeros without any. It is read in parts."""
    found: list[Tensor] = []
    for part in tensor.view(-1).split(_PART):
        finite = part[part.isfinite()]
        if finite.numel():
            found += [finite.amin(), finite.amax()]
    return torch.stack(torch.aminmax(torch.stack(found))) if found else tensor.new_zeros(2)


def narrower_rows(tensor: Tensor, **options: Unpack[RowOptions]) -> dict[str, RowFormat]:
    """Formats of the same rows in the narrower types that they can be kept in, the widest first.

    Args:
        tensor: of the rows.
        options: of the format that they would be narrower than.
    """
    as_given = RowFormat(tensor, **options)
    if tensor.dtype not in CONVERTIBLE:
        return {}
    found = {name: RowFormat(tensor, storage_dtype=name, dtype=as_given.dtype) for name in ("bfloat16", "int8")}
    return {name: rows for name, rows in found.items() if rows.nbytes < as_given.nbytes}


class StoreOfRows:
    """The properties of a store's rows. A subclass sets `_format` and `_device`.

    Attributes:
        needs_gpu: whether the store works only with a GPU.
    """

    needs_gpu = False

    _format: RowFormat
    _device: torch.device

    @property
    def num_rows(self) -> int:
        return self._format.num_rows

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self._format.shape

    @property
    def dim(self) -> int:
        return self._format.dim

    @property
    def dtype(self) -> torch.dtype:
        return self._format.dtype

    @property
    def storage_dtype(self) -> torch.dtype:
        """Element type in which the rows are kept."""
        return self._format.storage_dtype

    @property
    def device(self) -> torch.device:
        return self._device

    def _stored(self, tensor: Tensor, rows: RowFormat) -> Tensor:
        """The rows of `tensor` as they are kept."""
        return rows.stored(tensor)


def check_ids(ids: Tensor) -> None:
    """Raises TypeError or ValueError unless `ids` is a vector of int32 or int64."""
    if not isinstance(ids, Tensor):
        raise TypeError(f"ids is {kind_of(ids)}; it must be a torch tensor of int32 or int64 (torch.as_tensor)")
    if ids.dtype != torch.int64 and ids.dtype != torch.int32:
        way = "ids.nonzero().view(-1)" if ids.dtype == torch.bool else "ids.long()"
        raise TypeError(f"ids has dtype {ids.dtype}; it must be torch.int32 or torch.int64: {way}")
    if ids.dim() != 1:
        raise ValueError(f"ids has shape {list(ids.shape)}; it must have 1 dimension")


def check_range(ids: Tensor, num_rows: int) -> None:
    """Raises ValueError, which names the first id that is out of range."""
    bad = ((ids < 0) | (ids >= num_rows)).nonzero()
    if bad.numel():
        i = int(bad[0])
        raise ValueError(f"ids[{i}] is {int(ids[i])}; the table has {num_rows} rows, valid ids are 0 to {num_rows - 1}")


def as_dtype(name: str, dtype: torch.dtype | str) -> torch.dtype:
    """`torch.float16` or its name, "float16", as a configuration gives it."""
    found: Any = dtype
    if isinstance(dtype, str):
        known = dtype.removeprefix("torch.")
        found = getattr(torch, _NAMES.get(known, known), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{name} is {dtype!r}; it must be a torch.dtype or its name, e.g. float16")
    return found


def _converted(
    name: str, wanted: torch.dtype | str | None, given: torch.dtype, also: Collection[torch.dtype] = ()
) -> torch.dtype:
    if wanted is None:
        return given
    dtype = as_dtype(name, wanted)
    if dtype != given and not ((dtype in CONVERTIBLE or dtype in also) and given in CONVERTIBLE):
        eight = ", and into int8 and float8" if also else ""
        raise TypeError(
            f"{name} is {dtype} for rows of {given}; only float32, float16 and bfloat16 convert into each other{eight}"
        )
    return dtype
