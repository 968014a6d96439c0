"""Trains a model as `conf/` says: `python train.py dataset=ogbn-arxiv sampler=fused model.num_layers=3`."""

from __future__ import annotations

import gc
import sys
import warnings
from pathlib import Path

if __name__ == "__main__":
    beside = Path(__file__).parent / "loader"
    if beside.is_dir() and not any(core.suffix in (".so", ".pyd") for core in beside.glob("_core.*")):
        # No core was built in this checkout: an installed loader goes before its sources, which lie beside this file.
        here = str(Path(__file__).resolve().parent)
        sys.path[:] = [*(place for place in sys.path if place != here), here]
    try:
        from loader.machine.command_line import called
        from loader.machine.optional import require

        require(("hydra", "lightning"), called("train"), "train")
    except ImportError as error:
        sys.exit(f"error: {error}")

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

# None of these imports torch, which takes seconds: the other processes of a run start before.
from models.training.command_line import check_keys, command_of_rank, composed, composing
from models.training.console import leave_no_empty_folder, same_levels
from models.training.errors import one_line_errors
from models.training.past_run import options_of_past_run, overrides_of_past_run, with_choices_of_past_run
from models.training.ranks import be_quiet_unless_first, other_ranks, rank_here
from models.training.renamed_options import rename_options
from models.training.sweeps import share_imports, take_part

PROGRAM = Path(__file__).resolve()
CONF = PROGRAM.parent / "conf"


def train(cfg: DictConfig) -> float:
    """Runs one job: fit, test the best checkpoint, return the metric that a sweep optimises.

    Args:
        cfg: composed from `conf/train.yaml`.

    Returns:
        The best value of `cfg.optimized_metric` if checkpoints are chosen by it, else its last one; NaN if training
        ended before there was one.

    Raises:
        ValueError, FileNotFoundError, ImportError: something the user can mend, before work starts.
        Interrupted: Ctrl-C, while it trained; the message says how to go on.
    """
    given = list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
    check_keys(cfg, CONF)
    rename_options(cfg, cfg, given, warn=True)
    past: list[str] = []
    if cfg.mode != "train":
        cfg = options_of_past_run(cfg, given)
        past = overrides_of_past_run(Path(str(cfg.ckpt_path)))

    from models.training.preparation import check_classes, prepare, run_job  # torch takes seconds to import

    prepared = prepare(cfg)
    with same_levels("lightning.pytorch"):  # Lightning, too: what needs none of it was refused before
        check_classes(cfg, [*past, *given])
    return run_job(cfg, prepared)


def _leave_no_empty_folder(*, refused: bool = False) -> None:
    here = HydraConfig.get()
    if here.mode == RunMode.RUN:
        leave_no_empty_folder(Path(here.runtime.output_dir), Path(here.runtime.cwd), refused=refused)


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> float:
    composed()
    # Lightning's own, with torch 2.13, and torch_geometric's, with torch 2.15; nothing here can avoid them.
    warnings.filterwarnings("ignore", message=".*(LeafSpec|torch.jit.script).* is deprecated", category=FutureWarning)
    # A run that goes on writes where it wrote before. Of another one, `announce` says that its files are replaced.
    for folder in ("Checkpoint directory", "Experiment logs directory"):
        warnings.filterwarnings("ignore", message=f"{folder} .* exists and is not empty")
    be_quiet_unless_first()
    if rank_here() > 0 and not any(one.startswith("hydra.run.dir=") for one in HydraConfig.get().overrides.hydra):
        _leave_no_empty_folder()  # of a process of torchrun, named after the time of its start; the first one's counts
    trainer = cfg.get("trainer") or {}
    take_part(HydraConfig.get().launcher, cfg.device, trainer.get("devices"))
    try:
        with one_line_errors(cfg.debug in (True,)), other_ranks(trainer, *command_of_rank(PROGRAM)):
            return train(cfg)
    except SystemExit as end:
        if rank_here() == 0:
            _leave_no_empty_folder(refused=end.code == 1)
        raise
    finally:
        # Lightning's objects refer to each other: else the next job of a sweep begins beside the data of this one.
        gc.collect()


if __name__ == "__main__":
    share_imports(PROGRAM)
    sys.argv[1:] = with_choices_of_past_run(sys.argv[1:])
    with composing(CONF):
        main()
