"""The models behind the table's rows: decoupled ones on hops, linear RevGAT on the whole graph, GAMLP in stages.

Every recipe chooses its epoch on the last labelled period before the cutoff. Inputs made of labels (label hops,
JJnorm) are made of the labels of earlier periods while it chooses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.experiments.columns import Chain
from impact_gnn.experiments.table2.study import Kept, Outcome, Problem
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn import (
    GAMLP,
    GraphTask,
    HopTask,
    LinearRevGAT,
    Propagation,
    Reliable,
    Split,
    Training,
    align_layer,
    fit,
    fit_stages,
    predict,
    split_rows,
)
from impact_gnn.pipeline import Method, Pipeline
from impact_gnn.propagation.disk import Disk
from impact_gnn.propagation.hops import time_table
from impact_gnn.propagation.labels import label_hops
from impact_gnn.propagation.stored_labels import stored_label_hops


@dataclass(frozen=True)
class Decoupled:
    """A model of `Pipeline` on hops that are computed once.

    Args:
        model: "sehgnn", "rphgnn", "sign", "sgc" or "gamlp".
        hops: Steps along the edges; the longest metapath of SeHGNN, the iterations of RpHGNN's squashing.
        hidden: Width.
        dropout: Share of hidden units left out in training.
        epochs: Most epochs; None for a fixed amount of work.
        lr: Learning rate.
        weight_decay: Weight decay.
        refit: Whether the last labelled period is trained on in the end.
        extras: Parts that every method gets besides, such as ("labels", "curriculum").
    """

    model: str
    hops: int = 2
    hidden: int = 64
    dropout: float = 0.5
    epochs: int | None = None
    lr: float = 0.01
    weight_decay: float = 5e-4
    refit: bool = True
    extras: tuple[str, ...] = ()

    def fit(self, problem: Problem, method: str, seed: int, kept: Kept, place: Path) -> Outcome:
        """Fits the pipeline and asks it for the rows of the problem."""
        pipeline = Pipeline(
            self.model, "+".join([method, *self.extras]), problem.cutoff, hops=self.hops, hidden=self.hidden,
            dropout=self.dropout, epochs=self.epochs, lr=self.lr, weight_decay=self.weight_decay, refit=self.refit,
            seed=seed,
        )  # fmt: skip
        key = (self.hops, self.model == "rphgnn")
        if key not in kept:
            kept[key] = pipeline.inputs(problem.view)
        pipeline.fit(problem.view, inputs=kept[key])
        probability = pipeline.predict_proba(problem.view, inputs=kept[key])
        found = np.full(problem.view.num_nodes, -1)
        found[pipeline.targets(problem.view)] = probability.argmax(1)
        assert pipeline.fitted is not None
        return Outcome(found[problem.rows], pipeline.fitted.valid_score, pipeline.fitted.best_epoch)


@dataclass(frozen=True)
class Linear:
    """Linear RevGAT on the whole graph in both directions, row means with self-loops.

    Args:
        hidden: Width.
        num_layers: Invertible blocks.
        dropout: Share of hidden units left out in training.
        epochs: Most epochs.
        patience: Epochs without a better score after which it stops.
        lr: Learning rate.
        weight_decay: Weight decay.
        labels: Whether the neighbours' labels of the training rows are further features (own label excluded).
    """

    hidden: int = 256
    num_layers: int = 2
    dropout: float = 0.75
    epochs: int = 2000
    patience: int | None = None
    lr: float = 0.002
    weight_decay: float = 0.0
    labels: bool = True

    def fit(self, problem: Problem, method: str, seed: int, kept: Kept, place: Path) -> Outcome:
        """Fits the model and asks it for the rows of the problem."""
        parts = Method.parse(method)
        view = problem.view
        split = split_rows(view, valid=1)
        if "both" not in kept:
            kept["both"] = view.undirected()
        # Labels of the period to choose by are hidden from every input, as those to predict are.
        known: TemporalGraph = kept["both"].masked(int(view.time[split.valid].min()))
        key = ("task", parts.weighting)
        if key not in kept:
            x = [np.asarray(known.x, np.float32)]
            if self.labels:
                x += label_hops(known, weighting=parts.weighting)
            propagation = Propagation.of(known, weighting=parts.weighting, self_loop=True)
            kept[key] = GraphTask(np.hstack(standardized(x, split.train)), propagation)
        task: GraphTask = kept[key]
        table = time_table(known, parts.weighting)
        made = [align_layer(name, known, table=table) for name in parts.alignment]
        align = Chain([layer for layer in made if layer is not None]) if made else None
        training = Training(
            epochs=self.epochs, lr=self.lr, weight_decay=self.weight_decay, patience=self.patience, seed=seed,
        )  # fmt: skip
        assert view.y is not None
        result = fit(
            lambda: LinearRevGAT(
                task.x.shape[1], view.num_labels, self.hidden, num_layers=self.num_layers, dropout=self.dropout,
                align=align,
            ),
            task, view.y, split, training,
        )  # fmt: skip
        predicted = predict(result.model, task, problem.rows).argmax(1)
        return Outcome(predicted, result.valid_score, result.best_epoch)


@dataclass(frozen=True)
class Staged:
    """GAMLP with RLU: hops of all nodes by the disk engine, stages on the rows that have or need a label.

    Args:
        hops: Feature hops.
        label_hops: Label hops, 1 or 2: the own label is excluded exactly up to there.
        hidden: Width.
        num_layers: Layers after the attention.
        dropout: Share of hidden units left out in training.
        stages: Trainings.
        threshold: Probability from which a prediction is believed by the next stage.
        epochs: Most epochs of a stage.
        patience: Epochs without a better score after which a stage ends.
        batch_size: Rows in a step.
        lr: Learning rate.
        memory: What the disk engine may take.
        storage: In what hops are kept; None for the features' own type.
    """

    hops: int = 6
    label_hops: int = 2
    hidden: int = 1024
    num_layers: int = 6
    dropout: float = 0.5
    stages: int = 4
    threshold: float = 0.85
    epochs: int = 150
    patience: int = 60
    batch_size: int = 5000
    lr: float = 0.001
    memory: str = "8GB"
    storage: str | None = "float16"

    def fit(self, problem: Problem, method: str, seed: int, kept: Kept, place: Path) -> Outcome:
        """Fits all stages and asks the best for the rows of the problem."""
        parts = Method.parse(method)
        if problem.view.x is None:
            raise InputError("the graph has no features; give some with --features.")
        if str(parts) != parts.weighting:
            raise InputError(f"method {method!r} is more than a weighting, all that GAMLP with RLU takes here.")
        view = problem.view
        assert view.y is not None
        disk = Disk(place / parts.weighting, memory=self.memory, storage=self.storage)
        step = disk.operator(view, weighting=parts.weighting, undirected=True)
        rows = np.union1d(np.flatnonzero(view.y >= 0), problem.rows)
        split = split_rows(view, valid=1)
        here = Split(np.searchsorted(rows, split.train), np.searchsorted(rows, split.valid))
        if "hops" not in kept:
            whole = [problem.view.x, *disk.hops([step] * self.hops, problem.view.x)]
            kept["hops"] = standardized([np.asarray(hop[rows], np.float32) for hop in whole], here.train)
        hops: list[np.ndarray] = kept["hops"]
        widths = [hop.shape[1] for hop in hops]

        def make_task(soft: np.ndarray) -> HopTask:
            """Label hops of what is believed; the most probable class stands for it."""
            label = np.full(view.num_nodes, -1)
            label[rows] = np.where(soft.any(1), soft.argmax(1), -1)
            engine = disk.within(f"labels-{_digest(label)}")
            found = stored_label_hops(engine, step, label, view.num_labels, hops=self.label_hops, renormalize=True)
            return HopTask(hops, [np.asarray(hop[rows], np.float32) for hop in found])

        training = Training(
            epochs=self.epochs, lr=self.lr, weight_decay=0.0, batch_size=self.batch_size, patience=self.patience,
            seed=seed,
        )  # fmt: skip
        found = fit_stages(
            lambda: GAMLP(
                widths, view.num_labels, self.hidden, label_channels=[view.num_labels] * self.label_hops,
                num_layers=self.num_layers, dropout=self.dropout,
            ),
            make_task, view.y[rows], here, view.num_labels, training,
            Reliable(stages=self.stages, threshold=self.threshold),
        )  # fmt: skip
        asked = np.searchsorted(rows, problem.rows)
        predicted = predict(found.result.model, found.task, asked).argmax(1)
        return Outcome(predicted, found.result.valid_score, found.result.best_epoch)


def standardized(parts: Sequence[np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    """Every matrix with mean 0 and variance 1 per column over `rows`; constant columns are only centred."""
    out = []
    for values in parts:
        some = values[rows].astype(np.float64)
        std = some.std(0)
        out.append(((values - some.mean(0)) / np.where(std > 1e-8, std, 1)).astype(np.float32))
    return out


def _digest(label: np.ndarray) -> str:
    return hashlib.sha256(label.tobytes()).hexdigest()[:12]
