"""Figures of the report; their captions are in the template, which draws them in `svg.STYLE`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy import ndarray

from impact_gnn.backtesting import CandidateResult, FoldCheck, HorizonScore
from impact_gnn.diagnostics import Diagnosis, MessageShift
from impact_gnn.diagnostics.connections import Decay, Separability
from impact_gnn.diagnostics.feature_drift import FeatureDrift
from impact_gnn.diagnostics.label_mix import LabelMix
from impact_gnn.estimators.calibration import BINS
from impact_gnn.graph import GraphSummary
from impact_gnn.metrics import Metric
from impact_gnn.report.numbers import named, number, percent
from impact_gnn.report.summary import Evaluation, RunSummary
from impact_gnn.report.svg import (
    BLUE,
    FAINT,
    HEAT,
    INK,
    ORANGE,
    PALETTE,
    PAPER,
    Called,
    canvas,
    over_time,
    single_panel,
)

MAX_PERIODS = 200  # periods of the stacked plots, the last ones
MAX_CLASSES = 11  # rows of the confusion matrix
MAX_LETTERS = 16  # of their names
MAX_MARKERS = 25  # points of a curve that has markers
DARK_CELL = 0.65  # share from which on a cell of the confusion matrix has light text
SOLID: Any = ()
DASHED: Any = (5, 2)
# lines that run close together differ in their dashes too
DASHES: Any = (SOLID, DASHED, (1.5, 1.5), (6, 1.5, 1.5, 1.5))
Z95 = 1.96  # half the 95 % interval of a normal distribution, in standard deviations


def line(
    ax: Axes, x: Any, values: Any, colour: str, *, label: str = "", dashes: Any = SOLID
) -> None:
    """Draw a curve; a solid one has markers where there are few points."""
    style: Any = {"linewidth": 1.4, "dashes": dashes}
    if not dashes:
        style = {"marker": "o" if len(x) <= MAX_MARKERS else "", "markersize": 3.5}
    ax.plot(
        x,
        array(values),
        color=colour,
        label=label,
        **style,
    )


def band(ax: Axes, x: Any, low: Any, high: Any, *, label: str = "", colour: str = FAINT) -> None:
    """Draw an area between two series."""
    ax.fill_between(
        x,
        low,
        high,
        color=colour,
        alpha=0.25,
        linewidth=0,
        label=label,
    )


def border(ax: Axes, x: float) -> None:
    """Draw a dotted vertical line, such as at the cutoff."""
    ax.axvline(
        x,
        color=INK,
        linewidth=1,
        linestyle=":",
    )


def accuracy_curve(ax: Axes, x: Any, values: ndarray, count: ndarray, label: str) -> None:
    """Draw accuracies with the 95 % interval of binomial ones."""
    line(ax, x, values, BLUE, label=label)
    half = Z95 * np.sqrt(values * (1 - values) / count)
    band(ax, x, values - half, np.minimum(values + half, 1), label="95% interval")


def in_percent(ax: Axes) -> None:
    """Shares on the y axis as percent, with no more digits than they need."""
    ax.yaxis.set_major_formatter(PercentFormatter(1))


@dataclass(frozen=True)
class Labels:
    """Names of the classes, and their order by known labels, which colours follow."""

    names: list[str]
    order: list[int]

    @classmethod
    def of(cls, summary: RunSummary) -> Labels:
        counts = np.array(summary.graph.label_counts)
        order = np.argsort(-counts, kind="stable").tolist()
        return cls(list(summary.prediction_summary.labels), order)

    def with_unknown(self) -> Labels:
        """With a further class, for all that the model does not know."""
        names = [*self.names, "unknown to the model"]
        return Labels(names, [*self.order, len(self.order)])

    def name(self, label: int, most: int = 40) -> str:
        """The name of a class; a long one is cut."""
        name = named(self.names[label])
        return name if len(name) <= most else f"{name[: most - 1]}…"


def array(values: Any) -> ndarray:
    """Floats, NaN for None."""
    return np.array(values, dtype=np.float64)


def group_means(
    key: ndarray, weight: ndarray, *columns: ndarray
) -> tuple[ndarray, ndarray, list[ndarray]]:
    """The distinct keys, the sum of their weights, and their weighted means of every column."""
    groups, index = np.unique(key, return_inverse=True)
    total = np.bincount(index, weight)
    return groups, total, [np.bincount(index, weight * column) / total for column in columns]


def forest(
    rows: Sequence[CandidateResult],
    metric: Metric,
    reference: str = "the baseline",
) -> Figure | None:
    """Differences to a reference with intervals, of every candidate that has one."""
    compared = [row for row in rows if row.difference is not None]
    if not compared:
        return None
    names = [str(row.candidate) for row in compared]
    parts = ("value", "low", "high")
    intervals = [[getattr(row.difference, part) for part in parts] for row in compared]
    value, low, high = 100 * array(intervals).T
    # A poor candidate must not squeeze the others: the axis ends at three times the median or best
    # difference, or at the end of the median interval.
    median = float(np.quantile(np.abs(value), 0.5, method="lower"))
    reach = 3 * max(1.0, median, float(value.max()))
    reach = max(reach, float(np.median(np.maximum(-low, high))))
    left = float(np.clip(low.min(), -reach, 0))
    right = float(np.clip(high.max(), 0, reach))
    margin = 0.05 * max(right - left, 1e-9)
    longest = max(map(len, names))
    width = max(360, 230 + 5.2 * longest)  # with room for the names
    figure, ax = single_panel(width, height=50 + 19 * len(names))
    kinds = [
        (f"better than {reference}", BLUE, low > 0),
        ("no significant difference", FAINT, (low <= 0) & (high >= 0)),
        ("worse", ORANGE, high < 0),
    ]
    ax.axvline(0, color=INK, linewidth=1)
    for label, colour, inside in kinds:
        for y in np.flatnonzero(inside):
            folds = 100 * array(list(compared[y].by_fold.values()))
            point = np.clip(value[y], left, right)
            mark = "o" if point == value[y] else "<"
            ax.hlines(y, low[y], high[y], colors=colour, linewidth=2.2, label=label)
            ax.plot(folds, [y] * len(folds), "|", color=colour, markersize=8)
            ax.plot(point, y, mark, color=colour, markersize=6)
            label = ""  # once in the legend
    ax.set(xlim=(left - margin, right + margin))
    ax.set(ylim=(len(names) - 0.4, -0.6))
    ax.set_yticks(range(len(names)), names)
    for text, row in zip(ax.get_yticklabels(), compared, strict=True):
        text.set_fontweight("bold" if row.weight > 0 else "normal")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.set_xlabel(f"difference to {reference} in {metric.unit}")
    return figure


def _columns(ax: Axes, names: Sequence[str], heights: Any, colours: Any, labels: Any) -> None:
    """Stacked columns, one per period."""
    edges = np.arange(len(names) + 1) - 0.5
    bottom = np.zeros(len(names))
    for height, colour, label in zip(heights, colours, labels, strict=True):
        top = bottom + height
        ax.stairs(
            top,
            edges,
            baseline=bottom,
            fill=True,
            color=colour,
            alpha=0.85,
            label=label,
        )
        bottom = top
    ax.set_xlim(edges[0], edges[-1])
    ax.grid(axis="x", visible=False)
    name_of = dict(enumerate(names))
    over_time(ax, lambda k: name_of.get(k, ""))


def periods(graph: GraphSummary, cutoff: int) -> Figure:
    """Nodes and known labels by period."""
    figure, ax = single_panel()
    labelled = array(graph.labelled_per_time)
    _columns(
        ax,
        graph.names,
        heights=[labelled, array(graph.nodes_per_time) - labelled],
        colours=[BLUE, FAINT],
        labels=["labelled nodes", "nodes without label"],
    )
    border(ax, float(np.searchsorted(graph.times, cutoff)) - 0.5)
    ax.set_ylabel("nodes")
    return figure


def label_mix(check: LabelMix, labels: Labels, called: Called) -> Figure:
    """Class proportions by period."""
    figure, ax = single_panel()
    mix = array(check.mix)[-MAX_PERIODS:]  # [periods, classes]
    count = len(PALETTE)
    if len(labels.order) == count + 1:  # a single further class needs no other name
        count += 1
    heights = list(mix[:, labels.order[:count]].T)
    # Without the invisible space, matplotlib leaves out names that begin with "_".
    names = [f"\u200b{labels.name(label)}" for label in labels.order[:count]]
    rest = labels.order[count:]
    if rest:
        heights.append(mix[:, rest].sum(1))
        names.append(f"{len(rest)} other classes")
    periods = [called(time) for time in check.times[-MAX_PERIODS:]]
    _columns(ax, periods, heights, (*PALETTE, FAINT)[: len(names)], names)
    in_percent(ax)
    ax.set(ylim=(0, 1), ylabel="share of labels")
    return figure


def feature_drift(check: FeatureDrift, called: Called) -> Figure | None:
    """Drift of classes by period; `change` shows that of all nodes."""
    if not check.times:
        return None
    figure, ax = single_panel()
    line(ax, check.times, check.drift, BLUE, label="classes, from their past")
    over_time(ax, called, ylabel="drift / class distance")
    return figure


def separability(check: Separability) -> Figure | None:
    """Connections to the past against those to the future."""
    if not check.g:
        return None
    figure, ax = single_panel()
    offsets, (same, different) = by_offset(
        array(check.steps), array(check.same_label), array(check.different_label)
    )
    border(ax, 0)
    line(ax, offsets, same, BLUE, label="same class")
    line(
        ax,
        offsets,
        different,
        ORANGE,
        label="different classes",
        dashes=DASHED,
    )
    over_time(
        ax,
        xlabel="past  ←  neighbour's time − own  →  future",
        ylabel="relative to the maximum",
    )
    return figure


def decay(check: Decay, connections: Separability) -> Figure | None:
    """The common decay, and the decay of every group of neighbours."""
    if not check.h:
        return None
    figure, ax = single_panel()
    curves = {"common decay": check.h, **connections.g}
    present = [name for name, values in curves.items() if sum(values) > 0]
    for name, colour, dashes in zip(present, (INK, *PALETTE), DASHES, strict=False):
        shares = array(curves[name]) / sum(curves[name])
        line(
            ax,
            check.distances,
            shares,
            colour,
            label=name,
            dashes=dashes,
        )
    over_time(
        ax,
        xlabel="distance in time",
        ylabel="share",
    )
    return figure


def by_offset(steps: ndarray, *tables: ndarray) -> tuple[ndarray, list[ndarray]]:
    """Average tables [own, neighbour] by signed distance, each scaled to a maximum of 1."""
    offset = (steps[None, :] - steps[:, None]).ravel()
    columns = [table.ravel() for table in tables]
    offsets, _, means = group_means(offset, np.ones(len(offset)), *columns)
    scaled = [mean / max(float(mean.max()), 1e-300) for mean in means]
    return offsets, scaled


def shift(measured: MessageShift, called: Called) -> Figure:
    """A panel per correction: shift by period before and after it, and the sampling noise."""
    plain = measured.methods["plain"]
    corrections = {name: one for name, one in measured.methods.items() if name != "plain"}
    num_rows = -(-len(corrections) // 2)
    figure = canvas(height=30 + 115 * num_rows)
    all_axes = figure.subplots(
        num_rows,
        2,
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for ax, (name, corrected) in zip(all_axes.flat, corrections.items(), strict=False):
        title = f"{name}: {number(plain.overall)} → {number(corrected.overall)}"
        if plain.overall > 0:
            change = corrected.overall / plain.overall - 1
            sign = "−" if change < 0 else "+"
            title += f" ({sign}{percent(abs(change), 0)})"
        # one legend serves all panels
        names = ["sampling noise", "baseline", "with correction"]
        if ax is not all_axes[0, 0]:
            names = ["", "", ""]
        band(ax, measured.times, 0, measured.noise, label=names[0])
        line(
            ax,
            measured.times,
            plain.sliced,
            INK,
            label=names[1],
            dashes=DASHED,
        )
        line(ax, measured.times, corrected.sliced, BLUE, label=names[2])
        over_time(
            ax,
            called,
            xlabel="",
            ticks=4,
        )
        ax.set_title(title, fontsize=9)
    for ax in all_axes.flat[len(corrections) :]:
        ax.set_visible(False)
    return figure


def reliability(checks: Sequence[FoldCheck | Evaluation]) -> Figure | None:
    """Accuracy by confidence, in bins over all folds together."""
    rows = [
        (check.count * part.share, part.confidence, part.accuracy)
        for check in checks
        for part in check.bins
    ]
    if not rows:
        return None
    figure, ax = single_panel()
    # Means of the fine bins in every coarse bin, weighted by their predictions.
    weight, confidence, accuracy = array(rows).T
    coarse = np.minimum((confidence * BINS).astype(int), BINS - 1)
    _, total, (confidence, accuracy) = group_means(coarse, weight, confidence, accuracy)
    diameter = 3 + 14 * (total / total.sum()) ** 0.5
    line(
        ax,
        [0, 1],
        [0, 1],
        FAINT,
        label="perfect calibration",
        dashes=DASHED,
    )
    ax.plot(
        confidence,
        accuracy,
        color=BLUE,
        linewidth=1,
        label="predictions",
    )
    ax.scatter(
        confidence,
        accuracy,
        diameter**2,
        color=BLUE,
        linewidth=0,
        alpha=0.8,
    )
    ax.set(xlim=(0, 1), xlabel="probability of the predicted class")
    ax.set(ylim=(0, 1), ylabel="accuracy")
    return figure


def confusion(checks: Sequence[FoldCheck | Evaluation], labels: Labels) -> Figure | None:
    """The confusion matrix of all folds, as shares of its rows; rare classes are merged."""
    triples = np.array([triple for check in checks for triple in check.confusion], int)
    if not len(triples):
        return None
    true, predicted, count = triples.T
    # Rows in the order of the user's classes; the rarest of many share the last one.
    listed = sorted(labels.order)
    if len(listed) > MAX_CLASSES + 1:
        listed = sorted(labels.order[:MAX_CLASSES])
    row_of = np.full(len(labels.names), len(listed))
    row_of[listed] = np.arange(len(listed))
    names = [labels.name(label, MAX_LETTERS) for label in listed]
    if (row_of == len(listed)).any():
        names.append("others")
    size = len(names)
    counts = np.zeros((size, size))
    np.add.at(counts, (row_of[true], row_of[predicted]), count)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure, ax = single_panel(width=180 + 30 * size, height=90 + 30 * size)
    for row, column in np.argwhere(share > 0):
        _cell(ax, column, row, float(share[row, column]))
    ax.set(xlim=(-0.5, size - 0.5), xlabel="predicted class")
    ax.set(ylim=(size - 0.5, -0.5), ylabel="true class")
    ax.set_yticks(range(size), names)
    ax.set_xticks(range(size), names, rotation=90)
    ax.grid(visible=False)
    return figure


def _cell(ax: Axes, column: int, row: int, share: float) -> None:
    """A cell of the confusion matrix: the larger its share, the darker; light text on dark."""
    corner = (column - 0.5, row - 0.5)
    ax.add_patch(Rectangle(corner, 1, 1, color=HEAT, alpha=share, linewidth=0))
    if share >= 0.005:
        colour = PAPER if share >= DARK_CELL else INK
        text: Any = {"ha": "center", "va": "center", "fontsize": 9.5, "color": colour}
        ax.text(column, row, f"{100 * share:.0f}", **text)


def by_period(checks: Sequence[FoldCheck | Evaluation], summary: RunSummary) -> Figure | None:
    """Accuracy of the selected model and the baseline by period, and the expected accuracy."""
    rows = [
        (period.time, period.count, period.accuracy, period.plain)
        for check in checks
        for period in check.periods
    ]
    if not rows:
        return None
    figure, ax = single_panel(width=380, height=224)
    # Means over the folds that reach a period, weighted by their nodes. NaN in one fold makes the
    # mean of a period NaN: matplotlib leaves a gap there.
    time, nodes, accuracy, plain = array(rows).T
    times, _, (count, accuracy, plain) = group_means(time, nodes, nodes, accuracy, plain)
    forecast = summary.prediction_summary.accuracy
    accuracy_curve(ax, times, accuracy, count, label="selected model")
    if not np.isnan(plain).all():
        line(
            ax,
            times,
            plain,
            INK,
            label="baseline",
            dashes=DASHED,
        )
    if forecast is not None:
        targets = [time for time in summary.graph.times if time >= summary.cutoff]
        span = [targets[0] - 0.4, targets[-1] + 0.4]
        border(ax, summary.cutoff - 0.5)
        band(ax, span, forecast.low, forecast.high, colour=ORANGE)
        ax.plot(
            span,
            [forecast.value] * 2,
            color=ORANGE,
            label="expected, 90% interval",
        )
    over_time(ax, summary.graph.name, ylabel="accuracy")
    ax.set_ylim(0, 1)
    in_percent(ax)
    return figure


def change(diagnosis: Diagnosis, called: Called) -> Figure | None:
    """Changes over time in one figure: class proportions, features, connections."""
    mix = diagnosis.label_mix
    drift = diagnosis.feature_drift
    connections = diagnosis.separability
    # name, times and values of every panel, and whether the values are shares
    candidates: list[tuple[str, list[int], Sequence[float | None], bool]] = [
        ("change of class\nproportions", mix.times[1:], mix.to_past, True),
        ("feature drift\n/ class distance", drift.all_times, drift.all_drift, False),
        ("neighbours of\nsame class", connections.steps, connections.alike, True),
    ]
    panels = [panel for panel in candidates if min(len(panel[1]), len(panel[2])) > 1]
    if not panels:
        return None
    figure = canvas(height=40 + 85 * len(panels))
    all_axes = figure.subplots(
        len(panels),
        sharex=True,
        squeeze=False,
    )
    for ax, panel, colour in zip(all_axes.flat, panels, PALETTE, strict=False):
        name, times, values, is_share = panel
        line(ax, times, values, colour)
        if values is mix.to_past:
            band(ax, times, 0, mix.noise)
        border(ax, diagnosis.cutoff)
        over_time(
            ax,
            called,
            xlabel="",
            ylabel=name,
        )
        if is_share:
            in_percent(ax)
    all_axes[-1, 0].set_xlabel("period")
    return figure


def by_horizon(scores: Sequence[HorizonScore]) -> Figure:
    """Accuracy by the number of periods since the last known label."""
    rows = [(score.horizon, score.accuracy, score.count) for score in scores]
    horizon, accuracy, count = array(rows).T
    figure, ax = single_panel()
    accuracy_curve(ax, horizon, accuracy, count, label="accuracy")
    over_time(
        ax,
        xlabel="periods since the last label",
        ylabel="accuracy",
    )
    in_percent(ax)
    return figure


def histogram(counts: Sequence[int]) -> Figure:
    """Predictions by probability, in equal bins from 0 to 1."""
    figure, ax = single_panel()
    low = np.arange(len(counts)) / len(counts)
    ax.bar(
        low,
        counts,
        0.92 / len(counts),
        align="edge",
        color=BLUE,
    )
    ax.set(
        xlim=(0, 1),
        xlabel="probability of the predicted class",
        ylabel="nodes",
    )
    ax.grid(axis="x", visible=False)
    return figure
