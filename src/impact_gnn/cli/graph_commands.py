"""Commands for graphs: `init`, `check`, `convert`, `update`, `generate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import impact_gnn as ig
from impact_gnn.cli.common import command, console, write_json
from impact_gnn.cli.options import Cutoff, Graph, GraphOptions, Json, Period, Roles


@command
def init(
    folder: Annotated[
        str, typer.Argument(help="A folder of tables, or a database.", show_default=False)
    ],
) -> None:
    """Inspect the tables of a folder and write a graph.toml with the role of every column."""
    from impact_gnn import _files
    from impact_gnn._text import mask_passwords
    from impact_gnn.data.files import first_toml
    from impact_gnn.data.sources import is_database
    from impact_gnn.data.spec import TOML

    path = Path(TOML) if is_database(folder) else Path(folder) / TOML
    if not is_database(folder) and not Path(folder).is_dir():
        raise ig.InputError(f"{folder} is not a folder; pass a folder of tables.")
    with _files.atomic_file(path) as temporary:
        temporary.write_text(first_toml(folder), encoding="utf-8")
        if path.exists():
            raise ig.InputError(f"{path} exists already; delete it to start again.")
    address = mask_passwords(folder, is_address=True)
    console.print(f"{path} written. Review it, then run: impact check {address}")


@command
def check(graph: Graph, source: GraphOptions, json: Json = None) -> None:
    """Validate a graph; print its sizes, and how every column was read."""
    from impact_gnn._codec import encode
    from impact_gnn.report.numbers import period_named

    reading, time = source.load(graph)
    masked = reading.graph
    if reading.notes:
        console.print("\n".join(reading.notes) + "\n")
    labels = reading.graph.y
    if time is None and labels is not None and (labels >= 0).any():
        time = reading.graph.infer_cutoff()
    if time is not None:
        # refuses an invalid cutoff; encoders are fitted on older nodes
        masked = reading.graph.masked(time)
    num_features = masked.nodes[masked.target].num_features
    summary = replace(reading.graph.summary(), num_features=num_features)
    console.print(str(summary))
    for warning in masked.summary().warnings:
        console.print(f"warning: {warning}")
    for node_type, nodes in masked.nodes.items():
        if nodes.columns is not None:
            for name, reason in nodes.columns.encoder.dropped.items():
                console.print(f"column '{name}' of {node_type} is ignored: {reason}")
    if time is not None:
        is_target = masked.targets(time)
        since = period_named(masked.name_of(time))
        console.print(f"targets   {int(is_target.sum()):,} nodes from {since} on")
        if masked.y is not None:
            count = int(((masked.y < 0) & ~is_target).sum())
            if count:
                console.print(f"{count:,} unlabelled nodes before {since} are not predicted")
    write_json(json, encode(summary) | {"inferred_cutoff": time, "taken_for": reading.notes})


@command
def convert(
    graph: Graph,
    out: Annotated[Path, typer.Option(help="Directory of the saved graph.", show_default=False)],
    period: Period = None,
    cutoff: Cutoff = None,
    roles: Roles = None,
    memory: Annotated[
        str, typer.Option(help="Tables larger than a quarter of this are processed on disk.")
    ] = "2GB",
) -> None:
    """Save a graph as a directory, which opens instantly at any size."""
    from impact_gnn.data.files import convert_graph

    saved = convert_graph(
        graph,
        out,
        memory=memory,
        period=period,
        cutoff=cutoff,
        roles=roles,
    )
    console.print("\n".join([*saved.notes, f"{saved.graph} saved to {out}"]))


@command
def update(
    graph: Annotated[
        Path, typer.Argument(help="A saved graph, as of impact convert.", show_default=False)
    ],
    tables: Annotated[
        str,
        typer.Argument(help="A folder of tables, or a database, of new rows.", show_default=False),
    ],
    roles: Roles = None,
) -> None:
    """Append new nodes and edges to a saved graph, in its place."""
    from impact_gnn.data.update import update as update_graph

    console.print(f"{graph} is now {update_graph(graph, tables, roles=roles)}")


@command
def generate(
    out: Annotated[Path, typer.Option(help="Directory of the saved graph.", show_default=False)],
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 2000,
    times: Annotated[int, typer.Option(help="Number of periods.")] = 10,
    labels: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    features: Annotated[int, typer.Option(help="Number of features.")] = 5,
    decay: Annotated[
        str,
        typer.Option(
            help="Decay of connections over time: a number, 'random' or 'random-zero-diagonal'."
        ),
    ] = "0.6",
    protocol: Annotated[
        str, typer.Option(help="The paper's set-up: 'text' as printed, 'released' as in its code.")
    ] = "text",
    mean_degree: Annotated[float | None, typer.Option(help="Expected neighbours per node.")] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Generate a graph of the temporal stochastic block model."""
    from impact_gnn import _files

    try:
        decay_value: float | str = float(decay)
    except ValueError:
        decay_value = decay
    generated = ig.tsbm(
        nodes,
        times,
        labels,
        features,
        decay=decay_value,
        protocol=protocol,
        mean_degree=mean_degree,
        seed=seed,
    )
    with _files.exclusive_scratch(out):
        generated.save(out)
    console.print(f"{generated} saved to {out}")
