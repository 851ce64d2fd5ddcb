"""What a weighting does to a graph, as values that print as a small table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from impact_gnn.transforms.door import Flow, Relation


@dataclass(frozen=True)
class RelationSummary:
    """One weighted relation.

    Attributes:
        relation: Source type, name and target type.
        num_edges: Edges before the transform.
        smallest: Smallest Ω over the edges (0 where there are none), and so on for `mean` and `largest`.
        mean: Mean Ω.
        largest: Largest Ω.
        num_zero: Edges with Ω = 0, which carry nothing.
        num_silenced: Target nodes that had in-edges and keep none with weight: their message becomes zero.
        num_capped: Entries of the table that were above the cap of GenPMP.
    """

    relation: Relation
    num_edges: int
    smallest: float
    mean: float
    largest: float
    num_zero: int
    num_silenced: int
    num_capped: int

    def __str__(self) -> str:
        text = f"{'-'.join(self.relation)}: {self.num_edges} edges, weight {self.smallest:.4g} to {self.largest:.4g}"
        text += f" (mean {self.mean:.4g})"
        if self.num_zero:
            text += f", {self.num_zero} of weight zero, {self.num_silenced} nodes left without a message"
        if self.num_capped:
            text += f", {self.num_capped} entries of the table capped"
        return text


@dataclass(frozen=True)
class Summary:
    """All relations: those weighted, and those left untouched with the reason."""

    transform: str
    times: tuple[int, ...]
    weighted: tuple[RelationSummary, ...]
    untouched: Mapping[Relation, str]

    def __str__(self) -> str:
        head = f"{self.transform}: {len(self.times)} times from {self.times[0]} to {self.times[-1]}"
        lines = [f"  {item}" for item in self.weighted]
        lines += [f"  {'-'.join(relation)}: untouched, {reason}" for relation, reason in self.untouched.items()]
        return "\n".join([head, *lines])


def summarize(flow: Flow, omega: torch.Tensor, num_capped: int) -> RelationSummary:
    """The summary of one relation with Ω = `omega` [E] on its edges."""
    target, size = flow.edge_index[1], len(flow.target_period)
    reached = torch.zeros(size, dtype=torch.bool, device=target.device)
    heard = reached.clone()
    reached[target.long()] = True
    heard[target[omega > 0].long()] = True
    shown = omega if len(omega) else omega.new_zeros(1)
    return RelationSummary(
        relation=flow.relation,
        num_edges=len(omega),
        smallest=float(shown.min()),
        mean=float(shown.double().mean()),
        largest=float(shown.max()),
        num_zero=int((omega == 0).sum()),
        num_silenced=int((reached & ~heard).sum()),
        num_capped=num_capped,
    )
