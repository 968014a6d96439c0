"""Stages that prefetch items for a consumer, in order and within a bound. What a stage computes is not known here."""

from loader.pipeline.pipeline import Pipeline, PipelineRun
from loader.pipeline.stage import Stage
from loader.pipeline.streams import StageStreams

__all__ = ["Pipeline", "PipelineRun", "Stage", "StageStreams"]
