"""Counts (sparse), ĝ, and the extension to the target periods.

Dense arrays are refused above `DENSE_BYTES`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy import ndarray
from scipy import sparse

from impact_gnn import checks
from impact_gnn._array import Array, safe_divide
from impact_gnn.checks import InputError
from impact_gnn.connectivity.counting import Pairs

# Largest dense array; beyond it `counted`, `g`, `extended` and `label_mass` refuse.
DENSE_BYTES = 1 << 29


@dataclass(frozen=True, eq=False, repr=False)
class RelativeConnectivity:
    """Relative connectivity P(y, t, ỹ, t̃): the share of (ỹ, t̃) among neighbours of nodes (y, t).

    Neighbours are the sources of in-edges, Δ = |t̃ − t|. Built by `relative_connectivity`.
    """

    times: ndarray  # all times of the graph, sorted, [T]
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
    def deltas(self) -> ndarray:
        """The sorted distinct distances |t̃ − t| of times, [D]; without gaps 0 .. T−1."""
        return np.unique(self._distance_in_time)

    @cached_property
    def unobserved(self) -> ndarray:
        """Where ĝ(y, ·, Δ) is not measurable, [Y, D]: no known times Δ apart, or f̂ = 0."""
        return self._scale == 0

    @property
    def counted(self) -> ndarray:
        """P̂ as counted, [Y, T, Y, T]: labelled pairs (y,t) ← (ỹ,t̃) over *all* in-edges of (y,t).

        A row sums to the share of neighbours whose label is known; rows and columns of target
        periods are zero.
        """
        self._refuse_above("counted", self._num_states**2)
        counted = _divided(self.pairs.known, self._degree)
        return counted.toarray().reshape(self._shape)

    @property
    def g(self) -> ndarray:
        """ĝ(y, ỹ, Δ), [Y, Y, D] in the order of `deltas`; zero where `unobserved`."""
        return self._measured.transpose(0, 2, 1)

    @property
    def extended(self) -> ndarray:
        """P̂ for all periods, [Y, T, Y, T]; see `relative_connectivity`."""
        self._refuse_above("extended", self._num_states**2)
        # ĝ[y, Δ, ỹ] at the distances of all pairs of times: [Y, T, T, Y] → [Y, T, Y, T].
        by_times = self._filled[:, self._distance].transpose(0, 1, 3, 2)
        extended = by_times * self._inverse_total[:, :, None, None]
        # Known times of rows with counts are counted.
        counted = self._counted_part.toarray().reshape(self._shape)
        is_counted = self._from_counts[:, :, None, None] & self._is_known
        return np.where(is_counted, counted, extended)

    def label_mass(self, table: Array) -> ndarray:
        """Compute Σ_t̃ Ω[t, t̃]·P̂(y, t, ỹ, t̃), [Y, T, Y]: weights of labels in messages."""
        size = len(self.times)
        omega = checks.array("table", table)
        is_numeric = omega.dtype.kind in "iufb" and np.isfinite(omega).all()
        if omega.shape != (size, size) or not is_numeric:
            raise InputError(
                f"table has dtype {omega.dtype} and shape {omega.shape}; "
                f"use finite weights [{size}, {size}], target times by source times."
            )
        self._refuse_above("label_mass", self._num_states * self.num_labels)
        # Counted entries, summed over the times of the source.
        row, column, share = _entries(self._counted_part)
        # A state is label·T + period, so the remainder is the period, the quotient the label.
        weight = share * omega[row % size, column % size]
        # Flat index in [Y, T, Y].
        place = row * self.num_labels + column // size
        # [Y·T·Y], entries of the same place added up.
        mass = np.bincount(place, weight, self._num_states * self.num_labels)
        mass = mass.reshape(self.num_labels, size, self.num_labels)
        # The rest comes from ĝ: all times, or in rows with counts the target times only.
        all_times = self._by_distance(omega)
        target_times = self._by_distance(np.where(self._is_known, 0, omega))
        for label, g in enumerate(self._filled):
            is_counted = self._from_counts[label][:, None]
            # [T, D] @ [D, Y]: mass by target time and label of the neighbour.
            rest = np.where(is_counted, target_times @ g, all_times @ g)
            mass[label] += rest * self._inverse_total[label][:, None]
        return mass

    # Matrices over states have the rows (y, t) = y·T + t; ĝ is stored as [y, Δ, ỹ].

    @property
    def _num_states(self) -> int:
        return self.num_labels * len(self.times)

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return (self.num_labels, len(self.times)) * 2

    @cached_property
    def _distance(self) -> ndarray:
        """Position of |t̃ − t| among `deltas`, [T, T]."""
        return np.searchsorted(self.deltas, self._distance_in_time)

    @property
    def _distance_in_time(self) -> ndarray:
        """|t̃ − t|, [T, T]."""
        return np.abs(self.times[:, None] - self.times)

    @property
    def _is_known(self) -> ndarray:
        """Whether a time lies before the cutoff, [T]."""
        return np.arange(len(self.times)) < self.num_known

    @cached_property
    def _degree(self) -> ndarray:
        """In-edges of all nodes of a state, [S]."""
        return self.pairs.known.sum(1) + self.pairs.unknown.sum(1)

    @cached_property
    def _shares(self) -> sparse.csr_array:
        """P̂ for ĝ and the extension: `counted` with unlabelled neighbours distributed to labels.

        They follow the proportions of the labelled ones at (y, t, t̃). Otherwise a period with few
        labels would look like one with few neighbours.
        """
        counts = self.pairs.known
        if self.form == "unbiased" and self.pairs.unknown[:, : self.num_known].nnz:
            size = len(self.times)
            row, column, count = _entries(counts)
            # A cell is (state of the target, period of the source); labelled neighbours by cell ...
            cells, cell = np.unique(row * size + column % size, return_inverse=True)
            labelled = np.bincount(cell, count)
            # ... and unlabelled ones in cells that have labelled neighbours.
            state, period, unknown = _entries(self.pairs.unknown)
            unknown_cell = state * size + period
            # Cells without labelled neighbours are not in `cells`, and are left out.
            position = np.searchsorted(cells, unknown_cell)
            is_shared = cells[np.minimum(position, len(cells) - 1)] == unknown_cell
            unlabelled = np.bincount(position[is_shared], unknown[is_shared], len(cells))
            # A labelled count grows by its share of the unlabelled neighbours of the cell.
            growth = 1 + unlabelled / labelled
            counts = _grouped(count * growth[cell], row, column, counts.shape)
        return _divided(counts, self._degree)

    @cached_property
    def _scale(self) -> ndarray:
        """The denominator of ĝ, [Y, D]: f̂(y, t) = Σ_ỹ P̂(y, t, ỹ, t) over t+Δ and t−Δ."""
        size = len(self.times)
        past = self.times[: self.num_known]
        row, column, share = _entries(self._shares)
        # Edges within a period give f̂, [Y, T].
        same = row % size == column % size
        f = np.bincount(row[same], share[same], self._num_states)
        f = f.reshape(self.num_labels, size)
        if self.form == "printed":
            # Σ_t f̂(y, t) over t with t+Δ before the cutoff, by a running sum, and over all t.
            running = np.zeros((self.num_labels, self.num_known + 1))
            running[:, 1:] = np.cumsum(f[:, : self.num_known], axis=1)
            # How many known times t have t + Δ among the known times, by Δ [D].
            up = np.searchsorted(past, past[-1] - self.deltas, side="right")
            return running[:, up] + running[:, -1:]
        # A label without neighbours of its own time has no f̂; its periods then count alike.
        has_own_time = f.any(1, keepdims=True)
        f = np.where(has_own_time, f, self._from_counts)
        # How often f̂(y, t) enters the sum of a distance, CSR [T, D]: once for every known time s
        # at distance Δ from t, and twice for s = t, as in the numerator.
        known = self._is_known.astype(np.float64)
        omega = np.outer(known, known) + np.diag(known)
        return (self._by_distance(omega).T @ f.T).T

    @cached_property
    def _measured(self) -> ndarray:
        """ĝ as [Y, D, Y]; zero where unobserved."""
        size = len(self.times)
        shape = (self.num_labels, len(self.deltas), self.num_labels)
        self._refuse_above("g", math.prod(shape))
        row, column, share = _entries(self._shares)
        distance = self._distance[row % size, column % size]
        # For Δ = 0 the terms t+Δ and t−Δ are the same pair.
        twice = np.where(distance == 0, 2.0, 1.0)
        # Times are summed out.
        place = np.ravel_multi_index((row // size, distance, column // size), shape)
        total = np.bincount(place, share * twice, math.prod(shape))
        return safe_divide(total.reshape(shape), self._scale[:, :, None])

    @cached_property
    def _filled(self) -> ndarray:
        """ĝ as [Y, D, Y], and for "unbiased" a value where it is unobserved."""
        if self.form == "printed":
            return self._measured
        filled = np.zeros_like(self._measured)
        for label, missing in enumerate(self.unobserved):
            observed = np.flatnonzero(~missing)
            if not len(observed):
                continue
            # The place of every Δ among the observed ones, linear between two of them. Constant
            # beyond the last: a decaying g lies between that and zero, and decay is mostly slow.
            positions = np.arange(len(observed))
            place = np.interp(self.deltas, self.deltas[observed], positions)
            # Positions of the observed Δ on both sides, and how far between them each Δ lies.
            below = place.astype(np.int64)
            above = np.minimum(below + 1, positions[-1])
            weight = (place - below)[:, None]
            g = self._measured[label, observed]
            filled[label] = (1 - weight) * g[below] + weight * g[above]
        return filled

    @cached_property
    def _inverse_total(self) -> ndarray:
        """1 / Σ_ỹ Σ_t̃ ĝ(y, ỹ, |t̃ − t|), [Y, T]; zero where the label has no ĝ."""
        return safe_divide(1.0, self._total(0))

    def _total(self, first: int) -> ndarray:
        """Sum Σ_ỹ Σ_t̃ ĝ(y, ỹ, |t̃ − t|) over the times t̃ from position `first` on, [Y, T]."""
        omega = np.ones_like(self._distance)
        omega[:, :first] = 0
        g = self._filled.sum(2)
        return (self._by_distance(omega) @ g.T).T

    def _by_distance(self, omega: ndarray) -> sparse.csr_array:
        """Sum Ω[t, t̃] over the t̃ at distance Δ from t, CSR [T, D]."""
        t, s = np.nonzero(omega)
        weight = omega[t, s].astype(np.float64)
        shape = (len(self.times), len(self.deltas))
        return _grouped(weight, t, self._distance[t, s], shape)

    @cached_property
    def _from_counts(self) -> ndarray:
        """Whether the known times in row (y, t) of `extended` are counted, not from ĝ, [Y, T]."""
        if self.form == "printed":
            return np.tile(self._is_known, (self.num_labels, 1))
        return self._shares.sum(1).reshape(self.num_labels, -1) > 0

    @cached_property
    def _counted_part(self) -> sparse.csr_array:
        """The counted entries of `extended`; "unbiased" scales rows to ĝ's mass of known times."""
        if self.form == "printed":
            return self._shares
        # The mass of the known times is 1 minus that of the target times. Rows then sum to 1.
        mass = 1 - self._total(self.num_known) * self._inverse_total
        # Divided by sum / mass, a row sums to its mass.
        scale = safe_divide(self._shares.sum(1), mass.ravel())
        return _divided(self._shares, scale)

    def _refuse_above(self, name: str, cells: int) -> None:
        if 8 * cells > DENSE_BYTES:
            raise InputError(
                f"{name} would need {8 * cells / 2**20:,.0f} MiB for {self.num_labels} labels and "
                f"{len(self.times)} times, above the limit of {DENSE_BYTES >> 20} MiB; "
                "bin the times or merge labels."
            )


def _entries(matrix: sparse.csr_array) -> tuple[ndarray, ndarray, ndarray]:
    """Return rows, columns (int64, so that products of them cannot overflow) and values."""
    coo = matrix.tocoo()
    row = coo.row.astype(np.int64)
    column = coo.col.astype(np.int64)
    return row, column, coo.data


def _grouped(
    data: ndarray, row: ndarray, column: ndarray, shape: tuple[int, int]
) -> sparse.csr_array:
    """Build a CSR matrix; entries of the same place are added."""
    return sparse.coo_array((data, (row, column)), shape=shape).tocsr()


def _divided(matrix: sparse.csr_array, divisor: ndarray) -> sparse.csr_array:
    """Divide every row by its entry of `divisor`; zero where that is zero."""
    factor = safe_divide(1.0, divisor)
    quotient = matrix.astype(np.float64)
    # The factor of a row for each of its stored entries.
    quotient.data *= np.repeat(factor, np.diff(quotient.indptr))
    return quotient
