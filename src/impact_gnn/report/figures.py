"""Figures of the report: drawing, caption, legend entries and the numbers behind each."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.ticker import MaxNLocator

from impact_gnn.backtesting import CandidateResult, FoldCheck, HorizonScore
from impact_gnn.diagnostics import Diagnosis, MessageShift
from impact_gnn.diagnostics.connections import Decay, Separability
from impact_gnn.diagnostics.feature_drift import FeatureDrift
from impact_gnn.diagnostics.feature_map import FeatureMap
from impact_gnn.diagnostics.label_mix import LabelMix
from impact_gnn.estimators.calibration import BINS
from impact_gnn.graph import GraphSummary
from impact_gnn.metrics import Metric
from impact_gnn.report import svg
from impact_gnn.report.numbers import named, number, percent, whole
from impact_gnn.report.summary import Evaluation, RunSummary
from impact_gnn.report.svg import (
    FAINT,
    INK,
    PALETTE,
    Called,
    from_zero,
    in_percent,
    line,
    over_time,
    ramp,
)

MAX_DOTS = 900  # nodes in the map of the features; more would hide each other
MAX_PERIODS = 200  # periods of the stacked plots, the last ones
MAX_TICKS = 8
MAX_CLASSES = 11  # rows of the confusion matrix
MAX_LETTERS = 16  # of their names
# lines that run close together differ in their dashes too
DASHES: Any = ((), (5, 2), (1.5, 1.5), (6, 1.5, 1.5, 1.5))
Z95 = 1.96  # half the 95 % interval of a normal distribution, in standard deviations


@dataclass
class Figure:
    """A drawing with its caption and legend entries."""

    name: str  # of its files
    caption: str
    keys: Sequence[dict[str, str]]  # legend entries
    ax: Axes
    data: dict[str, Any]  # the numbers behind the drawing: columns of one length
    file: str = ""  # SVG with its legend
    svg: Markup = field(default_factory=Markup)  # SVG for the page, which has the legend below it

    def alone(self) -> Axes:
        """The axes with a legend, for use without the page."""
        handles = [_handle(key) for key in self.keys]
        canvas = self.ax.figure
        if handles and not canvas.legends:
            with mpl.rc_context(svg.STYLE):  # in which $ is a letter
                legend = canvas.legend(
                    handles,
                    [" "] * len(handles),
                    loc="outside lower center",
                    ncols=min(3, len(handles)),
                    frameon=False,
                )
            # set afterwards, as matplotlib leaves out names that begin with _
            for text, key in zip(legend.get_texts(), self.keys, strict=True):
                text.set_text(key["name"])
            assert isinstance(canvas, Canvas)
            rows = math.ceil(len(handles) / 3)
            canvas.set_size_inches(canvas.get_figwidth(), canvas.get_figheight() + 0.25 * rows)
        return self.ax


@contextlib.contextmanager
def drawn(
    name: str,
    title: str,
    caption: str,
    keys: Sequence[dict[str, str]] = (),
    *,
    data: dict[str, Any],
    width: float = 360,
    height: float = 220,
) -> Iterator[Figure]:
    """A figure with axes to draw on; it is rendered when the block ends."""
    with svg.axes(width, height) as ax:
        file_name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        figure = Figure(name=file_name, caption=caption, keys=keys, ax=ax, data=data)
        yield figure
        figure.file, figure.svg = svg.drawn(figure.ax, title, keys)


@dataclass(frozen=True)
class Labels:
    """Names of the labels, and their order by known nodes, which colours follow."""

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


def key(name: str, colour: str, mark: str = "line") -> dict[str, str]:
    """A legend entry; `mark` is "line", "dash", "area" or "dot"."""
    return {
        "name": name,
        "colour": svg.VARIABLES.get(colour, colour),
        "mark": mark,
        "plain": colour,
    }


def _handle(key: dict[str, str]) -> Patch | Line2D:
    """A legend entry as matplotlib draws it."""
    colour, mark = key["plain"], key["mark"]
    if mark == "area":
        return Patch(color=colour, alpha=0.85)
    if mark == "dot":
        return Line2D([], [], color=colour, linestyle="", marker="o")
    return Line2D([], [], color=colour, linestyle="--" if mark == "dash" else "-")


def _band(ax: Axes, x: Any, edge: Any, other_edge: Any = 0) -> None:
    """A grey band for the values that chance alone gives."""
    ax.fill_between(x, edge, other_edge, color=FAINT, alpha=0.25, linewidth=0)


def _accuracy_band(ax: Axes, x: Any, accuracy: np.ndarray, count: np.ndarray) -> None:
    """A band of the 95 % interval of binomial accuracies."""
    half = Z95 * np.sqrt(accuracy * (1 - accuracy) / count)
    _band(ax, x, accuracy - half, np.minimum(accuracy + half, 1))


def forest(
    rows: Sequence[CandidateResult], metric: Metric, name: str = "comparison"
) -> Figure | None:
    """Differences to the baseline with intervals, of every candidate that has one."""
    compared = [row for row in rows if row.difference is not None]
    if not compared:
        return None
    differences = [row.difference for row in compared if row.difference is not None]
    names = [str(row.candidate) for row in compared]
    low, value, high = 100 * array([(d.low, d.value, d.high) for d in differences]).T
    is_selected = [row.weight > 0 for row in compared]
    # A poor candidate must not squeeze the others: the axis ends at three times the median or best.
    median = float(np.sort(np.abs(value))[(len(value) - 1) // 2])
    reach = 3 * max(1.0, median, float(value.max()))
    left = max(min(float(low.min()), 0), -reach)
    right = min(max(float(high.max()), 0), reach)
    margin = 0.05 * max(right - left, 1e-9)
    title = "Difference to plain with its interval, a row per candidate"
    caption = (
        "Disc: difference over all back-tested windows; bar: its 95% interval; "
        "ticks: single windows."
    )
    if any(is_selected):
        caption += " What is in the choice is bold."
    keys = (
        key("better than plain", PALETTE[0]),
        key("cannot be told apart", FAINT),
        key("worse", PALETTE[1]),
    )
    data = {"candidate": names, "difference": value, "low": low, "high": high}
    width = max(360, 230 + 5.2 * max(map(len, names)))  # with room for the names
    height = 50 + 19 * len(names)
    with drawn(name, title, caption, keys, data=data, width=width, height=height) as figure:
        ax = figure.ax
        ax.axvline(0, color=INK, linewidth=1)
        for y, row in enumerate(compared):
            colour = FAINT
            if low[y] > 0:
                colour = PALETTE[0]
            elif high[y] < 0:
                colour = PALETTE[1]
            ax.plot([low[y], high[y]], [y, y], color=colour, linewidth=2.2)
            folds = 100 * array(list(row.by_fold.values()))
            ax.plot(folds, [y] * len(folds), "|", color=colour, markersize=8, markeredgewidth=1)
            mark = "o" if left <= value[y] <= right else "<"
            ax.plot(np.clip(value[y], left, right), y, mark, color=colour, markersize=6)
        ax.set(xlim=(left - margin, right + margin), ylim=(len(names) - 0.4, -0.6))
        ax.set_yticks(range(len(names)), names)
        for text, bold in zip(ax.get_yticklabels(), is_selected, strict=True):
            text.set_fontweight("bold" if bold else "normal")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
        ax.spines["left"].set_visible(False)
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.set_xlabel(f"{metric.unit} better than plain")
    return figure


def periods(graph: GraphSummary, cutoff: int) -> Figure:
    """Nodes and known labels by period."""
    keys = key("nodes", FAINT, "area"), key("label known", PALETTE[0], "area")
    caption = (
        "Nodes of every period. The dotted line is the cutoff: labels from there on were not read."
    )
    data = {
        "period": graph.names,
        "nodes": graph.nodes_per_time,
        "labelled": graph.labelled_per_time,
    }
    with drawn("periods", "Nodes and known labels by period", caption, keys, data=data) as figure:
        ax = figure.ax
        _columns(ax, graph.names, [(array(graph.nodes_per_time), FAINT, 0.35)])
        _columns(ax, graph.names, [(array(graph.labelled_per_time), PALETTE[0], 0.85)])
        ax.axvline(
            float(np.searchsorted(graph.times, cutoff)), color=INK, linewidth=1.2, linestyle=":"
        )
        from_zero(ax)
        ax.grid(axis="x", visible=False)
        ax.set_ylabel("nodes")
    return figure


def _columns(
    ax: Axes, names: Sequence[str], stacked: Sequence[tuple[np.ndarray, str, float]]
) -> None:
    """Stacked columns, one per period; every layer has heights, colour and opacity."""
    bottom = np.zeros(len(names) + 1)
    for height, colour, alpha in stacked:
        top = bottom + np.append(height, height[-1])
        ax.fill_between(
            np.arange(len(top)), bottom, top, step="post", color=colour, alpha=alpha, linewidth=0
        )
        bottom = top
    num_ticks = MAX_TICKS if max(map(len, names)) <= 5 else MAX_TICKS // 2
    ticks = np.arange(0, len(names), math.ceil(len(names) / num_ticks))
    ax.set_xticks(ticks + 0.5, [svg.short(names[int(tick)]) for tick in ticks])
    ax.set(xlim=(0, len(names)), xlabel="period")


def label_mix(finding: LabelMix, labels: Labels, called: Called) -> list[Figure]:
    """The mix of labels by period, and how far each period's is from the past."""
    mix = array(finding.mix)[-MAX_PERIODS:]  # [periods, classes]
    layers = [(mix[:, label], colour, 0.85) for label, colour in labels.coloured]
    keys = [key(labels.name(label), colour, "area") for label, colour in labels.coloured]
    rest = labels.order[len(PALETTE) :]
    if rest:
        name = labels.name(rest[0]) if len(rest) == 1 else f"{len(rest)} other labels"
        layers.append((mix[:, rest].sum(1), FAINT, 0.85))
        keys.append(key(name, FAINT, "area"))
    title = "Share of every label by period"
    caption = "Known labels of every period that has some."
    names = [called(time) for time in finding.times[-MAX_PERIODS:]]
    data: dict[str, Any] = {"period": names}
    data |= {f"share of {name}": mix[:, label] for label, name in enumerate(labels.names)}
    with drawn("label-mix", title, caption, keys, data=data) as figure:
        ax = figure.ax
        _columns(ax, names, layers)
        in_percent(ax)
        ax.set(ylim=(0, 1), ylabel="share of known labels")
        ax.grid(visible=False)
    drawn_figures = [figure]
    if finding.to_past:
        title = "Change of the label mix by period, beside what chance gives"
        caption = "Share of labels that differ between a period and all before it."
        change = key("measured", PALETTE[0]), key("what chance alone gives", FAINT, "area")
        later = [called(time) for time in finding.times[1:]]
        data = {"period": later, "changed": array(finding.to_past), "chance": array(finding.noise)}
        with drawn("label-mix-change", title, caption, change, data=data) as figure:
            ax = figure.ax
            _band(ax, finding.times[1:], finding.noise)
            ax.plot(
                finding.times[1:], finding.to_past, color=PALETTE[0], **line(len(finding.to_past))
            )
            over_time(ax, "labels that changed", called=called)
            in_percent(ax)
        drawn_figures.append(figure)
    return drawn_figures


def feature_drift(finding: FeatureDrift, cutoff: int, called: Called) -> list[Figure]:
    """Drift of classes by period, and of all nodes into the target periods."""
    if not finding.times:
        return []
    all_times = array(finding.all_times)
    later = all_times >= finding.times[0]
    keys = (
        key("classes, from their own past", PALETTE[0]),
        key("all nodes, from the labelled", PALETTE[1], "dash"),
    )
    caption = "Drift in multiples of the distance between classes; the dotted line is the cutoff."
    own = dict(zip(finding.times, finding.drift, strict=True))
    data = {"period": [called(t) for t in finding.all_times], "all_nodes": finding.all_drift}
    data["classes"] = [own.get(time) for time in finding.all_times]
    with drawn(
        "feature-drift", "Drift of the features by period", caption, keys, data=data
    ) as figure:
        ax = figure.ax
        ax.plot(
            all_times[later],
            array(finding.all_drift)[later],
            color=PALETTE[1],
            dashes=DASHES[1],
            linewidth=1.4,
        )
        ax.plot(finding.times, array(finding.drift), color=PALETTE[0], **line(len(finding.times)))
        ax.axvline(cutoff, color=FAINT, linewidth=1, linestyle=":")
        over_time(ax, "in distances between classes", called=called)
    return [figure]


def separability(finding: Separability) -> list[Figure]:
    """The fitted g by distance, and connections to the past against those to the future."""
    if not finding.g:
        return []
    caption = "How much of a node's neighbourhood lies at each distance in time."
    offsets, (same, different) = by_offset(
        array(finding.steps), array(finding.same_label), array(finding.different_label)
    )
    sides = key("same label", PALETTE[0]), key("different labels", PALETTE[1], "dash")
    averaged = "Edges by the neighbour's distance in time, averaged over pairs of periods."
    data = {"distance": offsets, "same_label": same, "different_labels": different}
    title = "Connections to the past and to the future"
    with drawn("connections", title, averaged, sides, data=data) as figure:
        ax = figure.ax
        ax.axvline(0, color=FAINT, linewidth=1, linestyle=":")
        ax.plot(offsets, same, color=PALETTE[0], **line(len(offsets)))
        ax.plot(offsets, different, color=PALETTE[1], dashes=DASHES[1])
        over_time(ax, "relative to the strongest", "past  ←  neighbour's time − own  →  future")
    fitted = _by_distance(
        "connections-fitted",
        finding.distances,
        finding.g,
        colours=PALETTE,
        ylabel="g, fitted",
        caption=caption,
    )
    return [fitted, figure]


def decay(finding: Decay, connections: Separability) -> list[Figure]:
    """The common decay, and the decay of every group of neighbours."""
    if not finding.h:
        return []
    curves = {"one decay for all": finding.h, **connections.g}
    scaled = {
        name: list(array(values) / sum(values))
        for name, values in curves.items()
        if sum(values) > 0
    }
    caption = "How connections fade with the distance in time, each curve scaled to sum 1."
    figure = _by_distance(
        "decay",
        finding.distances,
        scaled,
        colours=(INK, *PALETTE),
        ylabel="share",
        caption=caption,
    )
    return [figure]


def _by_distance(
    name: str,
    distances: list[int],
    curves: dict[str, list[float]],
    *,
    colours: Sequence[str],
    ylabel: str,
    caption: str,
) -> Figure:
    """Curves over the distance in time; the first is drawn solid."""
    keys = [key(curve, colours[k], "dash" if k else "line") for k, curve in enumerate(curves)]
    with drawn(
        name,
        "Connections by distance in time",
        caption,
        keys,
        data={"distance": distances} | curves,
    ) as figure:
        ax = figure.ax
        for k, values in enumerate(curves.values()):
            markers = {} if k else line(len(distances))
            ax.plot(distances, values, color=colours[k], dashes=DASHES[k % len(DASHES)], **markers)
        over_time(ax, ylabel, "distance in time")
    return figure


def by_offset(steps: np.ndarray, *tables: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Average tables [own, neighbour] by signed distance, each scaled to a maximum of 1."""
    offset, index = np.unique(steps[None, :] - steps[:, None], return_inverse=True)
    index = index.ravel()
    means = [np.bincount(index, table.ravel()) / np.bincount(index) for table in tables]
    return offset, [mean / max(float(mean.max()), 1e-300) for mean in means]


def pair_curves(finding: Separability, labels: Labels, called: Called) -> list[Figure]:
    """The paper's figure for the strongest pairs of labels: a curve per own time."""
    panels = []
    for number_of_pair, curve in enumerate(finding.curves):
        step = array(curve.neighbour_times)[None, :] - array(curve.own_times)[:, None]
        share = array(curve.share)
        pair = f"{labels.name(curve.label)} ← {labels.name(curve.neighbour)}"
        span = key(called(curve.own_times[0]), ramp(0)), key(called(curve.own_times[-1]), ramp(1))
        title = "Where the neighbours of a label are in time"
        caption = f"{pair} ({whole(curve.edges)} edges)"
        data = {"neighbour": [called(time) for time in curve.neighbour_times]}
        data |= {f"own {called(time)}": share[row] for row, time in enumerate(curve.own_times)}
        with drawn(
            f"pair-{number_of_pair}", title, caption, span, data=data, width=172, height=150
        ) as figure:
            ax = figure.ax
            for row in range(len(step)):
                ax.plot(
                    step[row], share[row], color=ramp(row / max(len(step) - 1, 1)), linewidth=1.3
                )
            connected = step[share > 0]
            if len(connected):
                ax.set_xlim(connected.min() - 0.6, connected.max() + 0.6)
            over_time(ax, "", "neighbour's time − own", across=4, up=4)
            in_percent(ax)
        panels.append(figure)
    return panels


def shift(measured: MessageShift, called: Called) -> list[Figure]:
    """A panel per correction: shift by period before and after it, and the sampling noise."""
    times, plain = measured.times, measured.methods["plain"]
    series = [measured.noise, *(method.sliced for method in measured.methods.values())]
    top = 1.08 * max(map(max, series))
    marker: Any = {"marker": "o" if len(times) == 1 else "", "markersize": 4}
    panels = []
    for name, corrected in measured.methods.items():
        if corrected is plain:
            continue
        caption = f"{name}: {number(plain.overall)} → {number(corrected.overall)}"
        if plain.overall > 0:
            change = corrected.overall / plain.overall - 1
            caption += f" ({'−' if change < 0 else '+'}{percent(abs(change), 0)})"
        title = "Shift of messages by period, before and after a correction"
        data: dict[str, Any] = {"period": [called(time) for time in times]}
        data |= {"plain": plain.sliced, name: corrected.sliced, "noise": measured.noise}
        with drawn(f"shift-{name}", title, caption, data=data, width=172, height=140) as figure:
            ax = figure.ax
            _band(ax, times, measured.noise)
            ax.plot(times, plain.sliced, color=INK, linewidth=1.2, dashes=DASHES[1], **marker)
            ax.plot(times, corrected.sliced, color=PALETTE[0], linewidth=1.8, **marker)
            over_time(ax, "", "", across=4, up=4, top=top, called=called)
        panels.append(figure)
    return panels


def feature_map(picture: FeatureMap, labels: Labels) -> Figure:
    """Nodes as dots, and the path of every class mean from its first period to its last."""
    places = array(picture.nodes.place)
    label = np.array(picture.nodes.label)
    # an even sample of the nodes
    sample = np.unique(np.linspace(0, len(places) - 1, min(len(places), MAX_DOTS)).astype(int))
    places = places[sample]
    label = label[sample]
    colours = {k: colour for k, colour in labels.coloured if (label == k).any()}
    is_other = ~np.isin(label, list(colours))
    keys = [key(labels.name(k), colour, "dot") for k, colour in colours.items()]
    if is_other.any():
        keys.append(key("label unknown or another", FAINT, "dot"))
    axis_names = [
        f"direction {k}, {percent(share, 0)} of the variance"
        for k, share in enumerate(picture.explained, 1)
    ]
    method = "The two main directions of the features (PCA)."
    if picture.projection == "tsne":
        axis_names = ["t-SNE 1", "t-SNE 2"]
        method = "t-SNE keeps neighbourhoods, not distances."
    caption = (
        f"{method} Dots are nodes; lines follow the mean of a class from its first period (ring) "
        "to its last (disc)."
    )
    data = {
        "x": places[:, 0],
        "y": places[:, 1],
        "label": [labels.names[k] if k >= 0 else None for k in label],
    }
    with drawn(
        "feature-map", "Map of the features", caption, keys, data=data, height=300
    ) as figure:
        ax = figure.ax
        _dots(ax, places[is_other], FAINT)
        for k, colour in colours.items():
            _dots(ax, places[label == k], colour)
        centres = array(picture.means.place)
        centre_label = np.array(picture.means.label)
        centre_time = np.array(picture.means.time)
        for k, colour in colours.items():
            own = centre_label == k
            path = centres[own][np.argsort(centre_time[own], kind="stable")]
            ring: Any = {"markersize": 5.5, "markerfacecolor": "none", "markeredgewidth": 1.5}
            disc: Any = {"markersize": 6, "markeredgecolor": INK, "markeredgewidth": 0.7}
            ax.plot(*path.T, color=colour, linewidth=1.3)
            ax.plot(*path[:1].T, "o", color=colour, **ring)
            ax.plot(*path[-1:].T, "o", color=colour, **disc)
        # The limits leave out a few distant nodes, so that the others are spread out.
        low, high = np.quantile(np.concatenate([places, centres]), [0.005, 0.995], axis=0)
        margin = np.maximum(0.06 * (high - low), 1e-9)
        xlim, ylim = zip(low - margin, high + margin, strict=True)
        ax.set(xlabel=axis_names[0], ylabel="".join(axis_names[1:2]), xlim=xlim, ylim=ylim)
        ax.set(xticks=[], yticks=[])
        ax.grid(visible=False)
    return figure


def _dots(ax: Axes, places: np.ndarray, colour: str) -> None:
    """Dots as one path of lines without length and with round ends: a tenth of markers' bytes."""
    codes = np.tile([Outline.MOVETO, Outline.LINETO], len(places))
    path = Outline(np.repeat(places, 2, axis=0), codes)
    patch = PathPatch(
        path, facecolor="none", edgecolor=colour, linewidth=3, capstyle="round", alpha=0.6
    )
    ax.add_patch(patch)


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
        "Calibrated predictions by their probability; a larger disc stands for more of them. "
        "Below the dashed line the model was surer than it should have been."
    )
    keys = key("predictions", PALETTE[0], "dot"), key("probability and truth agree", FAINT, "dash")
    data = {"probability": confidence, "right": accuracy, "share": share}
    title = "How many predictions were right, by their probability"
    with drawn(name, title, caption, keys, data=data) as figure:
        ax = figure.ax
        ax.plot([0, 1], [0, 1], color=FAINT, dashes=DASHES[1], linewidth=1.2)
        ax.plot(confidence, accuracy, color=PALETTE[0], linewidth=1)
        disc: Any = {"color": PALETTE[0], "markeredgewidth": 0, "alpha": 0.8}
        for x, y, size in zip(confidence, accuracy, 3 + 14 * share**0.5, strict=True):
            ax.plot(x, y, "o", markersize=size, **disc)
        ax.set(xlim=(0, 1), xlabel="probability of the predicted label")
        ax.set(ylim=(0, 1), ylabel="share that was right")
    return figure


def confusion(
    checks: Sequence[FoldCheck | Evaluation], labels: Labels, name: str = "confusion"
) -> Figure | None:
    """The confusion matrix of all folds, as shares of its rows; rare labels are merged."""
    triples = np.array([triple for check in checks for triple in check.confusion], int)
    if not len(triples):
        return None
    true, predicted, count = triples.T
    listed = labels.order
    if len(listed) > MAX_CLASSES + 1:
        listed = listed[:MAX_CLASSES]
    # Row of every label; those that are not listed share the last one.
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
        "Rows: true labels; columns: what was predicted, as a share of the row. "
        "The diagonal is what was right."
    )
    data: dict[str, Any] = {"true_label": names}
    data |= {f"as {column}": counts[:, k].astype(int) for k, column in enumerate(names)}
    side = 70 + 26 * size
    title = "What labels were taken for"
    with drawn(name, title, caption, data=data, width=side + 110, height=side) as figure:
        ax = figure.ax
        for row, column in np.argwhere(share > 0):
            value = float(share[row, column])
            colour = PALETTE[0] if row == column else PALETTE[1]
            corner = (column - 0.5, row - 0.5)
            ax.add_patch(Rectangle(corner, 1, 1, color=colour, alpha=value, linewidth=0))
            if value >= 0.005:
                text: Any = {"ha": "center", "va": "center", "fontsize": 9.5, "color": INK}
                ax.text(column, row, f"{100 * value:.0f}", **text)
        ticks = [
            name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…" for name in names
        ]
        ax.set(xlim=(-0.5, size - 0.5), xlabel="predicted, % of the row")
        ax.set(ylim=(size - 0.5, -0.5), ylabel="true")
        ax.set_yticks(range(size), ticks)
        ax.set_xticks(range(size), ticks, rotation=90)
        ax.grid(visible=False)
    return figure


def by_period(
    checks: Sequence[FoldCheck | Evaluation], called: Called, name: str = "by-period"
) -> Figure | None:
    """Accuracy of the selected ensemble and the baseline, by period of all folds."""
    scores: dict[int, list[tuple[int, float, float | None]]] = {}
    for check in checks:
        for period in check.periods:
            row = (period.count, period.accuracy, period.plain)
            scores.setdefault(period.time, []).append(row)
    if len(scores) < 2:
        return None
    times = sorted(scores)
    # Means over the folds that reach a period, weighted by their nodes [periods, 3].
    means = [
        np.average(array(scores[time]), 0, weights=[row[0] for row in scores[time]])
        for time in times
    ]
    count, accuracy, plain = np.array(means).T
    caption = (
        "Labelled nodes, predicted before their labels were known; newer periods are to the right."
    )
    keys = [key("choice", PALETTE[0]), key("what chance allows", FAINT, "area")]
    if not np.isnan(plain).all():
        keys.insert(1, key("plain", INK, "dash"))
    data = {
        "period": [called(time) for time in times],
        "right": accuracy,
        "plain": plain,
        "nodes": count.astype(int),
    }
    with drawn(name, "Share that was right by period", caption, keys, data=data) as figure:
        ax = figure.ax
        _accuracy_band(ax, times, accuracy, count)
        ax.plot(times, plain, color=INK, dashes=DASHES[1], linewidth=1.2)
        ax.plot(times, accuracy, color=PALETTE[0], **line(len(times)))
        over_time(ax, "share that was right", called=called, top=1)
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
    """Changes over time in one figure: label mix, features, connections."""
    mix, drift, connections = diagnosis.label_mix, diagnosis.feature_drift, diagnosis.separability
    candidates = [
        _Panel("labels\nthat changed", mix.times[1:], mix.to_past, is_share=True),
        _Panel(
            "features: drift\n/ class distance", drift.all_times, drift.all_drift, is_share=False
        ),
        _Panel("neighbours of\nsame label", connections.steps, connections.alike, is_share=True),
    ]
    panels = [panel for panel in candidates if min(len(panel.times), len(panel.values)) > 1]
    if not panels:
        return None
    title = "What changed over time: label mix, features, connections"
    caption = (
        "From above: share of labels that differ from all earlier periods (grey: by chance); "
        "distance of features from the labelled ones; share of neighbours with the same label. "
        "The dotted line is the cutoff."
    )
    first = min(panel.times[0] for panel in panels)
    last = max(diagnosis.cutoff, *(panel.times[-1] for panel in panels))
    data: dict[str, list[Any]] = {"what": [], "period": [], "value": []}
    for panel in panels:
        data["what"] += [panel.name.replace("\n", " ")] * len(panel.times)
        data["period"] += [called(time) for time in panel.times]
        data["value"] += panel.values
    with drawn("change", title, caption, data=data, height=40 + 85 * len(panels)) as figure:
        canvas = figure.ax.figure
        figure.ax.remove()
        all_axes = np.atleast_1d(canvas.subplots(len(panels), 1))
        figure.ax = all_axes[0]
        for ax, panel, colour in zip(all_axes, panels, PALETTE, strict=False):
            if panel.values is mix.to_past:
                _band(ax, panel.times, mix.noise)
            ax.plot(panel.times, array(panel.values), color=colour, **line(len(panel.times)))
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
    keys = key("measured", PALETTE[0]), key("what chance allows", FAINT, "area")
    data = {"periods_after": horizon.astype(int), "right": accuracy, "nodes": count.astype(int)}
    title = "Accuracy by periods since the last known label"
    with drawn("by_horizon", title, caption, keys, data=data) as figure:
        ax = figure.ax
        _accuracy_band(ax, horizon, accuracy, count)
        ax.plot(horizon, accuracy, color=PALETTE[0], **line(len(horizon)))
        over_time(ax, "share that was right", "periods after the last known label")
        in_percent(ax)
    return figure


def histogram(counts: Sequence[int]) -> Figure:
    """Predictions by probability, in equal bins from 0 to 1."""
    caption = "Predictions by the probability of the predicted label."
    width = 1 / len(counts)
    data = {"from": np.arange(len(counts)) * width, "nodes": counts}
    with drawn("confidence", "How sure the predictions are", caption, data=data) as figure:
        ax = figure.ax
        ax.bar((np.arange(len(counts)) + 0.5) * width, counts, width * 0.92, color=PALETTE[0])
        from_zero(ax)
        ax.set(xlim=(0, 1), xlabel="probability of the predicted label", ylabel="nodes")
        ax.grid(axis="x", visible=False)
    return figure
