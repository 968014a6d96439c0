"""Trains a model as `conf/` says: `python train.py dataset=ogbn-arxiv sampler=fused model.num_layers=3`."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from omegaconf import DictConfig, OmegaConf

# None of these imports torch, which takes seconds: the other processes of a run start before.
from models.training.command_line import check_keys, command_of_rank, composed, composing
from models.training.console import leave_no_empty_folder
from models.training.errors import one_line_errors
from models.training.past_run import (
    check_prediction,
    options_of_past_run,
    overrides_of_past_run,
    with_choices_of_past_run,
)
from models.training.ranks import (
    be_quiet_unless_first,
    check_hosts,
    check_launch,
    other_ranks,
    rank_here,
)
from models.training.renamed import rename_options
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
    import torch
    from hydra.utils import get_class, instantiate

    from loader.machine.arguments import as_flag, as_seed
    from loader.machine.cpus import as_threads
    from models.training.option_checks import (
        check_depth,
        check_dtype,
        check_monitors,
        check_parts,
        check_places,
        check_sizes,
        check_targets,
        check_test,
        check_timeline,
        check_trainer,
    )
    from models.training.run_checks import check_length, check_metrics, check_read, read_checkpoint, watch_loss

    check_keys(cfg, CONF)
    rename_options(cfg, cfg, HydraConfig.get().overrides.task if HydraConfig.initialized() else [], warn=True)
    if cfg.mode != "train":
        cfg = options_of_past_run(cfg, HydraConfig.get().overrides.task)
    check_prediction(cfg)
    check_parts(cfg)  # else the next line meets values that the chosen parts have not
    if missing := OmegaConf.missing_keys(cfg):
        key = min(missing, key=len)
        raise ValueError(f"{key} is not set; add {key}=... to the command line")
    if as_seed(cfg.seed) >= 2**32:
        raise ValueError(
            f"seed is {cfg.seed}; it must be below 2**32, as numpy's has to be: sampler.seed and datamodule.seed take "
            "64 bits"
        )
    for name in ("debug", "timeline"):
        as_flag(name, cfg[name])
    check_length(cfg.trainer)
    check_launch(cfg.trainer)
    if cfg.ckpt_path is not None:
        if not isinstance(cfg.ckpt_path, str) or not Path(cfg.ckpt_path).is_file():
            way = "give <folder of the run>/checkpoints/step.ckpt"
            raise FileNotFoundError(
                f"ckpt_path is {cfg.ckpt_path or repr(cfg.ckpt_path)}; there is no such file: {way}"
            )
        if cfg.mode == "train":
            cfg.checkpoint_dir = str(Path(cfg.ckpt_path).parent)  # where the best one so far lies

    from models.training.device import check_features, device_of_run

    cfg.device, why = device_of_run(cfg.device)
    if cfg.num_threads is not None:
        torch.set_num_threads(as_threads(cfg.num_threads))
    check_trainer(cfg)
    check_test(cfg)
    check_places(cfg)
    check_features(cfg.features, cfg.device)
    if cfg.features["_target_"].endswith(".PartitionedFeatures"):
        check_hosts(cfg.trainer)

    saved = read_checkpoint(Path(cfg.ckpt_path)) if cfg.ckpt_path is not None else {}

    # Lightning takes seconds to import: what needs none of it was refused before.
    with same_levels("lightning.pytorch"):
        from lightning.pytorch import seed_everything

    from loader.loaders.whole_graph import WholeGraph
    from models.training.console import announce, folders, save_config
    from models.training.job_result import JobResult
    from models.training.link_job import train_links
    from models.training.node_types import check_types, takes_tables, takes_types
    from models.training.own_classes import check_methods, check_samplers, check_takes, keep_options_of_own_classes
    from models.training.past_run_job import use_past_run
    from models.training.relational_job import train_task, watch_task
    from models.training.tested_job import draw_score
    from models.training.trainer import best_checkpoint, fit, make_trainer, optimized_value, warn_of_sampling

    given = [] if cfg.mode == "train" else overrides_of_past_run(Path(str(cfg.ckpt_path)))
    given.extend(HydraConfig.get().overrides.task if HydraConfig.initialized() else [])
    keep_options_of_own_classes(cfg, given)
    check_targets(cfg)
    of_tables = takes_tables(cfg)
    if of_tables:
        watch_task(cfg, given)
    elif cfg.task == "link":
        draw_score(cfg, given, "auc")
    check_types(cfg)
    check_monitors(cfg)
    check_timeline(cfg)
    check_dtype(cfg)
    if cfg.mode != "train":
        return use_past_run(cfg, why, saved)
    job = JobResult(cfg)
    if job.metric is not None:
        return job.metric
    if of_tables:
        return train_task(cfg, why, job)
    if cfg.task == "link":
        return train_links(cfg, why, job)

    # Whatever can refuse its settings does so before the data are read; the model through a trial of its smallest size.
    datamodule_class: Any = get_class(cfg.datamodule["_target_"])
    if not hasattr(datamodule_class, "trial_sizes"):
        raise ValueError(f"datamodule._target_ is {cfg.datamodule['_target_']}; it must be a GraphDataModule")
    typed = takes_types(cfg)
    trial_sizes = datamodule_class.typed_trial_sizes if typed else datamodule_class.trial_sizes
    sizes = [*trial_sizes] if typed else [*trial_sizes, "multilabel"]
    check_sizes(cfg.model, sizes)
    check_takes(cfg, sizes)
    trial = instantiate(cfg.model, **trial_sizes)
    check_methods(cfg, trial)
    datamodule = instantiate(cfg.datamodule)
    check_samplers(datamodule)
    check_depth(trial, datamodule)
    trainer = make_trainer(cfg)
    announce(cfg, why, first=trainer.is_global_zero)

    datamodule.prepare_data()
    check_types(cfg, datamodule.data)
    check_read(datamodule)
    if watch_loss(cfg, datamodule):
        trainer = make_trainer(cfg)
        if trainer.is_global_zero:
            lacks = "split" if datamodule.data.num_classes else "labels"
            print(f"dataset {datamodule.data.name} has no {lacks}: train/loss is watched in place of val/acc")
            save_config(cfg, Path(cfg.run_dir))
    datamodule.trainer = trainer  # says on which device this process trains
    datamodule.setup("fit")
    data = datamodule.data
    check_metrics(cfg, data.splits)
    if data.splits["val"].numel() == 0:
        trainer.limit_val_batches = 0  # or Lightning wonders
    seed_everything(cfg.seed, verbose=False)
    model = instantiate(cfg.model, **datamodule.sizes)
    metrics = fit(cfg, trainer, model, datamodule)

    best = best_checkpoint(trainer)
    if cfg.exact_test:
        whole = WholeGraph(data.graph, data.features, data.labels, data.splits)
        trainer.test(model, dataloaders=whole, ckpt_path=best, verbose=False)
    elif data.splits["test"].numel():
        trainer.test(model, datamodule=datamodule, ckpt_path=best, verbose=False)
    metrics.update(trainer.callback_metrics)
    warn_of_sampling(metrics, trainer)
    if trainer.is_global_zero:
        print(folders(cfg))
    return job.write(optimized_value(cfg.optimized_metric, metrics, trainer), metrics, trainer.callbacks)  # type: ignore[attr-defined]


@contextmanager
def same_levels(name: str) -> Iterator[None]:
    """Keeps the level of a logger, as Hydra's configuration has it, where the package sets one at its import."""
    logger = logging.getLogger(name)
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)


def _leave_no_empty_folder(*, refused: bool = False) -> None:
    here = HydraConfig.get()
    if here.mode == RunMode.RUN:
        leave_no_empty_folder(Path(here.runtime.output_dir), Path(here.runtime.cwd), refused=refused)


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> float:
    composed()
    # Lightning's own, with torch 2.13; nothing here can avoid it.
    warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
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
