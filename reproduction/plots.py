"""Results as plots; figures are drawn without pyplot, which keeps them alive and asks for a display."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from impact_gnn.statistics import Estimate


def bars(cells: Mapping[tuple[str, str, str], Any], titles: Mapping[str, str]) -> Figure:
    """One panel per section and row of a table: a bar per column with its standard error."""
    panels: dict[str, dict[str, Any]] = {}
    for (section, row, column), cell in cells.items():
        panels.setdefault(f"{section}, {row}", {})[titles.get(column, column)] = cell
    figure = Figure(figsize=(8, 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axis, (title, group) in zip(axes, panels.items(), strict=True):
        colours = ["tab:green" if "ours" in name else "tab:blue" for name in group]
        means, errors = [cell.mean for cell in group.values()], [cell.error for cell in group.values()]
        axis.bar(range(len(group)), means, color=colours, yerr=errors, capsize=2)
        axis.axhline(means[0], color="black", linewidth=0.8, linestyle=":")
        names = [name.replace("*", "") for name in group]
        axis.set_xticks(range(len(group)), names, rotation=30, ha="right", fontsize=7)
        axis.set_ylabel("accuracy")
        axis.set_title(title, fontsize=9)
    return figure


Curves = Mapping[str, Sequence[tuple[float, Estimate]]]
"""By name: points on the horizontal axis with their gains."""


def gain_curves(panels: Mapping[str, tuple[Curves, Curves]]) -> Figure:
    """For every section two panels over γ: gains over plain, and of second-moment methods over PMP."""
    figure = Figure(figsize=(10, 3.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 2, squeeze=False)
    for line, (section, pair) in zip(axes, panels.items(), strict=True):
        for axis, curves, what in zip(line, pair, ("gain over plain", "gain over PMP"), strict=True):
            axis.axhline(0, color="black", linewidth=0.8)
            for name, points in curves.items():
                gains, errors = [gap.value for _, gap in points], [gap.error for _, gap in points]
                axis.errorbar([x for x, _ in points], gains, yerr=errors, marker="o", markersize=3, linewidth=1,
                              capsize=2, label=name)  # fmt: skip
            axis.set(xlabel="γ", ylabel=what)
            axis.set_title(section, fontsize=9)
            if curves:
                axis.legend(fontsize=7)
    return figure


def growth(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Nanoseconds per edge against the size of the graph."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.plot([row["edges"] for row in rows], [row["ns per edge"] for row in rows], marker="o", color="tab:blue")
    axis.set(xscale="log", xlabel="edges", ylabel="ns per edge", ylim=(0, None))
    axis.set_title("One hop with PMP weights", fontsize=10)
    axis.grid(alpha=0.3)
    return figure
