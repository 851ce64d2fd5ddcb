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
    keys: Sequence[Key]
    ax: Axes
    file: str = ""  # SVG with its legend
    svg: Markup = field(default_factory=Markup)  # SVG for the page, which has the legend below it


@contextlib.contextmanager
def new_figure(
    name: str,
    title: str,
    caption: str,
    keys: Sequence[Key] = (),
    *,
    width: float = 360,
    height: float = 220,
) -> Iterator[Figure]:
    """A figure with axes to draw on; it is rendered when the block ends."""
    with svg.axes(width, height) as ax:
        file_name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        figure = Figure(name=file_name, caption=caption, keys=keys, ax=ax)
        yield figure
        figure.file, figure.svg = svg.render(figure.ax, title, keys)


@dataclass(frozen=True)
class Curve:
    """A line over time or distance, and its legend entry."""

    name: str
    values: Any
    colour: str
    dashes: Any = ()

    @property
    def key(self) -> Key:
        return Key(self.name, self.colour, "dash" if self.dashes else "line")

    def draw(self, ax: Axes, x: Any) -> None:
        """A solid curve has markers where there are few points."""
        if self.dashes:
            ax.plot(x, array(self.values), color=self.colour, dashes=self.dashes, linewidth=1.4)
            return
        marker = "o" if len(x) <= MAX_MARKERS else ""
        ax.plot(x, array(self.values), color=self.colour, marker=marker, markersize=3.5)


@dataclass(frozen=True)
class Band:
    """A grey area between two series, and its legend entry."""

    name: str
    low: Any
    high: Any

    def draw(self, ax: Axes, x: Any) -> None:
        ax.fill_between(x, self.low, self.high, color=FAINT, alpha=0.25, linewidth=0)


def line_chart(
    name: str,
    title: str,
    caption: str,
    x: Any,
    curves: Sequence[Curve],
    *,
    ylabel: str,
    xlabel: str = "period",
    called: Called | None = None,
    band: Band | None = None,
    vertical: float | None = None,
    is_share: bool = False,
) -> Figure:
    """Curves over time or distance; `vertical` is where a dotted line stands."""
    keys = [curve.key for curve in curves]
    if band is not None:
        keys.append(Key(band.name, FAINT, "area"))
    with new_figure(name, title, caption, keys) as figure:
        ax = figure.ax
        if band is not None:
            band.draw(ax, x)
        if vertical is not None:
            ax.axvline(vertical, color=FAINT, linewidth=1, linestyle=":")
        for curve in curves:
            curve.draw(ax, x)
        over_time(ax, ylabel, xlabel, called=called)
        if is_share:
            in_percent(ax)
    return figure


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
    keys = (
        Key(f"better than {reference}", PALETTE[0]),
        Key("no significant difference", FAINT),
        Key("worse", PALETTE[1]),
    )
    width = max(360, 230 + 5.2 * max(map(len, names)))  # with room for the names
    height = 50 + 19 * len(names)
    with new_figure(name, title, caption, keys, width=width, height=height) as figure:
        ax = figure.ax
        ax.axvline(0, color=INK, linewidth=1)
        colours = np.select([low > 0, high < 0], PALETTE[:2], FAINT).tolist()
        ax.hlines(range(len(names)), low, high, colors=colours, linewidth=2.2)
        for y, (row, colour) in enumerate(zip(compared, colours, strict=True)):
            folds = 100 * array(list(row.by_fold.values()))
            ax.plot(folds, [y] * len(folds), "|", color=colour, markersize=8)
            mark = "o" if left <= value[y] <= right else "<"
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
    keys = Key("nodes", FAINT, "area"), Key("labelled", PALETTE[0], "area")
    caption = "Nodes per period. The dotted line is the cutoff: later labels are not used."
    title = "Nodes and known labels by period"
    with new_figure("periods", title, caption, keys) as figure:
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
    num_ticks = MAX_TICKS if max(map(len, names)) <= 5 else MAX_TICKS // 2
    ticks = np.arange(0, len(names), math.ceil(len(names) / num_ticks))
    ax.set_xticks(ticks + 0.5, [svg.short(names[int(tick)]) for tick in ticks])
    ax.set(xlim=(0, len(names)), xlabel="period")


def label_mix(check: LabelMix, labels: Labels, called: Called) -> list[Figure]:
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
    with new_figure("label-mix", title, caption, keys) as figure:
        ax = figure.ax
        _columns(ax, names, layers)
        in_percent(ax)
        ax.set(ylim=(0, 1), ylabel="share of labels")
        ax.grid(visible=False)
    return [figure]


def feature_drift(check: FeatureDrift, cutoff: int, called: Called) -> list[Figure]:
    """Drift of classes by period, and of all nodes into the target periods."""
    if not check.times:
        return []
    drift = dict(zip(check.times, check.drift, strict=True))
    rows = [
        (time, drift.get(time), of_all)
        for time, of_all in zip(check.all_times, check.all_drift, strict=True)
        if time >= check.times[0]
    ]
    times, of_classes, of_all = zip(*rows, strict=True)
    chart = line_chart(
        "feature-drift",
        "Drift of the features by period",
        "Drift in units of the distance between classes. The dotted line is the cutoff.",
        list(times),
        [
            Curve("classes, from their past", of_classes, PALETTE[0]),
            Curve("all nodes, from the labelled ones", of_all, PALETTE[1], DASHES[1]),
        ],
        ylabel="drift / class distance",
        called=called,
        vertical=cutoff,
    )
    return [chart]


def separability(check: Separability) -> list[Figure]:
    """Connections to the past against those to the future."""
    if not check.g:
        return []
    offsets, (same, different) = by_offset(
        array(check.steps), array(check.same_label), array(check.different_label)
    )
    sides = line_chart(
        "connections",
        "Connections to the past and to the future",
        "Edges by the neighbour's distance in time, averaged over pairs of periods.",
        offsets,
        [
            Curve("same class", same, PALETTE[0]),
            Curve("different classes", different, PALETTE[1], DASHES[1]),
        ],
        ylabel="relative to the maximum",
        xlabel="past  ←  neighbour's time − own  →  future",
        vertical=0,
    )
    return [sides]


def decay(check: Decay, connections: Separability) -> list[Figure]:
    """The common decay, and the decay of every group of neighbours."""
    if not check.h:
        return []
    curves = {"common decay": check.h, **connections.g}
    scaled = {
        name: list(array(values) / sum(values))
        for name, values in curves.items()
        if sum(values) > 0
    }
    caption = "Decay of the connections with the distance in time. Every curve sums to 1."
    chart = line_chart(
        "decay",
        "Connections by distance in time",
        caption,
        check.distances,
        [
            Curve(name, values, colour, dashes)
            for (name, values), colour, dashes in zip(
                scaled.items(), (INK, *PALETTE), DASHES, strict=False
            )
        ],
        ylabel="share",
        xlabel="distance in time",
    )
    return [chart]


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
    times, plain = measured.times, measured.methods["plain"]
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
            Band("sampling noise", 0, measured.noise).draw(ax, times)
            ax.plot(times, plain.sliced, color=INK, linewidth=1.2, dashes=DASHES[1], **marker)
            ax.plot(times, corrected.sliced, color=PALETTE[0], linewidth=1.8, **marker)
            over_time(ax, across=4, up=4, top=top, called=called, xlabel="")
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
    keys = Key("predictions", PALETTE[0], "dot"), Key("perfect calibration", FAINT, "dash")
    title = "Accuracy of the predictions by their probability"
    with new_figure(name, title, caption, keys) as figure:
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
    count, accuracy, plain = np.array(means).T
    curves = [Curve("selected model", accuracy, PALETTE[0])]
    if not np.isnan(plain).all():
        curves.append(Curve("baseline", plain, INK, DASHES[1]))
    band = _accuracy_band(accuracy, count)
    keys = [*(curve.key for curve in curves), Key(band.name, FAINT, "area")]
    forecast = summary.prediction_summary.accuracy
    caption = "Accuracy by period. Predictions before the cutoff (dotted line) are out of fold."
    if forecast is not None:
        keys.append(Key("expected, 90% interval", PALETTE[1]))
    title = "Accuracy by period"
    with new_figure(name, title, caption, keys, width=380, height=224) as figure:
        ax = figure.ax
        band.draw(ax, times)
        for curve in curves:
            curve.draw(ax, times)
        if forecast is not None:
            targets = [time for time in summary.graph.times if time >= summary.cutoff]
            span = [targets[0] - 0.4, targets[-1] + 0.4]
            ax.axvline(summary.cutoff - 0.5, color=FAINT, linewidth=1, linestyle=":")
            ax.fill_between(
                span, forecast.low, forecast.high, color=PALETTE[1], alpha=0.25, linewidth=0
            )
            ax.plot(span, [forecast.value] * 2, color=PALETTE[1])
        over_time(ax, "accuracy", called=summary.graph.name, top=1)
        in_percent(ax)
    return figure


def _accuracy_band(accuracy: np.ndarray, count: np.ndarray) -> Band:
    """The 95 % interval of binomial accuracies."""
    half = Z95 * np.sqrt(accuracy * (1 - accuracy) / count)
    return Band("95% interval", accuracy - half, np.minimum(accuracy + half, 1))


@dataclass(frozen=True)
class _Panel:
    """A series of the figure of changes."""

    name: str
    times: list[int]
    values: Sequence[float | None]
    is_share: bool


def change(diagnosis: Diagnosis, called: Called) -> Figure | None:
    """Changes over time in one figure: class proportions, features, connections."""
    mix, drift, connections = diagnosis.label_mix, diagnosis.feature_drift, diagnosis.separability
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
        figure.ax = all_axes[0]
        for ax, panel, colour in zip(all_axes, panels, PALETTE, strict=False):
            if panel.values is mix.to_past:
                Band("sampling noise", 0, mix.noise).draw(ax, panel.times)
            Curve(panel.name, panel.values, colour).draw(ax, panel.times)
            ax.axvline(diagnosis.cutoff, color=FAINT, linewidth=1, linestyle=":")
            ax.set_xlim(first - 0.5, last + 0.5)
            is_last = ax is all_axes[-1]
            over_time(ax, panel.name, "period" if is_last else "", up=3, called=called)
            ax.tick_params(labelbottom=is_last)
            if panel.is_share:
                in_percent(ax)
    return figure


def by_horizon(scores: Sequence[HorizonScore], caption: str = "") -> Figure | None:
    """Accuracy by the number of periods since the last known label."""
    if len(scores) < 2:
        return None
    rows = [(score.horizon, score.accuracy, score.count) for score in scores]
    horizon, accuracy, count = array(rows).T
    return line_chart(
        "by-horizon",
        "Accuracy by forecast horizon",
        caption,
        horizon,
        [Curve("accuracy", accuracy, PALETTE[0])],
        ylabel="accuracy",
        xlabel="periods since the last label",
        band=_accuracy_band(accuracy, count),
        is_share=True,
    )


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
