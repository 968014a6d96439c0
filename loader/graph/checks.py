"""The checks of a graph, before a sampler reads it. No computation here can overflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from loader.machine.arguments import as_size, check_dense, kind_of, shown
from loader.machine.hardware import usable_memory

MAX_DEGREE = 2**31 - 1  # a pick draws its positions from 32-bit words (csrc/sampler/pick.h)
MAX_EDGE_TYPE = 2**31 - 1
MISSING_TIME = -(2**63)  # NaT of NumPy and pandas
_PART = 1 << 22  # nodes that are looked at together
_FEW = 2**24  # lists, for which nobody asks how much memory there is
MAX_NODES = 2**62  # sums of two stay within 64 bits
# Torch compares none of them, and has none before 2.3.
_UNSIGNED = [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]


def integer_vector(name: str, array: Tensor, device: torch.device) -> Tensor:
    """`array`, if it is a vector of integers on `device`; unsigned types that torch does not compare become int64."""
    _check_vector(name, array, device)
    check_integers(name, array, f": {name}.nonzero().view(-1)" if array.dtype == torch.bool else f": {name}.long()")
    return signed(name, array)


def check_integers(name: str, array: Tensor, way: str = " (.long(), mask.nonzero()[:, 0])") -> None:
    """Raises TypeError for floats, complex numbers and truth values; `way` is the end of the message."""
    if array.is_floating_point() or array.is_complex() or array.dtype == torch.bool:
        raise TypeError(f"{name} has dtype {array.dtype}; it must be an integer type{way}")


def signed(name: str, array: Tensor) -> Tensor:
    """`array`, of any integer type, as one that torch compares; ValueError if a number does not fit int64."""
    if array.dtype not in _UNSIGNED:
        return array
    known = array.to(torch.int64)
    if array.element_size() == 8 and known.numel() and int(known.min()) < 0:
        at = int((known.flatten() < 0).nonzero()[0])
        value = int(known.flatten()[at]) % 2**64
        raise ValueError(f"{name}[{at}] is {value}; it must fit int64, which ends at {2**63 - 1}")
    return known


def weight_vector(array: Tensor, device: torch.device, name: str = "edge_weights") -> Tensor:
    """`array`, if it is a vector of float32 or float64 on `device`."""
    _check_vector(name, array, device)
    if array.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} has dtype {array.dtype}; it must be float32 or float64: pass {name}.float()")
    return array


def time_vector(name: str, array: Tensor, device: torch.device) -> Tensor:
    """`array` as int64, if it is a vector of integers or of whole floats on `device`, whose type has all whole numbers
    up to them. NaN becomes `MISSING_TIME`.
    """
    _check_vector(name, array, device)
    check_numbers(name, array)
    if not array.is_floating_point():
        if array.is_complex() or array.dtype == torch.bool:
            raise TypeError(f"{name} has dtype {array.dtype}; times are integers, or floats that are whole numbers")
        return signed(name, array).to(torch.int64)
    wide = array.detach().double()
    known = ~wide.isnan()
    if bool((wrong := known & ((wide != wide.round()) | (wide.abs() >= 2**63))).any()):
        at = int(wrong.nonzero()[0])
        raise ValueError(
            f"{name}[{at}] is {float(wide[at])}; times are whole numbers below 2^63: count them in a smaller unit"
        )
    exact = int(2 / torch.finfo(array.dtype).eps)  # from here on, numbers of that type are no longer all whole ones
    if bool((large := wide.abs() >= exact).any()):
        at = int(large.nonzero()[0])
        wider = "" if array.dtype == torch.float64 else ", or float64,"
        raise ValueError(
            f"{name}[{at}] is {float(wide[at])} of type {array.dtype}, in which several whole numbers from {exact} on "
            f"are one, so an order may be lost: make times int64{wider} where they are read"
        )
    return torch.where(known, wide, 0.0).to(torch.int64).masked_fill_(~known, MISSING_TIME)


def check_length(name: str, array: Tensor, length: int, what: str) -> None:
    """Raises ValueError unless `array` has `length` entries; `what` names that number in the message."""
    if array.numel() != length:
        raise ValueError(f"{name} has {array.numel()} entries, {what}; the numbers must be equal")


def check_room(what: str, rows: int) -> None:
    """Raises ValueError if not even the bounds of this many lists, 8 bytes each, fit into the memory of the process.

    Args:
        what: names the number of nodes, e.g. "num_nodes is 10".
        rows: number of lists.
    """
    if rows > _FEW and 8 * rows > (most := usable_memory()):
        raise ValueError(
            f"{what}, whose lists need {8 * rows / 2**30:,.0f} GiB for their bounds alone, and {most / 2**30:,.0f} GiB "
            "of memory are usable; if ids have gaps, number the nodes anew: torch.unique(ids, return_inverse=True)"
        )


def check_range(name: str, array: Tensor, num_nodes: int, way: str = "") -> None:
    """Raises ValueError unless all ids are in `[0, num_nodes)`; `way` is the end of the message."""
    if array.numel() == 0:
        return
    check_numbers(name, array)
    low, high = (int(x) for x in torch.aminmax(array))
    if low < 0 or high >= num_nodes:
        bad = low if low < 0 else high
        valid = f"valid ids are 0 to {num_nodes - 1}" if num_nodes else "there are no nodes"
        raise ValueError(f"{name} holds node {bad}; {valid}{way}")


def check_csc(indptr: Tensor, indices: Tensor, num_src: int) -> None:
    """Raises ValueError unless `indptr` rises from 0 to `len(indices)` and `indices` are in `[0, num_src)`."""
    check_numbers("indptr", indptr)
    if int(indptr[0]) != 0:
        raise ValueError(
            f"indptr starts at {int(indptr[0])}; it must start at 0; of a list of edges, Graph.from_edges makes a graph"
        )
    for first, part in _parts(indptr):
        falls = part[1:] < part[:-1]
        if bool(falls.any()):
            v = first + int(falls.nonzero()[0])
            raise ValueError(f"indptr is not monotone: indptr[{v}] = {int(indptr[v])} > {int(indptr[v + 1])}")
    if int(indptr[-1]) != indices.numel():
        raise ValueError(f"indptr ends at {int(indptr[-1])}; it must end at len(indices) = {indices.numel()}")
    if indices.numel() > MAX_DEGREE:
        for first, part in _parts(indptr):
            degrees = part.diff()  # of a rising sequence from 0: no difference is larger than its end
            v = int(degrees.argmax())
            if int(degrees[v]) > MAX_DEGREE:
                raise ValueError(f"node {first + v} has {int(degrees[v])} in-neighbors; the limit is {MAX_DEGREE}")
    check_range("indices", indices, num_src)


def check_weights(
    weights: Tensor,
    src: Tensor,
    indptr: Tensor | None = None,
    dst: Tensor | None = None,
    name: str = "edge_weights",
) -> None:
    """Raises ValueError unless all weights are finite and at least 0; the message names the first edge for which this
    is false.

    Args:
        weights, src: `[num_edges]`.
        indptr, dst: give one of them; it says which node an edge goes to.
        name: of the weights, in the message.
    """
    if weights.numel() == 0:
        return
    weights = weights.detach()  # also trained ones are only looked at
    low, high = (float(x) for x in torch.aminmax(weights))
    if low >= 0 and high < float("inf"):  # NaN is neither
        return
    edge = int((~(weights >= 0) | torch.isinf(weights)).nonzero()[0])
    if dst is not None:
        end = int(dst[edge])
    else:
        assert indptr is not None
        end = int(torch.searchsorted(indptr, edge, right=True)) - 1
    raise ValueError(
        f"{name}[{edge}], of the edge {int(src[edge])} -> {end}, is {float(weights[edge])}; a weight must be "
        "finite and at least 0: leave such edges out, or give them a weight of 0"
    )


def check_edge_types(types: Tensor) -> None:
    """Raises ValueError unless all types are in `[0, 2**31)`."""
    if types.numel() == 0:
        return
    low, high = (int(x) for x in torch.aminmax(types))
    if low < 0 or high > MAX_EDGE_TYPE:
        bad = low if low < 0 else high
        edge = int((types == bad).nonzero()[0])
        raise ValueError(f"edge_types[{edge}] is {bad}; a type is a number from 0 to {MAX_EDGE_TYPE}")


def type_ranges(node_types: Mapping[str, int | range | Sequence[int]], num_src: int) -> dict[str, range]:
    """The range of ids of each type, in ascending order, from sizes or from bounds.

    Raises:
        TypeError: it is no mapping, a name is no string, or a value is neither a size nor bounds.
        ValueError: the ranges do not follow each other from 0 to `num_src`.
    """
    if not isinstance(node_types, Mapping):
        raise TypeError(f"node_types is {shown(node_types)}; it must be a dict: name -> number of nodes")
    ranges: dict[str, range] = {}
    end = 0
    for name, value in node_types.items():
        if not isinstance(name, str):
            raise TypeError(f"node_types has the key {name!r}; the name of a type must be a string")
        if isinstance(value, (range, Sequence)) and not isinstance(value, str):
            bounds = (value.start, value.stop) if isinstance(value, range) else tuple(value)
            if len(bounds) != 2 or (isinstance(value, range) and value.step != 1):
                raise TypeError(f"node_types[{name!r}] is {value!r}; it must be a size, or (begin, end)")
            begin, stop = (as_size(f"node_types[{name!r}]", bound, least=0) for bound in bounds)
        else:
            begin, stop = end, end + as_size(f"node_types[{name!r}]", value, least=0)
        if begin != end or stop < begin:
            raise ValueError(
                f"node_types[{name!r}] is {begin} to {stop}; types follow each other without a gap, so it must begin "
                f"at {end} and not end before it"
            )
        ranges[name] = range(begin, stop)
        end = stop
    if end != num_src:
        raise ValueError(f"node_types ends at {end}; the types must cover all {num_src} nodes")
    return ranges


def _parts(indptr: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Numbers of nodes, and `indptr` from there on, with one entry more: what is made of a part is small, also if
    `indptr` is mapped from a file that is larger than memory.
    """
    for first in range(0, indptr.numel() - 1, _PART):
        yield first, indptr[first : first + _PART + 1]


def check_numbers(name: str, array: Tensor) -> None:
    """Raises ValueError for a tensor on the meta device."""
    if array.is_meta:
        raise ValueError(f"{name} lies on meta, where tensors have no numbers; it must lie on the CPU or on a GPU")


def _way_to_vector(name: str, array: Tensor) -> str:
    """The end of the message on an array of 0 or several dimensions."""
    if name in ("src", "dst") and array.dim() == 2 and array.shape[0] == 2:
        return ": of an edge_index [2, num_edges], src is edge_index[0] and dst edge_index[1]"
    if name in ("src", "dst") and array.dim() == 2 and array.shape[1] == 2:
        return ": of pairs [num_edges, 2], src is pairs[:, 0] and dst pairs[:, 1]"
    return f": {name}.view(-1)" if array.numel() in array.shape else ""


def _check_vector(name: str, array: Tensor, device: torch.device) -> None:
    if not isinstance(array, Tensor):
        raise TypeError(f"{name} is {kind_of(array)}; it must be a torch tensor (torch.as_tensor)")
    check_dense(name, array)
    if array.dim() != 1:
        raise ValueError(f"{name} has {array.dim()} dimensions; it must have 1{_way_to_vector(name, array)}")
    if array.device != device:
        raise ValueError(
            f"{name} lies on {array.device}, the rest of the graph on {device}; move one of them (graph.place can "
            "separate them afterwards)"
        )
