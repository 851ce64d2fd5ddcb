"""RLU, reliable label utilisation: confident predictions become labels of the next stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.nn.tasks import Split, Task
from impact_gnn.nn.training import Result, Training, fit, predict


@dataclass(frozen=True)
class Reliable:
    """Which predictions are believed (from the probability `threshold` on), and in how many trainings.

    A believed row counts `weight` times its probability in the loss, a labelled row 1.
    """

    stages: int = 3
    threshold: float = 0.85
    weight: float = 0.5

    def __post_init__(self) -> None:
        if checks.whole_number("stages", self.stages) < 1:
            raise InputError(f"stages={self.stages} must be at least 1.")
        if not 0 < self.threshold <= 1:
            raise InputError(f"threshold={self.threshold} must be above 0 and at most 1.")
        if not self.weight >= 0:
            raise InputError(f"weight={self.weight} must be at least 0.")


@dataclass(frozen=True, eq=False)
class StageResult:
    """The chosen stage's result and task (for `predict`), and the results of all stages that were run."""

    result: Result
    task: Task
    stage: int
    stages: list[Result]


def fit_stages(
    build: Callable[[], nn.Module], make_task: Callable[[np.ndarray], Task], labels: np.ndarray, split: Split,
    num_labels: int, training: Training | None = None, reliable: Reliable | None = None, *,
    sample_weight: np.ndarray | None = None,
) -> StageResult:  # fmt: skip
    """Trains stage by stage; the stage with the best score on the rows to choose by is returned.

    Stage 0 sees the labels of the rows to train on. Every later stage also sees, for other rows whose most
    probable class was believed by the stage before, that class: as training label (with the weight of `reliable`
    and the probability) and, as probabilities, in what `make_task` makes label hops of. True labels of rows that
    are not trained on are never read. With `training.refit` the stages up to the chosen one are run again on all
    labelled rows, each for its own best number of epochs.

    `make_task` makes, of soft labels [N, num_labels] (zero rows where nothing is known), the task of a stage, for
    example with label hops of them; own labels must be left out of a row's own hops. Checkpoints get the number of
    the stage; all other arguments as in `fit`.
    """
    training = Training() if training is None else training
    reliable = Reliable() if reliable is None else reliable
    once, num_rows = replace(training, refit=False), len(labels)
    given = np.ones(num_rows, np.float32) if sample_weight is None else np.asarray(sample_weight, np.float32)

    def chain(trainings: list[Training], split: Split, suffix: str) -> list[tuple[Result, Task]]:
        """One stage after the other, each taught by the one before."""
        others = np.setdiff1d(np.arange(num_rows), split.train)
        extra, stages = np.empty(0, np.int64), []  # type: np.ndarray, list[tuple[Result, Task]]
        probability = np.zeros((num_rows, num_labels), np.float32)
        for number, stage in enumerate(trainings):
            soft = np.zeros((num_rows, num_labels), np.float32)
            soft[split.train, labels[split.train]] = 1
            soft[extra] = probability[extra]
            # A believed row is trained on with its predicted class; rows to choose by keep theirs for choosing only.
            taught = np.setdiff1d(extra, split.valid)
            known, weight = np.array(labels), given.copy()
            known[taught] = probability[taught].argmax(1)
            weight[taught] = reliable.weight * probability[taught].max(1)
            if stage.checkpoint is not None:
                name = f"{stage.checkpoint.name}.stage{number}{suffix}"
                stage = replace(stage, checkpoint=stage.checkpoint.with_name(name))
            rows, task = Split(np.concatenate([split.train, taught]), split.valid), make_task(soft)
            stages.append((fit(build, task, known, rows, stage, sample_weight=weight), task))
            probability = predict(stages[-1][0].model, task)
            extra = believed(probability, others, reliable.threshold)
        return stages

    stages = chain([once] * reliable.stages, split, "")
    chosen = int(np.nanargmax([result.valid_score for result, _ in stages])) if len(split.valid) else len(stages) - 1
    result, task = stages[chosen]
    if training.refit and len(split.valid):
        lengths = [replace(once, epochs=each.best_epoch, patience=None) for each, _ in stages[: chosen + 1]]
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
