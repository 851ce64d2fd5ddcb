"""What is trained on: hops of rows for decoupled models, a whole graph for spatial ones, and who may be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from impact_gnn import _native, checks
from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn.sparse import Propagation


class Task(Protocol):
    """How a model is asked for the logits of some rows."""

    @property
    def num_rows(self) -> int: ...

    @property
    def by_rows(self) -> bool:
        """Whether rows can be computed apart from each other, so that mini batches save work."""

    def to(self, device: torch.device) -> Task: ...

    def logits(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Logits of the rows [n, num_labels]."""

    def drawn(self, rows: Tensor, share: float) -> tuple[Task, Tensor]:
        """The task of a step in which a random share of the input labels is hidden, and which rows to learn from."""


class HopTask:
    """Decoupled models: `model(hops of the rows, label hops of the rows)`.

    Args:
        hops: Matrices [N, f_k], hop 0 (the features themselves) first; arrays, tensors, memory
            maps, or anything with `shape` and `rows(index)`. What is in files stays there; `fit`
            and `predict` read it in long runs.
        label_hops: Label hops [N, num_labels], or nothing.
        device: Where models are asked. What does not fit there stays in memory, and rows move as
            they are needed.
        hidden: Rows [N] whose label hops are hidden; by default none.

    Examples:
        >>> from impact_gnn.nn import SGC
        >>> task = HopTask([np.ones((4, 3), np.float32)])
        >>> task.logits(SGC(3, 2), torch.tensor([0, 2])).shape
        torch.Size([2, 2])
    """

    by_rows = True

    def __init__(
        self,
        hops: Sequence[np.ndarray | Tensor],
        label_hops: Sequence[np.ndarray | Tensor] = (),
        device: torch.device | None = None,
        *,
        hidden: Tensor | None = None,
    ) -> None:
        if not hops:
            raise InputError("hops is empty; give at least the features [N, f].")
        sizes = {values.shape[0] for values in (*hops, *label_hops)}
        if len(sizes) > 1:
            raise InputError(
                f"hops and label_hops have {sorted(sizes)} rows; give one row per node in each."
            )
        self.device = torch.device("cpu") if device is None else device
        fit = _fits([*hops, *label_hops], self.device)
        self.hops = [
            _placed(values, self.device if fit else torch.device("cpu")) for values in hops
        ]
        self.label_hops = [
            _placed(values, self.device if fit else torch.device("cpu")) for values in label_hops
        ]
        self.hidden = hidden

    @property
    def num_rows(self) -> int:
        return self.hops[0].shape[0]

    @property
    def in_channels(self) -> list[int]:
        return [values.shape[1] for values in self.hops]

    @property
    def label_channels(self) -> list[int]:
        return [values.shape[1] for values in self.label_hops]

    @property
    def in_files(self) -> bool:
        """Whether a hop is not in memory, so that rows are better asked for many at a time (`loaded`)."""
        return not all(isinstance(values, Tensor) for values in (*self.hops, *self.label_hops))

    def to(self, device: torch.device) -> HopTask:
        return self if device == self.device else HopTask(self.hops, self.label_hops, device)

    def loaded(self, rows: Tensor) -> HopTask:
        """A task in memory that holds just these rows, as rows 0 .. n−1."""
        return HopTask(*self._picked(rows), self.device)

    def matrix(self, rows: np.ndarray) -> np.ndarray:
        """All hops and label hops of some rows side by side, float32."""
        hops, label_hops = self._picked(torch.from_numpy(rows))
        return torch.cat([*hops, *label_hops], dim=1).cpu().numpy()

    def logits(self, model: nn.Module, rows: Tensor) -> Tensor:
        return model(*self._picked(rows))

    def drawn(self, rows: Tensor, share: float) -> tuple[Task, Tensor]:
        """Label hops of a random share of the rows are zeros; all rows are learned from."""
        if not self.label_hops:
            return self, rows
        return HopTask(
            self.hops, self.label_hops, self.device, hidden=torch.rand(self.num_rows) < share
        ), rows

    def _picked(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        label_hops = [_rows(v, rows, self.device) for v in self.label_hops]
        if self.hidden is not None:
            stays = (~self.hidden[rows.cpu()]).float().to(self.device)[:, None]
            label_hops = [values * stays for values in label_hops]
        return [_rows(v, rows, self.device) for v in self.hops], label_hops


class GraphTask:
    """Spatial models: `model(x, propagation)`, all nodes at once.

    With `labels` [N] (−1 where they are not known) and `num_labels`, the known labels are further
    columns of x, one for each class. `drawn` hides those that a step learns from; rows that are
    asked for otherwise and have one are told it. With `reuse`, the model is asked so many times
    more, its own probabilities in place of labels not known.

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
        x: np.ndarray | Tensor,
        propagation: Propagation,
        labels: np.ndarray | Tensor | None = None,
        num_labels: int = 0,
        *,
        reuse: int = 0,
    ) -> None:
        if len(x) != propagation.num_nodes:
            raise InputError(
                f"x has {len(x)} rows, the propagation {propagation.num_nodes} nodes; they must agree."
            )
        self.x = x.float() if isinstance(x, Tensor) else torch.tensor(np.asarray(x, np.float32))
        self.propagation, self.num_labels = propagation, num_labels
        self.reuse = 0 if labels is None else reuse
        given = torch.tensor(labels) if isinstance(labels, np.ndarray) else labels
        self.labels = None if given is None else given.to(self.x.device, torch.int64)
        self._input = self.x
        if self.labels is not None:
            told = torch.zeros(len(self.x), num_labels, device=self.x.device)
            known = torch.nonzero(self.labels >= 0)[:, 0]
            told[known, self.labels[known]] = 1
            self._input = torch.cat([self.x, told], dim=1)

    @property
    def num_rows(self) -> int:
        return len(self.x)

    @property
    def width(self) -> int:
        """Columns of what the model is given."""
        return self._input.shape[1]

    def to(self, device: torch.device) -> GraphTask:
        return self if device == self.x.device else self._with(self.x.to(device), self.labels)

    def logits(self, model: nn.Module, rows: Tensor) -> Tensor:
        return model(self.given(model), self.propagation)[rows]

    def given(self, model: nn.Module) -> Tensor:
        """What the model reads when it is asked for the last time: features, and labels or its own guesses."""
        given, told = self._input, self._input[:, self.x.shape[1] :]
        for _ in range(self.reuse):
            with torch.no_grad():
                guess = torch.softmax(model(given, self.propagation).float(), 1)
            given = torch.cat([self.x, told + (1 - told.sum(1, keepdim=True)) * guess], dim=1)
        return given

    def over(self, propagation: Propagation) -> GraphTask:
        """The same inputs with other messages."""
        return self._with(self.x, self.labels, propagation)

    def drawn(self, rows: Tensor, share: float) -> tuple[Task, Tensor]:
        """Labels of a random share of the rows are hidden, and only those rows are learned from."""
        if self.labels is None:
            return self, rows
        hidden = rows[torch.rand(len(rows)).to(rows.device) < share]
        hidden = hidden if len(hidden) else rows
        return self._with(self.x, self.labels.index_fill(0, hidden, -1)), hidden

    def _with(
        self, x: Tensor, labels: Tensor | None, propagation: Propagation | None = None
    ) -> GraphTask:
        return GraphTask(
            x, propagation or self.propagation, labels, self.num_labels, reuse=self.reuse
        )


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on and rows to choose by (row numbers); never a row at or after the cutoff."""

    train: np.ndarray
    valid: np.ndarray

    @property
    def all(self) -> np.ndarray:
        return np.concatenate([self.train, self.valid])

    def without_choice(self) -> Split:
        """All labelled rows to train on, none to choose by: for the last training, whose epochs are known."""
        return Split(self.all, np.empty(0, np.int64))


def split_rows(graph: TemporalGraph, *, valid: int = 1) -> Split:
    """Labelled rows of a view: those of the last `valid` labelled periods to choose by, the others to train on.

    Examples:
        >>> g = TemporalGraph(y=[0, 1, 0, 1, -1], time=[1, 1, 2, 4, 5], edge_index=np.zeros((2, 0), dtype=int))
        >>> split = split_rows(g.masked(5))
        >>> split.train, split.valid
        (array([0, 1, 2]), array([3]))
    """
    valid = checks.whole_number("valid", valid)
    cutoff = graph.hidden_from("a split needs")
    rows = np.flatnonzero((graph.label >= 0) & (graph.time < cutoff))
    when = graph.time[rows]
    periods = np.unique(when)
    if not 0 <= valid < len(periods):
        problem = f"valid={valid} of {len(periods)} labelled periods before the cutoff {cutoff}"
        raise InputError(f"{problem} leaves none to train on; choose from 0 to {len(periods) - 1}.")
    first = periods[len(periods) - valid] if valid else cutoff
    return Split(rows[when < first], rows[when >= first])


def _fits(matrices: Sequence[np.ndarray | Tensor], device: torch.device) -> bool:
    """Whether matrices may be held on a device whole: they take at most half of what is free there."""
    if device.type != "cuda":  # memory that is shared with the CPU holds them anyway
        return True
    size = 4 * sum(values.shape[0] * values.shape[1] for values in matrices)
    return size <= torch.cuda.mem_get_info(device)[0] / 2


def _placed(values: np.ndarray | Tensor, device: torch.device) -> np.ndarray | Tensor:
    """Tensors on the device; memory maps and hops in files as they are."""
    if isinstance(values, Tensor):
        return values.float().to(device)
    if not isinstance(values, np.ndarray) or _native.mapping(values) is not None:
        return values
    return torch.tensor(np.asarray(values, np.float32)).to(device)


def _rows(values: np.ndarray | Tensor, rows: Tensor, device: torch.device) -> Tensor:
    """The rows in the order given; files are asked in increasing order, so that every page is touched once."""
    if isinstance(values, Tensor):
        return values[rows.to(values.device)].to(device)
    index, position = np.unique(rows.cpu().numpy(), return_inverse=True)
    taken = values[index] if isinstance(values, np.ndarray) else values.rows(index)
    return torch.from_numpy(np.asarray(taken, np.float32)[position]).to(device)
