"""Inputs of models: hops of rows for decoupled models, a whole graph for spatial ones; splits."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from impact_gnn import _native, checks
from impact_gnn.checks import InputError
from impact_gnn.engines.hop import Hop
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn.blocks import join_columns
from impact_gnn.nn.sparse import Propagation

Matrix: TypeAlias = ndarray | Tensor | Hop


class Task(Protocol):
    """Computes the logits of some rows by a model."""

    @property
    def num_rows(self) -> int: ...

    @property
    def by_rows(self) -> bool:
        """Whether rows can be computed independently, so that mini batches save work."""

    def to(self, device: torch.device) -> Task: ...

    def logits(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Compute the logits of the rows [n, num_labels]."""


class HopTask:
    """Decoupled models: `model(hops of the rows, label hops of the rows)`.

    Args:
        hops: Matrices [N, f_k], hop 0 (the features themselves) first; arrays, tensors, memory
            maps, or a `Hop`. Files are not loaded; `fit` and `predict` read them in long runs.
        label_hops: Label hops [N, num_labels], or nothing.
        device: The device of the models. Hops that do not fit there stay in memory, and rows move
            as they are needed.

    Examples:
        >>> from impact_gnn.nn import SGC
        >>> task = HopTask([np.ones((4, 3), np.float32)])
        >>> task.logits(SGC(3, 2), torch.tensor([0, 2])).shape
        torch.Size([2, 2])
    """

    by_rows = True

    def __init__(
        self,
        hops: Sequence[Matrix],
        label_hops: Sequence[Matrix] = (),
        device: torch.device | None = None,
    ) -> None:
        if not hops and not label_hops:
            raise InputError("hops is empty; pass at least the features [N, f].")
        sizes = {values.shape[0] for values in (*hops, *label_hops)}
        if len(sizes) > 1:
            raise InputError(
                f"hops and label_hops have {sorted(sizes)} rows; pass one row per node in each."
            )
        place = torch.device("cpu")
        self.device = device or place
        # All hops or none are placed on the device.
        if _fits([*hops, *label_hops], self.device):
            place = self.device
        self.hops = [_placed(values, place) for values in hops]
        self.label_hops = [_placed(values, place) for values in label_hops]

    @property
    def num_rows(self) -> int:
        return [*self.hops, *self.label_hops][0].shape[0]

    @property
    def in_channels(self) -> list[int]:
        return [values.shape[1] for values in self.hops]

    @property
    def label_channels(self) -> list[int]:
        return [values.shape[1] for values in self.label_hops]

    @property
    def in_files(self) -> bool:
        """Whether a hop is not in memory, so that `loaded` should read many rows at a time."""
        matrices = [*self.hops, *self.label_hops]
        return not all(isinstance(values, Tensor) for values in matrices)

    def to(self, device: torch.device) -> HopTask:
        if device == self.device:
            return self
        return HopTask(self.hops, self.label_hops, device)

    def loaded(self, rows: Tensor) -> HopTask:
        """Return a task in memory of these rows only, as rows 0 .. n−1."""
        hops, label_hops = self._select(rows)
        return HopTask(hops, label_hops, self.device)

    def matrix(self, rows: ndarray) -> ndarray:
        """Concatenate all hops and label hops of some rows, float32."""
        hops, label_hops = self._select(torch.from_numpy(rows))
        return join_columns(*hops, *label_hops).cpu().numpy()

    def logits(self, model: nn.Module, rows: Tensor) -> Tensor:
        return model(*self._select(rows))

    def _select(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Read hops and label hops of some rows."""
        hops = [_rows(values, rows, self.device) for values in self.hops]
        label_hops = [_rows(values, rows, self.device) for values in self.label_hops]
        return hops, label_hops


class GraphTask:
    """Spatial models: `model(x, propagation)`, all nodes at once.

    With `labels` [N] (−1 where unknown) and `num_labels`, known labels are further columns of x,
    one for each class. `drawn` hides the labels of the training rows of a step; elsewhere a row's
    own label is an input. With `reuse`, the model runs this many times more, with its own
    probabilities in place of unknown labels.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> from impact_gnn.nn import GCN
        >>> g = tsbm(num_nodes=100, num_times=4, num_labels=2, seed=0)
        >>> task = GraphTask(g.x, Propagation.of(g))
        >>> task.logits(GCN(5, 2), torch.arange(7)).shape
        torch.Size([7, 2])
        >>> GraphTask(g.x, Propagation.of(g), g.masked(3).y, 2).width
        7
    """

    by_rows = False

    def __init__(
        self,
        x: ndarray | Tensor,
        propagation: Propagation,
        labels: ndarray | Tensor | None = None,
        num_labels: int = 0,
        *,
        reuse: int = 0,
    ) -> None:
        if len(x) != propagation.num_nodes:
            raise InputError(
                f"x has {len(x)} rows, the propagation {propagation.num_nodes} nodes; "
                "they must agree."
            )
        if not isinstance(x, Tensor):
            x = torch.tensor(np.asarray(x, np.float32))
        self.x = x.float()
        self.propagation = propagation
        self.num_labels = num_labels
        self.labels: Tensor | None = None
        self.reuse = 0
        self._input = self.x
        if labels is not None:
            if isinstance(labels, ndarray):
                labels = torch.tensor(labels)
            self.labels = labels.to(self.x.device, torch.int64)
            self.reuse = reuse
            # Rows of zeros where the label is unknown [N, num_labels].
            one_hot = torch.zeros(len(self.x), num_labels, device=self.x.device)
            known = torch.nonzero(self.labels >= 0)[:, 0]
            one_hot[known, self.labels[known]] = 1
            self._input = join_columns(self.x, one_hot)

    @property
    def num_rows(self) -> int:
        return len(self.x)

    @property
    def width(self) -> int:
        """The number of columns that the model reads."""
        return self._input.shape[1]

    def to(self, device: torch.device) -> GraphTask:
        if device == self.x.device:
            return self
        return self._with(self.x.to(device), self.labels)

    def logits(self, model: nn.Module, rows: Tensor) -> Tensor:
        return model(self.model_input(model), self.propagation)[rows]

    def model_input(self, model: nn.Module) -> Tensor:
        """Return the features, and the labels or the model's own probabilities, of the last run."""
        inputs = self._input
        # The columns behind the features, [N, num_labels].
        one_hot = inputs[:, self.x.shape[1] :]
        for _ in range(self.reuse):
            with torch.no_grad():
                probabilities = torch.softmax(model(inputs, self.propagation).float(), 1)
            # Known labels stay; probabilities fill the rows where `unknown` [N, 1] is 1.
            unknown = 1 - one_hot.sum(1, keepdim=True)
            inputs = join_columns(self.x, one_hot + unknown * probabilities)
        return inputs

    def over(self, propagation: Propagation) -> GraphTask:
        """Return the same inputs with another propagation."""
        task = copy.copy(self)
        task.propagation = propagation
        return task

    def drawn(self, rows: Tensor, share: float) -> tuple[GraphTask, Tensor]:
        """Hide the labels of a random share of the rows, and train on those only."""
        if self.labels is None:
            return self, rows
        # A row that reads its own label would learn to copy it, so only hidden rows are trained on.
        # Drawn on the CPU, so that all devices draw the same.
        drawn = torch.rand(len(rows)).to(rows.device)
        hidden = rows[drawn < share]
        if not len(hidden):
            # A step needs a row to train on.
            hidden = rows
        labels = self.labels.index_fill(0, hidden, -1)
        return self._with(self.x, labels), hidden

    def _with(self, x: Tensor, labels: Tensor | None) -> GraphTask:
        return GraphTask(x, self.propagation, labels, self.num_labels, reuse=self.reuse)


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers for training and for validation; never a row at or after the cutoff."""

    train: ndarray
    valid: ndarray

    @property
    def all(self) -> ndarray:
        return np.concatenate([self.train, self.valid])


def split_rows(graph: TemporalGraph, *, valid: int = 1) -> Split:
    """Split the labelled rows of a view: the last `valid` labelled periods are for validation.

    Examples:
        >>> no_edges = np.zeros((2, 0), dtype=int)
        >>> g = TemporalGraph(y=[0, 1, 0, 1, -1], time=[1, 1, 2, 4, 5], edge_index=no_edges)
        >>> split = split_rows(g.masked(5))
        >>> split.train, split.valid
        (array([0, 1, 2]), array([3]))
    """
    valid = checks.whole_number("valid", valid)
    cutoff = graph.require_cutoff("a split needs")
    is_known = (graph.label >= 0) & (graph.time < cutoff)
    rows = np.flatnonzero(is_known)
    time = graph.time[rows]
    periods = np.unique(time)
    if not 0 <= valid < len(periods):
        raise InputError(
            f"valid={valid} of {len(periods)} labelled periods before the cutoff {cutoff} "
            f"leaves none to train on; choose from 0 to {len(periods) - 1}."
        )
    # Whole periods: validation has to look like the future, not like a random sample.
    # A time, not a position; without validation it is the cutoff, which no row reaches.
    first = [*periods, cutoff][len(periods) - valid]
    return Split(rows[time < first], rows[time >= first])


def _fits(matrices: Sequence[Matrix], device: torch.device) -> bool:
    """Tell whether matrices take at most half of the free memory of a device."""
    if device.type != "cuda":  # other devices share the CPU's memory
        return True
    # float32 has four bytes.
    size = 4 * sum(math.prod(values.shape) for values in matrices)
    free, _ = torch.cuda.mem_get_info(device)
    return size <= free / 2


def _placed(values: Matrix, device: torch.device) -> Matrix:
    """Move a matrix to the device, except for memory maps and hops in files."""
    if isinstance(values, Tensor):
        return values.float().to(device)
    if not isinstance(values, ndarray) or _native.mapping(values) is not None:
        return values
    return torch.tensor(np.asarray(values, np.float32)).to(device)


def _rows(values: Matrix, rows: Tensor, device: torch.device) -> Tensor:
    """Read rows; files are read in increasing order, so that every page is touched once."""
    if isinstance(values, Tensor):
        # On a CPU, `index_select` is several times as fast as `values[rows]`.
        return values.index_select(0, rows.to(values.device)).to(device)
    # Distinct rows in increasing order, and where each requested row is among them.
    index, position = np.unique(rows.cpu().numpy(), return_inverse=True)
    unique = values[index] if isinstance(values, ndarray) else values.rows(index)
    requested = np.asarray(unique, np.float32)[position]
    return torch.from_numpy(requested).to(device)
