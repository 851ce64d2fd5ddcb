"""Array operations for numpy and torch; the only place that distinguishes them.

All other layers write one formula. Torch is imported only for a tensor.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn._array import group_kernels, numpy_groups

Array: TypeAlias = Any
"""A numpy array or a torch tensor."""


def is_torch(value: object) -> bool:
    """Whether `value` is a torch tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def xp(value: Array) -> ModuleType:
    """The module (`numpy` or `torch`) whose functions take `value`."""
    return sys.modules["torch"] if is_torch(value) else np


def to_numpy(value: Array) -> ndarray:
    """`value` as a numpy array, without a copy where memory can be shared."""
    if not is_torch(value):
        return np.asarray(value)
    value = value.detach()
    if value.is_quantized:
        value = value.dequantize()
    # numpy has dense arrays only.
    if value.layout != xp(value).strided:
        value = value.to_dense()
    is_small = value.is_floating_point() and value.element_size() < 4
    if is_small and value.dtype != xp(value).float16:
        value = value.float()  # numpy has no bfloat16, nor anything smaller
    return value.cpu().numpy()


def sorted_unique(values: ndarray) -> ndarray:
    """Return the distinct values, sorted.

    numpy (2.4) removes repeats by hashing, which takes up to 60 times as long as by sorting; it
    sorts where counts are asked for.
    """
    return np.unique(values, return_counts=True)[0]


def convert_like(value: ndarray, reference: Array) -> Array:
    """A numpy `value` in the library and on the device of `reference`, keeping its own dtype."""
    if not is_torch(reference):
        return value
    tensor = xp(reference).from_numpy(np.ascontiguousarray(value))
    return tensor.to(reference.device)


def where(condition: Array, value: Array, other: Array) -> Array:
    """`value` where the condition holds, `other` elsewhere; either may be a number."""
    return xp(condition).where(condition, value, other)


def safe_divide(numerator: Array, denominator: Array, otherwise: Array = 0.0) -> Array:
    """`numerator / denominator` where the denominator is positive, `otherwise` elsewhere."""
    is_positive = denominator > 0
    # 1 avoids 0 / 0, and its NaN gradient.
    quotient = numerator / where(is_positive, denominator, 1)
    return where(is_positive, quotient, otherwise)


def clipped_sqrt(value: Array) -> Array:
    """√max(value, 0), with gradient zero (not NaN) where it is clipped."""
    positive = value > 0
    # Gradients flow through both branches of `where`, so √ gets a harmless 1 where clipped.
    root = xp(value).sqrt(where(positive, value, 1.0))
    return where(positive, root, 0.0)


def periods(time: ndarray) -> tuple[ndarray, ndarray]:
    """Return the sorted distinct times, and positions of all entries in a small unsigned type."""
    low = int(time.min())
    high = int(time.max())
    if high - low < max(65536, 2 * len(time)):  # a table over the whole range beats a sort
        # Position of each entry in the range low .. high.
        offset = time.astype(np.int64) - low
        present = np.bincount(offset) > 0
        times = np.flatnonzero(present) + low
        # The running number of present times is the position of a time.
        position = np.cumsum(present) - 1
        position = position.astype(smallest_unsigned(len(times)))
        return times, position[offset]
    times, index = np.unique(time, return_inverse=True)
    return times, index.astype(smallest_unsigned(len(times)))


def smallest_unsigned(size: int) -> np.dtype:
    """Return the smallest unsigned integer type that can index `size` entries."""
    return np.min_scalar_type(max(size - 1, 0))


def group_moments(values: Array, group: Array, num_groups: int) -> tuple[Array, Array, Array]:
    """Return count [G], mean and sum of squared deviations [G, f] of groups ≥ 0, in float64."""
    return _groups(values).group_moments(values, group, num_groups)


def group_affine(values: Array, group: Array, origin: Array, scale: Array, goal: Array) -> Array:
    """Compute `(values − origin[group])·scale[group] + goal[group]`, scale [G] or [G, f].

    Rows of negative groups stay unchanged.
    """
    if scale.ndim == 1:
        scale = scale[:, None]
    return _groups(values).group_affine(values, group, origin, scale, goal)


def group_scatter(values: Array, group: Array, num_groups: int) -> Array:
    """Compute Σ (x − mean_g)(x − mean_g)ᵀ of every group, [G, f, f] in float64."""
    return _groups(values).group_scatter(values, group, num_groups)


def group_map(values: Array, group: Array, maps: Array, family: ndarray) -> Array:
    """Compute `A_g (x − mean) + mean`, with the mean over the rows of a group's family [G].

    Rows of negative groups stay unchanged.
    """
    return _groups(values).group_map(values, group, maps, family)


def lookup(table: ndarray, row: Array, column: Array, target: Array, source: Array) -> Array:
    """Look up `table[row[target[e]], column[source[e]]]` for every edge e, as float32."""
    table = table.astype(np.float32)
    if is_torch(source) and source.device.type != "cpu":
        # On another device torch indexes there; in CPU memory the numba kernel does.
        if not is_torch(row):
            row = convert_like(row.astype(np.int64), source)
        if not is_torch(column):
            column = convert_like(column.astype(np.int64), source)
        row_of_edge = row[target].long()
        column_of_edge = column[source].long()
        return convert_like(table, source)[row_of_edge, column_of_edge]
    indices = map(to_numpy, (row, column, target, source))
    return convert_like(group_kernels.lookup(table, *indices), source)


def spd_transport(source: Array, goal: Array, floors: tuple[Array, Array], dtype: Any) -> Array:
    """Compute the symmetric positive maps A with A Σ A = Γ, from `source` Σ to `goal` Γ.

    Σ is [..., K, f, f], Γ is [..., f, f]. A = Σ^-½ (Σ^½ Γ Σ^½)^½ Σ^-½, with eigenvalues raised to
    the floors [..., K] and [...]. Eigenvalues are computed in the type of `source`, maps and
    gradients in `dtype`.
    """
    return _groups(source).spd_transport(source, goal, floors, dtype)


def _groups(values: Array) -> ModuleType:
    """The module with the grouped operations for `values`; only tensors need torch."""
    if not is_torch(values):
        return numpy_groups
    from impact_gnn._array import torch_groups

    return torch_groups
