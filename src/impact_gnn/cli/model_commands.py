"""Commands for models: `run`, `diagnose`, `backtest`, `predict`, `explain`, `evaluate`, ..."""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import impact_gnn as ig
from impact_gnn.cli.common import (
    EngineName,
    Memory,
    Scheduler,
    Scratch,
    command,
    console,
    engine_option,
    require_file,
    seconds,
    write_json,
)
from impact_gnn.cli.graph_commands import (
    Cutoff,
    Features,
    Graph,
    Json,
    LoadedGraph,
    Period,
    Roles,
    load_graph,
)

if TYPE_CHECKING:
    from impact_gnn._progress import Watcher
    from impact_gnn.report.summary import RunSummary

Candidates = Annotated[
    str | None,
    typer.Option(
        help="Candidates, separated by commas: plain,pmp+center,trees:labels (see impact methods)."
    ),
]
Effort = Annotated[str, typer.Option(help="How much is tried: quick, normal or thorough.")]
Folds = Annotated[
    int | None,
    typer.Option(min=1, help="Past windows to predict in the back-test; by default the effort's."),
]
Seeds = Annotated[
    int | None, typer.Option(min=1, max=1000, help="Seeds of every fit; by default the effort's.")
]
Budget = Annotated[
    str | None, typer.Option(help="Time for all of it, whatever the effort: 90s, 10m, 2h.")
]
Model = Annotated[
    str, typer.Option(help="Of candidates that name none: auto (sign), trees, linear, sehgnn, ...")
]
MetricName = Annotated[
    str,
    typer.Option(
        help="What is chosen by: accuracy, macro-f1, balanced-accuracy, log-loss or average-precision."
    ),
]
ClassWeight = Annotated[
    str, typer.Option(help="What classes count in training: none (as many as they are), balanced.")
]
FeatureMapName = Annotated[
    str, typer.Option("--feature-map", help="Of the features, in the report: pca or tsne.")
]
Hops = Annotated[int, typer.Option(help="Steps along the edges.")]
Embed = Annotated[
    str,
    typer.Option(help="For node types without features: spectral (by the graph's past) or none."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Directory for the results; by default impact-run/NAME."),
]
Directed = Annotated[
    bool, typer.Option("--directed", help="Let messages run along the edges only, not back.")
]


@command
def run(
    context: typer.Context,
    graph: Graph,
    out: Out = None,
    cutoff: Cutoff = None,
    model: Model = "auto",
    candidates: Candidates = None,
    effort: Effort = "normal",
    folds: Folds = None,
    seeds: Seeds = None,
    budget: Budget = None,
    metric: MetricName = "accuracy",
    class_weight: ClassWeight = "none",
    hops: Hops = 2,
    features: Features = None,
    period: Period = None,
    roles: Roles = None,
    directed: Directed = False,
    embed: Embed = "none",
    feature_map: FeatureMapName = "pca",
    table: Annotated[
        str,
        typer.Option(
            help="csv, raw.csv (ids that look like formulas stay as they are) or parquet."
        ),
    ] = "csv",
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    engine: EngineName = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Check, diagnose, back-test, fit, predict: everything into one directory, with a report."""
    from impact_gnn._text import mask_passwords
    from impact_gnn.data.sources import is_database

    if out is None:
        name = "database" if is_database(graph) else Path(graph).resolve().stem
        out = Path("impact-run", name)
    budget_seconds = None if budget is None else seconds(budget)
    with context.obj as watcher, _scratch_directory(out) as default_scratch:
        loaded = _load_and_report(watcher, graph, features, cutoff, period, roles)
        watcher.say(
            f"judged by {metric} (--metric), effort {effort} (--effort), results in {out} (--out)"
        )
        chosen_engine = engine_option(
            watcher, loaded.graph, engine, memory, scheduler, scratch or default_scratch
        )
        typed = [mask_passwords(argument, is_address=True) for argument in sys.argv[1:]]
        summary = ig.run(
            loaded.graph,
            out,
            cutoff=loaded.cutoff,
            model=model,
            candidates=_split(candidates),
            effort=effort,
            folds=folds,
            seeds=seeds,
            budget=budget_seconds,
            metric=metric,
            class_weight=_class_weight(class_weight),
            hops=hops,
            undirected=not directed,
            embed=embed,
            seed=seed,
            table=table,
            feature_map=feature_map,
            engine=chosen_engine,
            progress=watcher,
            command=shlex.join(["impact", *typed]),
        )
        chosen_engine.clear()
    write_json(json, summary)
    _print_summary(summary, out)


def _print_summary(summary: RunSummary, out: Path) -> None:
    predictions = summary.prediction_summary
    console.print(f"\nSelected: {summary.backtest.selection}")
    console.print(
        f"Predicted: {predictions.count:,} nodes at or after {summary.since}, "
        f"in {out / predictions.file}"
    )
    accuracy = predictions.accuracy
    if accuracy is not None:
        title = summary.metric.title
        if title != "accuracy":
            score = summary.backtest.mean_check("score")
            baseline = summary.backtest.mean_check("plain_score")
            console.print(f"Back-tested {title}: {score:.3f} (plain: {baseline:.3f})")
        console.print(
            f"Expected accuracy: {accuracy.value:.1%} "
            f"(90% interval {100 * accuracy.low:.1f}-{accuracy.high:.1%})"
        )
    console.print(f"Report: {out / 'report.html'}")
    for warning in summary.graph.warnings:
        console.print(f"warning: {warning}")


@command
def diagnose(
    context: typer.Context,
    graph: Graph,
    cutoff: Cutoff = None,
    features: Features = None,
    period: Period = None,
    roles: Roles = None,
    feature_map: FeatureMapName = "pca",
    engine: EngineName = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Measure the shift and check the assumptions behind each correction."""
    with context.obj as watcher:
        loaded = _load_and_report(watcher, graph, features, cutoff, period, roles)
        time = loaded.graph.infer_cutoff() if loaded.cutoff is None else loaded.cutoff
        view = loaded.graph.masked(time)
        chosen_engine = engine_option(watcher, loaded.graph, engine, memory, scheduler, scratch)
        diagnosis = ig.diagnose(
            view, feature_map=feature_map, engine=chosen_engine, progress=watcher
        )
    advice = ig.advise(diagnosis, view)
    console.print(f"{diagnosis}\n\n{advice}")
    write_json(json, {"diagnosis": diagnosis, "advice": advice})


@command
def backtest(
    context: typer.Context,
    graph: Graph,
    cutoff: Cutoff = None,
    model: Model = "auto",
    candidates: Candidates = None,
    effort: Effort = "normal",
    folds: Folds = None,
    seeds: Seeds = None,
    budget: Budget = None,
    metric: MetricName = "accuracy",
    class_weight: ClassWeight = "none",
    hops: Hops = 2,
    features: Features = None,
    period: Period = None,
    roles: Roles = None,
    directed: Directed = False,
    embed: Embed = "none",
    engine: EngineName = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Try corrections on the graph's own past and say which one pays, with intervals."""
    from impact_gnn.job.run import model_for

    pipeline = ig.Pipeline(
        model_for(model),
        hops=hops,
        undirected=not directed,
        embed=embed,
        metric=metric,
        class_weight=_class_weight(class_weight),
    )
    with context.obj as watcher:
        loaded = _load_and_report(watcher, graph, features, cutoff, period, roles)
        result = ig.backtest(
            loaded.graph,
            candidates=_split(candidates),
            effort=effort,
            folds=folds,
            seeds=1 if seeds is None else seeds,
            cutoff=loaded.cutoff,
            pipeline=pipeline,
            budget=None if budget is None else seconds(budget),
            progress=watcher,
            engine=engine_option(watcher, loaded.graph, engine, memory, scheduler, scratch),
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
    out: Annotated[
        Path | None,
        typer.Option(help="Table to write, .csv or .parquet; by default a new predictions.csv."),
    ] = None,
    cutoff: Annotated[
        str | None, typer.Option(help="Predict from this time on; by default the fit's.")
    ] = None,
    features: Features = None,
    roles: Roles = None,
    engine: EngineName = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Classify nodes with a model fitted before, also when the graph has grown since."""
    from impact_gnn._codec import encode
    from impact_gnn.job.predictions import write_predictions

    if out is None:
        out = Path("predictions.csv")
        if out.exists():
            raise ig.InputError(f"{out} exists; name a file with --out.")
    require_file(out)
    ensemble, new_graph, notes = _load_model_and_graph(model, graph, features, cutoff, roles)
    chosen_engine = engine_option(context.obj, new_graph, engine, memory, scheduler, scratch)
    summary = write_predictions(new_graph, ensemble, out, cutoff=cutoff, engine=chosen_engine)
    console.print(f"{summary.count:,} predictions in {out}")
    write_json(json, encode(summary) | {"notes": notes})


@command
def explain(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(help="The directory of a run, or its model/.", show_default=False)
    ],
    graph: Graph,
    node: Annotated[
        list[str],
        typer.Option(help="The id of a predicted node; may be repeated.", show_default=False),
    ],
    label: Annotated[
        str | None, typer.Option(help="Speak for this class; by default the predicted one.")
    ] = None,
    most: Annotated[
        int, typer.Option(min=0, help="Features and neighbours that are named at most.")
    ] = 10,
    cutoff: Annotated[
        str | None, typer.Option(help="Predict from this time on; by default the fit's.")
    ] = None,
    features: Features = None,
    roles: Roles = None,
    engine: EngineName = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Say why a node was given its label: which hops, features, neighbours and time weights made the difference."""
    from impact_gnn.explanations import Explainer

    model = directory / "model" if (directory / "model").is_dir() else directory
    ensemble, new_graph, _ = _load_model_and_graph(model, graph, features, cutoff, roles)
    chosen_engine = engine_option(context.obj, new_graph, engine, memory, scheduler, scratch)
    explainer = Explainer(ensemble, new_graph, cutoff=cutoff, engine=chosen_engine)
    explanations = [explainer.explain(node_id, label=label, most=most) for node_id in node]
    console.print("\n\n".join(["", *map(str, explanations)]))
    write_json(json, explanations)


@command
def evaluate(
    directory: Annotated[
        Path, typer.Argument(help="The directory of a finished run.", show_default=False)
    ],
    labels: Annotated[
        str, typer.Argument(help="A table with id and label, or the graph with its new labels.")
    ],
    graph: Annotated[
        str | None, typer.Option(help="The graph, where labels are a table: plain is fitted on it.")
    ] = None,
    features: Features = None,
    roles: Roles = None,
    json: Json = None,
) -> None:
    """When labels have come: how right were the forecast, the choice and the intervals? Adds it to the report."""
    from impact_gnn.checks import guarded
    from impact_gnn.job import evaluate as job
    from impact_gnn.report import read_summary, sentences

    model = directory / "model"
    if not job.is_label_table(labels):
        labelled_graph = _load_model_and_graph(model, labels, features, None, roles)[1]
        evaluation = job.evaluate(directory, labelled_graph)
    elif graph is not None:
        run_graph = _load_model_and_graph(model, graph, features, None, roles)[1]
        evaluation = job.evaluate(directory, labels, graph=run_graph)
    else:
        evaluation = job.evaluate(directory, labels)
    summary = directory / "summary.json"
    with guarded(summary):  # its numbers may have been changed
        lines = sentences.describe_evaluation(read_summary(summary), evaluation)
    console.print("\n".join(lines))
    console.print(f"Report: {directory / 'report.html'}")
    write_json(json, evaluation)


@command
def watch(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(help="The directory of a finished run.", show_default=False)
    ],
    graph: Graph,
    features: Features = None,
    roles: Roles = None,
    engine: EngineName = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Should the model be fitted again? Looks at new nodes, without labels; exits 1 if it should."""
    from impact_gnn._codec import encode
    from impact_gnn.job import watch as job

    new_graph = _load_model_and_graph(directory / "model", graph, features, None, roles)[1]
    chosen_engine = engine_option(context.obj, new_graph, engine, memory, scheduler, scratch)
    result = job.watch(directory, new_graph, engine=chosen_engine)
    console.print(str(result))
    write_json(json, encode(result) | {"refit": result.refit})
    if result.refit:
        raise typer.Exit(1)


@command
def report(
    directory: Annotated[
        Path, typer.Argument(help="The directory of a finished run.", show_default=False)
    ],
) -> None:
    """Draw report.html from the summary.json of a run once more."""
    from impact_gnn.checks import guarded
    from impact_gnn.report import read_summary, write_report

    summary = read_summary(directory / "summary.json")
    with guarded(directory / "summary.json"):  # its numbers may have been changed
        write_report(summary, directory / "report.html")
    console.print(f"Report: {directory / 'report.html'}")


@command
def audit(
    graph: Graph,
    trainer: Annotated[
        str,
        typer.Argument(help="module:function that takes a TemporalGraph and returns predictions."),
    ],
    cutoff: Cutoff = None,
    draws: Annotated[
        int | None,
        typer.Option(
            help="Permutations of the target labels; each is run twice. By default the function's."
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Does a trainer see labels it must not? Runs it with permuted target labels; exits 1 if it does."""
    from impact_gnn._codec import encode

    loaded = load_graph(graph, cutoff=cutoff)
    result = ig.audit_leakage(
        _import_function(trainer),
        loaded.graph,
        cutoff=loaded.cutoff,
        draws=ig.audit.DRAWS if draws is None else draws,
    )
    console.print(str(result))
    write_json(json, encode(result) | {"leaked": result.leaked})
    if result.leaked:
        raise typer.Exit(1)


@contextmanager
def _scratch_directory(out: Path) -> Iterator[Path]:
    """Directory for hops on files: an interrupted run finds them again, others leave none."""
    from impact_gnn._files import is_locked, no_trace

    out = out.absolute()
    scratch = out.with_name(f"{out.name}.scratch")
    is_new = not scratch.exists()
    with no_trace(scratch / "hops"):
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
    watcher: Watcher,
    graph: str,
    features: Path | None,
    cutoff: str | None,
    period: str | None,
    roles: Path | None,
) -> LoadedGraph:
    """Load the graph; report what was guessed about it and how to change that."""
    from impact_gnn.data.spec import TOML

    watcher.say("reading the graph")  # not its address, which may contain a password
    loaded = load_graph(graph, features, cutoff=cutoff, period=period, roles=roles)
    if loaded.notes and roles is None and not Path(graph, TOML).exists():
        loaded.notes.append(
            f"all this is guessed: impact init writes it down in a {TOML}, to be changed there"
        )
    for note in loaded.notes:
        watcher.say(note)
    if cutoff is None:
        time = loaded.graph.infer_cutoff()
        labels = loaded.graph.y
        reason = "the first period after the last label"
        if labels is not None and (labels[loaded.graph.time >= time] >= 0).any():
            reason = "the last period, whose labels are hidden"
        watcher.say(f"cutoff {loaded.graph.name_of(time)}, {reason} (--cutoff)")
    return loaded


def _load_model_and_graph(
    model: Path, graph: str, features: Path | None, cutoff: str | None, roles: Path | None
) -> tuple[ig.Ensemble, ig.TemporalGraph, list[str]]:
    """A fitted model, a graph with the periods of the fit, and notes on how the two differ."""
    from impact_gnn.job.evaluate import periods_of

    ensemble = ig.Ensemble.load(model)
    loaded = load_graph(graph, features, period=periods_of(ensemble, graph), roles=roles)
    notes = ensemble.notes(loaded.graph, cutoff=cutoff)
    for note in notes:
        console.print(Text.assemble(("note:", "yellow"), f" {note}"))
    return ensemble, loaded.graph, notes


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


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _class_weight(text: str) -> str | None:
    return None if text == "none" else text


def _import_function(name: str) -> Callable[[Any], Any]:
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        trainer = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ig.InputError(
            f"{name!r} cannot be imported ({error}); write module:function, for example train:main."
        ) from None
    finally:
        sys.path.pop(0)
    if not callable(trainer):
        raise ig.InputError(f"{name!r} is not a function; write module:function.")
    return trainer
