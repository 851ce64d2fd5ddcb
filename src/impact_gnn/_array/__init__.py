"""The only place that tells numpy from torch.

Everything above this floor writes one formula. The handful of operations whose fast form differs between the two
libraries live here: grouped moments, grouped affine and linear maps, the table look-up, and maps between covariances.
Arrays of numpy (and torch tensors in CPU memory) go through the numba kernels of `kernels`; other tensors (CUDA, MPS,
half precision) through plain torch operations. Torch is never imported from here unless a tensor came in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from impact_gnn._array import kernels, matrices

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""


def is_torch(value: object) -> bool:
    """Whether `value` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def xp(value: Array) -> ModuleType:
    """The module (`numpy` or `torch`) whose functions take `value`."""
    return sys.modules["torch"] if is_torch(value) else np


def to_numpy(value: Array) -> np.ndarray:
    """`value` as a numpy array, without a copy where memory can be shared."""
    return value.detach().cpu().numpy() if is_torch(value) else np.asarray(value)


def like(value: np.ndarray, reference: Array) -> Array:
    """A numpy `value` in the library and on the device of `reference`, keeping its own dtype."""
    if not is_torch(reference):
        return value
    return xp(reference).from_numpy(np.ascontiguousarray(value)).to(reference.device)


def cast(value: Array, reference: Array) -> Array:
    """`value` in the dtype of `reference` (both of one library)."""
    return value.to(reference.dtype) if is_torch(value) else value.astype(reference.dtype, copy=False)


def where(condition: Array, value: Array, other: Array) -> Array:
    """`value` where the condition holds, `other` elsewhere; either may be a number."""
    return xp(condition).where(condition, value, other)


def clipped_sqrt(value: Array) -> Array:
    """√max(value, 0), with gradient zero (not NaN) where it is clipped."""
    positive = value > 0
    return where(positive, xp(value).sqrt(where(positive, value, 1.0)), 0.0)


def periods(time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sorted distinct times, and for every entry its position among them in the smallest unsigned type.

    Example:
        >>> import numpy as np
        >>> periods(np.array([2003, 2001, 2003]))
        (array([2001, 2003]), array([1, 0, 1], dtype=uint8))
    """
    low, high = int(time.min()), int(time.max())
    if high - low < max(65536, 2 * len(time)):  # a table over the whole range beats a sort
        present = kernels.present(time, low, high - low + 1)
        times = np.flatnonzero(present) + low
        index = np.empty(len(time), smallest_unsigned(len(times)))
        kernels.positions(time, low, (np.cumsum(present) - 1).astype(index.dtype), index)
        return times, index
    times, index = np.unique(time, return_inverse=True)
    return times, index.astype(smallest_unsigned(len(times)))


def smallest_unsigned(size: int) -> np.dtype:
    """The smallest unsigned integer type that can index `size` things."""
    return np.min_scalar_type(max(size - 1, 0))


def group_moments(values: Array, group: Array, num_groups: int) -> tuple[Array, Array, Array]:
    """Count [G], mean [G, f] and sum of squared deviations [G, f] of the rows of every group, in float64.

    Rows with a negative group are left out; an empty group has count, mean and deviations zero.
    Differentiable in `values` where they are torch tensors.
    """
    if is_torch(values):
        return _autograd().group_moments(values, group, num_groups)
    return kernels.moments(values, group, num_groups)


def group_affine(values: Array, group: Array, origin: Array, scale: Array, goal: Array) -> Array:
    """`(values − origin[group])·scale[group] + goal[group]`; rows with a negative group pass unchanged.

    `origin` and `goal` are [G, f]; `scale` is [G] or [G, f]. The result has the dtype of `values`.
    """
    if is_torch(values):
        return _autograd().group_affine(values, group, origin, scale, goal)
    return kernels.affine(values, group, origin, scale, goal)


def group_renormalize(
    values: Array,
    group: Array,
    moved: Array,
    num_groups: int,
    tables: Callable[..., tuple[Array, Array, Array]],
    pullback: Callable[..., tuple[np.ndarray, np.ndarray]],
    *,
    by_column: bool = True,
) -> Array:
    """`group_affine` by tables that are made of the values' own moments: one operation, cheap to differentiate.

    `tables` takes the count, mean and squared deviations of every `group` and returns origin, scale and goal of
    every group; a row is moved by the entry of `moved`, and passes unchanged where that is negative. `pullback`
    takes the same three and the gradients of origin, scale and goal, all numpy, and returns those of mean and
    squared deviations [G, f]: a hundred tiny operations of torch would cost more than the rows. Tables that only
    ask for squares summed over the columns say `by_column=False`, and may be given them as [G, 1].
    """
    if is_torch(values):
        return _autograd().group_renormalize(values, group, moved, num_groups, tables, pullback, by_column)
    return kernels.affine(values, moved, *tables(*kernels.moments(values, group, num_groups, by_column=by_column)))


def group_scatter(values: Array, group: Array, num_groups: int) -> Array:
    """Σ (x − mean_g)(x − mean_g)ᵀ over the rows of every group, [G, f, f] in float64; negative groups left out."""
    if is_torch(values):
        return _autograd().group_scatter(values, group, num_groups)
    return matrices.scatter(values, group, kernels.means(values, group, num_groups)[1])


def group_map(values: Array, group: Array, maps: Array, family: np.ndarray) -> Array:
    """`A_g (x − mean) + mean` row by row, about the mean of all rows whose groups are of one family.

    `maps` is [G, f, f], `family` [G] numbers the families from 0. Rows with a negative group pass unchanged. The
    result has the dtype of `values`.
    """
    if is_torch(values):
        return _autograd().group_map(values, group, maps, family)
    return matrices.apply(values, group, maps, matrices.family_means(values, group, family)[1])


def lookup(table: np.ndarray, row: Array, column: Array, target: Array, source: Array) -> Array:
    """`table[row[target[e]], column[source[e]]]` for every edge e, as float32; row and column may be numpy."""
    if is_torch(source) and source.device.type != "cpu":
        weights = like(table.astype(np.float32), source)
        row, column = (a if is_torch(a) else like(a.astype(np.int64), source) for a in (row, column))
        return weights[row[target].long(), column[source].long()]
    out = kernels.lookup(table, *(to_numpy(a) for a in (row, column, target, source)))
    return like(out, source)


def spd_transport(
    source: Array, goal: Array, source_floor: Array, goal_floor: Array, reference: Array | None = None
) -> Array:
    """The symmetric positive maps A with A Σ A = Γ for Σ in `source` [..., K, f, f] and Γ in `goal` [..., f, f].

    A = Σ^-½ (Σ^½ Γ Σ^½)^½ Σ^-½, the optimal transport map between centred Gaussians. Eigenvalues of Γ are raised
    to `goal_floor` [...], those of Σ count as `source_floor` [..., K] at least. Differentiable in torch. Eigenvalues
    are found in the type of `source`, the maps and gradients computed in that of `reference` if it is given.
    """
    work = source if reference is None else reference
    if is_torch(source):
        return _autograd().spd_transport(source, goal, source_floor, goal_floor, work.dtype)
    narrow = lambda values: values.astype(work.dtype, copy=False)  # noqa: E731
    return matrices.transport(np, np.linalg.eigh, narrow, source, goal, source_floor, goal_floor)[0]


def _autograd() -> ModuleType:
    """The torch twins; imported only once a tensor has arrived."""
    from impact_gnn._array import autograd

    return autograd
