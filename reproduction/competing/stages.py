"""Training in stages outside of a pipeline, as the recipes of Table 2 do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

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
    hops. All other arguments as in `fit`.
    """
    training = Training() if training is None else training
    reliable = Reliable() if reliable is None else reliable
    once = replace(training, refit=False)

    def chain(trainings: list[Training], split: Split) -> list[tuple[Result, Task]]:
        """One stage after the other; each is the teacher of the next."""
        stages: list[tuple[Result, Task]] = []
        probability: np.ndarray | None = None
        for stage in trainings:
            if probability is None:
                lesson = Lesson(
                    labels,
                    None,
                    sample_weight,
                    split,
                    reliable.soft_labels(labels, split.train, num_labels),
                )
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

    stages = chain([once] * reliable.stages, split)
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
        final, task = chain(lengths, split.without_validation())[-1]
        result = replace(result, model=final.model, state=final.state)
    return StageResult(result, task, chosen, [each for each, _ in stages])
