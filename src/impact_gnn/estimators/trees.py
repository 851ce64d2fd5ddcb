"""Boosted trees over all hops side by side (LightGBM)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.engines.hop import position_blocks
from impact_gnn.estimators.head import Head, matrix
from impact_gnn.nn import Split, Task

MOST_ROUNDS, LEAST_ROUNDS = 200, 20
WORK = 6e9  # values looked at in one fit (rounds · classes · rows · columns), by which the rounds are bounded
ROWS = 100_000  # labelled rows that are learned from, and chosen by, at most
PATIENCE = 10


def rounds_of(rows: int, columns: float, num_labels: int) -> int:
    """Rounds of boosting at most."""
    return int(min(max(WORK / max(rows * columns * num_labels, 1), LEAST_ROUNDS), MOST_ROUNDS))


class TreesHead(Head):
    """Gradient boosting; the number of trees is chosen on the rows to choose by, for accuracy by log-loss.

    A tree per class and round is grown, so with many classes and rows there are fewer rounds, each
    learning faster. The model is kept as LightGBM's own text: no pickle.
    """

    booster: lightgbm.Booster | None = None

    def fit(
        self,
        task: Task,
        label: np.ndarray,
        split: Split,
        *,
        weight: np.ndarray | None = None,
        rounds: int | None = None,
        target: np.ndarray | None = None,
    ) -> None:
        if self.shape.num_labels < 2:
            raise InputError(
                "boosting needs two classes at least, there is one; leave out 'trees'."
            )
        train, chosen_by = self._some(split.train), self._some(split.valid)
        most = self.options.epochs or rounds_of(
            len(train), self.shape.columns, self.shape.num_labels
        )
        data = lightgbm.Dataset(
            matrix(task, train), label[train], weight=None if weight is None else weight[train]
        )
        options = self._options(most, len(train))
        if rounds is not None or not len(chosen_by):
            self.rounds = most if rounds is None else rounds
            self.booster = lightgbm.train(options, data, self.rounds)
            return
        valid = lightgbm.Dataset(matrix(task, chosen_by), label[chosen_by], reference=data)
        scoring = self.options.scoring
        stop = lightgbm.early_stopping(self.options.patience or PATIENCE, verbose=False)
        by = replace(scoring, metric="log-loss") if scoring.metric == "accuracy" else scoring

        def judged(said: np.ndarray, data: lightgbm.Dataset) -> tuple[str, float, bool]:
            return by.metric, by.finer(by.without_class_weights(said), label[chosen_by]), True

        known = by.metric == "log-loss" and not by.balanced  # to LightGBM itself
        how: dict[str, Any] = {} if known else {"feval": judged}
        options |= {} if known else {"metric": "None"}
        self.booster = lightgbm.train(
            options, data, most, valid_sets=[valid], callbacks=[stop], **how
        )
        self.rounds = max(self.booster.best_iteration, 1)
        self.valid_score = scoring.score(self.predict_proba(task, chosen_by), label[chosen_by])

    def probabilities(self, task: Task, rows: np.ndarray) -> np.ndarray:
        assert self.booster is not None
        out = np.empty((len(rows), self.shape.num_labels), np.float32)
        for part in position_blocks(len(rows)):  # hops may be in files, and larger than memory
            out[part] = self.booster.predict(matrix(task, rows[part]), num_threads=1)
        return out

    def arrays(self) -> dict[str, np.ndarray]:
        assert self.booster is not None
        text = self.booster.model_to_string(num_iteration=self.rounds)
        return {"trees": np.frombuffer(text.encode(), np.uint8)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.booster = lightgbm.Booster(model_str=arrays["trees"].tobytes().decode())

    def _some(self, rows: np.ndarray) -> np.ndarray:
        """All rows, or as many at random as are learned from at most."""
        if len(rows) <= ROWS:
            return rows
        return np.sort(np.random.default_rng(self.options.seed).choice(rows, ROWS, replace=False))

    def _options(self, rounds: int, num_rows: int) -> dict[str, Any]:
        return {
            "objective": "multiclass",
            "num_class": self.shape.num_labels,
            "verbosity": -1,
            "learning_rate": min(0.3, 0.1 * math.sqrt(MOST_ROUNDS / rounds)),
            "num_leaves": 15,
            "max_bin": 63,
            "min_data_in_leaf": min(20, max(2, num_rows // 50)),
            "lambda_l2": 1.0,
            "feature_fraction": min(1.0, max(0.2, 50 / self.shape.columns)),
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "seed": self.options.seed,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
        }
