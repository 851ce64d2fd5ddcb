"""Draws block models in time proportional to their edges, by jumping from edge to edge.

The number of pairs passed over before the next edge is geometric, ⌊log(1−u) / log(1−p)⌋ with u
uniform: exactly the law of independent coins. Work is cut into *pieces*, each with random numbers
derived from the seed and its own number. A graph therefore depends on model and seed alone, not on
chunks, or whether it goes to memory or to disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy import ndarray

from impact_gnn._array import smallest_unsigned
from impact_gnn.graph.csr import index_type, joined_ranges

if TYPE_CHECKING:
    from impact_gnn.data.tsbm import TSBM

EDGES_PER_PIECE = 1 << 16  # expected edges of the largest pieces
# step of the random numbers' counter: odd, so that it visits all 64-bit values
WEYL = np.uint64(0x9E3779B97F4A7C15)
PIECE = np.dtype(
    [
        ("row", np.int64),
        ("column", np.int64),
        ("start", np.int64),
        ("length", np.int64),
        ("probability", np.float64),
        ("count", np.int64),
    ]
)
"""A range of the numbered pairs of nodes of the blocks `row` and `column`."""


class BlockPairs:
    """Links between blocks of nodes, drawn piece by piece.

    Args:
        members: The nodes sorted by block [N], in the type that edges shall have.
        sizes: The nodes per block [B].
        row: A block of every pair of blocks [P].
        column: The other block [P].
        probability: Probability of a link between two nodes of these blocks [P].
        seed: The source of random numbers.
        ordered: Draw (i, j) and (j, i) separately. Otherwise pairs of blocks with row > column are
            left out.
    """

    def __init__(
        self,
        *,
        members: ndarray,
        sizes: ndarray,
        row: ndarray,
        column: ndarray,
        probability: ndarray,
        seed: np.random.SeedSequence,
        ordered: bool,
    ) -> None:
        # Pairs of nodes within a block, [B].
        own_pairs = sizes * (sizes - 1)
        if not ordered:
            own_pairs //= 2
        # Pairs of nodes of every pair of blocks, [P].
        across = sizes[row] * sizes[column]
        pairs = np.where(row == column, own_pairs[row], across)
        # The inverse of a smaller probability would overflow.
        least = np.finfo(np.float64).tiny
        is_used = (pairs > 0) & (probability >= least)
        if not ordered:
            is_used &= row <= column
        used = np.flatnonzero(is_used)
        # Every pair of blocks is cut into pieces of about equal work.
        num_edges = pairs[used] * probability[used]
        num_pieces = np.ceil(num_edges / EDGES_PER_PIECE).astype(np.int64)
        num_pieces = np.maximum(1, num_pieces)
        # Pairs of nodes in a piece, rounded up [pieces].
        step = np.repeat(-(-pairs[used] // num_pieces), num_pieces)
        # The number of a piece within its pair of blocks.
        number = joined_ranges(np.zeros_like(num_pieces), num_pieces)
        # The pair of blocks that each piece belongs to.
        origin = np.repeat(used, num_pieces)
        start = number * step
        pieces = np.zeros(len(origin), PIECE)
        pieces["row"] = row[origin]
        pieces["column"] = column[origin]
        pieces["probability"] = probability[origin]
        pieces["start"] = start
        pieces["length"] = np.minimum(step, pairs[origin] - start)
        self.pieces = pieces
        self.members = members
        self.offset = np.append(0, np.cumsum(sizes))
        self.ordered = ordered
        (self.state,) = seed.generate_state(1, np.uint64)
        no_edges = np.empty((2, 0), members.dtype)
        # The same random walk counts links first: a piece's place in the result is then known.
        self._walk(0, len(origin), no_edges)

    @property
    def count(self) -> ndarray:
        """The number of links of every piece."""
        return self.pieces["count"]

    def edges(self, first: int = 0, last: int | None = None) -> ndarray:
        """Return the edges [2, ·] of the pieces first .. last−1, by default all.

        Both directions of a link follow each other.
        """
        if last is None:
            last = len(self.pieces)
        num_links = self.count[first:last].sum()
        # Two columns per link.
        out = np.empty((2, 2 * num_links), self.members.dtype)
        if out.size:
            self._walk(first, last, out)
        return out

    def _walk(self, first: int, last: int, out: ndarray) -> None:
        """Count the links of pieces, or write them to `out` if it has columns."""
        nodes = (self.members, self.offset, self.ordered, self.state)
        # Links before each piece.
        place = np.append(0, np.cumsum(self.count[first:last]))
        _walk_pieces(self.pieces[first:last], first, nodes, place, out)


class Draw:
    """Labels, periods and links of one graph, and the seed of its features."""

    def __init__(self, model: TSBM, seed: int, dtype: np.dtype | None = None) -> None:
        self.model = model
        # The model's parameters are drawn from the first child.
        _, node_seed, self.feature_seed, edge_seed = np.random.SeedSequence(seed).spawn(4)
        rng = np.random.default_rng(node_seed)
        self.label, self.period = draw_nodes(model, rng)
        # A block is period·num_labels + label.
        blocks = model.num_labels * model.num_times
        block = self.period.astype(smallest_unsigned(blocks + 1))  # small types are sorted by radix
        block *= block.dtype.type(model.num_labels)
        block += self.label
        # Every ordered pair of blocks, [2, blocks²].
        pairs_of_blocks = np.indices((blocks, blocks), dtype=np.int32)
        row, column = pairs_of_blocks.reshape(2, -1)
        members = np.argsort(block, kind="stable")
        self.pairs = BlockPairs(
            members=members.astype(dtype or index_type(model.num_nodes)),
            sizes=np.bincount(block, minlength=blocks),
            row=row,
            column=column,
            probability=model.block_probability().ravel(),
            seed=edge_seed,
            ordered=model.ordered,
        )


def draw_nodes(model: TSBM, rng: np.random.Generator) -> tuple[ndarray, ndarray]:
    """Return labels and periods in the smallest unsigned types, sorted by period.

    Labels are shuffled within a period.
    """
    times = np.arange(model.num_times, dtype=smallest_unsigned(model.num_times))
    labels = np.arange(model.num_labels, dtype=smallest_unsigned(model.num_labels))
    if model.ordered:
        # Independent times in increasing order: only how often each occurs is random.
        share = np.full(len(times), 1 / len(times))
        per_time = rng.multinomial(model.num_nodes, share)
        label = rng.integers(len(labels), size=model.num_nodes, dtype=labels.dtype)
        return label, np.repeat(times, per_time)
    blocks = len(times) * len(labels)
    sizes = np.full(blocks, model.num_nodes // blocks)
    # The remaining nodes go to blocks at random, one each.
    sizes[rng.permutation(blocks)[: model.num_nodes % blocks]] += 1
    # Nodes by time, then label.
    label = np.repeat(np.tile(labels, len(times)), sizes)
    per_time = sizes.reshape(len(times), len(labels)).sum(1)
    # Parts are views, so labels are shuffled in place.
    for part in np.split(label, np.cumsum(per_time)[:-1]):
        rng.shuffle(part)
    return label, np.repeat(times, per_time)


def draw_features(model: TSBM, label: ndarray, rng: np.random.Generator) -> ndarray:
    """Return features μ(y) + k_y·Z of nodes with these labels [n, f], float32.

    Nodes may be drawn some at a time, by one generator.
    """
    noise = rng.standard_normal((len(label), model.num_features), dtype=np.float32)
    # In place, so that there is one array [n, f].
    noise *= model.std.astype(np.float32)[label, None]
    noise += model.mean.astype(np.float32)[label]
    return noise


@njit(cache=True)
def scramble(state):  # type: ignore[no-untyped-def]
    """Apply the last step of the generator "splitmix": a bijection that looks random."""
    bits = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@njit(cache=True)
def _pair(number, columns, within, ordered):  # type: ignore[no-untyped-def]
    # The two nodes, counted within their blocks, of a pair number.
    if not within:
        i = number // columns
        return i, number - i * columns
    if ordered:  # every row leaves out its own node
        i = number // (columns - 1)
        j = number - i * (columns - 1)
        return i, j + (j >= i)
    # Below the diagonal, row i begins at i(i−1)/2; the root is rounded, so step to the right row.
    i = np.int64((1.0 + np.sqrt(1.0 + 8.0 * number)) * 0.5)
    while i * (i - 1) // 2 > number:
        i -= 1
    while i * (i + 1) // 2 <= number:
        i += 1
    return i, number - i * (i - 1) // 2


@njit(cache=True)
def _members_of(block, members, offset):  # type: ignore[no-untyped-def]
    return members[offset[block] : offset[block + 1]]


@njit(cache=True, nogil=True)
def _walk_pieces(pieces, first, nodes, place, out):  # type: ignore[no-untyped-def]
    members, offset, ordered, seed = nodes
    for k in range(len(pieces)):
        piece = pieces[k]
        rows = _members_of(piece.row, members, offset)
        columns = _members_of(piece.column, members, offset)
        # 1 / log(1 − p), by which uniform numbers become geometric ones.
        scale = 1.0 / np.log1p(-piece.probability)
        # A stream of its own for every piece, by its number in the whole graph.
        own_number = np.uint64(first + k) + np.uint64(1)
        state = scramble(seed + scramble(own_number))
        at = 2 * place[k]
        pair = 0
        while True:
            state += WEYL
            # The upper 53 bits as a number in [0, 1).
            upper = scramble(state) >> np.uint64(11)
            uniform = np.float64(upper) * 2.0**-53
            # Pairs passed over; a float, because it may be larger than any integer.
            jump = np.floor(np.log(1.0 - uniform) * scale)
            if jump >= piece.length - pair:
                break
            pair += np.int64(jump)
            if out.shape[1]:
                within = piece.row == piece.column
                i, j = _pair(piece.start + pair, len(columns), within, ordered)
                # The link in both directions, in two columns.
                out[0, at] = out[1, at + 1] = rows[i]
                out[1, at] = out[0, at + 1] = columns[j]
                at += 2
            else:
                piece.count += 1
            pair += 1
