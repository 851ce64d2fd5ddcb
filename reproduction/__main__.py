"""`python -m reproduction`: the commands; what they need is imported when they run."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from impact_gnn.checks import InputError
from reproduction.bench import (
    costs,
    hetero,
    layerwise,
    newnodes,
    outofcore,
    papers,
    passes,
    propagation,
    search,
    startup,
    tables,
    training,
)

if TYPE_CHECKING:
    from reproduction.results import Table

app = typer.Typer(
    name="python -m reproduction",
    help="The paper's tables and figures run again, and claims about speed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Speed and memory as ratios taken within one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")
for _function in (
    propagation.propagation,
    outofcore.outofcore,
    layerwise.layerwise,
    passes.jjnorm,
    passes.weights,
    passes.connectivity,
    passes.tsbm,
    hetero.metapaths,
    hetero.sehgnn_epoch,
    papers.papers,
    tables.tables,
    newnodes.newnodes,
    search.search,
    startup.startup,
    costs.costs,
    training.training,
):
    bench.command()(_function)

Out = Annotated[
    Path | None, typer.Option(help="Directory for records and page; a rerun continues.")
]
Root = Annotated[Path | None, typer.Option(help="Folder of the real graphs, or OGB's root.")]
Workers = Annotated[int, typer.Option(help="Processes of one thread each.")]
Graphs = Annotated[int, typer.Option(help="Graphs per cell.")]
Protocols = Annotated[
    str, typer.Option(help="released, text, theory, or some separated by commas.")
]
Models = Annotated[str | None, typer.Option(help="Some of the models, separated by commas.")]
Methods = Annotated[str | None, typer.Option(help="Some of the methods, separated by commas.")]
Seeds = Annotated[int, typer.Option(help="Repetitions.")]


@app.command()
def table1(
    seeds: Seeds = 5,
    root: Root = None,
    data: Annotated[
        str | None, typer.Option(help="tsbm, aan, scotus, ...; by default all that are there.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="sign, or sehgnn on graphs of several types.")
    ] = "sign",
    epochs: int = 100,
    most_rows: Annotated[int, typer.Option(help="Nodes to train on at most.")] = 20_000,
    standardize: Annotated[
        bool, typer.Option(help="Inputs with mean 0 and variance 1 per column.")
    ] = True,
    out: Out = None,
) -> None:
    """Chronological against random split, with and without a time embedding."""
    from reproduction.table1 import Model
    from reproduction.table1 import table1 as run

    place, how = (
        out or Path("out/table1"),
        Model(model, epochs=epochs, most_rows=most_rows, standardize=standardize),
    )
    _run_and_print(
        place,
        lambda progress: run(
            seeds, place, names=_split(data), root=root, model=how, progress=progress
        ),
    )


@app.command()
def table2(
    dataset: Annotated[
        str,
        typer.Option(help="mag, arxiv, papers100M, arxiv-svd, aan, hetero-tsbm, acl_hetero, ..."),
    ],
    root: Root = None,
    seeds: Annotated[int | None, typer.Option(help="By default the study's.")] = None,
    models: Models = None,
    methods: Methods = None,
    features: Annotated[
        Path | None, typer.Option(help="A .npy file whose rows replace the features.")
    ] = None,
    out: Out = None,
) -> None:
    """The paper's models with its corrections on real graphs, beside the published numbers."""
    from impact_gnn import checks
    from reproduction.studies import STUDIES
    from reproduction.table2 import table2 as run

    place, study = out or Path("out/table2"), STUDIES[checks.choice("dataset", dataset, STUDIES)]
    picked = _split(models), _split(methods)
    _run_and_print(
        place,
        lambda progress: run(
            study,
            place,
            root=root,
            seeds=seeds,
            models=picked[0],
            methods=picked[1],
            features=features,
            progress=progress,
        ),
    )


@app.command()
def table3(
    graphs: Graphs = 200,
    protocol: Protocols = "released",
    models: Models = None,
    columns: Methods = None,
    rows: Annotated[str | None, typer.Option(help="fixed, random, random-zero-diagonal.")] = None,
    gamma: Annotated[float, typer.Option(help="γ of the row fixed.")] = 0.55,
    nodes: int = 2000,
    epochs: int = 200,
    out: Out = None,
    workers: Workers = 2,
) -> None:
    """Every method on the same synthetic graphs, beside the published numbers."""
    from reproduction.synthetic import MODELS, Options, table3_rows
    from reproduction.table3 import SyntheticStudy

    place = out or Path("out/table3")
    study = SyntheticStudy(
        name="table3",
        graphs=graphs,
        rows=table3_rows(_split(rows), gamma),
        protocols=protocol.split(","),
        models=_split(models) or MODELS,
        columns=_split(columns),
        options=Options(nodes, epochs),
    )
    _run_and_print(place, lambda progress: study.run(place, workers=workers, progress=progress))


@app.command()
def gamma(
    graphs: Graphs = 20,
    gammas: Annotated[str | None, typer.Option(help="Some decays, such as 0.4,0.7.")] = None,
    protocol: Protocols = "released",
    models: Models = None,
    columns: Methods = None,
    nodes: int = 2000,
    epochs: int = 200,
    out: Out = None,
    workers: Workers = 2,
) -> None:
    """The figure of gains against the decay γ."""
    from reproduction import plots
    from reproduction.synthetic import MODELS, Options
    from reproduction.table3 import GAMMA_COLUMNS, GAMMAS, SyntheticStudy, gain_figure, gamma_rows

    place = out or Path("out/figure-gamma")
    rows = gamma_rows(_numbers(gammas) or GAMMAS)
    study = SyntheticStudy(
        name="figure-gamma",
        graphs=graphs,
        rows=rows,
        protocols=protocol.split(","),
        models=_split(models) or MODELS,
        columns=_split(columns) or GAMMA_COLUMNS,
        options=Options(nodes, epochs),
    )
    table = _run_and_print(
        place, lambda progress: study.run(place, workers=workers, progress=progress)
    )
    plots.write(gain_figure(table, rows), place / "figure-gamma.png", place / "figure-gamma.svg")


@app.command()
def table4(
    rounds: Annotated[int, typer.Option(help="The median of so many counts.")] = 5,
    out: Annotated[Path, typer.Option(help="Directory for the numbers and the picture.")] = Path(
        "out/table4"
    ),
) -> None:
    """How every method's cost grows with N, |E|, f and |Y||T|, beside the paper's formulas."""
    from reproduction import plots
    from reproduction.table4 import measured, picture, report

    with Progress(console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("running", total=None)
        curves = measured(
            rounds,
            progress=lambda done, total, title: bar.update(
                line, completed=done, total=total, description=title
            ),
        )
    out.mkdir(parents=True, exist_ok=True)
    report(curves).finish(out / "table4.json")
    plots.write(picture(curves), out / "table4-growth.png")


@app.command("revgat-operator")
def revgat_operator(
    root: Annotated[Path, typer.Option(help="Folder that holds ogbn_arxiv.")] = Path(
        "../shared/data"
    ),
    seeds: Seeds = 5,
    methods: Methods = None,
    operators: Annotated[str | None, typer.Option(help="released, symmetric, mean.")] = None,
    features: Annotated[str, typer.Option(help="joined (x and x_svd) or svd.")] = "joined",
    width: Annotated[int, typer.Option(help="Columns of each of three heads.")] = 32,
    epochs: int = 40,
    root_weight: Annotated[bool, typer.Option(help="Layers also read their own input.")] = False,
    out: Out = None,
) -> None:
    """GenPMP in linear RevGAT under three normalisations, on ogbn-arxiv."""
    from reproduction.revgat_operator import Options
    from reproduction.revgat_operator import revgat_operator as run

    place, options = out or Path("out/revgat-operator"), Options(width, epochs, root=root_weight)
    _run_and_print(
        place,
        lambda progress: run(
            root,
            seeds,
            place,
            features=features,
            operators=_split(operators),
            methods=_split(methods),
            options=options,
            progress=progress,
        ),
    )


@app.command()
def risk(
    seeds: Seeds = 5,
    root: Root = None,
    data: Annotated[
        str | None, typer.Option(help="tsbm, aan, ...; by default all of one type that are there.")
    ] = None,
    out: Out = None,
) -> None:
    """The inequality R_te ≤ R_tr + W1: a linear head's risk gap beside its bound, by method."""
    from reproduction.risk import risk as run

    place = out or Path("out/risk")
    _run_and_print(
        place, lambda progress: run(seeds, place, names=_split(data), root=root, progress=progress)
    )


@app.command()
def leaderboard(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="By default all graphs that are there; aan@1 is a past window of aan."),
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder of graphs.")] = Path("../shared/data"),
    seeds: Seeds = 1,
    baselines: Annotated[
        str | None, typer.Option(help="Some of the baselines, by commas; by default all.")
    ] = None,
    efforts: Annotated[
        str, typer.Option(help="Efforts of impact run, separated by commas; may be empty.")
    ] = "quick",
    out: Out = None,
) -> None:
    """Ours and the usual baselines, on real graphs whose recent labels are hidden."""
    from reproduction.leaderboard import leaderboard as run

    place, tried = out or Path("out/leaderboard"), efforts.split(",") if efforts else []
    _run_and_print(
        place,
        lambda progress: run(
            place,
            root=root,
            names=names,
            seeds=seeds,
            baselines=_split(baselines),
            efforts=tried,
            progress=progress,
        ),
    )


@app.command()
def competing_methods(
    names: Annotated[
        list[str] | None, typer.Argument(help="By default all graphs that are there.")
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder of graphs.")] = Path("../shared/data"),
    seeds: Seeds = 1,
    methods: Methods = None,
    out: Out = None,
) -> None:
    """Other methods against the shift, tuned standard methods and ours, each compared with plain.

    Cells are those of the leaderboard.
    """
    from reproduction.baselines import BASELINES, COMPETING_METHODS
    from reproduction.leaderboard import OURS, AgainstPlain, leaderboard

    place = out or Path("out/leaderboard")
    every = [
        "plain",
        *COMPETING_METHODS,
        *(name for name in BASELINES if name not in ("plain", "logistic", "autogluon")),
    ]
    asked = _split(methods) or [*every, f"{OURS}quick"]
    efforts = [name.removeprefix(OURS) for name in asked if name.startswith(OURS)]
    tried = [name for name in asked if not name.startswith(OURS)]
    _run_and_print(
        place,
        lambda progress: leaderboard(
            place,
            root=root,
            names=names,
            seeds=seeds,
            baselines=tried,
            efforts=efforts,
            progress=progress,
            page=AgainstPlain,
        ),
    )


@app.command()
def former(
    checkout: Annotated[
        Path, typer.Argument(help="An earlier state: git worktree add ../former COMMIT.")
    ],
    names: Annotated[
        str | None, typer.Option(help="Some of the graphs, separated by commas.")
    ] = None,
    root: Annotated[Path, typer.Option(help="Folder of graphs.")] = Path("../shared/data"),
    seeds: Seeds = 5,
    models: Annotated[
        str, typer.Option(help="Models of a pipeline, separated by commas.")
    ] = "sehgnn,rphgnn",
    method: Annotated[str, typer.Option(help="A method that both states know.")] = "labels",
    out: Out = None,
) -> None:
    """Models as they are against those of an earlier checkout, on the same graphs and seeds."""
    from reproduction.former import former as run

    place = out or Path("out/former")
    _run_and_print(
        place,
        lambda progress: run(
            checkout,
            place,
            root=root,
            names=_split(names),
            models=models.split(","),
            method=method,
            seeds=seeds,
            progress=progress,
        ),
    )


@app.command()
def rules(
    runs: Annotated[Path, typer.Option(help="Folder of runs named after their graphs.")] = Path(
        "out/leaderboard/runs"
    ),
    root: Annotated[Path, typer.Option(help="Folder of the graphs.")] = Path("../shared/data"),
    out: Out = None,
) -> None:
    """Selection rules and forecasts, made on older folds of a run and scored on its newest."""
    from reproduction.rules import rules as run

    _run_and_print(out or Path("out/rules"), lambda progress: run(runs, root=root))


@app.command()
def forecasts(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; by default all.")] = None,
    root: Annotated[Path, typer.Option(help="Folder of the graphs.")] = Path("../shared/data"),
    predictions: Annotated[
        bool, typer.Option(help="Compare predictions that are adjusted by the forecasts.")
    ] = False,
    out: Out = None,
) -> None:
    """One forecast of class proportions for a past window, or one for each of its periods."""
    from reproduction.forecasts import adjusted
    from reproduction.forecasts import forecasts as run

    study = {True: adjusted, False: run}[predictions]
    _run_and_print(out or Path("out/forecasts"), lambda progress: study(names, root=root))


@app.command()
def class_bias(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; by default all.")] = None,
    root: Annotated[Path, typer.Option(help="Folder of the graphs.")] = Path("../shared/data"),
    out: Out = None,
) -> None:
    """Calibration with a bias per class, fitted on older past windows and scored on newer ones."""
    from reproduction.class_bias import class_bias as run

    _run_and_print(out or Path("out/class-bias"), lambda progress: run(names, root=root))


@app.command()
def methods(
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("out/methods"),
) -> None:
    """What the paper's methods do, as pictures: weights, mixes of distances, alignments."""
    from reproduction import plots
    from reproduction.methods import FIGURES

    for name, draw in FIGURES.items():
        plots.write(draw(), out / f"methods-{name}.png")
    print(f"written: {', '.join(str(out / f'methods-{name}.png') for name in FIGURES)}")


@app.command()
def concepts(
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("out/concepts"),
) -> None:
    """The pictures of docs/concepts.md: the split, the folds, the parts of a method."""
    from reproduction import plots
    from reproduction.concepts import FIGURES

    for name, draw in FIGURES.items():
        plots.write(draw(), out / f"concepts-{name}.png")
    print(f"written: {', '.join(str(out / f'concepts-{name}.png') for name in FIGURES)}")


def main(arguments: list[str] | None = None) -> None:
    """Runs a command; what a user can fix becomes one sentence and exit code 2."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    try:
        app(arguments)
    except InputError as error:
        errors.print(f"error: {error}")
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        errors.print(
            f"error: {error.strerror or error}{where}; finished work is stored; run the command "
            "again."
        )
    sys.exit(2)


def _run_and_print(
    place: Path, run: Callable[[Callable[[int, int, str], None]], "Table"]
) -> "Table":
    """Runs a study with a progress bar, writes its files and prints its page."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("running", total=None)
        table = run(
            lambda done, total, title: bar.update(
                line, completed=done, total=total, description=title
            )
        )
    files = table.write(place)
    print(table.markdown())
    print(f"written: {', '.join(str(file) for file in files)}")
    return table


def _split(text: str | None) -> list[str] | None:
    return None if text is None else [part for part in text.split(",") if part]


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{text!r} is not a list of numbers; write for example 0.4,0.7.") from None


if __name__ == "__main__":  # processes of the runner import this module too
    main()
