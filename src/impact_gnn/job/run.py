"""`run`: one call from a graph to predictions, the evidence for how they were made, and a page worth reading."""

from __future__ import annotations

import platform
import resource
import sys
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric

from impact_gnn import _files, checks
from impact_gnn._version import __version__
from impact_gnn.backtesting import backtest
from impact_gnn.checks import InputError
from impact_gnn.diagnostics import advise, diagnose
from impact_gnn.diagnostics.feature_map import EMBEDDINGS
from impact_gnn.graph import TemporalGraph
from impact_gnn.job.predictions import write_predictions
from impact_gnn.job.stages import Stages, fingerprint
from impact_gnn.pipeline import Pipeline
from impact_gnn.report import write_report


@dataclass(frozen=True)
class Options:
    """What a run may be told.

    Args:
        cutoff: Labels are known before it; by default the graph tells.
        model: "auto" (SIGN, or SeHGNN where there are several node types), or a name of `pipeline.MODELS`.
        candidates: Methods to back-test; by default those that the diagnosis advises.
        folds: Past periods to predict in the back-test.
        seeds: Most seeds per fold.
        budget: Seconds for the back-test.
        hops: Steps along the edges.
        undirected: Let messages run in both directions of every edge.
        seed: Seed of the final fit.
        table: "csv" or "parquet" for the predictions.
        embedding: "pca" or "tsne" (needs scikit-learn), for the map of the features in the report.
    """

    cutoff: int | None = None
    model: str = "auto"
    candidates: Sequence[str] | None = None
    folds: int = 3
    seeds: int = 2
    budget: float = 600.0
    hops: int = 2
    undirected: bool = True
    seed: int = 0
    table: str = "csv"
    embedding: str = "pca"

    def settled(self, graph: TemporalGraph) -> Options:
        """The same options with the model that "auto" stands for on this graph."""
        return replace(self, model="sehgnn" if graph.is_hetero else "sign") if self.model == "auto" else self

    def pipeline(self, cutoff: int, method: str = "plain") -> Pipeline:
        """The pipeline that settled options describe."""
        return Pipeline(self.model, method, cutoff, hops=self.hops, undirected=self.undirected, seed=self.seed)


@dataclass(frozen=True)
class Watch:
    """Whom to tell: a line per stage, and progress within the long ones (done, expected, what)."""

    say: Callable[[str], None] = lambda line: None
    progress: Callable[[str, int, int, str], None] = lambda stage, done, total, now: None


def run(
    graph: TemporalGraph,
    out: str | Path,
    options: Options | None = None,
    watch: Watch | None = None,
    *,
    command: str | None = None,
) -> dict[str, Any]:
    """Check, diagnose, back-test, fit, predict, explain; writes everything into `out` and returns the summary.

    A stage that is finished is kept in `out/work`; a run that was cut off and is started again with the same graph
    and options goes on from there. `command` is what was typed, for the report.
    """
    options, watch, out = (options or Options()).settled(graph), watch or Watch(), Path(out)
    checks.choice("embedding", options.embedding, EMBEDDINGS)
    if options.hops < 1:
        raise InputError(f"hops={options.hops} must be at least 1.")
    cutoff = graph.infer_cutoff() if options.cutoff is None else options.cutoff
    view = graph.masked(cutoff)
    for method in ("plain", *(options.candidates or ())):  # refuses bad options before any work
        options.pipeline(cutoff, method)
    asked = {k: v for k, v in asdict(options).items() if k not in ("budget", "table")} | {"cutoff": cutoff}
    stages = Stages.open(out, fingerprint(view, asked))
    begun = clock.monotonic()

    watch.say(str(view.summary()))
    found = stages.once("diagnosis", lambda: _diagnosis(view, options, watch))
    tested = stages.once("backtest", lambda: _backtest(view, options, cutoff, found, stages, watch))
    fitted = _fit(view, options, cutoff, tested["choice"], out / "model", stages, watch)
    watch.say("predicting")
    written = write_predictions(view, fitted, out / f"predictions.{options.table}")

    summary = {
        "graph": asdict(view.summary()),
        "cutoff": cutoff,
        "command": command,
        "options": asked | {"budget": options.budget, "table": options.table},
        "diagnosis": found["diagnosis"],
        "advice": found["advice"],
        "backtest": tested,
        "choice": tested["choice"],
        "why": tested["why"],
        "fit": stages.once("fit", dict),
        "predictions": written,
        "cost": {"seconds": clock.monotonic() - begun, "peak_memory_bytes": _peak_memory()},
        "versions": _versions(),
    }
    _files.write_json(out / "summary.json", summary)
    write_report(summary, out / "report.html")
    return summary


def _diagnosis(view: TemporalGraph, options: Options, watch: Watch) -> dict[str, Any]:
    watch.say("diagnosing the shift")
    found = diagnose(view, embedding=options.embedding)
    return {"diagnosis": found.as_dict(), "advice": advise(found, view).as_dict()}


def _backtest(
    view: TemporalGraph, options: Options, cutoff: int, found: dict[str, Any], stages: Stages, watch: Watch
) -> dict[str, Any]:
    advised = [row["method"] for row in found["advice"]["candidates"]]
    store = stages.folder / "fits"
    store.mkdir(exist_ok=True)
    watch.say("back-testing corrections on the past")
    try:
        outcome = backtest(
            view,
            candidates=options.candidates or advised,
            folds=options.folds,
            seeds=options.seeds,
            cutoff=cutoff,
            pipeline=options.pipeline(cutoff),
            budget=options.budget,
            store=store,
            progress=lambda done, total, now: watch.progress("back-test", done, total, now),
        )
    except InputError as error:
        if "nothing can be back-tested" not in str(error):
            raise
        why = f"Chosen: plain. The past is too short for a back-test: {error}"
        return {"rows": [], "choice": "plain", "why": why, "folds": [], "seconds": 0.0, "finished": False}
    return outcome.as_dict()


def _fit(
    view: TemporalGraph, options: Options, cutoff: int, method: str, where: Path, stages: Stages, watch: Watch
) -> Pipeline:
    def fit() -> dict[str, Any]:
        watch.say(f"fitting {method} on every label known")
        made = options.pipeline(cutoff, method).fit(
            view, progress=lambda epoch: watch.progress("fit", epoch.epoch, 0, f"loss {epoch.loss:.3f}")
        )
        made.save(where)
        assert made.fitted is not None
        score = made.fitted.valid_score
        return {"epochs": made.fitted.best_epoch, "valid_score": None if np.isnan(score) else score, "method": method}

    if not (where / "pipeline.json").exists():
        (stages.folder / "fit.json").unlink(missing_ok=True)
    stages.once("fit", fit)
    return Pipeline.load(where)


def _versions() -> dict[str, str]:
    return {
        "impact_gnn": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
