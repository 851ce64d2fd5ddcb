"""What was counted, ĝ, and the extension to the target periods, kept sparse.

Dense arrays are made on request and refused above `DENSE_BYTES`; rows, ĝ of a pair and sums work at
any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from impact_gnn import checks
from impact_gnn._array import Array
from impact_gnn.checks import InputError
from impact_gnn.connectivity.counting import Pairs

# largest dense array that is made; beyond it `counted`, `g`, `extended`, `label_mass` refuse
DENSE_BYTES = 1 << 29


@dataclass(frozen=True, eq=False, repr=False)
class RelativeConnectivity:
    """Relative connectivity P(y, t, ỹ, t̃): of the neighbours of nodes (y, t), the share that is (ỹ, t̃).

    Neighbours are the sources of in-edges, Δ = |t̃ − t|. Made by `relative_connectivity`.
    """

    times: np.ndarray  # all times of the graph, sorted, [T]
    num_labels: int
    num_known: int  # how many of the times lie before the cutoff; the others are target periods
    form: str
    pairs: Pairs

    def __repr__(self) -> str:
        times = f"{len(self.times)} times of which {self.num_known} known"
        pairs = f"{int(self.pairs.known.sum())} labelled pairs"
        return (
            f"RelativeConnectivity({self.num_labels} labels, {times}, {pairs}, form={self.form!r})"
        )

    @cached_property
    def deltas(self) -> np.ndarray:
        """The distinct distances |t̃ − t| between any two times, sorted, [D]; without gaps 0 .. T−1."""
        return np.unique(np.abs(self.times[:, None] - self.times[None, :]))

    @cached_property
    def unobserved(self) -> np.ndarray:
        """Where ĝ(y, ·, Δ) could not be measured, [Y, D]: no two known times are Δ apart, or f̂ = 0 at those."""
        return self._scale == 0

    @property
    def counted(self) -> np.ndarray:
        """P̂ as counted, [Y, T, Y, T]: labelled pairs (y,t) ← (ỹ,t̃) over *all* in-edges of the nodes (y,t).

        A row sums to the share of neighbours whose label is known; rows and columns of target
        periods are zero.
        """
        self._refuse_above("counted", self._num_states**2)
        return _divided(self.pairs.known, self._degree).toarray().reshape(self._shape)

    @property
    def g(self) -> np.ndarray:
        """ĝ(y, ỹ, Δ), [Y, Y, D] in the order of `deltas`; zero where `unobserved`."""
        self._refuse_above("g", self.num_labels**2 * len(self.deltas))
        return (
            self._measured.toarray()
            .reshape(self.num_labels, -1, self.num_labels)
            .transpose(0, 2, 1)
        )

    @property
    def extended(self) -> np.ndarray:
        """P̂ for all periods, [Y, T, Y, T]; `relative_connectivity` says which entries come from where."""
        self._refuse_above("extended", self._num_states**2)
        g = self._filled.toarray().reshape(self.num_labels, -1, self.num_labels)
        out = g[:, self._distance].transpose(0, 1, 3, 2) * self._inverse_total[:, :, None, None]
        counted = self._counted_part.toarray().reshape(self._shape)
        known = np.arange(len(self.times)) < self.num_known
        np.copyto(out, counted, where=self._from_counts[:, :, None, None] & known)
        return out

    def pair(self, label: int, neighbour: int) -> np.ndarray:
        """ĝ(label, neighbour, ·) in the order of `deltas`, [D]."""
        self._check_label("label", label)
        self._check_label("neighbour", neighbour)
        return self._of_label(self._measured, label).toarray()[:, neighbour]

    def row(self, label: int, time: int) -> np.ndarray:
        """`extended[label, position of time]`: the neighbours of a node by label and time, [Y, T]."""
        self._check_label("label", label)
        t = int(np.searchsorted(self.times, time))
        if t == len(self.times) or self.times[t] != time:
            raise InputError(
                f"time={time} is not in this graph, whose times are {checks.listing(list(self.times))}."
            )
        g = self._of_label(self._filled, label).toarray()
        out = g[self._distance[t]].T * self._inverse_total[label, t]
        if self._from_counts[label, t]:
            counted = self._counted_part[[label * len(self.times) + t]].toarray().reshape(out.shape)
            out[:, : self.num_known] = counted[:, : self.num_known]
        return out

    def label_mass(self, table: Array) -> np.ndarray:
        """Σ_t̃ Ω[t, t̃]·P̂(y, t, ỹ, t̃), [Y, T, Y]: what every label weighs in a message, before the division."""
        size = len(self.times)
        omega = checks.array("table", table)
        if (
            omega.shape != (size, size)
            or omega.dtype.kind not in "iufb"
            or not np.isfinite(omega).all()
        ):
            given = f"table has type {omega.dtype} and shape {omega.shape}"
            raise InputError(
                f"{given}; give finite weights [{size}, {size}], target times by source times."
            )
        self._refuse_above("label_mass", self._num_states * self.num_labels)
        row, column, share = _entries(self._counted_part)
        weight = share * omega[row % size, column % size]
        counted = _grouped(weight, row, column // size, (self._num_states, self.num_labels))
        out = counted.toarray().reshape(self.num_labels, size, self.num_labels)
        # By distance, for rows that take everything from ĝ and for rows that take only the target
        # times from it.
        everything, targets = self._by_distance(omega, 0), self._by_distance(omega, self.num_known)
        for label in range(self.num_labels):
            g = self._of_label(self._filled, label)
            counted_rows = self._from_counts[label][:, None]
            drawn = np.where(counted_rows, (targets @ g).toarray(), (everything @ g).toarray())
            out[label] += drawn * self._inverse_total[label][:, None]
        return out

    # Matrices over states have the rows (y, t) = y·T + t, matrices of g the rows (y, Δ) = y·D + Δ
    # and columns ỹ.

    @property
    def _num_states(self) -> int:
        return self.num_labels * len(self.times)

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return (self.num_labels, len(self.times)) * 2

    @cached_property
    def _distance(self) -> np.ndarray:
        """Position of |t̃ − t| among `deltas`, [T, T]."""
        return np.searchsorted(self.deltas, np.abs(self.times[:, None] - self.times[None, :]))

    @cached_property
    def _degree(self) -> np.ndarray:
        """In-edges of all nodes of a state, [S]."""
        return self.pairs.known.sum(1) + self.pairs.unknown.sum(1)

    @cached_property
    def _shares(self) -> sparse.csr_array:
        """P̂ as ĝ and the extension use it: `counted`, but with unlabelled neighbours of the past handed out.

        They go to the labels in the proportions of the labelled ones at (y, t, t̃). Otherwise a
        period with few labels would pass for one with few neighbours.
        """
        counts = self.pairs.known
        if self.form == "unbiased" and self.pairs.unknown[:, : self.num_known].nnz:
            size = len(self.times)
            row, column, count = _entries(counts)
            # A cell is (state of the target, period of the source); labelled neighbours by cell ...
            cells, cell = np.unique(row * size + column % size, return_inverse=True)
            labelled = np.bincount(cell, count)
            # ... and unlabelled ones, where the cell has a labelled neighbour whose proportions
            # they can take.
            state, period, unknown = _entries(self.pairs.unknown)
            at = np.searchsorted(cells, state * size + period)
            shared = np.flatnonzero(cells[np.minimum(at, len(cells) - 1)] == state * size + period)
            unlabelled = np.bincount(at[shared], unknown[shared], len(cells))
            counts = _grouped(count * (1 + unlabelled / labelled)[cell], row, column, counts.shape)
        return _divided(counts, self._degree)

    @cached_property
    def _scale(self) -> np.ndarray:
        """The denominator of ĝ, [Y, D]: f̂(y, t) = Σ_ỹ P̂(y, t, ỹ, t) summed over the terms t+Δ and t−Δ."""
        size, past = len(self.times), self.times[: self.num_known]
        row, column, share = _entries(self._shares)
        same = row % size == column % size
        f = np.bincount(row[same], share[same], self._num_states).reshape(self.num_labels, size)
        if self.form == "printed":
            # Σ_t f̂(y, t) over the t with t+Δ before the cutoff, by a running sum, and over all t
            # for t−Δ.
            running = np.pad(np.cumsum(f[:, : self.num_known], axis=1), ((0, 0), (1, 0)))
            up = np.searchsorted(past, past[-1] - self.deltas, side="right")
            return running[:, up] + running[:, -1:]
        # A label that never meets its own time has no f̂ at all; its periods with neighbours then
        # count alike.
        f = np.where(f.any(1, keepdims=True), f, self._from_counts)
        # f̂(y, t) counts once for every known time s that is Δ from t, and twice for s = t, as the
        # numerator does.
        t, s = (index.ravel() for index in np.indices((self.num_known, self.num_known)))
        twice = np.where(t == s, 2.0, 1.0)
        terms = _grouped(twice, t, self._distance[t, s], (size, len(self.deltas)))
        return (terms.T @ f.T).T

    @cached_property
    def _measured(self) -> sparse.csr_array:
        size, reach = len(self.times), len(self.deltas)
        row, column, share = _entries(self._shares)
        distance = self._distance[row % size, column % size]
        # t+Δ and t−Δ are one pair then, which both sums hold
        twice = np.where(distance == 0, 2.0, 1.0)
        # the row (y, Δ); times are summed out, labels ỹ stay as columns
        where = row // size * reach + distance
        total = _grouped(
            share * twice, where, column // size, (self.num_labels * reach, self.num_labels)
        )
        return _divided(total, self._scale.ravel())

    @cached_property
    def _filled(self) -> sparse.csr_array:
        """ĝ, and for "unbiased" a value where it is unobserved."""
        if self.form == "printed":
            return self._measured
        # Constant beyond the last observed Δ: a decaying g lies between that and zero, and slow
        # decay is the rule.
        return _interpolation(self.unobserved, self.deltas) @ self._measured

    @cached_property
    def _inverse_total(self) -> np.ndarray:
        """1 / Σ_ỹ Σ_t̃ ĝ(y, ỹ, |t̃ − t|), [Y, T]; zero where nothing is known of the label."""
        total = self._total(0)
        return np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)

    def _total(self, first: int) -> np.ndarray:
        """Σ_ỹ Σ_t̃ ĝ(y, ỹ, |t̃ − t|) over the times t̃ from position `first` on, [Y, T]."""
        h = self._filled.sum(1).reshape(self.num_labels, -1)
        return (self._by_distance(np.ones_like(self._distance), first) @ h.T).T

    def _by_distance(self, omega: np.ndarray, first: int) -> sparse.csr_array:
        """Σ of Ω[t, t̃] over the t̃ from position `first` on that lie Δ from t, CSR [T, D]."""
        size = len(self.times)
        t, s = (index.ravel() for index in np.indices((size, size)))
        t, s = t[s >= first], s[s >= first]
        return _grouped(
            omega[t, s].astype(np.float64), t, self._distance[t, s], (size, len(self.deltas))
        )

    @cached_property
    def _from_counts(self) -> np.ndarray:
        """Whether the known times in the row (y, t) of `extended` are counted, not drawn from ĝ, [Y, T]."""
        if self.form == "printed":
            return np.tile(np.arange(len(self.times)) < self.num_known, (self.num_labels, 1))
        return self._shares.sum(1).reshape(self.num_labels, -1) > 0

    @cached_property
    def _counted_part(self) -> sparse.csr_array:
        """The counted entries of `extended`; "unbiased" scales a row to the mass that ĝ gives the known times."""
        if self.form == "printed":
            return self._shares
        # What ĝ leaves for the known times: 1 minus the share of the target times. Rows then sum to
        # 1.
        mass = 1 - self._total(self.num_known) * self._inverse_total
        scale = np.divide(
            self._shares.sum(1),
            mass.ravel(),
            out=np.zeros(self._num_states),
            where=mass.ravel() > 0,
        )
        return _divided(self._shares, scale)

    def _of_label(self, matrix: sparse.csr_array, label: int) -> sparse.csr_array:
        reach = len(self.deltas)
        return matrix[label * reach : (label + 1) * reach]

    def _check_label(self, name: str, value: int) -> None:
        if not 0 <= value < self.num_labels:
            raise InputError(
                f"{name}={value} is not a label; labels run from 0 to {self.num_labels - 1}."
            )

    def _refuse_above(self, name: str, cells: int) -> None:
        if 8 * cells > DENSE_BYTES:
            size = f"{8 * cells / 2**20:,.0f} MiB for {self.num_labels} labels and {len(self.times)} times"
            remedy = "use row(label, time) or pair(label, neighbour), or bin the times."
            raise InputError(
                f"{name} would take {size}, above the limit of {DENSE_BYTES >> 20} MiB; {remedy}"
            )


def _entries(matrix: sparse.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns (int64, so that products of them cannot overflow) and values."""
    coo = matrix.tocoo()
    return coo.row.astype(np.int64), coo.col.astype(np.int64), coo.data


def _grouped(
    data: np.ndarray, row: np.ndarray, column: np.ndarray, shape: tuple[int, int]
) -> sparse.csr_array:
    """A CSR matrix in which entries of the same place have been added up."""
    return sparse.coo_array((data, (row, column)), shape=shape).tocsr()


def _divided(matrix: sparse.csr_array, divisor: np.ndarray) -> sparse.csr_array:
    """`matrix` with every row divided by its entry of `divisor`; zero where that is zero."""
    factor = np.divide(1.0, divisor, out=np.zeros(len(divisor)), where=divisor != 0)
    out = matrix.astype(np.float64)
    out.data *= np.repeat(factor, np.diff(out.indptr))
    return out


def _interpolation(missing: np.ndarray, position: np.ndarray) -> sparse.csr_array:
    """The matrix that fills the missing entries along the last axis of an array [R, D], acting on [R·D, ·].

    A missing entry lies on the straight line between the nearest present ones, stays constant
    beyond the first and the last, and is zero in a row where all are missing; `position` says where
    the D entries stand, increasing.
    """
    rows, size = missing.shape
    place = np.broadcast_to(np.arange(size), missing.shape)
    # The nearest present entry on either side; beyond the first and last it is the same one, in
    # empty rows any.
    left = np.maximum.accumulate(np.where(missing, -1, place), axis=1)
    right = np.minimum.accumulate(np.where(missing, size, place)[:, ::-1], axis=1)[:, ::-1]
    present = left[:, -1:] >= 0
    left, right = np.where(left < 0, right, left), np.where(right == size, left, right)
    left, right = np.where(present, left, 0), np.where(present, right, 0)
    gap = position[right] - position[left]
    weight = np.where(gap > 0, (position - position[left]) / np.maximum(gap, 1), 0.0)
    at = np.arange(rows * size)
    base = at // size * size
    weights = np.concatenate([((1 - weight) * present).ravel(), (weight * present).ravel()])
    columns = np.concatenate([base + left.ravel(), base + right.ravel()])
    return _grouped(weights, np.concatenate([at, at]), columns, (rows * size, rows * size))
