"""Compares selection rules and accuracy forecasts.

Uses the past of graphs on which `impact run` has finished.

A run stores the predictions of every candidate for every window (`work/fits`). Each rule selects by
the older windows only and is scored on the newest, whose labels lay before the cutoff too: no
target label is read. Regret is the distance to the single candidate that was best on the newest
window.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from impact_gnn.backtesting import BASELINE, Scores, Unit, windows
from impact_gnn.backtesting import greedy as selection_rule
from impact_gnn.backtesting.folds import Window, prior_before, truth_of
from impact_gnn.backtesting.greedy import fold_weights
from impact_gnn.backtesting.selection import EnsembleSelection
from impact_gnn.checks import InputError
from impact_gnn.estimators import Candidate, EnsembleSpec, Member
from impact_gnn.estimators.calibration import calibration_error, fit_calibration
from impact_gnn.graph import TemporalGraph
from impact_gnn.report import read_summary
from reproduction import data
from reproduction.results import ExtraTable, Table

SHRINK = 0.02
"""Standard deviation of true differences between candidates that shrinking takes for granted."""


@dataclass(frozen=True, eq=False)
class Past:
    """The candidates of a run that were tried on every window, and their predictions."""

    name: str
    view: TemporalGraph
    windows: list[Window]
    scores: Scores
    candidates: list[Candidate]

    @classmethod
    def of(cls, run: Path, name: str, root: Path) -> "Past | None":
        """None where there is nothing to choose by: one window only."""
        graph, cutoff = data.with_cutoff(name, root)
        summary, view = read_summary(run / "summary.json"), graph.masked(cutoff)
        folds = windows(view, summary.options.folds)
        if len(folds) < 2:
            return None
        scores = Scores({str(window): truth_of(view, window) for window in folds})
        candidates = [row.candidate for row in summary.backtest.full]
        for unit in (Unit(one, fold) for one in candidates for fold in scores.folds):
            scores.predictions[unit] = np.load(
                run / "work" / "fits" / f"{unit}.npy", allow_pickle=False
            )
        return cls(name, view, folds, scores, candidates)

    def older(self) -> EnsembleSelection:
        """What was known before the newest window."""
        before = self.windows[:-1]
        scores = Scores({str(one): self.scores.truth[str(one)] for one in before})
        scores.predictions |= {
            unit: probabilities
            for unit, probabilities in self.scores.predictions.items()
            if unit.fold in scores.truth
        }
        return EnsembleSelection(scores, scores.ranked(self.candidates), before, self.view)

    def accuracy(self, choice: EnsembleSpec) -> float:
        """On the newest window."""
        newest = str(self.windows[-1])
        probabilities = sum(
            m.weight * self.scores.probability(m.candidate, newest) for m in choice.members
        )  # type: ignore[operator, misc]
        # type: ignore[union-attr]
        return float((probabilities.argmax(1) == self.scores.truth[newest]).mean())


def significant(selection: EnsembleSelection) -> EnsembleSpec:
    """The best whose interval, widened for the number of candidates, lies above plain.

    Otherwise plain.
    """
    level = 1 - 0.05 / max(len(selection.finalists) - 1, 1)
    gains = {
        one: selection.scores.difference(one, level=level)
        for one in selection.finalists
        if one != BASELINE
    }
    better = {one: gain.value for one, gain in gains.items() if gain is not None and gain.low > 0}
    return EnsembleSpec.single(max(better, key=lambda one: better[one]) if better else BASELINE)


def best_mean(selection: EnsembleSelection) -> EnsembleSpec:
    """The greatest accuracy."""
    return EnsembleSpec.single(
        max(selection.finalists, key=lambda one: selection.scores.accuracy(one) or 0.0)
    )


def best_loss(selection: EnsembleSelection) -> EnsembleSpec:
    """The smallest log-loss."""
    return EnsembleSpec.single(selection.finalists[0])


def shrunken(selection: EnsembleSelection) -> EnsembleSpec:
    """The greatest difference to plain after shrinking it by its own noise."""
    worth = {BASELINE: 0.0}
    for one in selection.finalists:
        if one != BASELINE and (gain := selection.scores.difference(one)) is not None:
            worth[one] = gain.value * SHRINK**2 / (SHRINK**2 + gain.error**2)
    return EnsembleSpec.single(max(worth, key=lambda one: worth[one]))


def simplest(selection: EnsembleSelection) -> EnsembleSpec:
    """The simplest within a standard error of the greatest accuracy."""
    accuracy = {one: selection.scores.accuracy(one) or 0.0 for one in selection.finalists}
    size = sum(len(truth) for truth in selection.scores.truth.values())
    best = max(accuracy.values())
    error = math.sqrt(best * (1 - best) / size)
    near = [one for one in selection.finalists if accuracy[one] >= best - error]
    return EnsembleSpec.single(min(near, key=lambda one: (one.num_parts, -accuracy[one])))


def average(selection: EnsembleSelection) -> EnsembleSpec:
    """The plain mean of the five with the smallest log-loss."""
    few = selection.finalists[:5]
    return EnsembleSpec(tuple(Member(one, 1 / len(few)) for one in few))


def greedy(selection: EnsembleSelection) -> EnsembleSpec:
    """An ensemble that starts from the best one alone."""
    with patch.object(selection_rule, "START", 1), patch.object(selection_rule, "MAX_PICKS", 12):
        return selection.select_members(selection.holdouts)


def ensemble(selection: EnsembleSelection) -> EnsembleSpec:
    """The product's ensemble: starts from the few best; the baseline where it is no better."""
    return selection.select().ensemble


RULES: dict[str, Callable[[EnsembleSelection], EnsembleSpec]] = {
    "significance": significant,
    "best mean": best_mean,
    "best log-loss": best_loss,
    "shrunken mean": shrunken,
    "one error, simplest": simplest,
    "mean of five": average,
    "greedy": greedy,
    "ensemble": ensemble,
}


def foreseen(past: Past) -> dict[str, float]:
    """How far forecasts for the newest window were off, made by what was known before it."""
    selection = past.older()
    choice = selection.select().ensemble
    out_of_fold, newest = (
        selection.predictions_of(choice),
        EnsembleSelection(past.scores, past.candidates, past.windows, past.view),
    )
    calibration = fit_calibration(out_of_fold)
    piece = newest.holdouts[-1]
    probabilities = calibration.apply(
        newest.ensemble_probabilities(choice, piece), prior_before(past.view, piece.window)
    )
    truth = newest.truth(piece)
    before = [calibration.apply(one.probability, one.prior) for one in out_of_fold]
    weight = (
        np.full(len(out_of_fold), 1 / len(out_of_fold))
        if len(selection.windows) == 1
        else fold_weights(len(out_of_fold))
    )
    level = float(
        weight
        @ [(p.argmax(1) == one.truth).mean() for p, one in zip(before, out_of_fold, strict=True)]
    )
    confidence = float(probabilities.max(1).mean())
    threshold = np.quantile(np.concatenate([p.max(1) for p in before]), 1 - level)
    right = float((probabilities.argmax(1) == truth).mean())
    guesses = {
        "level of the past": level,
        "calibrated confidence": confidence,
        "thresholded confidence": float((probabilities.max(1) > threshold).mean()),
        "half and half": (level + confidence) / 2,
    }
    sets = calibration.sets(probabilities)
    off = {name: abs(value - right) for name, value in guesses.items()}
    return off | {
        "calibration error, raw": calibration_error(
            newest.ensemble_probabilities(choice, piece), truth
        ),
        "calibration error": calibration_error(probabilities, truth),
        "coverage": float(sets[np.arange(len(truth)), truth].mean()),
    }


def rules(runs: Path, *, root: Path) -> Table:
    """Both tables, from the runs in a folder, each named after its graph: NAME or NAME-anything."""
    pasts = []
    for run in sorted(file.parent for file in runs.glob("*/summary.json")):
        name = next(
            (
                one
                for one in data.available(root)
                if run.name == one or run.name.startswith(f"{one}-")
            ),
            None,
        )
        if name is not None and (past := Past.of(run, name, root)) is not None:
            pasts.append((run.name, past))
    if not pasts:
        raise InputError(
            f"{runs} contains no finished run of a graph in {root}; pass the folder with --runs."
        )
    lines, regrets = [], []
    for name, past in pasts:
        selection = past.older()
        scored = [past.accuracy(rule(selection)) for rule in RULES.values()]
        best = max(past.accuracy(EnsembleSpec.single(one)) for one in past.candidates)
        plain = past.accuracy(EnsembleSpec.single(BASELINE))
        regrets.append([best - score for score in scored])
        lines.append(
            [
                name,
                str(len(past.candidates)),
                f"{plain:.4f}",
                *(f"{x:.4f}" for x in scored),
                f"{best:.4f}",
            ]
        )
    mean = [f"{100 * value:.2f}" for value in np.mean(regrets, axis=0)]
    lines.append(["mean regret, points", "", "", *mean, ""])
    forecasts = [(name, foreseen(past)) for name, past in pasts]
    measures = list(forecasts[0][1])
    off = [[name, *(f"{each[measure]:.3f}" for measure in measures)] for name, each in forecasts]
    off.append(
        [
            "mean",
            *(f"{np.mean([each[measure] for _, each in forecasts]):.3f}" for measure in measures),
        ]
    )
    chosen = "Accuracy on the newest window, chosen by older ones"
    foretold = "Forecasts off by, calibration and sets on the newest window"
    about = (__doc__ or "").split("\n\n")[1].replace("\n", " ")
    return Table(
        "rules",
        "Rules, asked of the past",
        about,
        [],
        extras=[
            ExtraTable(chosen, ("run", "candidates", "plain", *RULES, "best single"), lines),
            ExtraTable(foretold, ("run", *measures), off),
        ],
    )
