"""The training loop: full batch and mini batch, losses and terms, early stopping.

It reads labels of training rows and of validation rows. `split_rows` takes the latter from the last
labelled periods, which resemble the future most.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.metrics import Scoring
from impact_gnn.nn.loss import CrossEntropy, Loss, Step, Term
from impact_gnn.nn.optimizer import Adam
from impact_gnn.nn.tasks import GraphTask, HopTask, Split, Task

DEVICES = ("auto", "cpu", "cuda", "mps")
EVALUATION_ROWS = 65536  # rows per batch where nothing is learned
# Rows in files are read this many bytes (as float32) at a time: a few thousand random rows touch
# nearly as many pages of a column slice as a hundred times as many do.
RUN_BYTES = 1 << 28


class Diverged(InputError):  # noqa: N818 - it reads as a sentence: fit(...) Diverged
    """The loss or the logits are no longer finite; the message says when."""


@dataclass(frozen=True)
class Epoch:
    """Mean loss, score on the validation rows (NaN without any), and seconds since the start."""

    epoch: int
    loss: float
    score: float
    seconds: float


@dataclass(frozen=True)
class Training:
    """How to train.

    Args:
        batch_size: Rows in a step; None for all at once. Models on whole graphs take no batches.
        patience: Stop after this many epochs without a better score; None to use all epochs.
        seed: Seed of initial weights, batches and dropout. On CPU the same seed gives the same
            bits.
        device: "auto" (CUDA, then MPS, then CPU), "cpu", "cuda" or "mps".
        run: Another class of runs than `Run`, for other rows in every epoch.
        loss: The loss per row; see `impact_gnn.nn.loss`.
        terms: Terms that are added to the mean loss of a step.
        optimizer: A class of optimizers.
        schedule: The learning rate by epoch; None for a constant one.
        hide_labels: For models on a whole graph, the share of rows whose own label is hidden in a
            step, at random; only those rows are trained on.
        average_over: The last epochs over which the score and the weights are averaged, to reduce
            noise.
        scoring: The definition of the score.
    """

    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    batch_size: int | None = None
    patience: int | None = None
    seed: int = 0
    device: str = "auto"
    run: Callable[..., Run] | None = None
    loss: Loss = field(default_factory=CrossEntropy)
    terms: tuple[Term, ...] = ()
    optimizer: Callable[..., Any] = Adam
    schedule: Callable[[int], float] | None = None
    hide_labels: float = 0.0
    average_over: int = 1
    scoring: Scoring = field(default_factory=Scoring)
    progress: Callable[[Epoch], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        checks.choice("device", self.device, DEVICES)
        checks.share("hide_labels", self.hide_labels)
        for name in ("epochs", "batch_size", "patience", "average_over"):
            value = getattr(self, name)
            if value is not None and checks.whole_number(name, value) < 1:
                raise InputError(f"{name}={value} must be at least 1.")
        for name in ("lr", "weight_decay"):
            value = getattr(self, name)
            if not checks.is_number(value) or not value >= 0:
                raise InputError(f"{name}={checks.quoted(value)} must be at least 0.")

    def select_device(self) -> torch.device:
        if self.device in ("cuda", "mps") and not getattr(torch, self.device).is_available():
            raise InputError(
                f"device={self.device!r} is not available on this machine; use device='auto'."
            )
        if self.device != "auto":
            return torch.device(self.device)
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


@dataclass(frozen=True, eq=False)
class Result:
    """A trained model, with the weights of the best epoch (on the CPU).

    They are means over the last epochs up to it, if the training says so (`average_over`).
    """

    model: nn.Module
    state: dict[str, Tensor]
    best_epoch: int
    valid_score: float
    history: list[Epoch]


def fit(
    build: Callable[[], nn.Module],
    task: Task,
    labels: ndarray,
    split: Split,
    training: Training | None = None,
    *,
    sample_weight: ndarray | None = None,
    target: ndarray | None = None,
) -> Result:
    """Train a model and return it with the weights of its best epoch.

    Minimises Σ w·loss / Σ w over the training rows, plus terms. Without validation rows the last
    epoch is the best one. `build` creates the untrained model, after the seed is set; `task` is a
    `HopTask` for decoupled models, a `GraphTask` for spatial ones; `labels` [N] are −1 where they
    are unknown; `sample_weight` [N] is the weight of every row in the loss, by default 1; `target`
    [N, C] are probabilities to learn in place of the labels.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> from impact_gnn.nn import SGC, HopTask, split_rows
        >>> view = tsbm(num_nodes=300, num_times=5, num_labels=2, seed=0).masked(4)
        >>> task = HopTask([view.x])
        >>> training = Training(epochs=5, device="cpu")
        >>> result = fit(lambda: SGC(5, 2), task, view.y, split_rows(view), training)
        >>> len(result.history), predict(result.model, task).shape
        (5, (300, 2))
    """
    training = training or Training()
    labels = checks.labels("labels", labels, task.num_rows)
    _check(labels, split, task, training)
    weight = _checked_weights(sample_weight, task.num_rows)
    start_run = training.run or Run
    run = start_run(build, task, labels, split, training, weight=weight, target=target)
    return run.result()


def predict(
    model: nn.Module,
    task: Task,
    rows: ndarray | None = None,
    *,
    batch_size: int = EVALUATION_ROWS,
) -> ndarray:
    """Return float32 probabilities [n, num_labels] of the rows, by default of all."""
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    task = task.to(device)
    rows = np.arange(task.num_rows) if rows is None else np.asarray(rows)
    logits = evaluate(model, task, torch.from_numpy(rows).to(device), batch_size)
    return _probabilities(logits)


def _probabilities(logits: Tensor) -> ndarray:
    return torch.softmax(logits.float(), dim=1).cpu().numpy()


class Run:
    """One training from the seed to the last epoch."""

    first_complete = 1  # epoch from which on all rows are used, and patience counts

    def __init__(
        self,
        build: Callable[[], nn.Module],
        task: Task,
        labels: ndarray,
        split: Split,
        training: Training,
        *,
        weight: ndarray | None,
        target: ndarray | None,
    ) -> None:
        self.build = build
        self.training = training
        self.device = training.select_device()
        self.task = task.to(self.device)
        # Labels outside the split are out of reach.
        known = np.full_like(labels, -1)
        known[split.all] = labels[split.all]
        self.labels = self.place(known)
        if weight is None:
            weight = np.ones(task.num_rows, np.float32)
        self.weight = self.place(weight)
        self.target = self.labels
        if target is not None:
            self.target = self.place(np.asarray(target, np.float32))
        self.train_rows = self.place(split.train)
        self.valid_rows = self.place(split.valid)
        self.history: list[Epoch] = []
        self.criteria: list[float] = []  # of the last epochs
        self.states: list[dict[str, Tensor]] = []  # weights after the last epochs
        self.best_epoch = 0
        self.best_criterion = -math.inf
        self.best_state: dict[str, Tensor] = {}

    def place(self, values: ndarray) -> Tensor:
        """Move an array to the device."""
        return torch.from_numpy(values).to(self.device)

    def result(self) -> Result:
        """Train; the caller's random state stays as it was."""
        training = self.training
        cuda = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            torch.manual_seed(training.seed)
            self.model = self.build().to(self.device)
            self.optimizer = training.optimizer(
                self.model.parameters(), lr=training.lr, weight_decay=training.weight_decay
            )
            self.train()
        # From the last epoch back to the best one.
        self.model.load_state_dict(self.best_state)
        self.model.eval()
        return Result(
            model=self.model,
            state={name: value.cpu() for name, value in self.best_state.items()},
            best_epoch=self.best_epoch,
            valid_score=self.history[self.best_epoch - 1].score,
            history=self.history,
        )

    def train(self) -> None:
        training = self.training
        start = time.perf_counter()
        while len(self.history) < training.epochs and not self.is_out_of_patience():
            epoch = len(self.history) + 1
            loss = self.train_epoch(epoch)
            criterion, score = self.validate(epoch)
            seconds = time.perf_counter() - start
            self.history.append(Epoch(epoch, loss, score, seconds))
            self.criteria = [*self.criteria, criterion][-training.average_over :]
            self.states = [*self.states, self.copy_state()][-training.average_over :]
            criterion = sum(self.criteria) / len(self.criteria)
            is_last = epoch == training.epochs
            is_eligible = is_last or self.is_eligible(epoch)
            is_better = is_eligible and criterion > self.best_criterion
            # Without validation rows the criterion is NaN, and the last epoch is the best.
            if is_better or (is_last and not len(self.valid_rows)):
                self.best_epoch = epoch
                self.best_criterion = criterion
                self.best_state = mean_state(self.states)
            if training.progress:
                training.progress(self.history[-1])

    def copy_state(self) -> dict[str, Tensor]:
        """Return a copy of the present weights."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def is_out_of_patience(self) -> bool:
        """Tell whether patience has run out; it counts from the first epoch with all rows."""
        patience = self.training.patience
        if patience is None or not len(self.valid_rows):
            return False
        # An epoch with some rows only does not use up patience.
        since = max(self.best_epoch, self.first_complete - 1)
        return len(self.history) - since >= patience

    def train_epoch(self, epoch: int) -> float:
        """Take one step per batch, and return the mean loss."""
        training = self.training
        rows_of_epoch = self.select_rows(epoch)
        self.model.train()
        if training.schedule is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = training.lr * training.schedule(epoch)
        # Tensors on the device: reading numbers would wait for it in every step.
        loss_total = weight_total = torch.zeros((), device=self.device)
        with LayerInputs(self.model, active=bool(training.terms)) as layer_inputs:
            for task, task_rows, rows in self.batches(rows_of_epoch):
                self.optimizer.zero_grad(set_to_none=True)
                logits = task.logits(self.model, task_rows)
                losses = training.loss(logits.float(), self.target[rows])
                weight = self.weight[rows]
                loss_sum = (weight * losses).sum()
                weight_sum = weight.sum()
                # All weights of a batch may be 0.
                loss = loss_sum / weight_sum.clamp(min=1e-12)
                if training.terms:
                    # A whole graph as in this step, which hides the labels that are learned.
                    whole_task = self.task if task.by_rows else task

                    def again(more: Tensor, whole: Task = whole_task) -> tuple[Tensor, Tensor]:
                        return whole.logits(self.model, more), layer_inputs.of(whole, more)

                    step = Step(
                        rows=rows,
                        logits=logits,
                        hidden=layer_inputs.of(task, task_rows),
                        labels=self.labels[rows],
                        losses=losses,
                        weight=weight,
                        epoch=epoch,
                        again=again,
                    )
                    terms = [term(step) for term in training.terms]
                    loss = loss + torch.stack(terms).sum()
                loss.backward()
                self.optimizer.step()
                loss_total = loss_total + loss_sum.detach()
                weight_total = weight_total + weight_sum
        mean = float(loss_total / weight_total.clamp(min=1e-12))
        if not math.isfinite(mean):
            raise Diverged(
                f"the loss became {mean} in epoch {epoch}; "
                f"lower lr ({training.lr:g}) or scale the features."
            )
        return mean

    def is_eligible(self, epoch: int) -> bool:
        """Tell whether an epoch may be the best one."""
        return True

    def select_rows(self, epoch: int) -> Tensor:
        """Return the training rows of an epoch."""
        return self.train_rows

    def batches(self, rows: Tensor) -> Iterator[tuple[Task, Tensor, Tensor]]:
        """Yield the rows as one batch, or shuffled in batches; see `_batches`."""
        task = self.task
        if self.training.hide_labels and isinstance(task, GraphTask):
            task, rows = task.drawn(rows, self.training.hide_labels)
        size = self.training.batch_size
        if size is None:
            return _batches(task, rows, len(rows))
        # From the CPU generator, the same on all devices.
        order = torch.randperm(len(rows)).to(self.device)
        return _batches(task, rows[order], size)

    def validate(self, epoch: int) -> tuple[float, float]:
        """Return criterion (more is better) and score of an epoch on the validation rows."""
        if not len(self.valid_rows):
            return math.nan, math.nan
        logits = evaluate(self.model, self.task, self.valid_rows)
        if not bool(torch.isfinite(logits).all()):
            raise Diverged(
                f"the logits are not finite after epoch {epoch}; lower lr ({self.training.lr:g})."
            )
        truth = self.labels[self.valid_rows]
        scoring = self.training.scoring
        if scoring.counts_hits:  # computed on the device
            is_hit = logits.argmax(1) == truth
            score = float(is_hit.float().mean())
        else:
            # Probabilities with the true class proportions, as they are used later.
            probabilities = scoring.without_class_weights(_probabilities(logits))
            score = scoring.finer(probabilities, truth.cpu().numpy())
        return self.criterion(logits, truth, score), score

    def criterion(self, logits: Tensor, truth: Tensor, score: float) -> float:
        """Return what the best epoch has the most of."""
        return score


def mean_state(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean weights of several epochs; counters are those of the last."""
    mean = dict(states[-1])
    for name, value in mean.items():
        if value.is_floating_point():
            mean[name] = torch.stack([state[name] for state in states]).mean(0)
    return mean


def _is_linear(module: nn.Module) -> bool:
    """Tell whether a layer is torch's or PyG's `Linear`; importing PyG for it takes seconds."""
    kind = type(module)
    is_of_pyg = kind.__name__ == "Linear" and kind.__module__.startswith("torch_geometric.")
    return is_of_pyg or isinstance(module, nn.Linear)


class LayerInputs:
    """Records the inputs of a model's last linear layer, while it is `active`."""

    def __init__(self, model: nn.Module, *, active: bool) -> None:
        self.last: Tensor | None = None
        self.hook: Any = None
        if active:
            # The last layers, where a model names them; otherwise the whole model.
            classifier = dict(model.named_children()).get("classify", model)
            layers = [part for part in classifier.modules() if _is_linear(part)]
            if not layers:
                raise InputError(
                    f"{type(model).__name__} has no linear layer whose inputs could be compared; "
                    "drop what needs them ('cmd')."
                )
            self.hook = layers[-1].register_forward_pre_hook(self.record)

    def record(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.last = inputs[0]

    def of(self, task: Task, rows: Tensor) -> Tensor:
        """Return the inputs for the rows of the last call; whole graphs were read whole."""
        assert self.last is not None
        return self.last if task.by_rows else self.last[rows]

    def __enter__(self) -> LayerInputs:
        return self

    def __exit__(self, *error: object) -> None:
        if self.hook is not None:
            self.hook.remove()


def evaluate(model: nn.Module, task: Task, rows: Tensor, size: int = EVALUATION_ROWS) -> Tensor:
    """Compute logits without gradients; the model is left in evaluation mode."""
    model.eval()
    if not task.by_rows:
        # A whole graph is computed once, whatever the number of rows.
        size = max(len(rows), 1)
    with torch.no_grad():
        batches = _batches(task, rows, size)
        logits = [part.logits(model, task_rows) for part, task_rows, _ in batches]
        return torch.cat(logits)


def _batches(task: Task, rows: Tensor, size: int) -> Iterator[tuple[Task, Tensor, Tensor]]:
    """Yield, for every `size` rows, a task, the rows' positions in it, and the rows.

    Files are read in long runs.
    """
    if not isinstance(task, HopTask) or not task.in_files:
        yield from ((task, part, part) for part in rows.split(size))
        return
    # Batches of a run, by the bytes of their rows in float32.
    batch_bytes = 4 * size * sum(task.in_channels + task.label_channels)
    batches = max(RUN_BYTES // max(batch_bytes, 1), 1)
    for run in rows.split(size * batches):
        loaded = task.loaded(run)
        # Positions in the loaded task, which has the rows of this run only.
        positions = torch.arange(len(run), device=run.device)
        for task_rows, part in zip(positions.split(size), run.split(size), strict=True):
            yield loaded, task_rows, part


def _check(labels: ndarray, split: Split, task: Task, training: Training) -> None:
    if not len(split.train):
        raise InputError("there are no training rows; pass labels for the past.")
    unlabelled = split.all[labels[split.all] < 0]
    if len(unlabelled):
        raise InputError(
            f"row {unlabelled[0]} of the split has no label; split labelled rows only."
        )
    if len(np.intersect1d(split.train, split.valid)):
        raise InputError("training and validation rows overlap; separate them.")
    if training.batch_size is not None and not task.by_rows:
        raise InputError(
            "batch_size has no effect for a model on the whole graph; "
            "omit it, or use a decoupled model."
        )


def _checked_weights(sample_weight: ndarray | None, num_rows: int) -> ndarray | None:
    if sample_weight is None:
        return None
    weight = np.asarray(sample_weight, np.float32)
    is_valid = np.isfinite(weight) & (weight >= 0)
    if weight.shape != (num_rows,) or not is_valid.all():
        raise InputError(
            f"sample_weight must be {num_rows} finite numbers of zero or more, one per row."
        )
    return weight
