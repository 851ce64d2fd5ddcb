"""The one training loop: full batch and mini batch, early stopping, resuming, refitting.

It reads labels of rows to train on and of rows to choose the epoch by, which `split_rows` takes from the last labelled
periods: the best stand-in for the future that the past has.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from impact_gnn import _files, checks
from impact_gnn.checks import InputError, one_line
from impact_gnn.metrics import Scoring
from impact_gnn.nn.curriculum import Curriculum
from impact_gnn.nn.tasks import HopTask, Split, Task

DEVICES = ("auto", "cpu", "cuda", "mps")
PRECISIONS = ("float32", "mixed")
VIEW = 65536  # rows whose logits are computed in one go when nothing is learned from them
# Rows in files are read so many bytes (as float32) at a time: a few thousand random rows touch nearly as many pages
# of a column slice as a hundred times as many do.
RUN_BYTES = 1 << 28
NOTE = "impact_gnn"  # under which name the header of a checkpoint holds its plain values, as JSON


class Diverged(InputError):  # noqa: N818 - it reads as a sentence: fit(...) Diverged
    """Training has left the finite numbers; the message says when."""


@dataclass(frozen=True)
class Epoch:
    """What happened in one epoch: mean loss, score on the rows to choose by (NaN without any), seconds since start."""

    epoch: int
    loss: float
    score: float
    seconds: float


@dataclass(frozen=True)
class Training:
    """How to train.

    Args:
        batch_size: Rows in a step; None for all at once. Models on whole graphs take no batches.
        patience: Stop after so many epochs without a better score; None to use all epochs.
        seed: Seed of initial weights, batches and dropout. On CPU the same seed gives the same bits.
        device: "auto" (CUDA, then MPS, then CPU), "cpu", "cuda" or "mps".
        precision: "float32", or "mixed": bfloat16 where the device knows it to be safe.
        refit: Train anew on all labelled rows, for as many epochs as were chosen.
        curriculum: Easy rows first; None for all rows from the beginning.
        scoring: By which the best epoch is chosen.
        checkpoint: File to resume from if it exists and to write to; None for none.
        checkpoint_every: Epochs between two writings.
    """

    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    batch_size: int | None = None
    patience: int | None = None
    seed: int = 0
    device: str = "auto"
    precision: str = "float32"
    refit: bool = False
    curriculum: Curriculum | None = None
    scoring: Scoring = field(default_factory=Scoring)
    checkpoint: Path | None = None
    checkpoint_every: int = 10
    progress: Callable[[Epoch], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checks.choice("device", self.device, DEVICES)
        checks.choice("precision", self.precision, PRECISIONS)
        for name in ("epochs", "batch_size", "patience", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and checks.whole_number(name, value) < 1:
                raise InputError(f"{name}={value} must be at least 1.")
        for name in ("lr", "weight_decay"):
            if not (checks.is_number(value := getattr(self, name)) and value >= 0):
                raise InputError(f"{name}={checks.shown(value)} must be at least 0.")

    def chosen_device(self) -> torch.device:
        if self.device in ("cuda", "mps") and not getattr(torch, self.device).is_available():
            raise InputError(f"device={self.device!r} is not to be had on this machine; use device='auto'.")
        if self.device != "auto":
            return torch.device(self.device)
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@dataclass(frozen=True, eq=False)
class Result:
    """A trained model: the weights of the best epoch, or of the refit (on the CPU), and how that epoch was chosen."""

    model: nn.Module
    state: dict[str, Tensor]
    best_epoch: int
    valid_score: float
    history: list[Epoch]


def fit(
    build: Callable[[], nn.Module], task: Task, labels: np.ndarray, split: Split, training: Training | None = None, *,
    sample_weight: np.ndarray | None = None,
) -> Result:  # fmt: skip
    """Trains a model and returns it as it was at its best epoch.

    Minimises Σ w·cross-entropy / Σ w over the rows to train on with Adam. Without rows to choose by, the last
    epoch is the best one.
    `build` makes the untrained model, after the seed is set and again for a refit; `task` is a `HopTask` for decoupled
    models, a `GraphTask` for spatial ones; `labels` [N] are −1 where they must not be seen; `sample_weight` [N] is what
    every row counts in the loss, by default 1.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> from impact_gnn.nn import SGC, HopTask, split_rows
        >>> view = tsbm(num_nodes=300, num_times=5, num_labels=2, seed=0).masked(4)
        >>> task = HopTask([view.x])
        >>> result = fit(lambda: SGC(5, 2), task, view.y, split_rows(view), Training(epochs=5, device="cpu"))
        >>> len(result.history), predict(result.model, task).shape
        (5, (300, 2))
    """
    training = Training() if training is None else training
    labels = checks.labels("labels", labels, task.num_rows)
    _check(labels, split, task, training)
    weight = _weights(sample_weight, task.num_rows)
    result = _Run(build, task, labels, split, training, weight).result()
    if not training.refit or not len(split.valid):
        return result
    path = training.checkpoint and training.checkpoint.with_name(training.checkpoint.name + ".refit")
    refit = replace(training, epochs=result.best_epoch, patience=None, checkpoint=path)
    final = _Run(build, task, labels, split.without_choice(), refit, weight).result()
    return replace(result, model=final.model, state=final.state)


def predict(model: nn.Module, task: Task, rows: np.ndarray | None = None, *, batch_size: int = VIEW) -> np.ndarray:
    """Probabilities [n, num_labels] of the rows (all by default), float32; `model` stays on its device."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    task = task.to(device)
    wanted = np.arange(task.num_rows) if rows is None else np.asarray(rows)
    logits = _evaluated(model, task, torch.from_numpy(wanted).to(device), batch_size)
    return torch.softmax(logits.float(), dim=1).cpu().numpy()


class _Run:
    """One training from the seed (or a checkpoint) to the last epoch."""

    def __init__(
        self, build: Callable[[], nn.Module], task: Task, labels: np.ndarray, split: Split, training: Training,
        weight: np.ndarray | None,
    ) -> None:  # fmt: skip
        self.build, self.training = build, training
        self.device = training.chosen_device()
        self.task = task.to(self.device)
        seen = np.where(np.isin(np.arange(len(labels)), split.all), labels, -1)  # nothing else is within reach
        self.labels = torch.from_numpy(seen).to(self.device)
        self.weight = None if weight is None else torch.from_numpy(weight).to(self.device)
        self.train_rows = torch.from_numpy(split.train).to(self.device)
        self.valid_rows = torch.from_numpy(split.valid).to(self.device)
        self.history: list[Epoch] = []
        self.best_epoch, self.best_score, self.best_state = 0, -math.inf, {}  # type: int, float, dict[str, Tensor]

    def result(self) -> Result:
        """Trains; the caller's random state is left as it was."""
        cuda = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(self.training.seed)
            self.model = self.build().to(self.device)
            lr, weight_decay = self.training.lr, self.training.weight_decay
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr, weight_decay=weight_decay)
            self.resume()
            self.loop()
        self.model.load_state_dict(self.best_state)
        self.model.eval()
        state = {name: value.cpu() for name, value in self.best_state.items()}
        score = self.best_score if len(self.valid_rows) else math.nan
        return Result(self.model, state, self.best_epoch, score, self.history)

    def loop(self) -> None:
        training = self.training
        before = self.history[-1].seconds if self.history else 0.0
        start = time.perf_counter()
        while len(self.history) < training.epochs and not self.exhausted():
            epoch = len(self.history) + 1
            loss, score = self.one_epoch(epoch), self.score(epoch)
            self.history.append(Epoch(epoch, loss, score, before + time.perf_counter() - start))
            # Without rows to choose by every epoch is the best so far, but only the last one need be kept.
            last = epoch == training.epochs
            if score > self.best_score or (not len(self.valid_rows) and last):
                self.best_epoch, self.best_score = epoch, score
                self.best_state = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
            if training.checkpoint and (last or self.exhausted() or epoch % training.checkpoint_every == 0):
                self.save(training.checkpoint)
            if training.progress:
                training.progress(self.history[-1])

    def exhausted(self) -> bool:
        patience = self.training.patience
        return patience is not None and len(self.valid_rows) > 0 and len(self.history) - self.best_epoch >= patience

    def one_epoch(self, epoch: int) -> float:
        self.model.train()
        total = weights = torch.zeros((), device=self.device)
        for task, at, rows in self.batches():
            self.optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.precision == "mixed"):
                logits = task.logits(self.model, at)
            each = cross_entropy(logits.float(), self.labels[rows], reduction="none")
            weight = torch.ones_like(each) if self.weight is None else self.weight[rows]
            if self.training.curriculum is not None:
                weight = weight * self.training.curriculum.weights(each, epoch)
            loss_sum, weight_sum = (weight * each).sum(), weight.sum()
            (loss_sum / weight_sum.clamp(min=1e-12)).backward()
            self.optimizer.step()
            total, weights = total + loss_sum.detach(), weights + weight_sum
        loss = float(total / weights.clamp(min=1e-12))
        if not math.isfinite(loss):
            advice = f"lower lr ({self.training.lr:g}) or scale the features."
            raise Diverged(f"the loss became {loss} in epoch {epoch}; {advice}")
        return loss

    def batches(self) -> Iterator[tuple[Task, Tensor, Tensor]]:
        """The rows to train on, all at once, or in random order and pieces; see `_served`."""
        size, rows = self.training.batch_size, self.train_rows
        if size is None:
            return _served(self.task, rows, len(rows))
        return _served(self.task, rows[torch.randperm(len(rows)).to(self.device)], size)

    def score(self, epoch: int) -> float:
        if not len(self.valid_rows):
            return math.nan
        logits = _evaluated(self.model, self.task, self.valid_rows, VIEW)
        if not bool(torch.isfinite(logits).all()):
            raise Diverged(f"the logits are not finite after epoch {epoch}; lower lr ({self.training.lr:g}).")
        truth, scoring = self.labels[self.valid_rows], self.training.scoring
        if scoring.counts_hits:  # the device can say it by itself
            return float((logits.argmax(1) == truth).float().mean())
        said = torch.softmax(logits.float(), dim=1).cpu().numpy()
        return scoring.finer(scoring.honest(said), truth.cpu().numpy())

    def fingerprint(self) -> str:
        """What must be the same for a checkpoint to be resumed."""
        free = ("epochs", "progress", "checkpoint", "checkpoint_every", "refit", "patience", "device")
        options = sorted(asdict(replace(self.training, progress=None)).items())
        kept = [each for each in options if each[0] not in free]
        shapes = [(name, tuple(value.shape)) for name, value in self.model.state_dict().items()]
        weight = torch.empty(0) if self.weight is None else self.weight
        arrays = (values.cpu().numpy() for values in (self.labels, self.train_rows, self.valid_rows, weight))
        return _files.digest(kept, shapes, self.task.fingerprint(), *arrays)

    def save(self, path: Path) -> None:
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        # Of the optimizer only its moments: its options are the caller's to repeat.
        state = self.optimizer.state_dict()["state"]
        moments = {f"{number}/{name}": value for number, part in state.items() for name, value in part.items()}
        parts = {"model": self.model.state_dict(), "best": self.best_state, "optimizer": moments, "random": random}
        note = {
            "run": self.fingerprint(), "best_epoch": self.best_epoch, "best_score": self.best_score,
            "history": [[e.epoch, e.loss, e.score, e.seconds] for e in self.history],
        }  # fmt: skip
        _write(path, parts, note)

    def resume(self) -> None:
        path = self.training.checkpoint
        if path is None or not path.exists():
            return
        parts, note = _read(path)
        remedy, done, asked = "delete it or name another file.", len(note["history"]), self.training.epochs
        if note["run"] != self.fingerprint():
            raise InputError(f"checkpoint {path} belongs to another training (other data, model or options); {remedy}")
        if done > asked and not len(self.valid_rows):
            problem = f"has already run {done} epochs, more than the {asked} asked for"
            raise InputError(f"checkpoint {path} {problem}; {remedy}")
        self.model.load_state_dict(parts["model"])
        self.best_state = {name: value.to(self.device) for name, value in parts.get("best", {}).items()}
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in parts.get("optimizer", {}).items():
            number, field = name.split("/")
            state.setdefault(int(number), {})[field] = value
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.best_epoch, self.best_score = note["best_epoch"], note["best_score"]
        self.history = [Epoch(*values) for values in note["history"]]
        torch.set_rng_state(parts["random"]["cpu"])
        if "cuda" in parts["random"] and self.device.type == "cuda":
            torch.cuda.set_rng_state(parts["random"]["cuda"], self.device)


def _write(path: Path, parts: Mapping[str, Mapping[str, Tensor]], note: Mapping[str, Any]) -> None:
    """Tensors by part and name and plain values in one safetensors file, so that the two cannot disagree."""
    flat = {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
    with _files.atomic_file(path) as temporary:
        whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in flat.items()}
        save_file(whole, temporary, metadata={NOTE: json.dumps(note)})


def _read(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """What `_write` wrote; nothing is ever unpickled."""
    parts: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt") as file:
            note = json.loads((file.metadata() or {})[NOTE])
            for key in file.keys():  # noqa: SIM118 - it is no mapping
                part, name = key.split("/", 1)
                parts.setdefault(part, {})[name] = file.get_tensor(key)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        reason = one_line(error)
        raise InputError(f"{path} is not a checkpoint of impact-gnn ({reason}); delete it or name another.") from None
    return parts, note


def _evaluated(model: nn.Module, task: Task, rows: Tensor, size: int) -> Tensor:
    """Logits of rows without learning from them; the model is left in evaluation mode."""
    model.eval()
    with torch.no_grad():
        served = _served(task, rows, size if task.by_rows else max(len(rows), 1))
        return torch.cat([part.logits(model, at) for part, at, _ in served])


def _served(task: Task, rows: Tensor, size: int) -> Iterator[tuple[Task, Tensor, Tensor]]:
    """Every `size` rows, in order: a task, the rows' numbers in it, and the rows; files are read in long runs."""
    if not isinstance(task, HopTask) or not task.in_files:
        yield from ((task, part, part) for part in rows.split(size))
        return
    batches = RUN_BYTES // max(4 * size * sum(task.in_channels + task.label_channels), 1)
    for run in rows.split(size * max(batches, 1)):
        loaded = task.loaded(run)
        numbers = torch.arange(len(run), device=run.device)
        yield from ((loaded, at, part) for at, part in zip(numbers.split(size), run.split(size), strict=True))


def _check(labels: np.ndarray, split: Split, task: Task, training: Training) -> None:
    if not len(split.train):
        raise InputError("there is no row to train on; give labels for the past.")
    hidden = np.flatnonzero(labels[split.all] < 0)
    if len(hidden):
        raise InputError(f"row {split.all[hidden[0]]} of the split has no label; split labelled rows only.")
    if len(np.intersect1d(split.train, split.valid)):
        raise InputError("rows to train on and rows to choose by overlap; keep them apart.")
    if training.batch_size is not None and not task.by_rows:
        problem = "batch_size does not go with a model on a whole graph"
        raise InputError(f"{problem}; leave it out, or use a decoupled model.")


def _weights(given: np.ndarray | None, num_rows: int) -> np.ndarray | None:
    if given is None:
        return None
    weight = np.asarray(given, np.float32)
    if weight.shape != (num_rows,) or not np.isfinite(weight).all() or weight.min() < 0:
        raise InputError(f"sample_weight must be {num_rows} finite numbers of zero or more, one per row.")
    return weight
