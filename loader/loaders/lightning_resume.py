"""What a loader and Lightning's fit loop tell each other, so that a run can be resumed any number of times.

Lightning gives a loader no trainer, but tells it the number of each epoch (`set_epoch`) before it asks for the first
mini-batch, and after it has restored its own counts. The loader looks then who calls.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from loader.items import BatchSequence

_MODULES = ("lightning.pytorch.loops", "pytorch_lightning.loops")
_MID_EPOCH, _NONE, _BATCH_END = "restarted_mid_epoch", "none", "restarted_on_train_batch_end"  # Lightning's words
_LAST, _MID_VALIDATION = "restarted_on_last", "restarted_mid_evaluation"


_resumed: weakref.WeakSet[Any] = weakref.WeakSet()  # the fetchers of fit loops that `_resume` has set


class _Loader(Protocol):
    """What `follow` sets of a `Loader`."""

    finished: Callable[[], int] | None


class FitLoopCount:
    """A function that counts the mini-batches of an epoch that a fit loop of Lightning is done with.

    It is done with a mini-batch when the weights have its gradients. Gradients that are only accumulated are in no
    checkpoint, so their mini-batches are left.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = weakref.ref(loop)

    def __call__(self) -> int:
        loop = self._loop()
        if loop is None:
            return 0
        done: int = loop.epoch_loop.batch_progress.current.processed
        return done if done >= loop.max_batches else done - done % loop.trainer.accumulate_grad_batches

    @property
    def runs(self) -> bool:
        """Whether the loop is fitting now. If not, it counts no more."""
        loop = self._loop()
        return loop is not None and (loop.trainer.state.fn, loop.trainer.state.status) == ("fit", "running")


def calling_fit_loop() -> Any:
    """The fit loop of Lightning that calls `set_epoch` of a loader now; None if it is somebody else, as a hook."""
    if not any(name in sys.modules for name in _MODULES):
        return None
    teller = sys._getframe(2)
    while teller.f_code.co_name == "set_epoch" and teller.f_back is not None:  # of a subclass, or of who passes it on
        teller = teller.f_back
    if teller.f_code.co_name != "_set_sampler_epoch" or teller.f_back is None:
        return None
    loop = teller.f_back.f_locals.get("self")  # or that of an evaluation
    return loop if type(loop).__name__ == "_FitLoop" else None


def follow(loader: _Loader, loop: Any) -> int:
    """Lets `loader` count by a fit loop. If that resumes a run, both get the place of the checkpoint.

    Returns:
        The number of the epoch that the loop begins or goes on with.
    """
    loader.finished = FitLoopCount(loop)
    fetcher = loop._data_fetcher  # a new one for each fit
    # Once, when the first of several loaders is told: then they no longer stand where the checkpoint says.
    if (loop.restarting or getattr(loop, "is_resuming", False)) and fetcher not in _resumed:
        _resumed.add(fetcher)
        _resume(loop)
    epoch: int = loop.epoch_progress.current.processed
    return epoch


def _resume(loop: Any) -> None:
    """Sets the counts of a fit loop that resumes a run to where its longest loader stands.

    Lightning 2.6 miscounts in several cases. After a checkpoint of an epoch's last mini-batch it does not count the
    next epoch as begun, so a checkpoint within that one seems to be of its end. After a checkpoint of a failed step,
    or amid accumulated gradients, it counts mini-batches that are not in the weights. It does not know that another
    number of processes has other steps. It does not load the state of loaders that it made before it read its own
    (`trainer.estimated_stepping_batches`), nor of an epoch that `max_steps` cut short. It leaves out a validation, and
    the end of an epoch, that were to follow the step of the checkpoint.
    """
    combined, states = loop._combined_loader, loop._combined_loader_states_to_load
    places = _places(combined.flattened, states)
    if not places:
        return
    main, epoch, following = max(places, key=lambda place: len(place[0]))
    inner = loop.epoch_loop
    epochs, batches, stage = loop.epoch_progress, inner.batch_progress, getattr(inner, "_restart_stage", _NONE)
    done = len(main) - main.sequence.steps(following)
    # Lightning ends an epoch that `max_steps` cuts short, too. Then its last mini-batch was not the epoch's last one.
    over = (
        epochs.current.processed > epoch and stage != _BATCH_END and (done >= loop.max_batches or batches.is_last_batch)
    )
    if over:
        epoch, done = epoch + 1, 0
    elif states:
        combined._load_state_dicts(states)
    loop._combined_loader_states_to_load = []

    amid = done > 0
    knows = hasattr(loop, "restarted_mid_epoch")  # releases before 2.5 count each epoch that they go on with as begun
    before = epochs.total.processed - epochs.current.processed
    for count, first in ((epochs.current, epoch), (epochs.total, before + epoch)):
        count.processed = count.completed = first
        count.ready = count.started = first + (amid and knows)
    before = batches.total.processed - batches.current.processed
    for count, steps in ((batches.current, done), (batches.total, before + done)):
        count.ready = count.started = count.processed = count.completed = steps
    batches.is_last_batch = done >= loop.max_batches
    validation = inner.val_loop
    ended = validation.batch_progress.is_last_batch and not getattr(validation, "restarted_mid_evaluation", False)
    unvalidated = stage == _BATCH_END or (stage == _LAST and not ended)
    loop._restart_stage, inner._restart_stage = (_MID_EPOCH if amid else _NONE), _NONE
    inner.restarting = amid
    if not amid:
        return
    due = unvalidated and inner._should_check_val_fx(loop._data_fetcher)
    validation._restarting, validation._restart_stage = False, _MID_VALIDATION if due else _NONE
    loop._data_fetcher.done = batches.is_last_batch and not due  # it is to end the epoch, with no further mini-batch
    if loop.trainer.lightning_module.automatic_optimization:
        # What Lightning adds before the next step: for the step of the checkpoint, and for its validation.
        added = 0 if inner._should_accumulate() else 1 + due
        inner._batches_that_stepped = inner.global_step - added


def _places(loaders: list[Any], states: list[dict[str, Any]]) -> list[tuple[Any, int, int]]:
    """The loaders of this package that have a state, which is loaded or among `states`: with the number of the epoch
    that Lightning told them, and that of the first mini-batch that is left of it.
    """
    stateful = [one for one in loaders if hasattr(one, "state_dict") and hasattr(one, "load_state_dict")]
    places = []
    for i, one in enumerate(stateful):
        sampler: Any = getattr(getattr(one, "batch_sampler", None), "sampler", None)
        loader = getattr(sampler, "loader", sampler)
        if not isinstance(getattr(loader, "sequence", None), BatchSequence):
            continue
        if len(states) == len(stateful):
            state = states[i]
        elif loader.is_resumed:
            state = loader.state_dict()
        else:
            continue
        epoch = state["epoch"] if state.get("told") is None else state["told"]
        places.append((loader, epoch, state["next"]))
    return places
