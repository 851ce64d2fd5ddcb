"""Results as files: JSON for machines, CSV for spreadsheets, Markdown for people, plots where matplotlib is there.

Each file is written whole or not at all.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from impact_gnn import _files
from impact_gnn.experiments import markdown, plots

CELL = ("mean", "se", "sd", "difference", "difference_se", "graphs", "seconds", "oracle")


def write(name: str, result: Mapping[str, Any], directory: Path) -> list[Path]:
    """Writes a result of the experiment `name` under that name; returns the files."""
    files = [directory / f"{name}.{kind}" for kind in ("json", "csv", "md")]
    _files.write_json(files[0], without_graphs(result))
    header, lines = _LINES[name](result)
    write_csv(files[1], header, lines)
    with _files.atomic_file(files[2]) as path:
        path.write_text(markdown.PAGES[name](result), encoding="utf-8")
    if any("accuracy" in row for row in result["rows"]):
        files.append(directory / f"{name}-graphs.csv")
        write_csv(files[-1], ("protocol", "row", "decay", "model", "column", "graph", "accuracy"), _graphs(result))
    return files + plots.draw(name, result, directory)


def without_graphs(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result without the accuracies of single graphs, which have a file of their own."""
    rows = [{key: value for key, value in row.items() if key != "accuracy"} for row in result["rows"]]
    return {**result, "rows": rows}


def write_csv(path: Path, header: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """Writes a table, atomically."""
    with _files.atomic_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(lines)


def _cells(result: Mapping[str, Any]) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
    place = ("protocol", "row", "decay", "model")
    lines = [
        [*(row[key] for key in place), name, *(cell[key] for key in CELL)]
        for row in result["rows"]
        for name, cell in row["columns"].items()
    ]
    return (*place, "column", *CELL), lines


def _graphs(result: Mapping[str, Any]) -> Iterable[Sequence[Any]]:
    for row in result["rows"]:
        for name, values in row["accuracy"].items():
            for graph, value in enumerate(values):
                yield row["protocol"], row["row"], row["decay"], row["model"], name, graph, value


def _splits(result: Mapping[str, Any]) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
    keys = ("data", "split", "time_embedding", "mean", "se", "seeds", "train", "test")
    return keys, [[row[key] for key in keys] for row in result["rows"]]


_LINES: Mapping[str, Callable[[Mapping[str, Any]], tuple[Sequence[str], Iterable[Sequence[Any]]]]] = MappingProxyType(
    {"table3": _cells, "figure-gamma": _cells, "table1": _splits}
)
