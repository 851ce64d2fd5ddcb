"""Commands that learn: `run`, `diagnose`, `backtest`, `predict`, `explain`, `evaluate`, `watch`, `report`, `audit`."""

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
    Kind,
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
from impact_gnn.cli.graphs import Cutoff, Features, Graph, Json, Opened, Period, Roles, opened

if TYPE_CHECKING:
    from impact_gnn._progress import Watcher

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
Judged = Annotated[
    str,
    typer.Option(
        help="What is chosen by: accuracy, macro-f1, balanced-accuracy, log-loss or average-precision."
    ),
]
ClassWeight = Annotated[
    str, typer.Option(help="What classes count in training: none (as many as they are), balanced.")
]
Map = Annotated[str, typer.Option("--map", help="Of the features, in the report: pca or tsne.")]
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
    metric: Judged = "accuracy",
    class_weight: ClassWeight = "none",
    hops: Hops = 2,
    features: Features = None,
    period: Period = None,
    roles: Roles = None,
    directed: Directed = False,
    embed: Embed = "none",
    embedding: Map = "pca",
    table: Annotated[
        str,
        typer.Option(
            help="csv, raw.csv (ids that look like formulas stay as they are) or parquet."
        ),
    ] = "csv",
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    engine: Kind = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Check, diagnose, back-test, fit, predict: everything into one directory, with a report."""
    from impact_gnn._text import mask_passwords
    from impact_gnn.data.sources import is_database

    limit = None if budget is None else seconds(budget)
    out = out or Path(
        "impact-run", "database" if is_database(graph) else Path(graph).resolve().stem
    )
    with context.obj as watcher, _scratch(out) as kept:
        found = _opened(watcher, graph, features, cutoff, period, roles)
        watcher.say(
            f"judged by {metric} (--metric), effort {effort} (--effort), results in {out} (--out)"
        )
        given = found.graph
        place = engine_option(watcher, given, engine, memory, scheduler, scratch or kept)
        summary = ig.run(
            given,
            out,
            cutoff=found.cutoff,
            model=model,
            candidates=_methods(candidates),
            effort=effort,
            folds=folds,
            seeds=seeds,
            budget=limit,
            metric=metric,
            class_weight=_class_weight(class_weight),
            hops=hops,
            undirected=not directed,
            embed=embed,
            seed=seed,
            table=table,
            embedding=embedding,
            engine=place,
            progress=watcher,
            command=shlex.join(
                ["impact", *(mask_passwords(one, is_address=True) for one in sys.argv[1:])]
            ),
        )
        place.clear()
    write_json(json, summary)
    predicted = summary.predicted
    console.print(f"\nSelected: {summary.backtest.selection}")
    console.print(
        f"Predicted: {predicted.count:,} nodes at or after {given.name_of(summary.cutoff)}, in {out / predicted.file}"
    )
    if (right := predicted.accuracy) is not None:
        if (judged := summary.metric).title != "accuracy":
            ours, plain = (
                summary.backtest.mean_check("score"),
                summary.backtest.mean_check("plain_score"),
            )
            console.print(f"Back-tested {judged.title}: {ours:.3f} (plain: {plain:.3f})")
        console.print(
            f"Expected accuracy: {right.value:.1%} "
            f"(90% interval {100 * right.low:.1f}-{right.high:.1%})"
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
    embedding: Map = "pca",
    engine: Kind = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Measure the shift and check the assumptions behind each correction."""
    with context.obj as watcher:
        found = _opened(watcher, graph, features, cutoff, period, roles)
        given = found.graph
        view = given.masked(given.infer_cutoff() if found.cutoff is None else found.cutoff)
        place = engine_option(watcher, given, engine, memory, scheduler, scratch)
        diagnosis = ig.diagnose(view, embedding=embedding, engine=place, progress=watcher)
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
    metric: Judged = "accuracy",
    class_weight: ClassWeight = "none",
    hops: Hops = 2,
    features: Features = None,
    period: Period = None,
    roles: Roles = None,
    directed: Directed = False,
    embed: Embed = "none",
    engine: Kind = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Try corrections on the graph's own past and say which one pays, with intervals."""
    from impact_gnn.job.run import model_for

    judged: dict[str, Any] = {"metric": metric, "class_weight": _class_weight(class_weight)}
    pipeline = ig.Pipeline(
        model_for(model), hops=hops, undirected=not directed, embed=embed, **judged
    )
    with context.obj as watcher:
        found = _opened(watcher, graph, features, cutoff, period, roles)
        outcome = ig.backtest(
            found.graph,
            candidates=_methods(candidates),
            effort=effort,
            folds=folds,
            seeds=1 if seeds is None else seeds,
            cutoff=found.cutoff,
            pipeline=pipeline,
            budget=None if budget is None else seconds(budget),
            progress=watcher,
            engine=engine_option(watcher, found.graph, engine, memory, scheduler, scratch),
        )
    console.print(str(outcome))
    write_json(json, outcome)


@command
def predict(
    context: typer.Context,
    model: Annotated[
        Path, typer.Argument(help="The model/ directory of a run.", show_default=False)
    ],
    graph: Graph,
    out: Annotated[Path, typer.Option(help="Table to write, .csv or .parquet.")] = Path(
        "predictions.csv"
    ),
    cutoff: Annotated[
        str | None, typer.Option(help="Predict from this time on; by default the fit's.")
    ] = None,
    features: Features = None,
    roles: Roles = None,
    engine: Kind = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Classify nodes with a model fitted before, also when the graph has grown since."""
    from impact_gnn._codec import encode
    from impact_gnn.job.predictions import write_predictions

    require_file(out)
    fitted, given, notes = _with_model(model, graph, features, cutoff, roles)
    place = engine_option(context.obj, given, engine, memory, scheduler, scratch)
    written = write_predictions(given, fitted, out, cutoff=cutoff, engine=place)
    console.print(f"{written.count:,} predictions in {out}")
    write_json(json, encode(written) | {"notes": notes})


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
    engine: Kind = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Say why a node was given its label: which hops, features, neighbours and time weights made the difference."""
    from impact_gnn.pipeline import Explainer

    model = directory / "model" if (directory / "model").is_dir() else directory
    fitted, given, _ = _with_model(model, graph, features, cutoff, roles)
    place = engine_option(context.obj, given, engine, memory, scheduler, scratch)
    explainer = Explainer(fitted, given, cutoff=cutoff, engine=place)
    found = [explainer.explain(one, label=label, most=most) for one in node]
    console.print("\n\n".join(["", *map(str, found)]))
    write_json(json, found)


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
    from impact_gnn.job.evaluate import evaluate as held
    from impact_gnn.job.evaluate import is_label_table
    from impact_gnn.report import read_summary, sentences

    came, whole = is_label_table(labels), None
    if (place := graph if came else labels) is not None:
        whole = _with_model(directory / "model", place, features, None, roles)[1]
    found = held(directory, labels if came or whole is None else whole, graph=whole)
    summary = directory / "summary.json"
    with guarded(summary):  # whose numbers may be odd
        lines = sentences.came_true(read_summary(summary), found)
    console.print("\n".join(lines))
    console.print(f"Report: {directory / 'report.html'}")
    write_json(json, found)


@command
def watch(
    context: typer.Context,
    directory: Annotated[
        Path, typer.Argument(help="The directory of a finished run.", show_default=False)
    ],
    graph: Graph,
    features: Features = None,
    roles: Roles = None,
    engine: Kind = "auto",
    memory: Memory = None,
    scheduler: Scheduler = None,
    scratch: Scratch = None,
    json: Json = None,
) -> None:
    """Should the model be fitted again? Looks at new nodes, without labels; exits 1 if it should."""
    from impact_gnn._codec import encode
    from impact_gnn.job.watch import watch as look

    grown = _with_model(directory / "model", graph, features, None, roles)[1]
    outcome = look(
        directory,
        grown,
        engine=engine_option(context.obj, grown, engine, memory, scheduler, scratch),
    )
    console.print(str(outcome))
    write_json(json, encode(outcome) | {"refit": outcome.refit})
    if outcome.refit:
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
    with guarded(directory / "summary.json"):  # whose numbers may be odd
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

    found, draws = opened(graph, cutoff=cutoff), ig.audit.DRAWS if draws is None else draws
    outcome = ig.audit_leakage(_imported(trainer), found.graph, cutoff=found.cutoff, draws=draws)
    console.print(str(outcome))
    write_json(json, encode(outcome) | {"leaked": outcome.leaked})
    if outcome.leaked:
        raise typer.Exit(1)


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """For the hops of a run on files: one that was cut off finds them again, a finished or refused one leaves none."""
    from impact_gnn._files import is_locked, no_trace

    place = (out := out.absolute()).with_name(f"{out.name}.scratch")
    begins = not place.exists()
    with no_trace(place / "hops"):
        try:
            yield place
        except ig.InputError:
            if begins and place.exists() and not is_locked(out / "work"):
                ig.engines.Disk(place).clear()
            raise
        ig.engines.Disk(place).clear()
    with suppress(OSError):  # it is not there, or holds what is not ours
        place.rmdir()


def _opened(
    watcher: Watcher,
    graph: str,
    features: Path | None,
    cutoff: str | None,
    period: str | None,
    roles: Path | None,
) -> Opened:
    """The graph, after saying what was guessed about it and how to change that."""
    from impact_gnn.data.spec import TOML

    watcher.say("reading the graph")  # whose address may hold a password
    found = opened(graph, features, cutoff=cutoff, period=period, roles=roles)
    if found.notes and roles is None and not Path(graph, TOML).exists():
        found.notes.append(
            f"all this is guessed: impact init writes it down in a {TOML}, to be changed there"
        )
    for note in found.notes:
        watcher.say(note)
    if cutoff is None:
        given, at = found.graph, found.graph.infer_cutoff()
        hidden = given.y is not None and (given.y[given.time >= at] >= 0).any()
        why = (
            "the last period, whose labels are hidden"
            if hidden
            else "the first period after the last label"
        )
        watcher.say(f"cutoff {given.name_of(at)}, {why} (--cutoff)")
    return found


def _with_model(
    model: Path, graph: str, features: Path | None, cutoff: str | None, roles: Path | None
) -> tuple[ig.Ensemble, ig.TemporalGraph, list[str]]:
    """A fitted model, a graph read by the periods of its fit, and what was said about the two."""
    from impact_gnn.data.files import is_table

    fitted = ig.Ensemble.load(model)
    period = (fitted.fitted.schema.periods or "whole") if is_table(graph) else None
    given = opened(graph, features, period=period, roles=roles).graph
    notes = fitted.notes(given, cutoff=cutoff)
    for note in notes:
        console.print(Text.assemble(("note:", "yellow"), f" {note}"))
    return fitted, given, notes


@command
def methods(json: Json = None) -> None:
    """List the method parts and the models that candidates are made of."""
    from impact_gnn import methods as registry
    from impact_gnn.heads import MODELS

    parts = [registry.get(name) for name in registry.names()]
    for part in parts:
        console.print(f"{part.name:12} {part.kind.value:11} {part.summary}")
    console.print()
    for name, spec in MODELS.items():
        console.print(f"{name:12} {'model':11} {spec.summary}")
    write_json(
        json,
        {
            "parts": {
                part.name: {"kind": part.kind.value, "summary": part.summary} for part in parts
            },
            "models": {name: spec.summary for name, spec in MODELS.items()},
        },
    )


def _methods(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _class_weight(text: str) -> str | None:
    return None if text == "none" else text


def _imported(name: str) -> Callable[[Any], Any]:
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
