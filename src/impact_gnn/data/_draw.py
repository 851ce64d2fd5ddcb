"""One graph of a temporal stochastic block model: its nodes at once, its features and edges in chunks.

Everything depends on the model and the seed alone. How the output is cut into chunks, how many threads work
and whether it goes to memory or to disk makes no difference.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from impact_gnn._array import smallest_unsigned
from impact_gnn._files import readable_size
from impact_gnn.checks import InputError
from impact_gnn.data import _sampling
from impact_gnn.graph import HOMOGENEOUS, saved

if TYPE_CHECKING:
    from impact_gnn.data.tsbm import TSBM

FEATURES = 1 << 22
"""Feature values drawn in one go."""

NODES = 1 << 20
"""Labels and times widened in one go for the disk."""


class Draw:
    """Labels, times and number of edges of one graph, and the recipe for the rest.

    Args:
        model: The block model.
        seed: A whole number; `tsbm_model` may have used the same one.
        dtype: Type of node numbers in edges; by default the smaller of int32 and int64 that holds them.
    """

    def __init__(self, model: TSBM, seed: int, dtype: np.dtype | None = None) -> None:
        self.model = model
        # The first child is the one from which the model's parameters are drawn.
        _, nodes, self._features, edges = np.random.SeedSequence(seed).spawn(4)
        self.label, self.period = draw_nodes(model, np.random.default_rng(nodes))
        blocks = model.num_labels * model.num_times
        block = self.period.astype(smallest_unsigned(blocks + 1))  # small types are sorted by radix
        block *= block.dtype.type(model.num_labels)
        block += self.label
        sizes = np.bincount(block, minlength=blocks)
        fits = model.num_nodes <= np.iinfo(np.int32).max
        self.dtype = np.dtype(np.int32 if fits else np.int64) if dtype is None else dtype
        self._members = np.argsort(block, kind="stable").astype(self.dtype)
        self._offset = np.concatenate([[0], np.cumsum(sizes)])
        self._work = _sampling.pieces(sizes, model.block_probability(), ordered=model.ordered)
        self._seed = np.uint64(edges.generate_state(1, np.uint64)[0])
        self._count = _sampling.count_edges(self._work, self._seed)

    @staticmethod
    def memory_needed(model: TSBM) -> int:
        """Bytes that are held at worst beside a chunk of edges of the caller's choice (measured, rounded up)."""
        pairs = (model.num_labels * model.num_times) ** 2
        return 32 * model.num_nodes + 150 * pairs + 12 * max(FEATURES, model.num_features) + (1 << 24)

    @property
    def num_edges(self) -> int:
        """Stored edges: both directions, with multiplicity."""
        return 2 * int(self._count.sum())

    def edges(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """The edges [2, ·] of the pieces of work first .. last−1, by default of all."""
        last = len(self._count) if last is None else last
        return _sampling.draw_edges(
            self._work, self._count, first, last, self._members, self._offset, self.model.ordered, self._seed
        )

    def edge_chunks(self, size: int) -> Iterator[np.ndarray]:
        """All edges in chunks of whole pieces, of at most `size` edges unless one piece has more."""
        end = 2 * np.cumsum(self._count)
        first = done = 0
        while first < len(end):
            last = max(first + 1, int(np.searchsorted(end, done + size, side="right")))
            yield self.edges(first, last)
            first, done = last, int(end[last - 1])

    def feature_chunks(self) -> Iterator[np.ndarray]:
        """Features in float32, some rows at a time."""
        rng = np.random.default_rng(self._features)
        mean, std = self.model.mean.astype(np.float32), self.model.std.astype(np.float32)
        rows = max(1, FEATURES // mean.shape[1])
        for first in range(0, self.model.num_nodes, rows):
            label = self.label[first : first + rows]
            noise = rng.standard_normal((len(label), mean.shape[1]), dtype=np.float32)
            noise *= std[label, None]
            noise += mean[label]
            yield noise

    def write(self, directory: Path, *, chunk: int, progress: Callable[[int, int], None] | None) -> None:
        """Writes the graph as a saved-graph directory, `chunk` edges at a time."""
        nodes, total, start = self.model.num_nodes, self.num_edges, self.model.start
        self._refuse_full_disk(directory)
        with saved.writing(directory, target="node", num_labels=self.model.num_labels) as writer:
            writer.nodes("node", nodes, {})
            _fill(writer.empty("node", "x", np.float32, (nodes, self.model.num_features)), self.feature_chunks())
            # In 64 bits, as a graph holds them: opening the directory then copies nothing.
            _fill(writer.empty("node", "y", np.int64, (nodes,)), _wide(self.label, 0))
            _fill(writer.empty("node", "time", np.int64, (nodes,)), _wide(self.period, start))
            writer.relation(HOMOGENEOUS, {})
            edges = writer.empty(HOMOGENEOUS, "edge_index", self.dtype, (2, total))
            done = 0
            with open(str(edges.filename), "r+b") as file:
                for part in self.edge_chunks(chunk):
                    for row in (0, 1):
                        file.seek(edges.offset + (row * total + done) * self.dtype.itemsize)
                        file.write(part[row].data)
                    done += part.shape[1]
                    if progress is not None:
                        progress(done, total)

    def _refuse_full_disk(self, directory: Path) -> None:
        needed = self.model.num_nodes * (4 * self.model.num_features + 16) + 2 * self.num_edges * self.dtype.itemsize
        place = next(parent for parent in directory.absolute().parents if parent.exists())
        free = shutil.disk_usage(place).free
        if free < needed:
            raise InputError(
                f"the graph needs {readable_size(needed)} on disk, but {place} has {readable_size(free)} free; "
                f"choose another place or a smaller graph."
            )


def draw_nodes(model: TSBM, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Label and period of every node in the smallest unsigned types, in order of time, labels shuffled."""
    labels, times, nodes = model.num_labels, model.num_times, model.num_nodes
    if model.ordered:
        # Independent times in increasing order: only how often each occurs is random.
        per_time = rng.multinomial(nodes, np.full(times, 1 / times))
        label = rng.integers(labels, size=nodes, dtype=smallest_unsigned(labels))
    else:
        sizes = np.full(times * labels, nodes // (times * labels))
        sizes[rng.permutation(times * labels)[: nodes % (times * labels)]] += 1
        label = np.repeat(np.tile(np.arange(labels, dtype=smallest_unsigned(labels)), times), sizes)
        per_time = sizes.reshape(times, labels).sum(1)
        for part in np.split(label, np.cumsum(per_time)[:-1]):
            rng.shuffle(part)
    return label, np.repeat(np.arange(times, dtype=smallest_unsigned(times)), per_time)


def _wide(values: np.ndarray, start: int) -> Iterator[np.ndarray]:
    for first in range(0, len(values), NODES):
        yield values[first : first + NODES].astype(np.int64) + start


def _fill(array: np.memmap, parts: Iterator[np.ndarray]) -> None:
    # Ordinary writes: pages of a memory map would count as ours, and a full disk would kill the process.
    with open(str(array.filename), "r+b") as file:
        file.seek(array.offset)
        for part in parts:
            file.write(part.data)
