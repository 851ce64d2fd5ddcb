"""The pictures of docs/concepts.md: the split, the folds, and the parts of a method."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

PAST = "#4c78a8"
TARGET = "#f58518"
WINDOW = "#ffbf79"
NEUTRAL = "#9aa0a6"
PERIODS = 10
CUTOFF = 8


def split() -> Figure:
    """Neighbours of a node in the middle of the timeline and of a recent node."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axis = figure.subplots()
    _timeline(axis)
    for own, color, height in ((4, PAST, 1.0), (9, TARGET, 2.1)):
        for neighbour in range(PERIODS):
            distance = abs(neighbour - own)
            if neighbour != own and distance <= 4:
                axis.annotate(
                    "",
                    xy=(own, height),
                    xytext=(neighbour, 0.12),
                    arrowprops={"arrowstyle": "->", "color": color, "alpha": 0.9 - 0.17 * distance},
                )
        axis.plot(own, height, "o", color=color, markersize=13)
    axis.text(4, 1.3, "training node: older and newer neighbours", ha="center")
    axis.text(7.35, 2.1, "target: older neighbours only", va="center", ha="right")
    axis.set(ylim=(-0.75, 2.5))
    return figure


def folds() -> Figure:
    """Three folds of a back-test above the real task."""
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    axis = figure.subplots()
    rows = [("real task", CUTOFF), ("fold 3", 6), ("fold 2", 5), ("fold 1", 4)]
    for height, (name, cutoff) in enumerate(rows):
        window = min(2, PERIODS - cutoff)
        axis.barh(height, cutoff, color=PAST, height=0.6)
        color, what = WINDOW, "window"
        if name == "real task":
            color, what = TARGET, "targets"
        axis.barh(height, window, left=cutoff, color=color, height=0.6)
        axis.text(-0.15, height, name, ha="right", va="center")
        axis.text(cutoff + window / 2, height, what, ha="center", va="center", fontsize=8)
    axis.text(1.7, 0, "labels are known", color="white", ha="center", va="center", fontsize=8)
    axis.axvline(CUTOFF, color="black", linestyle="--", linewidth=1)
    axis.text(CUTOFF, 3.55, "cutoff", ha="center")
    axis.set(xlim=(-1.4, PERIODS), xlabel="period", yticks=[], xticks=np.arange(PERIODS + 1))
    axis.spines[["left", "right", "top"]].set_visible(False)
    return figure


def method() -> Figure:
    """The data flow, with the parts of a method where they act."""
    figure = Figure(figsize=(8, 1.1), layout="constrained")
    axis = figure.subplots()
    steps = [
        ("graph", ""),
        ("edge weights", "mmp, pmp, genpmp"),
        ("hops", "labels, degrees,\nsnapshot, features"),
        ("alignment", "center, standardize,\njjnorm, pny"),
        ("model", "recency, stages"),
        ("probabilities", "smooth, shift"),
    ]
    for place, (name, parts) in enumerate(steps):
        box = Rectangle((place, 1), 0.78, 0.4, facecolor="#e8eef7", edgecolor=PAST)
        axis.add_patch(box)
        axis.text(place + 0.39, 1.2, name, ha="center", va="center", fontsize=8.5)
        axis.text(place + 0.39, 0.88, parts, ha="center", va="top", fontsize=7.5, color="#b45309")
        if place:
            arrow = {"arrowstyle": "->", "color": NEUTRAL, "shrinkA": 1, "shrinkB": 1}
            axis.annotate("", xy=(place, 1.2), xytext=(place - 0.22, 1.2), arrowprops=arrow)
    axis.set(xlim=(-0.1, 5.9), ylim=(0.5, 1.5))
    axis.axis("off")
    return figure


def _timeline(axis: Axes) -> None:
    axis.axvspan(CUTOFF - 0.5, PERIODS - 0.5, color=TARGET, alpha=0.12)
    axis.axvline(CUTOFF - 0.5, color="black", linestyle="--", linewidth=1)
    axis.text(CUTOFF - 0.55, 2.35, "cutoff", ha="right")
    for periods, color in ((range(CUTOFF), PAST), (range(CUTOFF, PERIODS), TARGET)):
        for period in periods:
            axis.plot([period] * 3, [-0.12, 0, 0.12], "o", color=color, markersize=5)
    axis.set(xlabel="period", xticks=np.arange(PERIODS), yticks=[], xlim=(-0.6, PERIODS - 0.4))
    axis.spines[["left", "right", "top"]].set_visible(False)


FIGURES = {"split": split, "folds": folds, "method": method}
