"""`Pipeline`: from a graph with labels for the past to predictions for the recent nodes, and back from disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
from torch import nn

from impact_gnn import _files, checks
from impact_gnn._codec import encode
from impact_gnn._version import __version__
from impact_gnn.checks import InputError
from impact_gnn.engines.base import Engine, mapped_hop, position_blocks
from impact_gnn.engines.memory import Memory
from impact_gnn.graph import TemporalGraph
from impact_gnn.nn import (
    GAMLP,
    SGC,
    SIGN,
    Curriculum,
    Epoch,
    HopTask,
    RpHGNN,
    SeHGNN,
    Split,
    Training,
    fit,
    predict,
    split_rows,
)
from impact_gnn.pipeline.inputs import Inputs
from impact_gnn.pipeline.method import Method
from impact_gnn.statistics import Scale

FORMAT = "impact-gnn pipeline"
VERSION = 1

MODELS: dict[str, type[nn.Module]] = {"sgc": SGC, "sign": SIGN, "gamlp": GAMLP, "sehgnn": SeHGNN, "rphgnn": RpHGNN}


@dataclass(frozen=True, eq=False)
class Fitted:
    """What fitting leaves behind: the trained model, how inputs are scaled, and what the graph was like."""

    model: nn.Module
    scales: list[Scale]
    channels: tuple[list[int], list[int]]
    groups: list[int]
    cutoff: int
    t_max: int
    num_labels: int
    label_names: tuple[Any, ...] | None
    best_epoch: int
    valid_score: float


class Pipeline:
    """Weights, hops, alignment, model and training in one object with scikit-learn's verbs.

    `fit` chooses the number of epochs on the last labelled period (as if it had to be predicted), then trains on
    all labelled periods. No label at or after the cutoff is ever within its reach.

    Args:
        model: "sign", "sgc", "gamlp", "sehgnn" or "rphgnn".
        method: What is done about the shift, for example "plain", "pmp+center" or "labels" (see `Method`).
        cutoff: Labels are known before it; by default the graph tells (`TemporalGraph.infer_cutoff`).
        hops: Steps along the edges; with several node types the longest metapath, at least in and back.
        undirected: Let messages run in both directions of every edge.
        hidden: Width of the model.
        dropout: Share of hidden units left out in training.
        epochs: Most epochs; by default as many as a fixed amount of work allows.
        lr: Learning rate.
        weight_decay: Weight decay.
        half_life: With "recency", labels this much older than the newest count half; in units of time.
        refit: Train on all labelled periods in the end, the one chosen by included.
        seed: Seed of everything random.
        device: "auto", "cpu", "cuda" or "mps".

    Example:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> g = tsbm(num_nodes=400, num_times=5, num_labels=2, seed=0)
        >>> p = Pipeline(method="center+labels", cutoff=4, hidden=8, epochs=5).fit(g)
        >>> p.predict(g).shape == (80,), p.predict_proba(g).shape
        (True, (80, 2))
    """

    def __init__(
        self,
        model: str = "sign",
        method: str | Method = "plain",
        cutoff: int | None = None,
        *,
        hops: int = 2,
        undirected: bool = True,
        hidden: int = 64,
        dropout: float = 0.5,
        epochs: int | None = None,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        half_life: float | None = None,
        refit: bool = True,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.model = checks.choice("model", model, MODELS)
        self.method = Method.of(method)
        self.cutoff = cutoff
        self.hops = hops
        self.undirected = undirected
        self.hidden = hidden
        self.dropout = dropout
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.half_life = half_life
        self.refit = refit
        self.seed = seed
        self.device = device
        self.fitted: Fitted | None = None

    # -- scikit-learn's verbs --------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options this pipeline was made with."""
        return {name: value for name, value in vars(self).items() if name != "fitted"} | {"method": str(self.method)}

    def fit(
        self,
        graph: TemporalGraph,
        *,
        inputs: Inputs | None = None,
        engine: Engine | None = None,
        progress: Callable[[Epoch], None] | None = None,
    ) -> Pipeline:
        """Trains on the labels before the cutoff.

        Args:
            graph: The graph; labels at or after the cutoff are hidden before anything looks at them.
            inputs: Hops made before, of this graph and these options, to share work between pipelines.
            engine: Where to propagate.
            progress: Called after every epoch.
        """
        cutoff = graph.infer_cutoff() if self.cutoff is None else self.cutoff
        view = graph.masked(cutoff)
        assert view.y is not None
        with _suitable_threads(min(int((view.y >= 0).sum()), FULL_BATCH) * self.hidden):
            return self._fit(graph, view, cutoff, inputs, engine, progress)

    def _fit(
        self,
        graph: TemporalGraph,
        view: TemporalGraph,
        cutoff: int,
        inputs: Inputs | None,
        engine: Engine | None,
        progress: Callable[[Epoch], None] | None,
    ) -> Pipeline:
        assert view.y is not None
        inputs = self.inputs(view, engine) if inputs is None else inputs
        method = self.method
        rows = inputs.rows  # from here on a node is known by its place among them
        label, time = view.y[rows], view.time[rows]
        labelled = np.unique(time[label >= 0])
        training = self._training(int((label >= 0).sum()), progress, method.curriculum)
        groups = inputs.groups(method)
        weight = self._recency(time, label) if method.recency else None
        best_epoch, valid_score = training.epochs, math.nan
        if len(labelled) > 1:
            chosen_rows = split_rows(view)
            split = Split(np.searchsorted(rows, chosen_rows.train), np.searchsorted(rows, chosen_rows.valid))
            # Rows to choose by must look like targets, so inputs are made as if their labels were unknown.
            task, scales = self._task(inputs, method, int(labelled[-1]), split.train)
            chosen = fit(self._build(task, view.num_labels, groups), task, label, split, training, sample_weight=weight)
            best_epoch, valid_score, model = chosen.best_epoch, chosen.valid_score, chosen.model
        if self.refit or len(labelled) == 1:
            everything = Split(np.flatnonzero(label >= 0), np.empty(0, np.int64))
            task, scales = self._task(inputs, method, cutoff, everything.train)
            last = replace(training, epochs=best_epoch, patience=None)
            model = fit(
                self._build(task, view.num_labels, groups), task, label, everything, last, sample_weight=weight
            ).model
        names = None if graph.label_names is None else tuple(graph.label_names)
        channels = (task.in_channels, task.label_channels)
        sizes = (int(view.times[-1]), view.num_labels)
        self.fitted = Fitted(model, scales, channels, groups, cutoff, *sizes, names, best_epoch, valid_score)
        return self

    def predict_proba(
        self, graph: TemporalGraph, *, cutoff: int | None = None, inputs: Inputs | None = None,
        engine: Engine | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Probabilities [n, num_labels] of the target nodes, in the order of `targets(graph)`.

        The graph may have grown since the fit: weights follow its new last time, and with a later `cutoff` the
        labels that have become known since are used by label hops and alignments.
        """
        fitted = self._fitted()
        at = fitted.cutoff if cutoff is None else cutoff
        if graph.num_labels > fitted.num_labels:
            raise InputError(
                f"the graph has {graph.num_labels} classes, the model was fitted with {fitted.num_labels}; fit again."
            )
        view = graph.masked(at)
        inputs = self.inputs(view, engine) if inputs is None else inputs
        hops, label_hops = inputs.shown(self.method, at)
        widths = [values.shape[1] for values in hops], [values.shape[1] for values in label_hops]
        if widths != fitted.channels:
            raise InputError(
                f"the model was fitted with inputs of widths {fitted.channels}, this graph gives {widths}."
            )
        task = HopTask(_scaled(hops, fitted.scales), label_hops)
        return predict(fitted.model, task, np.searchsorted(inputs.rows, self.targets(graph, cutoff=at)))

    def predict(self, graph: TemporalGraph, *, cutoff: int | None = None) -> np.ndarray:
        """The most probable label (0, 1, 2, ...) of every target node."""
        return self.predict_proba(graph, cutoff=cutoff).argmax(1)

    def score(self, graph: TemporalGraph, *, cutoff: int | None = None) -> float:
        """Accuracy on the target nodes whose true label the graph holds."""
        rows = self.targets(graph, cutoff=cutoff)
        truth = np.full(len(rows), -1) if graph.y is None else graph.y[rows]
        if not (truth >= 0).any():
            raise InputError("no target node has a label in this graph, so there is nothing to score against.")
        known = truth >= 0
        return float((self.predict(graph, cutoff=cutoff)[known] == truth[known]).mean())

    def targets(self, graph: TemporalGraph, *, cutoff: int | None = None) -> np.ndarray:
        """Positions of the nodes to predict: time at or after the cutoff."""
        at = self._fitted().cutoff if cutoff is None else cutoff
        return np.flatnonzero(graph.time >= at)

    def stale(self, graph: TemporalGraph) -> str | None:
        """A sentence if the graph has periods that the fit had not seen, otherwise None."""
        newer = graph.times[graph.times > self._fitted().t_max]
        if len(newer) == 0:
            return None
        return (
            f"{len(newer)} periods ({checks.listing([int(t) for t in newer])}) are newer than the fit, which knew time "
            f"up to {self._fitted().t_max}; the choice of method was made without them, so back-test again."
        )

    # -- disk ------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> None:
        """Writes weights (safetensors) and everything else (JSON), atomically; `load` gives the same predictions."""
        fitted = self._fitted()
        arrays = {f"model.{name}": value.cpu().numpy() for name, value in fitted.model.state_dict().items()}
        for k, scale in enumerate(fitted.scales):
            arrays |= {f"scale.{k}.mean": scale.mean, f"scale.{k}.std": scale.scale}
        content = {
            "format": FORMAT,
            "version": VERSION,
            "impact_gnn": __version__,
            "torch": torch.__version__,
            "params": self.get_params(),
            "channels": list(fitted.channels),
            "groups": fitted.groups,
            "cutoff": fitted.cutoff,
            "t_max": fitted.t_max,
            "num_labels": fitted.num_labels,
            "label_names": None if fitted.label_names is None else [encode(name) for name in fitted.label_names],
            "best_epoch": fitted.best_epoch,
            "valid_score": None if math.isnan(fitted.valid_score) else fitted.valid_score,
        }
        with _files.atomic_directory(Path(directory), may_replace=_is_saved) as temporary:
            weights = temporary / "weights.safetensors"
            safetensors.numpy.save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, weights)
            _files.write_json(temporary / "pipeline.json", content | {"sha256": _files.checksum(weights)})

    @classmethod
    def load(cls, directory: str | Path) -> Pipeline:
        """The pipeline that `save` wrote."""
        root = Path(directory)
        content = _files.read_json(root / "pipeline.json")
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError(f"{root} does not hold a pipeline; give a directory written by Pipeline.save.")
        if content.get("version") != VERSION:
            raise InputError(f"{root} has format version {content.get('version')!r}, this release reads {VERSION}.")
        weights = root / "weights.safetensors"
        if not weights.is_file() or _files.checksum(weights) != content.get("sha256"):
            raise InputError(f"{weights} is missing or has changed since it was saved; restore it or fit again.")
        arrays = safetensors.numpy.load_file(weights)
        made = cls(**content["params"])
        channels = (content["channels"][0], content["channels"][1])
        groups = content.get("groups", [len(channels[0])])  # written before there were groups
        model = made._model(*channels, content["num_labels"], groups)
        prefix = "model."
        state = {k.removeprefix(prefix): torch.from_numpy(v) for k, v in arrays.items() if k.startswith(prefix)}
        model.load_state_dict(state)
        model.eval()
        count = sum(name.endswith(".mean") and name.startswith("scale.") for name in arrays)
        scales = [Scale(arrays[f"scale.{k}.mean"], arrays[f"scale.{k}.std"]) for k in range(count)]
        names = content["label_names"]
        score = math.nan if content["valid_score"] is None else content["valid_score"]
        made.fitted = Fitted(
            model, scales, channels, groups, content["cutoff"], content["t_max"], content["num_labels"],
            None if names is None else tuple(names), content["best_epoch"], score,
        )  # fmt: skip
        return made

    # -- inside ----------------------------------------------------------------------------------------------

    def inputs(self, graph: TemporalGraph, engine: Engine | None = None) -> Inputs:
        """The hops of a graph as this pipeline makes them; may be shared by pipelines that differ in method only."""
        if graph.cutoff is None:
            graph = graph.masked(graph.infer_cutoff() if self.cutoff is None else self.cutoff)
        return Inputs(
            graph, hops=self.hops, undirected=self.undirected, engine=Memory() if engine is None else engine,
            squashed=self.model == "rphgnn", seed=self.seed,
        )  # fmt: skip

    def __repr__(self) -> str:
        state = "" if self.fitted is None else f", fitted up to time {self.fitted.t_max}"
        return f"Pipeline(model={self.model!r}, method={str(self.method)!r}{state})"

    def _fitted(self) -> Fitted:
        if self.fitted is None:
            raise InputError("this pipeline has not been fitted; call fit(graph) first.")
        return self.fitted

    def _training(self, num_rows: int, progress: Callable[[Epoch], None] | None, curriculum: bool) -> Training:
        batch = None if num_rows <= FULL_BATCH else min(max(BATCH, num_rows // MOST_STEPS), LARGEST_BATCH)
        steps = 1 if batch is None else math.ceil(num_rows / batch)
        epochs = max(LEAST_EPOCHS, STEPS // steps) if self.epochs is None else self.epochs
        return Training(
            epochs=epochs, lr=self.lr, weight_decay=self.weight_decay, batch_size=batch, seed=self.seed,
            patience=max(5, epochs // 12), device=self.device, progress=progress,
            curriculum=Curriculum(epochs=max(1, epochs // 4)) if curriculum else None,
        )  # fmt: skip

    def _task(self, inputs: Inputs, method: Method, cutoff: int, rows: np.ndarray) -> tuple[HopTask, list[Scale]]:
        hops, label_hops = inputs.shown(method, cutoff)
        count = len(hops)
        loaded = inputs.engine.loaded([*hops, *label_hops])
        parts = [rows[part] for part in position_blocks(len(rows))]
        scales = [Scale.fit(hop.rows(part) for part in parts) for hop in loaded[:count]]
        scaled = inputs.engine.loaded([*_scaled(loaded[:count], scales), *loaded[count:]])
        return HopTask(scaled[:count], scaled[count:]), scales

    def _model(self, inputs: list[int], labels: list[int], num_labels: int, groups: list[int]) -> nn.Module:
        """The untrained model for hops and label hops of these widths; RpHGNN wants to know which belong together."""
        options: dict[str, Any] = {"groups": groups} if self.model == "rphgnn" else {}
        make = MODELS[self.model]
        return make(inputs, num_labels, self.hidden, label_channels=labels, dropout=self.dropout, **options)

    def _build(self, task: HopTask, num_labels: int, groups: list[int]) -> Callable[[], nn.Module]:
        return lambda: self._model(task.in_channels, task.label_channels, num_labels, groups)

    def _recency(self, time: np.ndarray, label: np.ndarray) -> np.ndarray:
        labelled = time[label >= 0]
        age = (labelled.max() - time).clip(0)
        half_life = self.half_life
        if half_life is None:  # a third of the labelled span
            half_life = max(1.0, float(labelled.max() - np.quantile(labelled, 0.05)) / 3)
        return 0.5 ** (age / half_life)


FULL_BATCH = 6000
"""Labelled rows up to which all are used in every step."""

BATCH, LARGEST_BATCH = 4096, 1 << 16
MOST_STEPS = 100
"""Steps of an epoch from which on batches grow instead."""

STEPS = 300
LEAST_EPOCHS = 5


ONE_THREAD = 300_000
"""Hidden units in a step up to which one thread is quicker: below, threads mostly wait for each other."""


@contextmanager
def _suitable_threads(units: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1 if units <= ONE_THREAD else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _scaled(hops: list[Any], scales: list[Scale]) -> list[Any]:
    def scaled(hop: Any, scale: Scale) -> Any:
        return mapped_hop(hop, lambda values, index: scale.apply(np.asarray(values, np.float32)), np.float32)

    return [scaled(hop, scale) for hop, scale in zip(hops, scales, strict=True)]


def _is_saved(directory: Path) -> bool:
    return (directory / "pipeline.json").is_file()
