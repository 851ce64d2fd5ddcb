"""One small function per plot; they get arrays, draw them, and know nothing of where those come from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from impact_gnn.report.svg import FAINT, INK, PALETTE, from_zero, in_percent, inline, line, whole_ticks

RAMP = LinearSegmentedColormap.from_list("early to late", ["#3b78d8", "#a65fb5", "#e0812c"])

MOST_TICKS = 8

DASHES = ((), (5, 2), (1.5, 1.5), (6, 1.5, 1.5, 1.5))
"""Lines that run close together differ in their dashes too."""


def ramp(position: float) -> str:
    """A colour between early (0) and late (1); neither end vanishes on white or on black."""
    return to_hex(RAMP(float(position)))  # a whole number would be an index


@inline("Difference to plain with its interval, a row per candidate")
def forest(
    ax: Axes, names: list[str], value: np.ndarray, low: np.ndarray, high: np.ndarray, folds: list[list[float]],
    colours: list[str], bold: list[bool],
) -> None:  # fmt: skip
    """Differences to plain in points: interval, estimate and single folds; the first candidate on top."""
    assert isinstance(ax.figure, Figure)  # `inline` makes no sub-figures
    ax.figure.set_figheight((50 + 19 * len(names)) / 72)
    # A hopeless candidate must not press the others together; its interval leaves the picture.
    reach = 3 * max(1.0, float(np.sort(np.abs(value))[(len(value) - 1) // 2]), float(value.max()))
    left, right = max(min(float(low.min()), 0), -reach), min(max(float(high.max()), 0), reach)
    margin = 0.05 * max(right - left, 1e-9)
    ax.axvline(0, color=INK, linewidth=1)
    for row, colour in enumerate(colours):
        ax.plot([low[row], high[row]], [row, row], color=colour, linewidth=2.2)
        ax.plot(folds[row], [row] * len(folds[row]), "|", color=colour, markersize=8, markeredgewidth=1)
        inside = left <= value[row] <= right
        ax.plot(np.clip(value[row], left, right), row, "o" if inside else "<", color=colour, markersize=6)
    ax.set_xlim(left - margin, right + margin)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_yticks(range(len(names)), names)
    for text, heavy in zip(ax.get_yticklabels(), bold, strict=True):
        text.set_fontweight("bold" if heavy else "normal")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.set_xlabel("points of accuracy above plain")


@inline("Share of every label by period")
def label_mix(ax: Axes, times: np.ndarray, shares: np.ndarray, colours: list[str]) -> None:
    """Shares [T, K] stacked, a column per period."""
    top = np.cumsum(shares, axis=1)
    bottom = np.zeros(len(times))
    for column, colour in enumerate(colours):
        _columns(ax, bottom, top[:, column], colour, 0.85)
        bottom = top[:, column]
    _column_names(ax, times)
    ax.set_ylim(0, 1)
    in_percent(ax)
    ax.set_ylabel("share of known labels")
    ax.grid(visible=False)


def _columns(ax: Axes, bottom: np.ndarray, top: np.ndarray, colour: str, alpha: float) -> None:
    """A column for every period side by side, as one shape."""
    lower, upper = (np.append(values, values[-1]) for values in (bottom, top))
    ax.fill_between(np.arange(len(top) + 1), lower, upper, step="post", color=colour, alpha=alpha, linewidth=0)


def _column_names(ax: Axes, times: np.ndarray) -> None:
    shown = np.arange(0, len(times), -(-len(times) // MOST_TICKS))
    ax.set_xticks(shown + 0.5, [f"{times[k]:.0f}" for k in shown])
    ax.set_xlim(0, len(times))
    ax.set_xlabel("period")


@inline("Change of the label mix by period, beside what chance gives")
def mix_change(ax: Axes, times: np.ndarray, change: np.ndarray, noise: np.ndarray) -> None:
    """Distance of every period's mix to the past, above the noise."""
    ax.fill_between(times, noise, color=FAINT, alpha=0.25, linewidth=0)
    ax.plot(times, change, color=PALETTE[0], **line(len(times)))
    whole_ticks(ax)
    from_zero(ax)
    in_percent(ax)
    ax.set_xlabel("period")
    ax.set_ylabel("labels that changed")


@inline("Drift of the features by period")
def feature_drift(
    ax: Axes, times: np.ndarray, drift: np.ndarray, all_times: np.ndarray, all_drift: np.ndarray, cutoff: float
) -> None:
    """Drift of class means from their own past, and of the mean of all nodes, labelled or not."""
    ax.plot(all_times, all_drift, color=PALETTE[1], dashes=DASHES[1], linewidth=1.4)
    ax.plot(times, drift, color=PALETTE[0], **line(len(times)))
    ax.axvline(cutoff, color=FAINT, linewidth=1, linestyle=":")
    whole_ticks(ax)
    from_zero(ax)
    ax.set_xlabel("period")
    ax.set_ylabel("in distances between classes")


@inline("Connections by distance in time")
def by_distance(ax: Axes, distances: np.ndarray, curves: list[np.ndarray], colours: list[str], what: str) -> None:
    """Curves over the distance in time; the first is drawn solid."""
    for number, (values, colour) in enumerate(zip(curves, colours, strict=True)):
        marks = line(len(distances)) if number == 0 else {}
        ax.plot(distances, values, color=colour, dashes=DASHES[number % len(DASHES)], **marks)
    whole_ticks(ax)
    from_zero(ax)
    ax.set_xlabel("distance in time")
    ax.set_ylabel(what)


@inline("Connections to the past and to the future")
def sides(ax: Axes, offsets: np.ndarray, same: np.ndarray, different: np.ndarray) -> None:
    """How often pairs of periods connect, by signed distance, for equal and for different labels."""
    ax.axvline(0, color=FAINT, linewidth=1, linestyle=":")
    ax.plot(offsets, same, color=PALETTE[0], **line(len(offsets)))
    ax.plot(offsets, different, color=PALETTE[1], dashes=DASHES[1])
    whole_ticks(ax)
    from_zero(ax)
    ax.set_xlabel("past  ←  neighbour's time − own  →  future")
    ax.set_ylabel("relative to the strongest")


@inline("Where the neighbours of a label are in time", width=172, height=150)
def pair_curves(ax: Axes, own: np.ndarray, neighbour: np.ndarray, share: np.ndarray) -> None:
    """One curve per own time: share of neighbours by their distance in time; early blue, late orange."""
    for row, time in enumerate(own):
        colour = ramp(row / max(len(own) - 1, 1))
        ax.plot(neighbour - time, share[row], color=colour, linewidth=1.3)
    met = (neighbour[None, :] - own[:, None])[np.nan_to_num(share) > 0]
    if len(met):
        ax.set_xlim(met.min() - 0.6, met.max() + 0.6)
    whole_ticks(ax, 4)
    from_zero(ax, ticks=4)
    in_percent(ax)
    ax.set_xlabel("neighbour's time − own")


@inline("Shift of messages by period, before and after a correction", width=172, height=140)
def shift(ax: Axes, times: np.ndarray, plain: np.ndarray, corrected: np.ndarray, noise: np.ndarray, top: float) -> None:
    """Distance to the targets' messages: plain faint, corrected in colour, above what sampling alone gives."""
    ax.fill_between(times, noise, color=FAINT, alpha=0.25, linewidth=0)
    ax.plot(times, plain, color=INK, linewidth=1.2, dashes=DASHES[1])
    ax.plot(times, corrected, color=PALETTE[0], linewidth=1.8)
    if len(times) == 1:
        ax.plot(times, plain, "o", color=INK, markersize=4)
        ax.plot(times, corrected, "o", color=PALETTE[0], markersize=4)
    whole_ticks(ax, 4)
    from_zero(ax, top, ticks=4)


@inline("Map of the features", height=300)
def feature_map(
    ax: Axes, nodes: list[tuple[np.ndarray, str]], means: list[tuple[np.ndarray, str]], names: Sequence[str]
) -> None:
    """Nodes as dots, and the path of every class's mean from its first period (ring) to its last (disc)."""
    for places, colour in nodes:
        ax.add_patch(_dots(places, colour))
    for places, colour in means:
        ax.plot(*places.T, color=colour, linewidth=1.3)
        ax.plot(*places[0], "o", color=colour, markersize=5.5, markerfacecolor="none", markeredgewidth=1.5)
        ax.plot(*places[-1], "o", color=colour, markersize=6, markeredgecolor=INK, markeredgewidth=0.7)
    every = np.concatenate([places for places, _ in (*nodes, *means)])
    # Without the few that lie far out the others are seen better.
    low, high = np.quantile(every, [0.005, 0.995], axis=0)
    margin = np.maximum(0.06 * (high - low), 1e-9)
    ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
    ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.set_yticks([])


def _dots(places: np.ndarray, colour: str) -> PathPatch:
    """Dots as one path of lines without length and with round ends: a tenth of the bytes of markers."""
    twice = np.repeat(places, 2, axis=0)
    codes = np.tile([Path.MOVETO, Path.LINETO], len(places))
    path = Path(twice, codes)
    return PathPatch(path, facecolor="none", edgecolor=colour, linewidth=3, capstyle="round", alpha=0.6)


@inline("How sure the predictions are")
def histogram(ax: Axes, counts: np.ndarray) -> None:
    """Predictions by their probability, in equal bins from 0 to 1."""
    width = 1 / len(counts)
    ax.bar((np.arange(len(counts)) + 0.5) * width, counts, width * 0.92, color=PALETTE[0])
    ax.set_xlim(0, 1)
    from_zero(ax)
    ax.set_xlabel("probability of the predicted label")
    ax.set_ylabel("nodes")
    ax.grid(axis="x", visible=False)


@inline("Nodes and known labels by period")
def nodes_by_period(ax: Axes, times: np.ndarray, nodes: np.ndarray, labelled: np.ndarray, cutoff: float) -> None:
    """Nodes of every period, and those of them whose label is known."""
    _columns(ax, np.zeros(len(times)), nodes, FAINT, 0.35)
    _columns(ax, np.zeros(len(times)), labelled, PALETTE[0], 0.85)
    ax.axvline(float(np.searchsorted(times, cutoff)), color=INK, linewidth=1.2, linestyle=":")
    _column_names(ax, times)
    from_zero(ax)
    ax.grid(axis="x", visible=False)
    ax.set_ylabel("nodes")
