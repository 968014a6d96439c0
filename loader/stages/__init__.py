"""The stages of a loader, one per file, and their order."""

from loader.stages.announce import AnnounceStage
from loader.stages.gather import GatherStage
from loader.stages.move import MoveStage
from loader.stages.request import RequestStage
from loader.stages.sample import SampleStage
from loader.stages.stage_order import arrange, choose_device

__all__ = ["AnnounceStage", "GatherStage", "MoveStage", "RequestStage", "SampleStage", "arrange", "choose_device"]
