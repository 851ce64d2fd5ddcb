"""From what candidates said about the past to one choice, its gain and its calibration.

Whatever is claimed about the choice is measured on a window that it was not made by: the blend and its calibration are
made anew from the other windows, nodes that windows share left out. With a single window, halves of its nodes take the
place of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from impact_gnn.backtesting.ensemble import LEAST_GAIN, blend, fold_weights, log_loss, overall
from impact_gnn.backtesting.folds import Window, learnable, times_of
from impact_gnn.backtesting.outcome import PLAIN, Decision, FoldCheck, Reason
from impact_gnn.backtesting.scores import Scores, mean_and_error
from impact_gnn.graph import TemporalGraph
from impact_gnn.pipeline import Calibration, Candidate, Choice, Member
from impact_gnn.pipeline.calibration import Walked, calibration_error, learned, reliability
from impact_gnn.statistics import combined


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
class Verdict:
    """Candidates that were tried on every fold, the best first, and what they said."""

    scores: Scores
    finalists: Sequence[Candidate]
    windows: Sequence[Window]
    view: TemporalGraph

    @cached_property
    def pieces(self) -> list[Piece]:
        times = [times_of(self.view, window) for window in self.windows]
        if len(times) > 1:
            return [Piece(w, np.arange(len(time)), time) for w, time in zip(self.windows, times, strict=True)]
        mixed = np.random.default_rng(0).permutation(len(times[0]))
        return [Piece(self.windows[0], np.sort(part), times[0][np.sort(part)]) for part in np.array_split(mixed, 2)]

    @property
    def weights(self) -> np.ndarray:
        """What pieces count: newer windows more, halves of one window the same."""
        return fold_weights(len(self.pieces)) if len(self.windows) > 1 else np.full(2, 0.5)

    def decision(self, out_of_time: bool) -> Decision:
        """The blend where it gains on windows that it was not made by, otherwise plain."""
        others = [one for one in self.finalists if one != PLAIN]
        if not others or PLAIN not in self.finalists:
            return Decision(Choice.single(PLAIN), Reason.OUT_OF_TIME if out_of_time else Reason.NONE_TRIED)
        choice, folds = self.chosen(self.pieces), len(self.windows)
        gain = combined(*np.array([self.gain(k) for k in range(len(self.pieces))]).T)
        if choice == Choice.single(PLAIN) or self.worse():
            nearest = self.scores.difference(others[0])
            return Decision(Choice.single(PLAIN), Reason.NONE_BETTER, others[0], nearest, folds)
        best = None if choice == Choice.single(self.finalists[0]) else self.finalists[0]
        return Decision(choice, Reason.BETTER, best, gain, folds)

    def gain(self, k: int) -> tuple[float, float]:
        """Accuracy over plain's on a piece, of the blend made and calibrated without it, and its standard error."""
        said, _ = self.walked_out[k]
        return mean_and_error(said.argmax(1) == self.walked[k].truth, self.hits(PLAIN, self.pieces[k]))

    def worse(self) -> bool:
        """Whether blends have no clearly smaller log-loss than plain on pieces that they were not made by."""
        num_labels = self.view.num_labels
        known = [self.learned_by_then(piece) for piece in self.pieces]
        ours = [
            log_loss(one.probability[np.arange(len(one.truth)), one.truth][kept], num_labels)
            for one, kept in zip(self.walked, known, strict=True)
        ]
        plain = [log_loss(self.true(PLAIN, p)[kept], num_labels) for p, kept in zip(self.pieces, known, strict=True)]
        return overall(ours, self.weights) > (1 - LEAST_GAIN) * overall(plain, self.weights)

    def chosen(self, pieces: Sequence[Piece]) -> Choice:
        """The blend made by some pieces, oldest first; the simplest candidates are looked at first.

        Nodes of classes that nobody can have learned by then are left out: there the least sure is the best.
        """
        pieces = [piece.only(self.learned_by_then(piece)) for piece in pieces]
        order = sorted(self.finalists, key=lambda one: one.num_parts)
        even = None if len(self.windows) > 1 else np.full(len(pieces), 1 / len(pieces))
        true = [[self.true(one, piece) for piece in pieces] for one in order]
        weights = blend(true, self.view.num_labels, even, [one.smoothed(False) for one in order])
        members = [Member(order[k], float(weights[k])) for k in np.argsort(-weights, kind="stable") if weights[k] > 0]
        return Choice(tuple(members))

    def learned_by_then(self, piece: Piece) -> np.ndarray:
        """Mask of a piece's nodes in classes with enough examples before its window; all if there is none."""
        known = learnable(self.view, piece.window)[piece.index]
        return known if known.any() else np.ones(len(known), bool)

    def mixed(self, choice: Choice, piece: Piece) -> np.ndarray:
        """What the choice says about a piece."""
        return sum(member.weight * self.said(member.candidate, piece) for member in choice.members)  # type: ignore[return-value]

    @cached_property
    def walked(self) -> list[Walked]:
        """What was said about every piece by the blend made without it."""
        return [
            self.walk(piece, self.chosen([one.without(piece) for j, one in enumerate(self.pieces) if j != k]), k)
            for k, piece in enumerate(self.pieces)
        ]

    def walk(self, piece: Piece, choice: Choice, k: int) -> Walked:
        said = self.mixed(choice, piece)
        weight = float(self.weights[k]) ** 2  # calibration ages faster than the order of candidates
        return Walked(said, self.truth(piece), self.prior(piece.window), weight)

    def of(self, choice: Choice) -> list[Walked]:
        """What the choice said; plain, where it is chosen, was not made by any window."""
        plain = Choice.single(PLAIN)
        return self.walked if choice != plain else [self.walk(one, plain, k) for k, one in enumerate(self.pieces)]

    def calibration(self, choice: Choice) -> Calibration:
        """By what the choice itself says about all windows: other blends are more or less sure of themselves."""
        return learned([self.walk(piece, choice, k) for k, piece in enumerate(self.pieces)])

    @cached_property
    def walked_out(self) -> list[tuple[np.ndarray, Calibration]]:
        return left_out(self.walked)

    def checks(self, choice: Choice) -> list[FoldCheck]:
        """How the choice and its calibration would have done on every piece, made without it."""
        out, walked = [], self.of(choice)
        calibrated = self.walked_out if walked is self.walked else left_out(walked)
        for k, (piece, (said, calibration)) in enumerate(zip(self.pieces, calibrated, strict=True)):
            sets, truth = calibration.sets(said), walked[k].truth
            fitted = float((self.mixed(choice, piece).argmax(1) == truth).mean())
            out.append(
                FoldCheck(
                    str(piece.window), len(truth), float((said.argmax(1) == truth).mean()), fitted,
                    float(self.hits(PLAIN, piece).mean()), float(said.max(1).mean()),
                    calibration_error(walked[k].probability, truth), calibration_error(said, truth),
                    float(sets[np.arange(len(truth)), truth].mean()), float(sets.sum(1).mean()),
                    reliability(said, truth),
                )
            )  # fmt: skip
        return out

    def said(self, candidate: Candidate, piece: Piece) -> np.ndarray:
        said = self.scores.probability(candidate, str(piece.window))
        assert said is not None
        return said[piece.index]

    def truth(self, piece: Piece) -> np.ndarray:
        return self.scores.truth[str(piece.window)][piece.index]

    def true(self, candidate: Candidate, piece: Piece) -> np.ndarray:
        return self.scores.true(candidate, str(piece.window))[piece.index]

    def hits(self, candidate: Candidate, piece: Piece) -> np.ndarray:
        return self.scores.hits(candidate, str(piece.window))[piece.index]

    def prior(self, window: Window) -> np.ndarray:
        """Shares of the classes among the labels before a window."""
        assert self.view.y is not None
        known = self.view.y[(self.view.y >= 0) & (self.view.time < window.first)]
        return np.bincount(known, minlength=self.view.num_labels) / len(known)


def left_out(walked: Sequence[Walked]) -> list[tuple[np.ndarray, Calibration]]:
    """What was said about every piece, calibrated by the others, and how."""
    out = []
    for k, here in enumerate(walked):
        calibration = learned([one for j, one in enumerate(walked) if j != k])
        out.append((calibration.apply(here.probability, here.prior), calibration))
    return out
