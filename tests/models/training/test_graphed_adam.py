"""Adam by a CUDA graph: bit for bit the ordinary fused one, whatever changes between the steps."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from marks import needs_gpu, needs_two_gpus
from torch import Tensor
from torch.optim import Adam, Optimizer, optimizer
from torch.optim.lr_scheduler import ExponentialLR

from models.training.graphed_adam import GraphedAdam

SHAPES = ((7, 5), (5,), (3, 4, 2), ())
STEPS = 60
# Steps that are ordinary ones before the first replay: one finds everything for the first time, and 16 follow that find
# it as the step before did, the last of which is the replay. A new optimiser's first step makes the state besides.
AGAIN = 16
NEW = AGAIN + 1


class Run:
    """An optimiser over parameters of its own, which gets the same gradients as any other run."""

    def __init__(self, make: Callable[..., Optimizer], device: str, *, split: dict[str, Any] | None = None, **options):
        draws = torch.Generator().manual_seed(0)
        self.parameters = [torch.randn(shape, generator=draws).to(device).requires_grad_() for shape in SHAPES]
        self.draws = draws
        self.kept: list[Tensor] = []  # gradients whose memory is not to be used again
        groups: Any = self.parameters
        if split is not None:
            groups = [{"params": self.parameters[:2]}, {"params": self.parameters[2:], **split}]
        self.optimizer = make(groups, **options)

    def draw(self, *, elsewhere: bool = False, without: int | None = None) -> None:
        """Gradients, in the tensors of the step before or in others."""
        for i, p in enumerate(self.parameters):
            drawn = torch.randn(p.shape, generator=self.draws).to(p.device)
            if i == without:
                p.grad = None
            elif p.grad is None or elsewhere:
                self.kept += [] if p.grad is None else [p.grad]
                p.grad = drawn
            else:
                p.grad.copy_(drawn)

    def step(self, **how: Any) -> None:
        self.draw(**how)
        self.optimizer.step()

    def steps(self, count: int, **how: Any) -> None:
        for _ in range(count):
            self.step(**how)


def fused(params: Any, **options: Any) -> Adam:
    return Adam(params, fused=True, **options)


def pair(device: str, **options: Any) -> tuple[Run, Run]:
    options = {"lr": 1e-2, **options}
    return Run(fused, device, **options), Run(GraphedAdam, device, **options)


def assert_equal(plain: Run, other: Run) -> None:
    """Parameters and state, bit for bit."""
    for a, b in zip(plain.parameters, other.parameters, strict=True):
        assert torch.equal(a, b)
        of_a, of_b = plain.optimizer.state[a], other.optimizer.state[b]
        assert of_a.keys() == of_b.keys()
        assert all(torch.equal(of_a[name], of_b[name]) for name in of_a)


def check_change(change: Callable[[Run], None], ordinary: int = AGAIN) -> None:
    """30 steps, a change that holds for the 30 that follow: all are a plain one's, of which `ordinary` are ordinary."""
    plain, graphed = pair("cuda")
    for run in (plain, graphed):
        run.steps(30)
        change(run)
        run.steps(30)
    assert_equal(plain, graphed)
    assert graphed.optimizer.replayed == (30 - NEW) + (30 - ordinary)


def test_on_the_cpu_it_is_the_ordinary_fused_one() -> None:
    plain, graphed = pair("cpu", weight_decay=0.1)
    begin = [p.detach().clone() for p in graphed.parameters]
    for run in (plain, graphed):
        run.steps(40)
    assert_equal(plain, graphed)
    assert not any(torch.equal(p, q) for p, q in zip(begin, graphed.parameters, strict=True))
    assert graphed.optimizer.replayed == 0
    assert all(group["fused"] for group in graphed.optimizer.param_groups)


def test_the_closure_has_gradients_and_its_result_is_returned() -> None:
    run = Run(GraphedAdam, "cpu")
    p = run.parameters[0]
    before = p.detach().clone()

    def closure() -> Tensor:
        loss = p.square().sum()
        loss.backward()
        return loss

    with torch.no_grad():  # as Lightning calls it
        loss = run.optimizer.step(closure)
    assert loss.requires_grad
    assert loss.item() == before.square().sum().item()
    assert not torch.equal(p, before)
    assert run.optimizer.step() is None


def test_gradients_go_or_become_zeros_as_with_every_optimiser() -> None:
    run = Run(GraphedAdam, "cpu")
    parameters = [p for group in run.optimizer.param_groups for p in group["params"]]
    for p in parameters:
        p.grad = torch.ones_like(p)
    held = parameters[0].grad
    run.optimizer.zero_grad(set_to_none=False)
    assert parameters[0].grad is held
    assert not any(p.grad.any() for p in parameters)
    run.optimizer.zero_grad()
    assert all(p.grad is None for p in parameters)


@pytest.fixture
def hooked() -> None:
    """Torch puts its hooks around `Adam.step` when the first plain Adam is made."""
    Run(fused, "cpu")
    assert Adam.step.hooked


@pytest.fixture
def unhooked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that made no plain Adam yet."""
    if getattr(Adam.step, "hooked", False):
        monkeypatch.setattr(Adam, "step", Adam.step.__wrapped__)
    assert not hasattr(Adam.step, "hooked")


@pytest.mark.parametrize("before", ["hooked", "unhooked"])
def test_hooks_run_once_a_step(request: pytest.FixtureRequest, before: str) -> None:
    request.getfixturevalue(before)
    run = Run(GraphedAdam, "cpu")
    called = []
    run.optimizer.register_step_pre_hook(lambda *_: called.append("pre"))
    run.optimizer.register_step_post_hook(lambda *_: called.append("post"))
    run.steps(3)
    assert called == ["pre", "post"] * 3
    assert run.optimizer.state[run.parameters[0]]["step"] == 3


def test_hooks_of_all_optimisers_run_once_a_step() -> None:
    run, called = Run(GraphedAdam, "cpu"), []
    handles = [
        optimizer.register_optimizer_step_pre_hook(lambda *_: called.append("pre")),
        optimizer.register_optimizer_step_post_hook(lambda *_: called.append("post")),
    ]
    run.steps(2)
    for handle in handles:
        handle.remove()
    run.step()
    assert called == ["pre", "post"] * 2
    assert run.optimizer.state[run.parameters[0]]["step"] == 3


def test_a_hook_may_replace_what_a_step_is_given() -> None:
    run, called = Run(GraphedAdam, "cpu"), []
    run.draw()
    handle = run.optimizer.register_step_pre_hook(
        lambda opt, args, kwargs: ((opt,), {**kwargs, "closure": lambda: called.append(args)})
    )
    run.optimizer.step()
    run.optimizer.step(closure=lambda: called.append("not this one"))
    handle.remove()
    assert called == [(run.optimizer,)] * 2
    handle = run.optimizer.register_step_pre_hook(lambda opt, args, kwargs: ((opt,), {}))
    assert run.optimizer.step(lambda: 3) is None
    handle.remove()
    assert run.optimizer.step(lambda: 3) == 3


def test_torchs_profiler_sees_the_steps() -> None:
    run = Run(GraphedAdam, "cpu")
    run.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        run.steps(3)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["Optimizer.step#GraphedAdam.step"] == 3


def test_a_scheduler_may_come_around_the_step() -> None:
    plain, graphed = pair("cpu")
    for run in (plain, graphed):
        scheduler = ExponentialLR(run.optimizer, 0.9)
        for _ in range(10):
            run.step()
            scheduler.step()
    assert_equal(plain, graphed)


@pytest.mark.parametrize(("first", "second"), [(fused, GraphedAdam), (GraphedAdam, fused), (GraphedAdam, GraphedAdam)])
def test_a_state_goes_from_either_to_the_other(first: Any, second: Any) -> None:
    straight = Run(fused, "cpu", lr=1e-2)
    straight.steps(20)
    begun, resumed = Run(first, "cpu", lr=1e-2), Run(second, "cpu", lr=0.5)
    begun.steps(8)
    resumed.optimizer.load_state_dict(begun.optimizer.state_dict())
    with torch.no_grad():
        for p, q in zip(resumed.parameters, begun.parameters, strict=True):
            p.copy_(q)
    resumed.draws = begun.draws
    resumed.steps(12)
    assert_equal(straight, resumed)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))], ids=["copy", "pickle"])
def test_copies_go_on_by_themselves(copied: Callable[[Any], Any]) -> None:
    check_copy("cpu", copied)


def check_copy(device: str, copied: Callable[[Any], Any]) -> tuple[Run, Run]:
    """An optimiser and its copy, both of which went on for 60 steps like a plain one."""
    plain, run = pair(device)
    for r in (plain, run):
        r.steps(20)
    other = copy.copy(run)
    other.parameters, other.optimizer = copied((run.parameters, run.optimizer))
    other.draws, other.kept = torch.Generator(), []
    other.draws.set_state(run.draws.get_state())
    assert type(other.optimizer) is GraphedAdam
    for r in (plain, run, other):
        r.steps(STEPS)
    assert_equal(plain, run)
    assert_equal(plain, other)
    return run, other


class TestOnGPU:
    pytestmark = needs_gpu

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"weight_decay": 0.1},
            {"amsgrad": True},
            {"maximize": True},
            {"weight_decay": 0.1, "decoupled_weight_decay": True},
            {"split": {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3, "weight_decay": 0.2, "amsgrad": True}},
        ],
        ids=lambda options: "-".join(options) or "plain",
    )
    def test_replayed_steps_are_the_ordinary_ones(self, options: dict[str, Any]) -> None:
        plain, graphed = pair("cuda", **options)
        for run in (plain, graphed):
            run.steps(STEPS)
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == STEPS - NEW
        assert not any(group["capturable"] for group in graphed.optimizer.param_groups)

    def test_the_first_replay(self) -> None:
        """Capturing a step is not yet doing it."""
        plain, graphed = pair("cuda")
        for step in range(1, NEW + 3):
            for run in (plain, graphed):
                run.step()
            assert_equal(plain, graphed)
            assert graphed.optimizer.replayed == max(0, step - NEW)

    def test_gradients_elsewhere_with_every_step(self) -> None:
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            run.steps(STEPS, elsewhere=True)
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == 0

    def test_one_odd_step_does_not_lose_the_graph(self) -> None:
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            run.steps(30)
            there = [p.grad for p in run.parameters]
            run.step(elsewhere=True)
            for p, grad in zip(run.parameters, there, strict=True):
                p.grad = grad
            run.steps(10)
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == 30 - NEW + 10

    def test_gradients_that_stay_elsewhere_are_captured_again(self) -> None:
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            run.steps(30)
            run.step(elsewhere=True)
            run.steps(29)
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == (30 - NEW) + (30 - AGAIN)

    @pytest.mark.parametrize(
        "change", [{"lr": 0.3}, {"betas": (0.3, 0.6)}, {"eps": 0.1}, {"weight_decay": 0.5}, {"maximize": True}], ids=str
    )
    def test_a_changed_setting_holds_at_once(self, change: dict[str, Any]) -> None:
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            run.steps(30)
            run.optimizer.param_groups[0].update(change)
            run.step()
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == 30 - NEW
        for run in (plain, graphed):
            run.steps(29)
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == (30 - NEW) + (30 - AGAIN)

    def test_a_scheduler_that_changes_the_rate_with_every_step(self) -> None:
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            scheduler = ExponentialLR(run.optimizer, 0.99)
            for _ in range(STEPS):
                run.step()
                scheduler.step()
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == 0

    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_a_rate_that_is_a_tensor_may_change_in_place(self, device: str) -> None:
        runs = [Run(make, "cuda", lr=torch.tensor(1e-2, device=device)) for make in (fused, GraphedAdam)]
        for run in runs:
            run.steps(30)
            run.optimizer.param_groups[0]["lr"].fill_(0.3)
            run.steps(30)
        assert_equal(*runs)
        assert runs[1].optimizer.replayed == 0

    def test_a_loaded_state_is_gone_on_from(self) -> None:
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            run.steps(10)
            state = copy.deepcopy(run.optimizer.state_dict())
            run.steps(20)
            run.optimizer.load_state_dict(state)
            run.steps(30)
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == (30 - NEW) + (30 - AGAIN)

    def test_the_state_of_an_adam_that_is_not_fused(self) -> None:
        """It brings its settings along, and counts its steps on the host, where a graph would not."""
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            other = Run(Adam, "cuda", lr=1e-2)
            other.steps(10)
            run.steps(30)
            run.optimizer.load_state_dict(other.optimizer.state_dict())
            run.steps(30)
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == 30 - NEW

    def test_a_state_whose_tensors_were_moved(self) -> None:
        """As Lightning moves them between fits, to the host and back: in the same dictionaries."""

        def move(run: Run) -> None:
            for p in run.parameters:
                state = run.optimizer.state[p]
                run.kept += state.values()
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = state[name].cpu().cuda()

        check_change(move)

    def test_a_state_whose_memory_was_exchanged(self) -> None:
        """In the same tensors, as a common way to move an optimiser does."""

        def exchange(run: Run) -> None:
            for p in run.parameters:
                for t in run.optimizer.state[p].values():
                    run.kept.append(t.data)
                    t.data = t.data.clone()

        check_change(exchange)

    def test_where_no_graph_can_be_had_steps_stay_ordinary(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(self: GraphedAdam) -> None:
            raise RuntimeError("CUDA error: out of memory")

        monkeypatch.setattr(GraphedAdam, "_captured_step", fail)
        plain, graphed = pair("cuda")
        plain.steps(60)
        with pytest.warns(UserWarning, match="no CUDA graph could be captured: CUDA error: out of memory") as warned:
            graphed.steps(60)
        assert len(warned) == 1
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == 0
        assert gc.isenabled()

    def test_parameters_that_were_moved(self) -> None:
        def move(run: Run) -> None:
            for p in run.parameters:
                run.kept.append(p.data)
                p.data = p.data.clone()

        check_change(move)

    def test_a_parameter_without_a_gradient(self) -> None:
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            run.steps(30, without=1)
        assert not graphed.optimizer.state[graphed.parameters[1]]
        assert graphed.optimizer.replayed == 30 - NEW
        for run in (plain, graphed):
            run.steps(30)  # now it has one: its state is made first
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == (30 - NEW) + (30 - NEW)

    def test_no_gradient_at_all(self) -> None:
        """A graph of nothing would be warned of, which is an error here."""
        run = Run(GraphedAdam, "cuda")
        for _ in range(STEPS):
            run.optimizer.step()
        assert run.optimizer.replayed == 0

    def test_parameters_that_are_added(self) -> None:
        def add(run: Run) -> None:
            run.parameters.append(torch.ones(6, device="cuda", requires_grad=True))
            run.optimizer.add_param_group({"params": run.parameters[-1:], "lr": 0.1})

        check_change(add, ordinary=NEW)

    def test_gradient_scaling(self) -> None:
        """The fused step divides by the scale, and is left out where a gradient is infinite."""
        runs = pair("cuda")
        for run in runs:
            scaler = torch.amp.GradScaler("cuda", init_scale=4.0, growth_interval=7)
            scaler.scale(torch.ones((), device="cuda"))
            run.steps(30)
            for i in range(30):
                run.draw()
                if i == 20:
                    run.parameters[0].grad.fill_(torch.inf)
                scaler.step(run.optimizer)
                scaler.update()
            assert run.optimizer.state[run.parameters[0]]["step"] == 59
        assert_equal(*runs)
        assert runs[1].optimizer.replayed == 30 - NEW

    def test_hooks_run_with_replayed_steps(self, hooked: None) -> None:
        run = Run(GraphedAdam, "cuda")
        called = []
        run.optimizer.register_step_pre_hook(lambda *_: called.append("pre"))
        run.optimizer.register_step_post_hook(lambda *_: called.append("post"))
        run.steps(30)
        assert run.optimizer.replayed == 30 - NEW
        assert called == ["pre", "post"] * 30

    def test_on_another_stream(self) -> None:
        plain, graphed = pair("cuda")
        for run in (plain, graphed):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                run.steps(STEPS)
            torch.cuda.current_stream().wait_stream(stream)
        assert_equal(plain, graphed)
        assert graphed.optimizer.replayed == STEPS - NEW

    def test_many_captures_use_one_stream(self) -> None:
        """Torch's streams go round: a new one with every capture would in the end be one of a loader's."""
        run = Run(GraphedAdam, "cuda")
        streams = []
        for i in range(3):
            run.optimizer.param_groups[0]["lr"] = 1e-3 * (i + 1)
            run.steps(30)
            streams.append(run.optimizer._stream)
        assert run.optimizer.replayed == (30 - NEW) + 2 * (30 - AGAIN)
        assert streams[0] is streams[1] is streams[2] is not None

    @pytest.mark.parametrize(
        "copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))], ids=["copy", "pickle"]
    )
    def test_copies_go_on_by_themselves(self, copied: Callable[[Any], Any]) -> None:
        run, other = check_copy("cuda", copied)
        assert run.optimizer.replayed == 20 + STEPS - NEW
        assert other.optimizer.replayed == STEPS - AGAIN

    @needs_two_gpus
    def test_parameters_on_two_gpus(self) -> None:
        runs = pair("cuda")
        for run in runs:
            for p in run.parameters[2:]:
                p.data = p.data.to("cuda:1")
            run.steps(STEPS)
        assert_equal(*runs)
        assert runs[1].optimizer.replayed == 0
