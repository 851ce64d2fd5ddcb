"""Commands about the paper and about speed: `reproduce` and `bench`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from impact_gnn.checks import InputError
from impact_gnn.cli.common import console, guarded, progress_bar, write_json
from impact_gnn.cli.graphs import Features, Json

reproduce = typer.Typer(
    help="Run the paper's experiments again, paired and with standard errors.", no_args_is_help=True
)
bench = typer.Typer(help="Measure speed as ratios to peers in one run.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("--out", help="Directory for JSON, CSV, Markdown and plot; a rerun continues.")]
Workers = Annotated[int | None, typer.Option(help="Processes; by default one per core.")]


@reproduce.command()
def table3(
    graphs: Annotated[int, typer.Option(help="Graphs per cell.")] = 200,
    protocol: Annotated[str, typer.Option(help="released, text, or both separated by a comma.")] = "released",
    models: Annotated[str, typer.Option(help="sgc, gcn, or both.")] = "sgc,gcn",
    out: Out = Path("out/table3"),
    workers: Workers = None,
) -> None:
    """Table 3: every method on the same synthetic graphs, beside the published numbers."""
    from impact_gnn.experiments import table3 as experiment

    options: dict[str, Any] = {
        "protocols": protocol.split(","),
        "models": models.split(","),
        "out": out,
        "workers": workers,
    }
    _experiment("graphs", experiment.write, out, lambda update: experiment.run(graphs, **options, progress=update))


@reproduce.command("figure-gamma")
def figure_gamma(
    graphs: Annotated[int, typer.Option(help="Graphs per point.")] = 20,
    protocol: Annotated[str, typer.Option(help="released or text.")] = "released",
    out: Out = Path("out/figure-gamma"),
    workers: Workers = None,
) -> None:
    """The figure of gains against the decay γ."""
    from impact_gnn.experiments import gamma as experiment

    options: dict[str, Any] = {"protocol": protocol, "out": out, "workers": workers}
    _experiment("graphs", experiment.write, out, lambda update: experiment.run(graphs, **options, progress=update))


@reproduce.command()
def table1(
    seeds: Annotated[int, typer.Option(help="Repetitions.")] = 5,
    root: Annotated[
        Path | None, typer.Option(help="Folder of the real graphs; without it only generated ones.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Names separated by commas; by default all that are there.")] = None,
    out: Out = Path("out/table1"),
) -> None:
    """Table 1's question: chronological against random split, with and without a time embedding."""
    from impact_gnn.experiments import table1 as experiment

    names = None if data is None else data.split(",")
    _experiment(
        "runs", experiment.write, out, lambda update: experiment.run(seeds, data=names, root=root, progress=update)
    )


@reproduce.command()
def table2(
    dataset: Annotated[
        str,
        typer.Option(help="mag, arxiv, papers100M; or arxiv-svd, aan, acl_hetero, hetero-tsbm.", show_default=False),
    ],
    root: Annotated[
        Path | None, typer.Option(help="Folder of the data: OGB's root, or that of the .npz files.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds per row; by default the study's.")] = None,
    models: Annotated[str | None, typer.Option(help="Some of its models, separated by commas.")] = None,
    methods: Annotated[str | None, typer.Option(help="Some of its methods, separated by commas.")] = None,
    features: Features = None,
    out: Out = Path("out/table2"),
) -> None:
    """Table 2: the paper's models with its corrections on real graphs, beside the published numbers."""
    from impact_gnn.experiments import table2 as experiment

    options: dict[str, Any] = {
        "root": root,
        "seeds": seeds,
        "models": None if models is None else models.split(","),
        "methods": None if methods is None else methods.split(","),
        "features": features,
        "out": out,
    }
    _experiment("runs", experiment.write, out, lambda update: experiment.run(dataset, **options, progress=update))


@bench.command()
def propagation(
    edges: Annotated[int, typer.Option(help="Edges.")] = 20_000_000,
    nodes: Annotated[int, typer.Option(help="Nodes.")] = 1_000_000,
    widths: Annotated[str, typer.Option(help="Feature columns, separated by commas.")] = "16,64,128,256",
    growth_to: Annotated[int, typer.Option(help="Also time graphs up to this many edges.")] = 0,
    order: Annotated[bool, typer.Option("--order", help="Also measure what sorting nodes by time brings.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the growth into this .png or .svg.")] = None,
    json: Json = None,
) -> None:
    """The propagation kernel against torch, scipy and PyG, and against a gather-only roofline."""
    from impact_gnn.bench import propagation as it
    from impact_gnn.bench.propagation_growth import draw_growth

    def work() -> None:
        if plot is not None and not growth_to:
            raise InputError("--plot draws the growth, but none is measured; add --growth-to 200000000.")
        found = it.run(nodes, edges, [int(width) for width in widths.split(",")], growth_to=growth_to, order=order)
        it.show(found)
        write_json(json, found)
        if plot is not None:
            draw_growth(found["growth"], plot)

    guarded(work)


@bench.command()
def outofcore(
    edges: Annotated[int, typer.Option(help="Edges.")] = 20_000_000,
    nodes: Annotated[int, typer.Option(help="Nodes.")] = 1_000_000,
    width: Annotated[int, typer.Option(help="Feature columns.")] = 128,
    json: Json = None,
) -> None:
    """Disk and Dask against memory: time and peak memory."""
    from impact_gnn.bench import outofcore as it

    def work() -> None:
        found = it.run(nodes, edges, width)
        it.show(found)
        write_json(json, found)

    guarded(work)


@bench.command()
def layerwise(
    large: Annotated[
        bool, typer.Option("--large", help="200,000 nodes and hidden 256 instead of 2,000 and 16.")
    ] = False,
    json: Json = None,
) -> None:
    """A GCN with layer-wise alignment against the plain one."""
    from impact_gnn.bench import layerwise as it

    def work() -> None:
        found = it.run(it.LARGE if large else it.SMALL)
        for name, row in found["methods"].items():
            console.print(f"{name:<12} {row['ratio']:.2f} x plain")
        write_json(json, found)

    guarded(work)


def _experiment(
    title: str,
    write: Callable[[dict[str, Any], Path], list[Path]],
    out: Path,
    run: Callable[[Callable[[int, int, str], None]], dict[str, Any]],
) -> None:
    def work() -> None:
        with progress_bar(title) as update:
            result = run(update)
        files = write(result, out)
        page = next((file for file in files if file.suffix == ".md"), None)
        if page is not None:
            console.print(page.read_text(encoding="utf-8"), markup=False)
        console.print(f"written: {', '.join(str(file) for file in files)}", markup=False)

    guarded(work)
