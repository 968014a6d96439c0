"""Tables with keys and times, described by a schema, as a typed graph and a task."""

from loader.datasets.relational.data import RelationalData, TaskItems
from loader.datasets.relational.dataset import RelationalDataset
from loader.datasets.relational.relbench import write_relbench
from loader.datasets.relational.row_columns import RowColumn

__all__ = ["RelationalData", "RelationalDataset", "RowColumn", "TaskItems", "write_relbench"]
