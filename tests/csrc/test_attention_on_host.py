"""Attention over rows on the host: Python, bindings and kernels as they are, compared with torch in float64."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from cuda_on_host import module_on_host
from hetero_datasets import make_hetero
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from loader import _core
from loader.datamodules.nodes import GraphDataModule
from loader.ops import attention_gpu
from loader.ops.attention import AttendedPlaces, attend
from loader.ops.attention_gpu import AttendedRelation, AttendedRows, BySource, padded
from loader.ops.captured_hetero_batch import CapturedHeteroBatch
from loader.samplers import FusedSampler
from models import rgat
from models.training.rgat_classifier import RGATClassifier

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

SLOPE = 0.2


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("attention_on_host", tmp_path_factory)


@pytest.fixture(autouse=True)
def on_host(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda_attend", "cuda_attend_gradient", "cuda_attend_sources", "cuda_attend_parts"):
        monkeypatch.setattr(_core, name, getattr(core, name), raising=False)
    monkeypatch.setattr(attention_gpu, "launch_place", lambda like: (0, 0))


def places_of(relation_of: Tensor, heads: int, width: int, relations: int) -> AttendedPlaces:
    """Rows one after the other; heads of a relation's rows are as far apart as the relation's number says."""
    aparts = [width * (1 + r % 2) for r in range(relations)]
    begins = torch.tensor([0] + [heads * aparts[r] for r in relation_of.tolist()]).cumsum(0)
    found = []
    for r in range(relations):
        order = (relation_of == r).nonzero().view(-1)
        if len(order):
            found.append(AttendedRelation(r, 0, order, begins[order], aparts[r]))
    return AttendedPlaces(found, [], int(begins[-1]))


def rows_of(lengths: list[int], spare: int, count: int, g: torch.Generator) -> tuple[Tensor, Tensor]:
    indptr = torch.tensor([0, *lengths]).cumsum(0).int()
    return indptr, torch.randint(count, (int(indptr[-1]) + spare,), generator=g).int()


slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@slow
@given(
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.bfloat16]),
    tensor_cores=st.sampled_from([True, True, False]),
    lengths=st.lists(st.sampled_from([0, 0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33]), max_size=80),
    count=st.sampled_from([1, 7, 40]),
    width=st.sampled_from([3, 8, 96, 136, 264, 2056]),
    heads=st.sampled_from([1, 2, 4, 6]),
    spare=st.sampled_from([0, 3]),
    relations=st.sampled_from([1, 3]),
    seed=st.integers(0, 1000),
)
def test_sums_and_gradients_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    tensor_cores: bool,
    lengths: list[int],
    count: int,
    width: int,
    heads: int,
    spare: int,
    relations: int,
    seed: int,
) -> None:
    monkeypatch.setattr(attention_gpu, "TENSOR_CORES", tensor_cores)
    g = torch.Generator().manual_seed(seed)
    indptr, entries = rows_of(lengths, spare, count, g)
    relation_of = torch.randint(relations, (len(lengths),), generator=g)
    bare = torch.randn(count, width, generator=g).to(dtype)
    x = torch.nn.functional.pad(bare, (0, -width % attention_gpu.columns_of(dtype, True))).requires_grad_()
    sinks = torch.randn(len(lengths), heads, generator=g).requires_grad_()
    vectors = [(torch.randn(heads, x.shape[1], generator=g) * width**-0.5).requires_grad_() for _ in range(relations)]
    places = places_of(relation_of, heads, x.shape[1], relations)
    rows = AttendedRows(indptr, entries, BySource(indptr, entries, count))
    out = attention_gpu.attend(places.relations, places.size, rows, [x], vectors, sinks, SLOPE)

    exact = [of.detach().double().requires_grad_() for of in (x, sinks, *vectors)]
    wanted = attend(places, rows, exact[:1], exact[2:], exact[1], SLOPE)
    written = torch.zeros(places.size, dtype=torch.bool)  # heads may lie apart
    for one in places.relations:
        at = one.at.view(-1, 1, 1) + one.apart * torch.arange(heads).view(-1, 1) + torch.arange(x.shape[1])
        written[at.view(-1)] = True
    wanted, out = wanted[written], out[written]
    rough = {"rtol": 5e-3, "atol": 2e-3} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(out.double(), wanted, **rough)
    if not len(places.relations):
        return
    mix = torch.randn(out.shape, generator=g).to(dtype)
    found = torch.autograd.grad((out * mix).sum(), (x, sinks, *vectors))
    if not int(indptr[-1]):  # there is nothing to differentiate
        assert not any(mine.any() for mine in found)
        return
    others = torch.autograd.grad((wanted * mix.double()).sum(), exact, allow_unused=True, materialize_grads=True)
    for mine, other in zip(found, others, strict=True):
        scale = float(other.abs().max()) or 1.0
        error = float((mine.double() - other).abs().max())
        assert error <= (2e-2 if dtype == torch.bfloat16 else 1e-4) * max(scale, 1.0), (error, scale)


def test_a_source_may_have_many_entries() -> None:
    g = torch.Generator().manual_seed(0)
    indptr, _ = rows_of([40] * 10, 0, 1, g)
    entries = torch.zeros(400, dtype=torch.int32)
    entries[::7] = 1
    for count in (10, 4):  # all rows; the first ones, which share the order of all
        x = torch.randn(2, 16, generator=g).requires_grad_()
        sinks = torch.randn(count, 2, generator=g).requires_grad_()
        vectors = [torch.randn(2, 16, generator=g).requires_grad_()]
        places = places_of(torch.zeros(count, dtype=torch.int64), 2, 16, 1)
        rows = AttendedRows(indptr[: count + 1], entries, BySource(indptr, entries, 2))
        outs = [
            attention_gpu.attend(places.relations, places.size, rows, [x], vectors, sinks, SLOPE),
            attend(places, rows, [x], vectors, sinks, SLOPE),
        ]
        mix = torch.randn(places.size, generator=g)
        found, others = (torch.autograd.grad((out * mix).sum(), (x, sinks, *vectors)) for out in outs)
        torch.testing.assert_close(outs[0], outs[1], rtol=1e-4, atol=1e-5)
        for mine, other in zip(found, others, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_tables_by_type_need_no_gradient() -> None:
    g = torch.Generator().manual_seed(0)
    indptr, entries = rows_of([3, 0, 2, 4], 0, 5, g)
    tables = [torch.randn(5, 20, generator=g)[:, :12], padded(torch.randn(5, 8, generator=g))]  # rows lie apart
    places = AttendedPlaces(
        [
            AttendedRelation(0, 1, torch.tensor([0, 2]), torch.tensor([0, 40]), 20),
            AttendedRelation(1, 0, torch.tensor([1, 3]), torch.tensor([8, 48]), 20),
        ],
        [],
        80,
    )
    vectors = [torch.randn(2, width, generator=g).requires_grad_() for width in (8, 12)]
    sinks, rows = torch.randn(4, 2, generator=g), AttendedRows(indptr, entries)
    out = attention_gpu.attend(places.relations, places.size, rows, tables, vectors, sinks, SLOPE)
    wanted = attend(places, rows, tables, vectors, sinks, SLOPE)
    torch.testing.assert_close(out, wanted, rtol=1e-4, atol=1e-5)
    mix = torch.randn(80, generator=g)
    found, others = (torch.autograd.grad((of * mix).sum(), vectors) for of in (out, wanted))
    torch.testing.assert_close(found, others, rtol=1e-4, atol=1e-4)


def test_what_does_not_fit_is_refused(core: Any) -> None:
    indptr, entries = torch.tensor([0, 2], dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    of = {"x": torch.zeros(3, 8), "order": torch.zeros(1).long(), "at": torch.zeros(1).long(), "apart": 8, "heads": 2}
    of |= {"source": torch.zeros(2, 8), "sink": torch.zeros(1, 2), "shares": torch.zeros(2, 2), "out": torch.zeros(16)}

    def run(**changed: Any) -> None:
        now = of | changed
        core.cuda_attend(
            (0, 0), (indptr, entries, now["order"], now["at"]), (now["apart"], now["heads"], SLOPE, True), now["x"],
            now["source"], now["sink"], now["shares"], now["out"],
        )  # fmt: skip

    run()
    for changed, message in (
        ({"x": torch.zeros(3, 6)}, "x has 6 columns; it must have a multiple of 4"),
        ({"x": torch.zeros(3, 9)[:, 1:]}, "x has rows that do not begin at multiples of 16 bytes"),
        ({"x": torch.zeros(3, 8).double()}, "x has dtype torch.float64; it must be torch.float32 or torch.bfloat16"),
        ({"apart": 4}, "apart is 4; it must be a multiple of 4, and at least 8"),
        ({"heads": 0}, "heads is 0; it must be at least 1"),
        ({"at": torch.zeros(2).long()}, "at has 2 elements; it must have 1"),
        ({"source": torch.zeros(1, 8)}, "source has 8 elements; it must have 16"),
        ({"sink": torch.zeros(2, 2)}, "sink has 4 elements; it must have 2"),
        ({"shares": torch.zeros(1, 2)}, "shares has 2 elements; it must have 4"),
        ({"out": torch.zeros(16).bfloat16()}, "out has dtype torch.bfloat16, x has torch.float32; they must be equal"),
        ({"out": torch.zeros(17)[1:]}, "out does not begin at a multiple of 16 bytes"),
    ):
        with pytest.raises((ValueError, TypeError)) as raised:
            run(**changed)
        assert message in str(raised.value)
    with pytest.raises(TypeError, match=r"x has dtype torch\.float64; attention on a GPU takes float32 or bfloat16"):
        attention_gpu.attend([], 0, AttendedRows(indptr, entries), [torch.zeros(1, 4).double()], [], of["sink"], SLOPE)


@pytest.mark.parametrize("step", [1, 16])
def test_a_model_has_equal_losses_and_gradients(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With mini-batches as they are, and with room for larger ones, as a CUDA graph has them."""
    module = GraphDataModule(make_hetero(), FusedSampler([3, 2, 2], expand="new"), batch_size=4)
    module.setup()
    batches = list(islice(module.train_dataloader(), 3))
    torch.manual_seed(0)
    model = RGATClassifier(**module.sizes, num_layers=3, hidden_channels=24, heads=6, dropout=0.0)
    known = [p for p in model.net.parameters() if p.requires_grad]
    room = CapturedHeteroBatch.room_of(batches[0])
    for batch in batches[1:]:
        room = room.union(CapturedHeteroBatch.room_of(batch))
    captured = CapturedHeteroBatch(batches[0], room.widened(0.1 if step > 1 else 0.0, step), -100)

    def results(batch: Any) -> tuple[Tensor, ...]:
        loss, _ = model._loss(batch)
        return loss, *torch.autograd.grad(loss, known)

    def launched(places: AttendedPlaces, *given: Any) -> Tensor:
        return attention_gpu.attend(places.relations, places.size, *given)

    wanted = [results(batch) for batch in batches]
    whole = attention_gpu.columns_of
    for module_of in (attention_gpu, rgat):
        monkeypatch.setattr(module_of, "columns_of", lambda dtype, on_gpu: whole(dtype, True))
    monkeypatch.setattr(rgat, "attend", launched)
    for batch, expected in zip(batches, wanted, strict=True):
        captured.load(batch)
        for one in (batch, captured.batch):
            torch.testing.assert_close(results(one), expected, rtol=1e-3, atol=1e-5)
