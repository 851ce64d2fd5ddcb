"""From the parts of a summary to figures: drawing, caption, key and the numbers behind each."""

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
from impact_gnn.graph import Summary
from impact_gnn.metrics import Metric
from impact_gnn.pipeline.calibration import BINS
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

# Nodes in the map (more would only hide each other), periods (the last ones) and ticks of the
# stacked plots.
MOST_DOTS, MOST_PERIODS, MOST_TICKS = 900, 200, 8
MOST_CELLS, MOST_LETTERS = 11, 16  # labels of the confusion matrix, and letters of their names
# lines that run close together differ in their dashes too
DASHES = (
    (),
    (5, 2),
    (1.5, 1.5),
    (6, 1.5, 1.5, 1.5),
)


@dataclass
class Figure:
    """A drawing with its caption and key."""

    name: str  # of its files
    caption: str
    keys: Sequence[dict[str, str]]
    ax: Axes
    data: dict[str, Any]  # what is drawn: columns of one length
    file: str = ""  # an SVG that stands by itself
    svg: Markup = field(default_factory=Markup)  # for the page, which writes the key below it

    def alone(self) -> Axes:
        """The axes with their key, for those who see nothing of the page."""
        shown = [_handle(one) for one in self.keys]
        canvas = self.ax.figure
        if shown and not canvas.legends:
            where: Any = {
                "loc": "outside lower center",
                "ncols": min(3, len(shown)),
                "frameon": False,
            }
            with mpl.rc_context(svg.STYLE):  # in which $ is a letter
                texts = canvas.legend(shown, [" "] * len(shown), **where).get_texts()
            # matplotlib itself leaves out names that begin with _
            for text, one in zip(texts, self.keys, strict=True):
                text.set_text(one["name"])
            assert isinstance(canvas, Canvas)
            rows = math.ceil(len(shown) / 3)
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
) -> Iterator[tuple[Figure, Axes]]:
    """A figure, and axes to draw on: what they show when the block ends is its drawing."""
    with svg.axes(width, height) as ax:
        figure = Figure(
            re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"), caption, keys, ax, data
        )
        yield figure, ax
        figure.file, figure.svg = svg.drawn(figure.ax, title, keys)


@dataclass(frozen=True)
class Labels:
    """Names of the labels, and their order from the one with the most known nodes on, which colours follow."""

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
    """Floats, NaN where nothing is known."""
    return np.array(values, dtype=np.float64)


def key(name: str, colour: str, mark: str = "line") -> dict[str, str]:
    """One entry below a figure; `mark` is "line", "dash", "area" or "dot"."""
    return {
        "name": name,
        "colour": svg.VARIABLES.get(colour, colour),
        "mark": mark,
        "plain": colour,
    }


def _handle(key: dict[str, str]) -> Patch | Line2D:
    """An entry of the key as matplotlib draws it."""
    colour, mark = key["plain"], key["mark"]
    if mark == "area":
        return Patch(color=colour, alpha=0.85)
    lines: Any = {
        "linestyle": {"dash": "--", "dot": ""}.get(mark, "-"),
        "marker": "o" if mark == "dot" else "",
    }
    return Line2D([], [], color=colour, **lines)


def forest(
    rows: Sequence[CandidateResult], metric: Metric, name: str = "comparison"
) -> Figure | None:
    """Differences to plain with intervals, of every candidate that has one, the first on top."""
    known = [(row, row.difference) for row in rows if row.difference is not None]
    if not known:
        return None
    low, value, high = (
        100 * array(part)
        for part in zip(*((d.low, d.value, d.high) for _, d in known), strict=True)
    )
    bold = [row.weight > 0 for row, _ in known]
    # A hopeless candidate must not press the others together; its interval leaves the picture.
    reach = 3 * max(1.0, float(np.sort(np.abs(value))[(len(value) - 1) // 2]), float(value.max()))
    left, right = max(min(float(low.min()), 0), -reach), min(max(float(high.max()), 0), reach)
    margin = 0.05 * max(right - left, 1e-9)
    title = "Difference to plain with its interval, a row per candidate"
    caption = "Disc: difference over all back-tested windows; bar: its 95% interval; ticks: single windows."
    caption += " What is in the choice is bold." if any(bold) else ""
    keys = (
        key("better than plain", PALETTE[0]),
        key("cannot be told apart", FAINT),
        key("worse", PALETTE[1]),
    )
    # the names stand beside the picture
    width = 230 + 5.2 * max(len(str(row.candidate)) for row, _ in known)
    data = {
        "candidate": [str(row.candidate) for row, _ in known],
        "difference": value,
        "low": low,
        "high": high,
    }
    with drawn(
        name, title, caption, keys, data=data, width=max(360, width), height=50 + 19 * len(known)
    ) as (
        figure,
        ax,
    ):
        ax.axvline(0, color=INK, linewidth=1)
        for place, (row, _) in enumerate(known):
            colour = PALETTE[0] if low[place] > 0 else PALETTE[1] if high[place] < 0 else FAINT
            ax.plot([low[place], high[place]], [place, place], color=colour, linewidth=2.2)
            ticks = 100 * array(list(row.by_fold.values()))
            ax.plot(ticks, [place] * len(ticks), "|", color=colour, markersize=8, markeredgewidth=1)
            mark = "o" if left <= value[place] <= right else "<"
            ax.plot(np.clip(value[place], left, right), place, mark, color=colour, markersize=6)
        ax.set(xlim=(left - margin, right + margin), ylim=(len(known) - 0.4, -0.6))
        ax.set_yticks(range(len(known)), [str(row.candidate) for row, _ in known])
        for text, heavy in zip(ax.get_yticklabels(), bold, strict=True):
            text.set_fontweight("bold" if heavy else "normal")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
        ax.spines["left"].set_visible(False)
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.set_xlabel(f"{metric.unit} better than plain")
    return figure


def periods(graph: Summary, cutoff: int) -> Figure:
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
    with drawn("periods", "Nodes and known labels by period", caption, keys, data=data) as (
        figure,
        ax,
    ):
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
    """A column for every period side by side; what is stacked comes with colour and strength."""
    bottom = np.zeros(len(names) + 1)
    for height, colour, alpha in stacked:
        top = bottom + np.append(height, height[-1])
        ax.fill_between(
            np.arange(len(top)), bottom, top, step="post", color=colour, alpha=alpha, linewidth=0
        )
        bottom = top
    most = MOST_TICKS if max(map(len, names)) <= 5 else MOST_TICKS // 2
    shown = np.arange(0, len(names), -(-len(names) // most))
    ax.set_xticks(shown + 0.5, [svg.short(names[int(k)]) for k in shown])
    ax.set(xlim=(0, len(names)), xlabel="period")


def label_mix(finding: LabelMix, labels: Labels, called: Called) -> list[Figure]:
    """The mix of labels by period, and how far each period's is from the past."""
    rest, mix = labels.order[len(PALETTE) :], array(finding.mix)[-MOST_PERIODS:]
    shares = [(mix[:, one], colour, 0.85) for one, colour in labels.coloured]
    keys = [key(labels.name(one), colour, "area") for one, colour in labels.coloured]
    if rest:
        shares.append((mix[:, rest].sum(1), FAINT, 0.85))
        keys.append(
            key(
                labels.name(rest[0]) if len(rest) == 1 else f"{len(rest)} other labels",
                FAINT,
                "area",
            )
        )
    title, caption = "Share of every label by period", "Known labels of every period that has some."
    shown = [called(time) for time in finding.times[-MOST_PERIODS:]]
    data = {"period": shown} | {
        f"share of {name}": mix[:, one] for one, name in enumerate(labels.names)
    }
    with drawn("label-mix", title, caption, keys, data=data) as (figure, ax):
        _columns(ax, shown, shares)
        in_percent(ax)
        ax.set(ylim=(0, 1), ylabel="share of known labels")
        ax.grid(visible=False)
    out = [figure]
    if finding.to_past:
        title = "Change of the label mix by period, beside what chance gives"
        caption = "Share of labels that differ between a period and all before it."
        change = key("measured", PALETTE[0]), key("what chance alone gives", FAINT, "area")
        later = [called(time) for time in finding.times[1:]]
        data = {"period": later, "changed": array(finding.to_past), "chance": array(finding.noise)}
        with drawn("label-mix-change", title, caption, change, data=data) as (figure, ax):
            ax.fill_between(finding.times[1:], finding.noise, color=FAINT, alpha=0.25, linewidth=0)
            ax.plot(
                finding.times[1:], finding.to_past, color=PALETTE[0], **line(len(finding.to_past))
            )
            over_time(ax, "labels that changed", called=called)
            in_percent(ax)
        out.append(figure)
    return out


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
    with drawn("feature-drift", "Drift of the features by period", caption, keys, data=data) as (
        figure,
        ax,
    ):
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
    tables = array(finding.same_label), array(finding.different_label)
    offsets, (same, different) = by_offset(array(finding.steps), *tables)
    sides = key("same label", PALETTE[0]), key("different labels", PALETTE[1], "dash")
    averaged = "Edges by the neighbour's distance in time, averaged over pairs of periods."
    data = {"distance": offsets, "same_label": same, "different_labels": different}
    title = "Connections to the past and to the future"
    with drawn("connections", title, averaged, sides, data=data) as (figure, ax):
        ax.axvline(0, color=FAINT, linewidth=1, linestyle=":")
        ax.plot(offsets, same, color=PALETTE[0], **line(len(offsets)))
        ax.plot(offsets, different, color=PALETTE[1], dashes=DASHES[1])
        over_time(ax, "relative to the strongest", "past  ←  neighbour's time − own  →  future")
    return [
        _by_distance(
            "connections-fitted", finding.distances, finding.g, PALETTE, "g, fitted", caption
        ),
        figure,
    ]


def decay(finding: Decay, connections: Separability) -> list[Figure]:
    """One decay for all beside the decay of every group of neighbours."""
    if not finding.h:
        return []
    curves = {"one decay for all": finding.h, **connections.g}
    scaled = {
        name: list(array(values) / sum(values))
        for name, values in curves.items()
        if sum(values) > 0
    }
    caption = "How connections fade with the distance in time, each curve scaled to sum 1."
    return [_by_distance("decay", finding.distances, scaled, (INK, *PALETTE), "share", caption)]


def _by_distance(
    name: str,
    distances: list[int],
    curves: dict[str, list[float]],
    colours: Sequence[str],
    what: str,
    caption: str,
) -> Figure:
    """Curves over the distance in time; the first is drawn solid."""
    keys = [
        key(name, colours[place], "dash" if place else "line") for place, name in enumerate(curves)
    ]
    with drawn(
        name,
        "Connections by distance in time",
        caption,
        keys,
        data={"distance": distances} | curves,
    ) as (
        figure,
        ax,
    ):
        for place, values in enumerate(curves.values()):
            marks = {} if place else line(len(distances))
            ax.plot(
                distances, values, color=colours[place], dashes=DASHES[place % len(DASHES)], **marks
            )
        over_time(ax, what, "distance in time")
    return figure


def by_offset(steps: np.ndarray, *tables: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Tables [own, neighbour] averaged over pairs of equal signed distance, each scaled to a largest value of 1."""
    offset, place = np.unique(steps[None, :] - steps[:, None], return_inverse=True)
    means = [
        np.bincount(place.ravel(), table.ravel()) / np.bincount(place.ravel()) for table in tables
    ]
    return offset, [mean / max(float(mean.max()), 1e-300) for mean in means]


def pair_curves(finding: Separability, labels: Labels, called: Called) -> list[Figure]:
    """The paper's figure for the strongest pairs of labels: a curve per own time, early blue, late orange."""
    out = []
    for place, curve in enumerate(finding.curves):
        step = array(curve.neighbour_times)[None, :] - array(curve.own_times)[:, None]
        share = array(curve.share)
        pair = f"{labels.name(curve.label)} ← {labels.name(curve.neighbour)}"
        span = key(called(curve.own_times[0]), ramp(0)), key(called(curve.own_times[-1]), ramp(1))
        title, caption = (
            "Where the neighbours of a label are in time",
            f"{pair} ({whole(curve.edges)} edges)",
        )
        data = {"neighbour": [called(time) for time in curve.neighbour_times]}
        data |= {f"own {called(time)}": share[row] for row, time in enumerate(curve.own_times)}
        with drawn(f"pair-{place}", title, caption, span, data=data, width=172, height=150) as (
            figure,
            ax,
        ):
            for row in range(len(step)):
                ax.plot(
                    step[row], share[row], color=ramp(row / max(len(step) - 1, 1)), linewidth=1.3
                )
            met = step[share > 0]
            if len(met):
                ax.set_xlim(met.min() - 0.6, met.max() + 0.6)
            over_time(ax, "", "neighbour's time − own", across=4, up=4)
            in_percent(ax)
        out.append(figure)
    return out


def shift(measured: MessageShift, called: Called) -> list[Figure]:
    """A panel per correction: shift by period, plain faint, corrected in colour, above what sampling alone gives."""
    times, plain = measured.times, measured.methods["plain"]
    top = 1.08 * max(
        max(values)
        for values in (measured.noise, *(one.sliced for one in measured.methods.values()))
    )
    mark = "o" if len(times) == 1 else ""
    out = []
    for name, one in measured.methods.items():
        if one is plain:
            continue
        caption = f"{name}: {number(plain.overall)} → {number(one.overall)}"
        if plain.overall > 0:
            change = one.overall / plain.overall - 1
            caption += f" ({'−' if change < 0 else '+'}{percent(abs(change), 0)})"
        title = "Shift of messages by period, before and after a correction"
        data = {"period": [called(time) for time in times], "plain": plain.sliced, name: one.sliced}
        data["noise"] = measured.noise
        with drawn(f"shift-{name}", title, caption, data=data, width=172, height=140) as (
            figure,
            ax,
        ):
            ax.fill_between(times, measured.noise, color=FAINT, alpha=0.25, linewidth=0)
            ax.plot(
                times,
                plain.sliced,
                color=INK,
                linewidth=1.2,
                dashes=DASHES[1],
                marker=mark,
                markersize=4,
            )
            ax.plot(times, one.sliced, color=PALETTE[0], linewidth=1.8, marker=mark, markersize=4)
            over_time(ax, "", "", across=4, up=4, top=top, called=called)
        out.append(figure)
    return out


def feature_map(picture: FeatureMap, labels: Labels) -> Figure:
    """Nodes as dots, and the path of every class's mean from its first period (ring) to its last (disc)."""
    places, label = array(picture.nodes.place), np.array(picture.nodes.label)
    kept = np.unique(np.linspace(0, len(places) - 1, min(len(places), MOST_DOTS)).astype(int))
    places, label = places[kept], label[kept]
    colour = {one: shade for one, shade in labels.coloured if (label == one).any()}
    keys = [key(labels.name(one), shade, "dot") for one, shade in colour.items()]
    rest = ~np.isin(label, list(colour))
    if rest.any():
        keys.append(key("label unknown or another", FAINT, "dot"))
    centres, whose, when = (
        array(picture.means.place),
        np.array(picture.means.label),
        np.array(picture.means.time),
    )
    # Without the few that lie far out the others are seen better.
    low, high = np.quantile(np.concatenate([places, centres]), [0.005, 0.995], axis=0)
    margin = np.maximum(0.06 * (high - low), 1e-9)
    shares = [f", {percent(share, 0)} of the variance" for share in picture.explained]
    axes = [f"direction {k}{share}" for k, share in enumerate(shares, 1)]
    how = "The two main directions of the features (PCA)."
    if picture.projection == "tsne":
        axes, how = ["t-SNE 1", "t-SNE 2"], "t-SNE keeps neighbourhoods, not distances."
    caption = f"{how} Dots are nodes; lines follow the mean of a class from its first period (ring) to its last (disc)."
    data: dict[str, Any] = {"x": places[:, 0], "y": places[:, 1]}
    data["label"] = [labels.names[one] if one >= 0 else None for one in label]
    with drawn("feature-map", "Map of the features", caption, keys, data=data, height=300) as (
        figure,
        ax,
    ):
        for shown, shade in [
            (rest, FAINT),
            *((label == one, shade) for one, shade in colour.items()),
        ]:
            # Dots as one path of lines without length and with round ends: a tenth of the bytes of
            # markers.
            codes = np.tile([Outline.MOVETO, Outline.LINETO], int(shown.sum()))
            dots = Outline(np.repeat(places[shown], 2, axis=0), codes)
            ax.add_patch(
                PathPatch(
                    dots,
                    facecolor="none",
                    edgecolor=shade,
                    linewidth=3,
                    capstyle="round",
                    alpha=0.6,
                )
            )
        for one, shade in colour.items():
            path = centres[whose == one][np.argsort(when[whose == one], kind="stable")]
            ax.plot(*path.T, color=shade, linewidth=1.3)
            ax.plot(
                *path[:1].T,
                "o",
                color=shade,
                markersize=5.5,
                markerfacecolor="none",
                markeredgewidth=1.5,
            )
            ax.plot(
                *path[-1:].T,
                "o",
                color=shade,
                markersize=6,
                markeredgecolor=INK,
                markeredgewidth=0.7,
            )
        xlim, ylim = zip(low - margin, high + margin, strict=True)
        ax.set(
            xlabel=axes[0], ylabel="".join(axes[1:2]), xticks=[], yticks=[], xlim=xlim, ylim=ylim
        )
        ax.grid(visible=False)
    return figure


def reliability(
    checks: Sequence[FoldCheck | Evaluation], name: str = "reliability"
) -> Figure | None:
    """How many predictions were right, by the probability they had: bins of all past windows together."""
    found = [
        (one.count * each.share, each.confidence, each.accuracy)
        for one in checks
        for each in one.bins
    ]
    if not found:
        return None
    weight, said, right = array(found).T
    place = np.minimum((said * BINS).astype(int), BINS - 1)
    kept, total = np.unique(place), np.bincount(place, weight)
    said, right = (
        np.bincount(place, weight * values)[kept] / total[kept] for values in (said, right)
    )
    caption = "Calibrated predictions by their probability; a larger disc stands for more of them. "
    caption += "Below the dashed line the model was surer than it should have been."
    keys = key("predictions", PALETTE[0], "dot"), key("probability and truth agree", FAINT, "dash")
    data = {"probability": said, "right": right, "share": total[kept] / total.sum()}
    title = "How many predictions were right, by their probability"
    with drawn(name, title, caption, keys, data=data) as (figure, ax):
        ax.plot([0, 1], [0, 1], color=FAINT, dashes=DASHES[1], linewidth=1.2)
        ax.plot(said, right, color=PALETTE[0], linewidth=1)
        for across, up, share in zip(said, right, total[kept] / total.sum(), strict=True):
            ax.plot(
                across,
                up,
                "o",
                color=PALETTE[0],
                markersize=3 + 14 * share**0.5,
                markeredgewidth=0,
                alpha=0.8,
            )
        ax.set(
            xlim=(0, 1),
            ylim=(0, 1),
            xlabel="probability of the predicted label",
            ylabel="share that was right",
        )
    return figure


def confusion(
    checks: Sequence[FoldCheck | Evaluation], labels: Labels, name: str = "confusion"
) -> Figure | None:
    """What every label was taken for in the past windows, as shares of its nodes; rare labels are put together."""
    met = array([pair for one in checks for pair in one.confusion])
    if not len(met):
        return None
    shown = labels.order[:MOST_CELLS] if len(labels.order) > MOST_CELLS + 1 else labels.order
    place = np.full(len(labels.names), len(shown))
    place[shown] = np.arange(len(shown))
    size = len(shown) + bool((place == len(shown)).any())
    counts = np.zeros((size, size))
    np.add.at(counts, (place[met[:, 0].astype(int)], place[met[:, 1].astype(int)]), met[:, 2])
    names = [labels.name(one) for one in shown] + ["others"] * (size - len(shown))
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    caption = "Rows: true labels; columns: what was predicted, as a share of the row. The diagonal is what was right."
    data = {"true_label": names} | {
        f"as {name}": counts[:, k].astype(int) for k, name in enumerate(names)
    }
    side = 70 + 26 * size
    with drawn(
        name, "What labels were taken for", caption, data=data, width=side + 110, height=side
    ) as (
        figure,
        ax,
    ):
        for row, column in np.argwhere(share > 0):
            strength, right = float(share[row, column]), row == column
            box = Rectangle(
                (column - 0.5, row - 0.5),
                1,
                1,
                color=PALETTE[0 if right else 1],
                alpha=strength,
                linewidth=0,
            )
            ax.add_patch(box)
            if strength >= 0.005:
                ax.text(
                    column,
                    row,
                    f"{100 * strength:.0f}",
                    ha="center",
                    va="center",
                    fontsize=9.5,
                    color=INK,
                )
        ticks = [
            name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…" for name in names
        ]
        ax.set(
            xlim=(-0.5, size - 0.5),
            ylim=(size - 0.5, -0.5),
            xlabel="predicted, % of the row",
            ylabel="true",
        )
        ax.set_yticks(range(size), ticks)
        ax.set_xticks(range(size), ticks, rotation=90)
        ax.grid(visible=False)
    return figure


def by_period(
    checks: Sequence[FoldCheck | Evaluation], called: Called, name: str = "by-period"
) -> Figure | None:
    """How many were right in every period that past windows reach, by the choice and by plain."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for one in (each for check in checks for each in check.periods):
        found.setdefault(one.time, []).append((one.count, one.accuracy, one.plain))
    if len(found) < 2:
        return None
    times = sorted(found)
    each = [np.average(array(found[t]), 0, weights=[n for n, *_ in found[t]]) for t in times]
    count, right, plain = np.array(each).T
    chance = 1.96 * np.sqrt(right * (1 - right) / count)
    caption = (
        "Labelled nodes, predicted before their labels were known; newer periods are to the right."
    )
    both = [] if np.isnan(plain).all() else [key("plain", INK, "dash")]
    keys = [key("choice", PALETTE[0]), *both, key("what chance allows", FAINT, "area")]
    data = {
        "period": [called(time) for time in times],
        "right": right,
        "plain": plain,
        "nodes": count.astype(int),
    }
    with drawn(name, "Share that was right by period", caption, keys, data=data) as (figure, ax):
        ax.fill_between(
            times,
            right - chance,
            np.minimum(right + chance, 1),
            color=FAINT,
            alpha=0.25,
            linewidth=0,
        )
        ax.plot(times, plain, color=INK, dashes=DASHES[1], linewidth=1.2)
        ax.plot(times, right, color=PALETTE[0], **line(len(times)))
        over_time(ax, "share that was right", called=called, top=1)
        in_percent(ax)
    return figure


def change(diagnosis: Diagnosis, called: Called) -> Figure | None:
    """What changed over time in one picture: the label mix, the features, whom nodes connect to."""
    mix, drift, met = diagnosis.label_mix, diagnosis.feature_drift, diagnosis.separability
    rows: list[tuple[str, list[int], Any, bool]] = [
        ("labels\nthat changed", mix.times[1:], mix.to_past, True),
        ("features: drift\n/ class distance", drift.all_times, drift.all_drift, False),
        ("neighbours of\nsame label", met.steps, met.alike, True),
    ]
    rows = [row for row in rows if min(len(row[1]), len(row[2])) > 1]
    if not rows:
        return None
    title = "What changed over time: label mix, features, connections"
    caption = "From above: share of labels that differ from all earlier periods (grey: by chance); distance of features "
    caption += "from the labelled ones; share of neighbours with the same label. The dotted line is the cutoff."
    ends = min(row[1][0] for row in rows), max(max(row[1][-1] for row in rows), diagnosis.cutoff)
    every = [
        (what.replace("\n", " "), t, v)
        for what, times, values, _ in rows
        for t, v in zip(times, values, strict=True)
    ]
    data = {
        "what": [one[0] for one in every],
        "period": [called(one[1]) for one in every],
        "value": [one[2] for one in every],
    }
    with drawn("change", title, caption, data=data, height=40 + 85 * len(rows)) as (figure, ax):
        canvas = ax.figure
        ax.remove()
        panels = np.atleast_1d(canvas.subplots(len(rows), 1))
        figure.ax = panels[0]
        for panel, (what, times, values, shares), colour in zip(
            panels, rows, PALETTE, strict=False
        ):
            if values is mix.to_past:
                panel.fill_between(times, mix.noise, color=FAINT, alpha=0.25, linewidth=0)
            panel.plot(times, array(values), color=colour, **line(len(times)))
            panel.axvline(diagnosis.cutoff, color=FAINT, linewidth=1, linestyle=":")
            panel.set_xlim(ends[0] - 0.5, ends[1] + 0.5)
            over_time(panel, what, "period" if panel is panels[-1] else "", up=3, called=called)
            panel.tick_params(labelbottom=panel is panels[-1])
            if shares:
                in_percent(panel)
    return figure


def by_horizon(lags: Sequence[HorizonScore], told: str = "") -> Figure | None:
    """Accuracy by the number of periods since the last known label."""
    if len(lags) < 2:
        return None
    lag, right, count = array([(one.horizon, one.accuracy, one.count) for one in lags]).T
    chance = 1.96 * np.sqrt(right * (1 - right) / count)
    keys = key("measured", PALETTE[0]), key("what chance allows", FAINT, "area")
    data = {"periods_after": lag.astype(int), "right": right, "nodes": count.astype(int)}
    with drawn(
        "by_horizon", "Accuracy by periods since the last known label", told, keys, data=data
    ) as (figure, ax):
        ax.fill_between(
            lag, right - chance, np.minimum(right + chance, 1), color=FAINT, alpha=0.25, linewidth=0
        )
        ax.plot(lag, right, color=PALETTE[0], **line(len(lag)))
        over_time(ax, "share that was right", "periods after the last known label")
        in_percent(ax)
    return figure


def histogram(counts: Sequence[int]) -> Figure:
    """Predictions by probability, in equal bins from 0 to 1."""
    caption = "Predictions by the probability of the predicted label."
    width = 1 / len(counts)
    data = {"from": np.arange(len(counts)) * width, "nodes": counts}
    with drawn("confidence", "How sure the predictions are", caption, data=data) as (figure, ax):
        ax.bar((np.arange(len(counts)) + 0.5) * width, counts, width * 0.92, color=PALETTE[0])
        from_zero(ax)
        ax.set(xlim=(0, 1), xlabel="probability of the predicted label", ylabel="nodes")
        ax.grid(axis="x", visible=False)
    return figure
