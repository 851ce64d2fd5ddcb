"""Array operations for numpy and torch; the only place that distinguishes them.

All other layers write one formula. Arrays of numpy and tensors in CPU memory go through numba
kernels, other tensors (CUDA, MPS, half precision) through torch operations. Torch is imported only
for a tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from impact_gnn._array import group_kernels, matrices

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
    if not is_torch(value):
        return np.asarray(value)
    value = value.detach()
    if value.is_quantized:
        value = value.dequantize()
    if value.layout != xp(value).strided:
        value = value.to_dense()
    if value.is_floating_point() and value.element_size() < 4 and value.dtype != xp(value).float16:
        value = value.float()  # numpy has no bfloat16, nor anything smaller
    return value.cpu().numpy()


def like(value: np.ndarray, reference: Array) -> Array:
    """A numpy `value` in the library and on the device of `reference`, keeping its own dtype."""
    if not is_torch(reference):
        return value
    return xp(reference).from_numpy(np.ascontiguousarray(value)).to(reference.device)


def cast(value: Array, reference: Array) -> Array:
    """`value` in the dtype of `reference` (both of one library)."""
    if is_torch(value):
        return value.to(reference.dtype)
    return value.astype(reference.dtype, copy=False)


def where(condition: Array, value: Array, other: Array) -> Array:
    """`value` where the condition holds, `other` elsewhere; either may be a number."""
    return xp(condition).where(condition, value, other)


def clipped_sqrt(value: Array) -> Array:
    """√max(value, 0), with gradient zero (not NaN) where it is clipped."""
    positive = value > 0
    return where(positive, xp(value).sqrt(where(positive, value, 1.0)), 0.0)


def periods(time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted distinct times, and positions of all entries in a small unsigned type."""
    low = int(time.min())
    high = int(time.max())
    if high - low < max(65536, 2 * len(time)):  # a table over the whole range beats a sort
        present = group_kernels.present(time, low, high - low + 1)
        times = np.flatnonzero(present) + low
        index = np.empty(len(time), smallest_unsigned(len(times)))
        group_kernels.positions(time, low, (np.cumsum(present) - 1).astype(index.dtype), index)
        return times, index
    times, index = np.unique(time, return_inverse=True)
    return times, index.astype(smallest_unsigned(len(times)))


def smallest_unsigned(size: int) -> np.dtype:
    """Return the smallest unsigned integer type that can index `size` entries."""
    return np.min_scalar_type(max(size - 1, 0))


def group_moments(values: Array, group: Array, num_groups: int) -> tuple[Array, Array, Array]:
    """Return count [G], mean and sum of squared deviations [G, f] of groups ≥ 0, in float64."""
    if is_torch(values):
        return _autograd().group_moments(values, group, num_groups)
    return group_kernels.moments(values, group, num_groups)


def group_affine(values: Array, group: Array, origin: Array, scale: Array, goal: Array) -> Array:
    """Compute `(values − origin[group])·scale[group] + goal[group]`, scale [G] or [G, f].

    Rows of negative groups stay unchanged.
    """
    if is_torch(values):
        return _autograd().group_affine(values, group, origin, scale, goal)
    return group_kernels.affine(values, group, origin, scale, goal)


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
    """Apply `group_affine` by tables of the values' own moments: one differentiable operation.

    `tables` computes origin, scale and goal from count, mean and squared deviations of every
    `group`. A row has the tables' entry of its number in `moved`, and stays unchanged where that is
    negative. `pullback` takes the same three and the gradients of origin, scale and goal, all
    numpy, and returns those of mean and squared deviations [G, f]: a hundred tiny torch operations
    would cost more than the rows. With `by_column=False` squares may be summed over columns [G, 1].
    """
    if is_torch(values):
        return _autograd().group_renormalize(
            values, group, moved, num_groups, tables, pullback, by_column
        )
    moments = group_kernels.moments(values, group, num_groups, by_column=by_column)
    return group_kernels.affine(values, moved, *tables(*moments))


def group_scatter(values: Array, group: Array, num_groups: int) -> Array:
    """Compute Σ (x − mean_g)(x − mean_g)ᵀ of every group, [G, f, f] in float64."""
    if is_torch(values):
        return _autograd().group_scatter(values, group, num_groups)
    return matrices.scatter(values, group, group_kernels.means(values, group, num_groups)[1])


def group_map(values: Array, group: Array, maps: Array, family: np.ndarray) -> Array:
    """Compute `A_g (x − mean) + mean`, with the mean over the rows of a group's family [G].

    Rows of negative groups stay unchanged.
    """
    if is_torch(values):
        return _autograd().group_map(values, group, maps, family)
    return matrices.apply(values, group, maps, matrices.family_means(values, group, family)[1])


def lookup(table: np.ndarray, row: Array, column: Array, target: Array, source: Array) -> Array:
    """Look up `table[row[target[e]], column[source[e]]]` for every edge e, as float32."""
    if is_torch(source) and source.device.type != "cpu":
        weights = like(table.astype(np.float32), source)
        if not is_torch(row):
            row = like(row.astype(np.int64), source)
        if not is_torch(column):
            column = like(column.astype(np.int64), source)
        return weights[row[target].long(), column[source].long()]
    indices = [to_numpy(index) for index in (row, column, target, source)]
    return like(group_kernels.lookup(table, *indices), source)


def spd_transport(
    source: Array,
    goal: Array,
    source_floor: Array,
    goal_floor: Array,
    reference: Array | None = None,
) -> Array:
    """Compute the symmetric positive maps A with A Σ A = Γ, from `source` Σ to `goal` Γ.

    Σ is [..., K, f, f], Γ is [..., f, f]. A = Σ^-½ (Σ^½ Γ Σ^½)^½ Σ^-½, with eigenvalues raised to
    the floors [..., K] and [...]. They are computed in the type of `source`, maps and gradients in
    that of `reference` if there is one.
    """
    work = source if reference is None else reference
    if is_torch(source):
        return _autograd().Transport.apply(source, goal, source_floor, goal_floor, work.dtype)
    narrow = lambda values: values.astype(work.dtype, copy=False)  # noqa: E731
    return matrices.transport(np, np.linalg.eigh, narrow, source, goal, source_floor, goal_floor)[0]


def _autograd() -> ModuleType:
    """Import the torch versions, which only tensors need."""
    from impact_gnn._array import autograd

    return autograd
