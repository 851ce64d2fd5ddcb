"""Small graphs for the tests of the graph, its validation and its storage."""

import numpy as np

from impact_gnn.engines import Memory
from impact_gnn.graph import TemporalGraph

WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


def parts(**changes):
    """A small homogeneous graph: six nodes at times 1, 1, 2, 2, 4, 4."""
    defaults = {
        "x": np.arange(12.0).reshape(6, 2),
        "y": np.array([0, 1, 2, 0, 1, 1]),
        "time": np.array([1, 1, 2, 2, 4, 4]),
        "edge_index": np.array([[0, 1, 2, 4, 5, 5], [1, 2, 0, 3, 4, 5]]),
    }
    return {**defaults, **changes}


def graph(**changes):
    return TemporalGraph(**parts(**changes))


def hetero(nodes=None, edges=None, **changes):
    default_nodes = {
        "paper": {"x": np.ones((3, 2)), "y": [0, 1, -1], "time": [1, 2, 3]},
        "author": {"num_nodes": 2, "time": [1, 9]},
        "venue": {"num_nodes": 1},
    }
    default_edges = {
        WRITES: [[0, 1, 1], [0, 1, 2]],
        ("paper", "in", "venue"): [[0, 1, 2], [0, 0, 0]],
    }
    options = {"target": "paper", **changes}
    return TemporalGraph.hetero(
        nodes=default_nodes if nodes is None else nodes,
        edges=default_edges if edges is None else edges,
        **options,
    )


class Counting(Memory):
    """An engine in memory that counts how often hops were requested."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "calls", [])

    def hops(self, operators, x, **options):
        self.calls.append(len(operators))
        return super().hops(operators, x, **options)
