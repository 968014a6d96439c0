"""Stages that run ahead of the consumer, in order and within a bound; what a stage computes is not known here."""

from loader.pipeline.pipeline import Pipeline
from loader.pipeline.stages import PipelineIterator, PipelineStats, Stage
from loader.pipeline.streams import PRIORITIES, TRAINING_PRIORITY, StageStreams
from loader.pipeline.timeline import TRAIN, Span, Timeline

__all__ = [
    "PRIORITIES",
    "TRAIN",
    "TRAINING_PRIORITY",
    "Pipeline",
    "PipelineIterator",
    "PipelineStats",
    "Span",
    "Stage",
    "StageStreams",
    "Timeline",
]
