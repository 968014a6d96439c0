"""The base of the LightningDataModules of one dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from lightning.pytorch import LightningDataModule
from torch import Tensor

from loader.datasets.digests import digest_of
from loader.datasets.errors import DatasetError
from loader.datasets.hetero import HeteroDataset
from loader.stores.rows import StoreOfRows

if TYPE_CHECKING:
    from loader.datasets import NodeDataset
    from loader.stores import FeatureStore


class DatasetModule(LightningDataModule):
    """A LightningDataModule whose checkpoints say which dataset they are of.

    Attributes:
        data: the `NodeDataset` or `HeteroDataset`, once it is open, else None.
        unread: what of its `identity` no model reads.
    """

    unread: ClassVar[tuple[str, ...]] = ()
    data: NodeDataset | HeteroDataset | None
    _features: FeatureStore | dict[str, FeatureStore] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Which dataset a checkpoint is of (`NodeDataset.identity`), a digest of the train split that it learned from,
        and in which types features are kept; of tables, what `TableDataset.extend` takes.
        """
        if self.data is None:
            return {}
        tables, learned = self.data.tables, self.learned_from()
        state: dict[str, Any] = {
            "data": {key: value for key, value in self.data.identity().items() if key not in self.unread},
            **({} if tables is None else {"tables": tables.rows.to_json()}),
        }
        if learned is not None:
            state["learned_from"] = digest_of(learned)
        return {**state, "kept": storage_types} if (storage_types := self._storage_types()) else state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError if the checkpoint is of another dataset or split, or of rows in other types."""
        if self.data is not None and "data" in state_dict:
            self.require_data(state_dict["data"], "the checkpoint")
        self.require_learned_from(state_dict, "the checkpoint")
        theirs, ours = state_dict.get("kept"), self._storage_types()
        if theirs and ours and theirs != ours:
            name = next(name for name in ours if theirs.get(name) != ours[name])
            raise ValueError(
                f"the checkpoint was trained with {name} kept as {theirs.get(name)}, and this run keeps them as "
                f"{ours[name]}; give features.storage_dtype={theirs.get(name)}, or begin without the checkpoint"
            )

    def require_data(self, identity: Mapping[str, Any], what: str) -> None:
        """Raises ValueError unless a model of that `identity` serves for the dataset, see `NodeDataset.require`."""
        assert self.data is not None
        self.data.require({key: value for key, value in identity.items() if key not in self.unread}, what)

    def learned_from(self) -> Tensor | None:
        """The nodes or links of the train split, once it is known; None if a model learns from no split."""
        return None

    def require_learned_from(self, state: Mapping[str, Any], what: str) -> None:
        """Raises ValueError if a model learned from another train split than this module's, whose other splits may hold
        what it learned from.

        Args:
            state: what `state_dict` returned.
            what: was saved with it; it begins the message.
        """
        learned = self.learned_from()
        if learned is not None and "learned_from" in state and state["learned_from"] != digest_of(learned):
            raise ValueError(
                f"{what} learned from another train split than this one, so val and test may hold what it has seen; "
                "give the seeds and the shares of that run (seed, dataset.split_seed, dataset.split, or of links "
                "datamodule.val and datamodule.test), and its file"
            )

    def _storage_types(self) -> dict[str, str]:
        """Features -> the type that their store keeps them in."""
        stores = self._features
        named = {} if stores is None else stores if isinstance(stores, dict) else {"": stores}
        return {
            f"features of {kind}" if kind else "features": str(store.storage_dtype).removeprefix("torch.")
            for kind, store in named.items()
            if isinstance(store, StoreOfRows)
        }


def refuse_types(data: Any, taker: str) -> None:
    """Raises DatasetError for a dataset with types.

    Args:
        data: a dataset.
        taker: what cannot train on it, as the user calls it.
    """
    if isinstance(data, HeteroDataset):
        raise DatasetError(types_refused(f"dataset {data.name}", taker))


def types_refused(what: str, taker: str) -> str:
    """What is said of a dataset with types that cannot be trained on."""
    return (
        f"{what} has types of nodes and edges, which {taker} does not take; take model=to_hetero or model=hgt, or "
        "task=link, or a loop of your own over loader.NodeLoader"
    )


def check_labelled(data: NodeDataset | HeteroDataset) -> None:
    """Raises DatasetError if the dataset has no labels or no training split, from which a model of nodes learns."""
    if data.num_classes and data.splits["train"].numel():
        return
    add = "add them" if data.tables is None else "name their column (dataset.label=COLUMN)"
    lacks = "no training split; draw one (dataset.split=[0.6,0.2,0.2])" if data.num_classes else f"no labels; {add}"
    way = "" if isinstance(data, HeteroDataset) else ", or train what needs none: task=link, or model=node2vec"
    raise DatasetError(f"{data.name} has {lacks}{way}")
