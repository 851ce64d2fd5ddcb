"""`ChronologicalSplit`: masks for training, validation and test by time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy import ndarray
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.transforms.validation import constructor_call, node_stores, node_times, pyg_object

Graph = TypeVar("Graph", Data, HeteroData)


@functional_transform("chronological_split")
@dataclass(frozen=True, repr=False)
class ChronologicalSplit(BaseTransform):
    """Writes `train_mask`, `val_mask` and `test_mask` by time (`chronological_split`).

    test = time ≥ cutoff, labelled or not; val = labelled nodes of the last `valid` periods before
    the cutoff that have labels; train = all other labelled nodes before the cutoff. On `HeteroData`
    the masks go to every node type that has `y` and a time. The argument of the transform is not
    changed.

    Args:
        cutoff: Labels are known for time < cutoff; nodes at or after it are targets.
        valid: Number of labelled periods for validation; 0 leaves `val_mask` empty.
        time: Name of the attribute with one whole number per node, [N] or OGB's [N, 1].

    Examples:
        >>> time = torch.tensor([2017, 2018, 2018, 2019, 2020])
        >>> data = Data(y=torch.tensor([0, 1, -1, 1, 0]), time=time)
        >>> split = ChronologicalSplit(2020)(data)
        >>> split.train_mask, split.val_mask.nonzero().view(-1), split.test_mask.nonzero().view(-1)
        (tensor([ True,  True, False, False, False]), tensor([3]), tensor([4]))
    """

    cutoff: int
    valid: int = 1
    time: str = "time"

    def __post_init__(self) -> None:
        checks.whole_numbers("cutoff", self.cutoff, ndim=0)
        if int(checks.whole_numbers("valid", self.valid, ndim=0)) < 0:
            raise InputError(f"valid={self.valid} must be zero or more periods.")

    def forward(self, data: Graph) -> Graph:
        """Write the masks into `data` itself; calling the transform does so on a copy."""
        pyg_object("ChronologicalSplit", data)
        stores = {
            kind: store
            for kind, store in node_stores(data).items()
            if store.get(self.time) is not None and store.get("y") is not None
        }
        if not stores:
            raise InputError(
                f"no nodes have both 'y' and {self.time!r}; add them or pass time= with its name."
            )
        for kind, store in stores.items():
            time = node_times(kind, store, self.time)
            label = checks.labels(f"'y' of {kind!r}", store["y"], len(time))
            try:
                masks = _masks(time, label, int(self.cutoff), int(self.valid))
            except InputError as error:
                raise InputError(f"nodes of type {kind!r} cannot be split: {error}") from None
            device = store["y"].device if isinstance(store["y"], torch.Tensor) else None
            for name, mask in zip(("train_mask", "val_mask", "test_mask"), masks, strict=True):
                store[name] = torch.from_numpy(mask).to(device)
        return data

    __repr__ = constructor_call


def _masks(
    time: ndarray, label: ndarray, cutoff: int, valid: int
) -> tuple[ndarray, ndarray, ndarray]:
    checks.chronology(time, label, cutoff)
    known = (time < cutoff) & (label >= 0)
    past = np.unique(time[known])
    if valid >= len(past):
        raise InputError(
            f"valid={valid} uses all {len(past)} labelled periods before cutoff={cutoff} and "
            f"leaves none for training; use valid={len(past) - 1} or less, or a later cutoff."
        )
    # Without validation periods this is the cutoff, which no known node reaches.
    first_valid = past[len(past) - valid] if valid else cutoff
    return known & (time < first_valid), known & (time >= first_valid), time >= cutoff
