"""From the parts of a summary to figures: arrays for the plots, captions and keys. Missing parts give no figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from impact_gnn.report import plots
from impact_gnn.report.numbers import finite, number, percent, whole
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
    mark: str = "line"


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption and key."""

    svg: Markup
    caption: str
    keys: tuple[Key, ...] = ()


def array(values: Any) -> np.ndarray:
    """Floats, NaN where nothing is known."""
    return np.array([np.nan if finite(value) is None else value for value in values or ()], dtype=np.float64)


def grid(rows: Any) -> np.ndarray:
    """Floats in rows and columns; empty if the rows differ in length."""
    found = [array(row) for row in rows or ()]
    return np.array(found) if found and len({len(row) for row in found}) == 1 else np.zeros((0, 0))


def key(name: str, colour: str, mark: str = "line") -> Key:
    """A key in a colour of the plots."""
    return Key(name, VARIABLES.get(colour, colour), mark)


def forest(rows: Sequence[Mapping[str, Any]], choice: str) -> Figure | None:
    """Differences to plain with intervals, of every candidate that has one."""
    known = [row for row in rows if row.get("difference") and finite(row["difference"].get("value")) is not None]
    known = [row for row in known if None not in (finite(row["difference"]["low"]), finite(row["difference"]["high"]))]
    if not known:
        return None
    low, value, high = (100 * array([row["difference"][k] for row in known]) for k in ("low", "value", "high"))
    folds = [list(100 * array((row.get("by_fold") or {}).values())) for row in known]
    better, worse, open_ = PALETTE[0], PALETTE[1], FAINT
    colours = [better if a > 0 else worse if b < 0 else open_ for a, b in zip(low, high, strict=True)]
    names = [str(row["method"]) for row in known]
    bold = [name == choice for name in names]
    keys = [key("better than plain", better), key("cannot be told apart", open_), key("worse", worse)]
    caption = "Disc: difference over all back-tested periods; bar: its 95% interval; ticks: single periods."
    if any(bold):
        caption += " The choice is bold."
    return Figure(plots.forest(names, value, low, high, folds, colours, bold), caption, tuple(keys))


def periods(graph: Mapping[str, Any], cutoff: Any) -> Figure | None:
    """Nodes and known labels by period."""
    times, nodes, labelled = (array(graph.get(k)) for k in ("times", "nodes_per_time", "labelled_per_time"))
    if len(times) < 2 or not len(times) == len(nodes) == len(labelled):
        return None
    keys = (key("nodes", FAINT, "area"), key("label known", PALETTE[0], "area"))
    caption = "Nodes of every period. The dotted line is the cutoff: labels from there on were not read."
    return Figure(plots.nodes_by_period(times, nodes, labelled, finite(cutoff)), caption, keys)


def by_size(counts: Any) -> list[int]:
    """Labels from the one with the most known nodes on; colours follow this order in every figure."""
    return [int(label) for label in np.argsort(-np.nan_to_num(array(counts)), kind="stable")]


def label_mix(series: Mapping[str, Any], names: Sequence[str], order: Sequence[int]) -> list[Figure]:
    """The mix of labels by period, and how far each period's is from the past."""
    mix, times = grid(series.get("mix"))[-MOST_PERIODS:], list(series.get("times") or [])[-MOST_PERIODS:]
    out = []
    if mix.size and len(mix) == len(times):
        shares, keys = top_classes(mix, names, order)
        svg = plots.label_mix(np.array(times), shares, [*PALETTE, FAINT][: shares.shape[1]])
        out.append(Figure(svg, "Known labels of every period that has some.", keys))
    change, noise = array(series.get("to_past")), array(series.get("noise"))
    later = array(series.get("times"))[1:]
    if len(change) == len(noise) == len(later) > 0:
        keys = (key("measured", PALETTE[0]), key("what chance alone gives", FAINT, "area"))
        caption = "Share of labels that differ between a period and all before it."
        out.append(Figure(plots.mix_change(later, change, noise), caption, keys))
    return out


def top_classes(mix: np.ndarray, names: Sequence[str], order: Sequence[int]) -> tuple[np.ndarray, tuple[Key, ...]]:
    """The largest classes and the rest in one column, with keys."""
    if len(order) != mix.shape[1]:
        order = by_size(list(np.nansum(mix, axis=0)))
    shown, rest = list(order[: len(PALETTE)]), list(order[len(PALETTE) :])
    shares = np.nan_to_num(mix[:, shown])
    keys = [key(named(names, label), colour, "area") for label, colour in zip(shown, PALETTE, strict=False)]
    if rest:
        shares = np.column_stack([shares, np.nan_to_num(mix[:, rest]).sum(1)])
        name = named(names, rest[0]) if len(rest) == 1 else f"{len(rest)} other labels"
        keys.append(key(name, FAINT, "area"))
    return shares, tuple(keys)


def named(names: Sequence[str], label: Any) -> str:
    """The user's name of a label; a number gets a word before it."""
    name = str(names[int(label)]) if 0 <= int(label) < len(names) else str(int(label))
    return f"label {name}" if name.lstrip("-").isdigit() else name


def feature_drift(series: Mapping[str, Any], cutoff: Any) -> list[Figure]:
    """Drift of classes by period, and of all nodes into the target periods."""
    times, drift = array(series.get("times")), array(series.get("drift"))
    all_times, all_drift = array(series.get("all_times")), array(series.get("all_drift"))
    if not len(times) == len(drift) > 0 or len(all_times) != len(all_drift):
        return []
    if len(all_times) and len(times):
        kept = all_times >= times[0]
        all_times, all_drift = all_times[kept], all_drift[kept]
    keys = (key("classes, from their own past", PALETTE[0]), key("all nodes, from the labelled", PALETTE[1], "dash"))
    caption = "Drift in multiples of the distance between classes; the dotted line is the cutoff."
    return [Figure(plots.feature_drift(times, drift, all_times, all_drift, finite(cutoff)), caption, keys)]


def separability(series: Mapping[str, Any]) -> list[Figure]:
    """The fitted g by distance, and connections to the past against those to the future."""
    out = []
    distances, groups = array(series.get("distances")), _groups(series)
    if groups and len(distances):
        keys = tuple(key(name, PALETTE[k], "dash" if k else "line") for k, name in enumerate(groups))
        svg = plots.by_distance(distances, list(groups.values()), list(PALETTE[: len(groups)]), "g, fitted")
        out.append(Figure(svg, "How much of a node's neighbourhood lies at each distance in time.", keys))
    steps = array(series.get("steps"))
    same, different = grid(series.get("same_label")), grid(series.get("different_label"))
    if len(steps) > 1 and same.shape == different.shape == (len(steps), len(steps)):
        offsets, (first, second) = by_offset(steps, same, different)
        keys = (key("same label", PALETTE[0]), key("different labels", PALETTE[1], "dash"))
        caption = "Edges by the neighbour's distance in time, averaged over pairs of periods."
        out.append(Figure(plots.sides(offsets, first, second), caption, keys))
    return out


def by_offset(steps: np.ndarray, *tables: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Tables [own, neighbour] averaged over pairs of equal signed distance, each scaled to a largest value of 1."""
    offset, place = np.unique(steps[None, :] - steps[:, None], return_inverse=True)
    place = place.ravel()
    count = np.bincount(place)
    means = [np.bincount(place, np.nan_to_num(table).ravel()) / count for table in tables]
    return offset, [mean / max(float(mean.max()), 1e-300) for mean in means]


def pair_curves(series: Mapping[str, Any], names: Sequence[str]) -> list[Figure]:
    """The paper's figure for the strongest pairs of labels: curves by distance, one per own time."""
    out = []
    for curve in series.get("curves") or ():
        own, neighbour = array(curve.get("own_times")), array(curve.get("neighbour_times"))
        share = grid(curve.get("share"))
        if not share.size or share.shape != (len(own), len(neighbour)):
            continue
        caption = f"{named(names, curve['label'])} ← {named(names, curve['neighbour'])} ({whole(curve['edges'])} edges)"
        span = (key(f"{own[0]:.0f}", plots.ramp(0)), key(f"{own[-1]:.0f}", plots.ramp(1)))
        out.append(Figure(plots.pair_curves(own, neighbour, share), caption, span))
    return out


def decay(series: Mapping[str, Any], connections: Mapping[str, Any]) -> list[Figure]:
    """One decay for all beside the decay of every group of neighbours."""
    distances, h = array(series.get("distances")), array(series.get("h"))
    if not len(distances) == len(h) > 0:
        return []
    all_curves = {"one decay for all": h} | {name: g for name, g in _groups(connections).items() if len(g) == len(h)}
    curves = {name: values / np.nansum(values) for name, values in all_curves.items() if np.nansum(values) > 0}
    colours = [INK, *PALETTE][: len(curves)]
    keys = tuple(
        key(name, colour, "line" if colour == INK else "dash") for name, colour in zip(curves, colours, strict=True)
    )
    caption = "How connections fade with the distance in time, each curve scaled to sum 1."
    return [Figure(plots.by_distance(distances, list(curves.values()), colours, "share"), caption, keys)]


def _groups(series: Mapping[str, Any]) -> dict[str, np.ndarray]:
    size = len(series.get("distances") or ())
    found = {str(name): array(g) for name, g in (series.get("g") or {}).items()}
    return {name: g for name, g in found.items() if len(g) == size > 0}


def shift(found: Mapping[str, Any]) -> list[Figure]:
    """A panel per correction: shift by period, plain and corrected."""
    methods, times = found.get("methods") or {}, array(found.get("times"))
    noise = array(found.get("noise"))
    lines = {name: array((one or {}).get("sliced")) for name, one in methods.items()}
    lines = {name: values for name, values in lines.items() if len(values) == len(times)}
    if "plain" not in lines or not len(times) or len(noise) != len(times):
        return []
    top = 1.08 * max(float(np.nan_to_num(values).max()) for values in (*lines.values(), noise))
    before, out = methods["plain"].get("overall"), []
    for name, values in lines.items():
        if name != "plain":
            after = methods[name].get("overall")
            caption = f"{name}: {number(before)} → {number(after)}{_change(before, after)}"
            out.append(Figure(plots.shift(times, lines["plain"], values, noise, top), caption))
    return out


def _change(before: Any, after: Any) -> str:
    a, b = finite(before), finite(after)
    if not a or b is None:
        return ""
    return f" ({'−' if b < a else '+'}{percent(abs(b - a) / a, 0)})"


def feature_map(found: Mapping[str, Any], names: Sequence[str], order: Sequence[int]) -> Figure | None:
    """Nodes and the paths of class means in two dimensions."""
    nodes, means = found.get("nodes") or {}, found.get("means") or {}
    places, label = grid(nodes.get("place")), array(nodes.get("label"))
    if places.shape != (len(label), 2) or not np.isfinite(places).all():
        return None
    kept = np.unique(np.linspace(0, len(places) - 1, min(len(places), MOST_DOTS)).astype(int))
    places, label = places[kept], label[kept]
    colour = {one: shade for one, shade in zip(order, PALETTE, strict=False) if (label == one).any()}
    dots = [(places[label == one], shade) for one, shade in colour.items()]
    rest = ~np.isin(label, list(colour))
    if rest.any():
        dots.insert(0, (places[rest], FAINT))
    where, whose, when = grid(means.get("place")), array(means.get("label")), array(means.get("time"))
    paths = []
    if where.shape == (len(whose), 2) and len(when) == len(whose) and np.isfinite(where).all():
        for one, shade in colour.items():
            mine = np.flatnonzero(whose == one)
            if len(mine):
                paths.append((where[mine[np.argsort(when[mine], kind="stable")]], shade))
    keys = [key(named(names, one), shade, "dot") for one, shade in colour.items()]
    if rest.any():
        keys.append(key("label unknown or another", FAINT, "dot"))
    axes, how = _axes(found)
    caption = f"{how} Dots are nodes; lines follow the mean of a class from its first period (ring) to its last (disc)."
    return Figure(plots.feature_map(dots, paths, axes), caption, tuple(keys))


def _axes(found: Mapping[str, Any]) -> tuple[tuple[str, str], str]:
    if found.get("embedding") == "tsne":
        return ("t-SNE 1", "t-SNE 2"), "t-SNE keeps neighbourhoods, not distances."
    shares = [percent(share, 0) for share in found.get("explained") or ()]
    words = [f"direction {k + 1}" + (f", {shares[k]} of the variance" if k < len(shares) else "") for k in (0, 1)]
    return (words[0], words[1]), "The two main directions of the features (PCA)."


def histogram(counts: Any) -> Figure | None:
    """Predictions by probability."""
    found = np.nan_to_num(array(counts))
    if not found.sum() > 0:
        return None
    return Figure(plots.histogram(found), "Predictions by the probability of the predicted label.")
