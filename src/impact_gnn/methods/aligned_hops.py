"""Alignments of hops: statistics from one pass in blocks, rows mapped when they are read.

Every alignment is an affine map per group of nodes, so nothing aligned is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy import ndarray

from impact_gnn.alignment.center import apply_center, apply_standardize
from impact_gnn.alignment.jjnorm import JJSums, apply_jjnorm
from impact_gnn.alignment.pny import coefficients, pny_by, refuse_unless_fits
from impact_gnn.alignment.sums import Communities, Moments
from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.engines.engine import time_table
from impact_gnn.engines.hop import BLOCK, Hop, mapped_hop
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods.part import HopContext


def moments_of(hop: Hop, group: ndarray, num_groups: int) -> Moments:
    """Compute moments of a hop's rows by group (without negative ones), in blocks of rows."""
    # Only rows that count are read: in files, the others cost as much.
    selected = np.flatnonzero(group >= 0)

    def moments_from(begin: int) -> Moments:
        rows = selected[begin : begin + BLOCK]
        values = np.asarray(hop.rows(rows))
        return Moments.of(values, group[rows], num_groups)

    # at least one block, which may be empty
    begins = range(0, max(len(selected), 1), BLOCK)
    return reduce(Moments.merge, map(moments_from, begins))


def center(hops: list[Hop], context: HopContext) -> list[Hop]:
    """Remove the mean message of every period."""
    return _align_by_period(hops, context, apply_center)


def standardize(hops: list[Hop], context: HopContext) -> list[Hop]:
    """Scale the messages of every period to mean 0 and variance 1."""
    return _align_by_period(hops, context, apply_standardize)


def _align_by_period(
    hops: list[Hop], context: HopContext, apply: Callable[..., ndarray]
) -> list[Hop]:
    period = context.graph.period[context.nodes].astype(np.int32)

    def align(hop: Hop) -> Hop:
        moments = moments_of(hop, period, len(context.graph.times))
        return mapped_hop(hop, lambda values, index: apply(values, period[index], moments))

    return [align(hop) for hop in hops]


def jjnorm(hops: list[Hop], context: HopContext) -> list[Hop]:
    """Scale every hop by one number per period."""
    communities = communities_of(context)
    return [aligned for hop in hops for aligned in jjnorm_jointly([hop], communities)]


def jjnorm_jointly(hops: list[Hop], communities: Communities) -> list[Hop]:
    """Scale hops by one number per period for all of them: their sums add up over columns."""
    moments = [moments_of(hop, communities.group, communities.num_groups) for hop in hops]
    sums = (JJSums.of(one, communities.num_labels) for one in moments)
    # Sums of squares add up over columns, so one number per period serves all hops.
    scale = reduce(JJSums.merge, sums).compute()

    def align(hop: Hop, moments: Moments) -> Hop:
        def change(values: ndarray, index: ndarray) -> ndarray:
            # The same groups, for the rows that are read now.
            part = replace(communities, labelled=communities.labelled[index])
            return apply_jjnorm(values, part, moments, scale)

        return mapped_hop(hop, change)

    return list(map(align, hops, moments))


def communities_of(context: HopContext) -> Communities:
    """Group the rows of a hop: labelled nodes by class and period, and targets."""
    graph = context.graph
    nodes = context.nodes
    return Communities.of(graph.label[nodes], graph.time[nodes], graph.targets()[nodes])


def pny(hops: list[Hop], context: HopContext) -> list[Hop]:
    """Map messages so that their covariance is that of the last period.

    Whole rows are mapped by covariances, so the labelled rows of a hop and of the one before are
    loaded into memory.
    """
    view = context.graph
    nodes = context.nodes
    engine = context.engine
    assert view.cutoff is not None
    assert view.x is not None
    labelled = np.flatnonzero(view.label[nodes] >= 0)
    size = 16 * len(labelled) * view.x.shape[1]
    if not engine.fits(size):
        raise InputError(
            f"pny needs {len(labelled):,} labelled rows of two hops in memory, "
            f"{size / 1e9:.1f} GB, more than this engine may use; "
            "raise the memory limit or use jjnorm."
        )
    communities = Communities.of(view.label, view.time, view.targets())
    connectivity = relative_connectivity(
        view.edge_index, view.label, view.time, num_labels=view.num_labels, cutoff=view.cutoff
    )
    # The number of neighbours by which the variance of a mean shrinks.
    degree = np.diff(engine.csr(view, view.relation_name(None)).indptr)
    weights = coefficients(communities, connectivity, degree, time_table(view, context.weighting))
    known = nodes[labelled]
    part = replace(
        communities, group=communities.group[known], labelled=communities.labelled[known]
    )
    aligned: list[Hop] = []
    # The message of hop k was aggregated from hop k - 1, whose covariance it inherits.
    previous = np.asarray(view.x[known], np.float32)
    for hop in hops:
        message = np.asarray(hop.rows(labelled), np.float32)
        moved = pny_by(message, previous, part, weights)
        previous = message

        def change(values: ndarray, index: ndarray, moved: ndarray = moved) -> ndarray:
            position = np.searchsorted(labelled, index)
            # [n]: the position of a row among the labelled ones, if it is one of them
            position = position.clip(max=max(len(labelled) - 1, 0))
            is_labelled = labelled[position] == index
            values = np.array(values, np.float32)
            values[is_labelled] = moved[position[is_labelled]]
            return values

        aligned.append(mapped_hop(hop, change, np.float32))
    return aligned


def check_pny(graph: TemporalGraph) -> None:
    """Refuse graphs of several types, and sizes whose covariances do not fit into memory."""
    if graph.is_hetero:
        raise InputError(
            f"pny supports one node type with one relation, but this graph has "
            f"{len(graph.nodes)} types and {len(graph.relations)} relations; use jjnorm, which "
            f"needs no connectivity."
        )
    if graph.x is not None:
        refuse_unless_fits(graph.num_labels, len(graph.times), graph.x.shape[1])
