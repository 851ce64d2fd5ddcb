"""Figures of the report: drawing, caption and legend entries."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from impact_gnn.backtesting import CandidateResult, FoldCheck, HorizonScore
from impact_gnn.diagnostics import Diagnosis, MessageShift
from impact_gnn.diagnostics.connections import Decay, Separability
from impact_gnn.diagnostics.feature_drift import FeatureDrift
from impact_gnn.diagnostics.label_mix import LabelMix
from impact_gnn.estimators.calibration import BINS
from impact_gnn.graph import GraphSummary
from impact_gnn.metrics import Metric
from impact_gnn.report import svg
from impact_gnn.report.numbers import named, number, percent
from impact_gnn.report.summary import Evaluation, RunSummary
from impact_gnn.report.svg import (
    FAINT,
    HEAT,
    INK,
    PALETTE,
    PAPER,
    Called,
    Key,
    from_zero,
    in_percent,
    over_time,
)

MAX_PERIODS = 200  # periods of the stacked plots, the last ones
MAX_TICKS = 8
MAX_CLASSES = 11  # rows of the confusion matrix
MAX_LETTERS = 16  # of their names
MAX_MARKERS = 25  # points of a curve that has markers
DARK_CELL = 0.65  # share from which on a cell of the confusion matrix has light text
# lines that run close together differ in their dashes too
DASHES: Any = ((), (5, 2), (1.5, 1.5), (6, 1.5, 1.5, 1.5))
Z95 = 1.96  # half the 95 % interval of a normal distribution, in standard deviations


@dataclass
class Figure:
    """A drawing with its caption and legend entries."""

    name: str  # of its files
    caption: str
    ax: Axes  # to draw on
    keys: list[Key] = field(default_factory=list)
    file: str = ""  # SVG with its legend
    svg: Markup = field(default_factory=Markup)  # SVG for the page, which has the legend below it

    def line(self, name: str, x: Any, values: Any, colour: str, dashes: Any = ()) -> None:
        """Draw a curve; a solid one has markers where there are few points."""
        style: Any = {"marker": "o" if len(x) <= MAX_MARKERS else "", "markersize": 3.5}
        if dashes:
            style = {"dashes": dashes, "linewidth": 1.4}
        self.ax.plot(x, array(values), color=colour, **style)
        self.keys.append(Key(name, colour, "dash" if dashes else "line"))

    def band(self, name: str, x: Any, low: Any, high: Any) -> None:
        """Draw a grey area between two series; it lies below all curves."""
        self.ax.fill_between(x, low, high, color=FAINT, alpha=0.25, linewidth=0)
        self.keys.append(Key(name, FAINT, "area"))

    def accuracy(self, name: str, x: Any, values: np.ndarray, count: np.ndarray) -> None:
        """Draw accuracies with the 95 % interval of binomial ones."""
        self.line(name, x, values, PALETTE[0])
        half = Z95 * np.sqrt(values * (1 - values) / count)
        self.band("95% interval", x, values - half, np.minimum(values + half, 1))

    def border(self, x: float) -> None:
        """Draw a dotted vertical line, such as at the cutoff."""
        self.ax.axvline(x, color=FAINT, linewidth=1, linestyle=":")


@contextlib.contextmanager
def new_figure(
    name: str, title: str, caption: str, *, width: float = 360, height: float = 220
) -> Iterator[Figure]:
    """A figure with axes to draw on; it is rendered when the block ends."""
    with svg.axes(width, height) as ax:
        file_name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        figure = Figure(name=file_name, caption=caption, ax=ax)
        yield figure
        figure.file, figure.svg = svg.render(figure.ax, title, figure.keys)


@dataclass(frozen=True)
class Labels:
    """Names of the classes, and their order by known labels, which colours follow."""

    names: list[str]
    order: list[int]

    @classmethod
    def of(cls, summary: RunSummary) -> Labels:
        order = np.argsort(-np.array(summary.graph.label_counts), kind="stable").tolist()
        return cls(list(summary.prediction_summary.labels), order)

    def name(self, label: int) -> str:
        return named(self.names[label])

    @property
    def coloured(self) -> list[tuple[int, str]]:
        return list(zip(self.order, PALETTE, strict=False))


def array(values: Any) -> np.ndarray:
    """Floats, NaN for None."""
    return np.array(values, dtype=np.float64)


def forest(
    rows: Sequence[CandidateResult],
    metric: Metric,
    name: str = "comparison",
    reference: str = "the baseline",
) -> Figure | None:
    """Differences to a reference with intervals, of every candidate that has one."""
    compared = [row for row in rows if row.difference is not None]
    if not compared:
        return None
    names = [str(row.candidate) for row in compared]
    value, low, high = (
        100 * array([getattr(row.difference, part) for row in compared])
        for part in ("value", "low", "high")
    )
    # A poor candidate must not squeeze the others: the axis ends at three times the median or best
    # difference, or at the end of the median interval.
    median = float(np.sort(np.abs(value))[(len(value) - 1) // 2])
    reach = 3 * max(1.0, median, float(value.max()))
    reach = max(reach, float(np.median(np.maximum(-low, high))))
    left = max(min(float(low.min()), 0), -reach)
    right = min(max(float(high.max()), 0), reach)
    margin = 0.05 * max(right - left, 1e-9)
    title = f"Difference to {reference} with its interval, a row per candidate"
    caption = (
        "Dot: mean difference over all folds. Bar: its 95% CI. Ticks: single folds. "
        "Members of the selected model are bold."
    )
    width = max(360, 230 + 5.2 * max(map(len, names)))  # with room for the names
    height = 50 + 19 * len(names)
    with new_figure(name, title, caption, width=width, height=height) as figure:
        figure.keys = [
            Key(f"better than {reference}", PALETTE[0]),
            Key("no significant difference", FAINT),
            Key("worse", PALETTE[1]),
        ]
        ax = figure.ax
        ax.axvline(0, color=INK, linewidth=1)
        colours = np.select([low > 0, high < 0], PALETTE[:2], FAINT).tolist()
        ax.hlines(range(len(names)), low, high, colors=colours, linewidth=2.2)
        for y, (row, colour) in enumerate(zip(compared, colours, strict=True)):
            folds = 100 * array(list(row.by_fold.values()))
            ax.plot(folds, [y] * len(folds), "|", color=colour, markersize=8)
            mark = "<"
            if left <= value[y] <= right:
                mark = "o"
            ax.plot(np.clip(value[y], left, right), y, mark, color=colour, markersize=6)
        ax.set(xlim=(left - margin, right + margin), ylim=(len(names) - 0.4, -0.6))
        ax.set_yticks(range(len(names)), names)
        for text, row in zip(ax.get_yticklabels(), compared, strict=True):
            text.set_fontweight("bold" if row.weight > 0 else "normal")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
        ax.spines["left"].set_visible(False)
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.set_xlabel(f"difference to {reference} in {metric.unit}")
    return figure


def periods(graph: GraphSummary, cutoff: int) -> Figure:
    """Nodes and known labels by period."""
    caption = "Nodes per period. The dotted line is the cutoff: later labels are not used."
    title = "Nodes and known labels by period"
    with new_figure("periods", title, caption) as figure:
        figure.keys = [Key("nodes", FAINT, "area"), Key("labelled", PALETTE[0], "area")]
        ax = figure.ax
        _columns(ax, graph.names, [(array(graph.nodes_per_time), FAINT, 0.35)])
        _columns(ax, graph.names, [(array(graph.labelled_per_time), PALETTE[0], 0.85)])
        position = float(np.searchsorted(graph.times, cutoff))
        ax.axvline(position, color=INK, linewidth=1.2, linestyle=":")
        from_zero(ax)
        ax.grid(axis="x", visible=False)
        ax.set_ylabel("nodes")
    return figure


def _columns(
    ax: Axes, names: Sequence[str], stacked: Sequence[tuple[np.ndarray, str, float]]
) -> None:
    """Stacked columns, one per period; every layer has heights, colour and opacity."""
    bottom = np.zeros(len(names))
    for height, colour, alpha in stacked:
        top = bottom + height
        ax.stairs(top, baseline=bottom, fill=True, color=colour, alpha=alpha, linewidth=0)
        bottom = top
    # Long names, such as dates, need the room of two ticks.
    num_ticks = MAX_TICKS if max(map(len, names)) <= 5 else MAX_TICKS // 2
    ticks = np.arange(0, len(names), math.ceil(len(names) / num_ticks))
    ax.set_xticks(ticks + 0.5, [svg.short(names[int(tick)]) for tick in ticks])
    ax.set(xlim=(0, len(names)), xlabel="period")


def label_mix(check: LabelMix, labels: Labels, called: Called) -> Figure:
    """Class proportions by period."""
    mix = array(check.mix)[-MAX_PERIODS:]  # [periods, classes]
    layers = [(mix[:, label], colour, 0.85) for label, colour in labels.coloured]
    keys = [Key(labels.name(label), colour, "area") for label, colour in labels.coloured]
    rest = labels.order[len(PALETTE) :]
    if rest:
        name = labels.name(rest[0]) if len(rest) == 1 else f"{len(rest)} other classes"
        layers.append((mix[:, rest].sum(1), FAINT, 0.85))
        keys.append(Key(name, FAINT, "area"))
    names = [called(time) for time in check.times[-MAX_PERIODS:]]
    title = "Class proportions by period"
    caption = "Class proportions of every labelled period."
    with new_figure("label-mix", title, caption) as figure:
        figure.keys = keys
        ax = figure.ax
        _columns(ax, names, layers)
        in_percent(ax)
        ax.set(ylim=(0, 1), ylabel="share of labels")
        ax.grid(visible=False)
    return figure


def feature_drift(check: FeatureDrift, cutoff: int, called: Called) -> Figure | None:
    """Drift of classes by period, and of all nodes into the target periods."""
    if not check.times:
        return None
    drift = dict(zip(check.times, check.drift, strict=True))
    rows = [
        (time, drift.get(time), of_all)
        for time, of_all in zip(check.all_times, check.all_drift, strict=True)
        if time >= check.times[0]
    ]
    times, of_classes, of_all = zip(*rows, strict=True)
    title = "Drift of the features by period"
    caption = "Drift in units of the distance between classes. The dotted line is the cutoff."
    with new_figure("feature-drift", title, caption) as figure:
        figure.border(cutoff)
        figure.line("classes, from their past", times, of_classes, PALETTE[0])
        figure.line("all nodes, from the labelled ones", times, of_all, PALETTE[1], DASHES[1])
        over_time(figure.ax, "drift / class distance", called=called)
    return figure


def separability(check: Separability) -> Figure | None:
    """Connections to the past against those to the future."""
    if not check.g:
        return None
    offsets, (same, different) = by_offset(
        array(check.steps), array(check.same_label), array(check.different_label)
    )
    title = "Connections to the past and to the future"
    caption = "Edges by the neighbour's distance in time, averaged over pairs of periods."
    with new_figure("connections", title, caption) as figure:
        figure.border(0)
        figure.line("same class", offsets, same, PALETTE[0])
        figure.line("different classes", offsets, different, PALETTE[1], DASHES[1])
        xlabel = "past  ←  neighbour's time − own  →  future"
        over_time(figure.ax, "relative to the maximum", xlabel)
    return figure


def decay(check: Decay, connections: Separability) -> Figure | None:
    """The common decay, and the decay of every group of neighbours."""
    if not check.h:
        return None
    curves = {"common decay": check.h, **connections.g}
    curves = {name: values for name, values in curves.items() if sum(values) > 0}
    title = "Connections by distance in time"
    caption = "Decay of the connections with the distance in time. Every curve sums to 1."
    with new_figure("decay", title, caption) as figure:
        for name, colour, dashes in zip(curves, (INK, *PALETTE), DASHES, strict=False):
            shares = array(curves[name]) / sum(curves[name])
            figure.line(name, check.distances, shares, colour, dashes)
        over_time(figure.ax, "share", "distance in time")
    return figure


def by_offset(steps: np.ndarray, *tables: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Average tables [own, neighbour] by signed distance, each scaled to a maximum of 1."""
    offset, index = np.unique(steps[None, :] - steps[:, None], return_inverse=True)
    index = index.ravel()
    means = [np.bincount(index, table.ravel()) / np.bincount(index) for table in tables]
    return offset, [mean / max(float(mean.max()), 1e-300) for mean in means]


SHIFT_KEYS = (
    Key("baseline", INK, "dash"),
    Key("with correction", PALETTE[0]),
    Key("sampling noise", FAINT, "area"),
)


def shift(measured: MessageShift, called: Called) -> list[Figure]:
    """A panel per correction: shift by period before and after it, and the sampling noise."""
    times = measured.times
    plain = measured.methods["plain"]
    series = [measured.noise, *(method.sliced for method in measured.methods.values())]
    top = 1.08 * max(map(max, series))
    marker: Any = {"marker": "o" if len(times) == 1 else "", "markersize": 4}
    title = "Shift of messages by period, before and after a correction"
    panels = []
    for name, corrected in measured.methods.items():
        if corrected is plain:
            continue
        caption = f"{name}: {number(plain.overall)} → {number(corrected.overall)}"
        if plain.overall > 0:
            change = corrected.overall / plain.overall - 1
            caption += f" ({'−' if change < 0 else '+'}{percent(abs(change), 0)})"
        with new_figure(f"shift-{name}", title, caption, width=172, height=140) as figure:
            ax = figure.ax
            figure.band("sampling noise", times, 0, measured.noise)
            ax.plot(times, plain.sliced, color=INK, linewidth=1.2, dashes=DASHES[1], **marker)
            ax.plot(times, corrected.sliced, color=PALETTE[0], linewidth=1.8, **marker)
            over_time(ax, across=4, up=4, top=top, called=called, xlabel="")
            figure.keys = []  # one legend, `SHIFT_KEYS`, serves all panels
        panels.append(figure)
    return panels


def reliability(
    checks: Sequence[FoldCheck | Evaluation], name: str = "reliability"
) -> Figure | None:
    """Accuracy by confidence, in bins over all folds together."""
    rows = [
        (check.count * part.share, part.confidence, part.accuracy)
        for check in checks
        for part in check.bins
    ]
    if not rows:
        return None
    weight, confidence, accuracy = array(rows).T
    # Means of the fine bins in every coarse bin, weighted by their predictions.
    index = np.minimum((confidence * BINS).astype(int), BINS - 1)
    filled = np.unique(index)
    total = np.bincount(index, weight)
    share = total[filled] / total.sum()
    confidence = np.bincount(index, weight * confidence)[filled] / total[filled]
    accuracy = np.bincount(index, weight * accuracy)[filled] / total[filled]
    caption = (
        "Accuracy by calibrated probability. A larger dot stands for more predictions. "
        "Below the dashed line the model is overconfident."
    )
    title = "Accuracy of the predictions by their probability"
    with new_figure(name, title, caption) as figure:
        figure.keys = [
            Key("predictions", PALETTE[0], "dot"),
            Key("perfect calibration", FAINT, "dash"),
        ]
        ax = figure.ax
        ax.plot([0, 1], [0, 1], color=FAINT, dashes=DASHES[1], linewidth=1.2)
        ax.plot(confidence, accuracy, color=PALETTE[0], linewidth=1)
        area = (3 + 14 * share**0.5) ** 2
        ax.scatter(confidence, accuracy, area, color=PALETTE[0], linewidth=0, alpha=0.8)
        ax.set(xlim=(0, 1), xlabel="probability of the predicted class")
        ax.set(ylim=(0, 1), ylabel="accuracy")
    return figure


def confusion(
    checks: Sequence[FoldCheck | Evaluation], labels: Labels, name: str = "confusion"
) -> Figure | None:
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
    names = [labels.name(label) for label in listed]
    if (row_of == len(listed)).any():
        names.append("others")
    size = len(names)
    counts = np.zeros((size, size))
    np.add.at(counts, (row_of[true], row_of[predicted]), count)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    caption = (
        "Each cell: percentage of the nodes of the true class (row) that were predicted as the "
        "class of the column."
    )
    side = 90 + 30 * size
    with new_figure(name, "Confusion matrix", caption, width=side + 90, height=side) as figure:
        ax = figure.ax
        for row, column in np.argwhere(share > 0):
            _cell(ax, column, row, float(share[row, column]))
        ticks = [
            name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…" for name in names
        ]
        ax.set(xlim=(-0.5, size - 0.5), xlabel="predicted class")
        ax.set(ylim=(size - 0.5, -0.5), ylabel="true class")
        ax.set_yticks(range(size), ticks)
        ax.set_xticks(range(size), ticks, rotation=90)
        ax.grid(visible=False)
    return figure


def _cell(ax: Axes, column: int, row: int, share: float) -> None:
    """A cell of the confusion matrix: the larger its share, the darker; light text on dark."""
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=HEAT, alpha=share, linewidth=0))
    if share >= 0.005:
        colour = PAPER if share >= DARK_CELL else INK
        text: Any = {"ha": "center", "va": "center", "fontsize": 9.5, "color": colour}
        ax.text(column, row, f"{100 * share:.0f}", **text)


def by_period(
    checks: Sequence[FoldCheck | Evaluation], summary: RunSummary, name: str = "by-period"
) -> Figure | None:
    """Accuracy of the selected model and the baseline by period, and the expected accuracy."""
    scores: dict[int, list[tuple[int, float, float | None]]] = {}
    for check in checks:
        for period in check.periods:
            row = (period.count, period.accuracy, period.plain)
            scores.setdefault(period.time, []).append(row)
    if not scores:
        return None
    times = sorted(scores)
    # Means over the folds that reach a period, weighted by their nodes [periods, 3].
    means = [
        np.average(array(scores[time]), 0, weights=[row[0] for row in scores[time]])
        for time in times
    ]
    # NaN in one fold makes the mean of a period NaN: matplotlib leaves a gap there.
    count, accuracy, plain = np.array(means).T
    forecast = summary.prediction_summary.accuracy
    caption = "Accuracy by period. Predictions before the cutoff (dotted line) are out of fold."
    title = "Accuracy by period"
    with new_figure(name, title, caption, width=380, height=224) as figure:
        ax = figure.ax
        figure.accuracy("selected model", times, accuracy, count)
        if not np.isnan(plain).all():
            figure.line("baseline", times, plain, INK, DASHES[1])
        if forecast is not None:
            targets = [time for time in summary.graph.times if time >= summary.cutoff]
            span = [targets[0] - 0.4, targets[-1] + 0.4]
            figure.border(summary.cutoff - 0.5)
            ax.fill_between(
                span,
                forecast.low,
                forecast.high,
                color=PALETTE[1],
                alpha=0.25,
                linewidth=0,
            )
            ax.plot(span, [forecast.value] * 2, color=PALETTE[1])
            figure.keys.append(Key("expected, 90% interval", PALETTE[1]))
        over_time(ax, "accuracy", called=summary.graph.name, top=1)
        in_percent(ax)
    return figure


@dataclass(frozen=True)
class _Panel:
    """A series of the figure of changes."""

    name: str
    times: list[int]
    values: Sequence[float | None]
    is_share: bool


def change(diagnosis: Diagnosis, called: Called) -> Figure | None:
    """Changes over time in one figure: class proportions, features, connections."""
    mix = diagnosis.label_mix
    drift = diagnosis.feature_drift
    connections = diagnosis.separability
    candidates = [
        _Panel("change of class\nproportions", mix.times[1:], mix.to_past, is_share=True),
        _Panel("feature drift\n/ class distance", drift.all_times, drift.all_drift, is_share=False),
        _Panel("neighbours of\nsame class", connections.steps, connections.alike, is_share=True),
    ]
    panels = [panel for panel in candidates if min(len(panel.times), len(panel.values)) > 1]
    if not panels:
        return None
    title = "Changes over time: class proportions, features, connections"
    caption = (
        "From top: change of the class proportions from all earlier periods (grey: sampling "
        "noise); distance of the features from the labelled nodes; share of neighbours of the "
        "same class. The dotted line is the cutoff."
    )
    first = min(panel.times[0] for panel in panels)
    last = max(diagnosis.cutoff, *(panel.times[-1] for panel in panels))
    with new_figure("change", title, caption, height=40 + 85 * len(panels)) as figure:
        canvas = figure.ax.figure
        figure.ax.remove()
        all_axes = np.atleast_1d(canvas.subplots(len(panels), 1))
        for ax, panel, colour in zip(all_axes, panels, PALETTE, strict=False):
            figure.ax = ax
            if panel.values is mix.to_past:
                figure.band("sampling noise", panel.times, 0, mix.noise)
            figure.line(panel.name, panel.times, panel.values, colour)
            figure.border(diagnosis.cutoff)
            ax.set_xlim(first - 0.5, last + 0.5)
            is_last = ax is all_axes[-1]
            over_time(ax, panel.name, "period" if is_last else "", up=3, called=called)
            ax.tick_params(labelbottom=is_last)
            if panel.is_share:
                in_percent(ax)
        figure.keys = []  # the labels of the axes say what is what
    return figure


def by_horizon(scores: Sequence[HorizonScore], caption: str = "") -> Figure | None:
    """Accuracy by the number of periods since the last known label."""
    if len(scores) < 2:
        return None
    rows = [(score.horizon, score.accuracy, score.count) for score in scores]
    horizon, accuracy, count = array(rows).T
    with new_figure("by-horizon", "Accuracy by forecast horizon", caption) as figure:
        figure.accuracy("accuracy", horizon, accuracy, count)
        over_time(figure.ax, "accuracy", "periods since the last label")
        in_percent(figure.ax)
    return figure


def histogram(counts: Sequence[int]) -> Figure:
    """Predictions by probability, in equal bins from 0 to 1."""
    caption = "Number of predictions by the probability of the predicted class."
    width = 1 / len(counts)
    low = np.arange(len(counts)) * width
    title = "Histogram of the probabilities"
    with new_figure("confidence", title, caption) as figure:
        ax = figure.ax
        ax.bar(low + width / 2, counts, width * 0.92, color=PALETTE[0])
        from_zero(ax)
        ax.set(xlim=(0, 1), xlabel="probability of the predicted class", ylabel="nodes")
        ax.grid(axis="x", visible=False)
    return figure
