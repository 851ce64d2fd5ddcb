"""Neural networks as heads: over hops, or over the whole graph at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from numpy import ndarray
from torch.nn import Module

from impact_gnn import nn
from impact_gnn.estimators.head import Head, HeadOptions, Shape
from impact_gnn.methods import ModelKind

BATCH = 2048  # rows; larger ones cost more and were not better on past folds of five graphs
LARGEST_BATCH = 1 << 16
MOST_STEPS = 100  # of an epoch, from which on batches grow instead
STEPS = 300
LEAST_EPOCHS = 5
PATIENCE = 15  # epochs: with fewer, chance ends the training
# Epochs: the score of a single one is noisy, and so are its weights. On past folds of eleven data
# sets, mean weights were .1 to .2 points more accurate on average, with a log-loss 1 % lower.
AVERAGE_OVER = 5
HIDDEN_LABELS = 0.5  # share of the input labels that are hidden in a step


@dataclass(frozen=True)
class Network:
    """A kind of network, and how it is trained unless options say otherwise.

    Args:
        build: Returns the untrained module.
        kind: What it reads.
        hidden: Width.
        dropout: Share of hidden units left out in training.
        lr: Learning rate.
        self_loops: A network over the graph averages over the node itself, too.
        layers: Of a network over the graph; None if it may read all of it.
        training: Its loss, optimizer, schedule and how an epoch is chosen.
    """

    build: Callable[..., Module]
    kind: ModelKind = ModelKind.HOPS
    hidden: int = 64
    dropout: float = 0.5
    lr: float = 0.01
    self_loops: bool = False
    layers: int | None = None
    training: nn.Training = field(default_factory=nn.Training)

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
        """Align messages by this layer, which belongs to one graph; learned weights stay."""
        self.align = align
        if self.model is not None:
            self._load(self.model.state_dict())

    def fit(self, task: nn.Task, lesson: nn.Lesson, rounds: int | None = None) -> None:
        split = lesson.split
        training = self._training(len(split.all))
        if rounds is not None:
            # The number of epochs is known, so there is nothing to stop early.
            training = replace(training, epochs=rounds, patience=None)
        if isinstance(task, nn.GraphTask) and task.labels is not None:
            # A row that reads its own label would learn to copy it.
            training = replace(training, hide_labels=HIDDEN_LABELS)
        result = nn.fit(
            self._build,
            task,
            lesson.label,
            split,
            training,
            sample_weight=lesson.weight,
            target=lesson.target,
        )
        self.model = result.model
        self.rounds = result.best_epoch
        self.valid_score = result.valid_score
        if len(split.valid) and not self.options.scoring.counts_hits:
            # The score of an epoch includes a trace of the log-loss.
            self.valid_score = self.validation_score(task, lesson, split.valid)

    def probabilities(self, task: nn.Task, rows: ndarray) -> ndarray:
        assert self.model is not None
        return nn.predict(self.model, task, rows)

    def arrays(self) -> dict[str, ndarray]:
        assert self.model is not None
        weights = self.model.state_dict()
        return {name: tensor.cpu().numpy() for name, tensor in weights.items()}

    def restore(self, arrays: Mapping[str, ndarray]) -> None:
        self._load({name: torch.from_numpy(array) for name, array in arrays.items()})

    def _load(self, weights: dict[str, Any]) -> None:
        self.model = self._build()
        self.model.load_state_dict(weights)
        self.model.eval()

    def _build(self) -> Module:
        """Return the untrained network."""
        shape = self.shape
        in_channels: int | list[int] = shape.hops
        arguments: dict[str, Any] = {"dropout": self.options.dropout}
        # A network over the graph reads one matrix, in which labels are columns.
        if self.network.reads_graph:
            in_channels = shape.hops[0]
            arguments["align"] = self.align
        else:
            arguments["label_channels"] = shape.label_hops
        if self.network.kind is ModelKind.SQUASHED:
            arguments["groups"] = shape.groups
        return self.network.build(in_channels, shape.num_labels, self.options.hidden, **arguments)

    def _training(self, num_rows: int) -> nn.Training:
        options = self.options
        assert options.lr is not None
        batch = None
        steps = 1
        if num_rows > BATCH and not self.network.reads_graph:
            # Larger where an epoch would have too many steps; the last one is no smaller.
            largest = min(max(BATCH, num_rows // MOST_STEPS), LARGEST_BATCH)
            steps = math.ceil(num_rows / largest)
            batch = math.ceil(num_rows / steps)
        # About `STEPS` steps in all.
        epochs = options.epochs or max(LEAST_EPOCHS, STEPS // steps)
        share = 3 if options.patient else 12
        patience = options.patience or max(PATIENCE, epochs // share)
        training = replace(
            self.network.training,
            epochs=epochs,
            lr=options.lr,
            weight_decay=options.weight_decay,
            batch_size=batch,
            seed=options.seed,
            patience=patience,
            device=options.device,
            scoring=options.scoring,
            terms=options.terms,
            average_over=AVERAGE_OVER,
        )
        for change in options.training:
            training = change(training)
        return training
