"""Label hops: the known labels of neighbours as features, a node's own label excluded exactly.

With Y the one-hot matrix of known labels (zero rows where unknown) the hops are M Y and M² Y. What a node would
hear of itself is taken out: M_vv Y_v at one hop, (M²)_vv Y_v at two - the return path v → u → v, which exists
wherever an edge has its reverse. Without that a model learns to copy the label and fails where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.engine import Engine
from impact_gnn.propagation.hops import along, operator, own_relation
from impact_gnn.propagation.operator import Operator
from impact_gnn.propagation.own_label import one_hot, own_share, without_self
from impact_gnn.propagation.stored_labels import FileEngine, stored_label_hops


def label_hops(
    graph: TemporalGraph,
    *,
    weighting: str | np.ndarray = "plain",
    hops: int = 1,
    engine: Engine | None = None,
    norm: str = "mean",
    self_loop: bool = False,
    renormalize: bool = True,
    relation: tuple[str, str, str] | None = None,
) -> list[np.ndarray]:
    """Shares of labels among the neighbours at one or two hops, own label excluded: a list of [N, Y] float32.

    Args:
        graph: A view made by `masked(cutoff)`: only labels that it holds are used.
        weighting: Name of a method, or a table over `graph.times`.
        hops: 1 or 2; the return path is only known exactly up to there.
        engine: Where to compute; `Memory()` by default. With a directory, everything stays in files:
            `<directory>-labels/label-hop-1.npy`, ...
        norm: "mean", "sym" or "sum".
        self_loop: As in `propagate`; the loop never carries a label.
        renormalize: Divide by the labelled share, so that rows sum to 1 wherever a labelled neighbour exists;
            otherwise they sum to that share.
        relation: As in `propagate`.

    Example:
        >>> g = TemporalGraph(y=[0, 1, -1], time=[0, 1, 2], edge_index=[[0, 1, 1], [1, 0, 2]]).masked(2)
        >>> label_hops(g)[0]
        array([[0., 1.],
               [1., 0.],
               [0., 1.]], dtype=float32)
    """
    if graph.cutoff is None:
        raise InputError("label hops need a view that hides the labels to predict; pass graph.masked(cutoff).")
    if hops not in (1, 2):
        raise InputError(f"hops={hops} must be 1 or 2: beyond that a node's own label cannot be excluded exactly.")
    assert graph.y is not None  # masked() refuses a graph without labels
    relation = own_relation(graph, relation)
    if isinstance(engine, FileEngine) and engine.directory is not None:
        step = engine.operator(graph, relation, weighting=weighting, norm=norm, self_loop=self_loop)
        return stored_label_hops(engine, step, graph.y, graph.num_labels, hops=hops, renormalize=renormalize)
    made = operator(graph, relation, weighting=weighting, norm=norm, self_loop=self_loop)
    known = one_hot(graph.y, graph.num_labels)
    found = along([made] * hops, known, engine=engine)
    return [without_self(hop, known, own_share([made] * k), renormalize) for k, hop in enumerate(found, start=1)]


def label_path(
    path: Sequence[Operator],
    label: np.ndarray,
    num_labels: int,
    *,
    renormalize: bool = True,
    engine: Engine | None = None,
) -> np.ndarray:
    """The label hop along a path of one or two operations that ends where it begins, such as paper-author-paper."""
    if len(path) not in (1, 2):
        raise InputError(f"a label path of {len(path)} steps cannot leave out the own label exactly; use one or two.")
    known = one_hot(label, num_labels)
    return without_self(along(path, known, engine=engine)[-1], known, own_share(path), renormalize)
