"""`MMP`, `PMP` and `GenPMP` as PyG transforms that look up a table of `impact_gnn.weighting`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from numpy import ndarray
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from impact_gnn import checks, weighting
from impact_gnn.checks import InputError
from impact_gnn.transforms.delivery import DELIVERIES, deliver
from impact_gnn.transforms.validation import Flow, constructor_call, flows

Graph = TypeVar("Graph", Data, HeteroData)


@dataclass(frozen=True, kw_only=True, repr=False)
class TimeWeights(BaseTransform):
    """Multiplies edges by Ω[t_target, t_source]; the base of `MMP`, `PMP` and `GenPMP`.

    On `HeteroData` each relation whose two ends have a time is weighted and the others stay as they
    are. All timed node types share one time line: t_min and t_max are
    the first and last time of any of them. Apply it to the whole graph, before sampling: a
    mini-batch may not contain t_max. The argument of the transform is not changed.

    Args:
        time: Name of the attribute with one whole number per node, [N] or OGB's [N, 1].
        normalize: Divide by the sum of weights into each target, per relation, so that a *sum* over
            edges is the weighted mean. Only for `deliver="weight"`.
        deliver: "weight" writes `edge_weight`, times an existing one; "drop" removes edges of
            weight zero; "duplicate" repeats edges; "attention" writes the log-weight as last column
            of `edge_attr`.

    `impossible` are the deliveries that cannot carry the weights, each with the reason.
    """

    time: str = "time"
    normalize: bool = False
    deliver: str = "weight"

    impossible: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        checks.choice("deliver", self.deliver, DELIVERIES)
        if self.deliver in self.impossible:
            possible = [repr(name) for name in DELIVERIES if name not in self.impossible]
            raise InputError(
                f"{type(self).__name__} cannot use deliver={self.deliver!r}: "
                f"{self.impossible[self.deliver]}; use {' or '.join(possible)}."
            )
        if self.normalize and self.deliver != "weight":
            raise InputError(
                f"normalize=True has no effect with deliver={self.deliver!r}, which leaves the "
                "mean to the layer; use deliver='weight' or normalize=False."
            )

    def forward(self, data: Graph) -> Graph:
        """Write the weights into `data` itself; calling the transform does so on a copy."""
        for flow in flows(type(self).__name__, data, self.time):
            omega = weighting.edge_weight(
                self._table(flow), flow.edge_index, flow.source_period, flow.target_period
            )
            deliver(flow, omega, self.deliver, normalize=self.normalize)
        return data

    __repr__ = constructor_call

    @abstractmethod
    def _table(self, flow: Flow) -> ndarray:
        """Compute Ω[t_target, t_source] for one relation."""


@functional_transform("mmp")
@dataclass(frozen=True, kw_only=True, repr=False)
class MMP(TimeWeights):
    """Mono-directional message passing (`mmp`): Ω = 1 if t_source ≤ t_target, else 0.

    Options are those of `TimeWeights`; `deliver="drop"` removes the edges that point back in time.

    Examples:
        >>> import torch
        >>> data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), time=torch.tensor([2019, 2020]))
        >>> MMP()(data).edge_weight
        tensor([1., 0.])
    """

    def _table(self, flow: Flow) -> ndarray:
        return weighting.mmp(flow.times)


@functional_transform("pmp")
@dataclass(frozen=True, kw_only=True, repr=False)
class PMP(TimeWeights):
    """Persistent message passing (`pmp`): Ω = 2 at distances that exist on one side only.

    `same_time` and `border` are those of `weighting.pmp`, the other options those of `TimeWeights`.

    Examples:
        >>> import torch
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 1]])
        >>> data = Data(edge_index=edge_index, node_year=torch.tensor([[2019], [2020], [2021]]))
        >>> PMP(time="node_year")(data).edge_weight
        tensor([1., 2., 1.])
    """

    same_time: str = "single"
    border: str = "both"

    impossible: ClassVar[dict[str, str]] = {
        "drop": "its weights are 1 and 2, and dropping an edge can only express 0"
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        # Refuses unknown options here, not later.
        weighting.pmp([0, 1], same_time=self.same_time, border=self.border)

    def _table(self, flow: Flow) -> ndarray:
        return weighting.pmp(flow.times, same_time=self.same_time, border=self.border)


@functional_transform("gen_pmp")
@dataclass(frozen=True, kw_only=True, repr=False)
class GenPMP(TimeWeights):
    """Generalised PMP (`gen_pmp`): Ω = P_tmax(Δ) / P_t(Δ), see `weighting.genpmp`.

    P comes from the number of nodes of the source type at each time.

    Args:
        cap: Largest ratio allowed, or None; the other options are those of `TimeWeights`.

    Examples:
        >>> import torch
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 2, 1]])
        >>> data = Data(edge_index=edge_index, time=torch.tensor([0, 1, 2, 2]))
        >>> GenPMP(cap=0.5)(data).edge_weight
        tensor([0.3333, 0.5000, 0.3333])
    """

    cap: float | None = None

    impossible: ClassVar[dict[str, str]] = {
        "drop": "its weights are ratios, and dropping an edge can only express 0",
        "duplicate": (
            "its weights are ratios, and an edge can only be repeated a whole number of times"
        ),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        weighting.genpmp([0, 1], [1, 1], cap=self.cap)  # refuses a bad cap here, not later

    def _table(self, flow: Flow) -> ndarray:
        if not flow.edge_index.shape[1]:
            return weighting.plain(flow.times)  # nothing to weight, and perhaps nothing to count
        return weighting.genpmp(flow.times, flow.nodes_per_time(), cap=self.cap)
