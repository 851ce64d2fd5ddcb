"""A temporal stochastic block model with papers, authors, fields of study and institutions.

Papers have a label and a time, independent of each other, and features x = μ(y) + k·Z that do not depend on time.
Everybody else has a topic, one of the labels, and an author also a middle of the career, one of the times;
both are hidden. A pair is linked with probability

    base · γ^|Δ|,   base = same where label and topic agree, different elsewhere,

with Δ the distance in time of two papers (citations), or of a paper and the middle of its author's career (γ
is then `activity`; two papers of one author are therefore near in time). Links to fields and institutions
do not depend on time. `same` and `different` are chosen so that the expected number of links, and the
share of them within a label (`homophily`), are those asked for.

Papers are numbered in order of time and cite older ones, or those of the same time with a smaller number. Edges
run as in ogbn-mag, one way; use `graph.undirected()` for the ways back.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.data._draw import draw_nodes
from impact_gnn.data._links import Links, Side
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
        "citations": 5_416_271,
        "writes": 7_145_660,
        "topics": 7_505_078,
        "affiliations": 1_043_998,
        "start": 2010,
    }
)
"""The sizes of ogbn-mag: `hetero_tsbm(**MAG, seed=0)`."""

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"mag": MAG})
"""Sizes by name."""

SIZES = ("num_papers", "num_authors", "num_fields", "num_institutions", "citations", "writes", "topics", "affiliations")
"""Arguments that `scaled` multiplies."""

ROWS = 1 << 15
"""Papers whose features are drawn in one go."""


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

    Takes time proportional to the edges. The same seed gives the same graph.

    Args:
        num_papers: Papers, in (label, time) blocks of equal size.
        num_authors: Authors.
        num_fields: Fields of study.
        num_institutions: Institutions.
        num_times: Number of consecutive times.
        num_labels: Number of labels, which are also the topics.
        num_features: Features of a paper; the other types have none.
        citations: Expected edges paper → older paper.
        writes: Expected edges author → paper.
        topics: Expected edges paper → field of study.
        affiliations: Expected edges author → institution.
        decay: γ of citations, per step in time.
        activity: γ of writing, per step from the middle of an author's career.
        homophily: Expected share of edges of every relation within a label; 1 / num_labels is no preference.
        feature_std: Noise k of the features.
        start: The first time.
        seed: Seed of everything.

    Example:
        >>> g = hetero_tsbm(num_papers=500, num_authors=400, citations=3000, writes=1500, topics=2000, seed=1)
        >>> {kind: nodes.num_nodes for kind, nodes in g.nodes.items()}
        {'paper': 500, 'author': 400, 'field_of_study': 200, 'institution': 50}
        >>> g.num_labels, [int(t) for t in g.times][-1], g.x.shape
        (10, 9, (500, 16))
    """
    sizes = {
        "num_papers": num_papers, "num_authors": num_authors, "num_fields": num_fields,
        "num_institutions": num_institutions, "num_times": num_times, "num_labels": num_labels,
        "num_features": num_features,
    }  # fmt: skip
    counts = {"citations": citations, "writes": writes, "topics": topics, "affiliations": affiliations}
    for name, value in {**sizes, **counts, "seed": seed}.items():
        _at_least(name, value, 1 if name in sizes else 0)
    for name, share in (("decay", decay), ("activity", activity), ("homophily", homophily)):
        _from_zero_to_one(name, share)
    chance, links, authors, *rest = np.random.SeedSequence(int(seed)).spawn(5)
    mean = np.random.default_rng(chance).standard_normal((num_labels, num_features))
    # The papers are those of a block model; its own edges are drawn by label pairs, ours by the two bases.
    model = TSBM(
        mean, np.full(num_labels, feature_std), np.ones((num_labels,) * 2), np.full((num_labels,) * 2, float(decay)),
        num_papers, num_times, start=start,
    )  # fmt: skip
    papers = Side(*draw_nodes(model, np.random.default_rng(rest[0])))
    people, fields, places = _others(authors, num_authors, num_fields, num_institutions, num_labels, num_times)
    laws = {
        CITES: Links("citations", papers, papers, num_labels, num_times, citations, homophily, decay),
        WRITES: Links("writes", people, papers, num_labels, num_times, writes, homophily, activity),
        TOPIC: Links("topics", papers, fields, num_labels, num_times, topics, homophily, 1.0),
        AFFILIATED: Links("affiliations", people, places, num_labels, num_times, affiliations, homophily, 1.0),
    }
    edges = {}
    for (triple, law), each in zip(laws.items(), links.spawn(len(laws)), strict=True):
        found = law.draw(each)
        edges[triple] = np.stack([found.max(0), found.min(0)]) if law.within else np.ascontiguousarray(found)
    return TemporalGraph.hetero(
        nodes={
            "paper": {
                "x": _features(model, papers.label, np.random.default_rng(rest[1])),
                "y": papers.label.astype(np.int64),
                "time": start + papers.period.astype(np.int64),
            },
            "author": {"num_nodes": num_authors},
            "field_of_study": {"num_nodes": num_fields},
            "institution": {"num_nodes": num_institutions},
        },
        edges=edges,
        target="paper",
        num_labels=num_labels,
    )


def scaled(sizes: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The arguments `sizes` with all numbers of nodes and edges multiplied by `factor`: the same degrees.

    Labels stay as many, so that below a size there are too few nodes of one label for the edges, which is refused.

    Example:
        >>> scaled(MAG, 0.01)["num_papers"]
        7364
    """
    if not (isinstance(factor, int | float) and 0 < factor < float("inf")):
        raise InputError(f"factor={factor!r} is not a positive number; give the size in units of the original.")
    return {name: max(1, round(value * factor)) if name in SIZES else value for name, value in sizes.items()}


def _others(
    seed: np.random.SeedSequence, authors: int, fields: int, institutions: int, labels: int, times: int
) -> tuple[Side, Side, Side]:
    """Topics of authors, fields and institutions, and the middles of careers; fields and institutions have no time."""
    rng = np.random.default_rng(seed)
    people = Side(rng.integers(labels, size=authors), rng.integers(times, size=authors))
    rest = [Side(rng.permutation(np.arange(n) % labels), np.zeros(n, np.int64)) for n in (fields, institutions)]
    return people, rest[0], rest[1]


def _features(model: TSBM, label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    mean, std = model.mean.astype(np.float32), model.std.astype(np.float32)
    out = np.empty((len(label), model.num_features), np.float32)
    for first in range(0, len(label), ROWS):
        rows, kind = out[first : first + ROWS], label[first : first + ROWS]
        rng.standard_normal(out=rows, dtype=np.float32)
        rows *= std[kind, None]
        rows += mean[kind]
    return out


def _at_least(name: str, value: int, least: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InputError(f"{name}={checks.shown(value)} is not possible; give a whole number of at least {least}.")


def _from_zero_to_one(name: str, value: float) -> None:
    if not isinstance(value, int | float | np.number) or isinstance(value, bool) or not 0 <= value <= 1:
        raise InputError(f"{name}={checks.shown(value)} is not possible; give a number from 0 to 1.")
