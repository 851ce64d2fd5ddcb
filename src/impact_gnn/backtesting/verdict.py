"""From what candidates said about the past to one choice, its gain and its calibration.

Whatever is claimed about the choice is measured on a window that it was not made by: the blend and its calibration are
made anew from the other windows. With a single window, halves of its nodes take the place of windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from impact_gnn.backtesting.ensemble import blend, fold_weights, log_loss
from impact_gnn.backtesting.folds import Window
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
    index: np.ndarray


@dataclass(frozen=True, eq=False)
class Verdict:
    """Candidates that were tried on every fold, the best first, and what they said."""

    scores: Scores
    finalists: Sequence[Candidate]
    windows: Sequence[Window]
    view: TemporalGraph

    @cached_property
    def pieces(self) -> list[Piece]:
        sizes = [len(self.scores.truth[str(window)]) for window in self.windows]
        if len(sizes) > 1:
            return [Piece(window, np.arange(size)) for window, size in zip(self.windows, sizes, strict=True)]
        mixed = np.random.default_rng(0).permutation(sizes[0])
        return [Piece(self.windows[0], np.sort(part)) for part in np.array_split(mixed, 2)]

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
        """Accuracy over plain's on a piece of the blend made without it, and its standard error."""
        here = self.walked[k]
        return mean_and_error(here.probability.argmax(1) == here.truth, self.hits(PLAIN, self.pieces[k]))

    def worse(self) -> bool:
        """Whether blends have a greater log-loss than plain on pieces that they were not made by."""
        num_labels, weight = self.view.num_labels, fold_weights(len(self.pieces))
        ours = [log_loss(one.probability[np.arange(len(one.truth)), one.truth], num_labels) for one in self.walked]
        plain = [log_loss(self.true(PLAIN, piece), num_labels) for piece in self.pieces]
        return float(weight @ ours) > float(weight @ plain)

    def chosen(self, pieces: Sequence[Piece]) -> Choice:
        """The blend made by some pieces, oldest first; the simplest candidates are looked at first."""
        order = sorted(self.finalists, key=lambda one: one.num_parts)
        weights = blend([[self.true(one, piece) for piece in pieces] for one in order], self.view.num_labels)
        members = [Member(order[k], float(weights[k])) for k in np.argsort(-weights, kind="stable") if weights[k] > 0]
        return Choice(tuple(members))

    def mixed(self, choice: Choice, piece: Piece) -> np.ndarray:
        """What the choice says about a piece."""
        return sum(member.weight * self.said(member.candidate, piece) for member in choice.members)  # type: ignore[return-value]

    @cached_property
    def walked(self) -> list[Walked]:
        """What was said about every piece by the blend made without it."""
        out = []
        weights = fold_weights(len(self.pieces))
        for k, piece in enumerate(self.pieces):
            rest = [one for j, one in enumerate(self.pieces) if j != k]
            out.append(
                Walked(self.mixed(self.chosen(rest), piece), self.truth(piece), self.prior(piece.window), weights[k])
            )
        return out

    def calibration(self, choice: Choice) -> Calibration:
        """Of the choice; plain, where it is chosen, is calibrated by what plain said."""
        return learned(self.walked if choice != Choice.single(PLAIN) else self.of_plain)

    @property
    def of_plain(self) -> list[Walked]:
        plain = Choice.single(PLAIN)
        return [
            Walked(self.mixed(plain, piece), self.truth(piece), self.prior(piece.window), weight)
            for piece, weight in zip(self.pieces, fold_weights(len(self.pieces)), strict=True)
        ]

    def checks(self, choice: Choice) -> list[FoldCheck]:
        """How the choice and its calibration would have done on every piece, made without it."""
        walked = self.walked if choice != Choice.single(PLAIN) else self.of_plain
        out = []
        for k, (piece, here) in enumerate(zip(self.pieces, walked, strict=True)):
            calibration = learned([one for j, one in enumerate(walked) if j != k])
            said = calibration.apply(here.probability, here.prior)
            sets, truth = calibration.sets(said), here.truth
            out.append(
                FoldCheck(
                    str(piece.window), len(truth), float((said.argmax(1) == truth).mean()),
                    float(self.hits(PLAIN, piece).mean()), float(said.max(1).mean()),
                    calibration_error(here.probability, truth), calibration_error(said, truth),
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
