"""The one training loop: full batch and mini batch, losses and terms, early stopping, refitting.

It reads labels of rows to train on and of rows to choose the epoch by, which `split_rows` takes
from the last labelled periods: the best stand-in for the future that the past has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.metrics import Scoring
from impact_gnn.nn.loss import OPTIMIZERS, CrossEntropy, Loss, Schedule, Step, Term
from impact_gnn.nn.tasks import HopTask, Split, Task

DEVICES = ("auto", "cpu", "cuda", "mps")
CHOOSERS = ("score", "loss")
VIEW = 65536  # rows whose logits are computed in one go when nothing is learned from them
# Rows in files are read so many bytes (as float32) at a time: a few thousand random rows touch
# nearly as many pages of a column slice as a hundred times as many do.
RUN_BYTES = 1 << 28


class Diverged(InputError):  # noqa: N818 - it reads as a sentence: fit(...) Diverged
    """Training has left the finite numbers; the message says when."""


@dataclass(frozen=True)
class Epoch:
    """What happened in one epoch: mean loss, score on the rows to choose by (NaN without any), seconds since start."""

    epoch: int
    loss: float
    score: float
    seconds: float


class RowSchedule(Protocol):
    """Decides which rows to train on an epoch learns from."""

    @property
    def whole_from(self) -> int:
        """The first epoch from which on all rows are learned from."""

    def is_complete(self, epoch: int) -> bool:
        """Whether an epoch learns from all rows, so that it may be chosen."""

    def choose(
        self, epoch: int, loss: Tensor, labels: Tensor, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Positions of the rows to learn from, and what to remember, given the loss of every row."""


@dataclass(frozen=True)
class Training:
    """How to train.

    Args:
        batch_size: Rows in a step; None for all at once. Models on whole graphs take no batches.
        patience: Stop after so many epochs without a better score; None to use all epochs.
        seed: Seed of initial weights, batches and dropout. On CPU the same seed gives the same
            bits.
        device: "auto" (CUDA, then MPS, then CPU), "cpu", "cuda" or "mps".
        refit: Train anew on all labelled rows, for as many epochs as were chosen.
        row_schedule: Which rows to train on an epoch learns from; None for all.
        loss: What a row costs; see `impact_gnn.nn.loss`.
        terms: What is added to the mean loss of a step.
        optimizer: A name of `OPTIMIZERS`.
        schedule: How the learning rate moves with the epochs; None for a constant one.
        hide_labels: The share of rows whose input labels are hidden in a step, at random: of models
            on a whole graph the own label (and only those rows are learned from), of others the
            label hops.
        choose_by: The best epoch has the best "score" or the least "loss" on the rows to choose by.
        choose_over: Epochs, up to the one in question, over which that is averaged, so that chance
            chooses less.
        scoring: What a score is.
    """

    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    batch_size: int | None = None
    patience: int | None = None
    seed: int = 0
    device: str = "auto"
    refit: bool = False
    row_schedule: RowSchedule | None = None
    loss: Loss = field(default_factory=CrossEntropy)
    terms: tuple[Term, ...] = ()
    optimizer: str = "adam"
    schedule: Schedule | None = None
    hide_labels: float = 0.0
    choose_by: str = "score"
    choose_over: int = 1
    scoring: Scoring = field(default_factory=Scoring)
    progress: Callable[[Epoch], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checks.choice("device", self.device, DEVICES)
        checks.choice("optimizer", self.optimizer, OPTIMIZERS)
        checks.choice("choose_by", self.choose_by, CHOOSERS)
        checks.share("hide_labels", self.hide_labels)
        for name in ("epochs", "batch_size", "patience", "choose_over"):
            value = getattr(self, name)
            if value is not None and checks.whole_number(name, value) < 1:
                raise InputError(f"{name}={value} must be at least 1.")
        for name in ("lr", "weight_decay"):
            if not (checks.is_number(value := getattr(self, name)) and value >= 0):
                raise InputError(f"{name}={checks.quoted(value)} must be at least 0.")

    def chosen_device(self) -> torch.device:
        if self.device in ("cuda", "mps") and not getattr(torch, self.device).is_available():
            raise InputError(
                f"device={self.device!r} is not to be had on this machine; use device='auto'."
            )
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
    build: Callable[[], nn.Module],
    task: Task,
    labels: np.ndarray,
    split: Split,
    training: Training | None = None,
    *,
    sample_weight: np.ndarray | None = None,
    target: np.ndarray | None = None,
) -> Result:
    """Trains a model and returns it as it was at its best epoch.

    Minimises Σ w·loss / Σ w over the rows to train on, plus terms. Without rows to choose by, the
    last epoch is the best one. `build` makes the untrained model, after the seed is set and again
    for a refit; `task` is a `HopTask` for decoupled models, a `GraphTask` for spatial ones;
    `labels` [N] are −1 where they must not be seen; `sample_weight` [N] is what every row counts in
    the loss, by default 1; `target` [N, C] are probabilities to learn in place of the labels.

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
    result = _Run(build, task, labels, split, training, weight, target).result()
    if not training.refit or not len(split.valid):
        return result
    refit = replace(training, epochs=result.best_epoch, patience=None)
    final = _Run(build, task, labels, split.without_choice(), refit, weight, target).result()
    return replace(result, model=final.model, state=final.state)


def predict(
    model: nn.Module, task: Task, rows: np.ndarray | None = None, *, batch_size: int = VIEW
) -> np.ndarray:
    """Probabilities [n, num_labels] of the rows (all by default), float32; `model` stays on its device."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    task = task.to(device)
    wanted = np.arange(task.num_rows) if rows is None else np.asarray(rows)
    logits = _evaluated(model, task, torch.from_numpy(wanted).to(device), batch_size)
    return torch.softmax(logits.float(), dim=1).cpu().numpy()


class _Run:
    """One training from the seed to the last epoch."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        task: Task,
        labels: np.ndarray,
        split: Split,
        training: Training,
        weight: np.ndarray | None,
        target: np.ndarray | None,
    ) -> None:
        self.build, self.training = build, training
        self.device = training.chosen_device()
        self.task = task.to(self.device)
        # nothing else is within reach
        seen = np.where(np.isin(np.arange(len(labels)), split.all), labels, -1)
        self.labels = torch.from_numpy(seen).to(self.device)
        self.weight = None if weight is None else torch.from_numpy(weight).to(self.device)
        self.target = (
            None
            if target is None
            else torch.from_numpy(np.asarray(target, np.float32)).to(self.device)
        )
        self.train_rows = torch.from_numpy(split.train).to(self.device)
        self.valid_rows = torch.from_numpy(split.valid).to(self.device)
        self.history: list[Epoch] = []
        self.ranks: list[float] = []  # of the last epochs
        self.best_epoch, self.best_rank, self.best_state = 0, -math.inf, {}  # type: int, float, dict[str, Tensor]
        self.row_memory: Tensor | None = None  # what a row schedule remembers between epochs

    def result(self) -> Result:
        """Trains; the caller's random state is left as it was."""
        cuda = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(self.training.seed)
            self.model = self.build().to(self.device)
            kind: Any = OPTIMIZERS[self.training.optimizer]
            options = {"lr": self.training.lr, "weight_decay": self.training.weight_decay}
            self.optimizer = kind(self.model.parameters(), **options)
            self.loop()
        self.model.load_state_dict(self.best_state)
        self.model.eval()
        state = {name: value.cpu() for name, value in self.best_state.items()}
        return Result(
            self.model,
            state,
            self.best_epoch,
            self.history[self.best_epoch - 1].score,
            self.history,
        )

    def loop(self) -> None:
        training = self.training
        start = time.perf_counter()
        while len(self.history) < training.epochs and not self.exhausted():
            epoch = len(self.history) + 1
            loss, (rank, score) = self.one_epoch(epoch), self.judged(epoch)
            self.history.append(Epoch(epoch, loss, score, time.perf_counter() - start))
            # Without rows to choose by every epoch is the best so far, but only the last one need
            # be kept.
            last = epoch == training.epochs
            schedule = training.row_schedule
            ready = last or schedule is None or schedule.is_complete(epoch)
            self.ranks = [*self.ranks, rank][-training.choose_over :]
            rank = sum(self.ranks) / len(self.ranks)
            if (ready and rank > self.best_rank) or (not len(self.valid_rows) and last):
                self.best_epoch, self.best_rank = epoch, rank
                self.best_state = {
                    name: value.detach().clone() for name, value in self.model.state_dict().items()
                }
            if training.progress:
                training.progress(self.history[-1])

    def exhausted(self) -> bool:
        """Whether patience has run out, which counts from the epoch that learns from all rows."""
        patience, schedule = self.training.patience, self.training.row_schedule
        if patience is None or not len(self.valid_rows):
            return False
        first_complete = 1 if schedule is None else schedule.whole_from
        since = max(self.best_epoch, first_complete - 1)
        return len(self.history) - since >= patience

    def one_epoch(self, epoch: int) -> float:
        training, learned = self.training, self.rows_of(epoch)
        self.model.train()
        if training.schedule is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = training.lr * training.schedule(epoch)
        total = weights = torch.zeros((), device=self.device)
        with Reading(self.model, on=bool(training.terms)) as reading:
            for task, at, rows in self.batches(learned):
                self.optimizer.zero_grad(set_to_none=True)
                logits = task.logits(self.model, at)
                each = training.loss(
                    logits.float(), (self.labels if self.target is None else self.target)[rows]
                )
                weight = torch.ones_like(each) if self.weight is None else self.weight[rows]
                loss_sum, weight_sum = (weight * each).sum(), weight.sum()
                loss = loss_sum / weight_sum.clamp(min=1e-12)
                if training.terms:
                    # Of a whole graph as the step sees it, in which labels that are learned are
                    # hidden.
                    asked = self.task if task.by_rows else task

                    def again(more: Tensor, asked: Task = asked) -> tuple[Tensor, Tensor]:
                        return asked.logits(self.model, more), reading.of(asked, more)

                    hidden = reading.of(task, at)
                    step = Step(rows, logits, hidden, self.labels[rows], each, weight, epoch, again)
                    loss = loss + torch.stack([term(step) for term in training.terms]).sum()
                loss.backward()
                self.optimizer.step()
                total, weights = total + loss_sum.detach(), weights + weight_sum
        mean = float(total / weights.clamp(min=1e-12))
        if not math.isfinite(mean):
            advice = f"lower lr ({training.lr:g}) or scale the features."
            raise Diverged(f"the loss became {mean} in epoch {epoch}; {advice}")
        return mean

    def rows_of(self, epoch: int) -> Tensor:
        """The rows that an epoch learns from."""
        schedule = self.training.row_schedule
        if schedule is None or epoch >= schedule.whole_from:
            return self.train_rows
        labels = self.labels[self.train_rows]
        chosen, self.row_memory = schedule.choose(epoch, self.own_losses(), labels, self.row_memory)
        return self.train_rows[chosen]

    def own_losses(self) -> Tensor:
        """Losses of the rows to train on, without dropout; where labels are told, no row is told its own."""
        loss = torch.zeros(len(self.train_rows), device=self.device)
        for start in range(halves := 2 if self.training.hide_labels else 1):
            rows = self.train_rows[start::halves]
            task = self.task.drawn(rows, 1.0)[0] if halves == 2 else self.task
            logits = _evaluated(self.model, task, rows, VIEW).float()
            loss[start::halves] = self.training.loss(logits, self.labels[rows])
        return loss

    def batches(self, rows: Tensor) -> Iterator[tuple[Task, Tensor, Tensor]]:
        """The rows, all at once, or in random order and pieces; see `_served`."""
        size, hidden = self.training.batch_size, self.training.hide_labels
        task, rows = self.task.drawn(rows, hidden) if hidden else (self.task, rows)
        if size is None:
            return _served(task, rows, len(rows))
        return _served(task, rows[torch.randperm(len(rows)).to(self.device)], size)

    def judged(self, epoch: int) -> tuple[float, float]:
        """What an epoch is chosen by (more is better), and its score, on the rows to choose by."""
        if not len(self.valid_rows):
            return math.nan, math.nan
        logits = _evaluated(self.model, self.task, self.valid_rows, VIEW)
        if not bool(torch.isfinite(logits).all()):
            raise Diverged(
                f"the logits are not finite after epoch {epoch}; lower lr ({self.training.lr:g})."
            )
        truth, scoring = self.labels[self.valid_rows], self.training.scoring
        if scoring.counts_hits:  # the device can say it by itself
            score = float((logits.argmax(1) == truth).float().mean())
        else:
            said = torch.softmax(logits.float(), dim=1).cpu().numpy()
            score = scoring.finer(scoring.without_class_weights(said), truth.cpu().numpy())
        by_loss = self.training.choose_by == "loss"
        return -float(self.training.loss(logits.float(), truth).mean()) if by_loss else score, score


class Reading:
    """Remembers what the last linear layer of a model has read, while it is `on`."""

    def __init__(self, model: nn.Module, *, on: bool) -> None:
        self.read: Tensor | None = None
        self.hook: Any = None
        if on:
            last = next(
                (part for name, part in model.named_children() if name == "classify"), model
            )
            linear = [part for part in last.modules() if isinstance(part, (nn.Linear, Linear))]
            if not linear:
                problem = (
                    f"{type(model).__name__} has no linear layer whose inputs could be compared"
                )
                raise InputError(f"{problem}; leave out what needs them ('cmd').")
            self.hook = linear[-1].register_forward_pre_hook(self.take)

    def take(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.read = inputs[0]

    def of(self, task: Task, rows: Tensor) -> Tensor:
        """What was read of the rows that the model was asked for last; whole graphs are read whole."""
        assert self.read is not None
        return self.read if task.by_rows else self.read[rows]

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *error: object) -> None:
        if self.hook is not None:
            self.hook.remove()


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
        yield from (
            (loaded, at, part)
            for at, part in zip(numbers.split(size), run.split(size), strict=True)
        )


def _check(labels: np.ndarray, split: Split, task: Task, training: Training) -> None:
    if not len(split.train):
        raise InputError("there is no row to train on; give labels for the past.")
    hidden = np.flatnonzero(labels[split.all] < 0)
    if len(hidden):
        raise InputError(
            f"row {split.all[hidden[0]]} of the split has no label; split labelled rows only."
        )
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
        raise InputError(
            f"sample_weight must be {num_rows} finite numbers of zero or more, one per row."
        )
    return weight
