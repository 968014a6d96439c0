"""The names of what a run logs."""

SPLITS = ("train", "val", "test")

# Of fit, and of test on the whole graph.
METRICS = ("train/loss", "train/acc", "val/loss", "val/acc", *(f"test/{split}_acc" for split in SPLITS))
