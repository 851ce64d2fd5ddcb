"""Training in stages outside of a pipeline, as the recipes of Table 2 do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import softmax
from torch import nn

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.nn import (
    Lesson,
    Reliable,
    Result,
    Split,
    Task,
    Training,
    fit,
    predict,
)
from reproduction.losses import Distillation


@dataclass(frozen=True)
class Rlu(Reliable):
    """Soft labels with sharper targets, and self-distillation.

    Targets of the loss are sharpened by p^(1/temperature); label hops read the probabilities as
    they are. With `distill` every training row also learns, with this weight, its probabilities of
    the stage before. GAMLP's RLU: threshold 0, weight .5, temperature .001.
    """

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
        lesson = super().lesson(label, split, num_labels, probability, weight)
        assert lesson.soft is not None
        target = np.array(lesson.soft)
        new = np.setdiff1d(lesson.split.train, split.train)
        target[new] = sharpened(target[new], self.temperature)
        return replace(lesson, target=target)


def sharpened(probability: np.ndarray, temperature: float) -> np.ndarray:
    """Return p^(1/temperature) [n, C], normalised; a small temperature leaves one class.

    Examples:
        >>> sharpened(np.array([[0.5, 0.5], [0.8, 0.2]]), 0.5).round(3).tolist()
        [[0.5, 0.5], [0.941, 0.059]]
    """
    if temperature == 1 or not len(probability):
        return probability
    # Through logarithms: p^(1/temperature) would underflow at small temperatures.
    log = np.log(np.maximum(probability, 1e-12)) / temperature
    return softmax(log, axis=1).astype(probability.dtype)


@dataclass(frozen=True, eq=False)
class StageResult:
    """The chosen stage's result and task (for `predict`), and the results of all stages."""

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
    reliable: Rlu | None = None,
    *,
    refit: bool = False,
    sample_weight: np.ndarray | None = None,
) -> StageResult:
    """Trains stage by stage; the stage with the best score on the rows to choose by is returned.

    Stage 0 sees the labels of the rows to train on, every later one also what `reliable` believes
    of the stage before. With `refit` the stages up to the chosen one are run again on all
    labelled rows, each for its own best number of epochs.

    `make_task` makes, of soft labels [N, num_labels] (zero rows where nothing is known), the task
    of a stage, for example with label hops of them; own labels must be left out of a row's own
    hops. All other arguments as in `fit`.
    """
    training = Training() if training is None else training
    reliable = Rlu() if reliable is None else reliable

    def chain(trainings: list[Training], split: Split) -> list[tuple[Result, Task]]:
        """One stage after the other; each is the teacher of the next."""
        stages: list[tuple[Result, Task]] = []
        probability: np.ndarray | None = None
        for stage in trainings:
            if probability is None:
                soft = np.zeros((len(labels), num_labels), np.float32)
                soft[split.train, labels[split.train]] = 1
                lesson = Lesson(labels, None, sample_weight, split, soft)
            else:
                lesson = reliable.lesson(labels, split, num_labels, probability, sample_weight)
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

    stages = chain([training] * reliable.stages, split)
    chosen = (
        int(np.nanargmax([result.valid_score for result, _ in stages]))
        if len(split.valid)
        else len(stages) - 1
    )
    result, task = stages[chosen]
    if refit and len(split.valid):
        lengths = [
            replace(training, epochs=each.best_epoch, patience=None)
            for each, _ in stages[: chosen + 1]
        ]
        final, task = chain(lengths, Split(split.all, np.empty(0, np.int64)))[-1]
        result = replace(result, model=final.model, state=final.state)
    return StageResult(result, task, chosen, [each for each, _ in stages])
