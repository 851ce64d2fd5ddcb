"""Commands that fit models or use them: `run`, `diagnose`, `backtest`, `predict`, `methods`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from warnings import catch_warnings, filterwarnings

import typer
from rich.text import Text

import impact_gnn as ig
from impact_gnn.cli.common import command, console, require_file, write_json
from impact_gnn.cli.options import (
    EngineOptions,
    Graph,
    GraphOptions,
    Json,
    ModelOptions,
    SearchOptions,
    Since,
    TableOptions,
)

if TYPE_CHECKING:
    from impact_gnn._progress import Watcher
    from impact_gnn.report.summary import RunSummary


@command
def run(
    context: typer.Context,
    graph: Graph,
    source: GraphOptions,
    search: SearchOptions,
    model: ModelOptions,
    engine: EngineOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Directory for the results; by default impact-run/NAME."),
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            help="Format of the predictions: csv, raw.csv (no escaping of formulas) or parquet."
        ),
    ] = "csv",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    json: Json = None,
) -> None:
    """Check, diagnose, back-test, fit, predict: all results in one directory, with a report."""
    from impact_gnn._text import mask_passwords
    from impact_gnn.data.sources import is_database

    if out is None:
        name = "database" if is_database(graph) else Path(graph).resolve().stem
        out = Path("impact-run", name)
    keywords = search.keywords() | model.keywords()  # refuses a bad one before the graph is read
    typed = [mask_passwords(argument, is_address=True) for argument in sys.argv[1:]]
    with context.obj as watcher, _scratch_directory(out, engine.scratch) as scratch:
        loaded, cutoff = _load_and_report(watcher, graph, source)
        watcher.say(
            f"metric {model.metric} (--metric), effort {search.effort} (--effort), "
            f"output {out} (--out)"
        )
        chosen_engine = engine.choose(watcher, loaded, scratch)
        summary = ig.run(
            loaded,
            out,
            cutoff=cutoff,
            seed=seed,
            table=table,
            engine=chosen_engine,
            progress=watcher,
            command=shlex.join(["impact", *typed]),
            **keywords,
        )
        chosen_engine.clear()
    write_json(json, summary)
    _print_summary(summary, out)


def _print_summary(summary: RunSummary, out: Path) -> None:
    from impact_gnn.report.numbers import interval, period_named
    from impact_gnn.report.sentences import doubt_accuracy, time_corrections

    predictions = summary.prediction_summary
    console.print(f"\nSelected: {summary.backtest.selection}")
    console.print(
        f"Predictions: {predictions.count:,} nodes from {period_named(summary.since)} on, "
        f"in {out / predictions.file}"
    )
    accuracy = predictions.accuracy
    if accuracy is not None:
        title = summary.metric.title
        if title != "accuracy":
            score = summary.backtest.mean_check("score")
            baseline = summary.backtest.mean_check("plain_score")
            console.print(f"Back-tested {title}: {score:.3f} (baseline: {baseline:.3f})")
        console.print(
            f"Expected accuracy: {accuracy.value:.1%} (90% interval {interval(accuracy)})"
        )
    console.print(f"Do corrections for time help? {time_corrections(summary.backtest)}")
    console.print(f"Report: {out / 'report.html'}")
    for warning in filter(None, [*summary.graph.warnings, doubt_accuracy(summary.backtest)]):
        console.print(f"warning: {warning}")


@command
def diagnose(
    context: typer.Context,
    graph: Graph,
    source: GraphOptions,
    engine: EngineOptions,
    json: Json = None,
) -> None:
    """Measure the shift and check the assumptions behind each correction."""
    with context.obj as watcher:
        loaded, cutoff = _load_and_report(watcher, graph, source)
        view = loaded.masked(cutoff)
        chosen_engine = engine.choose(watcher, loaded)
        diagnosis = ig.diagnose(
            view,
            engine=chosen_engine,
            progress=watcher,
        )
    advice = ig.advise(diagnosis, view)
    console.print(f"{diagnosis}\n\n{advice}")
    write_json(json, {"diagnosis": diagnosis, "advice": advice})


@command
def backtest(
    context: typer.Context,
    graph: Graph,
    source: GraphOptions,
    search: SearchOptions,
    model: ModelOptions,
    engine: EngineOptions,
    json: Json = None,
) -> None:
    """Evaluate candidates on the graph's own past, and select an ensemble."""
    from impact_gnn.job.run import model_for

    keywords = search.keywords() | {"seeds": search.seeds or 1}
    pipeline = ig.Pipeline(**model.keywords() | {"model": model_for(model.model)})
    with context.obj as watcher:
        loaded, cutoff = _load_and_report(watcher, graph, source)
        result = ig.backtest(
            loaded,
            cutoff=cutoff,
            pipeline=pipeline,
            progress=watcher,
            engine=engine.choose(watcher, loaded),
            **keywords,
        )
    console.print(str(result))
    write_json(json, result)


@command
def predict(
    context: typer.Context,
    model: Annotated[
        Path, typer.Argument(help="The model/ directory of a run.", show_default=False)
    ],
    graph: Graph,
    source: TableOptions,
    engine: EngineOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="Table to write, .csv or .parquet; by default a new predictions.csv."),
    ] = None,
    nodes: Annotated[
        Path | None,
        typer.Option(
            help="Predict only the nodes in a file: an id per line, or a table with a column id."
        ),
    ] = None,
    cutoff: Since = None,
    json: Json = None,
) -> None:
    """Classify nodes with a fitted model, also after the graph has grown."""
    from impact_gnn import _files
    from impact_gnn._codec import encode
    from impact_gnn.data.files import read_ids
    from impact_gnn.job.predictions import write_predictions

    path = out or Path("predictions.csv")
    require_file(path)
    _refuse_existing(out, path)
    ids = None if nodes is None else read_ids(nodes)
    ensemble, new_graph, notes = load_model_and_graph(
        model, graph, source, cutoff, verify=ids is None
    )
    note = ensemble.reach(new_graph).note
    chosen_engine = None
    if ids is None or note is not None:
        chosen_engine = engine.choose(context.obj, new_graph)
    if ids is not None and note is not None:
        notes.append(note)
        _print_note(note)
    # The note is printed above; the library would warn of the same.
    with _files.atomic_file(path) as temporary, catch_warnings():
        if note is not None:
            filterwarnings("ignore", re.escape(note))
        summary = write_predictions(
            new_graph,
            ensemble,
            temporary,
            nodes=ids,
            cutoff=cutoff,
            engine=chosen_engine,
        )
        _refuse_existing(out, path)  # a user may have saved one meanwhile
    console.print(f"{summary.count:,} predictions in {path}")
    write_json(json, encode(summary) | {"notes": notes})


@command
def methods(json: Json = None) -> None:
    """List the method parts and the models that candidates are made of."""
    from impact_gnn import methods as registry
    from impact_gnn.estimators import MODELS

    parts = {}
    for name in registry.names():
        part = registry.get(name)
        console.print(f"{name:12} {part.kind.value:11} {part.summary}")
        parts[name] = {"kind": part.kind.value, "summary": part.summary}
    console.print()
    models = {name: spec.summary for name, spec in MODELS.items()}
    for name, summary in models.items():
        console.print(f"{name:12} {'model':11} {summary}")
    write_json(json, {"parts": parts, "models": models})


def _refuse_existing(out: Path | None, path: Path) -> None:
    """Refuse to replace a file that the user did not name."""
    if out is None and path.exists():
        raise ig.InputError(f"{path} exists; choose another file with --out.")


@contextmanager
def _scratch_directory(out: Path, parent: Path | None) -> Iterator[Path]:
    """Directory for hops on files: an interrupted run finds them again, others leave none.

    It lies next to `out`, or in `parent`, and belongs to this run alone: runs may share a parent.
    """
    from impact_gnn._files import is_locked, remove_empty_parents, safe_name

    out = out.absolute()
    scratch = out.with_name(f"{out.name}.scratch")
    if parent is not None:
        scratch = parent.absolute() / f"{safe_name(str(out))}.scratch"
    # A scratch directory that was there may belong to an interrupted run.
    is_new = not scratch.exists()
    with remove_empty_parents(scratch / "hops"):
        try:
            yield scratch
        except ig.InputError:
            if is_new and scratch.exists() and not is_locked(out / "work"):
                ig.engines.Disk(scratch).clear()
            raise
        ig.engines.Disk(scratch).clear()
    with suppress(OSError):  # it does not exist, or contains files of others
        scratch.rmdir()


def _load_and_report(
    watcher: Watcher, name: str, source: GraphOptions
) -> tuple[ig.TemporalGraph, int]:
    """Load the graph and its cutoff; report guessed column roles and the options for them."""
    from impact_gnn.data.spec import TOML

    watcher.say("reading the graph")  # not its address, which may contain a password
    reading, cutoff = source.load(name)
    graph = reading.graph
    notes = reading.notes
    if notes and source.roles is None and not Path(name, TOML).exists():
        notes.append(f"these column roles are guessed; impact init writes them to a {TOML} to edit")
    for note in notes:
        watcher.say(note)
    if cutoff is None:
        cutoff = graph.infer_cutoff()
        reason = "the first period after the last label"
        if graph.y is not None and (graph.y[graph.time >= cutoff] >= 0).any():
            reason = "the last period, whose labels are masked"
        watcher.say(f"cutoff {graph.name_of(cutoff)}, {reason} (--cutoff)")
    return graph, cutoff


def load_model_and_graph(
    model: Path,
    graph: str,
    source: TableOptions,
    cutoff: str | None = None,
    *,
    verify: bool = True,
) -> tuple[ig.Ensemble, ig.TemporalGraph, list[str]]:
    """A fitted model, a graph with the periods of the fit, and notes on how the two differ."""
    from impact_gnn.job.evaluate import periods_of

    ensemble = ig.Ensemble.load(model)
    loaded = source.read(
        graph,
        period=periods_of(ensemble, graph),
        verify=verify,
    )
    notes = ensemble.notes(loaded.graph, cutoff=cutoff)
    for note in notes:
        _print_note(note)
    return ensemble, loaded.graph, notes


def _print_note(note: str) -> None:
    console.print(Text.assemble(("note:", "yellow"), f" {note}"))
