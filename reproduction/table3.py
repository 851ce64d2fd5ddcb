"""Table 3: which correction helps on graphs of the temporal stochastic block model; and the figure over γ.

Every column is trained on the same graphs. The figure shows how the gains depend on how fast connections fade, from
γ = .30 (a node hardly knows other times) to .85 (time hardly matters).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from impact_gnn import checks
from impact_gnn.checks import InputError
from reproduction import networks, plots, published
from reproduction.results import PAPER_ERRORS, ExtraTable, Place, Record, Table, atomic
from reproduction.runner import Progress, one_thread, work_off
from reproduction.synthetic import COLUMNS, GAMMA, MODELS, PROTOCOLS, Options, Row, chosen, draw, rows_by_name

CONTRASTS = (
    ("pmp+pny", "pmp"),
    ("pmp+pny-oracle", "pmp"),
    ("pmp+jjnorm", "pmp"),
    ("pmp+center+jjnorm", "center"),
    ("standardize", "center"),
)
"""Second-moment methods against the first-moment method they build on."""

GAMMAS = tuple(round(0.30 + 0.05 * step, 2) for step in range(12))
GAMMA_COLUMNS = ("plain", "mmp", "pmp", "pmp+pny", "pmp+jjnorm", "center", "pmp+center+jjnorm")
TITLES = {column.name: column.title for column in COLUMNS.values()}


@dataclass(frozen=True)
class GraphTask:
    """All columns of one model on one graph of a row."""

    study: str
    protocol: str
    row: Row
    model: str
    columns: tuple[str, ...]
    seed: int
    options: Options

    @property
    def title(self) -> str:
        """For progress."""
        return f"{self.section}, {self.row.title}, graph {self.seed}"

    @property
    def section(self) -> str:
        """Its part of the table."""
        return f"{self.model.upper()}, {self.protocol}"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that the accuracies depend on."""
        return asdict(self)

    def run(self) -> list[Record]:
        """The accuracy of every column; columns are trained together, so what one of them took is its share."""
        protocol, columns = PROTOCOLS[self.protocol], [COLUMNS[name] for name in self.columns]
        with one_thread():
            start = time.process_time()
            sample = draw(protocol, self.row, self.model, self.seed, self.options.num_nodes)
            predicted = networks.predict(self.model, sample, columns, protocol, self.options)
            seconds = (time.process_time() - start) / len(columns)
        return [
            Record(self.study, self.section, self.row.title, name, self.seed, sample.accuracy(labels), seconds)
            for name, labels in predicted.items()
        ]


@dataclass(frozen=True)
class Plan:
    """What is run.

    Args:
        graphs: Graphs per row, at least 2.
        protocols: Names of `PROTOCOLS`.
        models: "sgc", "gcn".
        columns: Names of `COLUMNS`; None for all. "plain" is always there.
        options: Size of graphs and training.
    """

    graphs: int
    protocols: Sequence[str] = ("released",)
    models: Sequence[str] = MODELS
    columns: Sequence[str] | None = None
    options: Options = Options()

    def __post_init__(self) -> None:
        if checks.whole_number("graphs", self.graphs) < 2:
            raise InputError(f"graphs={self.graphs} gives no standard error; take at least 2.")
        for name, values, allowed in (
            ("protocol", self.protocols, PROTOCOLS), ("model", self.models, MODELS),
        ):  # fmt: skip
            for value in values:
                checks.choice(name, value, allowed)

    def records(
        self, study: str, rows: Sequence[Row], out: Path, workers: int, progress: Progress | None
    ) -> list[Record]:
        """Works off all graphs, rows in turns: a study that is stopped has about as many graphs of each."""
        columns = chosen(self.columns)
        tasks = [
            GraphTask(study, protocol, row, model, columns, seed, self.options)
            for model in self.models for seed in range(self.graphs) for protocol in self.protocols for row in rows
        ]  # fmt: skip
        return work_off(tasks, out / "parts", workers=workers, progress=progress)

    @property
    def about(self) -> str:
        """What a reader must know."""
        how = "; ".join(f"{name}: {PROTOCOLS[name].about}" for name in self.protocols)
        return (
            f"{self.graphs} graphs of {self.options.num_nodes} nodes per row, {self.options.epochs} epochs; trained on "
            f'times 0-7, scored on times 8 and 9 ({how}). "Oracle" columns are told true labels and probabilities.'
        )


def table3(
    plan: Plan,
    out: Path,
    *,
    rows: Sequence[str] | None = None,
    gamma: float = GAMMA,
    time_graphs: int = 3,
    workers: int = 1,
    progress: Progress | None = None,
) -> Table:
    """Runs the table; a run with the same settings goes on where it stopped.

    Args:
        plan: What is run.
        out: Directory in which parts are kept.
        rows: "fixed", "random", "random-zero-diagonal"; all by default.
        gamma: γ of the row "fixed".
        time_graphs: Graphs on which every method is timed alone; 0 for no time table.
        workers: Processes.
        progress: Called after every graph.
    """
    there = rows_by_name(gamma)
    names = [checks.choice("row", name, there) for name in rows or there]
    records = plan.records("table3", [there[name] for name in names], out, workers, progress)
    paper: dict[Place, float] = {
        (f"{model.upper()}, {protocol}", there[name].title, column): value
        for model in plan.models for protocol in plan.protocols for name in names
        for column, value in published.TABLE3["fixed" if name == "fixed" else "random", model].items()
    }  # fmt: skip
    return Table(
        "table3", "Table 3: accuracy on graphs of the temporal stochastic block model", plan.about, records, CONTRASTS,
        TITLES, paper, (PAPER_ERRORS,), [_times(plan, model, there["fixed"], time_graphs) for model in plan.models]
        if time_graphs else (), judged=True,
    )  # fmt: skip


def gamma_figure(
    plan: Plan,
    out: Path,
    *,
    gammas: Sequence[float] = GAMMAS,
    workers: int = 1,
    progress: Progress | None = None,
) -> Table:
    """Runs the figure over γ and returns its numbers; `draw_gains` draws them."""
    for value in gammas:
        if not 0 <= value <= 1:
            raise InputError(f"gammas holds {value}; give numbers from 0 to 1.")
    plan = plan if plan.columns is not None else replace(plan, columns=GAMMA_COLUMNS)
    rows = [Row(f"γ = {value:g}", float(value)) for value in gammas]
    records = plan.records("figure-gamma", rows, out, workers, progress)
    return Table("figure-gamma", "Gains against γ", plan.about, records, CONTRASTS, TITLES)


def draw_gains(table: Table, directory: Path) -> list[Path]:
    """The figure: gains over plain, and of second-moment methods over PMP, each with its standard error."""

    def gamma_of(row: str) -> float:
        return float(row.removeprefix("γ = "))

    panels = {}
    for section in table.names(0):
        over_plain: dict[str, list[Any]] = {}
        over_pmp: dict[str, list[Any]] = {}
        for cell in table.cells.values():
            if cell.section == section and cell.gain is not None:
                over_plain.setdefault(TITLES[cell.column], []).append((gamma_of(cell.row), cell.gain))
        for (where, row, column), against, gap in table.compared:
            if where == section and against == "pmp":
                over_pmp.setdefault(TITLES[column], []).append((gamma_of(row), gap))
        panels[section] = over_plain, over_pmp
    figure = plots.gain_curves(panels)
    files = [directory / f"{table.name}-gains.{kind}" for kind in ("png", "svg")]
    for path in files:
        with atomic(path) as temporary:
            plots.save(figure, temporary, path.suffix[1:])
    return files


def _times(plan: Plan, model: str, row: Row, graphs: int) -> ExtraTable:
    """What each method costs when it is trained alone in one thread, as a ratio to plain in the same run.

    The fastest graph counts. Methods take turns on every graph, so that a busy machine slows all of them.
    """
    protocol, best = PROTOCOLS[plan.protocols[0]], dict[str, float]()
    with one_thread():
        for seed in range(-1, graphs):  # the first round compiles
            sample = draw(protocol, row, model, max(seed, 0), plan.options.num_nodes)
            sample.view.csr()  # every method needs it, none should pay for it
            for name in chosen(plan.columns):
                start = time.perf_counter()
                options = plan.options if seed >= 0 else replace(plan.options, epochs=1)
                networks.predict(model, sample, [COLUMNS[name]], protocol, options)
                seconds = time.perf_counter() - start
                if seed >= 0:
                    best[name] = min(seconds, best.get(name, seconds))
    paper = published.TIME[model]
    lines = [
        [
            TITLES[name], f"{seconds:.2f}", f"{seconds / best['plain']:.2f}",
            f"{paper[name] / paper['plain']:.3g}" if name in paper else "",
        ]
        for name, seconds in best.items()
    ]  # fmt: skip
    return ExtraTable(f"Time of {model.upper()}, each method alone", ("", "seconds", "over plain", "paper"), lines)
