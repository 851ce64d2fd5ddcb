"""Matrices of numbers in compressed CSV files without a header, read in blocks."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from impact_gnn.checks import InputError
from impact_gnn.data._reading import guarded

BLOCK = 1 << 24
"""Bytes of text that are parsed in one go."""


def matrix(path: Path, dtype: Any, *, rows: int | None = None, turned: bool = False) -> np.ndarray:
    """The numbers in a file, [rows, columns]; an empty field is NaN.

    Args:
        path: A `.csv.gz` file.
        dtype: Their type, which must hold them.
        rows: How many rows there must be; None for as many as there are.
        turned: Give [columns, rows].
    """
    return guarded(path, lambda: _matrix(path, np.dtype(dtype), rows, turned))


def table(path: Path, *, header: bool) -> list[list[str]]:
    """A small file as rows of text; the first row holds the names if it has a header."""

    def read() -> list[list[str]]:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
            found = [line.rstrip("\r\n").split(",") for line in lines if line.strip()]
        if len(found) < (2 if header else 1):
            raise InputError(f"{path} has too few rows; download it again.")
        return found

    return guarded(path, read)


def _matrix(path: Path, dtype: np.dtype, rows: int | None, turned: bool) -> np.ndarray:
    if rows is None:
        parts = list(_blocks(path, dtype))
        out = np.concatenate(parts, axis=1) if parts else np.empty((0, 0), dtype)
        return out if turned else np.ascontiguousarray(out.T)
    found, columns = None, 0
    done = 0
    for block in _blocks(path, dtype):
        if found is None:
            columns = len(block)
            found = np.empty((columns, rows) if turned else (rows, columns), dtype)
        here = block.shape[1]
        if done + here <= rows:
            (found if turned else found.T)[:, done : done + here] = block
        done += here
    if done != rows:
        raise InputError(f"{path} has {done} rows where {rows} belong; download it again.")
    return np.empty((columns, 0) if turned else (0, columns), dtype) if found is None else found


def _blocks(path: Path, dtype: np.dtype) -> Iterator[np.ndarray]:
    """Consecutive rows as [columns, rows]."""
    with gzip.open(path, "rt", encoding="ascii", newline="") as lines:
        first = lines.readline().strip()
    if not first:
        return
    kind = pa.from_numpy_dtype(dtype)
    names = [f"f{k}" for k in range(first.count(",") + 1)]
    with pa.input_stream(path, compression="gzip") as stream:
        reader = pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(column_names=names, block_size=BLOCK, use_threads=False),
            convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, kind)),
        )
        for batch in reader:
            if dtype.kind != "f" and any(column.null_count for column in batch.columns):
                raise InputError(f"{path} has empty fields where whole numbers belong; download it again.")
            yield np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns]).astype(dtype)
