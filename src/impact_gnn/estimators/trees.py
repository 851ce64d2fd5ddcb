"""Boosted trees over all hops side by side (LightGBM)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import lightgbm
import numpy as np
from numpy import ndarray
from scipy.special import softmax

from impact_gnn.checks import InputError
from impact_gnn.engines.hop import position_blocks
from impact_gnn.estimators.head import Head, matrix
from impact_gnn.estimators.tree_scores import MAX_LEAVES, TreeScores
from impact_gnn.nn import Lesson, Task
from impact_gnn.statistics import sample_rows

MOST_ROUNDS = 400
LEAST_ROUNDS = 20
# Values read in one fit (rounds · classes · rows · columns): it limits the rounds. On past folds of
# eleven data sets, 200 rounds and 6e9 values were .9 points less accurate than 400 and 2.4e10; as
# members of ensembles the gain is smaller, and 2e10 took 30 % more time on large graphs.
WORK = 1.2e10
LEARNING_RATE = 0.07  # of a fit with the most rounds
ROWS = 100_000  # most rows for training, and for validation
PATIENCE = 5
METRIC_PATIENCE = 15  # for metrics that count hits: they are noisy from round to round


def rounds_of(rows: int, columns: float, num_labels: int) -> int:
    """Return the maximum number of boosting rounds."""
    per_round = max(rows * columns * num_labels, 1)
    return int(np.clip(WORK / per_round, LEAST_ROUNDS, MOST_ROUNDS))


class TreesHead(Head):
    """Gradient boosting with early stopping on the validation rows, for accuracy by log-loss.

    A round grows a tree per class, so with many classes and rows there are fewer rounds with a
    larger learning rate. The model is saved as LightGBM's own text: no pickle.
    """

    booster: lightgbm.Booster | None = None

    def fit(self, task: Task, lesson: Lesson, rounds: int | None = None) -> None:
        if self.shape.num_labels < 2:
            raise InputError(
                "boosted trees need at least two classes, but there is one; drop 'trees'."
            )
        label = lesson.label
        train = sample_rows(lesson.split.train, ROWS, self.options.seed)
        valid = sample_rows(lesson.split.valid, ROWS, self.options.seed)
        max_rounds = self.options.epochs or rounds_of(
            len(train), self.shape.columns, self.shape.num_labels
        )
        weight = None if lesson.weight is None else lesson.weight[train]
        data = lightgbm.Dataset(matrix(task, train), label[train], weight=weight)
        parameters = self._parameters(max_rounds, len(train))
        if rounds is not None or not len(valid):
            self.rounds = rounds or max_rounds
            self.booster = lightgbm.train(parameters, data, self.rounds)
            return
        stopping = self.options.scoring
        if stopping.metric == "accuracy":
            stopping = replace(stopping, metric="log-loss")

        def evaluate(raw: ndarray, data: lightgbm.Dataset) -> tuple[str, float, bool]:
            probabilities = stopping.without_class_weights(raw)
            return stopping.metric, stopping.finer(probabilities, label[valid]), True

        metric = None
        patience = PATIENCE
        if stopping.metric != "log-loss" or stopping.balanced:  # not a metric of LightGBM
            metric = evaluate
            patience = METRIC_PATIENCE
            parameters["metric"] = "None"
        valid_data = lightgbm.Dataset(matrix(task, valid), label[valid], reference=data)
        patience = self.options.patience or patience
        self.booster = lightgbm.train(
            parameters,
            data,
            max_rounds,
            valid_sets=[valid_data],
            feval=metric,
            callbacks=[lightgbm.early_stopping(patience, verbose=False)],
        )
        self.rounds = max(self.booster.best_iteration, 1)
        self.valid_score = self.validation_score(task, lesson, valid)

    def probabilities(self, task: Task, rows: ndarray) -> ndarray:
        result = np.empty((len(rows), self.shape.num_labels), np.float32)
        for block in position_blocks(len(rows)):  # hops may be in files, and larger than memory
            scores = self.tree_scores(matrix(task, rows[block]), self.shape.num_labels)
            result[block] = softmax(scores, axis=1)
        return result

    def arrays(self) -> dict[str, ndarray]:
        return {"trees": np.frombuffer(self._model_text().encode(), np.uint8)}

    def restore(self, arrays: Mapping[str, ndarray]) -> None:
        text = arrays["trees"].tobytes().decode()
        self.booster = lightgbm.Booster(model_str=text)

    @cached_property
    def tree_scores(self) -> TreeScores:
        """The trees of the chosen rounds, for predictions."""
        return TreeScores.of(self._model_text())

    def _model_text(self) -> str:
        assert self.booster is not None
        return self.booster.model_to_string(num_iteration=self.rounds)

    def _parameters(self, rounds: int, num_rows: int) -> dict[str, Any]:
        return {
            "objective": "multiclass",
            "num_class": self.shape.num_labels,
            "verbosity": -1,
            "learning_rate": min(0.3, LEARNING_RATE * math.sqrt(MOST_ROUNDS / rounds)),
            "num_leaves": MAX_LEAVES,  # larger trees fit the past better, and later periods worse
            "max_bin": 63,
            "min_data_in_leaf": min(20, max(2, num_rows // 50)),
            "lambda_l2": 1.0,
            "feature_fraction": min(1.0, max(0.2, 50 / self.shape.columns)),
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "seed": self.options.seed,
            "deterministic": True,
            "force_col_wise": True,  # twice as fast as by rows from 50,000 rows on
            "num_threads": 1,
        }
