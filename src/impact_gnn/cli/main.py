"""All commands of `impact`, one function each; the work is done by the library."""

from __future__ import annotations

from typing import Annotated

import typer

from impact_gnn.cli import graphs, work

app = typer.Typer(
    name="impact",
    help="Classify the recent nodes of a graph in time: measure the shift, back-test corrections, predict.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.command()(work.run)
app.command()(graphs.init)
app.command()(graphs.check)
app.command()(work.diagnose)
app.command()(work.backtest)
app.command()(work.predict)
app.command()(work.explain)
app.command()(work.evaluate)
app.command()(work.watch)
app.command()(work.report)
app.command()(work.audit)
app.command()(graphs.convert)
app.command()(graphs.generate)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False,
) -> None:
    """Classify the recent nodes of a graph in time: measure the shift, back-test corrections, predict."""
    if show:
        from impact_gnn import __version__

        typer.echo(f"impact-gnn {__version__}")
        raise typer.Exit


def main() -> None:
    """The entry point."""
    app()
