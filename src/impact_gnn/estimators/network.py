"""Neural networks as heads: over hops, or over the whole graph at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.nn import Module

from impact_gnn import nn
from impact_gnn.estimators.head import Head, HeadOptions, Shape
from impact_gnn.methods import ModelKind

FULL_BATCH = 6000  # labelled rows up to which all are used in every step
BATCH, LARGEST_BATCH = 4096, 1 << 16
MOST_STEPS = 100  # of an epoch, from which on batches grow instead
STEPS = 300
LEAST_EPOCHS = 5
PATIENCE = 15  # epochs: with fewer, chance ends the training
CHOOSE_OVER = 5  # epochs: a single lucky one may be far too early
HIDDEN_LABELS = 0.5  # share of the labels that are hidden in a step, of models that are told labels


@dataclass(frozen=True)
class Network:
    """A kind of network, and how it is trained unless options say otherwise.

    Args:
        build: Makes the untrained module.
        kind: What it reads.
        hidden: Width.
        dropout: Share of hidden units left out in training.
        lr: Learning rate.
        self_loops: A network over the graph averages over the node itself, too.
        training: Its loss, optimizer, schedule and how an epoch is chosen.
        terms: `(rows that are not trained on) → terms of the loss`; None for none.
    """

    build: Callable[..., Module]
    kind: ModelKind = ModelKind.HOPS
    hidden: int = 64
    dropout: float = 0.5
    lr: float = 0.01
    self_loops: bool = False
    training: nn.Training = field(default_factory=nn.Training)
    terms: Callable[[np.ndarray], tuple[nn.Term, ...]] | None = None

    @property
    def reads_graph(self) -> bool:
        """Whether it reads the whole graph at once, not hops of rows."""
        return self.kind in (ModelKind.GRAPH, ModelKind.USER)


class NetworkHead(Head):
    """A network of some kind, trained by `nn.fit`."""

    model: Module | None = None
    align: Module | None = None  # of the messages of a spatial network

    def __init__(self, network: Network, shape: Shape, options: HeadOptions) -> None:
        self.network = network
        defaults: Any = {
            name: getattr(network, name)
            for name in ("hidden", "dropout", "lr")
            if getattr(options, name) is None
        }
        super().__init__(shape, replace(options, **defaults))

    def set_alignment(self, align: Module | None) -> None:
        """Messages are aligned by this layer from now on, which belongs to one graph; what was learned stays."""
        self.align = align
        if self.model is not None:
            learned, self.model = self.model.state_dict(), self._build()
            self.model.load_state_dict(learned)
            self.model.eval()

    def fit(
        self,
        task: nn.Task,
        label: np.ndarray,
        split: nn.Split,
        *,
        weight: np.ndarray | None = None,
        rounds: int | None = None,
        target: np.ndarray | None = None,
    ) -> None:
        training = self._training(len(split.all))
        if rounds is not None:
            training = replace(training, epochs=rounds, patience=None)
        if isinstance(task, nn.GraphTask) and task.labels is not None:
            training = replace(training, hide_labels=HIDDEN_LABELS)
        if self.network.terms is not None:
            others = np.setdiff1d(np.arange(task.num_rows), split.all)
            training = replace(training, terms=(*training.terms, *self.network.terms(others)))
        result = nn.fit(
            self._build, task, label, split, training, sample_weight=weight, target=target
        )
        self.model, self.rounds, self.valid_score = (
            result.model,
            result.best_epoch,
            result.valid_score,
        )
        scoring = self.options.scoring
        if len(split.valid) and not scoring.counts_hits:  # without the trace of the log-loss
            self.valid_score = scoring.score(
                self.predict_proba(task, split.valid), label[split.valid]
            )

    def probabilities(self, task: nn.Task, rows: np.ndarray) -> np.ndarray:
        assert self.model is not None
        return nn.predict(self.model, task, rows)

    def arrays(self) -> dict[str, np.ndarray]:
        assert self.model is not None
        return {name: value.cpu().numpy() for name, value in self.model.state_dict().items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.model = self._build()
        self.model.load_state_dict(
            {name: torch.from_numpy(value) for name, value in arrays.items()}
        )
        self.model.eval()

    def _build(self) -> Module:
        """The untrained network; RpHGNN wants to know which hops belong together."""
        shape, options = self.shape, self.options
        make = self.network.build
        if self.network.reads_graph:
            return make(
                shape.hops[0],
                shape.num_labels,
                options.hidden,
                dropout=options.dropout,
                align=self.align,
            )
        extra: dict[str, Any] = (
            {"groups": shape.groups} if self.network.kind is ModelKind.SQUASHED else {}
        )
        return make(
            shape.hops,
            shape.num_labels,
            options.hidden,
            label_channels=shape.label_hops,
            dropout=options.dropout,
            **extra,
        )

    def _training(self, num_rows: int) -> nn.Training:
        options = self.options
        whole = num_rows <= FULL_BATCH or self.network.reads_graph
        batch = None if whole else min(max(BATCH, num_rows // MOST_STEPS), LARGEST_BATCH)
        steps = 1 if batch is None else math.ceil(num_rows / batch)
        epochs = max(LEAST_EPOCHS, STEPS // steps) if options.epochs is None else options.epochs
        assert options.lr is not None
        patience = options.patience or max(PATIENCE, epochs // (3 if options.patient else 12))
        training = replace(
            self.network.training,
            epochs=epochs,
            lr=options.lr,
            weight_decay=options.weight_decay,
            batch_size=batch,
            seed=options.seed,
            patience=patience,
            device=options.device,
            progress=options.progress,
            scoring=options.scoring,
            terms=options.terms,
            choose_over=CHOOSE_OVER,
        )
        for change in options.training:
            training = change(training)
        return training
