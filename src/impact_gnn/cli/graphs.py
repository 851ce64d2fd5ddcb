"""Commands about graphs as such: `check`, `convert`, `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from impact_gnn import _files, checks
from impact_gnn._codec import encode
from impact_gnn._progress import Terminal
from impact_gnn.checks import InputError
from impact_gnn.cli.common import command, console, errors, write_json
from impact_gnn.data.files import load
from impact_gnn.data.hetero_tsbm import PRESETS, hetero_tsbm, scaled
from impact_gnn.data.ogb import load_ogb
from impact_gnn.data.tsbm import tsbm_model, write_tsbm
from impact_gnn.graph import TemporalGraph

Graph = Annotated[
    str, typer.Argument(help="A folder with nodes and edges, an .npz file, or a saved graph.", show_default=False)
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the result here, for machines.")]
Features = Annotated[Path | None, typer.Option(help="A .npy file whose rows replace the features (embeddings).")]


def opened(graph: str, features: Path | None = None) -> TemporalGraph:
    """The graph at a path, with other features if given."""
    given = load(graph)
    return given if features is None else given.with_features(_files.open_array(features))


@command
def check(
    graph: Graph,
    cutoff: Annotated[int | None, typer.Option(help="Labels are known before it.")] = None,
    json: Json = None,
) -> None:
    """Check a graph at the door and print what is in it."""
    given = opened(graph)
    at = given.infer_cutoff() if cutoff is None and given.y is not None and (given.y >= 0).any() else cutoff
    if at is not None:
        given.masked(at)  # refuses a cutoff that cannot be used
    summary = given.summary()
    console.print(str(summary), markup=False)
    if at is not None:
        console.print(f"to predict {int(given.targets(at).sum()):,} nodes at or after time {at}")
    write_json(json, encode(summary) | {"inferred_cutoff": at})


@command
def convert(
    out: Annotated[Path, typer.Option(help="Directory of the saved graph.", show_default=False)],
    graph: Annotated[
        str | None, typer.Argument(help="A folder with nodes and edges, an .npz file, or a saved graph.")
    ] = None,
    ogb: Annotated[str | None, typer.Option(help="Instead: ogbn-arxiv, ogbn-mag or ogbn-papers100M.")] = None,
    root: Annotated[Path | None, typer.Option(help="The folder in which OGB keeps it.")] = None,
) -> None:
    """Write a graph as a saved directory, which opens at once however large it is."""
    if (graph is None) == (ogb is None) or (ogb is None) != (root is None):
        raise InputError("name what to convert: a graph, or a data set of OGB with --ogb NAME --root DIR.")
    if ogb is None or root is None:
        given = opened(str(graph))
    else:
        official = load_ogb(ogb, root)
        given = official.graph
        console.print(f"the official split: labels are known before {official.cutoff}; use --cutoff {official.cutoff}")
    given.save(out)
    console.print(f"{given} saved to {out}")


@command
def generate(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Directory of the saved graph.", show_default=False)],
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 2000,
    times: Annotated[int, typer.Option(help="Number of periods.")] = 10,
    labels: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    features: Annotated[int, typer.Option(help="Number of features.")] = 5,
    decay: Annotated[str, typer.Option(help="A number, 'random' or 'random-zero-diagonal'.")] = "0.6",
    protocol: Annotated[str, typer.Option(help="'text' or 'released'.")] = "text",
    mean_degree: Annotated[float | None, typer.Option(help="Expected neighbours per node.")] = None,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    memory: Annotated[str, typer.Option(help="Memory to stay within.")] = "2GB",
    preset: Annotated[
        str | None, typer.Option(help="Papers, authors, fields and institutions instead, of the sizes of: mag.")
    ] = None,
    scale: Annotated[float, typer.Option(help="With --preset: nodes and edges in units of its sizes.")] = 1.0,
) -> None:
    """Generate a graph of the temporal stochastic block model, however large."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    if preset is None and "scale" in given:
        raise InputError("--scale goes with --preset; give --nodes for a graph of one type.")
    if preset is not None:
        ignored = sorted(given - {"out", "seed", "preset", "scale"})
        if ignored:
            names = ", ".join("--" + name.replace("_", "-") for name in ignored)
            raise InputError(f"--preset {preset} has its own sizes and takes no {names}; use --scale, or Python.")
        sizes = scaled(PRESETS[checks.choice("preset", preset, PRESETS)], scale)
        generated = hetero_tsbm(**sizes, seed=seed)
        generated.save(out)
        console.print(f"{generated} saved to {out}")
        return
    try:
        step: float | str = float(decay)
    except ValueError:
        step = decay
    model = tsbm_model(
        nodes, times, labels, features, decay=step, protocol=protocol, mean_degree=mean_degree, seed=seed
    )
    with Terminal(errors) as terminal:
        write_tsbm(out, model, memory=memory, progress=terminal)
    console.print(f"{load(out)} saved to {out}")
