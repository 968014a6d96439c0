"""The LightningModule of link prediction: GraphSAGE embeds, the inner product of two ends is a link's score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from loader.datamodules.links import HeldOutLinks
from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.machine.arguments import as_size
from loader.machine.renamed_arguments import renamed_arguments
from loader.samples import Links
from loader.samples.segments import EdgeType
from models.hetero_links import LinkEncoder
from models.inference import layerwise_inference
from models.ranking import auc, average_precision, hits, mrr, ranks
from models.sage import GraphSAGE
from models.training.epoch_loss import EpochLoss, check_finite
from models.training.optimizers import Optimization

HITS = (1, 3, 10)

LINK_METRICS = ("train/loss", *(f"{split}/{name}" for split in ("val", "test") for name in ("auc", "ap", "mrr")))
LINK_METRICS += tuple(f"{split}/hits@{k}" for split in ("val", "test") for k in HITS)


@renamed_arguments({"hidden": "hidden_channels"})
class LinkPredictor(EpochLoss):
    """Tells links from pairs of nodes that are none: the graph autoencoder of Kipf and Welling 2016
    (arXiv:1611.07308) with GraphSAGE as encoder, on mini-batches of `Links`.

    Per epoch it logs `train/loss`, the mean binary cross entropy over the mini-batches. On `HeldOutLinks` it embeds all
    nodes by exact, layer-wise inference and logs, by names that begin with `val/` or `test/`: `auc` and `ap`, the
    average precision, of the links against as many negatives; `mrr`, `hits@1`, `@3` and `@10`, of each link's rank
    among its own negatives.

    With types, the encoder is GraphSAGE with weights of its own per relation, `models.hetero_links.LinkEncoder`, and
    nodes are embedded from the neighbors that the sampler of training picks: all, by default.

    Args:
        num_features: of the data; 0: the model trains a row of `hidden_channels` numbers for each of `num_nodes`, and
            embeds these. It is the autoencoder's way without features, the identity matrix in their place. With types,
            by node type.
        num_nodes: of the data, if it has no features; with types, by node type.
        edge_types, edge_type: with types, the relations, and that of the links.
        num_layers, hidden_channels, dropout, input_dropout, norm: see `models.sage.GraphSAGE`.
        out: width of an embedding.
        lr, weight_decay, optimizer, schedule: see `Optimization`.

    Raises:
        ValueError: a value out of its range.
    """

    METRICS = LINK_METRICS

    def __init__(
        self,
        num_features: int | Mapping[str, int],
        *,
        num_nodes: int | Mapping[str, int] | None = None,
        edge_types: Sequence[EdgeType] | None = None,
        edge_type: EdgeType | None = None,
        num_layers: int = 2,
        hidden_channels: int = 64,
        out: int = 32,
        dropout: float = 0.5,
        input_dropout: float = 0.5,
        norm: str = "none",
        lr: float = 0.01,
        weight_decay: float = 0.0,
        optimizer: Mapping[str, Any] | None = None,
        schedule: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.optimization = Optimization(lr, weight_decay, optimizer, schedule)
        as_size("out", out)
        self.save_hyperparameters()
        self.hparams.update(self.optimization.hparams)
        self.rows = None
        self.net: GraphSAGE | LinkEncoder
        if isinstance(num_features, Mapping):
            assert isinstance(num_nodes, Mapping)
            assert edge_types is not None
            assert edge_type is not None
            # As plain values, which a checkpoint can hold; a configuration gives its own kinds of lists.
            widths, counts = dict(num_features), dict(num_nodes)
            relations: list[EdgeType] = [(s, name, d) for s, name, d in edge_types]
            of: EdgeType = (edge_type[0], edge_type[1], edge_type[2])
            self.hparams.update(num_features=widths, num_nodes=counts, edge_types=relations, edge_type=of)
            shape = {"dropout": dropout, "input_dropout": input_dropout, "norm": norm}
            self.net = LinkEncoder(widths, counts, relations, of, hidden_channels, out, num_layers, **shape)  # type: ignore[arg-type]
            return
        assert not isinstance(num_nodes, Mapping)
        as_size("num_features", num_features, least=1 if num_nodes is None else 0)
        if num_nodes is not None and num_features == 0:
            self.rows = nn.Embedding(as_size("num_nodes", num_nodes), as_size("hidden_channels", hidden_channels))
        self.net = GraphSAGE(
            num_features or hidden_channels, hidden_channels, out, num_layers, dropout, norm, input_dropout
        )

    def forward(self, batch: Links) -> Tensor:
        """Logits of all links of the mini-batch, in the order of `Links.pairs`."""
        of_sources, of_targets = self._embedded(batch)
        source, target = batch.pairs()[0]
        return (of_sources[source] * of_targets[target]).sum(-1)

    def _embedded(self, batch: Links) -> tuple[Tensor, Tensor]:
        """Embeddings of the nodes that `sources` and `targets` number."""
        if isinstance(self.net, LinkEncoder):
            found: tuple[Tensor, Tensor] = self.net(batch.around)
            return found
        features = batch.around.features if self.rows is None else self.rows(batch.around.input_nodes)
        if features is None:
            raise ValueError("the links have no features; a loader gathers them (LinkLoader(features=...))")
        embedded: Tensor = self.net(batch.around.blocks, features)
        return embedded, embedded

    def training_step(self, batch: Links, batch_idx: int) -> Tensor:
        loss = F.binary_cross_entropy_with_logits(self(batch), batch.pairs()[1])
        self.count_loss(loss, 0 if batch.repeats else batch.batch_size)  # what repeats is counted by another process
        return loss

    def validation_step(self, batch: HeldOutLinks, batch_idx: int) -> None:
        self._evaluate(batch, "val")

    def test_step(self, batch: HeldOutLinks, batch_idx: int) -> None:
        self._evaluate(batch, "test")

    def embed(self, graph: Graph, features: Tensor, *, progress: bool = False) -> Tensor:
        """Embeddings of all nodes, `[num_nodes, out]` on the CPU, each from all its neighbors.

        The score of a link is the inner product of its ends' embeddings: its logit.
        """
        if self.rows is not None:
            features = self.rows.weight.detach().cpu()
        assert isinstance(self.net, GraphSAGE)
        return layerwise_inference(self.net, graph, features, progress=progress)

    def embed_types(self, all_nodes: Callable[[str], NodeLoader]) -> tuple[Tensor, Tensor]:
        """With types, embeddings of all nodes of the source type and of the destination type, `[nodes, out]` on the
        CPU.

        Args:
            all_nodes: see `HeldOutLinks`.
        """
        assert isinstance(self.net, LinkEncoder)
        found: dict[str, Tensor] = {}
        for end, name in enumerate(self.net.ends):
            if name not in found:
                batches = all_nodes(name)
                try:
                    found[name] = torch.cat([self.net(batch)[end][: batch.batch_size].cpu() for batch in batches])
                finally:
                    batches.release()
        source, target = (found[name] for name in self.net.ends)
        return source, target

    def _evaluate(self, batch: HeldOutLinks, split: str) -> None:
        if isinstance(batch.graph, Graph):
            assert isinstance(batch.features, Tensor)
            of_sources = of_targets = self.embed(batch.graph, batch.features)
        else:
            of_sources, of_targets = self.embed_types(batch.all_nodes)

        # In 16 bits different scores would be equal; predictions have them in float32, too.
        wide = torch.promote_types(of_sources.dtype, torch.float32)
        of_sources, of_targets = of_sources.to(wide), of_targets.to(wide)

        def score(source: Tensor, target: Tensor) -> Tensor:
            return (of_sources[source] * of_targets[target]).sum(-1)

        positive = score(batch.links[:, 0], batch.links[:, 1])
        placed = ranks(positive, score(batch.links[:, :1], batch.targets))
        negative = score(batch.negatives[:, 0], batch.negatives[:, 1])
        values = {"auc": auc(positive, negative), "ap": average_precision(positive, negative), "mrr": mrr(placed)}
        values |= {f"hits@{k}": hits(placed, k) for k in HITS}
        for name, value in values.items():
            check_finite(self, f"{split}/{name}", value)
        # Not of the default type: with `trainer.precision=bf16-true` that has three digits.
        found = {
            f"{split}/{name}": torch.tensor(value, dtype=torch.float32, device=self.device)
            for name, value in values.items()
        }
        self.log_dict(found, prog_bar=True, batch_size=len(batch.links), sync_dist=True)

    def configure_optimizers(self) -> Any:
        return self.optimization.configure(self)
