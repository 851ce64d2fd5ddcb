"""Walk-forward folds: the graph and the known labels of a past time, and a window to predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from impact_gnn.backtesting.prior_forecast import (
    PriorForecast,
    forecast_interval,
    forecast_prior,
)
from impact_gnn.checks import InputError, TooShort
from impact_gnn.engines import Engine, as_engine
from impact_gnn.graph import TemporalGraph
from impact_gnn.statistics import sample_rows

LEAST_NODES = 20  # labelled, that a period needs to be worth a fold
MAX_DRIFT = 2.0  # log of the largest change of a class proportion that a forecast may claim
LEAST_PAST = 0.25  # share of the labels that should be older than a window
MAX_UNLABELLED = 2_000  # nodes of a window without a label that are predicted
LEAST_EXAMPLES = 10  # labels that a class needs before a window for anybody to have learned it
# Share of a window's nodes whose class could be learned; below, it says little about methods.
MIN_LEARNABLE = 0.5
# Share of a period's nodes whose label can be known by now, with `label_delay`, for it to be in a
# window: the first days of a month do not resemble it.
LEAST_KNOWN = 0.5


@dataclass(frozen=True)
class Window:
    """Periods to predict, from the first to the last; labels are known before the first only."""

    first: int
    last: int
    name: str = ""

    @classmethod
    def of(cls, graph: TemporalGraph, first: int, last: int) -> Window:
        """A window with its name for users."""
        separator = "-" if graph.periods is None else " to "
        ends = dict.fromkeys([graph.name_of(first), graph.name_of(last)])
        return cls(first, last, separator.join(ends))

    @classmethod
    def longest(cls, graph: TemporalGraph, most: int) -> Window:
        """The last labelled periods of a view, at most `most`; half of the labels are older."""
        times = np.unique(graph.time[graph.is_labelled]).tolist()
        return cls.of(graph, times[-graph.max_hidden_periods(most)], times[-1])

    def contains(self, time: ndarray) -> ndarray:
        """Which times lie within the window."""
        return (time >= self.first) & (time <= self.last)

    def __str__(self) -> str:
        if self.name:
            return self.name
        return "-".join(dict.fromkeys([str(self.first), str(self.last)]))


@dataclass(frozen=True, eq=False)
class Fold:
    """One split of the past: a graph with masked labels, and the nodes of its window."""

    window: Window
    graph: TemporalGraph  # the past up to their end, labels of the periods hidden
    rows: ndarray  # positions in `graph` of the periods' labelled nodes
    unlabelled: ndarray  # positions of the periods' other nodes, or a sample of them
    classes: ndarray  # that could be seen before them; `graph` knows no others


def windows(graph: TemporalGraph, count: int) -> list[Window]:
    """The last `count` windows of labelled periods before the view's cutoff, oldest first.

    A window is as long as the time that targets span (`TemporalGraph.horizon`), so that a fold
    resembles the real task. Where too few labels would be left before the next one, windows of
    several periods overlap by half. A window needs enough labelled nodes, a labelled past, and most
    of its nodes in classes with earlier labels; labels of most nodes of its periods must be due.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> graph = tsbm(num_nodes=500, num_times=8, num_labels=2, seed=0)
        >>> [str(one) for one in windows(graph.masked(7), 3)]
        ['4', '5', '6']
        >>> [str(one) for one in windows(graph.masked(6), 2)]
        ['2-3', '4-5']
    """
    cutoff = graph.require_cutoff("a back-test needs")
    if count < 1:
        raise InputError(f"folds={count} must be at least 1.")
    is_complete = known_share(graph, cutoff)[graph.period] >= LEAST_KNOWN
    times, sizes = np.unique(graph.time[graph.is_labelled & is_complete], return_counts=True)
    length = graph.horizon()

    def window(end: int) -> Window | None:
        """The one that ends before period `end`, if it is worth a fold."""
        first = end - length
        if first < 1:
            return None
        num_known = graph.has_known_label(int(times[first])).sum()
        if min(sizes[first:end].sum(), num_known) < LEAST_NODES:
            return None
        candidate = Window.of(graph, int(times[first]), int(times[end - 1]))
        is_newest = end == len(times)
        if is_newest or learnable(graph, candidate).mean() >= MIN_LEARNABLE:
            return candidate
        return None

    chosen: list[Window] = []
    end = len(times)
    while len(chosen) < count and end > length:
        candidate = window(end)
        if candidate is None:
            end -= 1
            continue
        chosen.append(candidate)
        # The next one beside it, or, where that leaves too few labels before it or is no good,
        # overlapping by half.
        labels_before = sizes[: max(end - 2 * length, 0)].sum()
        if labels_before >= LEAST_PAST * sizes.sum() and window(end - length) is not None:
            end -= length
        else:
            end -= (length + 1) // 2
    if not chosen:
        raise TooShort(
            f"no labelled period but the first has {LEAST_NODES} labelled nodes, "
            "so nothing can be back-tested; "
            f"use longer periods or add labels."
        )
    return chosen[::-1]


def known_share(graph: TemporalGraph, cutoff: int) -> ndarray:
    """Share of the nodes of every period whose label is due before the cutoff [T]."""
    total = np.bincount(graph.period, minlength=len(graph.times))
    due = np.bincount(graph.period, graph.is_over(cutoff), len(graph.times))
    return due / np.maximum(total, 1)


def truth_of(graph: TemporalGraph, window: Window) -> ndarray:
    """The labels of a window, in the order of its fold's rows."""
    return np.array(graph.label[_labelled_in(graph, window)])


def learnable(graph: TemporalGraph, window: Window) -> ndarray:
    """Which of a window's labelled nodes are in classes that had enough examples before it."""
    return _labels_before(graph, window)[truth_of(graph, window)] >= LEAST_EXAMPLES


def prior_drift(graph: TemporalGraph, first: int) -> ndarray:
    """Log of the forecast class proportions from period `first` on over those of all labels before.

    It is 0 for classes without a label before.
    """
    counts = labels_by_period(graph, first)
    prior = counts.sum(0) / counts.sum()
    forecast = forecast_prior(counts, graph.horizon())
    ratio = np.divide(forecast, prior, out=np.ones_like(prior), where=prior > 0)
    return np.clip(np.log(ratio), -MAX_DRIFT, MAX_DRIFT)


def forecast_for_targets(graph: TemporalGraph) -> PriorForecast:
    """The forecast class proportions of the targets of a view, with intervals."""
    cutoff = graph.require_cutoff("a forecast of class proportions needs")
    counts = labels_by_period(graph, cutoff)
    return forecast_interval(counts, graph.horizon(), int(graph.targets().sum()))


def labels_by_period(graph: TemporalGraph, first: int) -> ndarray:
    """Labels before period `first` by period and class [T, Y]."""
    is_past = graph.has_known_label(first)
    counts = np.zeros((len(graph.times), graph.num_labels))
    np.add.at(counts, (graph.period[is_past], graph.label[is_past]), 1)
    return counts


def prior_before(graph: TemporalGraph, window: Window) -> ndarray:
    """Class proportions of the labels before a window."""
    counts = _labels_before(graph, window)
    return counts / counts.sum()


def majority_before(graph: TemporalGraph, window: Window) -> int:
    """The most frequent class of the last labelled periods before a window.

    There are as many periods as targets span.
    """
    is_past = graph.has_known_label(window.first)
    first = np.unique(graph.time[is_past])[-graph.horizon() :][0]
    return int(np.bincount(graph.label[is_past & (graph.time >= first)]).argmax())


def times_of(graph: TemporalGraph, window: Window) -> ndarray:
    """The times of a window's labelled nodes, in the same order."""
    return np.array(graph.time[_labelled_in(graph, window)])


def horizons_of(graph: TemporalGraph, window: Window) -> ndarray:
    """How many periods after the last known label the labelled nodes of a window lie: 1, 2, ..."""
    period = graph.period[_labelled_in(graph, window)].astype(int)
    return 1 + period - int(np.searchsorted(graph.times, window.first))


def unlabelled_in(graph: TemporalGraph, window: Window) -> ndarray:
    """Positions of the nodes of a window that have no label."""
    return np.flatnonzero(window.contains(graph.time) & (graph.label < 0))


def _labelled_in(graph: TemporalGraph, window: Window) -> ndarray:
    """Positions of the labelled nodes of a window."""
    return np.flatnonzero(window.contains(graph.time) & graph.is_labelled)


def _labels_before(graph: TemporalGraph, window: Window) -> ndarray:
    """Labels before a window by class [Y]."""
    is_past = graph.has_known_label(window.first)
    return np.bincount(graph.label[is_past], minlength=graph.num_labels)


def fold_of(graph: TemporalGraph, window: Window, engine: Engine | None = None) -> Fold:
    """The fold that predicts a window of a view; the graph as it was then is made by the engine."""
    then = as_engine(engine).graph(graph, upto=window.last)
    past = then.masked(window.first)
    return Fold(
        window=window,
        graph=past.with_visible_classes(),
        rows=_labelled_in(then, window),
        unlabelled=sample_rows(unlabelled_in(then, window), MAX_UNLABELLED),
        classes=past.visible_classes(),
    )
