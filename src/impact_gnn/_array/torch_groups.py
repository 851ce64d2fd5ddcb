"""Torch versions of the grouped operations of `impact_gnn._array`. Imported only for a tensor.

Moments and affine maps of float tensors in CPU memory, which they share with numpy, run the numba
kernels in both directions. All else is differentiable torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from impact_gnn._array import group_kernels, numpy_groups


def group_moments(values: Tensor, group: Tensor, num_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    if _shares_memory(values):
        return _Moments.apply(values, group, num_groups)
    is_grouped = group >= 0
    rows = values[is_grouped].double()
    index = group[is_grouped].long()
    zeros = rows.new_zeros(num_groups, rows.shape[1])
    count = torch.bincount(index, minlength=num_groups).double()
    # Two passes: the means [G, f], then squares of deviations from them.
    total = zeros.index_add(0, index, rows)
    mean = total / count.clamp(min=1)[:, None]
    deviation = rows - mean[index]
    return count, mean, zeros.index_add(0, index, deviation.square())


def group_affine(
    values: Tensor, group: Tensor, origin: Tensor, scale: Tensor, goal: Tensor
) -> Tensor:
    if _shares_memory(values):
        tables = (origin, scale.expand_as(origin), goal)
        return _Affine.apply(values, group, *(table.double() for table in tables))
    # Rows without a group read entry 0, and are put back by `where`.
    row = group.clamp(min=0).long()
    moved = (values - origin[row]) * scale[row] + goal[row]
    is_grouped = (group >= 0)[:, None]
    return torch.where(is_grouped, moved.to(values.dtype), values)


def group_scatter(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    # The gradient through the means adds up to zero.
    _, mean, _ = group_moments(values.detach(), group, num_groups)
    deviation = _deviations(values, group, mean)
    order, sizes = _sorted_by_group(group, num_groups)
    # The first piece are rows without a group.
    _, *pieces = deviation.index_select(0, order).split(sizes)
    products = [piece.mT @ piece for piece in pieces]
    return torch.stack(products).double()


def group_map(values: Tensor, group: Tensor, maps: Tensor, family: np.ndarray) -> Tensor:
    # Means [G, f] over the rows of a group's family.
    family_of = torch.from_numpy(family).to(values.device)
    by_family = family_of[group.clamp(min=0).long()]
    by_family = torch.where(group < 0, group, by_family.to(group.dtype))
    num_families = int(family.max()) + 1
    _, family_mean, _ = group_moments(values, by_family, num_families)
    center = family_mean[family_of]
    deviation = _deviations(values, group, center)
    # One product per group, in the order of the groups. The first piece are rows without a group.
    order, sizes = _sorted_by_group(group, len(maps))
    rest, *pieces = deviation.index_select(0, order).split(sizes)
    # Transposed, because rows are vectors.
    transposed = maps.to(deviation.dtype).mT
    turned = [piece @ matrix for piece, matrix in zip(pieces, transposed, strict=True)]
    sorted_rows = torch.cat([rest, *turned])
    rows = torch.empty_like(deviation).index_copy(0, order, sorted_rows)
    # Back to the mean.
    zeros = torch.zeros_like(center)
    moved = group_affine(rows, group, zeros, torch.ones_like(center), center)
    return moved.to(values.dtype)


def spd_transport(
    source: Tensor, goal: Tensor, floors: tuple[Tensor, Tensor], dtype: torch.dtype
) -> Tensor:
    return _Transport.apply(source, goal, floors, dtype)


def _shares_memory(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)


def _deviations(values: Tensor, group: Tensor, mean: Tensor) -> Tensor:
    """Return x − mean_g in at least float32; subtracted in float64, as a mean may be far from 0."""
    if values.dtype.itemsize < 4:
        values = values.float()
    ones = torch.ones_like(mean)
    return group_affine(values, group, mean, ones, torch.zeros_like(mean))


def _arrays(tensors: Iterable[Tensor]) -> list[np.ndarray]:
    return [tensor.detach().numpy() for tensor in tensors]


def _sorted_by_group(group: Tensor, num_groups: int) -> tuple[Tensor, list[int]]:
    """Return row numbers by group, and the number of rows without a group and of each group."""
    # Shifted by one: group −1 is counted at 0.
    sizes = torch.bincount(group.long() + 1, minlength=num_groups + 1)
    return torch.argsort(group, stable=True), sizes.tolist()


class _Moments(Function):
    """Count, mean and squared deviations of groups: one pass forward, one backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, num_groups: int) -> tuple[Tensor, ...]:
        moments = numpy_groups.group_moments(values.detach().numpy(), group.numpy(), num_groups)
        count, mean, squares = map(torch.from_numpy, moments)
        ctx.mark_non_differentiable(count)
        ctx.save_for_backward(values, group, count, mean)
        return count, mean, squares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, by_mean: Tensor, by_squares: Tensor) -> tuple[Any, ...]:
        values, group, count, mean = _arrays(ctx.saved_tensors)
        # dL/dx = 2·by_squares·(x − mean) + by_mean / count.
        scale = 2 * by_squares.numpy()
        goal = by_mean.numpy() / np.maximum(count, 1)[:, None]
        # Rows without a group get the entry of one more group, which is zero.
        one_more = ((0, 1), (0, 0))
        tables = [np.pad(table, one_more) for table in (mean, scale, goal)]
        row = np.where(group < 0, len(count), group)
        by_values = numpy_groups.group_affine(values, row, *tables)
        return torch.from_numpy(by_values), None, None


class _Affine(Function):
    """(x − origin_g)·scale_g + goal_g with tables [G, f]: one pass forward, two backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(values, group, *tables)
        arrays = _arrays([values, group, *tables])
        return torch.from_numpy(numpy_groups.group_affine(*arrays))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        values, group, origin, scale, _ = _arrays(ctx.saved_tensors)
        upstream = grad.contiguous().numpy()
        zeros = np.zeros(origin.shape)
        # dL/dx = upstream·scale; rows without a group pass the gradient unchanged.
        scaled = numpy_groups.group_affine(upstream, group, zeros, scale, zeros)
        by_values = torch.from_numpy(scaled)
        if not any(ctx.needs_input_grad[2:]):
            return by_values, None, None, None, None
        total, dot = group_kernels.group_dot(upstream, values, group, origin)
        # Gradients of origin, scale and goal, [G, f] each.
        by_tables = map(torch.from_numpy, (-scale * total, dot, total))
        return by_values, None, *by_tables


class _Transport(Function):
    """The symmetric map A with A Σ A = Γ.

    With Γ = L Lᵀ and Lᵀ Σ L = V diag(γ) Vᵀ, the columns of F = L V diagonalise both at once:
    Γ = F Fᵀ, Σ = F⁻ᵀ diag(γ) F⁻¹ and A = F diag(γ^-½) Fᵀ. Differentiating A Σ A = Γ then needs only
    divisions by γ_i^½ + γ_j^½ in the basis F, which are never 0/0. The gradient of
    `torch.linalg.eigh` is not finite where eigenvalues are equal.
    """

    @staticmethod
    def forward(
        ctx: Any,
        source: Tensor,
        goal: Tensor,
        floors: tuple[Tensor, Tensor],
        dtype: torch.dtype,
    ) -> Tensor:
        maps, parts = numpy_groups.transport(torch, source, goal, floors, dtype)
        ctx.save_for_backward(*parts)
        return maps

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, raised, basis, inner, gamma, frame, follows = ctx.saved_tensors
        # The gradient in the basis F, divided by γ_i^½ + γ_j^½ and symmetric.
        root = gamma.sqrt()
        pair_sum = root[..., :, None] + root[..., None, :]
        turned = frame.mT @ grad @ frame / pair_sum
        turned = 0.5 * (turned + turned.mT)
        # Back to Σ, where floored eigenvalues have no gradient.
        scaled = frame * (-follows / root)[..., None, :]
        by_source = -(scaled @ turned @ scaled.mT).to(values.dtype)
        # Back to Γ, summed over the maps that share it, in its eigenbasis.
        summed = (inner @ turned @ inner.mT).sum(-3).to(values.dtype)
        scale = (raised[..., :, None] * raised[..., None, :]).sqrt()
        by_eigenbasis = summed * _floor_slope(values, raised) / scale
        by_goal = basis @ by_eigenbasis @ basis.mT
        return by_source, by_goal, None, None


def _floor_slope(values: Tensor, raised: Tensor) -> Tensor:
    """Return difference quotients of floored eigenvalues: 1 above the floor, 0 below."""
    # Differences of all pairs of eigenvalues before and after the floor, [..., f, f].
    step = values[..., :, None] - values[..., None, :]
    raised_step = raised[..., :, None] - raised[..., None, :]
    # Where eigenvalues are equal, the mean of both slopes.
    follows = (raised == values).to(values.dtype)
    slope = 0.5 * (follows[..., :, None] + follows[..., None, :])
    is_equal = step == 0
    quotient = raised_step / torch.where(is_equal, 1.0, step)
    return torch.where(is_equal, slope, quotient)
