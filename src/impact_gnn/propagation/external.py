"""A counting sort of edges by target that takes no more memory than it is given.

Pass 1 counts edges per bin of neighbouring targets and makes buckets of bins that fit into memory. Pass 2 writes
every edge to the part of a spill file that belongs to its bucket. Then each bucket is read, sorted and written to
its place. The order of edges into one target is the order in which they came, as `build_csr` keeps it, so both
make the same arrays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import _files, checks
from impact_gnn.checks import InputError
from impact_gnn.propagation import counting, paging, stored_csr
from impact_gnn.propagation import threads as pool
from impact_gnn.propagation.edge_files import CHUNK, Chunk, Edges
from impact_gnn.propagation.paging import Open
from impact_gnn.propagation.passes import plain_view
from impact_gnn.propagation.stored_csr import StoredCSR
from impact_gnn.propagation.streaming import in_order

BINS = 16
"""Targets fall into at most 2^16 bins."""

LEAST = 1 << 16
"""A bucket may always hold that many edges: their memory does not count."""


@dataclass(frozen=True, eq=False)
class Tally:
    """What pass 1 finds: edges per bin (as given, and turned round where undirected) and the checksum."""

    count: np.ndarray
    checksum: str
    shift: int

    @property
    def num_edges(self) -> int:
        """Edges that will be stored."""
        return int(self.count.sum())


def sort_edges(
    edges: Edges,
    num_sources: int,
    num_targets: int,
    directory: Path,
    *,
    memory: int,
    undirected: bool = False,
    threads: int | None = None,
    room: Callable[[int], None] = lambda size: None,
) -> StoredCSR:
    """The edges by target, in files of `directory`; if they are there already, their checksum is compared.

    Args:
        edges: The edge list, see `edges_of`.
        num_sources: Number of nodes at which edges may begin.
        num_targets: Number of nodes at which edges may end.
        directory: Where the files go; it appears when they are complete.
        memory: Bytes to sort in.
        undirected: Count every edge in both directions (a loop once).
        threads: By default as many as there are cores.
        room: Is told the bytes of disk needed before anything is written, and may refuse.
    """
    if undirected and num_sources != num_targets:
        raise InputError(
            f"undirected edges need the same nodes at both ends, but there are {num_sources} sources and "
            f"{num_targets} targets; add the reverse relation instead."
        )
    found = stored_csr.find(directory)
    tally = _tally(edges, num_sources, num_targets, undirected, threads)
    if found is not None:
        stored_csr.refuse_other(found, tally.checksum)
        return found
    workers = pool.available() if threads is None else threads
    index_type = np.dtype(np.int32 if num_sources <= np.iinfo(np.int32).max else np.int64)
    weight_type = edges.weight_type
    edge_bytes = index_type.itemsize + (weight_type.itemsize if weight_type else 0)
    room(tally.num_edges * (2 * edge_bytes + 4) + 8 * num_targets)
    largest = max(index_type.itemsize, weight_type.itemsize if weight_type else 0)
    buckets = Buckets.of(tally, num_targets, max(LEAST, memory // workers // (4 + 2 * largest)))
    with _files.atomic_directory(directory, may_replace=lambda path: False) as temporary:
        sorter = Sorter(temporary, buckets, index_type, weight_type, num_targets)
        largest_row = sorter.run(_turned(edges, undirected), threads)
        sizes = (num_sources, num_targets, tally.num_edges, weight_type is not None, largest_row)
        out = StoredCSR(directory, *sizes, tally.checksum)
        out.write_manifest(temporary)
    return out


@dataclass(frozen=True, eq=False)
class Buckets:
    """Runs of neighbouring bins: for every bin its bucket; for every bucket its first row and where it begins.

    `begin` [2, buckets] are positions in the spill file: of the edges as given, and of those turned round.
    """

    of_bin: np.ndarray
    first_row: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    shift: int
    most: int

    @classmethod
    def of(cls, tally: Tally, num_targets: int, most: int) -> Buckets:
        """Buckets of at most `most` edges, except where one bin has more; a row takes the memory of two edges."""
        total = tally.count.sum(0) + (2 << tally.shift)
        of_bin = np.zeros(len(total), np.int32)
        bucket, held = 0, 0
        for number, size in enumerate(total):
            if held and held + size > most:
                bucket, held = bucket + 1, 0
            of_bin[number] = bucket
            held += int(size)
        firsts = np.searchsorted(of_bin, np.arange(bucket + 1)) << tally.shift
        sizes = np.stack([np.bincount(of_bin, count, bucket + 1) for count in tally.count]).astype(np.int64)
        border = np.concatenate([[0], np.cumsum(sizes.sum(0))])
        begin = np.stack([border[:-1], border[:-1] + sizes[0]])
        return cls(of_bin, np.append(firsts, num_targets), begin, border[1:], tally.shift, most)


@dataclass(frozen=True, eq=False)
class Sorter:
    """Passes 2 and 3, in a directory of their own."""

    directory: Path
    buckets: Buckets
    index_type: np.dtype
    weight_type: np.dtype | None
    num_targets: int

    def run(self, parts: Iterator[tuple[bool, Chunk]], threads: int | None) -> int:
        """Spills and sorts; the largest number of edges into one target is returned."""
        num_edges = int(self.buckets.end[-1])
        types = {"indices": self.index_type} | ({} if self.weight_type is None else {"weight": self.weight_type})
        outs = {name: self._file(name, dtype, num_edges) for name, dtype in types.items()}
        types["row"] = np.dtype(np.uint32)
        spills = {name: self._file(f"spill-{name}", dtype, num_edges) for name, dtype in types.items()}
        indptr = self._file("indptr", np.dtype(np.int64), self.num_targets + 1)
        with _all_open(spills) as handles:
            place = self.buckets.begin.copy()
            for back, start, columns in in_order(self._spread, parts, threads):
                _append(handles, columns, start, place[int(back)])
        largest = 0
        with _all_open(spills) as inputs, _all_open(outs) as outputs, indptr.opened(write=True) as borders:
            tasks = ((number, inputs, outputs, borders) for number in range(len(self.buckets.end)))
            for found in in_order(self._settle, tasks, threads):
                largest = max(largest, found)
        for spill in spills.values():
            spill.path.unlink()
        return largest

    def _file(self, name: str, dtype: np.dtype, size: int) -> paging.Stored:
        return paging.create(self.directory / f"{name}.npy", dtype, (size,))

    def _spread(self, back: bool, chunk: Chunk) -> tuple[bool, np.ndarray, dict[str, np.ndarray]]:
        """The edges of a chunk in the order of their buckets, and where each bucket begins among them."""
        source, target, weight = chunk
        key = counting.bucket_of(plain_view(source), plain_view(target), self.buckets.of_bin, self.buckets.shift, back)
        start, order = counting.order(key, len(self.buckets.end))
        key, target = key[order], target[order]
        columns = {"row": target - self.buckets.first_row[key], "indices": source[order]}
        if weight is not None:
            columns["weight"] = weight[order]
        return back, start, columns

    def _settle(self, number: int, spills: dict[str, Open], outs: dict[str, Open], borders: Open) -> int:
        """Sorts one bucket by row; the largest number of edges into one target is returned."""
        begin, end = int(self.buckets.begin[0, number]), int(self.buckets.end[number])
        first, last = self.buckets.first_row[number : number + 2]
        if end - begin > self.buckets.most:
            return self._settle_large(begin, end, int(first), int(last), spills, outs, borders)
        row = spills["row"].read(begin, end)
        start = counting.starts(row, last - first)
        borders.write(int(first) + 1, start[1:] + begin)
        for name, out in outs.items():
            values = spills[name].read(begin, end)
            placed = np.empty_like(values)
            counting.place(row, values, start[:-1].copy(), placed)
            out.write(begin, placed)
        return int(np.diff(start).max(initial=0))

    def _settle_large(
        self, begin: int, end: int, first: int, last: int, spills: dict[str, Open], outs: dict[str, Open], borders: Open
    ) -> int:
        """A bin of few, heavy rows: its edges are appended to their rows, chunk by chunk."""
        pieces = [(a, min(a + CHUNK, end)) for a in range(begin, end, CHUNK)]
        start = np.zeros(last - first + 1, np.int64)
        for piece in pieces:
            start += counting.starts(spills["row"].read(*piece), last - first)
        borders.write(first + 1, start[1:] + begin)
        place = start[:-1] + begin
        for piece in pieces:
            local, order = counting.order(spills["row"].read(*piece).astype(np.int32), last - first)
            _append(outs, {name: spills[name].read(*piece)[order] for name in outs}, local, place)
        return int(np.diff(start).max(initial=0))


def _tally(edges: Edges, num_sources: int, num_targets: int, undirected: bool, threads: int | None) -> Tally:
    shift = max(0, (max(num_targets, 1) - 1).bit_length() - BINS)
    bins = (max(num_targets, 1) - 1 >> shift) + 1
    total, digests, types = np.zeros((2, bins), np.int64), [], "none"

    def look(begin: int, source: np.ndarray, target: np.ndarray, weight: np.ndarray | None) -> tuple[Any, ...]:
        count = np.zeros((2, bins), np.int64)
        source, target = _plain(source), _plain(target)
        wrong = counting.count(
            plain_view(source), plain_view(target), num_sources, num_targets, shift, undirected, count
        )
        if wrong >= 0:
            raise InputError(
                f"edge {begin + wrong} runs from {source[wrong]} to {target[wrong]}, but there are {num_sources} "
                f"sources and {num_targets} targets (from 0); remove the edge or add the node."
            )
        parts = [source, target]
        if weight is not None:
            name = "weight" if begin == 0 else f"weight (counted from edge {begin})"
            parts.append(checks.edge_weights(name, weight, len(source)))
        return count, b"".join(paging.digest(part) for part in parts), [part.dtype.str for part in parts]

    pieces = ((number * CHUNK, *chunk) for number, chunk in enumerate(edges.chunks()))
    for count, digest, kinds in in_order(look, pieces, threads):
        total += count
        digests.append(digest)
        types = kinds
    return Tally(total, paging.combined(digests, types, num_sources, num_targets, undirected), shift)


def _turned(edges: Edges, undirected: bool) -> Iterator[tuple[bool, Chunk]]:
    """All chunks, each followed by itself turned round where undirected."""
    for source, target, weight in edges.chunks():
        source, target = _plain(source), _plain(target)
        yield False, (source, target, weight)
        if undirected:
            yield True, (target, source, weight)


def _plain(ends: np.ndarray) -> np.ndarray:
    return ends if ends.dtype in (np.int32, np.int64) else ends.astype(np.int64)


@contextlib.contextmanager
def _all_open(arrays: dict[str, paging.Stored]) -> Iterator[dict[str, Open]]:
    """Several stored arrays, open for reading and writing."""
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(array.opened(write=True)) for name, array in arrays.items()}


def _append(files: dict[str, Open], columns: dict[str, np.ndarray], start: np.ndarray, place: np.ndarray) -> None:
    """Writes group g of the columns, `start[g] .. start[g + 1]`, where `place[g]` says, and moves that on."""
    sizes = np.diff(start)
    for group in np.flatnonzero(sizes):
        for name, file in files.items():
            file.write(int(place[group]), columns[name][start[group] : start[group + 1]])
    place += sizes
