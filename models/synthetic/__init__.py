"""Datasets that are drawn at random, in the shapes of public ones: for measurements and for trying train.py."""

from models.synthetic.hetero import HeteroSyntheticDataset
from models.synthetic.large import LargeSyntheticDataset
from models.synthetic.small import SyntheticDataset

__all__ = ["HeteroSyntheticDataset", "LargeSyntheticDataset", "SyntheticDataset"]
