"""Ours compared with competing methods, on every graph of a folder.

A method receives the graph without the labels from the cutoff on, in a process of its own, so that
its peak memory is its own. Those labels are read only after it has predicted. A cell (graph,
method, seed) is a task of the runner: a rerun continues, a kill loses one cell.
"""

import itertools
import math
import multiprocessing
import resource
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import f1_score, roc_auc_score

import impact_gnn as ig
from impact_gnn import checks
from impact_gnn.backtesting import with_candidate
from impact_gnn.checks import InputError
from impact_gnn.estimators import Ensemble, Pipeline
from impact_gnn.estimators.calibration import calibration_error
from impact_gnn.statistics import Estimate, paired
from reproduction import data
from reproduction.baselines import BASELINES, COMPETING_METHODS
from reproduction.results import ExtraTable, Record, Table, difference, hit_rate, packed
from reproduction.runner import Progress, Task, end_with_parent, one_thread, work_off
from reproduction.table2 import Problem

OURS = "ours-"
"""Methods whose name begins so are `impact run` with an effort."""
NOT_RUN = "not run: "
CANDIDATE = "candidate "
MIN_PROBABILITY = 1e-6


@dataclass(frozen=True, eq=False)
class MethodResult:
    """Probabilities of the targets [n, Y].

    Of ours also the forecast of its accuracy, prediction sets and candidates.
    """

    probabilities: np.ndarray
    forecast: Estimate | None = None
    sets: np.ndarray | None = None
    candidates: Mapping[str, np.ndarray] = field(default_factory=dict)


def ours(view: ig.TemporalGraph, seed: int, out: Path, effort: str) -> MethodResult:
    """`impact run` on the view, its files under `out`.

    An effort ending in "+hindsight" fits every candidate as well.

    Only so can be told, afterwards, what the best single candidate would have been: candidates that
    were tried in full are fitted on all labels like the chosen ones, with one seed.
    """
    effort, _, hindsight = effort.partition("+")
    # one process, so that its CPU seconds are all of them
    summary = ig.run(view, out, cutoff=view.cutoff, effort=effort, seed=seed, jobs=1)
    model = Ensemble.load(out / "model")
    probabilities = model.predict_proba(view)
    singles: dict[str, np.ndarray] = {}
    inputs = model.pipelines[0].inputs(view)
    for row in summary.backtest.full if hindsight else ():
        single = with_candidate(Pipeline(), row.candidate, seed=seed, cutoff=summary.cutoff).fit(
            view, inputs=inputs
        )
        singles[str(row.candidate)] = single.predict_proba(view, inputs=inputs)
    return MethodResult(
        probabilities,
        summary.prediction_summary.accuracy,
        model.calibration.sets(probabilities),
        singles,
    )


def cell(name: str, root: Path, method: str, seed: int, place: Path) -> list[Record]:
    """Fits a method to one graph and scores it; `place` is where ours writes."""
    warnings.filterwarnings("ignore")
    graph, cutoff = data.with_cutoff(name, root)
    problem = Problem.of(graph, cutoff)
    start = time.process_time()
    try:
        with one_thread():
            if method.startswith(OURS):
                result = ours(problem.view, seed, place, method.removeprefix(OURS))
            else:
                result = MethodResult((COMPETING_METHODS | BASELINES)[method](problem.view, seed))
    except InputError as error:
        return [_not_run(name, method, seed, str(error))]
    seconds, memory = time.process_time() - start, peak_memory()
    scored = np.searchsorted(np.flatnonzero(problem.view.targets()), problem.rows)
    return records_of(
        result,
        scored,
        problem.truth,
        Record(
            study="leaderboard",
            section=name,
            row="memory",
            column=method,
            seed=seed,
            score=memory,
            seconds=seconds,
        ),
    )


def records_of(
    result: MethodResult, scored: np.ndarray, truth: np.ndarray, memory: Record
) -> list[Record]:
    """One record per measure; `scored` are the rows of the result whose label is known."""
    # some of which nobody could know
    classes = max(result.probabilities.shape[1], int(truth.max()) + 1)
    probabilities = np.pad(
        result.probabilities[scored], [(0, 0), (0, classes - result.probabilities.shape[1])]
    )
    guess = probabilities.argmax(1)
    hits = guess == truth
    macro = f1_score(truth, guess, labels=np.unique(truth), average="macro", zero_division=0.0)
    # a class that nobody could know has probability 0, which would cost infinitely much
    true_class = np.maximum(probabilities[np.arange(len(truth)), truth], MIN_PROBABILITY)
    scores = {
        "macro-F1": float(macro),
        "log-loss": float(-np.log(true_class).mean()),
        "calibration error": calibration_error(probabilities, truth),
    }
    if classes == 2:
        scores["AUROC"] = float(roc_auc_score(truth == 1, probabilities[:, 1]))
    if result.forecast is not None:
        low, high = result.forecast.low, result.forecast.high
        scores |= {"forecast": result.forecast.value, "forecast low": low, "forecast high": high}
    if result.sets is not None:
        sets = np.pad(result.sets[scored], [(0, 0), (0, classes - result.sets.shape[1])])
        scores |= {
            "coverage": float(sets[np.arange(len(truth)), truth].mean()),
            "set size": float(sets.sum(1).mean()),
        }
    for candidate, of_candidate in result.candidates.items():
        scores[f"{CANDIDATE}{candidate}"] = float((of_candidate[scored].argmax(1) == truth).mean())
    scores |= {"seconds": memory.seconds, "memory": memory.score}
    accuracy = replace(memory, row="accuracy", score=float(hits.mean()), hits=packed(hits))
    return [
        accuracy,
        *(
            replace(memory, row=measure, score=score, seconds=0.0)
            for measure, score in scores.items()
        ),
    ]


def peak_memory() -> float:
    """Peak of this process in MB.

    Where there is no /proc, the one that may have begun with the parent's.
    """
    status = Path("/proc/self/status")
    if not status.is_file():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(
        float(line.split()[1]) / 1024
        for line in status.read_text().splitlines()
        if line.startswith("VmHWM")
    )


def apart(name: str, root: Path, method: str, seed: int, place: Path) -> list[Record]:
    """`cell` in a new process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent) as pool:
        try:
            return pool.submit(cell, name, root, method, seed=seed, place=place).result()
        except BrokenProcessPool:
            why = "its process was ended, for want of memory perhaps."
            return [_not_run(name, method, seed, why)]


def _not_run(name: str, method: str, seed: int, why: str) -> Record:
    """The record of a fit that failed, with the reason in place of a measure."""
    return Record(
        study="leaderboard",
        section=name,
        row=f"{NOT_RUN}{why}",
        column=method,
        seed=seed,
        score=0.0,
        seconds=0.0,
    )


def _tasks(
    name: str, root: Path, out: Path, *, methods: Sequence[str], seeds: int, notes: list[str]
) -> list[Task]:
    """A task per method and seed on one graph; none, and a note, where nothing can be scored."""
    try:
        graph, cutoff = data.with_cutoff(name, root)
        problem = Problem.of(graph, cutoff)
    except InputError as error:
        notes.append(f"{name} was left out: {error}")
        return []
    if len(problem.rows) < 2:
        notes.append(
            f"{name} was left out: no labels from its cutoff {cutoff} on, so nothing to score."
        )
        return []
    tasks = []
    for seed, method in itertools.product(range(seeds), methods):
        settings = {
            "graph": name,
            "cutoff": cutoff,
            "method": method,
            "seed": seed,
            "data": problem.identity(),
        }
        place = out / "runs" / f"{name}-{method}-{seed}"
        call = partial(apart, name, root, method, seed=seed, place=place)
        tasks.append(Task(f"{name}, {method}, seed {seed}", settings, call))
    return tasks


def leaderboard(
    out: Path,
    *,
    root: Path,
    names: Sequence[str] | None = None,
    seeds: int = 1,
    baselines: Sequence[str] | None = None,
    efforts: Sequence[str] = (),
    progress: Progress | None = None,
    page: "type[Leaderboard] | None" = None,
) -> "Leaderboard":
    """Runs every method on every graph, graph after graph; the same call goes on where it stopped.

    `page` shows the records in another way.
    """
    there = data.available(root)
    if not there:
        raise InputError(f"{root} contains no graph; pass a folder of graphs with --root.")
    methods = [
        *(OURS + effort for effort in efforts),
        *(
            checks.choice("baseline", name, BASELINES | COMPETING_METHODS)
            for name in (BASELINES if baselines is None else baselines)
        ),
    ]
    tasks = []
    notes: list[str] = []
    chosen = names or there
    for name in chosen:
        checks.choice("graph", name.partition("@")[0], there)
    for name in chosen:
        tasks += _tasks(name, root, out, methods=methods, seeds=seeds, notes=notes)
    if not tasks:
        raise InputError(f"{root} contains no graph with labels for scoring: {' '.join(notes)}")
    records = []
    for done, task in enumerate(tasks, 1):
        cell_records = work_off([task], out / "cells")
        if progress is not None:
            progress(done, len(tasks), task.title)
        if cell_records[0].row.startswith(NOT_RUN):
            failed = cell_records[0]
            notes.append(f"{failed.column} on {failed.section}: {failed.row}")
            # a rerun tries again: what was missing may be there then
            task.file(out / "cells").unlink()
        else:
            records += cell_records
    about = (
        f"Labels from the cutoff on were hidden until a method had answered; {seeds} seeds, "
        "paired by node."
    )
    if page is not None:
        return page("competing-methods", "Competing methods", about, records, notes=notes)
    return Leaderboard("leaderboard", "Leaderboard", about, records, notes=notes)


class Leaderboard(Table):
    """Sections are graphs, rows are measures, columns are methods.

    Ours is the last effort, without any, plain.
    """

    def mean(self, graph: str, measure: str, method: str) -> float:
        records = self.by_place.get((graph, measure, method), [])
        return float(np.mean([record.score for record in records])) if records else math.nan

    def gap(self, graph: str, ours: str, theirs: str) -> Estimate | None:
        """Ours minus theirs, paired by node, and by seed where ours has several.

        A method with fewer seeds has its first result in place of those missing.
        """
        places = [self.by_place.get((graph, "accuracy", method)) for method in (ours, theirs)]
        if places[0] is None or places[1] is None:
            return None
        if len(places[0]) == 1:
            return paired(hit_rate(places[0]), hit_rate(places[1]))
        by_seed = {record.seed: record for record in places[1]}
        matched = [
            replace(by_seed.get(record.seed, places[1][0]), seed=record.seed)
            for record in places[0]
        ]
        return difference(places[0], matched)

    def markdown(self) -> str:
        graphs, methods = self.names(0), self.names(2)
        efforts = [method for method in methods if method.startswith(OURS)]
        ours = efforts[-1] if efforts else "plain"
        baselines = [method for method in methods if method != ours and method not in efforts]
        scores = np.array(
            [[self.mean(graph, "accuracy", method) for method in methods] for graph in graphs]
        )
        tables = [
            ExtraTable("Accuracy", ("graph", *methods), _accuracies(graphs, scores)),
            ExtraTable(
                f"{ours} minus the best single baseline in hindsight",
                ("graph", "best baseline", "difference", "95 %", "standard error"),
                self._against_best(graphs, ours, baselines),
            ),
            ExtraTable(
                "Over all graphs",
                ("method", "mean rank", f"{ours} minus it, mean over graphs", "95 %", "graphs"),
                self._overall(graphs, methods, scores, ours),
            ),
            ExtraTable(
                "Regret to the best candidate in hindsight",
                ("graph", "method", "best candidate", "regret"),
                [
                    line
                    for graph in graphs
                    for method in efforts
                    for line in self._regret(graph, method)
                ],
            ),
            ExtraTable(
                "Measures",
                (
                    "graph",
                    "method",
                    "macro-F1",
                    "log-loss",
                    "AUROC",
                    "calibration error",
                    "coverage",
                    "set size",
                    "forecast",
                    "seconds",
                    "MB",
                ),
                [self._measures(graph, method) for graph in graphs for method in methods],
            ),
        ]
        notes = "\n".join(f"- {note}" for note in self.notes)
        parts = [f"# {self.title}", self.about, *(str(table) for table in tables if table.lines)]
        return "\n\n".join([*parts, notes] if notes else parts) + "\n"

    def _against_best(
        self, graphs: Sequence[str], ours: str, baselines: Sequence[str]
    ) -> list[list[str]]:
        lines = []
        for graph in graphs:
            there = [name for name in baselines if (graph, "accuracy", name) in self.by_place]
            best = max(there, key=lambda name: self.mean(graph, "accuracy", name), default=None)
            if best is not None and (gap := self.gap(graph, ours, best)) is not None:
                lines.append([graph, best, *_interval(gap), f"{gap.error:.4f}"])
        return lines

    def _overall(
        self, graphs: Sequence[str], methods: Sequence[str], scores: np.ndarray, ours: str
    ) -> list[list[str]]:
        # what did not run comes last
        ranks = rankdata(-np.nan_to_num(scores, nan=-1.0), axis=1).mean(0)
        lines = []
        for column in np.argsort(ranks):
            pairs = (
                scores[:, [methods.index(ours), column]] if ours in methods else np.empty((0, 2))
            )
            pairs = pairs[~np.isnan(pairs).any(1)]
            compared = methods[column] != ours and len(pairs) > 1
            gap = _interval(paired(pairs[:, 0], pairs[:, 1])) if compared else ["", ""]
            lines.append(
                [
                    methods[column],
                    f"{ranks[column]:.2f}",
                    *gap,
                    str(int((~np.isnan(scores[:, column])).sum())),
                ]
            )
        return lines

    def _regret(self, graph: str, method: str) -> list[list[str]]:
        names = [row for place, row, column in self.by_place if (place, column) == (graph, method)]
        candidates = [row for row in names if row.startswith(CANDIDATE)]
        if not candidates:
            return []
        best = max(candidates, key=lambda row: self.mean(graph, row, method))
        regret = self.mean(graph, best, method) - self.mean(graph, "accuracy", method)
        return [[graph, method, best.removeprefix(CANDIDATE), f"{regret:+.4f}"]]

    def _measures(self, graph: str, method: str) -> list[str]:
        def formatted(measure: str, digits: int = 3) -> str:
            value = self.mean(graph, measure, method)
            return "–" if math.isnan(value) else f"{value:.{digits}f}"

        forecast = formatted("forecast")
        if forecast != "–":
            forecast += f" [{formatted('forecast low')}, {formatted('forecast high')}]"
        parts = [
            formatted(name)
            for name in (
                "macro-F1",
                "log-loss",
                "AUROC",
                "calibration error",
                "coverage",
                "set size",
            )
        ]
        return [graph, method, *parts, forecast, formatted("seconds", 0), formatted("memory", 0)]


class AgainstPlain(Leaderboard):
    """The same records, compared with `plain`: a row for each method, a column for each graph."""

    def markdown(self) -> str:
        graphs, methods = self.names(0), self.names(2)
        there = {(g, m): self.mean(g, "accuracy", m) for g in graphs for m in methods}
        lines = [
            [
                m,
                *(self._difference_cell(g, m, there) for g in graphs),
                self._average(graphs, m, there),
            ]
            for m in methods
        ]
        costs = [[m, *(self._cost(g, m) for g in graphs)] for m in methods]
        tables = [
            ExtraTable(
                "Accuracy of plain, and points above it with the 95 % interval, paired by node",
                ("method", *graphs, "mean"),
                lines,
            ),
            ExtraTable("Seconds of CPU and peak MB", ("method", *graphs), costs),
        ]
        notes = "\n".join(f"- {note}" for note in self.notes)
        return (
            "\n\n".join(
                [f"# {self.title}", self.about, *map(str, tables), *([notes] if notes else [])]
            )
            + "\n"
        )

    def _difference_cell(
        self, graph: str, method: str, scores: Mapping[tuple[str, str], float]
    ) -> str:
        if method == "plain":
            return f"{scores[graph, method]:.4f}"
        gap = self.gap(graph, method, "plain")
        if gap is None:
            return "–"
        mark = "**" if gap.significant else ""
        return f"{mark}{100 * gap.value:+.1f}{mark} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"

    def _average(
        self, graphs: Sequence[str], method: str, scores: Mapping[tuple[str, str], float]
    ) -> str:
        gaps = [
            100 * (scores[g, method] - scores[g, "plain"]) for g in graphs if (g, "plain") in scores
        ]
        gaps = [gap for gap in gaps if not math.isnan(gap)]
        return "" if method == "plain" or not gaps else f"{np.mean(gaps):+.1f} ({len(gaps)})"

    def _cost(self, graph: str, method: str) -> str:
        seconds, memory = (self.mean(graph, name, method) for name in ("seconds", "memory"))
        return "–" if math.isnan(seconds) else f"{seconds:.0f} s, {memory:.0f}"


def _accuracies(graphs: Sequence[str], scores: np.ndarray) -> list[list[str]]:
    def formatted(score: float, best: float) -> str:
        if math.isnan(score):
            return "–"
        mark = "**" if score == best else ""
        return f"{mark}{score:.4f}{mark}"

    best = np.nan_to_num(scores, nan=-1.0).max(1)
    return [
        [name, *(formatted(score, best[row]) for score in scores[row])]
        for row, name in enumerate(graphs)
    ]


def _interval(gap: Estimate) -> list[str]:
    mark = "**" if gap.significant else ""
    return [f"{mark}{gap.value:+.4f}{mark}", f"[{gap.low:+.4f}, {gap.high:+.4f}]"]
