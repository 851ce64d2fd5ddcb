"""Torch versions of the operations of `impact_gnn._array`, with explicit gradients for layers.

Tensors in CPU memory share it with numpy, so both directions run the numba kernels. Imported only
for a tensor.
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

from impact_gnn._array import group_kernels, matrices

GATHERED = 1 << 22  # elements of maps up to which one batched product beats a loop over groups
ALONE = 64  # columns from which each eigendecomposition has its own thread


def group_moments(values: Tensor, group: Tensor, num_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    if _shares_memory(values) and not values.requires_grad:
        count, mean, squares = group_kernels.moments(values.numpy(), group.numpy(), num_groups)
        return torch.from_numpy(count), torch.from_numpy(mean), torch.from_numpy(squares)
    is_grouped = group >= 0
    rows = values[is_grouped].double()
    index = group[is_grouped].long()
    empty = torch.zeros(num_groups, values.shape[1], dtype=torch.float64, device=values.device)
    size = torch.bincount(index, minlength=num_groups).double()
    center = empty.index_add(0, index, rows) / size.clamp(min=1)[:, None]
    return size, center, empty.index_add(0, index, (rows - center[index]).square())


def group_affine(
    values: Tensor, group: Tensor, origin: Tensor, scale: Tensor, goal: Tensor
) -> Tensor:
    if scale.dim() == 1:
        scale = scale[:, None]
    needs_gradient = any(part.requires_grad for part in (values, origin, scale, goal))
    if _shares_memory(values) and not needs_gradient:
        tables = (table.double().numpy() for table in (origin, scale, goal))
        return torch.from_numpy(group_kernels.affine(values.numpy(), group.numpy(), *tables))
    row = group.clamp(min=0).long()
    moved = (values - origin[row]) * scale[row] + goal[row]
    return torch.where((group >= 0)[:, None], moved.to(values.dtype), values)


def group_scatter(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    if _shares_memory(values):
        return _Scatter.apply(values, group, num_groups)
    total = torch.zeros(
        num_groups, values.shape[1], values.shape[1], dtype=torch.float64, device=values.device
    )
    _, mean, _ = group_moments(values, group, num_groups)
    for g in torch.unique(group[group >= 0]).tolist():
        deviation = values[group == g].double() - mean[g]
        total[g] = deviation.mT @ deviation
    return total


def group_map(values: Tensor, group: Tensor, maps: Tensor, family: np.ndarray) -> Tensor:
    if _shares_memory(values):
        return _Map.apply(values, group, maps, family)
    row = group.clamp(min=0).long()
    of_group = torch.from_numpy(family).to(values.device)
    by_family = torch.where(group < 0, group, of_group[row].to(group.dtype))
    center = group_moments(values, by_family, int(family.max()) + 1)[1][of_group]
    work = values.dtype if values.dtype.itemsize >= 4 else torch.float32
    # Subtracted in float64: a mean may be far from zero.
    deviation = (values - center[row]).to(work)
    if len(values) * values.shape[1] ** 2 <= GATHERED:
        turned = torch.bmm(maps.to(work)[row], deviation[:, :, None])[:, :, 0]
    else:
        turned = torch.zeros_like(deviation)
        for g in torch.unique(group[group >= 0]).tolist():
            rows = torch.nonzero(group == g)[:, 0]
            turned = turned.index_copy(0, rows, deviation[rows] @ maps[g].to(work).mT)
    return torch.where((group >= 0)[:, None], (turned + center[row]).to(values.dtype), values)


def group_renormalize(
    values: Tensor,
    group: Tensor,
    moved: Tensor,
    num_groups: int,
    tables: Callable[..., tuple[Any, Any, Any]],
    pullback: Callable[..., tuple[np.ndarray, np.ndarray]],
    by_column: bool,
) -> Tensor:
    if not _shares_memory(values):
        return group_affine(values, moved, *tables(*group_moments(values, group, num_groups)))
    return _Renormalize.apply(values, group, moved, num_groups, tables, pullback, by_column)


def _shares_memory(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)


class _Renormalize(Function):
    """Moments, their tables, and the affine map: two passes forward, two backward."""

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        group: Tensor,
        moved: Tensor,
        num_groups: int,
        tables: Any,
        pullback: Any,
        by_column: bool,
    ) -> Tensor:
        array = values.detach().numpy()
        ctx.moments = group_kernels.moments(array, group.numpy(), num_groups, by_column=by_column)
        origin, scale, goal = tables(*ctx.moments)
        ctx.origin = origin
        ctx.scale = scale[:, None] if scale.ndim == 1 else scale
        ctx.pullback = pullback
        ctx.save_for_backward(values, group, moved)
        return torch.from_numpy(group_kernels.affine(array, moved.numpy(), origin, scale, goal))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, group, moved = (part.detach().numpy() for part in ctx.saved_tensors)
        upstream = grad.contiguous().numpy()
        total, dot = group_kernels.group_dot(upstream, values, moved, ctx.origin)
        by_scale = dot.sum(1) if ctx.scale.shape[1] == 1 else dot
        by_mean, by_squares = ctx.pullback(*ctx.moments, -ctx.scale * total, by_scale, total)
        count, mean, _ = ctx.moments
        share = by_mean / np.maximum(count, 1)[:, None]
        back = group_kernels.affine_gradient(
            upstream, values, moved, ctx.scale, group, mean, 2 * by_squares, share
        )
        return torch.from_numpy(back), None, None, None, None, None, None


class _Scatter(Function):
    """Scatter matrices about the group means."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Tensor, num_groups: int) -> Tensor:
        array = values.detach().numpy()
        _, mean = group_kernels.means(array, group.numpy(), num_groups)
        ctx.save_for_backward(values, group, torch.from_numpy(mean))
        return torch.from_numpy(matrices.scatter(array, group.numpy(), mean))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, group, mean = (part.detach().numpy() for part in ctx.saved_tensors)
        back = matrices.scatter_gradient(values, group, mean, grad.numpy())
        return torch.from_numpy(back), None, None


class _Map(Function):
    """One linear map per group about the mean of its family."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, group: Tensor, maps: Tensor, family: np.ndarray
    ) -> Tensor:
        array = values.detach().numpy()
        ctx.family = family
        ctx.size, ctx.center = matrices.family_means(array, group.numpy(), family)
        ctx.save_for_backward(values, group, maps)
        mapped = matrices.apply(array, group.numpy(), maps.detach().numpy(), ctx.center)
        return torch.from_numpy(mapped)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, group, maps = (part.detach().numpy() for part in ctx.saved_tensors)
        upstream = grad.contiguous().numpy()
        gradient = matrices.family_gradient(upstream, group, maps, ctx.family, ctx.size)
        back = torch.from_numpy(gradient)
        if not ctx.needs_input_grad[2]:
            return back, None, None, None
        by_maps = matrices.outer(upstream, values, group, ctx.center)
        return back, None, torch.from_numpy(by_maps.astype(maps.dtype, copy=False)), None


class Transport(Function):
    """The symmetric map A with A Σ A = Γ.

    With Γ = L Lᵀ and Lᵀ Σ L = V diag(γ) Vᵀ, the columns of F = L V diagonalise both at once:
    Γ = F Fᵀ, Σ = F⁻ᵀ diag(γ) F⁻¹ and A = F diag(γ^-½) Fᵀ. Differentiating A Σ A = Γ then needs only
    divisions by γ_i^½ + γ_j^½ in the basis F, which are never 0/0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        source: Tensor,
        goal: Tensor,
        source_floor: Tensor,
        goal_floor: Tensor,
        dtype: torch.dtype,
    ) -> Tensor:
        narrow = lambda values: values.to(dtype)  # noqa: E731
        maps, parts = matrices.transport(
            torch, eigh, narrow, source, goal, source_floor, goal_floor
        )
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
        return by_source, basis @ by_goal @ basis.mT, None, None, None


def eigh(batch: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `torch.linalg.eigh` with one thread per large matrix: many threads on one wait."""
    flat = batch.reshape(-1, *batch.shape[-2:])
    threads = torch.get_num_threads()
    workers = min(threads, len(flat))
    if batch.device.type != "cpu" or batch.shape[-1] < ALONE or workers < 2:
        return torch.linalg.eigh(batch)
    values = flat.new_empty(flat.shape[:-1])
    vectors = torch.empty_like(flat)

    def decompose(part: slice) -> None:
        torch.set_num_threads(1)  # of this worker
        values[part], vectors[part] = torch.linalg.eigh(flat[part])

    borders = [len(flat) * k // workers for k in range(workers + 1)]
    try:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(decompose, map(slice, borders[:-1], borders[1:])))
    finally:
        torch.set_num_threads(threads)
    return values.reshape(batch.shape[:-1]), vectors.reshape(batch.shape)


def _floor_slope(values: Tensor, raised: Tensor) -> Tensor:
    """Return difference quotients of floored eigenvalues: 1 above the floor, 0 below."""
    step = values[..., :, None] - values[..., None, :]
    raised_step = raised[..., :, None] - raised[..., None, :]
    follows = (raised == values).to(values.dtype)
    slope = 0.5 * (follows[..., :, None] + follows[..., None, :])  # where eigenvalues are equal
    quotient = raised_step / torch.where(step == 0, torch.ones_like(step), step)
    return torch.where(step == 0, slope, quotient)
