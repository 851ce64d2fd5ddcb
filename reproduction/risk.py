"""R_te ≤ R_tr + W1 (section 2 of the paper): the risk gap of a linear head, and moved messages.

The head is fitted to the messages of labelled nodes before the cutoff and asked about those from it
on, whose labels serve for nothing else; see `bounds.risk_bound` for the inequality in the form
that holds. Beside it stands the form that the paper prints, with one W1 of all messages (times the
head's constant), which needs not hold.
"""

import time as clock
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import impact_gnn as ig
from impact_gnn import alignment, checks
from reproduction import bounds, data
from reproduction.results import Record, Table
from reproduction.runner import Progress, Task, one_thread, work_off
from reproduction.synthetic import CUTOFF, GAMMA

METHODS = ("plain", "mmp", "pmp", "genpmp", "center", "standardize", "pmp+jjnorm")
MOST = 20_000  # nodes of either side that are looked at
ROWS = {
    "earlier": "risk before the cutoff",
    "gap": "gap to the risk after it",
    "mix": "of it by the label mix",
    "bound": "bound: mix + L·W1 by class",
    "printed": "as printed: L·W1 of all",
    "floor": "bound if nothing moved",
}


def messages_of(graph: ig.TemporalGraph, method: str) -> np.ndarray:
    """One hop with the method; `graph` is masked, with edges in both directions."""
    first, *align = method.split("+")
    weighting, align = (first, align) if first in ig.weighting.METHODS else ("plain", [first])
    message = np.asarray(ig.propagate(graph, weighting=weighting, hops=1)[0])
    for name in align:
        if name == "jjnorm":
            message = alignment.jjnorm(message, graph.label, graph.time, target=graph.targets())
        else:
            message = {"center": alignment.center, "standardize": alignment.standardize}[name](
                message, graph.time
            )
    return np.asarray(message)


def run_seed(name: str, root: Path | None, seed: int, most: int) -> list[Record]:
    """All methods on one graph; the seed draws the nodes, and the graph where it is generated."""
    graph, cutoff = _graph(name, root, seed)
    view, label, records = graph.masked(cutoff).undirected(), np.asarray(graph.y), []
    rng, labelled = np.random.default_rng(seed), np.flatnonzero(label >= 0)
    early, late = (
        np.sort(rng.permutation(rows)[:MOST])
        for rows in (
            labelled[graph.time[labelled] < cutoff],
            labelled[graph.time[labelled] >= cutoff],
        )
    )
    one, two = np.array_split(rng.permutation(early), 2)
    with one_thread():
        for method in METHODS:
            start, message = clock.process_time(), messages_of(view, method)
            bound = bounds.risk_bound(
                message[early], label[early], message[late], label[late], most=most, seed=seed
            )
            # Two halves of the past: what is left of the bound where nothing has moved.
            still = bounds.risk_bound(
                message[one], label[one], message[two], label[two], most=most, seed=seed
            )
            values = {
                "earlier": bound.earlier,
                "gap": bound.gap,
                "mix": bound.mix,
                "bound": bound.bound,
                "printed": bound.steepest * w1_of(message[early], message[late], 5 * most, rng),
                "floor": still.bound,
            }
            seconds = (clock.process_time() - start) / len(values)
            records += [
                Record(
                    study="risk",
                    section=name,
                    row=ROWS[row],
                    column=method,
                    seed=seed,
                    score=value,
                    seconds=seconds,
                )
                for row, value in values.items()
            ]
    return records


def w1_of(a: np.ndarray, b: np.ndarray, most: int, rng: np.random.Generator) -> float:
    """W1 of two samples of vectors, exact for equally many random rows of both."""
    size = min(most, len(a), len(b))
    cost = cdist(*(part[rng.choice(len(part), size, replace=False)] for part in (a, b)))
    return float(cost[linear_sum_assignment(cost)].mean())


def risk(
    seeds: int,
    out: Path,
    *,
    names: Sequence[str] | None = None,
    root: Path | None = None,
    most: int = 200,
    progress: Progress | None = None,
) -> Table:
    """Runs the study on "tsbm" and graphs of one type under `root`, `most` nodes of a class."""
    if checks.whole_number("seeds", seeds) < 2:
        raise ig.InputError(f"seeds={seeds} gives no standard error; use at least 2, better 5.")
    known = ("tsbm", *(name for name in CUTOFFS if "hetero" not in name))
    wanted = [checks.choice("data", name, known) for name in names or known]
    there = data.at_hand(wanted, root)
    tasks = []
    for name in there:
        place = None if name == "tsbm" else root
        size = None if place is None else data.path_of(name, place).stat().st_size
        for seed in range(seeds):
            settings = {"study": "risk", "data": name, "bytes": size, "seed": seed, "most": most}
            tasks.append(
                Task(f"{name}, seed {seed}", settings, partial(run_seed, name, place, seed, most))
            )
    return Table(
        name="risk",
        title="R_te ≤ R_tr + W1, measured",
        about="Cross-entropy of a linear head on messages of one hop, "
        f"{seeds} seeds, at most {most} nodes of a class.",
        records=work_off(tasks, out / "parts", progress=progress),
    )


CUTOFFS = {**data.CUTOFFS, **data.FURTHER_CUTOFFS}


@lru_cache(maxsize=1)
def _graph(name: str, root: Path | None, seed: int) -> tuple[ig.TemporalGraph, int]:
    if root is None:
        return ig.tsbm(2000, decay=GAMMA, protocol="released", seed=seed), CUTOFF
    return data.load(name, root), CUTOFFS[name]
