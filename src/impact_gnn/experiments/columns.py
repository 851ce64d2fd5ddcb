"""The columns of the table: a weighting of the edges, then alignments of the message, or a label hop besides.

An alignment is a layer `(message, previous) -> message`. All of them are made from a view in which the labels to be
predicted are hidden. The one exception is the oracle column, which says so in its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor, nn

from impact_gnn import checks
from impact_gnn.experiments.sample import Sample
from impact_gnn.nn import PNY, Align, align_layer
from impact_gnn.propagation.labels import label_hops

ORACLE = "pny-oracle"


@dataclass(frozen=True)
class Column:
    """A method.

    Args:
        name: Its key in results.
        title: Its name in reports.
        weighting: A method of `weighting.METHODS`.
        align: Alignments in order: names of `nn.ALIGNMENTS`, or `ORACLE`.
        label_hop: Whether the known labels of neighbours are further features of the last layer.
        ours: Whether it is no column of the paper.
    """

    name: str
    title: str
    weighting: str
    align: tuple[str, ...] = ()
    label_hop: bool = False
    ours: bool = False

    @property
    def oracle(self) -> bool:
        """Whether it is told what nobody can know: true labels and probabilities."""
        return ORACLE in self.align


COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        each.name: each
        for each in (
            Column("plain", "plain", "plain"),
            Column("mmp", "MMP", "mmp"),
            Column("pmp", "PMP", "pmp"),
            Column("pmp-definition", "PMP (Definition)", "pmp-definition"),
            Column("genpmp", "GenPMP", "genpmp"),
            Column("pmp+pny", "PMP+PNY", "pmp", ("pny",)),
            Column("pmp+pny-oracle", "PMP+PNY (oracle)", "pmp", (ORACLE,)),
            Column("pmp+jjnorm", "PMP+JJnorm", "pmp", ("jjnorm",)),
            Column("center", "centring", "plain", ("center",), ours=True),
            Column("standardize", "standardising", "plain", ("standardize",), ours=True),
            Column("pmp+center+jjnorm", "PMP+centring+JJnorm", "pmp", ("center", "jjnorm"), ours=True),
            Column("label-hop", "label hop", "plain", label_hop=True, ours=True),
        )
    }
)


def chosen(names: Sequence[str] | None) -> tuple[Column, ...]:
    """The columns of these names, "plain" always among them and in the order of `COLUMNS`; None for all."""
    if names is None:
        return tuple(COLUMNS.values())
    wanted = {checks.choice("column", name, COLUMNS) for name in names} | {"plain"}
    return tuple(column for name, column in COLUMNS.items() if name in wanted)


class Chain(nn.Module):
    """Alignments one after the other.

    Args:
        layers: Layers of `nn`, those that need what was aggregated and those that do not.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Align(layer) for layer in layers)

    def forward(self, message: Tensor, previous: Tensor) -> Tensor:
        """The aligned message; `previous` is what was aggregated."""
        for layer in self.layers:
            message = layer(message, previous)
        return message


def label_features(column: Column, sample: Sample) -> np.ndarray:
    """Known labels of the neighbours, own label excluded, as multiples of an even share [N, Y]: 1 says nothing.

    Shares themselves are of the order of 1/Y, too small for 200 epochs beside features of order 1.
    """
    return label_hops(sample.view, weighting=column.weighting)[0] * sample.view.num_labels


def alignment(column: Column, sample: Sample, table: np.ndarray) -> Chain | None:
    """The alignments of a column for the nodes of a graph; None where it has none."""
    if not column.align:
        return None
    made = (
        _oracle(sample, table) if name == ORACLE else align_layer(name, sample.view, table=table)
        for name in column.align
    )
    return Chain([layer for layer in made if layer is not None])


def _oracle(sample: Sample, table: np.ndarray) -> PNY:
    """PNY as the published runs had it: the generator's probabilities, and the labels of all but the last time."""
    graph = sample.graph
    assert graph.y is not None
    time = torch.tensor(graph.time)
    last = time == int(graph.times[-1])
    sizes = sample.model.block_sizes(graph.y, graph.time)
    truth = TrueConnectivity(graph.times, graph.num_labels, sample.model.connectivity_given(sizes))
    degree = torch.from_numpy(np.diff(graph.csr().indptr))
    return PNY(torch.tensor(graph.y), time, last, connectivity=truth, degree=degree, table=table)


@dataclass(frozen=True, eq=False)
class TrueConnectivity:
    """The connectivity that the generator has, in place of an estimate; for the oracle column only."""

    times: np.ndarray
    num_labels: int
    shares: np.ndarray = field(repr=False)

    def label_mass(self, table: np.ndarray) -> np.ndarray:
        """Σ_t̃ table[t, t̃]·P(y, t, ỹ, t̃) as [Y, T, Y]."""
        return np.einsum("ts,ytzs->ytz", table, self.shares)
