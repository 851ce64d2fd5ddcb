"""Claim: the estimated cost of a fit is within a factor of two of its CPU seconds.

The constants of `impact_gnn.backtesting.effort` are fitted to these figures by hand, and
`tests/test_effort.py` compares the two.
"""

import time
from collections import defaultdict
from dataclasses import astuple
from pathlib import Path
from typing import Any

from impact_gnn.backtesting.candidates import is_applicable
from impact_gnn.backtesting.effort import Size, cost
from impact_gnn.backtesting.fits import FailedFit, FitTask, SharedGraph, try_fit
from impact_gnn.backtesting.folds import fold_of, windows
from impact_gnn.backtesting.search import with_candidate
from impact_gnn.engines import Memory
from impact_gnn.estimators import Candidate, Pipeline
from reproduction import data
from reproduction.bench import Goal, Report, in_process
from reproduction.bench.search import graph_of

CANDIDATES = (
    "smooth",
    "labels+smooth",
    "trees:labels+smooth",
    "linear:labels+smooth",
    "linear:plain",
    "linear:pmp+ends",
    "gamlp:labels",
    "sehgnn:labels",
    "gcn:plain",
)
"""At least one of every family of models; those without "smooth" show what smoothing costs."""


def costs(
    root: Path = Path("../shared/data"),
    graphs: str = "all",
    candidates: str = ",".join(CANDIDATES),
    json: Path | None = None,
) -> Report:
    """CPU seconds of fits and their estimates, by graph and candidate.

    Prints rows for the table of `tests/test_effort.py` as well.
    """
    rows = []
    goals = []
    measured = {}
    names = graphs.split(",")
    if graphs == "all":
        names = [*data.available(root), "ratings"]
    for name in names:
        fits = in_process(measure, str(root), name, candidates)
        measured[name] = tuple(fits["size"]), tuple(fit["CPU seconds"] for fit in fits["fits"])
        done = [fit for fit in fits["fits"] if fit["CPU seconds"] is not None]
        for fit in done:
            ratio = fit["estimate"] / fit["CPU seconds"]
            rows.append({"graph": name, **fit, "estimate / CPU seconds": ratio})
        estimated = sum(fit["estimate"] for fit in done) / sum(fit["CPU seconds"] for fit in done)
        factor = max(estimated, 1 / estimated)
        goals.append(Goal(f"factor between estimate and CPU seconds, {name}", -1, 2.0, factor))
    title = "a fit of a quick run, the mean over two folds; CPU seconds of all threads"
    report = Report(title, rows, goals).finish(json)
    for name, (size, seconds) in measured.items():
        print(f'    "{name}": ({size}, {seconds}),')
    return report


def measure(root: str, name: str, candidates: str) -> dict[str, Any]:
    """The size of a graph, and seconds and estimate of every candidate that applies."""
    graph, cutoff = graph_of(name, Path(root))
    view = graph.masked(cutoff)
    pipeline = Pipeline()
    size = Size.of(pipeline.inputs(view, Memory()))
    texts = [text for text in candidates.split(",") if is_applicable(Candidate.parse(text), view)]
    seconds = defaultdict(list)
    settings = {}
    for window in windows(view, 2):
        fold = fold_of(view, window)
        shared = SharedGraph(fold.graph, Memory())
        for text in texts:
            one = with_candidate(pipeline, Candidate.parse(text), seed=0, cutoff=window.first)
            # As in a search: the second fold has the number of epochs or trees of the first.
            task = FitTask.of(one, settings.get(text), name=text)
            start = time.process_time()
            result = try_fit(shared, task)
            if not isinstance(result, FailedFit):
                seconds[text].append(time.process_time() - start)
                settings[text] = result.settings
    fits: list[dict[str, Any]] = []
    for text in candidates.split(","):
        fit: dict[str, Any] = {"candidate": text, "CPU seconds": None, "estimate": None}
        if text in seconds:
            fit["CPU seconds"] = round(sum(seconds[text]) / len(seconds[text]), 2)
            fit["estimate"] = cost(Candidate.parse(text), size, "sign")
        fits.append(fit)
    return {"size": astuple(size), "fits": fits}
