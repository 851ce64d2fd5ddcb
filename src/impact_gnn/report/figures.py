"""From the parts of a summary to figures: arrays for the plots, captions and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from impact_gnn.backtesting import Trial
from impact_gnn.diagnostics import Diagnosis, MessageShift
from impact_gnn.diagnostics.connections import Decay, Separability
from impact_gnn.diagnostics.feature_drift import FeatureDrift
from impact_gnn.diagnostics.feature_map import FeatureMap
from impact_gnn.diagnostics.label_mix import LabelMix
from impact_gnn.graph import Summary
from impact_gnn.pipeline import Method
from impact_gnn.report import plots
from impact_gnn.report.numbers import named, number, percent, whole
from impact_gnn.report.svg import FAINT, INK, PALETTE, VARIABLES

MOST_DOTS = 900
"""Nodes drawn in the map; more would only hide each other."""

MOST_PERIODS = 200
"""Periods drawn in the stacked plot: the last ones."""


@dataclass(frozen=True)
class Key:
    """One entry below a figure: a name, the colour and the kind of mark ("line", "dash", "area", "dot")."""

    name: str
    colour: str
    mark: str


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption and key."""

    svg: Markup
    caption: str
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Labels:
    """Names of the labels, and their order from the one with the most known nodes on, which colours follow."""

    names: list[str]
    order: list[int]


def array(values: Any) -> np.ndarray:
    """Floats, NaN where nothing is known."""
    return np.array(values, dtype=np.float64)


def key(name: str, colour: str, mark: str = "line") -> Key:
    """A key in a colour of the plots."""
    return Key(name, VARIABLES.get(colour, colour), mark)


def forest(rows: Sequence[Trial], choice: Method) -> Figure | None:
    """Differences to plain with intervals, of every candidate that has one."""
    known = [(row, row.difference) for row in rows if row.difference is not None]
    if not known:
        return None
    low, value, high = (100 * array(part) for part in zip(*((d.low, d.value, d.high) for _, d in known), strict=True))
    folds = [list(100 * array(list(row.by_fold.values()))) for row, _ in known]
    better, worse, open_ = PALETTE[0], PALETTE[1], FAINT
    colours = [better if a > 0 else worse if b < 0 else open_ for a, b in zip(low, high, strict=True)]
    bold = [row.method == choice for row, _ in known]
    keys = (key("better than plain", better), key("cannot be told apart", open_), key("worse", worse))
    caption = "Disc: difference over all back-tested periods; bar: its 95% interval; ticks: single periods."
    caption += " The choice is bold." if any(bold) else ""
    names = [str(row.method) for row, _ in known]
    return Figure(plots.forest(names, value, low, high, folds, colours, bold), caption, keys)


def periods(graph: Summary, cutoff: int) -> Figure:
    """Nodes and known labels by period."""
    keys = (key("nodes", FAINT, "area"), key("label known", PALETTE[0], "area"))
    caption = "Nodes of every period. The dotted line is the cutoff: labels from there on were not read."
    series = array(graph.times), array(graph.nodes_per_time), array(graph.labelled_per_time)
    return Figure(plots.nodes_by_period(*series, cutoff), caption, keys)


def findings(diagnosis: Diagnosis, labels: Labels) -> list[list[Figure]]:
    """The figures of the four assumptions, in their order."""
    separable = diagnosis.separability
    return [
        label_mix(diagnosis.label_mix, labels),
        feature_drift(diagnosis.feature_drift, diagnosis.cutoff),
        separability(separable),
        decay(diagnosis.decay, separable),
    ]


def label_mix(finding: LabelMix, labels: Labels) -> list[Figure]:
    """The mix of labels by period, and how far each period's is from the past."""
    shown, rest = labels.order[: len(PALETTE)], labels.order[len(PALETTE) :]
    mix = array(finding.mix)[-MOST_PERIODS:]
    shares, colours = mix[:, shown], list(PALETTE[: len(shown)])
    keys = [key(named(labels.names[one]), colour, "area") for one, colour in zip(shown, colours, strict=True)]
    if rest:
        shares, colours = np.column_stack([shares, mix[:, rest].sum(1)]), [*colours, FAINT]
        name = named(labels.names[rest[0]]) if len(rest) == 1 else f"{len(rest)} other labels"
        keys.append(key(name, FAINT, "area"))
    svg = plots.label_mix(array(finding.times)[-MOST_PERIODS:], shares, colours)
    out = [Figure(svg, "Known labels of every period that has some.", tuple(keys))]
    if finding.to_past:
        change = (key("measured", PALETTE[0]), key("what chance alone gives", FAINT, "area"))
        svg = plots.mix_change(array(finding.times[1:]), array(finding.to_past), array(finding.noise))
        out.append(Figure(svg, "Share of labels that differ between a period and all before it.", change))
    return out


def feature_drift(finding: FeatureDrift, cutoff: int) -> list[Figure]:
    """Drift of classes by period, and of all nodes into the target periods."""
    if not finding.times:
        return []
    all_times = array(finding.all_times)
    later = all_times >= finding.times[0]
    keys = (key("classes, from their own past", PALETTE[0]), key("all nodes, from the labelled", PALETTE[1], "dash"))
    caption = "Drift in multiples of the distance between classes; the dotted line is the cutoff."
    everybody = all_times[later], array(finding.all_drift)[later]
    return [Figure(plots.feature_drift(array(finding.times), array(finding.drift), *everybody, cutoff), caption, keys)]


def separability(finding: Separability) -> list[Figure]:
    """The fitted g by distance, and connections to the past against those to the future."""
    if not finding.g:
        return []
    keys = tuple(key(name, PALETTE[k], "dash" if k else "line") for k, name in enumerate(finding.g))
    curves = [array(g) for g in finding.g.values()]
    svg = plots.by_distance(array(finding.distances), curves, list(PALETTE[: len(curves)]), "g, fitted")
    tables = array(finding.same_label), array(finding.different_label)
    offsets, (same, different) = by_offset(array(finding.steps), *tables)
    sides = (key("same label", PALETTE[0]), key("different labels", PALETTE[1], "dash"))
    caption = "Edges by the neighbour's distance in time, averaged over pairs of periods."
    return [
        Figure(svg, "How much of a node's neighbourhood lies at each distance in time.", keys),
        Figure(plots.sides(offsets, same, different), caption, sides),
    ]


def by_offset(steps: np.ndarray, *tables: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Tables [own, neighbour] averaged over pairs of equal signed distance, each scaled to a largest value of 1."""
    offset, place = np.unique(steps[None, :] - steps[:, None], return_inverse=True)
    place = place.ravel()
    count = np.bincount(place)
    means = [np.bincount(place, table.ravel()) / count for table in tables]
    return offset, [mean / max(float(mean.max()), 1e-300) for mean in means]


def pair_curves(finding: Separability, labels: Labels) -> list[Figure]:
    """The paper's figure for the strongest pairs of labels: curves by distance, one per own time."""
    out = []
    for curve in finding.curves:
        pair = f"{named(labels.names[curve.label])} ← {named(labels.names[curve.neighbour])}"
        span = (key(str(curve.own_times[0]), plots.ramp(0)), key(str(curve.own_times[-1]), plots.ramp(1)))
        svg = plots.pair_curves(array(curve.own_times), array(curve.neighbour_times), array(curve.share))
        out.append(Figure(svg, f"{pair} ({whole(curve.edges)} edges)", span))
    return out


def decay(finding: Decay, connections: Separability) -> list[Figure]:
    """One decay for all beside the decay of every group of neighbours."""
    if not finding.h:
        return []
    curves = {"one decay for all": array(finding.h)} | {name: array(g) for name, g in connections.g.items()}
    curves = {name: values / values.sum() for name, values in curves.items() if values.sum() > 0}
    colours = [INK, *PALETTE][: len(curves)]
    marks = ["line" if colour == INK else "dash" for colour in colours]
    keys = tuple(map(key, curves, colours, marks))
    caption = "How connections fade with the distance in time, each curve scaled to sum 1."
    svg = plots.by_distance(array(finding.distances), list(curves.values()), colours, "share")
    return [Figure(svg, caption, keys)]


def shift(measured: MessageShift) -> list[Figure]:
    """A panel per correction: shift by period, plain and corrected."""
    times, noise, plain = array(measured.times), array(measured.noise), measured.methods["plain"]
    top = 1.08 * max(max(values) for values in (measured.noise, *(one.sliced for one in measured.methods.values())))
    out = []
    for name, one in measured.methods.items():
        if one is plain:
            continue
        caption = f"{name}: {number(plain.overall)} → {number(one.overall)}"
        if plain.overall > 0:
            change = one.overall / plain.overall - 1
            caption += f" ({'−' if change < 0 else '+'}{percent(abs(change), 0)})"
        out.append(Figure(plots.shift(times, array(plain.sliced), array(one.sliced), noise, top), caption))
    return out


def feature_map(picture: FeatureMap, labels: Labels) -> Figure:
    """Nodes and the paths of class means in two dimensions."""
    places, label = array(picture.nodes.place), np.array(picture.nodes.label)
    kept = np.unique(np.linspace(0, len(places) - 1, min(len(places), MOST_DOTS)).astype(int))
    places, label = places[kept], label[kept]
    colour = {one: shade for one, shade in zip(labels.order, PALETTE, strict=False) if (label == one).any()}
    dots = [(places[label == one], shade) for one, shade in colour.items()]
    keys = [key(named(labels.names[one]), shade, "dot") for one, shade in colour.items()]
    rest = ~np.isin(label, list(colour))
    if rest.any():
        dots.insert(0, (places[rest], FAINT))
        keys.append(key("label unknown or another", FAINT, "dot"))
    centres, whose, when = array(picture.means.place), np.array(picture.means.label), np.array(picture.means.time)
    paths = []
    for one, shade in colour.items():
        mine = np.flatnonzero(whose == one)
        if len(mine):
            paths.append((centres[mine[np.argsort(when[mine], kind="stable")]], shade))
    shares = [f", {percent(share, 0)} of the variance" for share in picture.explained]
    axes = [f"direction {k}{share}" for k, share in enumerate(shares, 1)]
    how = "The two main directions of the features (PCA)."
    if picture.embedding == "tsne":
        axes, how = ["t-SNE 1", "t-SNE 2"], "t-SNE keeps neighbourhoods, not distances."
    caption = f"{how} Dots are nodes; lines follow the mean of a class from its first period (ring) to its last (disc)."
    return Figure(plots.feature_map(dots, paths, [*axes, ""][:2]), caption, tuple(keys))


def histogram(counts: Sequence[int]) -> Figure:
    """Predictions by probability."""
    return Figure(plots.histogram(array(counts)), "Predictions by the probability of the predicted label.")
