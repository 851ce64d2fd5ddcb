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
    HEAT,
    INK,
    PALETTE,
    PAPER,
    Called,
    Key,
    from_zero,
    in_percent,
    over_time,
    ramp,
)

MAX_DOTS = 900  # nodes in the map of the features; more would hide each other
MAX_PERIODS = 200  # periods of the stacked plots, the last ones
MAX_TICKS = 8
MAX_CLASSES = 11  # rows of the confusion matrix
MAX_LETTERS = 16  # of their names
MAX_MARKERS = 25  # points of a curve that has markers
DARK_CELL = 0.65  # share from which on a cell of the confusion matrix has light text
SCALE_STEPS = 20  # colours of its scale
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
                text.set_text(key.name)
            assert isinstance(canvas, Canvas)
            rows = math.ceil(len(handles) / 3)
            canvas.set_size_inches(canvas.get_figwidth(), canvas.get_figheight() + 0.25 * rows)
        return self.ax


def _handle(key: Key) -> Patch | Line2D:
    """A legend entry as matplotlib draws it."""
    if key.mark == "area":
        return Patch(color=key.colour, alpha=0.85)
    if key.mark == "dot":
        return Line2D([], [], color=key.colour, linestyle="", marker="o")
    return Line2D([], [], color=key.colour, linestyle="--" if key.mark == "dash" else "-")


@contextlib.contextmanager
def new_figure(
    name: str,
    title: str,
    caption: str,
    keys: Sequence[Key] = (),
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
    column = [called(time) for time in x] if called else x
    data = {xlabel: column} | {curve.name: array(curve.values) for curve in curves}
    if band is not None:
        keys.append(Key(band.name, FAINT, "area"))
        data[band.name] = array(band.high)
    with new_figure(name, title, caption, keys, data=data) as figure:
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
    data = {"candidate": names, "difference": value, "low": low, "high": high}
    width = max(360, 230 + 5.2 * max(map(len, names)))  # with room for the names
    height = 50 + 19 * len(names)
    with new_figure(name, title, caption, keys, data=data, width=width, height=height) as figure:
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
    data = {
        "period": graph.names,
        "nodes": graph.nodes_per_time,
        "labelled": graph.labelled_per_time,
    }
    title = "Nodes and known labels by period"
    with new_figure("periods", title, caption, keys, data=data) as figure:
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
    """Class proportions by period, and the distance of each period from the past."""
    mix = array(check.mix)[-MAX_PERIODS:]  # [periods, classes]
    layers = [(mix[:, label], colour, 0.85) for label, colour in labels.coloured]
    keys = [Key(labels.name(label), colour, "area") for label, colour in labels.coloured]
    rest = labels.order[len(PALETTE) :]
    if rest:
        name = labels.name(rest[0]) if len(rest) == 1 else f"{len(rest)} other classes"
        layers.append((mix[:, rest].sum(1), FAINT, 0.85))
        keys.append(Key(name, FAINT, "area"))
    names = [called(time) for time in check.times[-MAX_PERIODS:]]
    data: dict[str, Any] = {"period": names}
    data |= {f"share of {name}": mix[:, label] for label, name in enumerate(labels.names)}
    title = "Class proportions by period"
    caption = "Class proportions of every labelled period."
    with new_figure("label-mix", title, caption, keys, data=data) as figure:
        ax = figure.ax
        _columns(ax, names, layers)
        in_percent(ax)
        ax.set(ylim=(0, 1), ylabel="share of labels")
        ax.grid(visible=False)
    if not check.to_past:
        return [figure]
    change = line_chart(
        "label-mix-change",
        "Change of the class proportions by period, and the noise level",
        "Distance between the class proportions of a period and those of all earlier periods.",
        check.times[1:],
        [Curve("change", check.to_past, PALETTE[0])],
        ylabel="change",
        called=called,
        band=Band("sampling noise", 0, check.noise),
        is_share=True,
    )
    return [figure, change]


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
    """The fitted g by distance, and connections to the past against those to the future."""
    if not check.g:
        return []
    offsets, (same, different) = by_offset(
        array(check.steps), array(check.same_label), array(check.different_label)
    )
    fitted = _by_distance(
        "connections-fitted",
        check.distances,
        check.g,
        colours=PALETTE,
        ylabel="g, fitted",
        caption="Share of a node's neighbourhood at each distance in time.",
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
    return [fitted, sides]


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
    return [
        _by_distance(
            "decay",
            check.distances,
            scaled,
            colours=(INK, *PALETTE),
            ylabel="share",
            caption=caption,
        )
    ]


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
    return line_chart(
        name,
        "Connections by distance in time",
        caption,
        distances,
        [
            Curve(curve, values, colours[k], DASHES[k % len(DASHES)])
            for k, (curve, values) in enumerate(curves.items())
        ],
        ylabel=ylabel,
        xlabel="distance in time",
    )


def by_offset(steps: np.ndarray, *tables: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Average tables [own, neighbour] by signed distance, each scaled to a maximum of 1."""
    offset, index = np.unique(steps[None, :] - steps[:, None], return_inverse=True)
    index = index.ravel()
    means = [np.bincount(index, table.ravel()) / np.bincount(index) for table in tables]
    return offset, [mean / max(float(mean.max()), 1e-300) for mean in means]


def pair_curves(check: Separability, labels: Labels, called: Called) -> list[Figure]:
    """The paper's figure for the strongest pairs of classes: a curve per own time."""
    title = "Distance in time of the neighbours of a class"
    panels = []
    for number_of_pair, curve in enumerate(check.curves):
        # Distance in time and share of the neighbours, both [own times, neighbour times].
        step = array(curve.neighbour_times)[None, :] - array(curve.own_times)[:, None]
        share = array(curve.share)
        pair = f"{labels.name(curve.label)} ← {labels.name(curve.neighbour)}"
        caption = f"{pair} ({whole(curve.edges)} edges)"
        own = [called(time) for time in curve.own_times]
        keys = Key(own[0], ramp(0)), Key(own[-1], ramp(1))
        data = {"neighbour": [called(time) for time in curve.neighbour_times]}
        data |= {f"own {name}": row for name, row in zip(own, share, strict=True)}
        with new_figure(
            f"pair-{number_of_pair}", title, caption, keys, data=data, width=172, height=150
        ) as figure:
            ax = figure.ax
            for row, position in enumerate(np.linspace(0, 1, len(step))):
                ax.plot(step[row], share[row], color=ramp(position), linewidth=1.3)
            connected = step[share > 0]
            if len(connected):
                ax.set_xlim(connected.min() - 0.6, connected.max() + 0.6)
            over_time(ax, "", "neighbour's time − own", across=4, up=4)
            in_percent(ax)
        panels.append(figure)
    return panels


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
        data: dict[str, Any] = {"period": [called(time) for time in times]}
        data |= {"plain": plain.sliced, name: corrected.sliced, "noise": measured.noise}
        with new_figure(
            f"shift-{name}", title, caption, data=data, width=172, height=140
        ) as figure:
            ax = figure.ax
            Band("sampling noise", 0, measured.noise).draw(ax, times)
            ax.plot(times, plain.sliced, color=INK, linewidth=1.2, dashes=DASHES[1], **marker)
            ax.plot(times, corrected.sliced, color=PALETTE[0], linewidth=1.8, **marker)
            over_time(ax, across=4, up=4, top=top, called=called, xlabel="")
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
    keys = [Key(labels.name(k), colour, "dot") for k, colour in colours.items()]
    if is_other.any():
        keys.append(Key("other or unknown class", FAINT, "dot"))
    method = "The first two principal components of the features."
    axis_names = [
        f"component {k}, {percent(share, 0)} of the variance"
        for k, share in enumerate(picture.explained, 1)
    ]
    if picture.projection == "tsne":
        axis_names = ["t-SNE 1", "t-SNE 2"]
        method = "t-SNE preserves neighbourhoods, not distances."
    caption = (
        f"{method} Dots are nodes. Lines follow the mean of a class from its first period (ring) "
        "to its last (disc)."
    )
    names = [labels.names[k] if k >= 0 else None for k in label]
    data = {"x": places[:, 0], "y": places[:, 1], "class": names}
    title = "Map of the features"
    with new_figure("feature-map", title, caption, keys, data=data, height=300) as figure:
        ax = figure.ax
        _dots(ax, places[is_other], FAINT)
        for k, colour in colours.items():
            _dots(ax, places[label == k], colour)
        centres = array(picture.means.place)
        centre_label = np.array(picture.means.label)
        in_time = np.argsort(picture.means.time, kind="stable")
        for k, colour in colours.items():
            x, y = centres[in_time[centre_label[in_time] == k]].T
            ax.plot(x, y, color=colour, linewidth=1.3)
            ax.scatter(x[:1], y[:1], s=30, facecolor="none", edgecolor=colour, linewidth=1.5)
            ax.scatter(x[-1:], y[-1:], s=36, color=colour, edgecolor=INK, linewidth=0.7)
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
    style: Any = {"facecolor": "none", "linewidth": 3, "capstyle": "round", "alpha": 0.6}
    ax.add_patch(PathPatch(path, edgecolor=colour, **style))


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
    data = {"probability": confidence, "accuracy": accuracy, "share": share}
    title = "Accuracy of the predictions by their probability"
    with new_figure(name, title, caption, keys, data=data) as figure:
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
    data: dict[str, Any] = {"true_class": names}
    data |= {f"as {column}": counts[:, k].astype(int) for k, column in enumerate(names)}
    side = 90 + 30 * size
    with new_figure(
        name, "Confusion matrix", caption, data=data, width=side + 130, height=side
    ) as figure:
        ax = figure.ax
        for row, column in np.argwhere(share > 0):
            _cell(ax, column, row, float(share[row, column]))
        _colour_scale(ax, size)
        ticks = [
            name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…" for name in names
        ]
        ax.set_xlim(-0.5, size + 1.1)
        ax.set_xlabel("predicted class", loc="left")
        ax.set(ylim=(size - 0.5, -0.5), ylabel="true class")
        ax.set_yticks(range(size), ticks)
        ax.set_xticks(range(size), ticks, rotation=90)
        ax.grid(visible=False)
        ax.spines["bottom"].set_bounds(-0.5, size - 0.5)
    return figure


def _cell(ax: Axes, column: int, row: int, share: float) -> None:
    """A cell of the confusion matrix: the larger its share, the darker; light text on dark."""
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=HEAT, alpha=share, linewidth=0))
    if share >= 0.005:
        colour = PAPER if share >= DARK_CELL else INK
        text: Any = {"ha": "center", "va": "center", "fontsize": 9.5, "color": colour}
        ax.text(column, row, f"{100 * share:.0f}", **text)


def _colour_scale(ax: Axes, size: int) -> None:
    """The colours of 0 to 100 % in a column right of the matrix."""
    height = size / SCALE_STEPS
    for step in range(SCALE_STEPS):
        bottom = size - 0.5 - step * height
        alpha = (step + 0.5) / SCALE_STEPS
        patch = Rectangle((size - 0.1, bottom), 0.25, -height, color=HEAT, alpha=alpha, linewidth=0)
        ax.add_patch(patch)
    for position, text in ((size - 0.5, "0%"), (-0.5, "100%")):
        align = "bottom" if position > 0 else "top"
        ax.text(size + 0.25, position, text, ha="left", va=align, fontsize=9.5, color=INK)


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
    data = {
        "period": [summary.graph.name(time) for time in times],
        "accuracy": accuracy,
        "baseline": plain,
        "nodes": count.astype(int),
    }
    forecast = summary.prediction_summary.accuracy
    caption = "Accuracy by period. Predictions before the cutoff (dotted line) are out of fold."
    if forecast is not None:
        keys.append(Key("expected, 90% interval", PALETTE[1]))
    title = "Accuracy by period"
    with new_figure(name, title, caption, keys, data=data, width=380, height=224) as figure:
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
    data: dict[str, list[Any]] = {"what": [], "period": [], "value": []}
    for panel in panels:
        data["what"] += [panel.name.replace("\n", " ")] * len(panel.times)
        data["period"] += [called(time) for time in panel.times]
        data["value"] += panel.values
    with new_figure("change", title, caption, data=data, height=40 + 85 * len(panels)) as figure:
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
    data = {"from": low, "nodes": counts}
    title = "Histogram of the probabilities"
    with new_figure("confidence", title, caption, data=data) as figure:
        ax = figure.ax
        ax.bar(low + width / 2, counts, width * 0.92, color=PALETTE[0])
        from_zero(ax)
        ax.set(xlim=(0, 1), xlabel="probability of the predicted class", ylabel="nodes")
        ax.grid(axis="x", visible=False)
    return figure
