"""Aggregation over blocks, for CPU and GPU, as custom operators of torch."""

from loader.ops.mean import (
    aggregate_mean,
    aggregate_row_mean,
    aggregate_sum,
    concat_self_mean,
    linear_self_mean,
    self_and_mean,
)

__all__ = [
    "aggregate_mean",
    "aggregate_row_mean",
    "aggregate_sum",
    "concat_self_mean",
    "linear_self_mean",
    "self_and_mean",
]
