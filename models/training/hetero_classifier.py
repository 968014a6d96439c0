"""The LightningModules of models that take several types of nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from loader.machine.renamed_arguments import renamed_arguments
from loader.samples.hetero import HeteroMiniBatch
from loader.samples.segments import EdgeType
from models.hetero import HGT, HeteroNet, ToHetero
from models.training.classifier import Classifier
from models.training.epoch_loss import sums_of_all


class HeteroClassifier(Classifier):
    """A model that classifies the seeds of `HeteroMiniBatch` objects. A subclass sets `net`.

    It is tested on mini-batches only, with sampled neighbors. Beside `test/acc` it logs `test/macro_f1`, the mean over
    the classes of their F1 scores; a class that no node of the test has or got is left out, as in scikit-learn.

    Args:
        num_features: node type -> number of features, 0 for a type without.
        num_classes: of the seeds.
        edge_types: relations (source type, name, destination type).
        target: node type of the seeds.
        options: see `Classifier`. `inference_chunk_mib` is of subclasses with an exact test (`infer`).

    Raises:
        ValueError: a value out of its range.
    """

    takes_types: ClassVar[bool] = True
    net: HeteroNet

    def __init__(
        self,
        num_features: Mapping[str, int],
        num_classes: int,
        edge_types: Sequence[EdgeType],
        target: str,
        **options: Any,
    ) -> None:
        super().__init__(num_classes, **options)
        chunk = options.get("inference_chunk_mib", 256)
        if not self.infers and chunk != 256:  # the default, which checkpoints have
            what = f"inference_chunk_mib is {chunk}, but {type(self).__name__} is tested with sampled neighbors"
            raise ValueError(f"{what}; leave it out, or give 256 with a checkpoint that has it")
        # As plain values, which a checkpoint can hold; a configuration gives its own kinds of lists.
        self.in_dims = {str(name): int(width) for name, width in num_features.items()}
        self.edge_types: list[EdgeType] = [(s, name, d) for s, name, d in edge_types]
        self.target = target
        self.hparams.update(num_features=self.in_dims, edge_types=self.edge_types)
        self._counts: Tensor | None = None  # of a test: `[3, num_classes]`, hits, predicted and true nodes by class

    @property
    def num_layers(self) -> int:  # type: ignore[override]
        return self.net.num_layers

    def forward(self, batch: HeteroMiniBatch) -> Tensor:  # type: ignore[override]
        """Logits of the seeds, `[batch_size, num_classes]`."""
        logits: Tensor = self.net(batch)
        return logits

    def in_precision(self, batch: Any) -> Any:
        return batch  # the network does it

    def loss_of(self, batch: Any, stage: str) -> tuple[Tensor, Tensor]:
        logits = self(batch)
        if stage == "test" and not batch.repeats:
            classes = (logits.argmax(-1), batch.y)
            counts = [torch.bincount(c, minlength=self.num_classes) for c in (batch.y[classes[0] == batch.y], *classes)]
            self._counts = torch.stack(counts).double() + (0 if self._counts is None else self._counts)
        return self._loss_of_logits(logits, batch.y)

    def on_test_epoch_start(self) -> None:
        super().on_test_epoch_start()
        self._counts = None

    def on_test_epoch_end(self) -> None:
        super().on_test_epoch_end()
        zeros = torch.zeros(3, self.num_classes, dtype=torch.float64, device=self.device)
        hits, predicted, true = sums_of_all(self, zeros if self._counts is None else self._counts)
        met = predicted + true > 0  # a class that no node has, and none got, has no F1
        f1 = (2 * hits / (predicted + true))[met]
        self.log("test/macro_f1", f1.mean().float(), on_epoch=True, sync_dist=True)


@renamed_arguments({"hidden": "hidden_channels"})
class ToHeteroClassifier(HeteroClassifier):
    """GraphSAGE or GAT of torch_geometric with weights of its own per relation.

    Args:
        num_features, num_classes, edge_types, target: see `HeteroClassifier`.
        base, num_layers, hidden_channels, dropout, input_dropout, norm, act, heads, attention_dropout: see
            `models.hetero.ToHetero`.
        options: see `Classifier`.

    Raises:
        ImportError: torch_geometric is missing.
        ValueError: a value out of its range, or an option that this base does not have.
    """

    def __init__(
        self,
        num_features: Mapping[str, int],
        num_classes: int,
        edge_types: Sequence[EdgeType],
        target: str,
        *,
        base: str = "graphsage",
        num_layers: int = 2,
        hidden_channels: int = 64,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        act: str = "relu",
        heads: int | None = None,
        attention_dropout: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_features, num_classes, edge_types, target, **options)
        self.net = ToHetero(
            base,
            self.in_dims,
            self.edge_types,
            target,
            hidden_channels,
            num_classes,
            num_layers,
            dropout=dropout,
            input_dropout=input_dropout,
            norm=norm,
            act=act,
            heads=heads,
            attention_dropout=attention_dropout,
        )


@renamed_arguments({"hidden": "hidden_channels"})
class HGTClassifier(HeteroClassifier):
    """Heterogeneous graph transformer of torch_geometric.

    Args:
        num_features, num_classes, edge_types, target: see `HeteroClassifier`.
        num_layers, hidden_channels, heads, dropout, input_dropout: see `models.hetero.HGT`.
        options: see `Classifier`.

    Raises:
        ImportError: torch_geometric is missing.
        ValueError: a value out of its range.
    """

    def __init__(
        self,
        num_features: Mapping[str, int],
        num_classes: int,
        edge_types: Sequence[EdgeType],
        target: str,
        *,
        num_layers: int = 2,
        hidden_channels: int = 64,
        heads: int = 4,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(num_features, num_classes, edge_types, target, **options)
        self.net = HGT(
            self.in_dims,
            self.edge_types,
            target,
            hidden_channels,
            num_classes,
            num_layers,
            heads=heads,
            dropout=dropout,
            input_dropout=input_dropout,
        )
