"""Numba kernels that draw the edges of a block model in time proportional to the edges.

The pairs of two blocks are numbered 0 .. n−1 and each is an edge with probability p. Instead of asking every
pair, the sampler jumps from edge to edge: the number of pairs passed over is geometric,
⌊log(1−u) / log(1−p)⌋ with u uniform, which has exactly the distribution of n independent coins.

Work is cut into *pieces*: a range of pair numbers of one pair of blocks. Every piece has random numbers of
its own, derived from the seed and the number of the piece, so neither the threads nor the way a caller cuts
the output into chunks can change an edge.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import get_num_threads, njit

EDGES_PER_PIECE = 1 << 16
"""Expected edges of the largest piece: small enough to share out and to stream, large enough to be fast."""


SHARED = 1 << 20
"""Edges from which threads are worth starting; small graphs are often drawn by many processes at once."""

WEYL = np.uint64(0x9E3779B97F4A7C15)
"""Step of the counter behind the random numbers: odd, so that it visits all 64-bit values."""


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
    """All pairs of nodes whose edge has a chance, as ranges of about equal work.

    Args:
        sizes: Nodes per block [B].
        probability: Chance of an edge between nodes of two blocks [B, B].
        ordered: Draw (i, j) and (j, i) separately; otherwise each unordered pair once.
    """
    blocks = len(sizes)
    row, column = (part.ravel() for part in np.indices((blocks, blocks), dtype=np.int32))
    pairs = np.multiply.outer(sizes, sizes)
    np.fill_diagonal(pairs, sizes * (sizes - 1) // (1 if ordered else 2))
    pairs = pairs.ravel()
    chance = np.asarray(probability, dtype=np.float64).ravel()
    keep = (pairs > 0) & (chance >= np.finfo(np.float64).tiny)
    if not ordered:
        keep &= row <= column
    row, column, pairs, chance = row[keep], column[keep], pairs[keep], chance[keep]

    parts = np.maximum(1, np.ceil(pairs * chance / EDGES_PER_PIECE).astype(np.int64))
    source = np.repeat(np.arange(len(parts)), parts)
    step = -(-pairs // parts)
    start = (np.arange(len(source)) - np.repeat(np.cumsum(parts) - parts, parts)) * step[source]
    stop = np.minimum(start + step[source], pairs[source])
    return Pieces(row[source], column[source], start, stop, chance[source])


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

    Args:
        work: All pieces.
        count: Edges of every piece, from `count_edges`.
        first: First piece wanted.
        last: One past the last piece wanted.
        members: Nodes sorted by block [N]; its type is the type of the result.
        offset: Where each block begins in `members` [B + 1].
        ordered: As in `pieces`.
        seed: As in `count_edges`.
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
    found = 0
    left = pairs
    while True:
        state += WEYL
        jump = _jump(state, scale)
        if jump >= left:
            return found
        left -= np.int64(jump) + 1
        found += 1


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
