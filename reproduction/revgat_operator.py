"""Does GenPMP's gain on ogbn-arxiv (Table 2.

.7065 → .7468) correct the shift in time, or a missing normalisation?

The authors' "linear RevGAT" is an input and an output layer of three heads of 256 columns, with no
invertible block between them. Its attention has lost the softmax that divided by the degree, but
not the factors around it, which were made for a softmax: √degree at the target and 1/√degree at the
source. What is left is a sum without a normaliser.

| operator | M, with W = Ω·A + I | degrees | |---|---|---| | released | D^+½ W D^-½ | edges counted
and one loop, whatever their weights | | symmetric | D_W^-½ W D_W^-½ | sums of the weights, loop
included | | mean | D_W^-1 W | sums of the weights, loop included |

The time weights Ω multiply edges first, in all three; edges are taken in both directions, and loops
have weight 1. Heads without attention are one wide linear map, so the model is out = M·relu(BN(M
x·A + a))·B + b; with `root`, each layer adds a linear map of its own input, as RevGAT does. M x
never changes and is computed once, the second product acts on 40 columns, after the linear map.

As in RevGAT the loss is log(ε + cross-entropy) and the normalisation BatchNorm (here over all nodes
at training and prediction alike). Otherwise the training is smaller: Adam instead of RMSprop, no
dropout of units or edges, no labels as inputs, no distillation, `width` columns a head instead of
256, `epochs` instead of 2,000.
"""

import math
import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

import impact_gnn as ig
from impact_gnn import checks
from impact_gnn.nn import Propagation, split_rows
from reproduction import data
from reproduction.recipes import standardized
from reproduction.results import Record, Table, packed
from reproduction.runner import Progress, Task, one_thread, work_off
from reproduction.table2 import Problem

HEADS = 3
EPSILON = 1 - math.log(2)
OPERATORS = {"released": "D^+½ W D^-½, as released", "symmetric": "D^-½ W D^-½", "mean": "row mean"}
METHODS = ("plain", "mmp", "pmp", "genpmp", "genpmp-source")
TITLES = {
    "mmp": "MMP",
    "pmp": "PMP",
    "genpmp": "GenPMP, target's time",
    "genpmp-source": "GenPMP, source's time",
}
NOTES = (
    "W holds the time weights, which multiply edges before anything is normalised. D of the "
    "released operator counts edges; the other two divide by sums of the weights.",
    "GenPMP's denominator is counted at the target's time in the code released for ogbn-arxiv, "
    "at the source's in that for ogbn-papers100M. The second table is the first one transposed.",
)


@dataclass(frozen=True)
class Options:
    """`width` columns in each of three heads.

    The epoch is chosen among every `every`-th; `root` see above.
    """

    width: int = 32
    epochs: int = 40
    every: int = 5
    lr: float = 0.02
    root: bool = False


def weights_of(graph: ig.TemporalGraph, method: str) -> np.ndarray:
    """Ω [T, T].

    A distance in time is the same from both ends, so the source's denominators are a transpose.
    """
    table = ig.weighting.table(method.removesuffix("-source"), graph.times, graph.counts)
    return table.T.copy() if method.endswith("-source") else table


def message_of(graph: ig.TemporalGraph, operator: str, method: str) -> Callable[[Tensor], Tensor]:
    """The differentiable product with M; `graph` has its edges in both directions."""
    table = weights_of(graph, method)
    if operator != "released":
        return Propagation.of(
            graph,
            weighting=table,
            norm={"symmetric": "sym"}.get(operator, operator),
            self_loop=True,
        )
    total = Propagation.of(graph, weighting=table, norm="sum", self_loop=True)
    degree = torch.from_numpy(np.diff(graph.csr().indptr) + 1.0).float()[:, None]
    return lambda x: degree.sqrt() * total(x / degree.sqrt())


class TwoLayers(nn.Module):
    """The model above; `first` is M x, or M x beside x."""

    def __init__(self, columns: int, num_labels: int, options: Options) -> None:
        super().__init__()
        width = HEADS * options.width
        self.encode = nn.Linear(columns, width)
        self.norm = nn.BatchNorm1d(width, track_running_stats=False)
        self.classify = nn.Linear(width, num_labels, bias=False)
        self.root = nn.Linear(width, num_labels, bias=False) if options.root else None
        self.bias = nn.Parameter(torch.zeros(num_labels))

    def forward(self, first: Tensor, message: Callable[[Tensor], Tensor]) -> Tensor:
        hidden = relu(self.norm(self.encode(first)))
        out = message(self.classify(hidden)) + self.bias
        return out if self.root is None else out + self.root(hidden)


def fit(
    problem: Problem,
    both: ig.TemporalGraph,
    operator: str,
    method: str,
    seed: int,
    options: Options,
) -> tuple[np.ndarray, float]:
    """Labels of the problem's rows, and the accuracy on the last labelled period.

    Both are of the epoch that is best on that period.
    """
    split, message = split_rows(problem.view, valid=1), message_of(both, operator, method)
    x = torch.tensor(np.asarray(both.x))
    inputs = [message(x).numpy(), x.numpy()] if options.root else [message(x).numpy()]
    first = torch.from_numpy(np.hstack(standardized(inputs, split.train)))
    label, train, valid = (
        torch.tensor(problem.view.label),
        *map(torch.from_numpy, (split.train, split.valid)),
    )
    torch.manual_seed(seed)
    network = TwoLayers(first.shape[1], problem.view.num_labels, options)
    adam = torch.optim.Adam(network.parameters(), lr=options.lr)
    best, chosen = -1.0, np.empty(0)
    for epoch in range(1, options.epochs + 1):
        loss = cross_entropy(network(first, message)[train], label[train], reduction="none")
        adam.zero_grad()
        (loss + EPSILON).log().mean().backward()
        adam.step()
        if epoch % options.every and epoch < options.epochs:
            continue
        with torch.no_grad():
            out = network(first, message).argmax(1)
        if (score := float((out[valid] == label[valid]).float().mean())) > best:
            best, chosen = score, out.numpy()[problem.rows]
    return chosen, best


def run_cell(
    root: Path, features: str, operator: str, method: str, seed: int, options: Options
) -> list[Record]:
    """One fit: its accuracy on the period it was chosen by, and on the papers from 2019 on."""
    problem, both = _problem(root, features)
    start = clock.process_time()
    with one_thread():
        predicted, valid = fit(problem, both, operator, method, seed=seed, options=options)
    hits, seconds = problem.hits(predicted), clock.process_time() - start
    section = OPERATORS[operator] + (", root weight" if options.root else "")
    return [
        Record(
            study="revgat-operator",
            section=section,
            row="valid",
            column=method,
            seed=seed,
            score=valid,
            seconds=0.0,
        ),
        Record(
            study="revgat-operator",
            section=section,
            row="test",
            column=method,
            seed=seed,
            score=float(hits.mean()),
            seconds=seconds,
            hits=packed(hits),
        ),
    ]


def revgat_operator(
    root: Path,
    seeds: int,
    out: Path,
    *,
    features: str = "joined",
    operators: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Table:
    """Runs the study on `ogbn_arxiv` under `root`.

    `features` are "joined" (x and x_svd) or "svd" (x_svd alone).
    """
    if checks.whole_number("seeds", seeds) < 2:
        raise ig.InputError(f"seeds={seeds} gives no standard error; use at least 2, better 5.")
    checks.choice("features", features, ("joined", "svd"))
    kinds = [checks.choice("operator", each, OPERATORS) for each in operators or OPERATORS]
    wanted = {checks.choice("method", each, METHODS) for each in methods or METHODS[:4]} | {"plain"}
    path = data.path_of("ogbn_arxiv", root)
    if not path.is_file():
        raise ig.InputError(
            f"{path} does not exist; pass the folder of the real graphs with --root."
        )
    options, tasks = options or Options(), []
    for seed, operator, method in product(
        range(seeds), kinds, (each for each in METHODS if each in wanted)
    ):
        arguments: dict[str, Any] = {
            "features": features,
            "operator": operator,
            "method": method,
            "seed": seed,
            "options": options,
        }
        settings = {"study": "revgat-operator", "bytes": path.stat().st_size, **arguments}
        tasks.append(
            Task(
                f"{operator}, {method}, seed {seed}", settings, partial(run_cell, root, **arguments)
            )
        )
    records = work_off(tasks, out / "parts", progress=progress)
    about = (
        f"Linear RevGAT on ogbn-arxiv with other features than OGB's ({features}), {seeds} seeds, "
        f"{HEADS} x {options.width} columns and {options.epochs} epochs (the original: 3 x 256, "
        "2,000). Labels before 2019 are known; epochs were chosen on 2018 (valid), later papers "
        "are scored."
    )
    title = "GenPMP in linear RevGAT, by how messages are normalised"
    return Table(
        name="revgat-operator",
        title=title,
        about=about,
        records=records,
        titles=TITLES,
        notes=NOTES,
    )


@lru_cache(maxsize=1)
def _problem(root: Path, features: str) -> tuple[Problem, ig.TemporalGraph]:
    """What is to be predicted, and the graph in both directions, without the answers."""
    graph = data.load("ogbn_arxiv", root, joined=features == "joined")
    problem = Problem.of(graph, data.CUTOFFS["ogbn_arxiv"])
    return problem, problem.view.undirected()
