"""The names of what a run logs."""

SPLITS = ("train", "val", "test")

# Of fit, and of test on the whole graph, if nodes are classified.
METRICS = ("train/loss", "train/acc", "val/loss", "val/acc", *(f"test/{split}_acc" for split in SPLITS))

# If they are embedded: what is classified is tried by a logistic regression, on all nodes of a split at once.
EMBEDDER_METRICS = (*(metric for metric in METRICS if metric != "train/acc"), "test/test_macro_f1")

ERRORS = ("loss", "mae")  # what they are called after the split


def is_error(metric: str) -> bool:
    """Whether a metric is better the smaller it is, as its name says: a loss or a mean absolute error."""
    return metric.rpartition("/")[2] in ERRORS
