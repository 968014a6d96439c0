"""How checkpoints of Lightning are written and read: whole, checked, and without code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import torch
from fsspec.implementations.local import LocalFileSystem
from lightning.fabric.plugins import TorchCheckpointIO

from loader.machine.whole_files import check_archive, replaced

_SAVED_IN = "saved_in"  # the entry of a checkpoint that says in which folder it was written


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes and reads Lightning's checkpoints, so that a run can go on from whatever is there.

    - A checkpoint is written beside the old one, and takes its place when it is on the disk. Lightning's own way writes
      it in the folder for temporary files. If that is another file system, a kill amid the copy leaves no checkpoint.
    - A checkpoint whose checksums are wrong is refused.
    - A checkpoint is read without running code (`weights_only=True`), unless the trainer is told otherwise.
    - A checkpoint knows the paths of others, as of the best one. If its folder was moved or copied, they become those
      of the files in the new place. Paths of files that are not there, and addresses in a network, are left out.

    `GraphDataModule` gives it to a trainer that has no other one. Else: `Trainer(plugins=[SafeCheckpointIO()])`. Paths
    with a protocol (`s3://...`) are written as Lightning does.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes a checkpoint, all of it or none.

        Raises:
            OSError: it cannot be written; what was there before stays.
        """
        local = _local(path)
        if local is None or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        local.parent.mkdir(parents=True, exist_ok=True)
        with replaced(local) as file:
            torch.save({**checkpoint, _SAVED_IN: os.path.realpath(local.parent)}, file)

    def load_checkpoint(
        self, path: Any, map_location: Any = lambda storage, _: storage, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Reads a checkpoint.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is damaged, or is no checkpoint.
        """
        weights_only = True if weights_only is None else weights_only
        local = _local(path)
        if local is None:
            with fsspec.open(str(path), "rb") as file:
                return dict(torch.load(file, map_location=map_location, weights_only=weights_only))
        if not local.is_file():
            raise FileNotFoundError(f"the checkpoint {local} is not there; give the path of one that is")
        try:
            check_archive(local)
        except ValueError as error:
            raise ValueError(f"the checkpoint {local} cannot be used: {error}; give an earlier one") from error
        try:
            checkpoint = torch.load(local, map_location=map_location, weights_only=weights_only)
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"the checkpoint {local} holds objects of other types than tensors and plain values, which could run "
                "code; give weights_only=False to the trainer's fit or test if you trust who wrote it"
            ) from error
        except RuntimeError as error:  # of an archive that torch cannot read
            first = str(error).split(". ")[0]
            raise ValueError(f"the checkpoint {local} cannot be used: {first}; give an earlier one") from error
        if not isinstance(checkpoint, dict):
            raise ValueError(f"{local} is no checkpoint of Lightning; give one that a trainer wrote")
        follow_folder(checkpoint, Path(os.path.realpath(local.parent)))
        return checkpoint


def use_safe_checkpoints(trainer: Any) -> None:
    """Gives a trainer `SafeCheckpointIO` in place of Lightning's default. One that its user chose stays."""
    strategy = getattr(trainer, "strategy", None)
    if strategy is not None and type(strategy.checkpoint_io) is TorchCheckpointIO:
        strategy.checkpoint_io = SafeCheckpointIO()


def follow_folder(checkpoint: dict[str, Any], folder: Path) -> None:
    """Makes the paths that a checkpoint knows those of files beside it, where it lies now.

    Args:
        checkpoint: its parts, which are changed.
        folder: in which it lies, without links.
    """
    for state in (checkpoint.get("callbacks") or {}).values():
        if isinstance(state, dict) and {"dirpath", "best_model_path"} <= state.keys():
            _follow(state, str(checkpoint.get(_SAVED_IN) or state["dirpath"] or folder), folder)


def _follow(state: dict[str, Any], saved_in: str, folder: Path) -> None:
    """Changes the paths in the state of a `ModelCheckpoint`."""

    def moved(path: Any) -> str:
        return os.path.normpath(folder / os.path.relpath(path, saved_in)) if _is_path(path) else ""

    def there(path: Any) -> str:
        path = moved(path)
        return path if path and os.path.isfile(path) else ""

    state["dirpath"] = moved(state["dirpath"]) or str(folder)
    for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
        state[name] = there(state.get(name))
    scores = {there(path): score for path, score in (state.get("best_k_models") or {}).items()}
    scores.pop("", None)
    state["best_k_models"] = scores
    if not state["best_model_path"]:
        state["best_model_score"] = None  # the next one is the best of those that are there


def _is_path(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and bool(str(path)) and _local(path) is not None


def _local(path: Any) -> Path | None:
    """The path of a file on this machine; None for an address."""
    if fsspec.utils.get_protocol(str(path)) not in LocalFileSystem.protocol:
        return None
    return Path(LocalFileSystem._strip_protocol(str(path)))
