"""Drawing block models in time proportional to their edges: nodes at once, features and edges in chunks.

The pairs of two blocks are numbered 0 .. n−1 and each is an edge with probability p. Instead of asking every pair, the
sampler jumps from edge to edge: the number of pairs passed over is geometric, ⌊log(1−u) / log(1−p)⌋ with u uniform,
which has exactly the distribution of n independent coins.

Work is cut into *pieces*: a range of pair numbers of one pair of blocks. Every piece has random numbers of its own,
derived from the seed and the number of the piece. So a graph depends on model and seed alone: how the output is cut
into chunks, how many threads work and whether it goes to memory or to disk makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import get_num_threads, njit

from impact_gnn._array import smallest_unsigned
from impact_gnn._files import require_space
from impact_gnn.graph import HOMOGENEOUS, saved

if TYPE_CHECKING:
    from impact_gnn.data.tsbm import TSBM

FEATURES = 1 << 22
"""Feature values drawn in one go."""

NODES = 1 << 20
"""Labels and times widened in one go for the disk."""

EDGES_PER_PIECE = 1 << 16
"""Expected edges of the largest piece: small enough to share out and to stream, large enough to be fast."""

SHARED = 1 << 20
"""Edges from which threads are worth starting; small graphs are often drawn by many processes at once."""

WEYL = np.uint64(0x9E3779B97F4A7C15)
"""Step of the counter behind the random numbers: odd, so that it visits all 64-bit values."""


class Draw:
    """Labels, times and number of edges of one graph, and the recipe for the rest.

    `dtype` is the type of node numbers in edges, by default the smaller of int32 and int64 that holds them.
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
        self._work = pieces(sizes, model.block_probability(), ordered=model.ordered)
        self._seed = np.uint64(edges.generate_state(1, np.uint64)[0])
        self._count = count_edges(self._work, self._seed)

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
        return draw_edges(
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
        return feature_chunks(self.model, self.label, np.random.default_rng(self._features))

    def features(self) -> np.ndarray:
        return joined(self.feature_chunks(), (self.model.num_nodes, self.model.num_features))

    def write(self, directory: Path, *, chunk: int, progress: Callable[[int, int], None] | None) -> None:
        """Writes the graph as a saved-graph directory, `chunk` edges at a time."""
        nodes, total, start = self.model.num_nodes, self.num_edges, self.model.start
        needed = nodes * (4 * self.model.num_features + 16) + 2 * total * self.dtype.itemsize
        require_space(next(parent for parent in directory.absolute().parents if parent.exists()), needed)
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


def feature_chunks(model: TSBM, label: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Features μ(y) + k_y·Z of nodes with these labels in float32, some rows at a time."""
    mean, std = model.mean.astype(np.float32), model.std.astype(np.float32)
    rows = max(1, FEATURES // mean.shape[1])
    for first in range(0, len(label), rows):
        part = label[first : first + rows]
        noise = rng.standard_normal((len(part), mean.shape[1]), dtype=np.float32)
        noise *= std[part, None]
        noise += mean[part]
        yield noise


def joined(chunks: Iterator[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    """Chunks of rows one below the other, without holding them twice."""
    out = np.empty(shape, np.float32)
    first = 0
    for rows in chunks:
        out[first : first + len(rows)] = rows
        first += len(rows)
    return out


def _wide(values: np.ndarray, start: int) -> Iterator[np.ndarray]:
    for first in range(0, len(values), NODES):
        yield values[first : first + NODES].astype(np.int64) + start


def _fill(array: np.memmap, parts: Iterator[np.ndarray]) -> None:
    # Ordinary writes: pages of a memory map would count as ours, and a full disk would kill the process.
    with open(str(array.filename), "r+b") as file:
        file.seek(array.offset)
        for part in parts:
            file.write(part.data)


class Pieces(NamedTuple):
    """Ranges of pair numbers, in the order in which their edges appear; all arrays are [P]."""

    row: np.ndarray
    """Block of the first node of each pair."""
    column: np.ndarray
    """Block of the second node."""
    start: np.ndarray
    """First pair number."""
    stop: np.ndarray
    """One past the last pair number."""
    probability: np.ndarray
    """Chance of an edge, the same for all pairs of a piece."""


def pieces(sizes: np.ndarray, probability: np.ndarray, *, ordered: bool) -> Pieces:
    """All pairs of nodes whose edge has a chance, for blocks of these sizes [B] and chances [B, B].

    `ordered` draws (i, j) and (j, i) separately, otherwise each unordered pair comes once.
    """
    blocks = len(sizes)
    row, column = (part.ravel() for part in np.indices((blocks, blocks), dtype=np.int32))
    pairs = np.multiply.outer(sizes, sizes)
    np.fill_diagonal(pairs, sizes * (sizes - 1) // (1 if ordered else 2))
    pairs = pairs.ravel()
    chance = np.asarray(probability, dtype=np.float64).ravel()
    return cut(row, column, pairs if ordered else np.where(row <= column, pairs, 0), chance)


def cut(row: np.ndarray, column: np.ndarray, pairs: np.ndarray, chance: np.ndarray) -> Pieces:
    """Pairs of blocks, with the number of their pairs of nodes and an edge's chance, as ranges of about equal work."""
    keep = (pairs > 0) & (chance >= np.finfo(np.float64).tiny)
    row, column, pairs, chance = row[keep], column[keep], pairs[keep], chance[keep]
    parts = np.maximum(1, np.ceil(pairs * chance / EDGES_PER_PIECE).astype(np.int64))
    origin = np.repeat(np.arange(len(parts)), parts)
    step = -(-pairs // parts)
    start = (np.arange(len(origin)) - np.repeat(np.cumsum(parts) - parts, parts)) * step[origin]
    stop = np.minimum(start + step[origin], pairs[origin])
    return Pieces(row[origin].astype(np.int32), column[origin].astype(np.int32), start, stop, chance[origin])


def count_edges(work: Pieces, seed: np.uint64) -> np.ndarray:
    """Edges that each piece will draw [P]: the same random walk as `draw_edges`, without the writing."""
    count = np.zeros(len(work.start), np.int64)
    pairs = work.stop - work.start
    _share_out(pairs * work.probability, lambda low, high: _count(pairs, work.probability, seed, low, high, count))
    return count


def draw_edges(
    work: Pieces,
    count: np.ndarray,
    first: int,
    last: int,
    members: np.ndarray,
    offset: np.ndarray,
    ordered: bool,
    seed: np.uint64,
) -> np.ndarray:
    """The edges [2, 2·E] of the pieces first .. last−1, each drawn pair in both directions, side by side.

    `count` and `seed` are those of `count_edges`; `members` holds the nodes sorted by block [N] in the type of the
    result, `offset` where each block begins in it [B + 1].
    """
    place = np.concatenate([[0], np.cumsum(count[first:last])])
    out = np.empty((2, 2 * place[-1]), members.dtype)

    def draw(low: int, high: int) -> None:
        _draw(
            work.row, work.column, work.start, work.probability, first, place, members, offset, ordered, seed,
            low, high, out,
        )  # fmt: skip

    _share_out(count[first:last], draw)
    return out


def _share_out(work: np.ndarray, task: Callable[[int, int], None]) -> None:
    """Calls `task(low, high)` on ranges of pieces of equal work, in threads if there is much of it."""
    total = np.cumsum(work)
    threads = get_num_threads()
    if len(work) == 0 or threads == 1 or total[-1] < SHARED:
        task(0, len(work))
        return
    cuts = np.searchsorted(total, total[-1] * np.arange(1, threads) / threads)
    bounds = [0, *(int(cut) for cut in cuts), len(work)]
    with ThreadPoolExecutor(threads) as pool:  # the kernels run without the interpreter's lock
        for done in [pool.submit(task, low, high) for low, high in pairwise(bounds)]:
            done.result()


@njit(cache=True)
def _scramble(state):  # type: ignore[no-untyped-def]
    # The finishing step of the "splitmix" generator: a bijection of 64 bits that looks random.
    bits = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(cache=True)
def _first_state(seed, piece):  # type: ignore[no-untyped-def]
    return _scramble(seed + _scramble(np.uint64(piece) + np.uint64(1)))


@njit(cache=True)
def _jump(state, scale):  # type: ignore[no-untyped-def]
    # Pairs passed over before the next edge; a float, because it may be larger than any integer.
    uniform = np.float64(_scramble(state) >> np.uint64(11)) * 2.0**-53
    return np.floor(np.log(1.0 - uniform) * scale)


@njit(cache=True)
def _pair(number, columns, within, ordered):  # type: ignore[no-untyped-def]
    # The two nodes, counted within their blocks, of a pair number.
    if not within:
        i = number // columns
        return i, number - i * columns
    if ordered:  # every row leaves out its own node
        i = number // (columns - 1)
        j = number - i * (columns - 1)
        return i, j + (1 if j >= i else 0)
    # Below the diagonal, where row i begins at i(i−1)/2; the root is rounded, so step to the right row.
    i = np.int64((1.0 + np.sqrt(1.0 + 8.0 * number)) * 0.5)
    while i * (i - 1) // 2 > number:
        i -= 1
    while i * (i + 1) // 2 <= number:
        i += 1
    return i, number - i * (i - 1) // 2


@njit(cache=True)
def _count_piece(pairs, probability, state):  # type: ignore[no-untyped-def]
    scale = 1.0 / np.log1p(-probability)
    count = 0
    left = pairs
    while True:
        state += WEYL
        jump = _jump(state, scale)
        if jump >= left:
            return count
        left -= np.int64(jump) + 1
        count += 1


@njit(cache=True)
def _draw_piece(number, probability, state, rows, columns, within, ordered, out):  # type: ignore[no-untyped-def]
    scale = 1.0 / np.log1p(-probability)
    for place in range(0, out.shape[1], 2):
        state += WEYL
        number += np.int64(_jump(state, scale))
        i, j = _pair(number, len(columns), within, ordered)
        out[0, place] = rows[i]
        out[1, place] = columns[j]
        out[0, place + 1] = columns[j]
        out[1, place + 1] = rows[i]
        number += 1


@njit(cache=True, nogil=True)
def _count(pairs, probability, seed, low, high, count):  # type: ignore[no-untyped-def]
    for piece in range(low, high):
        count[piece] = _count_piece(pairs[piece], probability[piece], _first_state(seed, piece))


@njit(cache=True, nogil=True)
def _draw(row, column, start, probability, first, place, members, offset, ordered, seed, low, high, out):  # type: ignore[no-untyped-def]
    for k in range(low, high):
        piece = first + k
        a, b = row[piece], column[piece]
        _draw_piece(
            start[piece], probability[piece], _first_state(seed, piece),
            members[offset[a] : offset[a + 1]], members[offset[b] : offset[b + 1]], a == b, ordered,
            out[:, 2 * place[k] : 2 * place[k + 1]],
        )  # fmt: skip
