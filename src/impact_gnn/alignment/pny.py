"""PNY: one linear map per community that gives its messages the covariance its label should have at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Protocol

import numpy as np

from impact_gnn import checks
from impact_gnn._array import (
    Array,
    cast,
    group_map,
    group_scatter,
    is_torch,
    like,
    spd_transport,
    to_numpy,
    where,
    xp,
)
from impact_gnn.alignment.sums import Communities, as_message
from impact_gnn.checks import InputError

EIGENVALUE_FLOOR = (
    1e-6  # of a covariance, as a share of its mean eigenvalue: a singular one must not give NaN
)
MOST_BYTES = 2 << 30  # that the covariances of all communities may take


class Connectivity(Protocol):
    """What PNY asks of a relative connectivity: `impact_gnn.connectivity` estimates one."""

    @property
    def times(self) -> np.ndarray: ...

    @property
    def num_labels(self) -> int: ...

    def label_mass(self, table: np.ndarray) -> np.ndarray:
        """Σ_t̃ table[t, t̃]·P(y, t, ỹ, t̃) as [Y, T, Y]."""


def pny(
    message: Array,
    previous: Array,
    label: Array,
    time: Array,
    *,
    target: Array,
    connectivity: Connectivity,
    degree: Array | None = None,
    table: np.ndarray | None = None,
    map: str = "transport",
) -> Array:
    """Maps the covariance of every labelled community to the one its label should have at the last time.

    M_v ← A_yt (M_v − μ_y) + μ_y with A_yt Σ(y,t) A_ytᵀ = Σ(y,t_max) and μ_y the mean message of the
    label. The covariances follow from what was aggregated: Σ(y,t) = Σ_ỹ c(y,t,ỹ) Σ_XX(ỹ), c = Σ_t̃
    Ω²P / ((ΣΩP)²|N_yt|), with Σ_XX(ỹ) the covariance of `previous` per label over labelled nodes.
    No target label is used. Target nodes, unlabelled nodes and communities whose covariance is
    unknown, at their own time or at the last (a label below two labelled nodes among all
    neighbours, no spread, no counted neighbours), pass unchanged. Eigenvalues are floored.

    Args:
        message: Messages [N, f]; numpy or torch (then differentiable).
        previous: The representation that was aggregated [N, f].
        label: Labels [N], −1 unknown.
        time: Integer time [N].
        target: Mask of the target nodes [N].
        connectivity: The estimated relative connectivity (`connectivity.relative_connectivity`).
        degree: Number of neighbours of every node [N]; by default equal for all.
        table: The weighting table the message was made with; by default plain.
        map: "transport" moves messages least (the optimal transport map between Gaussians, unique);
            "eigen" is the paper's U_max Λ_max^½ Λ_t^-½ U_tᵀ with order and signs of the
            eigenvectors fixed.
    """
    communities = Communities.of(label, time, target, message)
    as_message(message, len(communities.group))
    if as_message(previous, len(communities.group), "previous").shape != message.shape:
        shapes = f"previous has shape {tuple(previous.shape)}, message {tuple(message.shape)}"
        raise InputError(f"{shapes}; give the representation that was aggregated into the message.")
    weights = coefficients(communities, connectivity, degree, table)
    return pny_by(message, previous, communities, weights, map=map)


def coefficients(
    communities: Communities,
    connectivity: Connectivity,
    degree: Array | None = None,
    table: np.ndarray | None = None,
) -> np.ndarray:
    """c[y, t, ỹ], the weight of each label's covariance in a community's message; 0 where nothing is known.

    They depend on the graph only, so a model computes them once. |N_yt| is the mean degree of the
    community; at times without labels it is the targets' mean degree times how much more (or less)
    connected the label is.
    """
    size, seen, num_labels = len(communities.times), communities.num_labels, connectivity.num_labels
    if not np.array_equal(connectivity.times, communities.times):
        raise InputError(
            "connectivity was estimated for other times than the messages have; estimate it anew."
        )
    if seen > num_labels:
        raise InputError(
            f"label has {seen} classes but connectivity only {num_labels}; estimate it with all."
        )
    weights = np.ones((size, size)) if table is None else checks.array("table", table)
    if weights.shape != (size, size) or weights.dtype.kind not in "iuf":
        raise InputError(
            f"table has shape {weights.shape} for {size} times; give one row and column per time."
        )
    weights = weights.astype(np.float64)
    first, second = connectivity.label_mass(weights), connectivity.label_mass(weights**2)
    scale = (first.sum(2) ** 2 * _mean_degree(communities, num_labels, degree))[:, :, None]
    return np.divide(second, scale, out=np.zeros_like(second), where=scale > 0)


def pny_by(
    message: Array,
    previous: Array,
    communities: Communities,
    weights: np.ndarray,
    *,
    map: str = "transport",
    exact_gradient: bool = True,
) -> Array:
    """`pny` with grouping and coefficients made before.

    `exact_gradient=False` takes the maps for constants: no gradient flows into `previous`, and
    backward is cheaper.
    """
    checks.choice("map", map, MAPS)
    labels, seen, num_times, width = (
        len(weights),
        communities.num_labels,
        weights.shape[1],
        previous.shape[1],
    )
    refuse_unless_fits(labels, num_times, width)
    if not exact_gradient and is_torch(previous):
        previous = previous.detach()
    # 1. Σ_XX[ỹ], over all labelled rows of a label: a community is t·seen + y, so its label is the
    # remainder.
    by_label = where(communities.labelled < 0, communities.labelled, communities.labelled % seen)
    covariance = label_covariances(previous, by_label, labels)
    # 2. Σ_MM[y, t] = Σ_ỹ c[y, t, ỹ] Σ_XX[ỹ], one product over flattened matrices. Maps are made
    # only for the periods    that have labelled nodes; the last time is their goal.
    labelled = to_numpy(communities.labelled)
    needed = np.flatnonzero(np.bincount(labelled[labelled >= 0] // seen, minlength=num_times))
    if not len(needed):
        return message + 0
    flat = covariance.reshape(labels, -1)
    mixed = (like(weights[:seen, needed].reshape(-1, labels), message) @ flat).reshape(
        seen, -1, width, width
    )
    goal = (like(weights[:seen, -1], message) @ flat).reshape(seen, width, width)
    maps = MAPS[map](mixed, goal, message if message.dtype.itemsize >= 4 else None)
    # 3. Maps are ordered by label, then by period among the needed; rows are ordered by period,
    # then label. Community    t·seen + y therefore takes map y·len(needed) + position of t. Rows
    # turn about the mean of their label (family).
    position = np.searchsorted(needed, np.arange(num_times))[:, None] + len(needed) * np.arange(
        seen
    )
    group = np.where(labelled < 0, -1, position.reshape(-1)[labelled]).astype(np.int32)
    family = np.repeat(np.arange(seen), len(needed))
    return group_map(message, like(group, message), maps.reshape(-1, width, width), family)


def label_covariances(previous: Array, by_label: Array, num_labels: int) -> Array:
    """Covariance of the labelled rows of every label about that label's mean [Y, f, f]; zero below two rows."""
    counts = np.bincount(to_numpy(by_label)[to_numpy(by_label) >= 0], minlength=num_labels)
    share = np.where(counts > 1, 1.0 / np.maximum(counts - 1, 1), 0.0)
    return group_scatter(previous, by_label, num_labels) * like(share[:, None, None], previous)


def refuse_unless_fits(num_labels: int, num_times: int, width: int) -> None:
    """Refuses covariances that would not fit in memory, saying what would."""
    size = 8 * num_labels * num_times * width**2
    if size > MOST_BYTES:
        raise InputError(
            f"PNY would hold {num_labels}·{num_times} covariances of {width}x{width}, {size / 2**30:.1f} GiB, more "
            f"than its limit of {MOST_BYTES / 2**30:.0f} GiB; use jjnorm, or project the features to fewer columns."
        )


def _identity_unless_known(make: Callable[..., Array]) -> Callable[..., Array]:
    """`make(mixed, goal, floor, goal_floor, reference)`, and the identity where either end is unknown, that is 0."""

    @wraps(make)
    def maps(mixed: Array, goal: Array | None = None, reference: Array | None = None) -> Array:
        goal = mixed[:, -1] if goal is None else goal
        size, goal_size = (
            xp(mixed).einsum("...ii->...", part) / max(part.shape[-1], 1) for part in (mixed, goal)
        )
        known, goal_known = (size > 0) & (goal_size[:, None] > 0), goal_size > 0
        all_known, unit = bool(known.all()), like(np.eye(mixed.shape[-1]), mixed)
        if not all_known:
            mixed, goal = (
                where(known[..., None, None], mixed, unit),
                where(goal_known[..., None, None], goal, unit),
            )
            size, goal_size = where(known, size, 1.0), where(goal_known, goal_size, 1.0)
        out = make(mixed, goal, size * EIGENVALUE_FLOOR, goal_size * EIGENVALUE_FLOOR, reference)
        return out if all_known else where(known[..., None, None], out, cast(unit, out))

    return maps


@_identity_unless_known
def transport(
    mixed: Array, goal: Array, floor: Array, goal_floor: Array, reference: Array | None
) -> Array:
    """Σ_t^-½ (Σ_t^½ Σ_max Σ_t^½)^½ Σ_t^-½ for every [y, t]: the symmetric map, which moves messages least."""
    return spd_transport(mixed, goal, floor, goal_floor, reference)


@_identity_unless_known
def eigen(
    mixed: Array, goal: Array, floor: Array, goal_floor: Array, reference: Array | None
) -> Array:
    """U_max Λ_max^½ Λ_t^-½ U_tᵀ for every [y, t]: eigenvalues ascending, largest entry of a vector positive."""
    (vectors, root), (goal_vectors, goal_root) = (
        _signed_eigen(mixed, floor),
        _signed_eigen(goal, goal_floor),
    )
    scaled = goal_vectors[:, None] * (goal_root[:, None] / root)[..., None, :]
    maps = scaled @ xp(vectors).swapaxes(vectors, -1, -2)
    return maps if reference is None else cast(maps, reference)


MAPS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {"transport": transport, "eigen": eigen}
)
"""Maps between covariances by name: (Σ[y, t], goal[y], reference) → A[y, t] with A Σ_t Aᵀ = goal.

Without a goal it is Σ at the last time; with a reference the maps come in its type.
"""


def _signed_eigen(batch: Array, floor: Array) -> tuple[Array, Array]:
    """Eigenvectors with their largest entry positive, and roots of the eigenvalues raised to the floor."""
    lib = xp(batch)
    values, vectors = lib.linalg.eigh(batch)
    top = lib.abs(vectors).argmax(-2)[..., None, :]
    picked = np.take_along_axis(vectors, top, -2) if lib is np else vectors.gather(-2, top)
    return vectors * lib.sign(picked), lib.sqrt(
        where(values > floor[..., None], values, floor[..., None])
    )


def _mean_degree(communities: Communities, num_labels: int, degree: Array | None) -> np.ndarray:
    """|N_yt| as [Y, T]."""
    group, seen, num_times = (
        to_numpy(communities.group),
        communities.num_labels,
        len(communities.times),
    )
    if degree is None:
        return np.ones((num_labels, num_times))
    given = checks.array("degree", degree)
    if given.shape != group.shape or given.dtype.kind not in "iuf":
        raise InputError(
            f"degree has shape {given.shape} for {len(group)} nodes; give one number per node."
        )
    given = given.astype(np.float64)
    inside = group >= 0
    count = np.bincount(group[inside], minlength=communities.num_groups).astype(np.float64)
    total = np.bincount(group[inside], given[inside], communities.num_groups)
    # The last group holds the targets, the others are [T, Y].
    count_yt, total_yt = (
        count[:-1].reshape(num_times, seen).T,
        total[:-1].reshape(num_times, seen).T,
    )
    by_time = total_yt.sum(0) / np.maximum(count_yt.sum(0), 1)
    # How much more connected a label is than all labels were at the times of its nodes.
    expected = (count_yt * by_time).sum(1)
    factor = np.ones(num_labels)
    factor[:seen] = np.divide(total_yt.sum(1), expected, out=np.ones(seen), where=expected > 0)
    # Known communities keep their own mean; others take their time's (without labels: the targets')
    # times the factor.
    at_target = total[-1] / max(count[-1], 1)
    out = np.where(count_yt.sum(0) > 0, by_time, at_target)[None, :] * factor[:, None]
    np.divide(total_yt, count_yt, out=out[:seen], where=count_yt > 0)
    return out
