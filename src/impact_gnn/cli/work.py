"""Commands that learn: `run`, `diagnose`, `backtest`, `predict`, `audit`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from impact_gnn.checks import InputError
from impact_gnn.cli.common import console, guarded, progress_bar, seconds, write_json
from impact_gnn.cli.graphs import Features, Graph, Json, opened

Cutoff = Annotated[int | None, typer.Option(help="Labels are known before this time; by default the graph tells.")]
Candidates = Annotated[str | None, typer.Option(help="Methods to try, separated by commas: plain,pmp+center,labels.")]
Folds = Annotated[int, typer.Option(help="Past periods to predict in the back-test.")]
Budget = Annotated[str, typer.Option(help="Time for the back-test: 90s, 10m, 2h.")]
Model = Annotated[str, typer.Option(help="auto, sign, sgc, gamlp, sehgnn or rphgnn.")]
Map = Annotated[str, typer.Option("--map", help="Of the features, in the report: pca, or tsne (needs scikit-learn).")]
Hops = Annotated[int, typer.Option(help="Steps along the edges.")]
Out = Annotated[Path, typer.Option("--out", help="Directory for the results.", show_default=False)]
Directed = Annotated[bool, typer.Option("--directed", help="Let messages run along the edges only, not back.")]


def run(
    graph: Graph,
    out: Out,
    cutoff: Cutoff = None,
    model: Model = "auto",
    candidates: Candidates = None,
    folds: Folds = 3,
    seeds: Annotated[int, typer.Option(help="Most seeds per fold.")] = 2,
    budget: Budget = "10m",
    hops: Hops = 2,
    features: Features = None,
    directed: Directed = False,
    embedding: Map = "pca",
    table: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    json: Json = None,
) -> None:
    """Check, diagnose, back-test, fit, predict: everything into one directory, with a report."""

    def work() -> None:
        from impact_gnn.job import Options
        from impact_gnn.job.run import Watch
        from impact_gnn.job.run import run as job

        if table not in ("csv", "parquet"):
            raise InputError(f"--table {table} is not known; choose csv or parquet.")
        found = opened(graph, features)
        options = Options(
            cutoff=cutoff, model=model, candidates=_methods(candidates), folds=folds, seeds=seeds,
            budget=seconds(budget), hops=hops, undirected=not directed, seed=seed, table=table,
            embedding=embedding,
        )  # fmt: skip
        with progress_bar("back-test") as update:

            def progress(stage: str, done: int, total: int, now: str) -> None:
                if stage == "back-test":
                    update(done, total, now)

            command = shlex.join(["impact", *sys.argv[1:]])
            summary = job(found, out, options, Watch(console.print, progress), command=command)
        write_json(json, summary)
        count = summary["predictions"]["count"]
        console.print(f"\n{summary['why']}")
        console.print(
            f"Predicted: {count:,} nodes at or after {summary['cutoff']}, in {out / summary['predictions']['file']}"
        )
        console.print(f"Report: {out / 'report.html'}")

    guarded(work)


def diagnose(
    graph: Graph, cutoff: Cutoff = None, features: Features = None, embedding: Map = "pca", json: Json = None
) -> None:
    """Measure the shift and check the assumptions behind each correction."""

    def work() -> None:
        from impact_gnn.diagnostics import advise
        from impact_gnn.diagnostics import diagnose as look

        found = opened(graph, features)
        view = found.masked(found.infer_cutoff() if cutoff is None else cutoff)
        diagnosis = look(view, embedding=embedding)
        advice = advise(diagnosis, view)
        console.print(f"{diagnosis}\n\n{advice}")
        write_json(json, {"diagnosis": diagnosis.as_dict(), "advice": advice.as_dict()})

    guarded(work)


def backtest(
    graph: Graph,
    cutoff: Cutoff = None,
    model: Model = "auto",
    candidates: Candidates = None,
    folds: Folds = 3,
    seeds: Annotated[int, typer.Option(help="Most seeds per fold.")] = 2,
    budget: Budget = "10m",
    hops: Hops = 2,
    features: Features = None,
    directed: Directed = False,
    json: Json = None,
) -> None:
    """Try corrections on the graph's own past and say which one pays, with intervals."""

    def work() -> None:
        from impact_gnn.backtesting import CANDIDATES
        from impact_gnn.backtesting import backtest as test
        from impact_gnn.job import Options

        found = opened(graph, features)
        at = found.infer_cutoff() if cutoff is None else cutoff
        pipeline = Options(model=model, hops=hops, undirected=not directed).settled(found).pipeline(at)
        chosen = _methods(candidates) or CANDIDATES
        with progress_bar("back-test") as update:
            outcome = test(
                found, candidates=chosen, folds=folds, seeds=seeds, cutoff=at, pipeline=pipeline,
                budget=seconds(budget), progress=update,
            )  # fmt: skip
        console.print(str(outcome))
        write_json(json, outcome.as_dict())

    guarded(work)


def predict(
    model: Annotated[Path, typer.Argument(help="The model/ directory of a run.", show_default=False)],
    graph: Graph,
    out: Annotated[Path, typer.Option(help="Table to write, .csv or .parquet.")] = Path("predictions.csv"),
    cutoff: Annotated[int | None, typer.Option(help="Predict from this time on; by default the fit's.")] = None,
    features: Features = None,
    json: Json = None,
) -> None:
    """Classify nodes with a model fitted before, also when the graph has grown since."""

    def work() -> None:
        from impact_gnn.job.predictions import write_predictions
        from impact_gnn.pipeline import Pipeline

        pipeline = Pipeline.load(model)
        found = opened(graph, features)
        stale = pipeline.stale(found)
        if stale is not None:
            console.print(f"[yellow]note:[/] {stale}")
        written = write_predictions(found, pipeline, out, cutoff=cutoff)
        console.print(f"{written['count']:,} predictions in {out}")
        write_json(json, written | {"stale": stale})

    guarded(work)


def audit(
    graph: Graph,
    trainer: Annotated[str, typer.Argument(help="module:function that takes a TemporalGraph and returns predictions.")],
    cutoff: Cutoff = None,
    json: Json = None,
) -> None:
    """Does a trainer see labels it must not? Runs it with scrambled target labels; exits 1 if it does."""

    def work() -> None:
        from impact_gnn.audit import audit_leakage

        outcome = audit_leakage(_imported(trainer), opened(graph), cutoff=cutoff)
        console.print(str(outcome))
        content = {"changed": outcome.changed, "control": outcome.control, "leaked": outcome.leaked}
        write_json(json, content | {"predictions": outcome.num_predictions})
        if outcome.leaked:
            raise typer.Exit(1)

    guarded(work)


def _methods(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _imported(name: str):  # type: ignore[no-untyped-def]
    import importlib
    import sys

    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"{name!r} cannot be imported ({error}); write module:function, for example train:main."
        ) from None
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise InputError(f"{name!r} is not a function; write module:function.")
    return found


__all__ = ["audit", "backtest", "diagnose", "predict", "run"]
