"""Shows what mini-batches of a graph are like, and whether they hold anything that is later than their seeds."""

from loader.inspect.batch_report import CACHE_SHARES, inspect, show
from loader.inspect.command import main
from loader.inspect.leaks import Kind, find_leaks

__all__ = ["CACHE_SHARES", "Kind", "find_leaks", "inspect", "main", "show"]
