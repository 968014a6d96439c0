"""What the train loader and Lightning's fit loop tell each other, so that a run can be resumed within an epoch."""

from __future__ import annotations

from functools import partial
from typing import Any

from lightning.pytorch.loops.progress import _ProcessedTracker
from lightning.pytorch.trainer.states import TrainerFn, TrainerStatus

from loader.loaders.base import Loader


def connect(loader: Loader, trainer: Any) -> None:
    """Lets the loader ask the fit loop which mini-batches it is done with, and tell it where a resumed epoch begins.

    Args:
        loader: of training.
        trainer: Lightning's, or None. Unless it is fitting, no loop counts what is taken, and the loader asks none.
    """
    state = None if trainer is None else trainer.state
    if state is not None and state.fn == TrainerFn.FITTING and state.status == TrainerStatus.RUNNING:
        loader.finished, loader.on_resume = partial(_finished_steps, trainer), partial(_set_steps, trainer)
        loader.on_begin = partial(_load_late_state, trainer)
    else:
        disconnect(loader)


def disconnect(loader: Loader) -> None:
    """After a fit: its loop is done with all that it was given, and counts no more."""
    loader.finished = loader.on_resume = loader.on_begin = None


def _finished_steps(trainer: Any) -> int:
    """Mini-batches of this epoch that Lightning's fit loop is done with."""
    progress = trainer.fit_loop.epoch_loop.batch_progress.current
    assert isinstance(progress, _ProcessedTracker)
    return progress.processed


def _set_steps(trainer: Any, done: int) -> None:
    """Tells Lightning's fit loop how many steps of a resumed epoch are done, by the number of processes now."""
    progress = trainer.fit_loop.epoch_loop.batch_progress.current
    assert isinstance(progress, _ProcessedTracker)
    if done == 0 and progress.processed >= trainer.num_training_batches:
        return  # the epoch was cut short where all are, so Lightning itself begins the next one from 0
    # Of a checkpoint written in `on_train_batch_end` Lightning completes that step by itself.
    in_hand = progress.processed - progress.completed
    progress.ready = progress.started = progress.processed = done
    progress.completed = done - in_hand


def _load_late_state(trainer: Any) -> None:
    """Gives the train loader the state of the checkpoint, if it did not get it when Lightning asked for the loader.

    That is so if a model asks for the number of steps (`trainer.estimated_stepping_batches`, which schedulers of the
    learning rate need) in `configure_optimizers`. Lightning 2.6 then makes the loader before it reads its state, and
    gives the state only to loaders that it makes later. The epoch would begin anew. Call this before the first
    mini-batch of an epoch.
    """
    # Does nothing unless the run is resumed and the state is still there.
    load = getattr(trainer.fit_loop, "_load_combined_loader_states", None)
    if load is not None:
        load()
