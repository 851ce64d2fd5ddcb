"""A temporal stochastic block model with papers, authors, fields of study and institutions.

Papers have a label and a time; everybody else a hidden topic, one of the labels, and an author also
a middle of the career, one of the times. A pair is linked with probability base·γ^|Δ|, base being
`same` if label and topic agree and `different` elsewhere, chosen so that the expected number of
links and their share within a label are those asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.data import drawing
from impact_gnn.data.tsbm import TSBM
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

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"mag": MAG})
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


def hetero_tsbm(
    num_papers: int = 2000,
    num_authors: int = 3000,
    num_fields: int = 200,
    num_institutions: int = 50,
    num_times: int = 10,
    num_labels: int = 10,
    num_features: int = 16,
    *,
    citations: int = 14_000,
    writes: int = 9_000,
    topics: int = 12_000,
    affiliations: int = 3_000,
    decay: float = 0.6,
    activity: float = 0.5,
    homophily: float = 0.4,
    feature_std: float = 4.0,
    start: int = 0,
    seed: int = 0,
) -> TemporalGraph:
    """A heterogeneous graph of the block model with all its true labels; the target type is "paper".

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

    Examples:
        >>> g = hetero_tsbm(num_papers=500, num_authors=400, citations=3000, writes=1500, topics=2000, seed=1)
        >>> {kind: nodes.num_nodes for kind, nodes in g.nodes.items()}
        {'paper': 500, 'author': 400, 'field_of_study': 200, 'institution': 50}
    """
    sizes = {
        "num_papers": num_papers,
        "num_authors": num_authors,
        "num_fields": num_fields,
        "num_institutions": num_institutions,
        "num_times": num_times,
        "num_labels": num_labels,
        "num_features": num_features,
    }
    counts = {
        "citations": citations,
        "writes": writes,
        "topics": topics,
        "affiliations": affiliations,
    }
    for name, value in {**sizes, **counts, "seed": seed}.items():
        checks.at_least(name, value, 1 if name in sizes else 0)
    for name, share in (("decay", decay), ("activity", activity), ("homophily", homophily)):
        checks.share(name, share)
    chance, links, authors, *rest = np.random.SeedSequence(int(seed)).spawn(5)
    mean = np.random.default_rng(chance).standard_normal((num_labels, num_features))
    # The papers are those of a block model; its own edges are drawn by label pairs, ours by the two
    # bases.
    model = TSBM(
        mean,
        np.full(num_labels, feature_std),
        np.ones((num_labels,) * 2),
        np.full((num_labels,) * 2, float(decay)),
        num_papers,
        num_times,
        start=start,
    )
    papers = Side(*drawing.draw_nodes(model, np.random.default_rng(rest[0])))
    rng = np.random.default_rng(authors)
    people = Side(
        rng.integers(num_labels, size=num_authors), rng.integers(num_times, size=num_authors)
    )
    # without a time
    fields, places = (
        Side(rng.permutation(np.arange(number) % num_labels), np.zeros(number, np.int64))
        for number in (num_fields, num_institutions)
    )
    common = num_labels, num_times, homophily
    laws = {
        CITES: Links("citations", papers, papers, citations, decay, *common),
        WRITES: Links("writes", people, papers, writes, activity, *common),
        TOPIC: Links("topics", papers, fields, topics, 1.0, *common),
        AFFILIATED: Links("affiliations", people, places, affiliations, 1.0, *common),
    }
    edges = {}
    for (triple, law), each in zip(laws.items(), links.spawn(len(laws)), strict=True):
        drawn = law.draw(each)
        edges[triple] = (
            np.stack([drawn.max(0), drawn.min(0)]) if law.within else np.ascontiguousarray(drawn)
        )
    features = drawing.feature_chunks(model, papers.label, np.random.default_rng(rest[1]))
    x, y = drawing.joined(features, (num_papers, num_features)), papers.label.astype(np.int64)
    nodes: dict[str, dict[str, Any]] = {
        "paper": {"x": x, "y": y, "time": start + papers.period.astype(np.int64)},
        "author": {"num_nodes": num_authors},
        "field_of_study": {"num_nodes": num_fields},
        "institution": {"num_nodes": num_institutions},
    }
    return TemporalGraph.hetero(nodes=nodes, edges=edges, target="paper", num_labels=num_labels)


def scaled(sizes: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The arguments `sizes` with all numbers of nodes and edges multiplied by `factor`: the same degrees.

    Examples:
        >>> scaled(MAG, 0.01)["num_papers"]
        7364
    """
    if not (isinstance(factor, int | float) and 0 < factor < float("inf")):
        raise InputError(
            f"factor={factor!r} is not a positive number; give the size in units of the original."
        )
    size = factor * sum(value for name, value in sizes.items() if name in SIZES)
    checks.fits(f"a graph of {size:,.0f} nodes and edges", 8 * size, "give a smaller factor")
    return {
        name: max(1, round(value * factor)) if name in SIZES else value
        for name, value in sizes.items()
    }


@dataclass(frozen=True, eq=False)
class Side:
    """Nodes of one kind: for each its label and its period."""

    label: np.ndarray
    period: np.ndarray

    def sizes(self, labels: int, periods: int) -> np.ndarray:
        """Nodes per label and period [Y, T]."""
        key = self.label.astype(np.int64) * periods + self.period
        return np.bincount(key, minlength=labels * periods).reshape(labels, periods)


@dataclass(frozen=True, eq=False)
class Links:
    """The law of one relation; `rows` and `columns` are the same object within one kind, each unordered pair once.

    There are (labels · periods)² pairs of blocks, too many where labels are many. But only two
    bases occur. So all pairs of two *periods* are thrown with `different` and those of equal labels
    are put aside; the pairs of equal labels are then thrown label by label with `same`.
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
    def within(self) -> bool:
        return self.rows is self.columns

    def bases(self) -> tuple[float, float]:
        """(same, different): the probabilities of a link at the same period that give the expected numbers."""
        decay = self.decays()
        rows, columns = (
            side.sizes(self.num_labels, self.num_times) for side in (self.rows, self.columns)
        )
        equal = float(
            np.einsum("ys,st,yt->", rows, decay, columns, dtype=np.float64, optimize=True)
        )
        pairs = float(rows.sum(0) @ decay @ columns.sum(0))
        unequal = pairs - equal
        if self.within:  # no node with itself, every pair once
            equal, unequal = (equal - len(self.rows.label)) / 2, unequal / 2
        share = self.homophily if self.num_labels > 1 else 1.0
        bases = []
        for what, number, room in (
            ("of one label", share * self.expected, equal),
            ("of different labels", (1 - share) * self.expected, unequal),
        ):
            if number > room:
                why = f"{number:,.0f} links between nodes {what} are wanted where {max(room, 0):,.0f} are possible"
                mend = "give fewer links, more nodes or a decay nearer 1"
                raise InputError(f"{self.name}={self.expected:,} cannot be reached: {why}; {mend}.")
            bases.append(number / room if room > 0 else 0.0)
        return bases[0], bases[1]

    def decays(self) -> np.ndarray:
        """γ^|Δ| [T, T]; 0⁰ = 1, so that the same period is kept."""
        steps = np.arange(self.num_times)
        return float(self.decay) ** np.abs(np.subtract.outer(steps, steps))

    def draw(self, seed: np.random.SeedSequence) -> np.ndarray:
        """The links [2, E] as (row node, column node)."""
        same, different = self.bases()
        apart, alike = seed.spawn(2)
        others = self._blockwise(different, apart, by_label=False)
        others = others[:, self.rows.label[others[0]] != self.columns.label[others[1]]]
        return np.concatenate([others, self._blockwise(same, alike, by_label=True)], axis=1)

    def _blockwise(
        self, base: float, seed: np.random.SeedSequence, *, by_label: bool
    ) -> np.ndarray:
        """Pairs of any labels, a block being the nodes of a period; or of equal label, of a label and period."""
        times, groups = self.num_times, self.num_labels if by_label else 1
        members, sizes = [], []
        for side in [self.rows] if self.within else [self.rows, self.columns]:
            block = side.label.astype(np.int64) * times + side.period if by_label else side.period
            members.append(np.argsort(block, kind="stable"))
            sizes.append(np.bincount(block, minlength=groups * times))
        group, row, column = np.indices((groups, times, times)).reshape(3, -1)
        first, second = group * times + row, group * times + column
        if not self.within:
            second += groups * times  # blocks of the other side are numbered on
        chance = base * self.decays()[row, column]
        nodes, counts = np.concatenate(members), np.concatenate(sizes)
        pairs = drawing.BlockPairs(nodes, counts, first, second, chance, seed, ordered=False)
        return pairs.edges()[:, ::2]  # each pair is drawn in both directions, side by side
