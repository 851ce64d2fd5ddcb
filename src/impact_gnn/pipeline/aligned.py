"""Alignments of hops that are asked for rows: statistics from one pass in blocks, rows moved when they are read.

Every alignment is an affine map per group of nodes, so nothing aligned is ever stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from impact_gnn.alignment.center import apply_center, apply_standardize
from impact_gnn.alignment.jjnorm import JJSums, apply_jjnorm
from impact_gnn.alignment.pny import coefficients, pny_by
from impact_gnn.alignment.sums import Communities, Moments
from impact_gnn.checks import InputError
from impact_gnn.connectivity import relative_connectivity
from impact_gnn.engines.base import BLOCK, Engine, mapped_hop, time_table
from impact_gnn.graph import TemporalGraph

NEEDS_EVERYBODY = ("center", "standardize")
"""Alignments whose statistics are those of all nodes of a period, labelled or not."""


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


def aligned(
    name: str,
    hops: list[Any],
    nodes: np.ndarray,
    view: TemporalGraph,
    weighting: str,
    engine: Engine,
    together: Sequence[int],
) -> list[Any]:
    """Hops, made with `weighting`, after the alignment `name`; row k of them shows node `nodes[k]` of the view.

    JJnorm has one number per period for so many hops one after the other as `together` says.
    """
    label, time, target = view.label[nodes], view.time[nodes], view.targets()[nodes]
    if name in NEEDS_EVERYBODY:
        period = view.period[nodes].astype(np.int32)
        apply = apply_center if name == "center" else apply_standardize

        def by_period(hop: Any) -> Any:
            moments = moments_of(hop, period, len(view.times))
            return mapped_hop(hop, lambda rows, index: apply(rows, period[index], moments))

        return [by_period(hop) for hop in hops]
    communities = Communities.of(label, time, target)
    if name == "jjnorm":
        starts = np.cumsum([0, *together])[:-1]
        parts = [hops[start : start + size] for start, size in zip(starts, together, strict=True)]
        return [hop for part in parts for hop in _jjnorm(part, communities)]
    return _pny(hops, nodes, view, weighting, engine)


def _jjnorm(hops: list[Any], communities: Communities) -> list[Any]:
    """Hops as if they were one matrix side by side, whose sums add up over columns."""
    found = [moments_of(hop, communities.group, communities.num_groups) for hop in hops]
    scale = reduce(
        JJSums.merge, (JJSums.of(moments, communities.num_labels) for moments in found)
    ).compute()

    def moved(hop: Any, moments: Moments) -> Any:
        def change(rows: np.ndarray, index: np.ndarray) -> np.ndarray:
            part = replace(communities, labelled=communities.labelled[index])
            return apply_jjnorm(rows, part, moments, scale)

        return mapped_hop(hop, change)

    return [moved(hop, moments) for hop, moments in zip(hops, found, strict=True)]


def _pny(
    hops: list[Any], nodes: np.ndarray, view: TemporalGraph, weighting: str, engine: Engine
) -> list[Any]:
    """PNY maps whole rows by covariances, so the labelled rows of a hop and of the one before are held in memory."""
    assert view.cutoff is not None
    assert view.x is not None
    labelled = np.flatnonzero(view.label[nodes] >= 0)
    size = 16 * len(labelled) * view.x.shape[1]
    if not engine.fits(size):
        raise InputError(
            f"pny holds {len(labelled):,} labelled rows of two hops in memory, {size / 1e9:.1f} GB, more than this "
            f"engine may take; give more memory, or use jjnorm."
        )
    communities = Communities.of(view.label, view.time, view.targets())
    connectivity = relative_connectivity(
        view.edge_index, view.label, view.time, num_labels=view.num_labels, cutoff=view.cutoff
    )
    degree = np.diff(engine.csr(view, view.relation_name(None)).indptr)
    weights = coefficients(communities, connectivity, degree, time_table(view, weighting))
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
