"""A temporal stochastic block model with papers, authors, fields of study and institutions.

Papers have a label and a time; everybody else a hidden topic, one of the labels, and an author also
a middle of the career, one of the times. A pair is linked with probability base·γ^|Δ|, base being
`same` if label and topic agree and `different` elsewhere, chosen so that the expected number of
links and their share within a label are as requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.data import drawing
from impact_gnn.data.tsbm import TSBM, check_start
from impact_gnn.graph import TemporalGraph

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
TOPIC = ("paper", "has_topic", "field_of_study")
AFFILIATED = ("author", "affiliated_with", "institution")

MAG: Mapping[str, Any] = MappingProxyType(
    {
        "num_papers": 736_389,
        "num_authors": 1_134_649,
        "num_fields": 59_965,
        "num_institutions": 8_740,
        "num_times": 10,
        "num_labels": 349,
        "num_features": 128,
        "start": 2010,
        "citations": 5_416_271,
        "writes": 7_145_660,
        "topics": 7_505_078,
        "affiliations": 1_043_998,
    }
)
"""The sizes of ogbn-mag: `hetero_tsbm(**MAG, seed=0)`."""

SIZES = (
    "num_papers",
    "num_authors",
    "num_fields",
    "num_institutions",
    "citations",
    "writes",
    "topics",
    "affiliations",
)


@dataclass(frozen=True)
class HeteroTSBM:
    """A block model with several types; its graphs have all labels, and classify "paper".

    Papers are numbered in order of time and cite older ones, or those of the same time with a
    smaller number. Edges run as in ogbn-mag, one way; use `graph.undirected()` for the ways back.

    - `citations` (paper → older paper), `writes` (author → paper), `topics` (paper → field of
      study) and `affiliations` (author → institution) are expected numbers of edges.
    - `decay` is γ of citations, per step in time between the papers; `activity` that of writing,
      per step from the middle of an author's career. Other links do not depend on time.
    - `homophily` is the expected share of edges of every relation within a label; 1 / num_labels is
      no preference.
    - Papers are in (label, time) blocks of equal size, with features x = μ(y) + k·Z, k being
      `feature_std`; the other types have none. Times run from `start`.
    """

    num_papers: int = 2000
    num_authors: int = 3000
    num_fields: int = 200
    num_institutions: int = 50
    num_times: int = 10
    num_labels: int = 10
    num_features: int = 16
    citations: int = 14_000
    writes: int = 9_000
    topics: int = 12_000
    affiliations: int = 3_000
    decay: float = 0.6
    activity: float = 0.5
    homophily: float = 0.4
    feature_std: float = 4.0
    start: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in SIZES:
            checks.at_least(name, getattr(self, name), int(name.startswith("num_")))
        for name in ("num_times", "num_labels", "num_features"):
            checks.at_least(name, getattr(self, name), 1)
        checks.at_least("seed", self.seed, 0)
        for name in ("decay", "activity", "homophily"):
            checks.share(name, getattr(self, name))
        check_start(self.start)
        if not (checks.is_number(self.feature_std) and self.feature_std >= 0):
            raise InputError(f"feature_std={self.feature_std!r} is not valid; use at least 0.")

    def sample(self) -> TemporalGraph:
        """Draw the graph."""
        means, links, others, nodes, noise = np.random.SeedSequence(int(self.seed)).spawn(5)
        mean = np.random.default_rng(means).standard_normal((self.num_labels, self.num_features))
        # The papers are those of a block model; its edges are not drawn.
        unused = np.ones((self.num_labels, self.num_labels))
        std = np.full(self.num_labels, float(self.feature_std))
        model = TSBM(mean, std, unused, unused, self.num_papers, num_times=self.num_times)
        paper = Side(*drawing.draw_nodes(model, np.random.default_rng(nodes)))
        rng = np.random.default_rng(others)
        author = Side(
            rng.integers(self.num_labels, size=self.num_authors),
            rng.integers(self.num_times, size=self.num_authors),
        )
        field = Side(rng.permutation(np.arange(self.num_fields) % self.num_labels))
        institution = Side(rng.permutation(np.arange(self.num_institutions) % self.num_labels))
        law = partial(
            Links, num_labels=self.num_labels, num_times=self.num_times, homophily=self.homophily
        )
        laws = {
            CITES: law("citations", paper, paper, self.citations, self.decay),
            WRITES: law("writes", author, paper, self.writes, self.activity),
            TOPIC: law("topics", paper, field, self.topics, 1.0),
            AFFILIATED: law("affiliations", author, institution, self.affiliations, 1.0),
        }
        seeds = links.spawn(len(laws))
        edges = {triple: laws[triple].draw(own) for triple, own in zip(laws, seeds, strict=True)}
        # papers cite older ones, which have smaller numbers
        edges[CITES] = np.stack([edges[CITES].max(0), edges[CITES].min(0)])
        features = drawing.draw_features(model, paper.label, np.random.default_rng(noise))
        return TemporalGraph.hetero(
            nodes={
                "paper": {
                    "x": features,
                    "y": paper.label.astype(np.int64),
                    "time": self.start + np.asarray(paper.period, np.int64),
                },
                "author": {"num_nodes": self.num_authors},
                "field_of_study": {"num_nodes": self.num_fields},
                "institution": {"num_nodes": self.num_institutions},
            },
            edges=edges,
            target="paper",
            num_labels=self.num_labels,
        )


def hetero_tsbm(*sizes: int, **options: Any) -> TemporalGraph:
    """Draw a graph of `HeteroTSBM`, whose fields are the arguments.

    Examples:
        >>> g = hetero_tsbm(num_papers=500, num_authors=400, citations=3000, topics=2000, seed=1)
        >>> {kind: nodes.num_nodes for kind, nodes in g.nodes.items()}
        {'paper': 500, 'author': 400, 'field_of_study': 200, 'institution': 50}
    """
    return HeteroTSBM(*sizes, **options).sample()


def scaled(sizes: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Multiply all numbers of nodes and edges by `factor`, so that degrees stay the same.

    Examples:
        >>> scaled(MAG, 0.01)["num_papers"]
        7364
    """
    if not (isinstance(factor, int | float) and 0 < factor < float("inf")):
        raise InputError(
            f"factor={factor!r} is not a positive number; pass the size in units of the original."
        )
    size = factor * sum(value for name, value in sizes.items() if name in SIZES)
    checks.fits(f"a graph of {size:,.0f} nodes and edges", 8 * size, "use a smaller factor")
    return {
        name: max(1, round(value * factor)) if name in SIZES else value
        for name, value in sizes.items()
    }


@dataclass(frozen=True, eq=False)
class Side:
    """The label and the period of every node of one type; period 0 for types without time."""

    label: np.ndarray
    period: np.ndarray | int = 0

    def sizes(self, labels: int, periods: int) -> np.ndarray:
        """Count nodes per label and period [Y, T]."""
        out = np.zeros((labels, periods), np.int64)
        np.add.at(out, (self.label, np.asarray(self.period)), 1)
        return out


@dataclass(frozen=True, eq=False)
class Links:
    """The law of one relation; within one type, `rows` and `columns` are the same object.

    There are (labels · periods)² pairs of blocks, too many where labels are many. But only two
    bases occur. So all pairs of two *periods* are drawn with `different`, and those of equal labels
    are dropped; the pairs of equal labels are then drawn label by label with `same`.
    """

    name: str
    rows: Side
    columns: Side
    expected: int
    decay: float
    num_labels: int
    num_times: int
    homophily: float

    @property
    def is_within(self) -> bool:
        return self.rows is self.columns

    def bases(self) -> tuple[float, float]:
        """Return (same, different): the probabilities of a link at the same period."""
        decays = self._decays()
        rows = self.rows.sizes(self.num_labels, self.num_times)
        columns = self.columns.sizes(self.num_labels, self.num_times)
        # pairs of nodes, each counted by its decay
        same = float((rows @ decays * columns).sum())
        different = float(rows.sum(0) @ decays @ columns.sum(0)) - same
        if self.is_within:  # no node with itself, every pair once
            same = (same - len(self.rows.label)) / 2
            different /= 2
        share = self.homophily if self.num_labels > 1 else 1.0
        return (
            self._base("of one label", share * self.expected, same),
            self._base("of different labels", (1 - share) * self.expected, different),
        )

    def _base(self, which: str, wanted: float, possible: float) -> float:
        if wanted > possible:
            raise InputError(
                f"{self.name}={self.expected:,} needs {wanted:,.0f} links between "
                f"nodes {which}, but {max(possible, 0):,.0f} are possible; "
                "use fewer links, more nodes or a decay nearer 1."
            )
        return wanted / possible if possible > 0 else 0.0

    def _decays(self) -> np.ndarray:
        """Return γ^|Δ| [T, T]; 0⁰ = 1, so links at the same period remain."""
        steps = np.arange(self.num_times)
        return float(self.decay) ** np.abs(np.subtract.outer(steps, steps))

    def draw(self, seed: np.random.SeedSequence) -> np.ndarray:
        """Draw the links [2, E] as (row node, column node)."""
        same, different = self.bases()
        different_seed, same_seed = seed.spawn(2)
        others = self._draw_groups(different, different_seed, 1)
        others = others[:, self.rows.label[others[0]] != self.columns.label[others[1]]]
        equal = self._draw_groups(same, same_seed, self.num_labels)
        return np.concatenate([others, equal], axis=1)

    def _draw_groups(
        self, base: float, seed: np.random.SeedSequence, num_groups: int
    ) -> np.ndarray:
        """Draw pairs of one group, which are all nodes (1) or those of a label; [2, ·]."""
        times = self.num_times
        num_blocks = num_groups * times  # a block is a group in a period
        sides = [self.rows] if self.is_within else [self.rows, self.columns]
        members = []
        sizes = []
        for side in sides:
            own_group = side.label.astype(np.int64) if num_groups > 1 else 0
            block = np.broadcast_to(own_group * times + side.period, side.label.shape)
            members.append(np.argsort(block, kind="stable"))
            sizes.append(np.bincount(block, minlength=num_blocks))
        group, row, column = np.indices((num_groups, times, times)).reshape(3, -1)
        pairs = drawing.BlockPairs(
            members=np.concatenate(members),
            sizes=np.concatenate(sizes),
            row=group * times + row,
            # the blocks of the other side follow those of this one
            column=group * times + column + num_blocks * (len(sides) - 1),
            probability=base * self._decays()[row, column],
            seed=seed,
            ordered=False,
        )
        return pairs.edges()[:, ::2]  # each pair is drawn in both directions, side by side
