"""Results as plots.

Figures are drawn without pyplot, which keeps them alive and asks for a display.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from impact_gnn.statistics import Estimate
from reproduction.results import atomic

Curves = Mapping[str, Sequence[tuple[float, Estimate]]]
"""By name: points on the horizontal axis with their gains."""


def gain_curves(panels: Mapping[str, tuple[Curves, Curves]]) -> Figure:
    """For every section two panels over γ.

    Gains over plain, and of second-moment methods over PMP.
    """
    figure = Figure(figsize=(10, 3.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 2, squeeze=False)
    for line, (section, pair) in zip(axes, panels.items(), strict=True):
        for axis, curves, what in zip(
            line, pair, ("gain over plain", "gain over PMP"), strict=True
        ):
            axis.axhline(0, color="black", linewidth=0.8)
            for name, points in curves.items():
                gains, errors = [gap.value for _, gap in points], [gap.error for _, gap in points]
                axis.errorbar(
                    [x for x, _ in points],
                    gains,
                    yerr=errors,
                    marker="o",
                    markersize=3,
                    linewidth=1,
                    capsize=2,
                    label=name.replace("*", ""),
                )
            axis.set(xlabel="γ", ylabel=what)
            axis.set_title(section, fontsize=9)
            if curves:
                # beside the curves
                axis.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return figure


def growth(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Nanoseconds per edge against the size of the graph."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.plot(
        [row["edges"] for row in rows],
        [row["ns per edge"] for row in rows],
        marker="o",
        color="tab:blue",
    )
    axis.set(xscale="log", xlabel="edges", ylabel="ns per edge", ylim=(0, None))
    axis.set_title("One hop with PMP weights", fontsize=10)
    axis.grid(alpha=0.3)
    return figure


def write(figure: Figure, *files: Path) -> None:
    """Writes a figure in the formats that the names say.

    Without a date the same result gives the same file.
    """
    for path in files:
        with atomic(path) as temporary:
            kind = path.suffix[1:] or "png"
            figure.savefig(
                temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
            )
