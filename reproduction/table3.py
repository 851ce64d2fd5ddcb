"""Table 3: which correction helps on temporal stochastic block models; and the figure over γ.

Every column is trained on the same graphs. The figure shows how the gains depend on how fast
connections fade, from γ = .30 (a node hardly knows other times) to .85 (time hardly matters).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from impact_gnn import checks
from impact_gnn.checks import InputError
from reproduction import networks, plots, published
from reproduction.results import ExtraTable, Record, Table
from reproduction.runner import Progress, Task, one_thread, work_off
from reproduction.synthetic import COLUMNS, MODELS, PROTOCOLS, Column, Options, Row, chosen, draw

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


def run_graph(
    study: str,
    protocol: str,
    row: Row,
    model: str,
    columns: tuple[str, ...],
    seed: int,
    options: Options,
) -> list[Record]:
    """All columns of one model on one graph."""
    how, records = PROTOCOLS[protocol], []
    with one_thread():
        sample = draw(how, row, model, seed, options.num_nodes)
        sample.view.csr()  # every method needs it, none should pay for it
        for name in columns:
            start = time.process_time()
            score = sample.accuracy(networks.logits(model, sample, Column(name), how, options))
            seconds = time.process_time() - start
            records.append(
                Record(
                    study=study,
                    section=f"{model.upper()}, {protocol}",
                    row=row.title,
                    column=name,
                    seed=seed,
                    score=score,
                    seconds=seconds,
                )
            )
    return records


@dataclass(frozen=True)
class SyntheticStudy:
    """Rows (see `table3_rows`, `gamma_rows`), columns (None for all), and graphs per row."""

    name: str
    graphs: int
    rows: Sequence[Row]
    protocols: Sequence[str] = ("released",)
    models: Sequence[str] = MODELS
    columns: Sequence[str] | None = None
    options: Options = Options()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if checks.whole_number("graphs", self.graphs) < 2:
            raise InputError(f"graphs={self.graphs} gives no standard error; use at least 2.")
        for name, values, allowed in (
            ("protocol", self.protocols, PROTOCOLS),
            ("model", self.models, MODELS),
        ):
            for value in values:
                checks.choice(name, value, allowed)

    def run(self, out: Path, *, workers: int = 1, progress: Progress | None = None) -> Table:
        """Works off all graphs, rows in turns.

        A study that is stopped has about as many graphs of each.
        """
        columns = chosen(self.columns)
        places = [
            (protocol, row, model)
            for model in self.models
            for protocol in self.protocols
            for row in self.rows
        ]
        tasks = []
        for seed in range(self.graphs):
            for protocol, row, model in places:
                title = f"{model.upper()}, {protocol}, {row.title}, graph {seed}"
                arguments: dict[str, Any] = {
                    "study": self.name,
                    "protocol": protocol,
                    "row": row,
                    "model": model,
                    "columns": columns,
                    "seed": seed,
                    "options": self.options,
                }
                tasks.append(Task(title, arguments, partial(run_graph, **arguments)))
        records = work_off(tasks, out / "parts", workers=workers, progress=progress)
        paper = {
            (f"{model.upper()}, {protocol}", row.title, column): value
            for protocol, row, model in places
            if row.published
            for column, value in published.TABLE3[row.published, model].items()
        }
        how = "; ".join(f"{name}: {PROTOCOLS[name].about}" for name in self.protocols)
        about = (
            f"{self.graphs} graphs of {self.options.num_nodes} nodes per row, "
            f"{self.options.epochs} epochs; trained on "
            f'times 0-7, scored on times 8 and 9 ({how}). "Oracle" columns are told true labels '
            f"and probabilities."
        )
        extras = [
            time_table(section, records)
            for section in dict.fromkeys(record.section for record in records)
        ]
        notes = (published.ABOUT_TABLE3,) if paper else ()
        title = "Accuracy on graphs of the temporal stochastic block model"
        return Table(
            name=self.name,
            title=title,
            about=about,
            records=records,
            contrasts=CONTRASTS,
            titles=COLUMNS,
            published=paper,
            judged=True,
            notes=notes,
            extras=extras,
        )


def time_table(section: str, records: Sequence[Record]) -> ExtraTable:
    """What each method costs in one thread, as a ratio to plain; the fastest graph counts."""
    best: dict[str, float] = {}
    for record in (record for record in records if record.section == section):
        best[record.column] = min(record.seconds, best.get(record.column, record.seconds))
    paper = published.TIME[section.split(",")[0].lower()]
    lines = [
        [
            COLUMNS[name],
            f"{seconds:.2f}",
            f"{seconds / best['plain']:.2f}",
            f"{paper[name] / paper['plain']:.3g}" if name in paper else "",
        ]
        for name, seconds in best.items()
    ]
    return ExtraTable(f"Time: {section}", ("", "seconds of CPU", "over plain", "paper"), lines)


def gamma_rows(gammas: Sequence[float] = GAMMAS) -> list[Row]:
    for value in gammas:
        if not 0 <= value <= 1:
            raise InputError(f"gammas contains {value}; use numbers from 0 to 1.")
    return [Row(f"γ = {value:g}", float(value)) for value in gammas]


def gain_figure(table: Table, rows: Sequence[Row]) -> Figure:
    """Gains over plain, and of second-moment methods over PMP, against γ."""
    gamma = {row.title: row.decay for row in rows}
    panels: dict[str, tuple[dict[str, list[Any]], dict[str, list[Any]]]] = {
        name: ({}, {}) for name in table.names(0)
    }
    for (section, row, column), cell in table.cells.items():
        if cell.gain is not None:
            panels[section][0].setdefault(COLUMNS[column], []).append((gamma[row], cell.gain))
    for (section, row, column), against, gap in table.compared:
        if against == "pmp":
            panels[section][1].setdefault(COLUMNS[column], []).append((gamma[row], gap))
    return plots.gain_curves(panels)
