"""All commands of `impact`, one function each; the work is done by the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from impact_gnn import __version__
from impact_gnn._progress import Terminal, Watcher
from impact_gnn.cli import graphs, work
from impact_gnn.cli.common import errors

# with the example that its help shows
COMMANDS: dict[Callable[..., None], str] = {
    work.run: "impact run examples/transfers --metric average-precision",
    graphs.init: "impact init examples/papers",
    graphs.check: "impact check examples/articles",
    work.diagnose: "impact diagnose examples/articles",
    work.backtest: "impact backtest examples/articles --candidates plain,trees:labels",
    work.predict: "impact predict impact-run/articles/model examples/articles",
    work.explain: "impact explain impact-run/articles examples/articles --node a1400",
    work.evaluate: "impact evaluate impact-run/articles labels.csv --graph examples/articles",
    work.watch: "impact watch impact-run/articles examples/articles",
    work.report: "impact report impact-run/articles",
    work.methods: "impact methods",
    work.audit: "impact audit examples/articles my_code:train --cutoff 2021-07-01",
    graphs.convert: "impact convert examples/articles --out articles-graph",
    graphs.generate: "impact generate --out example-graph --nodes 5000 --decay 0.6",
}


class Anywhere(TyperGroup):
    """Takes the options of the whole command after the name of a command too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = [one for one in args if one in ("--quiet", "--verbose")]
        return super().parse_args(ctx, [*own, *(one for one in args if one not in own)])


app = typer.Typer(
    name="impact",
    cls=Anywhere,
    epilog=f"Example: {COMMANDS[work.run]}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # which takes a third of a second to load
)

for function, example in COMMANDS.items():
    app.command(epilog=f"Example: {example}")(function)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"impact-gnn {__version__}")
        raise typer.Exit


@app.callback()
def impact(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print results and errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print a line for every fit, too.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
) -> None:
    """Classify the recent nodes of a graph in time: measure the shift, back-test corrections, predict."""
    context.obj = Watcher() if quiet else Terminal(errors, verbose=verbose)


def main() -> None:
    """The entry point."""
    app()
