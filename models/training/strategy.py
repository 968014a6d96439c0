"""How several processes train one model under Lightning: the gradients of a step are averaged in one exchange."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from loader.datamodules.base import DatasetModule
from loader.datasets.digests import are_alike
from loader.machine.arguments import shown
from models.training.exchange import GradientExchange

_log = logging.getLogger(__name__)


class OneExchangeStrategy(DDPStrategy):
    """Data-parallel training as `DDPStrategy`, without `DistributedDataParallel` around the model.

    Processes and their group are those of `DDPStrategy`. When training begins, all processes take over the parameters
    and buffers of the first one. After each backward pass the gradients become their mean over all processes, see
    `GradientExchange`: one exchange on the training stream, for which no host waits. With accumulated gradients only
    the last backward pass of a step is followed by it. Loss scaling, clipping and optimisers see the averaged
    gradients, as with `DDPStrategy`. Before each validation the buffers, such as the statistics of batch norm, are
    those of the first process again.

    Optimisation by hand (`automatic_optimization=False`), parameters without a gradient and communication hooks are
    left to `DDPStrategy` (`trainer.strategy=ddp`).

    Args:
        options: of `DDPStrategy` that are not of `DistributedDataParallel`, e.g. `process_group_backend`, `timeout`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self._ddp_kwargs or self._ddp_comm_hook is not None or self._model_averaging_period is not None:
            given = [*self._ddp_kwargs, "ddp_comm_hook", "model_averaging_period"][0]
            way = "give trainer.strategy=ddp, or an object of lightning.pytorch.strategies.DDPStrategy"
            raise ValueError(f"{given} is an option of DistributedDataParallel, which is not used here; {way}")
        self._exchange: GradientExchange | None = None
        self._accumulates = False

    def setup_distributed(self) -> None:
        self._say_whom_it_waits_for()
        with _quiet("lightning.fabric.utilities.distributed"):  # each process would say that it is there
            super().setup_distributed()

    def _say_whom_it_waits_for(self) -> None:
        """Lightning starts the processes of this machine alone, and then waits for half an hour without a word."""
        here = self.cluster_environment
        alone = self.num_nodes > 1 and not dist.is_initialized() and self.local_rank == 0
        if alone and isinstance(here, LightningEnvironment):
            _log.info(
                "trainer.num_nodes is %d: machine %d (NODE_RANK) waits for the others at %s:%d (MASTER_ADDR, "
                "MASTER_PORT); start this command on each, by torchrun or with these variables",
                *(self.num_nodes, here.node_rank(), here.main_address, here.main_port),
            )

    def setup(self, trainer: Trainer) -> None:
        _ask_nobody(trainer)
        check_data(getattr(trainer, "datamodule", None))
        super().setup(trainer)

    def configure_ddp(self) -> None:
        module = self.lightning_module
        assert module is not None
        if not module.automatic_optimization:
            what = f"{type(module).__name__} optimises by hand (automatic_optimization=False)"
            raise ValueError(
                f"{what}, so nobody knows which of its backward passes ends a step; give trainer.strategy=ddp"
            )
        with torch.no_grad():
            for tensor in module.parameters():
                dist.broadcast(tensor, 0)
        share_buffers(module)
        self._exchange = GradientExchange(module.named_parameters())

    def post_backward(self, closure_loss: Tensor) -> None:
        if not self._accumulates:
            self.exchange_gradients()

    def exchange_gradients(self) -> None:
        """Replaces the gradients by their mean over all processes, each of which has to call this."""
        if self._exchange is not None:
            self._exchange.run()

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Within this, gradients are accumulated and not exchanged."""
        self._accumulates = True
        try:
            yield
        finally:
            self._accumulates = False

    def on_validation_start(self) -> None:
        super().on_validation_start()
        if self._exchange is not None:
            assert self.lightning_module is not None
            share_buffers(self.lightning_module)

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """See `DDPStrategy.reduce`; the processes do not wait for each other before, and no host waits for its GPU.
        A mean of integers is a float.
        """
        if not isinstance(tensor, Tensor):
            return tensor
        mean = reduce_op in ("mean", "avg", dist.ReduceOp.AVG)
        operation = dist.ReduceOp.SUM if mean else reduce_op
        if isinstance(operation, str):
            operation = getattr(dist.ReduceOp, operation.upper())
        dist.all_reduce(tensor, operation, group)
        if not mean:
            return tensor
        size = dist.get_world_size(group)
        # Lightning divides a sum by the mean of counts: a mean cut to an integer would make each metric too large.
        return tensor.div_(size) if tensor.is_floating_point() else tensor.double() / size

    def teardown(self) -> None:
        self._exchange = None
        super().teardown()


def share_buffers(module: nn.Module) -> None:
    """Gives the buffers of the first process to all. Each of them has to call this."""
    with torch.no_grad():
        for tensor in module.buffers():
            dist.broadcast(tensor, 0)


def check_data(module: Any) -> None:
    """Raises ValueError, in all processes, if one has opened other data than the first one: files of machines differ.

    Args:
        module: the datamodule, or None. What is compared is what a checkpoint knows of its data, but for their name:
            machines may have them in folders of their own.
    """
    if not isinstance(module, DatasetModule) or module.data is None:
        return
    known = module.state_dict()
    own = {**known["data"], **known.get("rows", {}), "train split": known.get("learned_from")}
    dataset = own.pop("name")
    of_ranks: list[dict[str, Any]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(of_ranks, own)
    first = of_ranks[0]
    for rank, theirs in enumerate(of_ranks):
        for name in {**first, **theirs}:
            if not are_alike(first.get(name), theirs.get(name)):
                values = f"is {shown(theirs.get(name))}, not {shown(first.get(name))}"
                what = f"the {name} of {dataset} {'differ' if name == 'features' else values}"
                way = "give all machines the same files and options, and dataset.rebuild=true"
                raise ValueError(f"process {rank} of this run has other data than process 0: {what}; {way}")


def _ask_nobody(trainer: Trainer) -> None:
    """Keeps the processes from asking the first one, before each step, whether it was told to end (SIGTERM).

    Lightning 2.6 does so and waits for the answer, so the GPU stands still in each step. Each process goes by the
    signals that it gets itself, as in releases before; who starts the processes sends them to all.
    """
    loop: Any = trainer.fit_loop.epoch_loop
    if not hasattr(loop, "_broadcast_sigterm_tensor"):
        return
    connector: Any = trainer._signal_connector

    def note(signum: int, _: Any) -> None:
        launcher = trainer.strategy.launcher
        if not connector.received_sigterm and launcher is not None:
            launcher.kill(signum)
        connector.received_sigterm = True

    loop._broadcast_sigterm_tensor = lambda: None
    connector._sigterm_notifier_fn = note


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
