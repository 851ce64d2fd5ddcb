"""PNY: one linear map per community, to the covariance of its label at the last time."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn._array import (
    Array,
    convert_like,
    group_map,
    group_scatter,
    is_torch,
    safe_divide,
    spd_transport,
    to_numpy,
    where,
    xp,
)
from impact_gnn.alignment.sums import Communities, as_message
from impact_gnn.checks import InputError

EIGENVALUE_FLOOR = 1e-6  # as a share of a covariance's mean eigenvalue, against NaN
MAX_BYTES = 2 << 30  # of the covariances of all communities
MAPS = ("transport",)


class Connectivity(Protocol):
    """A relative connectivity as PNY uses it; `impact_gnn.connectivity` estimates one."""

    @property
    def times(self) -> ndarray: ...

    @property
    def num_labels(self) -> int: ...

    def label_mass(self, table: ndarray) -> ndarray:
        """Compute Σ_t̃ table[t, t̃]·P(y, t, ỹ, t̃) as [Y, T, Y]."""


def pny(
    message: Array,
    previous: Array,
    label: Array,
    time: Array,
    *,
    target: Array,
    connectivity: Connectivity,
    degree: Array | None = None,
    table: ndarray | None = None,
    map: str = "transport",
) -> Array:
    """Map the covariance of every labelled community to that of its label at the last time.

    M_v ← A_yt (M_v − μ_y) + μ_y with A_yt Σ(y,t) A_ytᵀ = Σ(y,t_max) and μ_y the mean message of the
    label. The covariances follow from the aggregated representation: Σ(y,t) = Σ_ỹ c(y,t,ỹ) Σ_XX(ỹ),
    c = Σ_t̃ Ω²P / ((ΣΩP)²|N_yt|), with Σ_XX(ỹ) the covariance of `previous` per label over labelled
    nodes. No target label is used. Unchanged are target nodes, unlabelled nodes and communities
    whose covariance is unknown, at their own time or at the last (fewer than two labelled nodes of
    a label among all neighbours, no variance, no counted neighbours). Eigenvalues are floored.

    Args:
        message: Messages [N, f]; numpy or torch (then differentiable).
        previous: The representation that was aggregated [N, f].
        label: Labels [N], −1 unknown.
        time: Integer time [N].
        target: Mask of the target nodes [N].
        connectivity: The estimated relative connectivity (`connectivity.relative_connectivity`).
        degree: Number of neighbours of every node [N]; by default equal for all.
        table: The weighting table of the message; by default plain.
        map: "transport", the optimal transport map between Gaussians: unique, and moves messages
            least. The paper's map depends on the order and signs of eigenvectors.
    """
    communities = Communities.of(label, time, target, message)
    as_message(message, len(communities.group))
    if as_message(previous, len(communities.group), "previous").shape != message.shape:
        raise InputError(
            f"previous has shape {tuple(previous.shape)}, message {tuple(message.shape)}; "
            "pass the representation that was aggregated into the message."
        )
    checks.choice("map", map, MAPS)
    weights = coefficients(communities, connectivity, degree, table)
    return pny_by(message, previous, communities, weights)


def coefficients(
    communities: Communities,
    connectivity: Connectivity,
    degree: Array | None = None,
    table: ndarray | None = None,
) -> ndarray:
    """Compute c[y, t, ỹ], the weight of each label's covariance in a message; 0 where unknown.

    They depend on the graph only, so a model computes them once. |N_yt| is the mean degree of the
    community; at times without labels it is the targets' mean degree times the label's relative
    degree.
    """
    size = len(communities.times)
    num_labels = connectivity.num_labels
    if not np.array_equal(connectivity.times, communities.times):
        raise InputError(
            "connectivity was estimated for other times than those of the messages; "
            "estimate it again."
        )
    if communities.num_labels > num_labels:
        raise InputError(
            f"label has {communities.num_labels} classes, but connectivity has {num_labels}; "
            "estimate it with all classes."
        )
    if table is None:
        table = np.ones((size, size))
    weights = checks.array("table", table)
    if weights.shape != (size, size) or weights.dtype.kind not in "iuf":
        raise InputError(
            f"table has shape {weights.shape} for {size} times; pass one row and column per time."
        )
    weights = weights.astype(np.float64)
    # Weight of all neighbours of a community, [Y, T].
    total = connectivity.label_mass(weights).sum(2)
    # Squared weights by label of the neighbour [Y, T, Y]: a variance scales with squares.
    squares = connectivity.label_mass(weights**2)
    # [Y, T]; it is 0 where no neighbour was counted.
    scale = total**2 * _mean_degree(communities, num_labels, degree)
    return safe_divide(squares, scale[:, :, None])


def pny_by(
    message: Array,
    previous: Array,
    communities: Communities,
    weights: ndarray,
    *,
    exact_gradient: bool = True,
) -> Array:
    """Apply `pny` with precomputed communities and coefficients.

    `exact_gradient=False` treats the maps as constants: no gradient flows into `previous`, and
    backward is cheaper.
    """
    num_labels, num_times, _ = weights.shape
    num_known = communities.num_labels
    width = previous.shape[1]
    refuse_unless_fits(num_labels, num_times, width)
    if not exact_gradient and is_torch(previous):
        previous = previous.detach()
    # 1. Σ_XX[ỹ], over all labelled rows of a label: a community is t·num_known + y, so its label is
    # the remainder.
    row_label = communities.labelled % num_known
    by_label = where(communities.labelled < 0, communities.labelled, row_label)
    covariance = label_covariances(previous, by_label, num_labels)
    # 2. Σ_MM[y, t] = Σ_ỹ c[y, t, ỹ] Σ_XX[ỹ], one product over flattened matrices. Maps are computed
    # for periods with labelled nodes only; their goal is the last time.
    labelled = to_numpy(communities.labelled)
    rows_per_period = np.bincount(labelled[labelled >= 0] // num_known, minlength=num_times)
    needed = np.flatnonzero(rows_per_period)
    if not len(needed):
        # No labelled rows, so nothing to map: a copy.
        return message + 0
    flat = covariance.reshape(num_labels, -1)  # [Y, f·f]
    # [known labels · needed periods, Y] @ [Y, f·f].
    needed_weights = weights[:num_known, needed].reshape(-1, num_labels)
    mixed = convert_like(needed_weights, message) @ flat
    mixed = mixed.reshape(num_known, -1, width, width)
    goal = convert_like(weights[:num_known, -1], message) @ flat
    goal = goal.reshape(num_known, width, width)
    # Maps have the type of the message; half precision is too coarse for them.
    reference = message if message.dtype.itemsize >= 4 else mixed
    maps = transport_maps(mixed, goal, reference)
    # 3. Maps are ordered by label, then by needed period; communities by period, then label.
    # Community t·num_known + y therefore has map y·len(needed) + position of t. Rows are mapped
    # about the mean of their label (family).
    period_position = np.searchsorted(needed, np.arange(num_times))[:, None]
    position = period_position + len(needed) * np.arange(num_known)
    group = np.where(labelled < 0, -1, position.reshape(-1)[labelled])
    group = convert_like(group.astype(np.int32), message)
    family = np.repeat(np.arange(num_known), len(needed))
    return group_map(message, group, maps.reshape(-1, width, width), family)


def label_covariances(previous: Array, by_label: Array, num_labels: int) -> Array:
    """Compute the covariance of the labelled rows of every label [Y, f, f]; zero below two rows."""
    label = to_numpy(by_label)
    # Degrees of freedom of the labelled rows of every label, [Y].
    freedom = np.bincount(label[label >= 0], minlength=num_labels) - 1
    # 1 / (n − 1), or 0 where a label has too few rows for a covariance.
    share = safe_divide(1.0, freedom)
    scatter = group_scatter(previous, by_label, num_labels)
    return scatter * convert_like(share[:, None, None], previous)


def refuse_unless_fits(num_labels: int, num_times: int, width: int) -> None:
    """Refuse covariances that would not fit in memory, with a remedy."""
    size = 8 * num_labels * num_times * width**2
    if size > MAX_BYTES:
        raise InputError(
            f"PNY needs {num_labels}·{num_times} covariances of {width}x{width}, "
            f"{size / 2**30:.1f} GiB, more than its limit of {MAX_BYTES / 2**30:.0f} GiB; "
            "use jjnorm, or project the features to fewer columns."
        )


def transport_maps(mixed: Array, goal: Array, reference: Array) -> Array:
    """Compute A[y, t] with A Σ A = goal for covariances Σ[y, t] and goal[y], which move least.

    A map is the identity where either covariance is unknown, that is 0. Eigenvalues are floored,
    and maps have the type of `reference`.
    """
    identity = convert_like(np.eye(mixed.shape[-1]), mixed)
    # [Y, T] and [Y].
    size = _mean_eigenvalue(mixed)
    goal_size = _mean_eigenvalue(goal)
    goal_known = goal_size > 0
    known = (size > 0) & goal_known[:, None]
    # Unknown covariances are replaced, because their gradient would not be finite.
    floors = (
        where(known, size, 1.0) * EIGENVALUE_FLOOR,
        where(goal_known, goal_size, 1.0) * EIGENVALUE_FLOOR,
    )
    mixed = where(known[..., None, None], mixed, identity)
    goal = where(goal_known[..., None, None], goal, identity)
    maps = spd_transport(mixed, goal, floors, reference.dtype)
    identity = xp(maps).asarray(identity, dtype=maps.dtype)
    return where(known[..., None, None], maps, identity)


def _mean_eigenvalue(batch: Array) -> Array:
    # The trace is the sum of the eigenvalues.
    return xp(batch).einsum("...ii->...", batch) / max(batch.shape[-1], 1)


def _mean_degree(communities: Communities, num_labels: int, degree: Array | None) -> ndarray:
    """Return |N_yt| as [Y, T]."""
    num_times = len(communities.times)
    if degree is None:
        return np.ones((num_labels, num_times))
    group = to_numpy(communities.group)
    num_known = communities.num_labels
    node_degree = checks.array("degree", degree)
    if node_degree.shape != group.shape or node_degree.dtype.kind not in "iuf":
        raise InputError(
            f"degree has shape {node_degree.shape} for {len(group)} nodes; "
            "pass one number per node."
        )
    # Labelled nodes and targets; other nodes are in no group.
    is_grouped = group >= 0
    group = group[is_grouped]
    count = np.bincount(group, minlength=communities.num_groups)
    total = np.bincount(group, node_degree[is_grouped], communities.num_groups)
    # The last group are the targets, the others are [T, Y].
    count_yt = count[:-1].reshape(num_times, num_known).T
    total_yt = total[:-1].reshape(num_times, num_known).T
    # Mean degree of the labelled nodes of a time, [T].
    by_time = total_yt.sum(0) / np.maximum(count_yt.sum(0), 1)
    # The degree of a label relative to that of all labels at the times of its nodes.
    expected = (count_yt * by_time).sum(1)
    # Labels without labelled nodes have the ratio 1.
    ratio = np.ones(num_labels)
    ratio[:num_known] = safe_divide(total_yt.sum(1), expected, 1.0)
    # Communities without nodes have the mean of their time (without labels: of the targets) times
    # the ratio; others have their own mean.
    target_mean = total[-1] / max(count[-1], 1)
    time_mean = np.where(count_yt.sum(0) > 0, by_time, target_mean)
    mean = ratio[:, None] * time_mean
    mean[:num_known] = safe_divide(total_yt, count_yt, mean[:num_known])
    return mean
