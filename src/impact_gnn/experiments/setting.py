"""What is run: protocols (how graphs and models are made), rows (how connections fade) and training options.

The paper's text and the code behind its table differ, so both are kept; `docs/paper-to-code.md` tells the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from impact_gnn import checks
from impact_gnn.checks import InputError

MODELS = ("sgc", "gcn")
NUM_TIMES = 10
CUTOFF = 8
"""Nodes of times 8 and 9 are predicted."""

HIDDEN = 16
"""Hidden units of every network."""

GAMMA = 0.55
"""γ of the row "fixed"; the paper does not state its own, .5 to .6 fits its figures."""


@dataclass(frozen=True)
class Protocol:
    """How graphs are drawn and models are made.

    Args:
        name: Its name.
        about: One sentence for reports.
        graphs: Protocol of `data.tsbm`.
        sgc_norm: Normalisation of SGC's hops ("sym": D^-½ on both sides; "mean": row means). The GCN takes means.
        self_loop: Whether every node is its own neighbour, with weight 1.
        sigmoid: Whether SGC's logits pass a sigmoid before the cross-entropy.
        dropout: Share of the GCN's hidden units left out in training.
        gcn_noise: Noise of the features for the GCN, where it is not the protocol's own.
    """

    name: str
    about: str
    graphs: str
    sgc_norm: str
    self_loop: bool
    sigmoid: bool
    dropout: float
    gcn_noise: str | None = None

    def noise(self, model: str) -> str | None:
        """The `feature_std` of graphs for a model; None for the default of `graphs`."""
        return self.gcn_noise if model == "gcn" else None


PROTOCOLS: Mapping[str, Protocol] = MappingProxyType(
    {
        each.name: each
        for each in (
            Protocol(
                "released", "as the published table was made", "released", "sym", True, True, 0.5, gcn_noise="uniform"
            ),
            Protocol("text", "as the paper describes it", "text", "mean", False, False, 0.0),
            Protocol(
                "theory", "graphs as released, aggregation as in the theory: row means, no self-loop, plain logits",
                "released", "mean", False, False, 0.0, gcn_noise="uniform",
            ),
        )
    }
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of the table: how connections fade with the distance in time (`decay` of `data.tsbm`)."""

    name: str
    title: str
    decay: float | str


def row(name: str, gamma: float = GAMMA) -> Row:
    """The row called `name`; `gamma` is the decay of "fixed".

    Example:
        >>> row("fixed", 0.6)
        Row(name='fixed', title='fixed γ = 0.6', decay=0.6)
    """
    checks.choice("row", name, ROW_NAMES)
    if name == "fixed":
        return Row(name, f"fixed γ = {gamma:g}", float(gamma))
    if name == "random":
        return Row(name, "random γ", "random")
    return Row(name, "random γ, zero diagonal (as released)", "random-zero-diagonal")


ROW_NAMES = ("fixed", "random", "random-zero-diagonal")


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
                raise InputError(f"{name}={getattr(self, name)} must be at least {least}.")
