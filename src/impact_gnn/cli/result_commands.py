"""Commands for results of a run, and the audit of a trainer: `explain`, `evaluate`, ..."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import impact_gnn as ig
from impact_gnn.cli.common import command, console, write_json
from impact_gnn.cli.model_commands import load_model_and_graph
from impact_gnn.cli.options import (
    EngineOptions,
    Graph,
    GraphOptions,
    Json,
    RunDirectory,
    Since,
    TableOptions,
)


@command
def explain(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(help="The directory of a run, or its model/.", show_default=False)
    ],
    graph: Graph,
    source: TableOptions,
    engine: EngineOptions,
    node: Annotated[
        list[str],
        typer.Option(help="The id of a predicted node; may be repeated.", show_default=False),
    ],
    label: Annotated[
        str | None, typer.Option(help="Explain this class; by default the predicted one.")
    ] = None,
    most: Annotated[
        int, typer.Option(min=0, help="Maximum number of features and of neighbours.")
    ] = 10,
    cutoff: Since = None,
    json: Json = None,
) -> None:
    """Explain a prediction: which hops, features, neighbours and time weights it comes from."""
    from impact_gnn.explanations import Explainer

    model = directory / "model" if (directory / "model").is_dir() else directory
    ensemble, new_graph, _ = load_model_and_graph(model, graph, source, cutoff)
    chosen_engine = engine.choose(context.obj, new_graph)
    explainer = Explainer(
        ensemble,
        new_graph,
        cutoff=cutoff,
        engine=chosen_engine,
    )
    explanations = [explainer.explain(node_id, label=label, most=most) for node_id in node]
    console.print("\n\n".join(["", *map(str, explanations)]))
    write_json(json, explanations)


@command
def evaluate(
    directory: RunDirectory,
    labels: Annotated[
        str, typer.Argument(help="A table with id and label, or the graph with its new labels.")
    ],
    source: TableOptions,
    graph: Annotated[
        str | None,
        typer.Option(help="The graph, if labels are a table: the baseline is fitted on it."),
    ] = None,
    json: Json = None,
) -> None:
    """Compare a run with labels that arrived later; extends the report."""
    from impact_gnn.checks import guarded
    from impact_gnn.job import evaluate as job
    from impact_gnn.report import read_summary, sentences

    def load(path: str) -> ig.TemporalGraph:
        return load_model_and_graph(directory / "model", path, source)[1]

    new_labels = labels if job.is_label_table(labels) else load(labels)
    run_graph = None if graph is None else load(graph)
    evaluation = job.evaluate(directory, new_labels, graph=run_graph)
    summary = directory / "summary.json"
    with guarded(summary):  # its numbers may have been changed
        lines = sentences.describe_evaluation(read_summary(summary), evaluation)
    console.print("\n".join(lines))
    console.print(f"Report: {directory / 'report.html'}")
    write_json(json, evaluation)


@command
def watch(
    context: typer.Context,
    directory: RunDirectory,
    graph: Graph,
    source: TableOptions,
    engine: EngineOptions,
    json: Json = None,
) -> None:
    """Check new nodes, without labels, for a reason to retrain; exits 1 if there is one."""
    from impact_gnn._codec import encode
    from impact_gnn.job import watch as job

    new_graph = load_model_and_graph(directory / "model", graph, source)[1]
    result = job.watch(directory, new_graph, engine=engine.choose(context.obj, new_graph))
    console.print(str(result))
    write_json(json, encode(result) | {"refit": result.refit})
    if result.refit:
        raise typer.Exit(1)


@command
def report(directory: RunDirectory) -> None:
    """Write report.html again from the summary.json of a run."""
    from impact_gnn.checks import guarded
    from impact_gnn.report import read_summary, write_report

    summary = read_summary(directory / "summary.json")
    with guarded(directory / "summary.json"):  # its numbers may have been changed
        write_report(summary, directory / "report.html")
    console.print(f"Report: {directory / 'report.html'}")


@command
def audit(
    graph: Graph,
    source: GraphOptions,
    trainer: Annotated[
        str,
        typer.Argument(help="module:function that takes a TemporalGraph and returns predictions."),
    ],
    draws: Annotated[
        int, typer.Option(help="Permutations of the target labels, each run twice.")
    ] = 8,
    json: Json = None,
) -> None:
    """Run a trainer with permuted target labels; exits 1 if its predictions depend on them."""
    from impact_gnn._codec import encode

    reading, cutoff = source.load(graph)
    result = ig.audit_leakage(
        _import_function(trainer),
        reading.graph,
        cutoff=cutoff,
        draws=draws,
    )
    console.print(str(result))
    write_json(json, encode(result) | {"leaked": result.leaked})
    if result.leaked:
        raise typer.Exit(1)


def _import_function(name: str) -> Callable[[Any], Any]:
    from impact_gnn.checks import one_line

    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        trainer = getattr(importlib.import_module(module), function)
    except Exception as error:  # the user's module may raise anything
        raise ig.InputError(
            f"{name!r} cannot be imported ({type(error).__name__}: {one_line(error)}); "
            "use module:function, for example train:main."
        ) from error
    finally:
        sys.path.pop(0)
    if not callable(trainer):
        raise ig.InputError(f"{name!r} is not a function; use module:function.")
    return trainer
