"""Models and samplers, those of the user's own too: what they take and lack, and whether they go together."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from hydra.utils import get_class, instantiate
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.model_helpers import is_overridden
from omegaconf import DictConfig, open_dict

from loader.machine.arguments import shown
from loader.samplers import Sampler
from models.training.classifier import Classifier
from models.training.renamed_options import RENAMED
from models.training.target_classes import object_of

_ALWAYS = ("training_step", "test_step", "configure_optimizers")  # methods


def keep_options_of_own_classes(cfg: DictConfig, overrides: Sequence[str]) -> None:
    """Takes options out that a class given by `model._target_=` or `sampler._target_=` does not take.

    They are defaults of the class in the chosen file. Those that the command line gives stay, and are refused later.

    Args:
        cfg: of the run.
        overrides: of the command line, e.g. `["model._target_=mine.Net", "+model.width=3"]`.

    Raises:
        ValueError: the class cannot be imported, or a model takes no depth, and the sampler needs one.
    """
    given = {one.lstrip("+").partition("=")[0] for one in overrides}
    for group in ("model", "sampler"):
        if f"{group}._target_" not in given:
            continue
        made = object_of(group, cfg[group])
        if group == "model" and isinstance(made, type) and not issubclass(made, LightningModule):
            raise ValueError(_no_module(cfg.model["_target_"], "which is none"))
        taken = keywords(made)
        with open_dict(cfg):
            _use_own_names(cfg[group], group, taken or ())
            for key in [key for key in map(str, cfg[group]) if not key.startswith("_")]:
                if taken is None or key in taken or f"{group}.{key}" in given:
                    continue
                if (group, key) == ("model", "num_layers") and "sampler.num_hops" not in given:
                    raise ValueError(
                        f"{cfg.model._target_} takes no num_layers, of hops; add it or give sampler.num_hops=..."
                    )
                del cfg[group][key]


def _use_own_names(options: DictConfig, group: str, taken: Collection[str]) -> None:
    """Gives an option its old name again where that is what an own class calls its own."""
    for old, new in RENAMED.items():
        (of, _, before), after = old.rpartition("."), new.rpartition(".")[2]
        if of == group and after in options and before in taken and after not in taken:
            options[before] = options.pop(after)


def parameters(made: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a class or function by name, one with `**` among them if it takes any.

    `**options` of a class are those of the classes above it.
    """
    if not isinstance(made, type):
        return dict(inspect.signature(made).parameters)
    found: dict[str, inspect.Parameter] = {}
    rest: dict[str, inspect.Parameter] = {}
    for base in (base for base in made.__mro__ if "__init__" in vars(base)):
        own = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        found = {p.name: p for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)} | found
        rest = {p.name: p for p in own if p.kind is p.VAR_KEYWORD}
        if not rest:
            break
    return found | rest


def keywords(made: Any) -> set[str] | None:
    """The names of the arguments that a class or function takes; None if these can be any."""
    found = parameters(made)
    return None if any(p.kind is p.VAR_KEYWORD for p in found.values()) else set(found)


def datamodule_of(cfg: DictConfig, *, hetero: bool) -> Any:
    """The data module of a run, whose data are not read yet.

    Whatever can refuse its options does so before: the model through a trial of it with the smallest sizes of data.

    Args:
        cfg: of the run.
        typed: the model is for data with several types of nodes and edges.

    Raises:
        ValueError: the model or a sampler lacks something, or they do not go together.
    """
    kind: Any = get_class(cfg.datamodule["_target_"])
    if not hasattr(kind, "trial_sizes"):
        raise ValueError(f"datamodule._target_ is {cfg.datamodule['_target_']}; it must be a GraphDataModule")
    trial_sizes = kind.hetero_trial_sizes if hetero else kind.trial_sizes
    check_takes(cfg, [*trial_sizes] if hetero else [*trial_sizes, "multilabel"])
    if hetero:
        check_sizes(cfg.model, ["num_nodes"])
    trial = instantiate(cfg.model, **trial_sizes)
    check_methods(cfg, trial)
    datamodule = instantiate(cfg.datamodule)
    check_samplers(datamodule)
    check_depth(trial, datamodule)
    return datamodule


def model_of(cfg: DictConfig, datamodule: Any) -> Any:
    """The model of a run, which is told the sizes of its data; numbers of nodes by type only if it takes them."""
    sizes = dict(datamodule.sizes)
    if "edge_types" in sizes and "num_nodes" in (keywords(object_of("model", cfg.model)) or ()):
        sizes["num_nodes"] = {name: len(ids) for name, ids in datamodule.data.graph.node_types.items()}
    return instantiate(cfg.model, **sizes)


def check_sizes(model: DictConfig, sizes: Iterable[str]) -> None:
    """Raises ValueError for an option of the model that the data decide: it would be ignored."""
    for name in sizes:
        if name in model:
            raise ValueError(f"model.{name} is {shown(model[name])}, but the data decide it; leave it out")


def check_depth(model: Any, datamodule: Any) -> None:
    """Raises ValueError unless the samplers of a data module reach as far from their seeds as the model has layers."""
    layers = getattr(model, "num_layers", getattr(getattr(model, "net", None), "num_layers", None))
    for name in ("sampler", "eval_sampler"):
        hops = getattr(getattr(datamodule, name, None), "num_hops", 0)
        if layers is not None and hops not in (0, layers):
            ways = f"give {name}.num_hops={layers}, or model.num_layers={hops}"
            raise ValueError(f"{name} samples {hops} hops, the model has {layers} layers; {ways}")


def check_takes(cfg: DictConfig, sizes: Iterable[str]) -> None:
    """Raises ValueError unless the model takes the sizes of the data, which no option gives, and the optimizer if one
    was chosen.
    """
    check_sizes(cfg.model, sizes)
    target, taken = cfg.model["_target_"], keywords(object_of("model", cfg.model))
    if lacks := [name for name in sizes if taken is not None and name not in taken]:
        why = f"each model is given {', '.join(sizes)}, so add what it lacks"
        raise ValueError(f"model._target_ is {target}, whose __init__ takes no {', '.join(lacks)}; {why}")
    for name, default in (("optimizer", "Adam"), ("schedule", None)):
        given = {"name": default} if cfg.get(name) is None else dict(cfg[name])
        key = next((key for key, value in given.items() if key != "name" or value != default), None)
        if name not in cfg.model and key is not None:
            way = f"leave {name} out, or give the model an option: {name}: ${{{name}}}"
            raise ValueError(f"{name}.{key} is {shown(given[key])}, but {target} has an optimizer of its own; {way}")


def _no_module(target: str, what: str) -> str:
    way = "e.g. of a class derived from models.training.classifier.Classifier"
    return f"model._target_ is {target}, {what}; it must make a LightningModule, {way}"


def check_samplers(datamodule: Any) -> None:
    """Raises ValueError if a sampler of the data module has no method that samples, or one that takes too little."""
    for name in ("sampler", "eval_sampler"):
        kind = type(getattr(datamodule, name, None))
        if not issubclass(kind, Sampler) or kind.open is not Sampler.open:
            continue
        taken = keywords(kind.sample)
        if kind.sample is Sampler.sample or not (taken is None or taken.issuperset(("epoch", "batch"))):
            lacks = "neither open(graph) nor a sample(graph, seeds, epoch=0, batch=0) that takes all of these"
            raise ValueError(f"{name} is a {kind.__name__}, which has {lacks}; add one of them")


def check_methods(cfg: DictConfig, model: Any) -> None:
    """Raises ValueError unless a model has all methods that the run calls, those after the training included.

    Args:
        cfg: of the run.
        model: a trial of it.
    """
    name = cfg.model["_target_"]
    if not isinstance(model, LightningModule):
        raise ValueError(_no_module(name, f"which makes a {type(model).__name__}"))
    if "context_size" in cfg.model:
        return
    wanted = [*_ALWAYS, *(["validation_step"] if str(cfg.optimized_metric).startswith("val/") else [])]
    lacks = [method for method in wanted if not is_overridden(method, model)]
    if isinstance(model, Classifier) and not model.has("forward") and not model.has("layer"):
        lacks.append("layer")
    if lacks:
        way = "add what it lacks, or derive it from models.training.classifier.Classifier"
        raise ValueError(f"model._target_ is {name}, which has no {', '.join(lacks)}; {way}")
    exact = model.infers if isinstance(model, Classifier) else callable(getattr(model, "infer", None))
    if cfg.exact_test and not exact:
        way = "layer(i, x, block)" if isinstance(model, Classifier) else "infer(whole)"
        why = f"{name} has no {way}, so it can be tested with sampled neighbors only"
        raise ValueError(f"exact_test is true, but {why}; give exact_test=false")
