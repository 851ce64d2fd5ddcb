"""The synthetic study's ingredients.

How graphs are drawn, which methods are compared, and what they may see.

The paper's text and the code behind its table differ, so both are kept; `docs/paper-to-code.md`
tells the reasons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

import impact_gnn as ig
from impact_gnn import checks, methods
from impact_gnn.data.tsbm import TSBM
from impact_gnn.engines.engine import time_table
from impact_gnn.methods import Kind
from impact_gnn.nn import PNY, Align, align_layer
from impact_gnn.weighting import Weighting
from reproduction import competing  # noqa: F401 - registers pmp-definition

MODELS = ("sgc", "gcn")
CUTOFF = 8
"""Nodes of times 8 and 9 of ten are predicted."""

GAMMA = 0.55
"""γ of the row "fixed"; the paper does not state its own, .5 to .6 fits its figures."""


@dataclass(frozen=True)
class Protocol:
    """How graphs are drawn (`graphs` is a protocol of `ig.tsbm`) and models are made.

    The GCN takes row means always, SGC's logits may pass a sigmoid before the cross-entropy, and
    `gcn_noise` is the noise of the features for the GCN where it is not the protocol's own.
    """

    name: str
    about: str
    graphs: str
    sgc_norm: str
    self_loop: bool
    sigmoid: bool
    dropout: float
    gcn_noise: str | None = None


_PROTOCOLS = (
    Protocol(
        name="released",
        about="as the published table was made",
        graphs="released",
        sgc_norm="sym",
        self_loop=True,
        sigmoid=True,
        dropout=0.5,
        gcn_noise="uniform",
    ),
    Protocol(
        name="text",
        about="as the paper describes it",
        graphs="text",
        sgc_norm="mean",
        self_loop=False,
        sigmoid=False,
        dropout=0.0,
    ),
    Protocol(
        name="theory",
        about="graphs as released, aggregation as in the theory: "
        "row means, no self-loop, plain logits",
        graphs="released",
        sgc_norm="mean",
        self_loop=False,
        sigmoid=False,
        dropout=0.0,
        gcn_noise="uniform",
    ),
)
PROTOCOLS: Mapping[str, Protocol] = {each.name: each for each in _PROTOCOLS}


@dataclass(frozen=True)
class Row:
    """How connections fade with the distance in time (`decay` of `ig.tsbm`).

    `published` names the paper's row.
    """

    title: str
    decay: float | str
    published: str = ""


def table3_rows(names: Sequence[str] | None = None, gamma: float = GAMMA) -> list[Row]:
    """The rows "fixed", "random", "random-zero-diagonal", or some of them.

    `gamma` is the decay of "fixed".
    """
    rows = {
        "fixed": Row(f"fixed γ = {gamma:g}", float(gamma), "fixed"),
        "random": Row("random γ", "random", "random"),
        "random-zero-diagonal": Row(
            "random γ, zero diagonal (as released)", "random-zero-diagonal", "random"
        ),
    }
    return [rows[checks.choice("row", name, rows)] for name in names or rows]


@dataclass(frozen=True)
class Options:
    """How every network is trained, and the size of a graph: the paper's figures."""

    num_nodes: int = 2000
    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        for name, least in (("num_nodes", 100), ("epochs", 1)):
            if checks.whole_number(name, getattr(self, name)) < least:
                raise ig.InputError(f"{name}={getattr(self, name)} must be at least {least}.")


COLUMNS: Mapping[str, str] = {
    "plain": "plain",
    "mmp": "MMP",
    "pmp": "PMP",
    "pmp-definition": "PMP (Definition)",
    "genpmp": "GenPMP",
    "pmp+pny": "PMP+PNY",
    "pmp+pny-oracle": "PMP+PNY (oracle)",
    "pmp+jjnorm": "PMP+JJnorm",
    "center": "*ours:* centring",
    "standardize": "*ours:* standardising",
    "pmp+center+jjnorm": "*ours:* PMP+centring+JJnorm",
    "label-hop": "*ours:* label hop",
}
"""Titles of the columns by name."""


@dataclass(frozen=True)
class Column:
    """A method: a weighting, alignments (of `nn.ALIGNMENTS`, or "pny-oracle"), or a label hop."""

    name: str

    @property
    def weighting(self) -> str:
        first = self.name.split("+")[0]
        return first if first in methods.names(Kind.WEIGHTING) else "plain"

    @property
    def edge_weighting(self) -> Weighting:
        """The weighting as engines take it."""
        return methods.Method.parse(self.weighting).edge_weighting

    @property
    def align(self) -> tuple[str, ...]:
        return tuple(
            part for part in self.name.split("+") if part not in (self.weighting, "label-hop")
        )


def chosen(names: Sequence[str] | None) -> tuple[str, ...]:
    """Names of columns in the order of `COLUMNS`, "plain" always among them; None for all."""
    wanted = (
        set(COLUMNS)
        if names is None
        else {checks.choice("column", name, COLUMNS) for name in names} | {"plain"}
    )
    return tuple(name for name in COLUMNS if name in wanted)


@dataclass(frozen=True, eq=False)
class Sample:
    """A graph with all its labels, its block model, and its number among the graphs of a row."""

    block_model: TSBM
    graph: ig.TemporalGraph
    seed: int

    @cached_property
    def view(self) -> ig.TemporalGraph:
        """The graph without the labels to be predicted: all that methods are shown."""
        return self.graph.masked(CUTOFF)

    @cached_property
    def num_known(self) -> int:
        """Nodes with a known label are the first ones: nodes are numbered in order of time."""
        return int((~self.view.targets()).sum())

    def accuracy(self, logits: Tensor) -> float:
        """Share of the nodes to predict, the last ones, whose label is the most probable."""
        return float((logits.argmax(1).numpy() == self.graph.y)[self.num_known :].mean())


def draw(protocol: Protocol, row: Row, model: str, seed: int, num_nodes: int) -> Sample:
    """Graph number `seed` of a row.

    With one seed, rows differ in their edges only and models in the noise.
    """
    noise = protocol.gcn_noise if model == "gcn" else None
    block = ig.tsbm_model(
        num_nodes, 10, decay=row.decay, protocol=protocol.graphs, feature_std=noise, seed=seed
    )
    return Sample(block, block.sample(), seed)


class Chain(nn.Module):
    """Alignments one after the other, those that need what was aggregated and those that do not."""

    def __init__(self, layers: Sequence[nn.Module | None]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Align(layer) for layer in layers if layer is not None)

    def forward(self, message: Tensor, previous: Tensor) -> Tensor:
        """The aligned message; `previous` is what was aggregated."""
        for layer in self.layers:
            message = layer(message, previous)
        return message


def alignment(column: Column, sample: Sample) -> Chain | None:
    """The alignments of a column for the nodes of a graph; None where it has none."""
    table = time_table(sample.view, column.edge_weighting)
    layers = [
        _oracle(sample, table)
        if name == "pny-oracle"
        else align_layer(name, sample.view, table=table)
        for name in column.align
    ]
    return Chain(layers) if layers else None


def label_features(column: Column, sample: Sample) -> Tensor:
    """Known labels of the neighbours, own label excluded, as multiples of an even share [N, Y].

    [N, 0] for the others.

    Shares themselves are of the order of 1/Y, too small for 200 epochs beside features of order 1.
    """
    if column.name != "label-hop":
        return torch.empty(sample.view.num_nodes, 0)
    return torch.from_numpy(np.asarray(ig.label_hops(sample.view)[0]) * sample.view.num_labels)


def _oracle(sample: Sample, table: np.ndarray) -> PNY:
    """PNY as the published runs had it.

    The generator's probabilities, and the labels of all but the last time.
    """
    graph, label, time = sample.graph, torch.tensor(sample.graph.y), torch.tensor(sample.graph.time)
    sizes = block_sizes(sample.block_model, np.asarray(graph.y), graph.time)
    truth = TrueConnectivity(
        graph.times, graph.num_labels, true_connectivity(sample.block_model, sizes)
    )
    degree = torch.from_numpy(np.diff(graph.csr().indptr))
    return PNY(
        label, time, time == int(graph.times[-1]), connectivity=truth, degree=degree, table=table
    )


def block_sizes(model: TSBM, label: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Count nodes of every label and time of a model [Y, T]."""
    sizes = np.zeros((model.num_labels, model.num_times), np.int64)
    np.add.at(sizes, (label, time - model.start), 1)
    return sizes


def true_connectivity(model: TSBM, sizes: np.ndarray) -> np.ndarray:
    """Return the expected share of neighbours of label ỹ and time t̃ of a node (y, t) [Y, T, Y, T].

    `sizes` are the nodes per label and time [Y, T].
    """
    # Blocks are numbered by time, then label; a node is not its own neighbour.
    pairs = np.maximum(sizes.T.ravel()[None, :] - np.eye(sizes.size), 0.0)
    expected = model.block_probability() * pairs
    total = expected.sum(1, keepdims=True)
    shares = np.divide(expected, total, out=np.zeros_like(expected), where=total > 0)
    shape = (model.num_times, model.num_labels) * 2
    return shares.reshape(shape).transpose(1, 0, 3, 2).copy()


@dataclass(frozen=True, eq=False)
class TrueConnectivity:
    """The connectivity that the generator has, in place of an estimate.

    For the oracle column only.
    """

    times: np.ndarray
    num_labels: int
    shares: np.ndarray

    def label_mass(self, table: np.ndarray) -> np.ndarray:
        """Σ_t̃ table[t, t̃]·P(y, t, ỹ, t̃) as [Y, T, Y]."""
        return np.einsum("ts,ytzs->ytz", table, self.shares)
