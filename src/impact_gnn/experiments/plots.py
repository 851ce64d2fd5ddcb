"""Results as plots (PNG and SVG); without matplotlib there are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from impact_gnn import _files

SECOND = ("pmp+pny", "pmp+pny-oracle", "pmp+jjnorm")


def draw(name: str, result: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draws a result of the experiment `name`; returns the files, none where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        return []
    figure = _PLOTS[name](result)
    files = [directory / f"{name}.{kind}" for kind in ("png", "svg")]
    for path in files:
        with _files.atomic_file(path) as temporary:
            # Without a date the same result gives the same file.
            undated = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(temporary, format=path.suffix[1:], dpi=150, metadata=undated)
    return files


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # no pyplot: it keeps figures alive and asks for a display

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _table3(result: Mapping[str, Any]) -> Any:
    """One panel per row of the table: bars with standard errors."""
    rows = result["rows"]
    figure, axes = _figure(len(rows), 1, 8, 2.6 * len(rows))
    for axis, row in zip(axes[:, 0], rows, strict=True):
        cells = row["columns"]
        colours = ["tab:gray" if c["oracle"] else "tab:green" if c["ours"] else "tab:blue" for c in cells.values()]
        axis.bar(range(len(cells)), [c["mean"] for c in cells.values()], color=colours,
                 yerr=[c["se"] for c in cells.values()], capsize=2)  # fmt: skip
        axis.axhline(cells["plain"]["mean"], color="black", linewidth=0.8, linestyle=":")
        axis.set_xticks(range(len(cells)), [c["title"] for c in cells.values()], rotation=30, ha="right", fontsize=7)
        axis.set_ylabel("accuracy")
        axis.set_title(f"{row['model'].upper()}, {row['title']}, {row['protocol']}", fontsize=9)
    return figure


def _gamma(result: Mapping[str, Any]) -> Any:
    """Left the gain over plain, right the gain of second-moment methods over PMP; one line of panels per model."""
    models = list(dict.fromkeys(row["model"] for row in result["rows"]))
    figure, axes = _figure(len(models), 2, 10, 3.6 * len(models))
    for line, model in zip(axes, models, strict=True):
        rows = [row for row in result["rows"] if row["model"] == model]
        gamma = [row["decay"] for row in rows]
        for name, first in rows[0]["columns"].items():
            if name != "plain":
                _curve(line[0], gamma, [row["columns"][name] for row in rows], first["title"])
        for index, contrast in enumerate(rows[0]["contrasts"]):
            if contrast["column"] in SECOND:
                title = rows[0]["columns"][contrast["column"]]["title"]
                _curve(line[1], gamma, [row["contrasts"][index] for row in rows], title)
        for axis, what in zip(line, ("gain over plain", "gain over PMP"), strict=True):
            axis.axhline(0, color="black", linewidth=0.8)
            axis.set_xlabel("γ")
            axis.set_ylabel(what)
            axis.set_title(model.upper(), fontsize=9)
            if axis.lines[1:]:
                axis.legend(fontsize=7)
    return figure


def _table1(result: Mapping[str, Any]) -> Any:
    """Per data set the four scores, with standard errors."""
    names = list(dict.fromkeys(row["data"] for row in result["rows"]))
    figure, axes = _figure(1, 1, 1.5 + 1.4 * max(len(names), 2), 3.6)
    kinds = list(dict.fromkeys((row["split"], row["time_embedding"]) for row in result["rows"]))
    for k, (split, told) in enumerate(kinds):
        rows = [row for row in result["rows"] if (row["split"], row["time_embedding"]) == (split, told)]
        place = [names.index(row["data"]) + (k - 1.5) * 0.2 for row in rows]
        axes[0, 0].bar(place, [row["mean"] for row in rows], 0.2, yerr=[row["se"] for row in rows], capsize=2,
                       label=split + (" + time" if told else ""))  # fmt: skip
    axes[0, 0].set_xticks(range(len(names)), names, fontsize=8)
    axes[0, 0].set_ylabel("accuracy on late nodes")
    axes[0, 0].legend(fontsize=7)
    return figure


def _curve(axis: Any, gamma: Sequence[float], cells: Sequence[Mapping[str, Any]], title: str) -> None:
    gain, error = ([cell[key] for cell in cells] for key in ("difference", "difference_se"))
    axis.errorbar(gamma, gain, yerr=error, marker="o", markersize=3, linewidth=1, capsize=2, label=title)


_PLOTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = MappingProxyType(
    {"table3": _table3, "figure-gamma": _gamma, "table1": _table1}
)
