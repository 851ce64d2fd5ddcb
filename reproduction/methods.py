"""What the paper's methods do, as pictures.

The weights, the mix of distances they make, and the alignments.
"""

import numpy as np
from matplotlib.figure import Figure

from impact_gnn import alignment, weighting
from impact_gnn.alignment.pny import transport_maps

TIMES = np.arange(10)
# nodes per period of a graph that grows, for GenPMP
GROWING = np.round(100 * 1.3**TIMES).astype(int)
# covariances of one class
EARLY, DUE = (
    np.array([[3.0, 1.6], [1.6, 1.2]]),
    np.array([[0.9, -0.3], [-0.3, 0.5]]),
)


def weights() -> Figure:
    """The table of every weighting over the own time and the neighbour's."""
    tables = {
        "MMP": weighting.mmp(TIMES),
        "PMP, Algorithms 1 and 2": weighting.pmp(TIMES),
        "PMP, Definition 4.1": weighting.pmp(TIMES, same_time="double", border="upper"),
        "GenPMP, 1.3 times as many nodes each period": weighting.genpmp(TIMES, GROWING),
    }
    figure = Figure(figsize=(8, 7.6), layout="constrained")
    for axis, (name, table) in zip(figure.subplots(2, 2).flat, tables.items(), strict=True):
        axis.imshow(table, cmap="Blues", vmin=0, vmax=3.5)
        for (row, column), value in np.ndenumerate(table):
            axis.text(
                column,
                row,
                f"{value:.2g}",
                ha="center",
                va="center",
                fontsize=6,
                color="white" if value > 2.2 else "black",
            )
        axis.set(xlabel="time of the neighbour", ylabel="own time", xticks=TIMES, yticks=TIMES)
        axis.set_title(name, fontsize=10)
    return figure


def distances(decay: float = 0.6) -> Figure:
    """Share of the message from every distance in time.

    Links fade by `decay` with each period.
    """
    far = np.abs(TIMES[None, :] - TIMES[:, None])
    tables = {
        "plain": weighting.plain(TIMES),
        "MMP": weighting.mmp(TIMES),
        "PMP": weighting.pmp(TIMES),
    }
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for axis, (name, table) in zip(figure.subplots(1, 3, sharey=True), tables.items(), strict=True):
        weighted = table * decay**far
        for own in (1, 5, 7, 9):
            share = np.bincount(far[own], weighted[own], minlength=len(TIMES)) / weighted[own].sum()
            style = {"color": "black", "linewidth": 2.5} if own == TIMES[-1] else {"linewidth": 1.2}
            axis.plot(TIMES, share, marker="o", markersize=3, label=f"node of time {own}", **style)
        axis.set(xlabel="distance in time", title=name)
    figure.axes[0].set(ylabel="share of the message", ylim=(0, None))
    figure.axes[0].legend(fontsize=8)
    return figure


def alignments(seed: int = 0, count: int = 150) -> Figure:
    """Messages of two classes in a labelled period, before and after, over those of the targets."""
    rng = np.random.default_rng(seed)
    means = np.array([[-2.0, 0.0], [2.5, 1.5]])
    past, due = (
        np.concatenate([rng.multivariate_normal(mean, one, count) for mean in means])
        for one in (EARLY, DUE)
    )
    label = np.repeat([0, 1], count)
    scaled = alignment.jjnorm(
        np.concatenate([past, due]),
        np.concatenate([label, np.full(2 * count, -1)]),
        np.repeat([0, 1], 2 * count),
        target=np.repeat([False, True], 2 * count),
    )[: 2 * count]
    turn = transport_maps(EARLY[None, None], DUE[None], EARLY)[0, 0]
    own = np.stack([past[label == y].mean(0) for y in (0, 1)])[label]
    panels = {
        "messages as they are": past,
        "JJnorm: one scale per period": scaled,
        "PNY: one linear map per class and period": own + (past - own) @ turn.T,
    }
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axis, (name, rows) in zip(
        figure.subplots(1, 3, sharex=True, sharey=True), panels.items(), strict=True
    ):
        axis.scatter(*due.T, s=5, color="0.75", label="targets, labels unknown")
        for y, colour in enumerate(("tab:blue", "tab:orange")):
            axis.scatter(*rows[label == y].T, s=5, color=colour, label=f"labelled, class {y}")
        axis.set_title(name, fontsize=10)
        axis.set(xticks=[], yticks=[])
    figure.axes[0].legend(fontsize=7, loc="upper left")
    return figure


FIGURES = {"weights": weights, "distances": distances, "alignments": alignments}
