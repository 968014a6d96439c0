"""What embeddings are tried by: a logistic regression, whose scores have all digits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from torch.nn import functional as F

from loader import Graph
from loader.loaders.whole_graph import WholeGraph
from models.embedding_probe import f1_scores, top_labels
from models.training.embedder import NodeEmbedder


def test_scores_in_bfloat16_have_all_digits(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(90, 5, generator=generator) < 0.4).float()
    graph = Graph.from_edges(torch.arange(89), torch.arange(1, 90), 90)
    whole = WholeGraph(
        graph, torch.empty(90, 0), labels, dict(zip(("train", "val", "test"), torch.arange(90).chunk(3), strict=True))
    )
    model = NodeEmbedder(90, 5, multilabel=True, dim=8)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = Trainer(precision="bf16-true", accelerator="cpu", default_root_dir=tmp_path, **quiet)
    (found,) = trainer.validate(model, whole, verbose=False)
    (tested,) = trainer.test(model, whole, verbose=False)
    with torch.no_grad():
        probe = model._probe(whole)
        logits = {split: probe.logits(model.net(whole.splits[split])) for split in ("val", "test")}
    true = {split: labels[whole.splits[split]] for split in logits}
    scores = {split: f1_scores(top_labels(logits[split], true[split]), true[split]) for split in logits}
    loss = F.binary_cross_entropy_with_logits(logits["val"], true["val"].double())
    assert found == pytest.approx({"val/loss": float(loss), "val/acc": scores["val"][0]}, rel=1e-6)
    assert tested["test/test_acc"] == pytest.approx(scores["test"][0], rel=1e-6)
    assert tested["test/test_macro_f1"] == pytest.approx(scores["test"][1], rel=1e-6)
