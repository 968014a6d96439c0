"""What a run shows of itself: progress, where its time went, its curves."""

from models.training.callbacks.curves import Curves
from models.training.callbacks.progress import ProgressBar
from models.training.callbacks.random_state import RandomState
from models.training.callbacks.stage_times import StageTimes
from models.training.callbacks.step_checkpoint import StepCheckpoint
from models.training.callbacks.summary import RunSummary
from models.training.callbacks.timeline_record import TimelineRecord

__all__ = ["Curves", "ProgressBar", "RandomState", "RunSummary", "StageTimes", "StepCheckpoint", "TimelineRecord"]
