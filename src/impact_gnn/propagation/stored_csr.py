"""Edges grouped by target that stay in files: `indptr.npy`, `indices.npy`, `weight.npy` and a manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from impact_gnn import _files
from impact_gnn.checks import InputError
from impact_gnn.graph.csr import CSR
from impact_gnn.propagation import paging
from impact_gnn.propagation.paging import Stored

MANIFEST = "manifest.json"
FORMAT = "impact-gnn edges by target"
VERSION = 1


@dataclass(frozen=True)
class StoredCSR:
    """What `CSR` holds, in the files of a directory.

    `largest_row` is the largest number of edges into one target; `checksum` is that of the edges it was made from.
    """

    directory: Path
    num_sources: int
    num_targets: int
    num_edges: int
    weighted: bool
    largest_row: int
    checksum: str

    @property
    def indptr(self) -> Stored:
        """Where the edges of each target begin, int64 [targets + 1]."""
        return paging.find(self.directory / "indptr.npy")

    @property
    def indices(self) -> Stored:
        """The sources."""
        return paging.find(self.directory / "indices.npy")

    @property
    def weight(self) -> Stored | None:
        """The weights, or None."""
        return paging.find(self.directory / "weight.npy") if self.weighted else None

    def load(self) -> CSR:
        """The same edges in memory."""
        weight = None if self.weight is None else self.weight.whole()
        return CSR(self.indptr.whole(), self.indices.whole(), weight, self.num_sources)

    def write_manifest(self, directory: Path) -> None:
        """Completes `directory`, which will take the place of `self.directory`."""
        sizes = {name: value for name, value in asdict(self).items() if name != "directory"}
        _files.write_json(directory / MANIFEST, {"format": FORMAT, "version": VERSION, **sizes})


def find(directory: Path) -> StoredCSR | None:
    """The edges stored in `directory`, or None if there are none."""
    if not (directory / MANIFEST).exists():
        return None
    manifest = _files.read_json(directory / MANIFEST)
    head = [manifest.pop(key, None) for key in ("format", "version")] if isinstance(manifest, dict) else []
    if head != [FORMAT, VERSION]:
        raise InputError(f"{directory} does not hold edges written by this release; choose another directory.")
    try:
        out = StoredCSR(directory, **manifest)
    except TypeError:
        raise InputError(f"{directory / MANIFEST} is damaged; delete {directory} and run again.") from None
    sizes = [("indptr", out.num_targets + 1), ("indices", out.num_edges), ("weight", out.num_edges)]
    for name, size in sizes[: 3 if out.weighted else 2]:
        if paging.find(directory / f"{name}.npy").shape != (size,):
            raise InputError(f"{directory / name}.npy is not of size {size}; delete {directory} and run again.")
    return out


def save(csr: CSR, goal: StoredCSR) -> None:
    """Writes edges that are in memory to where `described` has put them; if some are there, they must be the same."""
    found = find(goal.directory)
    if found is not None:
        refuse_other(found, goal.checksum)
        return
    with _files.atomic_directory(goal.directory, may_replace=lambda path: False) as temporary:
        for name in ("indptr", "indices", "weight")[: 3 if goal.weighted else 2]:
            paging.save(temporary / f"{name}.npy", getattr(csr, name))
        goal.write_manifest(temporary)


def described(csr: CSR, directory: Path) -> StoredCSR:
    """What edges in memory are once `save` has written them."""
    largest = int(np.diff(csr.indptr).max(initial=0))
    sizes = (csr.num_sources, csr.num_targets, csr.num_edges, csr.weight is not None, largest)
    return StoredCSR(directory, *sizes, checksum(csr))


def checksum(csr: CSR) -> str:
    """The checksum of edges in memory."""
    parts = [csr.indptr, csr.indices, *([] if csr.weight is None else [csr.weight])]
    return paging.combined([], csr.num_sources, *(paging.checksum(part) for part in parts))


def refuse_other(found: StoredCSR, total: str) -> None:
    """Refuses edges whose checksum is not `total`."""
    if found.checksum != total:
        raise InputError(
            f"{found.directory} holds other edges (their checksum differs); choose another directory, or delete it."
        )
