"""The times of a pipeline's stages: sums over all items, and pictures of some items."""

from loader.timing.stats import PipelineStats
from loader.timing.timeline import TRAIN, Span, Timeline

__all__ = ["TRAIN", "PipelineStats", "Span", "Timeline"]
