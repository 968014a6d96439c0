"""What bindings of the GPU part are given is looked at before anything is launched: wrong tensors are one line.

The tensors lie on the CPU and say that they lay on a GPU, see `OnGPU`: a launch would fail for the lack of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from on_gpu import OnGPU

from loader import _core

Arguments = dict[str, Any]


@dataclass
class Binding:
    """A binding with arguments that it takes.

    Attributes:
        call: of the arguments, by name.
        arguments: tensors of the GPU, and others.
        lengths: what is said of each tensor that lacks an element, where it is not "has n elements; it must have m".
        any_length: tensors that may be shorter.
        types: the same as `lengths`, of a tensor of bool, where it is not "has dtype torch.bool; ".
    """

    call: Callable[..., Any]
    arguments: Arguments
    lengths: dict[str, str]
    any_length: frozenset[str] = frozenset()
    types: dict[str, str] = field(default_factory=dict)


def on_gpu(*sizes: int, dtype: torch.dtype = torch.int64) -> Any:
    return OnGPU(torch.zeros(*sizes, dtype=dtype))


def gatherer() -> _core.CudaGatherer:
    """Of a table of 10 rows of 4 float32, returned as float16, 3 of which are cached."""
    return _core.CudaGatherer(
        torch.zeros(10, 4),
        0,
        "torch.float16",
        raised=on_gpu(1, dtype=torch.int32),
        notes=torch.zeros(_core.cuda_notes_bytes, dtype=torch.uint8),
        cache=OnGPU(torch.zeros(3, 4)),  # type: ignore[arg-type]
        slots=on_gpu(10, dtype=torch.int32),
        hits=on_gpu(1),
    )


def gather() -> Binding:
    core = gatherer()
    core.order_from = 70
    scratch = core.scratch_bytes(70)
    return Binding(
        lambda **given: core.gather(**given, stream=0),
        {
            "ids": on_gpu(70),
            "out": on_gpu(70, 4, dtype=torch.float16),
            "scratch": on_gpu(scratch, dtype=torch.uint8),
            "marks": on_gpu(3, dtype=torch.int32),
        },
        {
            "ids": "out has 70 rows of 8 bytes; it must have 69 of 8",
            "out": "out has 69 rows of 8 bytes; it must have 70",
        },
    )


def find_misses() -> Binding:
    core = gatherer()
    return Binding(
        lambda **given: core.find_misses(**given, from_id=0, stream=0),
        {"ids": on_gpu(7), "found": on_gpu(2 + _core.miss_ranges + 7), "positions": on_gpu(7)},
        {"ids": f"found has {9 + _core.miss_ranges} elements; it must have {8 + _core.miss_ranges}"},
    )


def mark_misses() -> Binding:
    core = gatherer()
    return Binding(
        lambda **given: core.mark_misses(**given, stream=0),
        {"ids": on_gpu(65), "marks": on_gpu(3, dtype=torch.int32)},
        {"ids": "marks has 3 elements; it must have 2"},
    )


def ends() -> Binding:
    """Of 3 links and 3 negatives, both of whose ends are drawn."""
    core = _core.CudaLinkEngine((0, 9), (0, 9), 9, None, None, 0)
    return Binding(
        lambda **given: core.ends(**given, negatives=3, each=0, key=1, strict=False, stream=0),
        {
            "pairs": on_gpu(3, 2, dtype=torch.int32),
            "ends": on_gpu(12),
            "seeds": on_gpu(12, dtype=torch.int32),
            "local": on_gpu(12),
            "outcome": on_gpu(2),
        },
        {"pairs": "ends has 12 elements; it must have 10"},
    )


def links_of_block() -> Binding:
    """Of 2 seeds, whose 4 edges are in one block."""
    return Binding(
        lambda **given: _core.cuda_find_links(
            *(given["slots"], 2, given["sources"], given["targets"], False),
            *([(given["indptr"], given["sources of a hop"], None, given["gone"])], given["found"], 0, 0),
        ),
        {
            "slots": on_gpu(8),
            "sources": on_gpu(3),
            "targets": on_gpu(3),
            "indptr": on_gpu(3),
            "sources of a hop": on_gpu(4, dtype=torch.int32),
            "gone": on_gpu(4),
            "found": on_gpu(1),
        },
        {
            "slots": "slots has 7 elements; it must have a power of two above 3",
            "sources": "targets has 3 elements; it must have 2",
            "indptr": "indptr has 2 elements; with 2 seeds it must have 3",
            "sources of a hop": "gone has 4 elements; the hop has 3 edges",
            "gone": "gone has 3 elements; the hop has 4 edges",
        },
    )


def links_of_subgraph() -> Binding:
    return Binding(
        lambda **given: _core.cuda_find_links(
            *(on_gpu(8), 2, on_gpu(3), on_gpu(3), True),
            *([(None, given["sources of a hop"], given["destinations"], given["gone"])], on_gpu(1), 0, 0),
        ),
        {"sources of a hop": on_gpu(4), "destinations": on_gpu(4), "gone": on_gpu(4)},
        {"sources of a hop": "gone has 4 elements; the hop has 3 edges"},
        frozenset({"gone"}),  # fewer edges are looked at
    )


def drop() -> Binding:
    return Binding(
        lambda **given: _core.cuda_drop(
            [(given["array"], given["out"])], (given["indptr"], given["out of indptr"]), given["gone"], 0, 0
        ),
        {
            "array": on_gpu(6, dtype=torch.int32),
            "out": on_gpu(4, dtype=torch.int32),
            "indptr": on_gpu(3),
            "out of indptr": on_gpu(3),
            "gone": on_gpu(2),
        },
        {
            "array": "out has 4 elements; it must have 3",
            "gone": "out has 4 elements; it must have 5",
            "indptr": "out of indptr has 3 elements; it must have 2",
        },
    )


def walk_engine() -> _core.CudaWalkEngine:
    graph = on_gpu(5), on_gpu(6, dtype=torch.int32)
    return _core.CudaWalkEngine(*graph, None, None, 0, on_gpu(2), 0)


def walk() -> Binding:
    """Of 3 walkers, 4 steps."""
    core, rest = walk_engine(), {"stop_below": 0, "home_below": 0, "accept": None, "path": [], "stream": 0}
    return Binding(
        lambda **given: core.walk(**given, first_lane=0, key=1, length=4, **rest),
        {"starts": on_gpu(3, dtype=torch.int32), "nodes": on_gpu(3, 5, dtype=torch.int32), "places": on_gpu(3, 4)},
        {"starts": "nodes has 15 elements; it must have 10"},
    )


def step() -> Binding:
    core = walk_engine()
    return Binding(
        lambda **given: core.step(**given, key=1, length=4, stop_below=0, home_below=0, step=1, stream=0),
        {
            "starts": on_gpu(3),
            "order": on_gpu(3),
            "nodes": on_gpu(3, 5, dtype=torch.int32),
            "places": on_gpu(3, 4),
        },
        {"starts": "order has 3 elements; it must have 2"},
    )


def walk_by() -> Binding:
    core, rest = walk_engine(), {"weights": None, "searches": False, "by_weight": False, "fault": on_gpu(5)}
    return Binding(
        lambda **given: core.walk_by(
            "", **given, first_lane=0, key=1, length=4, turns=1, constants=[], **rest, stream=0
        ),
        {
            "starts": on_gpu(3),
            "nodes": on_gpu(3, 5, dtype=torch.int32),
            "reported": on_gpu(1, dtype=torch.int32),
        },
        {"starts": "nodes has 15 elements; it must have 10"},
    )


FLOAT, NARROW, BYTES = torch.float32, torch.int32, torch.uint8


def mean_forward() -> Binding:
    """Of rows of 5 elements, those of 4 sources in a table of 6, for 3 destinations with 300 edges."""
    return Binding(
        lambda **given: _core.cuda_mean_forward(
            *(
                (0, 0),
                (given["indptr"], given["indices"], 3, None, False, None),
                given["x"],
                given["nodes"],
                given["out"],
            ),
            *(5, 0, 4, (False, 0, 0), given["workspace"], (None, False)),
        ),
        {
            "indptr": on_gpu(4, dtype=NARROW),
            "indices": on_gpu(300, dtype=NARROW),
            "x": on_gpu(6, 5, dtype=FLOAT),
            "nodes": on_gpu(4, dtype=NARROW),
            "out": on_gpu(3, 14, dtype=torch.bfloat16),
            "workspace": on_gpu(_core.cuda_mean_forward_workspace(300), dtype=BYTES),
        },
        {"out": "out has shape [2, 14]; it must have 3 rows and at least 14 columns"},
        frozenset({"indices", "x", "nodes"}),  # what they are then, only the GPU knows
    )


def mean_forward_of_codes() -> Binding:
    return Binding(
        lambda **given: _core.cuda_mean_forward(
            *((0, 0), (on_gpu(4, dtype=NARROW), on_gpu(30, dtype=NARROW), 3, None, False, None), given["x"], None),
            *(on_gpu(3, 5, dtype=FLOAT), 0, -1, 0, (False, 0, 0), None, (given["scales"], True)),
        ),
        {"x": on_gpu(6, 5, dtype=torch.int8), "scales": on_gpu(6, 1, dtype=FLOAT)},
        {"x": "scales has 6 elements; it must have 5"},
    )


def mean_forward_of_a_captured_block() -> Binding:
    arrays = torch.zeros(4, dtype=NARROW, device="meta"), torch.zeros(300, dtype=NARROW, device="meta")
    x, workspace = torch.zeros(6, 5, device="meta"), on_gpu(_core.cuda_mean_forward_workspace(300), dtype=BYTES)
    return Binding(
        lambda captured: _core.cuda_mean_forward(
            *((0, 0), (*arrays, 3, captured, False, None), x, None, on_gpu(3, 10, dtype=FLOAT), 5, 0, 0),
            *((False, 0, 0), workspace, (None, False)),
        ),
        {"captured": on_gpu(_core.cuda_captured_block_bytes, dtype=BYTES)},
        {},
    )


def mean_backward() -> Binding:
    """Of the same, whose rows are the sources'."""
    nbytes = _core.cuda_mean_backward_workspace(4, 300)
    names = "sorted_sources", "order", "grad_mean", "grad_own", "x", "grad_x"
    return Binding(
        lambda **given: _core.cuda_mean_backward(
            *((0, 0), (given["indptr"], given["indices"], 3, None, False, None), *[given[name] for name in names]),
            *((True, 0, 0), given["workspace"]),
        ),
        {
            "indptr": on_gpu(4, dtype=NARROW),
            "indices": on_gpu(300, dtype=NARROW),
            "sorted_sources": on_gpu(300, dtype=NARROW),
            "order": on_gpu(300),
            "grad_mean": on_gpu(3, 5, dtype=FLOAT),
            "grad_own": on_gpu(3, 5, dtype=FLOAT),
            "x": on_gpu(4, 5, dtype=FLOAT),
            "grad_x": on_gpu(4, 5, dtype=FLOAT),
            "workspace": on_gpu(nbytes, dtype=BYTES),
        },
        {
            "indices": "sorted_sources has 300 elements; it must have 299",
            "grad_mean": "grad_mean has shape [2, 5]; it must be [3, 5]",
            "grad_own": "grad_own has shape [2, 5]; it must be [3, 5]",
            "x": "x has shape [3, 5]; it must be [4, 5]",
            "grad_x": "x has shape [4, 5]; it must be [3, 5]",
        },
    )


def captured_blocks() -> Binding:
    return Binding(
        lambda **given: _core.cuda_write_captured_blocks(
            [(given["indptr"], given["indices"], 3, given["x"], given["nodes"], 0)],
            *(given["captured"], given["labels"], given["labels_to"], 0, 0),
        ),
        {
            "indptr": on_gpu(4, dtype=NARROW),
            "indices": on_gpu(30, dtype=NARROW),
            "x": on_gpu(6, 5, dtype=FLOAT),
            "nodes": on_gpu(4, dtype=NARROW),
            "captured": on_gpu(_core.cuda_captured_block_bytes, dtype=BYTES),
            "labels": on_gpu(3),
            "labels_to": on_gpu(3),
        },
        {"labels_to": "labels has 24 bytes; there is room for 16"},
        frozenset({"indices", "x", "nodes", "labels"}),
        {"labels_to": "labels has dtype torch.int64; it must be that of labels_to, torch.bool"},
    )


def subgraph() -> Binding:
    """Of 2 seeds, a hop of 4 edges, and 5 nodes."""
    return Binding(
        lambda **given: _core.cuda_find_subgraph(
            [(given.pop("indptr"), given.pop("indices"), given.pop("edge_ids"), 5)], 2, **given, device=0, stream=0
        ),
        {
            "indptr": on_gpu(3, dtype=torch.int32),
            "indices": on_gpu(4, dtype=torch.int32),
            "edge_ids": on_gpu(4),
            "nodes": on_gpu(5, dtype=torch.int32),
            "scratch": on_gpu(_core.subgraph_scratch(5, 4), dtype=torch.int32),
            "sizes": on_gpu(4),
            "out_nodes": on_gpu(5),
            "out_edges": on_gpu(8),
            "out_ids": on_gpu(4),
        },
        {
            "indptr": "indptr has 2 elements; with 2 seeds it must have 3",
            "indices": "edge_ids has 4 elements; it must have 3",
        },
    )


def induced() -> Binding:
    """Among 3 of 4 nodes, in two sets, with room for 9 entries of the lists."""
    lists = (on_gpu(5, dtype=torch.int32), on_gpu(6, dtype=torch.int32))
    return Binding(
        lambda **given: _core.CudaInducedEdges(
            lists, 4, given["nodes"], given["sets"], given["rows"], given["of_rows"], 2, given["memory"], 9, 0, 0
        ),
        {
            "nodes": on_gpu(3, dtype=torch.int32),
            "sets": on_gpu(3, dtype=torch.int32),
            "rows": on_gpu(2),
            "of_rows": on_gpu(2, dtype=torch.int32),
            "memory": on_gpu(_core.induced_words(3, 2, 9)),
        },
        {"nodes": "sets has 3 elements; it must have 2", "rows": "of_rows has 2 elements; it must have 1"},
    )


BINDINGS: dict[str, Callable[[], Binding]] = {
    "cuda_find_subgraph": subgraph,
    "CudaInducedEdges": induced,
    "cuda_mean_forward": mean_forward,
    "cuda_mean_forward, codes": mean_forward_of_codes,
    "cuda_mean_forward, captured": mean_forward_of_a_captured_block,
    "cuda_mean_backward": mean_backward,
    "cuda_write_captured_blocks": captured_blocks,
    "CudaLinkEngine.ends": ends,
    "cuda_find_links, a block": links_of_block,
    "cuda_find_links, a subgraph": links_of_subgraph,
    "cuda_drop": drop,
    "CudaWalkEngine.walk": walk,
    "CudaWalkEngine.step": step,
    "CudaWalkEngine.walk_by": walk_by,
    "CudaGatherer.gather": gather,
    "CudaGatherer.find_misses": find_misses,
    "CudaGatherer.mark_misses": mark_misses,
}
MADE = {name: make() for name, make in BINDINGS.items()}
TENSORS = [(name, x) for name, made in MADE.items() for x, held in made.arguments.items() if isinstance(held, OnGPU)]
OF_ONE_LENGTH = [(name, x) for name, x in TENSORS if x not in MADE[name].any_length]
OF_SEVERAL = [(name, x) for name, x in TENSORS if MADE[name].arguments[x].numel() > 1]


def refusal(name: str, tensor: str, wrong: Any) -> BaseException:
    """The error of a call with `wrong` in the place of a tensor."""
    binding = BINDINGS[name]()
    with pytest.raises((TypeError, ValueError)) as raised:
        binding.call(**{**binding.arguments, tensor: wrong})
    assert "\n" not in str(raised.value)
    return raised.value


def held(name: str, tensor: str) -> torch.Tensor:
    value: OnGPU = BINDINGS[name]().arguments[tensor]
    return value._tensor


@pytest.mark.skipif(torch.cuda.is_available(), reason="here it would be launched")
@pytest.mark.parametrize("name", BINDINGS)
def test_the_right_tensors_are_taken(name: str) -> None:
    binding = BINDINGS[name]()
    with pytest.raises(RuntimeError, match="there is no NVIDIA driver here"):
        binding.call(**binding.arguments)


@pytest.mark.parametrize(("name", "tensor"), TENSORS)
def test_another_type_is_refused(name: str, tensor: str) -> None:
    error = refusal(name, tensor, OnGPU(held(name, tensor).to(torch.bool)))
    assert isinstance(error, TypeError)
    assert MADE[name].types.get(tensor, f"{tensor} has dtype torch.bool; ") in str(error)


@pytest.mark.parametrize(("name", "tensor"), OF_ONE_LENGTH)
def test_another_length_is_refused(name: str, tensor: str) -> None:
    given = held(name, tensor)
    wrong = given[: len(given) - 1].contiguous()
    usual = f"{tensor} has {wrong.numel()} elements; it must have {given.numel()}"
    error = refusal(name, tensor, OnGPU(wrong))
    assert isinstance(error, ValueError)
    assert MADE[name].lengths.get(tensor, usual) in str(error)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("name", "tensor"), TENSORS)
def test_another_device_is_refused(name: str, tensor: str, device: str) -> None:
    error = refusal(name, tensor, held(name, tensor).to(device))
    assert str(error) == f"{tensor} lies on {device}; it must lie on cuda"


@pytest.mark.parametrize(("name", "tensor"), TENSORS)
def test_another_gpu_is_refused(name: str, tensor: str) -> None:
    error = refusal(name, tensor, OnGPU(held(name, tensor), index=1))
    assert str(error) == f"{tensor} lies on cuda:1; it must lie on cuda:0"


@pytest.mark.parametrize(("name", "tensor"), OF_SEVERAL)
def test_gaps_between_elements_are_refused(name: str, tensor: str) -> None:
    given = held(name, tensor)
    apart = torch.zeros(*given.shape, 2, dtype=given.dtype)[..., 0]
    assert re.fullmatch(
        rf"{tensor} is not contiguous( along its rows)?; call .contiguous\(\) first",
        str(refusal(name, tensor, OnGPU(apart))),
    )


@pytest.mark.parametrize(("name", "tensor"), TENSORS)
def test_what_is_no_tensor_is_refused(name: str, tensor: str) -> None:
    assert str(refusal(name, tensor, 4096)) == f"{tensor} is int; it must be a tensor"


def test_no_rows_may_have_any_stride() -> None:
    """As torch has it: a tensor without elements is contiguous, whatever its strides."""
    none = torch.zeros(10).as_strided((0, 5), (10, 2))
    error = refusal("cuda_mean_backward", "grad_mean", OnGPU(none))
    assert str(error) == "grad_mean has shape [0, 5]; it must be [3, 5]"


@pytest.mark.parametrize(
    "read",
    [
        lambda lists: _core.CudaSampler_i32_i32(
            *lists, fanouts=[2], replace=False, edge_ids=False, pad=False, device=0
        ),
        lambda lists: _core.CudaWalkEngine(*lists, None, None, 0, on_gpu(2), 0),
        lambda lists: _core.CudaLinkEngine((0, 3), (0, 3), 3, *lists, 0),
        lambda lists: _core.CudaInducedEdges(lists, 3, on_gpu(1), None, None, None, 0, on_gpu(1), 0, 0, 0),
        lambda lists: _core.traverse_components_cuda(lists, True, 1, on_gpu(3), on_gpu(1), 0, 0),
    ],
    ids=["sampler", "walks", "links", "induced", "traversal"],
)
def test_lists_on_another_gpu_are_refused(read: Callable[[Any], Any]) -> None:
    lists = [OnGPU(torch.zeros(n, dtype=torch.int32), index=1) for n in (4, 0)]
    with pytest.raises(ValueError, match=r"^indptr lies on cuda:1; it must lie on cuda:0$"):
        read(tuple(lists))
