"""From what candidates said about the past to one choice, its gain and its calibration.

Whatever is claimed about the choice is measured on a window that it was not made by: the blend and
    its calibration are
made anew from the other windows, nodes that windows share left out. With a single window, halves of
its nodes take the place of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from impact_gnn.backtesting.folds import Window, learnable, prior_before, times_of
from impact_gnn.backtesting.greedy import LEAST_GAIN, blend, fold_weights, overall
from impact_gnn.backtesting.results import PLAIN, FoldCheck, PeriodScore, Selection, SelectionReason
from impact_gnn.backtesting.scores import Scores
from impact_gnn.graph import TemporalGraph
from impact_gnn.metrics import Scoring, mean_and_error
from impact_gnn.pipeline import Calibration, Candidate, EnsembleSpec, Member
from impact_gnn.pipeline.calibration import (
    FINE,
    OutOfFold,
    calibration_error,
    confusion,
    learned,
    reliability,
)
from impact_gnn.statistics import Estimate, combined


@dataclass(frozen=True, eq=False)
class Piece:
    """Nodes that are left out together: those of a window, or half of them."""

    window: Window
    index: np.ndarray  # their places in the fold
    time: np.ndarray

    def without(self, other: Piece) -> Piece:
        """What is left when another piece is left out: nodes that both have are in neither."""
        if self.window == other.window:
            return self
        keep = (self.time < other.window.first) | (self.time > other.window.last)
        return Piece(self.window, self.index[keep], self.time[keep])

    def only(self, keep: np.ndarray) -> Piece:
        """The nodes that a mask over the piece keeps."""
        return Piece(self.window, self.index[keep], self.time[keep])


@dataclass(frozen=True, eq=False)
class EnsembleSelection:
    """Candidates that were tried on every fold, the best first, and what they said."""

    scores: Scores
    finalists: Sequence[Candidate]
    windows: Sequence[Window]
    view: TemporalGraph

    @cached_property
    def pieces(self) -> list[Piece]:
        times = [times_of(self.view, window) for window in self.windows]
        if len(times) > 1:
            return [
                Piece(w, np.arange(len(time)), time)
                for w, time in zip(self.windows, times, strict=True)
            ]
        mixed = np.random.default_rng(0).permutation(len(times[0]))
        return [
            Piece(self.windows[0], np.sort(part), times[0][np.sort(part)])
            for part in np.array_split(mixed, 2)
        ]

    @property
    def weights(self) -> np.ndarray:
        """What pieces count: newer windows more, halves of one window the same."""
        return fold_weights(len(self.pieces)) if len(self.windows) > 1 else np.full(2, 0.5)

    def decision(self, out_of_time: bool) -> Selection:
        """The blend where it gains on windows that it was not made by, otherwise plain."""
        others, metric = [one for one in self.finalists if one != PLAIN], self.metric
        if not others or PLAIN not in self.finalists:
            reason = SelectionReason.OUT_OF_TIME if out_of_time else SelectionReason.NONE_TRIED
            return Selection(EnsembleSpec.single(PLAIN), reason, metric=metric)
        choice, folds = self.chosen(self.pieces), len(self.windows)
        gain = combined(*np.array([self.gain(k) for k in range(len(self.pieces))]).T)
        if choice == EnsembleSpec.single(PLAIN) or self.worse(gain):
            nearest = self.scores.difference(others[0])
            return Selection(
                EnsembleSpec.single(PLAIN),
                SelectionReason.NONE_BETTER,
                others[0],
                nearest,
                folds,
                metric,
            )
        best = None if choice == EnsembleSpec.single(self.finalists[0]) else self.finalists[0]
        return Selection(choice, SelectionReason.BETTER, best, gain, folds, metric)

    @property
    def metric(self) -> str:
        return self.scores.judge(str(self.windows[-1])).metric

    def judge(self, piece: Piece) -> Scoring:
        return self.scores.judge(str(piece.window))

    def gain(self, k: int) -> tuple[float, float]:
        """Score over plain's on a piece, of the blend made and calibrated without it, and its standard error."""
        return mean_and_error(
            self.each(k, *self.calibrated_out_of_fold[k]), self.each(k, *self.plain_out[k])
        )

    def each(
        self, k: int, said: np.ndarray, calibration: Calibration, metric: str | None = None
    ) -> np.ndarray:
        """Numbers per node of a piece, whose mean is the score of calibrated predictions."""
        judge = self.judge(self.pieces[k])
        judge = judge if metric is None else replace(judge, metric=metric)
        return judge.each(said, self.truth(self.pieces[k]), calibration.tilt)

    @cached_property
    def plain_out(self) -> list[tuple[np.ndarray, Calibration]]:
        """Plain on every piece; calibrated by the others where more than the most probable label counts."""
        if self.metric == "accuracy":
            return [(self.said(PLAIN, piece), Calibration()) for piece in self.pieces]
        return left_out(self.of(EnsembleSpec.single(PLAIN)), self.metric)

    def worse(self, gain: Estimate) -> bool:
        """Whether blends gain nothing over plain on pieces that they were not made by.

        For accuracy it is the log-loss that must be clearly smaller: hits are too coarse to decide
        by.
        """
        if self.metric != "accuracy":
            return gain.value <= 0
        known = [self.learned_by_then(piece) for piece in self.pieces]
        pieces = [piece.only(kept) for piece, kept in zip(self.pieces, known, strict=True)]
        said = [one.probability[kept] for one, kept in zip(self.out_of_fold, known, strict=True)]
        ours = [self.loss(piece, each) for piece, each in zip(pieces, said, strict=True)]
        plain = [self.loss(piece, self.seen(PLAIN, piece)) for piece in pieces]
        return overall(ours, self.weights) > (1 - LEAST_GAIN) * overall(plain, self.weights)

    def loss(self, piece: Piece, said: np.ndarray) -> float:
        return self.judge(piece).loss(said, self.truth(piece), self.view.num_labels)

    def chosen(self, pieces: Sequence[Piece]) -> EnsembleSpec:
        """The blend made by some pieces, oldest first; the simplest candidates are looked at first.

        Nodes of classes that nobody can have learned by then are left out: there the least sure is
            the best.
        """
        pieces = [piece.only(self.learned_by_then(piece)) for piece in pieces]
        order = sorted(self.finalists, key=lambda one: one.num_parts)
        even = None if len(self.windows) > 1 else np.full(len(pieces), 1 / len(pieces))
        said = [[self.seen(one, piece) for piece in pieces] for one in order]
        losses = [partial(self.loss, piece) for piece in pieces]
        weights = blend(said, losses, even, [one.smoothed(False) for one in order])
        members = [
            Member(order[k], float(weights[k]))
            for k in np.argsort(-weights, kind="stable")
            if weights[k] > 0
        ]
        return EnsembleSpec(tuple(members))

    def learned_by_then(self, piece: Piece) -> np.ndarray:
        """Mask of a piece's nodes in classes with enough examples before its window; all if there is none."""
        known = learnable(self.view, piece.window)[piece.index]
        return known if known.any() else np.ones(len(known), bool)

    def mixed(self, choice: EnsembleSpec, piece: Piece) -> np.ndarray:
        """What the choice says about a piece."""
        return sum(member.weight * self.said(member.candidate, piece) for member in choice.members)  # type: ignore[return-value]

    @cached_property
    def out_of_fold(self) -> list[OutOfFold]:
        """What was said about every piece by the blend made without it."""
        return [
            self.walk(
                piece,
                self.chosen([one.without(piece) for j, one in enumerate(self.pieces) if j != k]),
                k,
            )
            for k, piece in enumerate(self.pieces)
        ]

    def walk(self, piece: Piece, choice: EnsembleSpec, k: int) -> OutOfFold:
        said = self.mixed(choice, piece)
        weight = float(self.weights[k]) ** 2  # calibration ages faster than the order of candidates
        return OutOfFold(said, self.truth(piece), prior_before(self.view, piece.window), weight)

    def of(self, choice: EnsembleSpec) -> list[OutOfFold]:
        """What the choice said; plain, where it is chosen, was not made by any window."""
        plain = EnsembleSpec.single(PLAIN)
        return (
            self.out_of_fold
            if choice != plain
            else [self.walk(one, plain, k) for k, one in enumerate(self.pieces)]
        )

    def calibration(self, choice: EnsembleSpec) -> Calibration:
        """By what the choice itself says about all windows: other blends are more or less sure of themselves."""
        return learned(
            [self.walk(piece, choice, k) for k, piece in enumerate(self.pieces)], metric=self.metric
        )

    @cached_property
    def calibrated_out_of_fold(self) -> list[tuple[np.ndarray, Calibration]]:
        return left_out(self.out_of_fold, self.metric)

    def checks(self, choice: EnsembleSpec) -> list[FoldCheck]:
        """How the choice and its calibration would have done on every piece, made without it."""
        out, out_of_fold, final = [], self.of(choice), self.calibration(choice)
        calibrated = (
            self.calibrated_out_of_fold
            if out_of_fold is self.out_of_fold
            else left_out(out_of_fold, self.metric)
        )
        for k, (piece, (said, calibration)) in enumerate(zip(self.pieces, calibrated, strict=True)):
            truth, label = out_of_fold[k].truth, calibration.labels(said, out_of_fold[k].prior)
            sets, row, shown = (
                calibration.sets(said, label),
                np.arange(len(truth)),
                self.judge(piece).rule.displayed,
            )
            plain = self.plain_out[k]
            as_plain = self.each(k, *plain, "accuracy")
            out.append(
                FoldCheck(
                    str(piece.window),
                    len(truth),
                    int((out_of_fold[k].prior[truth] == 0).sum()),
                    float((label == truth).mean()),
                    float(
                        (
                            final.labels(self.mixed(choice, piece), out_of_fold[k].prior) == truth
                        ).mean()
                    ),
                    float(as_plain.mean()),
                    float(said[row, label].mean()),
                    calibration_error(out_of_fold[k].probability, truth),
                    calibration_error(said, truth, label),
                    float(sets[row, truth].mean()),
                    float(sets.sum(1).mean()),
                    reliability(said, truth, label, FINE),
                    shown(float(self.each(k, said, calibration).mean())),
                    shown(float(self.each(k, *plain).mean())),
                    confusion(truth, label),
                    periods(piece.time, label == truth, as_plain),
                )
            )
        return out

    def said(self, candidate: Candidate, piece: Piece) -> np.ndarray:
        said = self.scores.probability(candidate, str(piece.window))
        assert said is not None
        return said[piece.index]

    def truth(self, piece: Piece) -> np.ndarray:
        return self.scores.truth[str(piece.window)][piece.index]

    def seen(self, candidate: Candidate, piece: Piece) -> np.ndarray:
        return self.scores.seen(candidate, str(piece.window))[piece.index]


def periods(time: np.ndarray, right: np.ndarray, plain: np.ndarray) -> list[PeriodScore]:
    """How many were right in every period, by the choice and by plain."""
    every = ((one, time == one) for one in np.unique(time))
    return [
        PeriodScore(int(t), int(at.sum()), float(right[at].mean()), float(plain[at].mean()))
        for t, at in every
    ]


def left_out(out_of_fold: Sequence[OutOfFold], metric: str) -> list[tuple[np.ndarray, Calibration]]:
    """What was said about every piece, calibrated by the others, and how."""
    out = []
    for k, here in enumerate(out_of_fold):
        calibration = learned([one for j, one in enumerate(out_of_fold) if j != k], metric=metric)
        out.append((calibration.apply(here.probability, here.prior), calibration))
    return out
