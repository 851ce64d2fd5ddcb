"""Torch forms of the grouped operations, each with its gradient written out.

Tensors in CPU memory share it with numpy, so forward and backward both run the numba kernels; elsewhere
`index_add` does the same sums on the device. Imported only once a tensor has arrived.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from impact_gnn._array import kernels, matrices

GATHERED = 1 << 22
"""Elements of maps that may be gathered row by row: one batched product beats a loop over small groups."""


def group_moments(values: Tensor, group: Tensor, num_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """See `impact_gnn._array.group_moments`."""
    if not _shares_memory(values):
        return _group_moments_on_device(values, group, num_groups)
    return _Moments.apply(values, group, num_groups)


def group_affine(values: Tensor, group: Tensor, origin: Tensor, scale: Tensor, goal: Tensor) -> Tensor:
    """See `impact_gnn._array.group_affine`."""
    if scale.dim() == 1:
        scale = scale[:, None]
    if not _shares_memory(values):
        row = group.clamp(min=0).long()
        moved = (values - origin[row]) * scale[row] + goal[row]
        return torch.where((group >= 0)[:, None], moved.to(values.dtype), values)
    return _Affine.apply(values, group, origin, scale, goal)


def group_scatter(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """See `impact_gnn._array.group_scatter`."""
    if _shares_memory(values):
        return _Scatter.apply(values, group, num_groups)
    total = torch.zeros(num_groups, values.shape[1], values.shape[1], dtype=torch.float64, device=values.device)
    _, mean, _ = _group_moments_on_device(values, group, num_groups)
    for g in torch.unique(group[group >= 0]).tolist():
        deviation = values[group == g].double() - mean[g]
        total[g] = deviation.mT @ deviation
    return total


def group_map(values: Tensor, group: Tensor, maps: Tensor, center: Tensor) -> Tensor:
    """See `impact_gnn._array.group_map`."""
    small = len(values) * values.shape[1] ** 2 <= GATHERED
    if small or not _shares_memory(values):
        row = group.clamp(min=0).long()
        work = values.dtype if values.dtype.itemsize >= 4 else torch.float32
        deviation = (values - center[row]).to(work)  # subtracted in float64: a mean may be far from zero
        moved = torch.bmm(maps.to(work)[row], deviation[:, :, None])[:, :, 0] + center[row]
        return torch.where((group >= 0)[:, None], moved.to(values.dtype), values)
    return _Map.apply(values, group, maps, center)


def spd_roots(batch: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
    """See `impact_gnn._array.spd_roots`."""
    return _Roots.apply(batch, floor)


def _shares_memory(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)


def _group_moments_on_device(values: Tensor, group: Tensor, num_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    keep = group >= 0
    rows, index = values[keep].double(), group[keep].long()
    empty = torch.zeros(num_groups, values.shape[1], dtype=torch.float64, device=values.device)
    count = torch.bincount(index, minlength=num_groups).double()
    mean = empty.index_add(0, index, rows) / count.clamp(min=1)[:, None]
    return count, mean, empty.index_add(0, index, (rows - mean[index]).square())


class _Moments(Function):
    """Count, mean and squared deviations; dL/dx = grad_mean[g]/n[g] + 2·grad_deviation[g]·(x − mean[g])."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, num_groups: int) -> tuple[Tensor, ...]:
        sums = kernels.moments(values.detach().numpy(), group.numpy(), num_groups)
        count, mean, deviation = (torch.from_numpy(part) for part in sums)
        ctx.save_for_backward(values, group, count, mean)
        ctx.mark_non_differentiable(count)
        return count, mean, deviation

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, grad_mean: Tensor, grad_deviation: Tensor) -> tuple[Tensor | None, ...]:
        values, group, count, mean = ctx.saved_tensors
        share = grad_mean / count.clamp(min=1)[:, None]
        # A last group, all zeros, takes the rows that belong to none.
        tables = [torch.cat([table, table.new_zeros(1, table.shape[1])]) for table in (mean, 2 * grad_deviation, share)]
        row = torch.where(group < 0, torch.full_like(group, len(mean)), group)
        grad = kernels.affine(values.detach().numpy(), row.numpy(), *(table.numpy() for table in tables))
        return torch.from_numpy(grad), None, None


class _Affine(Function):
    """(x − origin[g])·scale[g] + goal[g], with gradients for all four."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, origin: Tensor, scale: Tensor, goal: Tensor) -> Tensor:
        ctx.save_for_backward(values, group, origin, scale)
        tables = (table.detach().double().numpy() for table in (origin, scale, goal))
        return torch.from_numpy(kernels.affine(values.detach().numpy(), group.numpy(), *tables))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, group, origin, scale = ctx.saved_tensors
        wide_scale = scale.detach().double()
        zero = torch.zeros(len(scale), values.shape[1], dtype=torch.float64)
        back = kernels.affine(grad.numpy(), group.numpy(), zero.numpy(), wide_scale.numpy(), zero.numpy())
        total, dot = (
            torch.from_numpy(part)
            for part in kernels.group_dot(
                grad.numpy(), values.detach().numpy(), group.numpy(), origin.detach().double().numpy()
            )
        )
        grad_scale = dot.sum(1, keepdim=True) if scale.shape[1] == 1 else dot
        return (
            torch.from_numpy(back),
            None,
            (-wide_scale * total).to(origin.dtype),
            grad_scale.to(scale.dtype),
            total.to(origin.dtype),
        )


class _Scatter(Function):
    """Scatter matrices about the group means."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, num_groups: int) -> Tensor:
        ctx.save_for_backward(values, group)
        ctx.num_groups = num_groups
        return torch.from_numpy(matrices.scatter(values.detach().numpy(), group.numpy(), num_groups))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, group = ctx.saved_tensors
        array = values.detach().numpy()
        _, mean, _ = kernels.moments(array, group.numpy(), ctx.num_groups)
        return torch.from_numpy(matrices.scatter_gradient(array, group.numpy(), mean, grad.numpy())), None, None


class _Map(Function):
    """One linear map per group about the group's centre."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, maps: Tensor, center: Tensor) -> Tensor:
        ctx.save_for_backward(values, group, maps, center)
        arrays = (part.detach().numpy() for part in (values, group, maps, center))
        return torch.from_numpy(matrices.apply(*arrays))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        arrays = (part.detach().numpy() for part in ctx.saved_tensors)
        back, grad_maps, grad_center = (torch.from_numpy(a) for a in matrices.apply_gradient(grad.numpy(), *arrays))
        return back, None, grad_maps.to(ctx.saved_tensors[2].dtype), grad_center.to(ctx.saved_tensors[3].dtype)


class _Roots(Function):
    """Symmetric square root and inverse square root, differentiable where eigenvalues coincide.

    For A = U diag(λ) Uᵀ and a function h, dh(A) = U (F ∘ (Uᵀ dA U)) Uᵀ with F_ij the divided difference
    of h at λ_i, λ_j; for the two roots it is 1/(√λ_i+√λ_j) and −1/(√λ_i √λ_j (√λ_i+√λ_j)): never 0/0.
    """

    @staticmethod
    def forward(ctx: Any, batch: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(batch)
        raised = torch.maximum(values, floor[..., None])
        ctx.save_for_backward(values, raised, vectors)
        root = raised.sqrt()[..., None, :]
        return (vectors * root) @ vectors.mT, (vectors / root) @ vectors.mT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_root: Tensor, grad_inverse: Tensor) -> tuple[Tensor | None, ...]:
        values, raised, vectors = ctx.saved_tensors
        root = raised.sqrt()
        pair_sum = root[..., :, None] + root[..., None, :]
        pair_product = root[..., :, None] * root[..., None, :]
        # How far raised eigenvalues still follow the given ones: 1 above the floor, 0 below, a quotient across.
        step = values[..., :, None] - values[..., None, :]
        raised_step = raised[..., :, None] - raised[..., None, :]
        follows = (raised == values).to(values.dtype)
        both = 0.5 * (follows[..., :, None] + follows[..., None, :])
        ratio = torch.where(step == 0, both, raised_step / torch.where(step == 0, torch.ones_like(step), step))
        first = vectors.mT @ grad_root @ vectors * (ratio / pair_sum)
        second = vectors.mT @ grad_inverse @ vectors * (-ratio / (pair_sum * pair_product))
        grad = vectors @ (first + second) @ vectors.mT
        return 0.5 * (grad + grad.mT), None
