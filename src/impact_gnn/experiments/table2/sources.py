"""Where the data of a study come from: archives under a root, and features given apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from impact_gnn import _files
from impact_gnn.checks import InputError, guarded
from impact_gnn.data.ogb import load_ogb
from impact_gnn.experiments.table2.study import Problem
from impact_gnn.graph import TemporalGraph


def needed(root: Path | None) -> Path:
    """The root, or a sentence that asks for it."""
    if root is None:
        raise InputError("this data set is read from files; name the folder that holds it with --root.")
    return root


def arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an archive."""

    def read() -> dict[str, np.ndarray]:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}

    return guarded(path, read)


def with_features(graph: TemporalGraph, features: Path | None) -> TemporalGraph:
    """The graph with the rows of a `.npy` file as features, if one is given."""
    return graph if features is None else graph.with_features(_files.open_array(features))


def official(name: str) -> Callable[[Path | None, int, Path | None], Problem]:
    """Loads a data set of OGB with its official split: what comes after the split's cutoff is scored."""

    def load(root: Path | None, seed: int, features: Path | None) -> Problem:
        found = load_ogb(name, needed(root))
        return Problem.of(with_features(found.graph, features), found.cutoff)

    return load
