"""The stages of a loader, one per file, and their order."""

from loader.stages.announce import AnnounceStage
from loader.stages.arrange import arrange, choose_device
from loader.stages.gather import GatherStage
from loader.stages.move import MoveStage
from loader.stages.request import RequestStage
from loader.stages.sample import SampleStage

__all__ = ["AnnounceStage", "GatherStage", "MoveStage", "RequestStage", "SampleStage", "arrange", "choose_device"]
