"""Scores of boosted trees for many rows: some thirty times as fast as LightGBM's own prediction.

A row is not walked down a tree. It starts with all leaves, and every split whose right side it
takes removes the leaves on the left. The first leaf that remains is the one that it reaches
(QuickScorer). A set of at most eight leaves is a byte, so that one split of many rows is a few
vector instructions. Scores are those of LightGBM to the last bit.
"""

# mypy: disallow-untyped-defs=False, check-untyped-defs=False
from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy import ndarray

MAX_LEAVES = 8  # bits of a byte
ALL_LEAVES = 255
ROWS_AT_ONCE = 512  # their columns stay in the cache of a core
# The first leaf of every set.
FIRST_LEAF = np.array([(leaves & -leaves).bit_length() - 1 for leaves in range(256)], np.int8)


@dataclass(frozen=True, eq=False)
class TreeScores:
    """The trees of a booster as arrays, one row per tree, in the order of training."""

    num_splits: ndarray  # [T]
    feature: ndarray  # [T, 7]
    threshold: ndarray  # [T, 7]; rows above it go right
    right_only: ndarray  # [T, 7]; the leaves that remain on the right
    value: ndarray  # [T, 8]; scores of the leaves, from left to right

    @classmethod
    def of(cls, model: str) -> TreeScores:
        """Read the trees of a model in LightGBM's text form."""
        trees = model.split("\nTree=")[1:]
        shape = len(trees), MAX_LEAVES - 1
        scores = cls(
            num_splits=np.zeros(len(trees), np.int32),
            feature=np.zeros(shape, np.int32),
            threshold=np.zeros(shape, np.float32),
            right_only=np.zeros(shape, np.uint8),
            value=np.zeros((len(trees), MAX_LEAVES)),
        )
        for tree, text in enumerate(trees):
            scores._read_tree(tree, text)
        return scores

    def _read_tree(self, tree: int, text: str) -> None:
        """Fill the rows of one tree from LightGBM's text."""
        threshold = _numbers(text, "threshold")
        num_splits = len(threshold)
        self.num_splits[tree] = num_splits
        self.feature[tree, :num_splits] = _numbers(text, "split_feature")
        # Rows are float32: the largest such number that is not above the threshold splits alike.
        rounded = threshold.astype(np.float32)
        below = np.nextafter(rounded, np.float32(-np.inf))
        self.threshold[tree, :num_splits] = np.where(rounded > threshold, below, rounded)
        children = np.stack([_numbers(text, "left_child"), _numbers(text, "right_child")], 1)
        leaves: list[int] = []  # from left to right

        def leaves_below(child: int) -> int:
            """Return the leaves below a split, or one leaf, as bits; splits come from zero on."""
            if child < 0:
                leaves.append(~child)
                return 1 << (len(leaves) - 1)
            left, right = children[child].astype(int)
            on_the_left = leaves_below(left)
            self.right_only[tree, child] = ALL_LEAVES & ~on_the_left
            return on_the_left | leaves_below(right)

        if num_splits:
            leaves_below(0)
        # A tree without a split is one leaf.
        self.value[tree, : num_splits + 1] = _numbers(text, "leaf_value")[leaves or [0]]

    def __call__(self, x: ndarray, num_classes: int) -> ndarray:
        """Return the scores [n, classes] of rows [n, columns]; trees of the classes alternate."""
        scores = np.zeros((num_classes, len(x)))
        for begin in range(0, len(x), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            columns = np.ascontiguousarray(x[rows].T, np.float32)
            splits = (self.num_splits, self.feature, self.threshold, self.right_only)
            _add_scores(columns, splits, self.value, FIRST_LEAF, scores[:, rows])
        return scores.T


def _numbers(text: str, key: str) -> ndarray:
    """Return the numbers of a line of LightGBM's text, none if the tree has no such line."""
    lines = re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)
    return np.array(" ".join(lines).split(), np.float64)


@njit(nogil=True, cache=True)
def _add_scores(columns, splits, value, first_leaf, scores):
    """Add the scores of all trees for a block of rows; `columns` is [columns, n]."""
    num_splits, feature, threshold, right_only = splits
    num_rows = columns.shape[1]
    remaining = np.empty(num_rows, np.uint8)
    for tree in range(len(num_splits)):
        remaining[:] = 255
        for split in range(num_splits[tree]):
            column = columns[feature[tree, split]]
            limit = threshold[tree, split]
            right_mask = right_only[tree, split]
            for i in range(num_rows):
                if column[i] > limit:
                    remaining[i] &= right_mask
        total = scores[tree % len(scores)]
        for i in range(num_rows):
            total[i] += value[tree, first_leaf[remaining[i]]]
