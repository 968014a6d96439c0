"""What a run shows of itself: progress, where its time went, its curves."""

from models.callbacks.curves import Curves
from models.callbacks.progress import ProgressBar
from models.callbacks.random_state import RandomState
from models.callbacks.stage_times import StageTimes
from models.callbacks.summary import RunSummary
from models.callbacks.timeline import TimelineRecord

__all__ = ["Curves", "ProgressBar", "RandomState", "RunSummary", "StageTimes", "TimelineRecord"]
