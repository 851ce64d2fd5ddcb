"""Torch versions of the grouped operations of `impact_gnn._array`. Imported only for a tensor.

Moments and affine maps of float tensors in CPU memory, which they share with numpy, run the numba
kernels in both directions. All else is differentiable torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from impact_gnn._array import group_kernels, matrices


def group_moments(values: Tensor, group: Tensor, num_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    if _shares_memory(values):
        return _Moments.apply(values, group, num_groups)
    is_grouped = group >= 0
    rows = values[is_grouped].double()
    index = group[is_grouped].long()
    empty = torch.zeros(num_groups, values.shape[1], dtype=torch.float64, device=values.device)
    count = torch.bincount(index, minlength=num_groups).double()
    # Two passes: the means [G, f], then squares of deviations from them.
    mean = empty.index_add(0, index, rows) / count.clamp(min=1)[:, None]
    return count, mean, empty.index_add(0, index, (rows - mean[index]).square())


def group_affine(
    values: Tensor, group: Tensor, origin: Tensor, scale: Tensor, goal: Tensor
) -> Tensor:
    if scale.dim() == 1:
        scale = scale[:, None]
    if _shares_memory(values):
        tables = (origin.double(), scale.double().expand_as(origin), goal.double())
        return _Affine.apply(values, group, *tables)
    # Rows without a group read entry 0, and are put back by `where`.
    row = group.clamp(min=0).long()
    moved = (values - origin[row]) * scale[row] + goal[row]
    return torch.where((group >= 0)[:, None], moved.to(values.dtype), values)


def group_scatter(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    # The gradient through the means adds up to zero.
    mean = group_moments(values.detach(), group, num_groups)[1]
    work = _at_least_float32(values)
    deviation = group_affine(work, group, mean, torch.ones_like(mean), torch.zeros_like(mean))
    order, sizes = _sorted_by_group(group, num_groups)
    # The first piece are rows without a group.
    _, *pieces = deviation.index_select(0, order).split(sizes)
    return torch.stack([piece.mT @ piece for piece in pieces]).double()


def group_map(values: Tensor, group: Tensor, maps: Tensor, family: np.ndarray) -> Tensor:
    # Means [G, f] over the rows of a group's family.
    family_of = torch.from_numpy(family).to(values.device)
    by_family = family_of[group.clamp(min=0).long()].to(group.dtype)
    by_family = torch.where(group < 0, group, by_family)
    center = group_moments(values, by_family, int(family.max()) + 1)[1][family_of]
    # Deviations are subtracted in float64, since a mean may be far from zero.
    work = _at_least_float32(values)
    zeros = torch.zeros_like(center)
    ones = torch.ones_like(center)
    deviation = group_affine(work, group, center, ones, zeros)
    # One product per group, in the order of the groups. The first piece are rows without a group.
    order, sizes = _sorted_by_group(group, len(maps))
    rest, *pieces = deviation.index_select(0, order).split(sizes)
    # Transposed, because rows are vectors.
    matrices_of_group = maps.to(work.dtype).mT.unbind()
    turned = [piece @ matrix for piece, matrix in zip(pieces, matrices_of_group, strict=True)]
    rows = torch.empty_like(work).index_copy(0, order, torch.cat([rest, *turned]))
    return group_affine(rows, group, zeros, ones, center).to(values.dtype)


def _shares_memory(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)


def _at_least_float32(values: Tensor) -> Tensor:
    return values.float() if values.dtype.itemsize < 4 else values


def _sorted_by_group(group: Tensor, num_groups: int) -> tuple[Tensor, list[int]]:
    """Return row numbers by group, and the number of rows without a group and of each group."""
    # Shifted by one: group −1 is counted at 0.
    sizes = torch.bincount(group.long() + 1, minlength=num_groups + 1)
    return torch.argsort(group, stable=True), sizes.tolist()


class _Moments(Function):
    """Count, mean and squared deviations of groups: one pass forward, one backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, num_groups: int) -> tuple[Tensor, ...]:
        sums = group_kernels.moments(values.detach().numpy(), group.numpy(), num_groups)
        count, mean, squares = map(torch.from_numpy, sums)
        ctx.mark_non_differentiable(count)
        ctx.save_for_backward(values, group, count, mean)
        return count, mean, squares

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, by_mean: Tensor, by_squares: Tensor) -> tuple[Any, ...]:
        values, group, count, mean = (part.detach().numpy() for part in ctx.saved_tensors)
        # dL/dx = 2·by_squares·(x − mean) + by_mean / count. Rows without a group get the entry of
        # one more group, which is zero.
        origin = np.pad(mean, ((0, 1), (0, 0)))
        scale = np.pad(2 * by_squares.numpy(), ((0, 1), (0, 0)))
        goal = np.pad(by_mean.numpy() / np.maximum(count, 1)[:, None], ((0, 1), (0, 0)))
        row = np.where(group < 0, len(count), group)
        return torch.from_numpy(group_kernels.affine(values, row, origin, scale, goal)), None, None


class _Affine(Function):
    """(x − origin_g)·scale_g + goal_g with tables [G, f]: one pass forward, two backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(values, group, *tables)
        arrays = (part.detach().numpy() for part in (values, group, *tables))
        return torch.from_numpy(group_kernels.affine(*arrays))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        values, group, origin, scale, _ = (part.detach().numpy() for part in ctx.saved_tensors)
        upstream = grad.contiguous().numpy()
        zeros = np.zeros(origin.shape)
        # dL/dx = upstream·scale; rows without a group pass the gradient unchanged.
        by_values = torch.from_numpy(group_kernels.affine(upstream, group, zeros, scale, zeros))
        if not any(ctx.needs_input_grad[2:]):
            return by_values, None, None, None, None
        total, dot = group_kernels.group_dot(upstream, values, group, origin)
        # Gradients of origin, scale and goal, [G, f] each.
        by_tables = map(torch.from_numpy, (-scale * total, dot, total))
        return by_values, None, *by_tables


class Transport(Function):
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
        maps, parts = matrices.transport(torch, source, goal, floors, dtype)
        ctx.save_for_backward(*parts)
        return maps

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, raised, basis, inner, gamma, frame, follows = ctx.saved_tensors
        # The gradient in the basis F, divided by γ_i^½ + γ_j^½ and symmetric.
        root = gamma.sqrt()
        turned = frame.mT @ grad @ frame / (root[..., :, None] + root[..., None, :])
        turned = 0.5 * (turned + turned.mT)
        # Back to Σ, where floored eigenvalues have no gradient.
        scaled = frame * (-follows / root)[..., None, :]
        by_source = -(scaled @ turned @ scaled.mT).to(values.dtype)
        # Back to Γ, summed over the maps that share it, in its eigenbasis.
        by_goal = (inner @ turned @ inner.mT).sum(-3).to(values.dtype)
        scale = (raised[..., :, None] * raised[..., None, :]).sqrt()
        by_goal = by_goal * _floor_slope(values, raised) / scale
        return by_source, basis @ by_goal @ basis.mT, None, None


def _floor_slope(values: Tensor, raised: Tensor) -> Tensor:
    """Return difference quotients of floored eigenvalues: 1 above the floor, 0 below."""
    # Differences of all pairs of eigenvalues before and after the floor, [..., f, f].
    step = values[..., :, None] - values[..., None, :]
    raised_step = raised[..., :, None] - raised[..., None, :]
    follows = (raised == values).to(values.dtype)
    slope = 0.5 * (follows[..., :, None] + follows[..., None, :])  # where eigenvalues are equal
    quotient = raised_step / torch.where(step == 0, torch.ones_like(step), step)
    return torch.where(step == 0, slope, quotient)
