"""The real graphs that table 1 looks at, where their files are at hand (`.npz`, one directory each)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from impact_gnn.checks import InputError
from impact_gnn.graph import TemporalGraph
from impact_gnn.propagation.hops import along, operator, propagate

HOPS = 2


@dataclass(frozen=True, eq=False)
class Problem:
    """Nodes with features, labels and times, a way to propagate over them, and where the late nodes begin."""

    x: np.ndarray
    y: np.ndarray
    time: np.ndarray
    cutoff: int
    hops: Callable[[np.ndarray], list[np.ndarray]]
    """Features [N, f] → hops 1 .. K."""

    @property
    def num_labels(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1


def of_graph(graph: TemporalGraph, cutoff: int) -> Problem:
    """The problem of a homogeneous graph: row means over neighbours in both directions."""
    both = graph.undirected()
    assert both.x is not None
    assert both.y is not None
    return Problem(both.x, both.y, both.time, cutoff, lambda x: propagate(both, x=x, hops=HOPS))


def names(root: Path) -> list[str]:
    """The data sets that are there."""
    return [name for name in LOADERS if (root / name / f"{name}.npz").is_file()]


def load(name: str, root: Path) -> Problem:
    """The data set called `name`."""
    return LOADERS[name](root / name)


def _citations(cutoff: int) -> Callable[[Path], Problem]:
    def load_one(folder: Path) -> Problem:
        with _opened(folder / f"{folder.name}.npz") as data:
            x = data["x"].astype(np.float32)
            more = folder / f"{folder.name}_svd64.npz"
            if more.is_file():
                with _opened(more) as second:
                    x = np.hstack([x, second["x_svd"].astype(np.float32)])
            made = TemporalGraph(x=x, y=data["y"], time=data["time"], edge_index=data["edge_index"])
        return of_graph(made, cutoff)

    return load_one


def _papers_of_authors(cutoff: int) -> Callable[[Path], Problem]:
    """Papers are neighbours through their authors, who have neither features nor time."""

    def load_one(folder: Path) -> Problem:
        with _opened(folder / f"{folder.name}.npz") as data:
            x, y = data["paper_x"].astype(np.float32), data["paper_y"]
            writes = data["author_writes_paper"]
            graph = TemporalGraph.hetero(
                nodes={
                    "paper": {"x": x, "y": y, "time": data["paper_time"]},
                    "author": {"num_nodes": int(data["num_authors"])},
                },
                edges={("author", "writes", "paper"): writes, ("paper", "by", "author"): writes[::-1]},
                target="paper",
            )
        path = [operator(graph, triple) for triple in (("paper", "by", "author"), ("author", "writes", "paper"))]
        assert graph.x is not None
        assert graph.y is not None
        return Problem(graph.x, graph.y, graph.time, cutoff, lambda values: along(path * HOPS, values)[1::2])

    return load_one


LOADERS: Mapping[str, Callable[[Path], Problem]] = MappingProxyType(
    {
        "aan": _citations(2011),
        "acl_hetero": _papers_of_authors(2022),
        "ogbn_arxiv": _citations(2019),
        "scotus": _citations(1990),
        "twitch": _citations(19),
    }
)
"""How each data set is read, with the first time whose nodes are late."""


def _opened(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); fetch it again.") from None
