"""Groups of command-line options: frozen dataclasses, each a section of `--help`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

import impact_gnn as ig

if TYPE_CHECKING:
    from impact_gnn._progress import Watcher
    from impact_gnn.data.tables import Reading
    from impact_gnn.graph import Periods

GRAPH_HELP = (
    "A folder of tables, duckdb:FILE or the URL of a database, an .npz file, or a saved graph."
)
Graph = Annotated[str, typer.Argument(help=GRAPH_HELP, show_default=False)]
RunDirectory = Annotated[
    Path, typer.Argument(help="The directory of a finished run.", show_default=False)
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the result as JSON.")]
Since = Annotated[
    str | None, typer.Option(help="Predict from this time on; by default the cutoff of the fit.")
]
Roles = Annotated[Path | None, typer.Option(help="For tables: a graph.toml outside the folder.")]
Cutoff = Annotated[
    str | None,
    typer.Option(
        help="Labels are known before this time or date; by default inferred from the labels."
    ),
]
Period = Annotated[
    str | None,
    typer.Option(
        help="For tables: auto, year, quarter, month, week, day, hour, whole, "
        "or a number of periods."
    ),
]


@dataclass(frozen=True)
class TableOptions:
    """How the tables of a graph are read."""

    title: ClassVar[str] = "Graph"

    features: Annotated[
        Path | None, typer.Option(help="A .npy file whose rows replace the features (embeddings).")
    ] = None
    roles: Roles = None

    def read(
        self,
        graph: str,
        *,
        cutoff: str | None = None,
        period: str | Periods | None = None,
        verify: bool = True,
    ) -> Reading:
        """Read the graph at a path or address; `verify` compares a saved one with its checksums."""
        from impact_gnn import _files
        from impact_gnn.data.files import read

        matrix = None if self.features is None else _files.open_array(self.features)
        return read(
            graph,
            verify=verify,
            period=period,
            cutoff=cutoff,
            roles=self.roles,
            features=matrix,
        )


@dataclass(frozen=True)
class GraphOptions(TableOptions):
    """How a graph is read and split by time."""

    cutoff: Cutoff = None
    period: Period = None

    def load(self, graph: str) -> tuple[Reading, int | None]:
        """Read the graph with these options; also return the cutoff as one of its times."""
        reading = self.read(
            graph,
            cutoff=self.cutoff,
            period=self.period,
        )
        return reading, None if self.cutoff is None else reading.graph.when(self.cutoff)


@dataclass(frozen=True)
class SearchOptions:
    """Candidates, folds and budget of the back-test."""

    title: ClassVar[str] = "Search"

    candidates: Annotated[
        str | None,
        typer.Option(
            help="Candidates, separated by commas: plain,pmp+center,trees:labels "
            "(see impact methods)."
        ),
    ] = None
    effort: Annotated[str, typer.Option(help="Search budget: quick, normal or thorough.")] = (
        "normal"
    )
    folds: Annotated[
        int | None,
        typer.Option(min=1, help="Folds of the back-test; by default set by the effort."),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1000,
            help="Seeds of every final network (run) or per fold (backtest).",
        ),
    ] = None
    budget: Annotated[
        str | None, typer.Option(help="Time limit for the whole command, such as 90s, 10m or 2h.")
    ] = None

    jobs: Annotated[
        str, typer.Option(help="Fits at once, a number or auto; the result does not depend on it.")
    ] = "auto"

    def keywords(self) -> dict[str, Any]:
        """The options as keywords of `run` and `backtest`."""
        keywords = asdict(self)
        if self.candidates is not None:
            keywords["candidates"] = [
                name.strip() for name in self.candidates.split(",") if name.strip()
            ]
        if self.budget is not None:
            keywords["budget"] = seconds(self.budget)
        if self.jobs.isdecimal():
            keywords["jobs"] = int(self.jobs)
        return keywords


@dataclass(frozen=True)
class ModelOptions:
    """Options of every model that is fitted."""

    title: ClassVar[str] = "Model"

    model: Annotated[
        str,
        typer.Option(
            help="Model of candidates without a model: auto (sign), trees, linear, sehgnn, ..."
        ),
    ] = "auto"
    metric: Annotated[
        str,
        typer.Option(
            help="Selection metric: accuracy, macro-f1, balanced-accuracy, log-loss, "
            "average-precision, auroc or brier."
        ),
    ] = "accuracy"
    class_weight: Annotated[
        str,
        typer.Option(help="Class weights in training: none or balanced."),
    ] = "none"
    hops: Annotated[int, typer.Option(help="Propagation steps along the edges.")] = 2
    directed: Annotated[
        bool, typer.Option("--directed", help="Propagate along the direction of the edges only.")
    ] = False

    def keywords(self) -> dict[str, Any]:
        """The options as keywords of `run` and `Pipeline`."""
        keywords = asdict(self)
        keywords["undirected"] = not keywords.pop("directed")
        if self.class_weight == "none":
            keywords["class_weight"] = None
        return keywords


@dataclass(frozen=True)
class EngineOptions:
    """Where hops are computed."""

    title: ClassVar[str] = "Engine"

    engine: Annotated[str, typer.Option(help="Where to propagate: auto, memory, disk or dask.")] = (
        "auto"
    )
    memory: Annotated[
        str | None,
        typer.Option(help="Memory limit, such as 4GB; by default the free memory."),
    ] = None
    scheduler: Annotated[
        str | None, typer.Option(help="HOST:PORT of a running Dask scheduler.")
    ] = None
    scratch: Annotated[
        Path | None, typer.Option(help="Directory for files of the engines disk and dask.")
    ] = None

    def choose(
        self, watcher: Watcher, graph: ig.TemporalGraph, scratch: Path | None = None
    ) -> ig.engines.Engine:
        """Choose the engine, and report the estimate behind the choice."""
        choice = ig.engines.choose(
            graph,
            self.engine,
            memory=self.memory,
            scheduler=self.scheduler,
            scratch=scratch or self.scratch,
        )
        watcher.say(choice.sentence)
        return choice.engine


def seconds(text: str) -> float:
    """Parse a duration such as "10m", "90s", "2h" or a plain number of seconds.

    Examples:
        >>> seconds("10m"), seconds("90"), seconds("1.5h")
        (600.0, 90.0, 5400.0)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([smh]?)\s*", text)
    if match is None or float(match[1]) <= 0:
        raise ig.InputError(f"{text!r} is not a duration; use for example 90s, 10m or 2h.")
    lengths = {"": 1, "s": 1, "m": 60, "h": 3600}
    return float(match[1]) * lengths[match[2]]
