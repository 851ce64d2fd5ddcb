"""One format for all results.

Tidy records, from which cells, paired differences and pages are made.

A `Table` has sections (a model, say), rows (data, or how graphs were drawn) and columns (methods).
Every column of a row is run on the same graphs and seeds, and is compared with the first column
pair by pair.
"""

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.statistics import Estimate, paired
from reproduction.published import allowed_gap

Place = tuple[str, str, str]
"""Section, row, column."""

NORMAL = 1.96
"""Standard errors of a 95 % interval of many nodes."""

ABOUT = (
    "± is the standard error; in brackets the paired difference to the first line, with its own; "
    "**bold** where the 95 % interval leaves out zero."
)


@dataclass(frozen=True)
class Record:
    """One score: an accuracy, and the CPU time that it took.

    `seed` is the number of the graph or of the repetition: records of one seed are pairs. `hits`
    says, where all
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
    """Ours minus theirs, paired by seed.

    Where all seeds share the scored nodes, other nodes might have come too.

    The error of the nodes is then added: it is that of the share of seeds that got a node right,
    paired by node.
    """
    if [record.seed for record in ours] != [record.seed for record in theirs]:
        raise InputError(
            f"{ours[0].column!r} and {theirs[0].column!r} have different seeds; "
            "run both with the same seeds."
        )
    gap = paired(_scores(ours), _scores(theirs))
    if not (ours[0].hits and theirs[0].hits):
        return gap
    nodes = paired(hit_rate(ours), hit_rate(theirs)).error
    half = math.hypot(gap.high - gap.value, NORMAL * nodes)
    return Estimate(gap.value, math.hypot(gap.error, nodes), gap.value - half, gap.value + half)


@dataclass(frozen=True)
class Cell:
    """What the records of one place say; `gain` is the difference to the section's first column."""

    count: int
    mean: float
    error: float
    spread: float
    gain: Estimate | None


@dataclass(frozen=True)
class ExtraTable:
    """A table of a page, ready to print."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]

    def __str__(self) -> str:
        rows = ["| " + " | ".join(line) + " |" for line in (self.header, *self.lines)]
        return "\n".join(
            [f"## {self.title}", "", rows[0], "|" + "---|" * len(self.header), *rows[1:]]
        )


@dataclass(frozen=True)
class Table:
    """A study's records and what a reader must know about them.

    `contrasts` are pairs of columns that are compared besides, `titles` are columns in words,
    `published` the paper's numbers; those are `judged` where they are means over `published.GRAPHS`
    graphs, which ours may agree with.
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
        return list(
            dict.fromkeys(place[part] for place in self.by_place if section in (None, place[0]))
        )

    @cached_property
    def cells(self) -> dict[Place, Cell]:
        out = {}
        for place, records in self.by_place.items():
            first = self.by_place[place[0], place[1], self.names(2, place[0])[0]]
            scores, gain = (
                _scores(records),
                None if records is first else difference(records, first),
            )
            spread = float(scores.std(ddof=1))
            out[place] = Cell(
                len(scores), float(scores.mean()), spread / math.sqrt(len(scores)), spread, gain
            )
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
        about = f"{self.about} {ABOUT} All of it took {took:.0f} seconds of CPU time."
        contrasts = [[*place, theirs, _signed(gap)] for place, theirs, gap in self.compared]
        header = ("", "row", "method", "published", "measured", "allowed", "agrees")
        tables = [
            *(self._section(section) for section in self.names(0)),
            *self.extras,
            ExtraTable(
                "Further paired differences",
                ("", "row", "method", "against", "difference"),
                contrasts,
            ),
            ExtraTable("Beside the paper", header, self._paper()),
        ]
        parts = [
            f"# {self.title}",
            about,
            *self.notes,
            *(str(table) for table in tables if table.lines),
        ]
        return "\n\n".join(parts) + "\n"

    def write(self, directory: Path) -> list[Path]:
        """Writes records as .csv and the page as .md; returns the files."""
        columns = ("study", "section", "row", "column", "seed", "score", "seconds")
        sheet = io.StringIO()
        writer = csv.writer(sheet, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([getattr(record, name) for name in columns] for record in self.records)
        files = [directory / f"{self.name}.csv", directory / f"{self.name}.md"]
        for path, text in zip(files, (sheet.getvalue(), self.markdown()), strict=True):
            write_text(path, text)
        return files

    def _section(self, section: str) -> ExtraTable:
        def formatted(place: Place) -> str:
            cell = self.cells[place]
            return f"{cell.mean:.4f} ± {cell.error:.4f}" + (
                "" if cell.gain is None else f" ({_signed(cell.gain)})"
            )

        rows, columns = self.names(1, section), self.names(2, section)
        lines = [
            [self.titles.get(name, name), *(formatted((section, row, name)) for row in rows)]
            for name in columns
        ]
        return ExtraTable(section, ["", *rows], lines)

    def _paper(self) -> list[list[str]]:
        """Published numbers, and differences of two of them, beside ours."""
        lines = []
        for place, theirs in self.published.items():
            if place in self.cells:
                cell, name = self.cells[place], self.titles.get(place[2], place[2])
                lines.append(
                    [
                        *place[:2],
                        name,
                        *self._judged(theirs, cell.mean, allowed_gap(cell.error, cell.spread)),
                    ]
                )
        for place, base, gap in self.compared:
            other = (place[0], place[1], base)
            if place in self.published and other in self.published:
                allowed = allowed_gap(gap.error, self.cells[other].spread, columns=2)
                numbers = self._judged(
                    self.published[place] - self.published[other], gap.value, allowed
                )
                lines.append([*place[:2], f"{place[2]} over {base}", *numbers])
        return lines

    def _judged(self, published: float, measured: float, allowed: float) -> list[str]:
        judgement = [f"±{allowed:.4f}", "yes" if abs(measured - published) <= allowed else "**no**"]
        return [f"{published:.4f}", f"{measured:.4f}", *(judgement if self.judged else ["", ""])]


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


def _scores(records: Sequence[Record]) -> np.ndarray:
    return np.array([record.score for record in records])


def hit_rate(records: Sequence[Record]) -> np.ndarray:
    """For every scored node the share of seeds that got it right."""
    parts = [record.hits.split(":") for record in records]
    bits = [
        np.unpackbits(np.frombuffer(bytes.fromhex(text), np.uint8))[: int(size)]
        for size, text in parts
    ]
    return np.mean(bits, axis=0)


def _signed(estimate: Estimate) -> str:
    mark = "**" if estimate.significant else ""
    return f"{mark}{estimate.value:+.4f}{mark} ± {estimate.error:.4f}"
