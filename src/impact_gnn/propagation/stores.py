"""Sums that are added up block by block: arrays in memory, or in files where an engine works on files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np

from impact_gnn import _files
from impact_gnn.propagation import paging
from impact_gnn.propagation.paging import Stored

Store: TypeAlias = "np.ndarray | Stored"
"""A matrix in memory or in a file."""


def zeros(shape: tuple[int, int], dtype: np.dtype | type, place: Path | None, name: str) -> Store:
    """A matrix of zeros, in the file `<place>/<name>.npy` if there is a place.

    A file of that name is replaced; maps of it that are still open keep their content.
    """
    if place is None:
        return np.zeros(shape, dtype)
    return paging.create(place / f"{name}.npy", dtype, shape)


def opened(store: Store) -> np.ndarray:
    """The matrix as an array or memory map."""
    return _files.open_array(store.path) if isinstance(store, Stored) else store


def scaled(x: np.ndarray, factor: np.ndarray, place: Path | None, name: str) -> np.ndarray:
    """`x` with row v multiplied by factor[v]; `x` itself where all factors are 1."""
    if (factor == 1).all():
        return x
    if place is not None:
        place = place.with_name(place.name + "-x")
    out = zeros(x.shape, x.dtype, place, name)
    with paging.reading(x) as file:
        for first, last in blocks(x):
            write(out, first, file.read(first, last) * factor[first:last, None].astype(x.dtype))
    return opened(out)


def add(store: Store, hop: np.ndarray, factor: np.ndarray) -> None:
    """Adds `hop`, row v multiplied by factor[v], to the matrix."""
    with paging.reading(hop) as file, paging.reading(store) as now:
        for first, last in blocks(hop):
            part = file.read(first, last) * factor[first:last, None].astype(store.dtype)
            write(store, first, now.read(first, last) + part)


def add_projected(store: Store, hop: np.ndarray, matrix: np.ndarray) -> None:
    """Adds `hop @ matrix` to the matrix."""
    with paging.reading(hop) as file, paging.reading(store) as now:
        for first, last in blocks(hop):
            part = file.read(first, last).astype(store.dtype, copy=False) @ matrix.astype(store.dtype)
            write(store, first, now.read(first, last) + part)


def scale(store: Store, factor: np.ndarray) -> None:
    """Multiplies row v by factor[v]."""
    with paging.reading(store) as now:
        for first, last in blocks(store):
            write(store, first, now.read(first, last) * factor[first:last, None].astype(store.dtype))


def write(store: Store, first: int, rows: np.ndarray) -> None:
    """Writes rows from row `first` on."""
    if isinstance(store, Stored):
        with store.opened(write=True) as file:
            file.write(first, rows)
    else:
        store[first : first + len(rows)] = rows


def blocks(store: Store) -> Iterator[tuple[int, int]]:
    """First and last row of blocks of some megabytes."""
    step = paging.block_rows(store)
    for first in range(0, store.shape[0], step):
        yield first, min(first + step, store.shape[0])
