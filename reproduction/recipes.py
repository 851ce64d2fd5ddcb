"""The models behind table 2's rows.

Decoupled ones on hops, linear RevGAT on the whole graph, GAMLP in stages.

Every recipe chooses its epoch on the last labelled period before the cutoff. Inputs made of labels
(label hops, JJnorm) are made of the labels of earlier periods while it chooses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import impact_gnn as ig
from impact_gnn import nn
from impact_gnn.methods import Kind, Method
from impact_gnn.nn.optimizer import Adam
from impact_gnn.propagation.labels import repeated_label_hops
from reproduction.competing import LinearRevGAT
from reproduction.competing.originals import OriginalGAMLP
from reproduction.competing.stages import Rlu, fit_stages
from reproduction.losses import LogCrossEntropy, RunByLoss, Schedule
from reproduction.synthetic import Chain
from reproduction.table2 import Problem, ProblemResult

OPTIMIZERS = {"adam": Adam, "rmsprop": torch.optim.RMSprop}


@dataclass(frozen=True)
class Decoupled:
    """A model of `ig.Pipeline`, whose arguments these are.

    `extras` are parts that every method gets besides.
    """

    model: str
    hops: int = 2
    hidden: int = 64
    dropout: float = 0.5
    epochs: int | None = None
    patience: int | None = None
    lr: float = 0.01
    weight_decay: float = 5e-4
    refit: bool = True
    extras: tuple[str, ...] = ()

    def fit(self, problem: Problem, method: str, seed: int, place: Path) -> ProblemResult:
        view = problem.view
        pipeline = ig.Pipeline(
            self.model,
            "+".join([method, *self.extras]),
            view.cutoff,
            hops=self.hops,
            hidden=self.hidden,
            dropout=self.dropout,
            epochs=self.epochs,
            patience=self.patience,
            lr=self.lr,
            weight_decay=self.weight_decay,
            refit=self.refit,
            seed=seed,
        ).fit(view)
        predicted = np.full(view.num_nodes, -1)
        predicted[np.flatnonzero(view.targets())] = pipeline.predict_proba(view).argmax(1)
        assert pipeline.fitted is not None
        return ProblemResult(predicted[problem.rows], pipeline.fitted.valid_score)


@dataclass(frozen=True)
class Linear:
    """Linear RevGAT on the whole undirected graph, trained as RevGAT is.

    It takes row means with self-loops.

    Known labels of the training rows are inputs (`labels`): half of them are hidden at random in
    every step, which learns from those, and the model is asked once more with what it said of the
    others. RMSprop with `warm_up` epochs of a rising learning rate, loss log(ε + cross-entropy),
    the epoch of the least loss. Unlike the authors' there is no distillation, and messages are
    normalised; `reproduction.revgat_operator` shows what difference that makes.
    """

    hidden: int = 256
    num_layers: int = 2
    dropout: float = 0.75
    epochs: int = 2000
    patience: int | None = None
    lr: float = 0.002
    weight_decay: float = 0.0
    labels: bool = True
    optimizer: str = "rmsprop"
    warm_up: int = 50

    def fit(self, problem: Problem, method: str, seed: int, place: Path) -> ProblemResult:
        parts, view = Method.parse(method), problem.view
        assert view.y is not None
        split = nn.split_rows(view, valid=1)
        # Labels of the period to choose by are hidden from every input, as those to predict are.
        known = view.undirected().masked(int(view.time[split.valid].min()))
        (x,) = standardized([np.asarray(known.x, np.float32)], split.train)
        propagation = nn.Propagation.of(known, weighting=parts.edge_weighting, self_loop=True)
        alignments = [part.name for part in parts.of_kind(Kind.ALIGNMENT)]
        label_inputs = (known.label, view.num_labels) if self.labels else ()
        task = nn.GraphTask(x, propagation, *label_inputs, reuse=1)
        layers = [nn.align_layer(name, known, table=propagation.table) for name in alignments]
        training = nn.Training(
            epochs=self.epochs,
            lr=self.lr,
            weight_decay=self.weight_decay,
            patience=self.patience,
            seed=seed,
            loss=LogCrossEntropy(),
            optimizer=OPTIMIZERS[self.optimizer],
            schedule=Schedule(self.warm_up),
            hide_labels=0.5 if self.labels else 0.0,
            run=RunByLoss,
        )
        result = nn.fit(
            lambda: LinearRevGAT(
                task.width,
                view.num_labels,
                self.hidden,
                num_layers=self.num_layers,
                dropout=self.dropout,
                align=Chain(layers) if layers else None,
            ),
            task,
            view.y,
            split,
            training,
        )
        return ProblemResult(
            nn.predict(result.model, task, problem.rows).argmax(1), result.valid_score
        )


@dataclass(frozen=True)
class Staged:
    """GAMLP with RLU: hops of all nodes by the disk engine, stages on rows with or for a label.

    As in RLU every prediction is believed (`threshold` 0), made sharper by `temperature`, and
    counts `weight` times its largest probability. `label_hops` are 1 or 2, up to where the own
    label is excluded exactly, instead of 9; hops are row means, where the original's are normalised
    on both sides; all stages have 150 epochs, where its first has 100. `memory` is what the disk
    engine may take, `storage` in what hops are kept.
    """

    hops: int = 6
    label_hops: int = 2
    hidden: int = 1024
    num_layers: int = 6
    dropout: float = 0.5
    stages: int = 4
    threshold: float = 0.0
    weight: float = 0.5
    temperature: float = 0.001
    epochs: int = 150
    patience: int = 60
    batch_size: int = 5000
    lr: float = 0.001
    memory: str = "8GB"
    storage: str | None = "float16"

    def fit(self, problem: Problem, method: str, seed: int, place: Path) -> ProblemResult:
        """Fits all stages and asks the best for the rows of the problem.

        Hops that are on disk are not made again.
        """
        parts, view = Method.parse(method), problem.view
        if view.x is None:
            raise ig.InputError("the graph has no features; pass some with --features.")
        if str(parts) != parts.weighting:
            raise ig.InputError(
                f"method {method!r} is more than a weighting, "
                "which is all that GAMLP with RLU supports here."
            )
        assert view.y is not None
        disk = ig.engines.Disk(place / parts.weighting, memory=self.memory, storage=self.storage)
        rows = np.union1d(np.flatnonzero(view.y >= 0), problem.rows)
        split = nn.split_rows(view, valid=1)
        here = nn.Split(np.searchsorted(rows, split.train), np.searchsorted(rows, split.valid))
        both = disk.graph(view, undirected=True)  # too many edges to be doubled in memory
        step = disk.operator(both, weighting=parts.weighting)
        whole = [view.x, *disk.hops([step] * self.hops, both.x)]
        hops = standardized([np.asarray(hop[rows], np.float32) for hop in whole], here.train)

        def make_task(soft: np.ndarray) -> nn.HopTask:
            """Label hops of what is believed.

            The most probable class stands for it: probabilities take 76 GB.
            """
            label = np.full(view.num_nodes, -1)
            label[rows] = np.where(soft.any(1), soft.argmax(1), -1)
            label_hops = repeated_label_hops([step] * self.label_hops, label, view.num_labels, disk)
            return nn.HopTask(hops, [hop.rows(rows) for hop in label_hops])

        training = nn.Training(
            epochs=self.epochs,
            lr=self.lr,
            weight_decay=0.0,
            batch_size=self.batch_size,
            patience=self.patience,
            seed=seed,
        )
        best = fit_stages(
            lambda: OriginalGAMLP(
                [hop.shape[1] for hop in hops],
                view.num_labels,
                self.hidden,
                label_channels=[view.num_labels] * self.label_hops,
                num_layers=self.num_layers,
                dropout=self.dropout,
            ),
            make_task,
            labels=view.y[rows],
            split=here,
            num_labels=view.num_labels,
            training=training,
            reliable=Rlu(self.stages, self.threshold, self.weight, self.temperature),
        )
        predicted = nn.predict(
            best.result.model, best.task, np.searchsorted(rows, problem.rows)
        ).argmax(1)
        return ProblemResult(predicted, best.result.valid_score)


def standardized(parts: Sequence[np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    """Every matrix with mean 0 and variance 1 per column over `rows`.

    Constant columns are only centred.
    """
    out = []
    for values in parts:
        some = values[rows].astype(np.float64)
        std = some.std(0)
        out.append(((values - some.mean(0)) / np.where(std > 1e-8, std, 1)).astype(np.float32))
    return out
