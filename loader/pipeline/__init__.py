"""Stages that run ahead of the consumer, in order and within a bound; what a stage computes is not known here."""

from loader.pipeline.pipeline import Pipeline
from loader.pipeline.stages import PipelineIterator, PipelineStats, Stage
from loader.pipeline.streams import StageStreams
from loader.pipeline.timeline import TRAIN, Span, Timeline

__all__ = ["TRAIN", "Pipeline", "PipelineIterator", "PipelineStats", "Span", "Stage", "StageStreams", "Timeline"]
