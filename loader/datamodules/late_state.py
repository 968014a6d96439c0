"""States of loaders that Lightning would forget."""

from __future__ import annotations

from typing import Any


def load_late_state(trainer: Any) -> None:
    """Gives the train loader the state of the checkpoint, if it did not get it when Lightning asked for the loader.

    That is so if a model asks for the number of steps (`trainer.estimated_stepping_batches`, which schedulers of the
    learning rate need) in `configure_optimizers`. Lightning 2.6 then makes the loader before it reads its state, and
    gives the state only to loaders that it makes later. The epoch would begin anew. Call this before the first
    mini-batch of an epoch.

    Args:
        trainer: Lightning's, within `fit`.
    """
    # Does nothing unless the run is resumed and the state is still there.
    load = getattr(trainer.fit_loop, "_load_combined_loader_states", None)
    if load is not None:
        load()
