"""Baselines: tuned standard methods, each a function from a view and a seed to probabilities.

A view (`graph.masked(cutoff)`) holds no label at or after its cutoff. Settings and the number of
epochs or rounds are chosen as if the last labelled periods (at least a tenth of all labels) had to
be predicted; then everything is fitted again with those labels too. Probabilities are those of
`np.flatnonzero(view.targets())`.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from torch.nn import functional
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.nn.models import CorrectAndSmooth, LabelPropagation
from torch_geometric.utils import to_torch_csr_tensor

import impact_gnn as ig
from impact_gnn.checks import InputError
from impact_gnn.statistics import Scale

Baseline = Callable[[ig.TemporalGraph, int], np.ndarray]

VALIDATION_SHARE = 0.1
MOST_DEGREE = 50
"""Neighbours of another type with more edges (a common product, say) join no nodes."""
MOST_EDGES = 4_000_000
PATIENCE = 100


@dataclass(frozen=True, eq=False)
class Holdout:
    """Nodes to choose by, and their labels."""

    rows: np.ndarray
    labels: np.ndarray

    def accuracy(self, probabilities: np.ndarray) -> float:
        return float((probabilities[self.rows].argmax(1) == self.labels).mean())


@dataclass(frozen=True, eq=False)
class Fit:
    """Probabilities of all nodes of the target type, and the number of epochs or rounds."""

    probabilities: np.ndarray
    steps: int = 0


Learner = Callable[[ig.TemporalGraph, Any, Holdout | None, int], Fit]
"""Fits a setting to a view: with `Held` it chooses its steps, otherwise it takes the number."""


def labelled(view: ig.TemporalGraph) -> tuple[np.ndarray, np.ndarray]:
    """Nodes with a known label, and their labels."""
    assert view.y is not None  # a view without labels cannot be made
    rows = np.flatnonzero(view.y >= 0)
    return rows, view.y[rows].astype(np.int64)


def hold_out(view: ig.TemporalGraph) -> tuple[ig.TemporalGraph, Holdout]:
    """The view as it was before the last labelled periods, and the nodes of these."""
    rows, labels = labelled(view)
    when = view.time[rows]
    enough = [t for t in np.unique(when)[1:] if (when >= t).mean() >= VALIDATION_SHARE]
    if not enough:
        raise InputError(
            "only one period has labels, so none is left for validation; "
            "use labels of at least two."
        )
    late = when >= enough[-1]
    return view.masked(int(enough[-1])), Holdout(rows[late], labels[late])


def tuned(view: ig.TemporalGraph, learn: Learner, settings: Sequence[Any]) -> tuple[Fit, Fit]:
    """The best setting's fit to the past, and its fit to all labels of the view."""
    past, holdout = hold_out(view)
    fits = [learn(past, setting, holdout, 0) for setting in settings]
    best = int(np.argmax([holdout.accuracy(fit.probabilities) for fit in fits]))
    return fits[best], learn(view, settings[best], None, fits[best].steps)


def predict_tuned(view: ig.TemporalGraph, learn: Learner, settings: Sequence[Any]) -> np.ndarray:
    return tuned(view, learn, settings)[1].probabilities[view.targets()]


# Inputs


def own_features(view: ig.TemporalGraph) -> np.ndarray:
    """Features in the scale of the labelled nodes.

    Without any, the degree's power of two as one-hot columns.
    """
    if view.x is None:
        degree = np.diff(own_graph(view).indptr)
        return np.eye(int(np.log2(degree.max() + 1)) + 1, dtype=np.float32)[
            np.log2(degree + 1).astype(int)
        ]
    return Scale.fit(np.asarray(view.x[labelled(view)[0]])).apply(np.asarray(view.x, np.float32))


def hop_features(view: ig.TemporalGraph, *, labels: bool = False) -> np.ndarray:
    """Own features, means over neighbours at 1 and 2 steps in either direction, or along metapaths.

    Log degrees.

    With `labels`, the known labels of neighbours in the same way, the own label left out.
    """
    view = view.with_features(own_features(view))
    both = view.undirected()
    if view.is_hetero:
        hops = [*ig.metapath_hops(both, length=2).values()]
    else:
        flipped = {
            name: replace(part, edge_index=part.edge_index[::-1])
            for name, part in view.relations.items()
        }
        hops = [*ig.propagate(view), *ig.propagate(view.with_parts(dict(view.nodes), flipped))]
    if labels:
        hops += (
            [*ig.metapath_label_hops(both).values()]
            if view.is_hetero
            else ig.label_hops(both, hops=2)
        )
    degrees = [
        np.log1p(np.diff(both.csr(name).indptr))[:, None]
        for name in both.relations
        if name[2] == view.target
    ]
    return np.hstack([np.asarray(part, np.float32) for part in (view.x, *hops, *degrees)])


def as_of_features(view: ig.TemporalGraph) -> np.ndarray:
    """Own features, the time, and what was known of a row's entities before its time.

    For every relation with another type: earlier rows, the time since the last one, and the shares
    of the classes among their known labels, over all and over the last five times.
    """
    time = view.timestamp
    columns = [own_features(view), time[:, None]]
    label = np.asarray(view.y)
    classes = [f"class {k}" for k in range(view.num_labels)]
    for triple, relation in view.relations.items():
        if (triple[0] == view.target) == (triple[2] == view.target):
            continue
        row, entity = relation.edge_index[:: 1 if triple[0] == view.target else -1]
        pairs = pd.DataFrame({"row": row, "entity": entity, "time": time[row], "rows": 1.0})
        for k, name in enumerate(classes):
            pairs[name] = (label[row] == k).astype(float)
        # sums of an entity at each of its times, then over all earlier and the last five times
        at_time = pairs.groupby(["entity", "time"])[["rows", *classes]].sum()
        by_entity = at_time.groupby("entity")
        earlier = by_entity.cumsum() - at_time
        recent = by_entity.transform(lambda sums: sums.shift(1).rolling(5, min_periods=1).sum())
        last = at_time.index.get_level_values("time").to_series(index=at_time.index)
        since = last - last.groupby("entity").shift(1)
        features = pd.DataFrame({"rows": earlier["rows"], "since": since})
        for name in classes:
            features[name] = earlier[name] / (earlier[classes].sum(axis=1) + 1)
            features[f"recent {name}"] = recent[name] / (recent[classes].sum(axis=1) + 1)
        joined = pairs[["row", "entity", "time"]].join(features, on=["entity", "time"])
        by_row = joined.drop(columns=["entity", "time"]).groupby("row").mean()
        columns.append(by_row.reindex(range(view.num_nodes)).to_numpy())
    return np.hstack(columns).astype(np.float32)


def own_graph(view: ig.TemporalGraph) -> sparse.csr_matrix:
    """The undirected weighted graph between nodes of the target type.

    Its own relations have weight 1. Nodes that share a neighbour of another type are joined with
    weight 1/degree of that neighbour, up to `MOST_DEGREE`.
    """
    total = sparse.csr_matrix((view.num_nodes, view.num_nodes), dtype=np.float32)
    for (source, _, target), part in view.relations.items():
        if view.target not in (source, target):
            continue
        ends, ones = part.edge_index, np.ones(part.num_edges, np.float32)
        shape = view.nodes[source].num_nodes, view.nodes[target].num_nodes
        edges = (sparse.csr_matrix((ones, (ends[0], ends[1])), shape) > 0).astype(np.float32)
        if source == target:
            total = total + edges.maximum(edges.T)
            continue
        shared = edges if source == view.target else edges.T.tocsr()
        degree = np.asarray(shared.sum(0)).ravel()
        if (degree[degree <= MOST_DEGREE] ** 2).sum() > 2 * MOST_EDGES:
            raise InputError(
                f"{target!r} nodes that share a {source!r} are more than {MOST_EDGES:,} pairs."
            )
        weight = np.where(degree <= MOST_DEGREE, 1 / np.maximum(degree, 1), 0).astype(np.float32)
        total = total + shared @ sparse.diags(weight) @ shared.T
    total.setdiag(0)
    total.eliminate_zeros()
    if total.nnz > MOST_EDGES:
        raise InputError(
            f"the graph between targets has {total.nnz:,} edges; "
            f"full-batch baselines support {MOST_EDGES:,}."
        )
    return total.tocsr()


def as_tensor(matrix: sparse.csr_matrix) -> torch.Tensor:
    coo = matrix.tocoo()
    index = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
    return to_torch_csr_tensor(
        index, torch.from_numpy(coo.data.astype(np.float32)), size=matrix.shape
    )


# Methods on a table


def logistic(view: ig.TemporalGraph, seed: int) -> np.ndarray:
    """Multinomial logistic regression on standardised features."""
    x = own_features(view)

    def learn(view: ig.TemporalGraph, strength: float, holdout: Holdout | None, steps: int) -> Fit:
        rows, y = labelled(view)
        model = LogisticRegression(C=strength, max_iter=200).fit(x[rows], y)
        return Fit(_all_classes(model.predict_proba(x), model.classes_, view))

    return predict_tuned(view, learn, (0.001, 0.01, 0.1, 1.0))


def trees(
    inputs: Callable[[ig.TemporalGraph], np.ndarray], view: ig.TemporalGraph, seed: int
) -> np.ndarray:
    """LightGBM with early stopping, 8 or 31 leaves.

    What a fit may cost is bounded: rows × columns × classes × rounds. Large tables get fewer rounds
    (at least 40) with
    a larger learning rate; a tree sees 70 % of the rows and about 64 columns (at least 20 %) in 63
    bins.
    """
    try:
        import lightgbm
    except ImportError:
        raise InputError("lightgbm is not installed; pip install lightgbm.") from None

    def learn(view: ig.TemporalGraph, leaves: int, holdout: Holdout | None, steps: int) -> Fit:
        x, (rows, labels) = inputs(view), labelled(view)
        classes, y = np.unique(labels, return_inverse=True)
        share = min(1.0, max(0.2, 64 / x.shape[1]))
        rounds = int(np.clip(1e10 / (len(classes) * len(rows) * x.shape[1] * share), 40, 400))
        watched: dict[str, Any] = {}
        if holdout is not None:
            # A class that is new in the held-out periods has no loss; accuracy counts it as missed.
            known = np.isin(holdout.labels, classes)
            stop = lightgbm.early_stopping(max(10, rounds // 10), verbose=False)
            codes = np.searchsorted(classes, holdout.labels[known])
            watched = {"eval_X": x[holdout.rows[known]], "eval_y": codes, "callbacks": [stop]}
        model = lightgbm.LGBMClassifier(
            n_estimators=steps or rounds,
            learning_rate=min(0.3, max(0.05, 12 / rounds)),
            num_leaves=leaves,
            colsample_bytree=share,
            subsample=0.7,
            subsample_freq=1,
            max_bin=63,
            min_child_samples=10,
            reg_lambda=1.0,
            random_state=seed,
            n_jobs=1,
            verbose=-1,
        ).fit(x[rows], y, **watched)
        return Fit(
            _all_classes(model.predict_proba(x), classes, view), model.best_iteration_ or rounds
        )

    return predict_tuned(view, learn, (8, 31))


def autogluon(view: ig.TemporalGraph, seed: int, *, seconds: int = 600) -> np.ndarray:
    """AutoGluon's ensemble of trees and forests, on the table of trees-labels.

    Where entities have a history, it reads the columns of trees-as-of as well. Validation rows are
    the last labelled periods. `seconds` bound what is tried, not the last fit to all labels. Its
    models go into a temporary directory. It has to be installed.
    """
    try:
        import pandas
        from autogluon.tabular import TabularPredictor
    except ImportError:
        raise InputError(
            "autogluon is not installed; pip install autogluon.tabular[lightgbm,catboost]."
        ) from None
    past, holdout = hold_out(view)
    columns = hop_features(view, labels=True)
    if view.has_entity_history:
        columns = np.hstack([columns, as_of_features(view)])
    table = pandas.DataFrame(columns).add_prefix("x").assign(label=view.y)
    with tempfile.TemporaryDirectory() as place:
        predictor = TabularPredictor("label", problem_type="multiclass", path=place, verbosity=0)
        predictor.fit(
            table.iloc[labelled(past)[0]],
            tuning_data=table.iloc[holdout.rows],
            time_limit=seconds,
            num_cpus=1,
            hyperparameters={"GBM": {}, "CAT": {}, "RF": {}, "XT": {}},
        )
        predictor.refit_full()
        probabilities = predictor.predict_proba(table[view.targets()])
    return _all_classes(probabilities.to_numpy(), probabilities.columns.to_numpy(), view)


def _all_classes(
    probabilities: np.ndarray, classes: np.ndarray, view: ig.TemporalGraph
) -> np.ndarray:
    """A column for every class, also for those without a label yet."""
    out = np.zeros((len(probabilities), view.num_labels), np.float32)
    out[:, classes] = probabilities
    return out


# Methods on the graph


class Network(torch.nn.Module):
    """Two layers, linear or on a graph, then a linear one; BatchNorm, ReLU and dropout between."""

    def __init__(
        self, kind: str, inputs: int, outputs: int, dropout: float, hidden: int = 128
    ) -> None:
        super().__init__()
        layers = {
            "mlp": torch.nn.Linear,
            "gcn": partial(GCNConv, normalize=False),
            "sage": partial(SAGEConv, aggr="sum"),  # the matrix holds means
        }
        self.on_graph, self.dropout = kind != "mlp", dropout
        self.layers = torch.nn.ModuleList(
            [layers[kind](inputs, hidden), layers[kind](hidden, hidden)]
        )
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm1d(hidden) for _ in self.layers])
        self.last = torch.nn.Linear(hidden, outputs)

    def forward(self, x: torch.Tensor, matrix: torch.Tensor | None) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = norm(layer(x, matrix) if self.on_graph else layer(x)).relu()
            x = functional.dropout(x, self.dropout, self.training)
        return self.last(x)


def _network(
    kind: str,
    x: torch.Tensor,
    matrix: torch.Tensor | None,
    seed: int,
    view: ig.TemporalGraph,
    setting: tuple[float, float],
    holdout: Holdout | None,
    steps: int,
    *,
    every: int = 3,
    patience: int = 30,
) -> Fit:
    """Full-batch Adam; with a `Holdout` until its accuracy has not risen for `patience` epochs."""
    torch.manual_seed(seed)
    rows, y = (torch.from_numpy(part) for part in labelled(view))
    rate, dropout = setting
    model = Network(kind, x.shape[1], view.num_labels, dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=5e-4)

    def predicted() -> np.ndarray:
        model.eval()
        with torch.no_grad():
            return model(x, matrix).softmax(1).numpy()

    # Epochs on graphs of millions of edges cost seconds.
    most = steps or int(np.clip(1.5e8 / (1 if matrix is None else matrix._nnz()), 60, 200))
    best, best_score = Fit(np.zeros((0, 0))), -1.0
    for epoch in range(1, most + 1):
        model.train()
        optimizer.zero_grad()
        logits = model(x[rows], None) if matrix is None else model(x, matrix)[rows]
        functional.cross_entropy(logits, y).backward()
        optimizer.step()
        if holdout is not None and epoch % every == 0:
            probabilities = predicted()
            if (score := holdout.accuracy(probabilities)) > best_score:
                best, best_score = Fit(probabilities, epoch), score
            elif epoch - best.steps >= patience:
                break
    return best if holdout is not None else Fit(predicted(), most)


NETWORK_SETTINGS = ((0.01, 0.5), (0.01, 0.2), (0.003, 0.5))
"""Learning rate and dropout."""


def network(kind: str, view: ig.TemporalGraph, seed: int) -> np.ndarray:
    """GCN (symmetric, self-loops) or SAGE (means) of PyG on the undirected graph of the targets."""
    graph = own_graph(view)
    if kind == "gcn":
        looped = graph + sparse.eye(view.num_nodes, dtype=np.float32)
        scale = sparse.diags(np.asarray(looped.sum(1)).ravel() ** -0.5)
        matrix = scale @ looped @ scale
    else:
        matrix = sparse.diags(1 / np.maximum(np.asarray(graph.sum(1)).ravel(), 1e-12)) @ graph
    x = torch.from_numpy(own_features(view))
    settings = NETWORK_SETTINGS if graph.nnz < 1_000_000 else NETWORK_SETTINGS[:2]
    return predict_tuned(
        view, partial(_network, kind, x, as_tensor(matrix.tocsr()), seed), settings
    )


def label_propagation(view: ig.TemporalGraph, seed: int, *, layers: int = 50) -> np.ndarray:
    """PyG's label propagation; nodes that it does not reach get the class prior."""
    matrix = as_tensor(own_graph(view))

    def learn(view: ig.TemporalGraph, alpha: float, holdout: Holdout | None, steps: int) -> Fit:
        rows, y = (torch.from_numpy(part) for part in labelled(view))
        known = torch.zeros(view.num_nodes, view.num_labels)
        known[rows, y] = 1
        return Fit(
            _shares(
                LabelPropagation(layers, alpha)(known, matrix, mask=rows)
                + 1e-6 * known[rows].mean(0)
            )
        )

    return predict_tuned(view, learn, (0.5, 0.8, 0.9, 0.99))


def correct_and_smooth(view: ig.TemporalGraph, seed: int, *, layers: int = 20) -> np.ndarray:
    """An MLP on the features, then PyG's Correct and Smooth, both tuned."""
    matrix, x = as_tensor(own_graph(view)), torch.from_numpy(own_features(view))
    before, after = tuned(view, partial(_network, "mlp", x, None, seed), NETWORK_SETTINGS)

    def learn(
        view: ig.TemporalGraph,
        setting: tuple[float, float, bool],
        holdout: Holdout | None,
        steps: int,
    ) -> Fit:
        rows, y = (torch.from_numpy(part) for part in labelled(view))
        first, second, autoscale = setting
        guess = torch.from_numpy((after if holdout is None else before).probabilities)
        return Fit(
            _shares(
                CorrectAndSmooth(layers, first, layers, second, autoscale)(guess, y, rows, matrix)
            )
        )

    return predict_tuned(
        view, learn, [(a, b, c) for a in (0.5, 0.9) for b in (0.3, 0.8) for c in (True, False)]
    )


def _shares(values: torch.Tensor) -> np.ndarray:
    positive = values.clamp(min=0) + 1e-9
    return (positive / positive.sum(1, keepdim=True)).numpy()


def corrected(
    method: str,
    view: ig.TemporalGraph,
    seed: int,
    *,
    model: str | None = None,
    patience: int | None = None,
) -> np.ndarray:
    """This package's pipeline with a method.

    SIGN, or SeHGNN where there are several node types, or another model.
    """
    model = model or ("sehgnn" if view.is_hetero else "sign")
    if view.x is None:
        view = view.with_features(own_features(view))
    return (
        ig.Pipeline(model, method, view.cutoff, seed=seed, patience=patience)
        .fit(view)
        .predict_proba(view)
    )


BASELINES: dict[str, Baseline] = {
    "plain": partial(corrected, "plain"),
    "logistic": logistic,
    "trees-features": partial(trees, own_features),
    "trees-hops": partial(trees, hop_features),
    "trees-labels": partial(trees, partial(hop_features, labels=True)),
    "trees-as-of": partial(trees, as_of_features),
    "label-propagation": label_propagation,
    "correct-and-smooth": correct_and_smooth,
    "gcn": partial(network, "gcn"),
    "sage": partial(network, "sage"),
    "autogluon": autogluon,
}
"""Tuned standard methods, and `plain`."""

COMPETING_METHODS: dict[str, Baseline] = {
    "sr-gnn": partial(corrected, "kmm+cmd"),
    **{
        name: partial(corrected, name)
        for name in ("cmd", "kmm", "vrex", "gsmp", "stamp", "shift", "bbse")
    },
    **{
        name: partial(corrected, name)
        for name in ("labels", "labels+stages", "curriculum", "curriculum+drop")
    },
    **{f"gcn-{name}": partial(corrected, name, model="gcn") for name in ("plain", "labels")},
    "plain-patient": partial(corrected, "plain", patience=PATIENCE),
    "gcn-patient": partial(corrected, "plain", model="gcn", patience=PATIENCE),
    "eerm": partial(corrected, "eerm", model="gcn"),
}
"""Other methods against the shift, all with the model of `plain`.

Only EERM needs a model that propagates by itself.

The patient ones wait for a better score as long as `cmd`, `vrex`, `kmm` and `eerm` do: what of a
    gain is patience.
"""
