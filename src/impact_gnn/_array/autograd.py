"""Torch forms of the grouped operations, each with its gradient written out.

Tensors in CPU memory share it with numpy, so forward and backward both run the numba kernels; elsewhere
`index_add` does the same sums on the device. Imported only once a tensor has arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from impact_gnn._array import kernels, matrices

GATHERED = 1 << 22
"""Elements of maps that may be gathered row by row on a device: one batched product beats a loop over groups."""

ALONE = 64
"""Columns from which an eigendecomposition is a thread's work."""


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
    if _shares_memory(values):
        return _Map.apply(values, group, maps, center)
    row = group.clamp(min=0).long()
    work = values.dtype if values.dtype.itemsize >= 4 else torch.float32
    deviation = (values - center[row]).to(work)  # subtracted in float64: a mean may be far from zero
    if len(values) * values.shape[1] ** 2 <= GATHERED:
        turned = torch.bmm(maps.to(work)[row], deviation[:, :, None])[:, :, 0]
    else:
        turned = torch.zeros_like(deviation)
        for g in torch.unique(group[group >= 0]).tolist():
            rows = torch.nonzero(group == g)[:, 0]
            turned = turned.index_copy(0, rows, deviation[rows] @ maps[g].to(work).mT)
    moved = turned + center[row]
    return torch.where((group >= 0)[:, None], moved.to(values.dtype), values)


def group_map_about_means(values: Tensor, group: Tensor, maps: Tensor, family: np.ndarray) -> Tensor:
    """See `impact_gnn._array.group_map_about_means`."""
    if _shares_memory(values):
        return _MapAboutMeans.apply(values, group, maps, family)
    of_group = torch.from_numpy(family).to(values.device)
    by_family = torch.where(group < 0, group, of_group[group.clamp(min=0).long()].to(group.dtype))
    _, mean, _ = _group_moments_on_device(values, by_family, int(family.max()) + 1)
    return group_map(values, group, maps, mean[of_group])


def group_renormalize(
    values: Tensor,
    group: Tensor,
    moved: Tensor,
    num_groups: int,
    tables: Callable[..., tuple[Any, Any, Any]],
    pullback: Callable[..., tuple[np.ndarray, np.ndarray]],
) -> Tensor:
    """See `impact_gnn._array.group_renormalize`."""
    if not _shares_memory(values):
        return group_affine(values, moved, *tables(*group_moments(values, group, num_groups)))
    return _Renormalize.apply(values, group, moved, num_groups, tables, pullback)


def spd_roots(batch: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
    """See `impact_gnn._array.spd_roots`."""
    return _Roots.apply(batch, floor)


def spd_transport(source: Tensor, goal: Tensor, source_floor: Tensor, goal_floor: Tensor, dtype: torch.dtype) -> Tensor:
    """See `impact_gnn._array.spd_transport`."""
    return _Transport.apply(source, goal, source_floor, goal_floor, dtype)


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


class _Renormalize(Function):
    """Moments, tables made of them, and the affine map by the tables: two passes forward, two backward."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, group: Tensor, moved: Tensor, num_groups: int, tables: Any, pullback: Any
    ) -> Tensor:
        array, where = values.detach().numpy(), moved.numpy()
        ctx.moments = kernels.moments(array, group.numpy(), num_groups)
        origin, scale, goal = tables(*ctx.moments)
        ctx.origin, ctx.scale, ctx.pullback = origin, scale[:, None] if scale.ndim == 1 else scale, pullback
        ctx.save_for_backward(values, group, moved)
        return torch.from_numpy(kernels.affine(array, where, origin, scale, goal))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, group, moved = (part.detach().numpy() for part in ctx.saved_tensors)
        upstream = grad.contiguous().numpy()
        total, dot = kernels.group_dot(upstream, values, moved, ctx.origin)
        by_scale = dot.sum(1) if ctx.scale.shape[1] == 1 else dot
        by_mean, by_squares = ctx.pullback(*ctx.moments, -ctx.scale * total, by_scale, total)
        count, mean, _ = ctx.moments
        share = by_mean / np.maximum(count, 1)[:, None]
        back = kernels.affine_gradient(upstream, values, moved, ctx.scale, group, mean, 2 * by_squares, share)
        return torch.from_numpy(back), None, None, None, None, None


class _Scatter(Function):
    """Scatter matrices about the group means."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, num_groups: int) -> Tensor:
        array = values.detach().numpy()
        _, mean = kernels.means(array, group.numpy(), num_groups)
        ctx.save_for_backward(values, group, torch.from_numpy(mean))
        return torch.from_numpy(matrices.scatter_about(array, group.numpy(), mean))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, group, mean = (part.detach().numpy() for part in ctx.saved_tensors)
        return torch.from_numpy(matrices.scatter_gradient(values, group, mean, grad.numpy())), None, None


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
        _, _, maps, center = ctx.saved_tensors
        arrays = (part.detach().numpy() for part in (grad.contiguous(), *ctx.saved_tensors))
        back, by_maps, by_center = matrices.apply_gradient(*arrays, for_maps=ctx.needs_input_grad[2])
        for_maps = None if by_maps is None else torch.from_numpy(by_maps).to(maps.dtype)
        return torch.from_numpy(back), None, for_maps, torch.from_numpy(by_center).to(center.dtype)


class _MapAboutMeans(Function):
    """One linear map per group about the mean of its family."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, maps: Tensor, family: np.ndarray) -> Tensor:
        array, where = values.detach().numpy(), group.numpy()
        ctx.family = family
        ctx.size, ctx.center = matrices.family_means(array, where, family)
        ctx.save_for_backward(values, group, maps)
        return torch.from_numpy(matrices.apply(array, where, maps.detach().numpy(), ctx.center))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, group, maps = (part.detach().numpy() for part in ctx.saved_tensors)
        upstream = grad.contiguous().numpy()
        back = torch.from_numpy(matrices.family_gradient(upstream, group, maps, ctx.family, ctx.size))
        if not ctx.needs_input_grad[2]:
            return back, None, None, None
        by_maps = matrices.outer(upstream, values, group, ctx.center)
        return back, None, torch.from_numpy(by_maps.astype(maps.dtype, copy=False)), None


class _Transport(Function):
    """The symmetric map A with A Σ A = Γ.

    With Γ = L Lᵀ and Lᵀ Σ L = V diag(γ) Vᵀ, the columns of F = L V diagonalise both at once: Γ = F Fᵀ,
    Σ = F⁻ᵀ diag(γ) F⁻¹ and A = F diag(γ^-½) Fᵀ. Differentiating A Σ A = Γ then needs no more than divisions by
    γ_i^½ + γ_j^½ in the basis F, which are never 0/0.
    """

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, goal: Tensor, source_floor: Tensor, goal_floor: Tensor, dtype: torch.dtype
    ) -> Tensor:
        def narrow(values: Tensor) -> Tensor:
            return values.to(dtype)

        maps, parts = matrices.transport(torch, eigh, narrow, source, goal, source_floor, goal_floor)
        ctx.save_for_backward(*parts)
        return maps

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, raised, basis, inner, gamma, frame, follows = ctx.saved_tensors
        root = gamma.sqrt()
        turned = frame.mT @ grad @ frame / (root[..., :, None] + root[..., None, :])
        turned = 0.5 * (turned + turned.mT)
        scaled = frame * (-follows / root)[..., None, :]
        by_source = -(scaled @ turned @ scaled.mT).to(values.dtype)
        whole = (inner @ turned @ inner.mT).sum(-3).to(values.dtype)
        whole = whole * _ratio(values, raised) / (raised[..., :, None] * raised[..., None, :]).sqrt()
        return by_source, basis @ whole @ basis.mT, None, None, None


class _Roots(Function):
    """Symmetric square root and inverse square root, differentiable where eigenvalues coincide.

    For A = U diag(λ) Uᵀ and a function h, dh(A) = U (F ∘ (Uᵀ dA U)) Uᵀ with F_ij the divided difference
    of h at λ_i, λ_j; for the two roots it is 1/(√λ_i+√λ_j) and −1/(√λ_i √λ_j (√λ_i+√λ_j)): never 0/0.
    """

    @staticmethod
    def forward(ctx: Any, batch: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = eigh(batch)
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
        ratio = _ratio(values, raised)
        first = vectors.mT @ grad_root @ vectors * (ratio / pair_sum)
        second = vectors.mT @ grad_inverse @ vectors * (-ratio / (pair_sum * pair_product))
        grad = vectors @ (first + second) @ vectors.mT
        return 0.5 * (grad + grad.mT), None


def eigh(batch: Tensor) -> tuple[Tensor, Tensor]:
    """`torch.linalg.eigh`; large matrices in CPU memory are shared among threads, one matrix to a thread.

    A thread to a matrix scales; many threads on one matrix of a few hundred columns mostly wait for each other.
    """
    flat = batch.reshape(-1, *batch.shape[-2:])
    workers = min(torch.get_num_threads(), len(flat))
    if batch.device.type != "cpu" or batch.shape[-1] < ALONE or workers < 2:
        return torch.linalg.eigh(batch)
    before = torch.get_num_threads()
    values, vectors = flat.new_empty(flat.shape[:-1]), torch.empty_like(flat)

    def decompose(part: slice) -> None:
        torch.set_num_threads(1)  # of this worker
        values[part], vectors[part] = torch.linalg.eigh(flat[part])

    borders = [len(flat) * k // workers for k in range(workers + 1)]
    try:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(decompose, map(slice, borders[:-1], borders[1:])))
    finally:
        torch.set_num_threads(before)
    return values.reshape(batch.shape[:-1]), vectors.reshape(batch.shape)


def _ratio(values: Tensor, raised: Tensor) -> Tensor:
    """How far raised eigenvalues still follow the given ones: 1 above the floor, 0 below, a quotient across."""
    step = values[..., :, None] - values[..., None, :]
    raised_step = raised[..., :, None] - raised[..., None, :]
    follows = (raised == values).to(values.dtype)
    both = 0.5 * (follows[..., :, None] + follows[..., None, :])
    return torch.where(step == 0, both, raised_step / torch.where(step == 0, torch.ones_like(step), step))
