"""Calibration with a bias for each class, learned on past windows.

A calibration is fitted on the windows before a past window and scored on it; no label of a target
is read. The bias is added to the logarithm of the calibrated probabilities. Newer windows count
more, and a penalty on its squares shrinks it to the calibration without it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from impact_gnn.estimators.calibration import OutOfFold, clipped_log_loss, fit_calibration
from impact_gnn.label_shift import reweighted
from reproduction.past_folds import past_windows, predicted, weighted
from reproduction.results import ExtraTable, Table

PENALTIES = (1.0, 0.1, 0.01)
NAMES = (
    "temperature",
    "in use",
    *(f"bias, penalty {penalty:g}" for penalty in PENALTIES),
)


def fit_bias(folds: Sequence[OutOfFold], penalty: float) -> np.ndarray:
    """The bias [Y] with the least mean log-loss on calibrated folds, plus a penalty."""
    folds = [fold.of_known_classes() for fold in folds]
    total = sum(fold.weight for fold in folds)

    def loss_and_slope(bias: np.ndarray) -> tuple[float, np.ndarray]:
        loss = penalty * float(bias @ bias)
        slope = 2 * penalty * bias
        for fold in folds:
            share = fold.weight / total
            probability = reweighted(fold.probability, np.exp(bias))
            loss += share * clipped_log_loss(probability, fold.truth)
            # The slope of the log-loss: mean probability minus the share of the class.
            counts = np.bincount(fold.truth, minlength=len(bias))
            slope += share * (probability.mean(0) - counts / len(fold.truth))
        return loss, slope

    start = np.zeros(len(folds[0].prior))
    return np.asarray(minimize(loss_and_slope, start, jac=True, method="L-BFGS-B").x)


def losses_after(older: Sequence[OutOfFold], newest: OutOfFold) -> list[float]:
    """Log-losses on the newest window, in the order of `NAMES`, by the older ones."""
    folds = weighted(older)
    plain = fit_calibration([replace(fold, drift=None) for fold in folds])
    losses = [clipped_log_loss(plain.apply(newest.probability, newest.prior), newest.truth)]
    in_use = fit_calibration(folds, drift=newest.drift)
    calibrated = [
        replace(fold, probability=in_use.for_fold(fold).apply(fold.probability, fold.prior))
        for fold in [*folds, newest]
    ]
    after = calibrated[-1]
    losses.append(clipped_log_loss(after.probability, after.truth))
    for penalty in PENALTIES:
        bias = fit_bias(calibrated[:-1], penalty)
        losses.append(clipped_log_loss(reweighted(after.probability, np.exp(bias)), after.truth))
    return losses


def class_bias(names: Sequence[str] | None, *, root: Path) -> Table:
    """A line per past window that has a window before it."""
    lines = []
    changes = []
    for name, view, past in past_windows(names, root):
        folds = [predicted(view, window) for window in past]
        for k in range(1, len(folds)):
            losses = losses_after(folds[:k], folds[k])
            changes.append(np.array(losses) / losses[1] - 1)
            lines.append([name, str(past[k]), *(f"{value:.4f}" for value in losses)])
    mean = [f"{100 * value:+.2f}" for value in np.mean(changes, axis=0)]
    better = [str(count) for count in (np.array(changes) < 0).sum(0)]
    lines += [
        ["mean change, %", "", *mean],
        [f"windows with a lower loss, of {len(changes)}", "", *better],
    ]
    columns = ("data set", "window", *NAMES)
    return Table(
        "class-bias",
        "Calibration with a bias per class",
        (__doc__ or "").split("\n\n")[1].replace("\n", " "),
        [],
        extras=[ExtraTable("Log-loss in past windows", columns, lines)],
    )
