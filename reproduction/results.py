"""One format for all results: tidy records, from which cells, paired differences and pages are made.

A `Table` has sections (a model, say), rows (data, or how graphs were drawn) and columns (methods). Every column of a
row is run on the same graphs and seeds, and is compared with the first column pair by pair.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from impact_gnn import __version__
from impact_gnn.checks import InputError
from impact_gnn.statistics import Estimate, paired
from reproduction import plots
from reproduction.published import GRAPHS, agreement

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
    """One score.

    Args:
        study: Name of the table.
        section: Part of the table.
        row: Row.
        column: Method.
        seed: Number of the graph or of the repetition; records of one seed are pairs.
        score: Accuracy.
        seconds: CPU time.
        hits: Where all seeds are scored on the same nodes: which of them were right, as packed bits in hexadecimal.
    """

    study: str
    section: str
    row: str
    column: str
    seed: int
    score: float
    seconds: float
    hits: str = ""

    @property
    def place(self) -> Place:
        """Where it belongs in the table."""
        return self.section, self.row, self.column


def packed(hits: np.ndarray) -> str:
    """Hits as `Record` keeps them, with their number in front."""
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
    """What the records of one place say."""

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
        published: The paper's numbers by place.
        notes: Further sentences.
        extras: Further tables.
        judged: Whether published numbers are means over `published.GRAPHS` graphs that ours may agree with.
    """

    name: str
    title: str
    about: str
    records: Sequence[Record]
    contrasts: Sequence[tuple[str, str]] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    published: Mapping[Place, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    extras: Sequence[ExtraTable] = ()
    judged: bool = False

    @cached_property
    def by_place(self) -> dict[Place, list[Record]]:
        """Records by section, row and column, in the order in which they came, seeds ascending."""
        found: dict[Place, list[Record]] = {}
        for record in self.records:
            found.setdefault(record.place, []).append(record)
        return {place: sorted(records, key=lambda record: record.seed) for place, records in found.items()}

    def names(self, part: int, section: str | None = None) -> list[str]:
        """Sections (part 0), rows (1) or columns (2), of one section or of all."""
        return list(dict.fromkeys(place[part] for place in self.by_place if section in (None, place[0])))

    @cached_property
    def cells(self) -> dict[Place, Cell]:
        """All cells."""
        out = {}
        for (section, row, column), records in self.by_place.items():
            first = self.by_place[section, row, self.names(2, section)[0]]
            scores = _scores(records)
            spread = float(scores.std(ddof=1)) if len(scores) > 1 else math.nan
            out[section, row, column] = Cell(
                section, row, column, len(scores), float(scores.mean()), spread / math.sqrt(len(scores)), spread,
                float(sum(record.seconds for record in records)),
                None if records is first or len(scores) < 2 else difference(records, first),
                self.published.get((section, row, column)),
            )  # fmt: skip
        return out

    @cached_property
    def compared(self) -> list[tuple[Place, str, Estimate]]:
        """(Place, what it is compared with, difference) for all contrasts that were run."""
        return [
            ((section, row, ours), theirs, difference(records, self.by_place[section, row, theirs]))
            for ours, theirs in self.contrasts
            for (section, row, column), records in self.by_place.items()
            if column == ours and (section, row, theirs) in self.by_place
        ]

    def markdown(self) -> str:
        """The page: a table per section, contrasts, the paper's numbers beside ours."""
        took = sum(record.seconds for record in self.records)
        lines = [f"# {self.title}", "", f"{self.about} {ABOUT} All of it took {took:.0f} seconds of CPU time."]
        lines += [line for note in self.notes for line in ("", note)]
        for section in self.names(0):
            rows = self.names(1, section)
            body = [
                [self.titles.get(column, column), *(self._cell(section, row, column) for row in rows)]
                for column in self.names(2, section)
            ]
            lines += ["", f"## {section}", "", *markdown_table(["", *rows], body)]
        further = [*self.extras, *self._contrast_table(), *self._published_table()]
        for extra in further:
            lines += ["", f"## {extra.title}", "", *markdown_table(extra.header, extra.lines)]
        return "\n".join(lines) + "\n"

    def write(self, directory: Path) -> list[Path]:
        """Writes records as .csv, cells as .json, the page as .md, bars as .png and .svg; returns the files."""
        columns = ("study", "section", "row", "column", "seed", "score", "seconds")
        sheet = io.StringIO()
        writer = csv.writer(sheet, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([getattr(record, name) for name in columns] for record in self.records)
        summary = {
            "study": self.name,
            "version": __version__,
            "about": self.about,
            "notes": list(self.notes),
            "cells": [asdict(cell) for cell in self.cells.values()],
            "contrasts": [
                {"section": place[0], "row": place[1], "column": place[2], "against": theirs, **asdict(gap)}
                for place, theirs, gap in self.compared
            ],
            "extras": [asdict(extra) for extra in self.extras],
        }
        texts = {"csv": sheet.getvalue(), "json": to_json(summary), "md": self.markdown()}
        for kind, text in texts.items():
            write_text(directory / f"{self.name}.{kind}", text)
        files = [directory / f"{self.name}.{kind}" for kind in (*texts, "png", "svg")]
        figure = plots.bars(list(self.cells.values()), self.titles)
        for path in files[-2:]:
            with atomic(path) as temporary:
                plots.save(figure, temporary, path.suffix[1:])
        return files

    def _cell(self, section: str, row: str, column: str) -> str:
        cell = self.cells.get((section, row, column))
        if cell is None:
            return ""
        error = "" if math.isnan(cell.error) else f" ± {cell.error:.4f}"
        gain = "" if cell.gain is None else f" ({_signed(cell.gain)})"
        return f"{cell.mean:.4f}{error}{gain}"

    def _contrast_table(self) -> Iterator[ExtraTable]:
        if self.compared:
            lines = [[*place, theirs, _signed(gap)] for place, theirs, gap in self.compared]
            yield ExtraTable("Further paired differences", ("", "row", "method", "against", "difference"), lines)

    def _published_table(self) -> Iterator[ExtraTable]:
        lines = [
            [
                cell.section, cell.row, self.titles.get(cell.column, cell.column),
                *self._judged(cell.published, cell.mean, cell.error, cell.spread, 1),
            ]
            for cell in self.cells.values() if cell.published is not None
        ]  # fmt: skip
        for (section, row, ours), theirs, gap in self.compared:
            pair = [self.published.get((section, row, column)) for column in (ours, theirs)]
            if pair[0] is not None and pair[1] is not None:
                spread = self.cells[section, row, theirs].spread
                numbers = self._judged(pair[0] - pair[1], gap.value, gap.error, spread, 2)
                lines.append([section, row, f"{ours} over {theirs}", *numbers])
        if lines:
            header = ("", "row", "method", "published", "measured", "allowed", "agrees")
            yield ExtraTable("Beside the paper", header, lines)

    def _judged(self, published: float, measured: float, error: float, spread: float, columns: int) -> list[str]:
        numbers = [f"{published:.4f}", f"{measured:.4f}"]
        if not self.judged:
            return [*numbers, "", ""]
        one = agreement(published, measured, error=error, spread=spread, columns=columns)
        return [*numbers, f"±{one.allowed:.4f}", "yes" if one.agrees else "**no**"]


PAPER_ERRORS = (
    f"The paper gives no standard errors: it is granted those of {GRAPHS} graphs with the spread measured here, and "
    f"unpaired columns. Both agree within two standard errors of their difference. It does not state the γ of its "
    f"fixed row; its random row was run with decay 0 within a label."
)


def markdown_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, line by line."""
    rule = "|" + "---|" * len(header)
    return ["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)]


def to_json(content: Any) -> str:
    """Readable JSON; numbers that are none become null."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(content), indent=1, ensure_ascii=False) + "\n"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name that becomes `path` when the block ends well."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{path.name}.tmp-", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path.parent} cannot be written to ({error.strerror}); choose another place.") from None
    os.close(handle)
    try:
        yield Path(name)
        Path(name).chmod(0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


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
