"""Alignments of hops: statistics from one pass in blocks, rows mapped when they are read.

Every alignment is an affine map per group of nodes, so nothing aligned is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from impact_gnn.alignment.center import apply_center, apply_standardize
from impact_gnn.alignment.jjnorm import JJSums, apply_jjnorm
from impact_gnn.alignment.pny import coefficients, pny_by, refuse_unless_fits
from impact_gnn.alignment.sums import Communities, Moments
from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.engines.engine import time_table
from impact_gnn.engines.hop import BLOCK, mapped_hop
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods.part import HopContext


def moments_of(hop: Any, group: np.ndarray, num_groups: int) -> Moments:
    """Moments of a hop's rows by group (negative ones left out), in blocks of rows."""
    total: Moments | None = None
    wanted = np.flatnonzero(group >= 0)
    for begin in range(0, max(len(wanted), 1), BLOCK):
        index = wanted[begin : begin + BLOCK]
        block = Moments.of(np.asarray(hop.rows(index)), group[index], num_groups)
        total = block if total is None else total.merge(block)
    assert total is not None
    return total


def center(hops: list[Any], context: HopContext) -> list[Any]:
    """Removes the mean message of every period."""
    return _by_period(hops, context, apply_center)


def standardize(hops: list[Any], context: HopContext) -> list[Any]:
    """Brings the messages of every period to mean 0 and variance 1."""
    return _by_period(hops, context, apply_standardize)


def _by_period(hops: list[Any], context: HopContext, apply: Callable[..., np.ndarray]) -> list[Any]:
    period = context.graph.period[context.nodes].astype(np.int32)

    def aligned(hop: Any) -> Any:
        moments = moments_of(hop, period, len(context.graph.times))
        return mapped_hop(hop, lambda values, index: apply(values, period[index], moments))

    return [aligned(hop) for hop in hops]


def jjnorm(hops: list[Any], context: HopContext) -> list[Any]:
    """Scales every hop by one number per period."""
    communities = communities_of(context)
    return [aligned for hop in hops for aligned in jjnorm_jointly([hop], communities)]


def jjnorm_jointly(hops: list[Any], communities: Communities) -> list[Any]:
    """Scales hops by one number per period for all of them: their sums add up over columns."""
    moments = [moments_of(hop, communities.group, communities.num_groups) for hop in hops]
    sums = (JJSums.of(one, communities.num_labels) for one in moments)
    scale = reduce(JJSums.merge, sums).compute()

    def aligned(hop: Any, moments: Moments) -> Any:
        def change(values: np.ndarray, index: np.ndarray) -> np.ndarray:
            part = replace(communities, labelled=communities.labelled[index])
            return apply_jjnorm(values, part, moments, scale)

        return mapped_hop(hop, change)

    return [aligned(hop, one) for hop, one in zip(hops, moments, strict=True)]


def communities_of(context: HopContext) -> Communities:
    """Groups of the rows of a hop: labelled nodes by class and period, and targets."""
    graph, nodes = context.graph, context.nodes
    return Communities.of(graph.label[nodes], graph.time[nodes], graph.targets()[nodes])


def pny(hops: list[Any], context: HopContext) -> list[Any]:
    """Maps messages so that their covariance is that of the last period.

    Whole rows are mapped by covariances, so the labelled rows of a hop and of the one before are
    loaded into memory.
    """
    view, nodes, engine = context.graph, context.nodes, context.engine
    assert view.cutoff is not None
    assert view.x is not None
    labelled = np.flatnonzero(view.label[nodes] >= 0)
    size = 16 * len(labelled) * view.x.shape[1]
    if not engine.fits(size):
        raise InputError(
            f"pny needs {len(labelled):,} labelled rows of two hops in memory, {size / 1e9:.1f} GB, "
            f"more than this engine may use; give more memory, or use jjnorm."
        )
    communities = Communities.of(view.label, view.time, view.targets())
    connectivity = relative_connectivity(
        view.edge_index, view.label, view.time, num_labels=view.num_labels, cutoff=view.cutoff
    )
    degree = np.diff(engine.csr(view, view.relation_name(None)).indptr)
    weights = coefficients(communities, connectivity, degree, time_table(view, context.weighting))
    known = nodes[labelled]
    part = replace(
        communities, group=communities.group[known], labelled=communities.labelled[known]
    )
    out, previous = [], np.asarray(view.x[known], np.float32)
    for hop in hops:
        message = np.asarray(hop.rows(labelled), np.float32)
        moved = pny_by(message, previous, part, weights)
        previous = message

        def change(values: np.ndarray, index: np.ndarray, moved: np.ndarray = moved) -> np.ndarray:
            place = np.searchsorted(labelled, index).clip(max=max(len(labelled) - 1, 0))
            inside = labelled[place] == index
            values = np.array(values, np.float32)
            values[inside] = moved[place[inside]]
            return values

        out.append(mapped_hop(hop, change, np.float32))
    return out


def check_pny(graph: TemporalGraph) -> None:
    """Refuses graphs of several types, and sizes whose covariances do not fit into memory."""
    if graph.is_hetero:
        raise InputError(
            f"pny estimates how one node type connects with itself, but this graph has "
            f"{len(graph.nodes)} types and {len(graph.relations)} relations; use jjnorm, which "
            f"needs no connectivity."
        )
    if graph.x is not None:
        refuse_unless_fits(graph.num_labels, len(graph.times), graph.x.shape[1])
