"""The command `impact`: its subcommands and their examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from impact_gnn import __version__
from impact_gnn._progress import Terminal, Watcher
from impact_gnn.cli import graph_commands, model_commands, result_commands
from impact_gnn.cli.common import CommandGroup, errors

# the commands by section of the help, each with its example
SECTIONS: dict[str, dict[Callable[..., None], str]] = {
    "Data": {
        graph_commands.init: "impact init examples/papers",
        graph_commands.check: "impact check examples/articles",
        graph_commands.convert: "impact convert examples/articles --out articles-graph",
        graph_commands.update: "impact update articles-graph new-articles",
        graph_commands.generate: "impact generate --out example-graph --nodes 5000 --decay 0.6",
    },
    "Model": {
        model_commands.run: "impact run examples/transfers --metric average-precision",
        model_commands.diagnose: "impact diagnose examples/articles",
        model_commands.backtest: (
            "impact backtest examples/articles --candidates plain,trees:labels"
        ),
        model_commands.predict: "impact predict impact-run/articles/model examples/articles",
        model_commands.methods: "impact methods",
    },
    "Results": {
        result_commands.explain: (
            "impact explain impact-run/articles examples/articles --node a1400"
        ),
        result_commands.evaluate: (
            "impact evaluate impact-run/articles labels.csv --graph examples/articles"
        ),
        result_commands.watch: "impact watch impact-run/articles examples/articles",
        result_commands.report: "impact report impact-run/articles",
    },
    "Checks": {
        result_commands.audit: "impact audit examples/articles my_code:train --cutoff 2021-07-01",
    },
}

app = typer.Typer(
    name="impact",
    cls=CommandGroup,
    epilog="Example: impact run examples/transfers --metric average-precision",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for section, commands in SECTIONS.items():
    for function, example in commands.items():
        app.command(rich_help_panel=section, epilog=f"Example: {example}")(function)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"impact-gnn {__version__}")
        raise typer.Exit


@app.callback()
def impact(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also print a line for every fit.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Classify recent nodes of a graph: measure the shift, back-test corrections, predict."""
    context.obj = Watcher() if quiet else Terminal(errors, verbose=verbose)


def main() -> None:
    """Run the command line."""
    app()
