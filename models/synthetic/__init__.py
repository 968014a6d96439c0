"""Datasets that are drawn at random, in the shapes of public ones: for measurements and for trying train.py."""

from models.synthetic.large import LargeSyntheticDataset
from models.synthetic.small import SyntheticDataset
from models.synthetic.typed import TypedSyntheticDataset

__all__ = ["LargeSyntheticDataset", "SyntheticDataset", "TypedSyntheticDataset"]
