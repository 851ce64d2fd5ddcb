"""Drawing block models in time proportional to their edges, by jumping from edge to edge.

The number of pairs passed over before the next edge is geometric, ⌊log(1−u) / log(1−p)⌋ with u
uniform: exactly the law of independent coins. Work is cut into *pieces*, each with random numbers
derived from the seed and its own number, so that a graph depends on model and seed alone, not on
chunks, threads, or whether it goes to memory or to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numba import get_num_threads, njit

from impact_gnn._array import smallest_unsigned

if TYPE_CHECKING:
    from impact_gnn.data.tsbm import TSBM

FEATURES = 1 << 22  # feature values drawn in one go
NODES = 1 << 20  # labels and times widened in one go for the disk
# expected, of the largest: small enough to share out and stream, large enough to be fast
EDGES_PER_PIECE = 1 << 16
# edges from which threads are worth starting; small graphs are often drawn by many processes at once
SHARED = 1 << 20
# step of the random numbers' counter: odd, so that it visits all 64-bit values
WEYL = np.uint64(0x9E3779B97F4A7C15)


class BlockPairs:
    """Links between blocks of nodes, piece by piece; a piece is a range of the numbered pairs of nodes of two blocks.

    `members` are the nodes sorted by block [N], in the type that edges shall have, `sizes` the
    nodes per block [B]. Nodes of the blocks row[k] and column[k] are linked with probability
    chance[k]. `ordered` draws (i, j) and (j, i) separately; otherwise pairs of blocks with row >
    column are left out.
    """

    def __init__(
        self,
        members: np.ndarray,
        sizes: np.ndarray,
        row: np.ndarray,
        column: np.ndarray,
        chance: np.ndarray,
        seed: np.random.SeedSequence,
        *,
        ordered: bool,
    ) -> None:
        own = sizes * (sizes - 1) // (1 if ordered else 2)
        pairs = np.where(row == column, own[row], sizes[row] * sizes[column])
        keep = (pairs > 0) & (chance >= np.finfo(np.float64).tiny) & (ordered | (row <= column))
        row, column, pairs, chance = row[keep], column[keep], pairs[keep], chance[keep]
        # Pairs of blocks cut into pieces of about equal work; `origin` is the pair of blocks a
        # piece comes from.
        parts = np.maximum(1, np.ceil(pairs * chance / EDGES_PER_PIECE).astype(np.int64))
        origin = np.repeat(np.arange(len(parts)), parts)
        step = -(-pairs // parts)
        start = (np.arange(len(origin)) - np.repeat(np.cumsum(parts) - parts, parts)) * step[origin]
        length = np.minimum(step[origin], pairs[origin] - start)
        chance = chance[origin]
        state = np.uint64(seed.generate_state(1, np.uint64)[0])
        # drawn pairs of every piece: the same random walk, not written
        self.count = np.zeros(len(origin), np.int64)
        _share_out(
            length * chance, lambda low, high: _count(length, chance, state, low, high, self.count)
        )
        self._dtype = members.dtype
        offset = np.concatenate([[0], np.cumsum(sizes)])
        row, column = row[origin].astype(np.int32), column[origin].astype(np.int32)
        self._law = (row, column, start, chance, members, offset, ordered, state)

    def edges(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """The edges [2, ·] of the pieces first .. last−1, by default all; a pair in both directions, side by side."""
        count = self.count[first:last]
        place = np.concatenate([[0], np.cumsum(count)])
        out = np.empty((2, 2 * place[-1]), self._dtype)
        _share_out(count, lambda low, high: _draw(*self._law, first, place, low, high, out))
        return out


class Draw:
    """Labels, times and number of edges of one graph, and the recipe for the rest; edges in int32 if that suffices."""

    def __init__(self, model: TSBM, seed: int, dtype: np.dtype | None = None) -> None:
        self.model = model
        # The first child is the one from which the model's parameters are drawn.
        _, nodes, self._features, edges = np.random.SeedSequence(seed).spawn(4)
        self.label, self.period = draw_nodes(model, np.random.default_rng(nodes))
        blocks = model.num_labels * model.num_times
        block = self.period.astype(smallest_unsigned(blocks + 1))  # small types are sorted by radix
        block *= block.dtype.type(model.num_labels)
        block += self.label
        fits = model.num_nodes <= np.iinfo(np.int32).max
        self.dtype = np.dtype(np.int32 if fits else np.int64) if dtype is None else dtype
        members = np.argsort(block, kind="stable").astype(self.dtype)
        row, column = np.indices((blocks, blocks), dtype=np.int32).reshape(2, -1)
        chance, sizes = model.block_probability().ravel(), np.bincount(block, minlength=blocks)
        self.pairs = BlockPairs(members, sizes, row, column, chance, edges, ordered=model.ordered)

    def edge_chunks(self, size: int) -> Iterator[np.ndarray]:
        """All edges in chunks of whole pieces, of at most `size` edges unless one piece has more."""
        end = 2 * np.cumsum(self.pairs.count)
        first = done = 0
        while first < len(end):
            last = max(first + 1, int(np.searchsorted(end, done + size, side="right")))
            yield self.pairs.edges(first, last)
            first, done = last, int(end[last - 1])

    def feature_chunks(self) -> Iterator[np.ndarray]:
        return feature_chunks(self.model, self.label, np.random.default_rng(self._features))


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


def feature_chunks(
    model: TSBM, label: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
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


def fill(array: np.memmap, parts: Iterable[np.ndarray]) -> None:
    """Ordinary writes: pages of a memory map would count as ours, and a full disk would kill the process."""
    with open(str(array.filename), "r+b") as file:
        file.seek(array.offset)
        for part in parts:
            file.write(part.data)


def _share_out(work: np.ndarray, task: Callable[[int, int], None]) -> None:
    """Calls `task(low, high)` on ranges of pieces of equal work, in threads if there is much of it."""
    total = np.cumsum(work)
    threads = get_num_threads()
    if len(work) == 0 or threads == 1 or total[-1] < SHARED:
        task(0, len(work))
        return
    cuts = np.searchsorted(total, total[-1] * np.arange(1, threads) / threads)
    bounds = [0, *cuts.tolist(), len(work)]
    with ThreadPoolExecutor(threads) as pool:  # the kernels run without the interpreter's lock
        for done in [pool.submit(task, low, high) for low, high in pairwise(bounds)]:
            done.result()


@njit(cache=True)
def scramble(state):  # type: ignore[no-untyped-def]
    """The finishing step of the "splitmix" generator, of numbers or arrays: a bijection that looks random."""
    bits = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(cache=True)
def _first_state(seed, piece):  # type: ignore[no-untyped-def]
    return scramble(seed + scramble(np.uint64(piece) + np.uint64(1)))


@njit(cache=True)
def _jump(state, scale):  # type: ignore[no-untyped-def]
    # Pairs passed over before the next edge; a float, because it may be larger than any integer.
    uniform = np.float64(scramble(state) >> np.uint64(11)) * 2.0**-53
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
    # Below the diagonal, where row i begins at i(i−1)/2; the root is rounded, so step to the right
    # row.
    i = np.int64((1.0 + np.sqrt(1.0 + 8.0 * number)) * 0.5)
    while i * (i - 1) // 2 > number:
        i -= 1
    while i * (i + 1) // 2 <= number:
        i += 1
    return i, number - i * (i - 1) // 2


@njit(cache=True, nogil=True)
def _count(pairs, probability, seed, low, high, count):  # type: ignore[no-untyped-def]
    for piece in range(low, high):
        state = _first_state(seed, piece)
        scale = 1.0 / np.log1p(-probability[piece])
        left = pairs[piece]
        while True:
            state += WEYL
            jump = _jump(state, scale)
            if jump >= left:
                break
            left -= np.int64(jump) + 1
            count[piece] += 1


@njit(cache=True, nogil=True)
def _draw(  # type: ignore[no-untyped-def]
    row, column, start, probability, members, offset, ordered, seed, first, place, low, high, out
):
    for k in range(low, high):
        piece = first + k
        state = _first_state(seed, piece)
        scale = 1.0 / np.log1p(-probability[piece])
        rows = members[offset[row[piece]] : offset[row[piece] + 1]]
        columns = members[offset[column[piece]] : offset[column[piece] + 1]]
        within = row[piece] == column[piece]
        number = start[piece]
        for at in range(2 * place[k], 2 * place[k + 1], 2):
            state += WEYL
            number += np.int64(_jump(state, scale))
            i, j = _pair(number, len(columns), within, ordered)
            out[0, at] = out[1, at + 1] = rows[i]
            out[1, at] = out[0, at + 1] = columns[j]
            number += 1
