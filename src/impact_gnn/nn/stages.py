"""Training in stages: what one stage is confident of teaches the next (SeHGNN's stages, GAMLP's RLU)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.nn.loss import Distillation
from impact_gnn.nn.tasks import Split, Task
from impact_gnn.nn.training import Result, Training, fit, predict


@dataclass(frozen=True, eq=False)
class Lesson:
    """What a stage is taught: label, target probabilities and weight of every row, and which rows it learns from.

    `soft` [N, C] is what may be told of a row to its neighbours: its true label, or what the stage
    before believed; None for true labels alone.
    """

    label: np.ndarray
    target: np.ndarray | None
    weight: np.ndarray | None
    split: Split
    soft: np.ndarray | None = None


@dataclass(frozen=True)
class Reliable:
    """Which predictions are believed, in how many trainings, and how much they count.

    From the probability `threshold` on a row that has no label to learn from is believed. It then
    is learned from with its probabilities, made sharper by p^(1/temperature), as target: their
    cross-entropy has the gradient of the KL divergence from them. It counts `weight` times its
    largest probability, a labelled row 1; a weight of 0 keeps such rows out of the loss and in the
    label hops. With `distill` every row trained on also learns, with this weight, what the stage
    before said of it (self-distillation).

    SeHGNN: threshold .75, weight 10; GAMLP's RLU: threshold 0, weight .5, temperature .001.
    """

    stages: int = 3
    threshold: float = 0.75
    weight: float = 0.5
    temperature: float = 1.0
    distill: float = 0.0

    def __post_init__(self) -> None:
        if checks.whole_number("stages", self.stages) < 1:
            raise InputError(f"stages={self.stages} must be at least 1.")
        if not 0 <= self.threshold <= 1:
            raise InputError(f"threshold={self.threshold} must be from 0 to 1.")
        if not self.temperature > 0:
            raise InputError(f"temperature={self.temperature} must be above 0.")
        for name in ("weight", "distill"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name}={getattr(self, name)} must be at least 0.")

    def lesson(
        self,
        label: np.ndarray,
        split: Split,
        num_labels: int,
        probability: np.ndarray,
        weight: np.ndarray | None = None,
    ) -> Lesson:
        """What the next stage is taught, given the probabilities [N, C] of the one before.

        True labels of rows that are not trained on are never read. Rows to choose by may be told to
        their neighbours as predicted, but are not learned from.
        """
        soft = self.told(label, split.train, num_labels, probability)
        taught = (
            np.setdiff1d(np.flatnonzero(soft.any(1)), split.all)
            if self.weight
            else np.empty(0, np.int64)
        )
        known, counts = (
            np.array(label),
            np.ones(len(label), np.float32) if weight is None else np.array(weight),
        )
        known[taught] = probability[taught].argmax(1)
        counts[taught] = self.weight * probability[taught].max(1)
        target = np.array(soft)
        target[taught] = sharpened(soft[taught], self.temperature)
        return Lesson(
            known, target, counts, Split(np.concatenate([split.train, taught]), split.valid), soft
        )

    def told(
        self,
        label: np.ndarray,
        rows: np.ndarray,
        num_labels: int,
        probability: np.ndarray | None = None,
    ) -> np.ndarray:
        """The labels of `rows` as one-hot vectors, and of others the probabilities where they are believed; else 0."""
        soft = np.zeros((len(label), num_labels), np.float32)
        if probability is not None:
            extra = believed(probability, np.setdiff1d(np.arange(len(label)), rows), self.threshold)
            soft[extra] = probability[extra]
        soft[rows, label[rows]] = 1
        return soft


@dataclass(frozen=True, eq=False)
class StageResult:
    """The chosen stage's result and task (for `predict`), and the results of all stages that were run."""

    result: Result
    task: Task
    stage: int
    stages: list[Result]


def fit_stages(
    build: Callable[[], nn.Module],
    make_task: Callable[[np.ndarray], Task],
    labels: np.ndarray,
    split: Split,
    num_labels: int,
    training: Training | None = None,
    reliable: Reliable | None = None,
    *,
    sample_weight: np.ndarray | None = None,
) -> StageResult:
    """Trains stage by stage; the stage with the best score on the rows to choose by is returned.

    Stage 0 sees the labels of the rows to train on, every later one also what `reliable` believes
    of the stage before. With `training.refit` the stages up to the chosen one are run again on all
    labelled rows, each for its own best number of epochs.

    `make_task` makes, of soft labels [N, num_labels] (zero rows where nothing is known), the task
    of a stage, for example with label hops of them; own labels must be left out of a row's own
    hops. Checkpoints get the number of the stage; all other arguments as in `fit`.
    """
    training = Training() if training is None else training
    reliable = Reliable() if reliable is None else reliable
    once = replace(training, refit=False)

    def chain(trainings: list[Training], split: Split, suffix: str) -> list[tuple[Result, Task]]:
        """One stage after the other, each taught by the one before."""
        stages: list[tuple[Result, Task]] = []
        probability: np.ndarray | None = None
        for number, stage in enumerate(trainings):
            if probability is None:
                lesson = Lesson(
                    labels,
                    None,
                    sample_weight,
                    split,
                    reliable.told(labels, split.train, num_labels),
                )
            else:
                lesson = reliable.lesson(labels, split, num_labels, probability, sample_weight)
            if stage.checkpoint is not None:
                name = f"{stage.checkpoint.name}.stage{number}{suffix}"
                stage = replace(stage, checkpoint=stage.checkpoint.with_name(name))
            if probability is not None and reliable.distill:
                teacher = Distillation(probability, np.empty(0, np.int64), reliable.distill)
                stage = replace(stage, terms=(*stage.terms, teacher))
            assert lesson.soft is not None
            task = make_task(lesson.soft)
            result = fit(
                build,
                task,
                lesson.label,
                lesson.split,
                stage,
                sample_weight=lesson.weight,
                target=lesson.target,
            )
            stages.append((result, task))
            probability = predict(result.model, task)
        return stages

    stages = chain([once] * reliable.stages, split, "")
    chosen = (
        int(np.nanargmax([result.valid_score for result, _ in stages]))
        if len(split.valid)
        else len(stages) - 1
    )
    result, task = stages[chosen]
    if training.refit and len(split.valid):
        lengths = [
            replace(once, epochs=each.best_epoch, patience=None) for each, _ in stages[: chosen + 1]
        ]
        final, task = chain(lengths, split.without_choice(), ".refit")[-1]
        result = replace(result, model=final.model, state=final.state)
    return StageResult(result, task, chosen, [each for each, _ in stages])


def believed(probability: np.ndarray, rows: np.ndarray, threshold: float) -> np.ndarray:
    """Those of `rows` whose most probable class has at least the threshold.

    Examples:
        >>> believed(np.array([[0.9, 0.1], [0.6, 0.4], [0.0, 1.0]]), np.array([0, 1]), 0.8)
        array([0])
    """
    return rows[probability[rows].max(1) >= threshold]


def sharpened(probability: np.ndarray, temperature: float) -> np.ndarray:
    """p^(1/temperature) [n, C], normalised; a small temperature leaves the most probable class alone.

    Examples:
        >>> sharpened(np.array([[0.5, 0.5], [0.8, 0.2]]), 0.5).round(3).tolist()
        [[0.5, 0.5], [0.941, 0.059]]
    """
    if temperature == 1 or not len(probability):
        return probability
    log = np.log(np.maximum(probability, 1e-12)) / temperature
    power = np.exp(log - log.max(1, keepdims=True))
    return (power / power.sum(1, keepdims=True)).astype(probability.dtype)
