"""Where the time of a pipeline goes: sums over all items, and pictures of some of them."""

from loader.timing.stats import PipelineStats
from loader.timing.timeline import TRAIN, Span, Timeline

__all__ = ["TRAIN", "PipelineStats", "Span", "Timeline"]
