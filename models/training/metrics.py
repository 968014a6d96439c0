"""The names of what a run logs."""

SPLITS = ("train", "val", "test")

# What they are called after the split: those that are better the lower they are, and those that are better the higher.
ERRORS = ("loss", "mae")
MERITS = ("acc", "f1", "macro_f1", "precision", "recall", "auc", "auroc", "ap", "mrr", "r2")

# Of fit, and of test on the whole graph, if nodes are classified.
METRICS = ("train/loss", "train/acc", "val/loss", "val/acc", *(f"test/{split}_acc" for split in SPLITS))

# If they are embedded: what is classified is tried by a logistic regression, on all nodes of a split at once.
EMBEDDER_METRICS = (*(metric for metric in METRICS if metric != "train/acc"), "test/test_macro_f1")
