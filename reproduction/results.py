"""One format for all results: tidy records, from which cells, paired differences and pages are made.

A `Table` has sections (a model, say), rows (data, or how graphs were drawn) and columns (methods). Every column of a
row is run on the same graphs and seeds, and is compared with the first column pair by pair.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from impact_gnn.checks import InputError
from impact_gnn.statistics import Estimate, paired
from reproduction import plots
from reproduction.published import allowed_gap

Place = tuple[str, str, str]
"""Section, row, column."""

NORMAL = 1.96
"""Standard errors of a 95 % interval of many nodes."""

ABOUT = (
    "± is the standard error; in brackets the paired difference to the first line, with its own; **bold** where the "
    "95 % interval leaves out zero."
)


@dataclass(frozen=True)
class Record:
    """One score: an accuracy, and the CPU time that it took.

    `seed` is the number of the graph or of the repetition: records of one seed are pairs. `hits` says, where all
    seeds are scored on the same nodes, which of them were right (see `packed`).
    """

    study: str
    section: str
    row: str
    column: str
    seed: int
    score: float
    seconds: float
    hits: str = ""


def packed(hits: np.ndarray) -> str:
    """Hits as `Record` keeps them: their number, and bits in hexadecimal."""
    return f"{len(hits)}:{np.packbits(hits).tobytes().hex()}"


def difference(ours: Sequence[Record], theirs: Sequence[Record]) -> Estimate:
    """Ours minus theirs, paired by seed; where all seeds share the scored nodes, other nodes might have come too.

    The error of the nodes is then added: it is that of the share of seeds that got a node right, paired by node.
    """
    if [record.seed for record in ours] != [record.seed for record in theirs]:
        raise InputError(f"{ours[0].column!r} and {theirs[0].column!r} have other seeds; run both on the same ones.")
    gap = paired(_scores(ours), _scores(theirs))
    if not (ours[0].hits and theirs[0].hits):
        return gap
    nodes = paired(_hit_rate(ours), _hit_rate(theirs)).error
    half = math.hypot(gap.high - gap.value, NORMAL * nodes)
    return Estimate(gap.value, math.hypot(gap.error, nodes), gap.value - half, gap.value + half)


@dataclass(frozen=True)
class Cell:
    """What the records of one place say; `gain` is the difference to the section's first column."""

    section: str
    row: str
    column: str
    count: int
    mean: float
    error: float
    spread: float
    seconds: float
    gain: Estimate | None
    published: float | None


@dataclass(frozen=True)
class ExtraTable:
    """A further table of a page, ready to print."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Table:
    """A study's records and what a reader must know about them.

    Args:
        name: Name of its files.
        title: Heading.
        about: What was done.
        records: The records.
        contrasts: Pairs of columns that are compared besides.
        titles: Columns in words; those not named stand for themselves.
        published: The paper's numbers.
        judged: Whether those are means over `published.GRAPHS` graphs, which ours may agree with.
        notes, extras: Further sentences and tables.
    """

    name: str
    title: str
    about: str
    records: Sequence[Record]
    contrasts: Sequence[tuple[str, str]] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[Place, float] = field(default_factory=dict)
    judged: bool = False
    notes: Sequence[str] = ()
    extras: Sequence[ExtraTable] = ()

    @cached_property
    def by_place(self) -> dict[Place, list[Record]]:
        """Records of every place, seeds ascending."""
        out: dict[Place, list[Record]] = {}
        for record in sorted(self.records, key=lambda record: record.seed):
            out.setdefault((record.section, record.row, record.column), []).append(record)
        return out

    def names(self, part: int, section: str | None = None) -> list[str]:
        """Sections (part 0), rows (1) or columns (2), of one section or of all."""
        return list(dict.fromkeys(place[part] for place in self.by_place if section in (None, place[0])))

    @cached_property
    def cells(self) -> dict[Place, Cell]:
        out = {}
        for place, records in self.by_place.items():
            first = self.by_place[place[0], place[1], self.names(2, place[0])[0]]
            scores = _scores(records)
            spread = float(scores.std(ddof=1))
            out[place] = Cell(
                *place, len(scores), float(scores.mean()), spread / math.sqrt(len(scores)), spread,
                sum(record.seconds for record in records), None if records is first else difference(records, first),
                self.published.get(place),
            )  # fmt: skip
        return out

    @cached_property
    def compared(self) -> list[tuple[Place, str, Estimate]]:
        """(Place, what it is compared with, difference) for all contrasts that were run."""
        return [
            (place, theirs, difference(records, self.by_place[place[0], place[1], theirs]))
            for ours, theirs in self.contrasts
            for place, records in self.by_place.items()
            if place[2] == ours and (place[0], place[1], theirs) in self.by_place
        ]

    def markdown(self) -> str:
        """The page: a table per section, contrasts, the paper's numbers beside ours."""
        took = sum(record.seconds for record in self.records)
        lines = [f"# {self.title}", "", f"{self.about} {ABOUT} All of it took {took:.0f} seconds of CPU time."]
        lines += [line for note in self.notes for line in ("", note)]
        for section in self.names(0):
            rows = self.names(1, section)
            body = [
                [self.titles.get(column, column), *(self._cell((section, row, column)) for row in rows)]
                for column in self.names(2, section)
            ]
            lines += ["", f"## {section}", "", *markdown_table(["", *rows], body)]
        contrasts = [[*place, theirs, _signed(gap)] for place, theirs, gap in self.compared]
        further = [
            *self.extras,
            ExtraTable("Further paired differences", ("", "row", "method", "against", "difference"), contrasts),
            ExtraTable(
                "Beside the paper", ("", "row", "method", "published", "measured", "allowed", "agrees"), self._paper()
            ),
        ]
        for extra in further:
            if extra.lines:
                lines += ["", f"## {extra.title}", "", *markdown_table(extra.header, extra.lines)]
        return "\n".join(lines) + "\n"

    def write(self, directory: Path) -> list[Path]:
        """Writes records as .csv, the page as .md, bars as .png and .svg; returns the files."""
        columns = ("study", "section", "row", "column", "seed", "score", "seconds")
        sheet = io.StringIO()
        writer = csv.writer(sheet, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([getattr(record, name) for name in columns] for record in self.records)
        files = []
        for kind, text in (("csv", sheet.getvalue()), ("md", self.markdown())):
            files.append(directory / f"{self.name}.{kind}")
            write_text(files[-1], text)
        return files + write_figure(plots.bars(list(self.cells.values()), self.titles), directory, self.name)

    def _cell(self, place: Place) -> str:
        cell = self.cells.get(place)
        if cell is None:
            return ""
        return f"{cell.mean:.4f} ± {cell.error:.4f}" + ("" if cell.gain is None else f" ({_signed(cell.gain)})")

    def _paper(self) -> list[list[str]]:
        lines = [
            [*place[:2], self.titles.get(place[2], place[2]), *self._beside(it.published, it.mean, it, it.error)]
            for place, it in self.cells.items()
            if it.published is not None
        ]
        for (section, row, ours), theirs, gap in self.compared:
            one, other = (self.cells[section, row, column] for column in (ours, theirs))
            if one.published is not None and other.published is not None:
                numbers = self._beside(one.published - other.published, gap.value, other, gap.error, columns=2)
                lines.append([section, row, f"{ours} over {theirs}", *numbers])
        return lines

    def _beside(self, published: float, measured: float, cell: Cell, error: float, columns: int = 1) -> list[str]:
        numbers = [f"{published:.4f}", f"{measured:.4f}"]
        if not self.judged:
            return [*numbers, "", ""]
        allowed = allowed_gap(error, cell.spread, columns)
        return [*numbers, f"±{allowed:.4f}", "yes" if abs(measured - published) <= allowed else "**no**"]


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    rule = "|" + "---|" * len(header)
    return ["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)]


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name that becomes `path` when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_figure(figure: Figure, directory: Path, name: str, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    files = [directory / f"{name}.{kind}" for kind in kinds]
    for path in files:
        with atomic(path) as temporary:  # without a date the same result gives the same file
            undated = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=undated)
    return files


def _scores(records: Sequence[Record]) -> np.ndarray:
    return np.array([record.score for record in records])


def _hit_rate(records: Sequence[Record]) -> np.ndarray:
    """For every scored node the share of seeds that got it right."""
    parts = [record.hits.split(":") for record in records]
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))[: int(size)] for size, text in parts]
    return np.mean(bits, axis=0)


def _signed(estimate: Estimate) -> str:
    mark = "**" if estimate.significant else ""
    return f"{mark}{estimate.value:+.4f}{mark} ± {estimate.error:.4f}"
