"""Pipelines: stages prefetch items for a consumer, in order and within a bound. This room knows no particular stage."""

from loader.pipeline.pipeline import Pipeline, PipelineRun
from loader.pipeline.stage import Stage
from loader.pipeline.streams import StageStreams

__all__ = ["Pipeline", "PipelineRun", "Stage", "StageStreams"]
