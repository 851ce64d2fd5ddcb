"""The temporal stochastic block model: random graphs in time for which the truth is known.

P(y, t, ỹ, t̃) = base(y, ỹ)·γ(y, ỹ)^|t − t̃|, features x = μ(y) + k_y·Z. Nodes are numbered in order
of time, so that neighbours are near in memory, with labels shuffled within a time; every edge is
stored in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn.checks import InputError
from impact_gnn.data.drawing import Draw, draw_features
from impact_gnn.graph import TemporalGraph

PROTOCOLS = ("text", "released")
RANDOM_DECAYS = ("random", "random-zero-diagonal")
DECAY_RANGE = (0.4, 0.7)
MOST_NOISE = 8.0
RELEASED_NOISE = 4.0
MAX_TIME = 1 << 60


@dataclass(frozen=True, eq=False)
class TSBM:
    """A temporal stochastic block model whose parameters have been drawn; `sample` gives graphs.

    Args:
        mean: Mean feature vector of every label [Y, f].
        std: Standard deviation of the features of every label [Y].
        base: Probability of an edge at the same time, by label pair [Y, Y]; symmetric.
        decay: Factor γ per step in time, by label pair [Y, Y]; symmetric.
        protocol: "text" or "released", see `tsbm`.
        start: The first of `num_times` consecutive times.
        seed: Default seed of `sample`.

    Examples:
        >>> tsbm_model(num_nodes=200, num_times=4, num_labels=2, decay=0.5)
        TSBM(200 nodes, 4 times from 0, 2 labels, 5 features, protocol 'text', seed 0)
    """

    mean: ndarray
    std: ndarray
    base: ndarray
    decay: ndarray
    num_nodes: int
    num_times: int
    protocol: str = "text"
    start: int = 0
    seed: int = 0

    def __repr__(self) -> str:
        return (
            f"TSBM({self.num_nodes:,} nodes, {self.num_times} times from {self.start}, "
            f"{self.num_labels} labels, {self.num_features} features, "
            f"protocol {self.protocol!r}, seed {self.seed})"
        )

    @property
    def num_labels(self) -> int:
        return len(self.mean)

    @property
    def num_features(self) -> int:
        return self.mean.shape[1]

    @property
    def times(self) -> ndarray:
        return self.start + np.arange(self.num_times)

    @property
    def ordered(self) -> bool:
        """Whether (i, j) and (j, i) are drawn separately, so that a pair can be linked twice."""
        return self.protocol == "released"

    @cached_property
    def probability(self) -> ndarray:
        """True probability of one draw, base·γ^|Δ|, by label and time of both ends [Y, T, Y, T]."""
        position = np.arange(self.num_times)
        # Between the positions of two times, [T, T].
        distance = np.abs(np.subtract.outer(position, position))
        # 0⁰ = 1: links at the same time remain
        decayed = self.decay[:, None, :, None] ** distance[None, :, None, :]
        return self.base[:, None, :, None] * decayed

    @property
    def expected_edges(self) -> float:
        """Expected number of stored edges: both directions, with multiplicity."""
        block = self.block_probability()
        across, within = _expected_pairs(self)
        own = np.trace(block)
        # Pairs of different blocks, and pairs within a block, which are fewer.
        total = across * (block.sum() - own) + within * own
        # Ordered pairs are both directions of a link; if each is drawn, each is stored twice.
        return float(total * (1 + self.ordered))

    def sample(self, seed: int | None = None) -> TemporalGraph:
        """Draw a graph with all its labels; `graph.masked(cutoff)` hides those to predict."""
        if seed is None:
            seed = self.seed
        # The type that PyTorch takes for positions.
        draw = Draw(self, checks.at_least("seed", seed, 0), np.dtype(np.int64))
        rng = np.random.default_rng(draw.feature_seed)
        return TemporalGraph(
            x=draw_features(self, draw.label, rng),
            y=draw.label.astype(np.int64),
            time=self.start + draw.period.astype(np.int64),
            edge_index=draw.pairs.edges(),
            num_labels=self.num_labels,
        )

    def block_probability(self) -> ndarray:
        """Return `probability` as a matrix [T·Y, T·Y] over blocks, numbered by time, then label."""
        blocks = self.num_labels * self.num_times
        return self.probability.transpose(1, 0, 3, 2).reshape(blocks, blocks)


def tsbm_model(
    num_nodes: int = 2000,
    num_times: int = 10,
    num_labels: int = 10,
    num_features: int = 5,
    *,
    decay: float | str = 0.6,
    protocol: str = "text",
    seed: int = 0,
    feature_std: float | str | None = None,
    same: float = 0.6,
    different: float = 0.24,
    mean_degree: float | None = None,
    start: int = 0,
) -> TSBM:
    """Draw the parameters of a temporal stochastic block model; the arguments are those of `tsbm`.

    Examples:
        >>> tsbm_model(num_labels=2, protocol="released").base
        array([[0.6 , 0.24],
               [0.24, 0.6 ]])
    """
    checks.choice("protocol", protocol, PROTOCOLS)
    checks.at_least("num_nodes", num_nodes, 1)
    checks.at_least("num_times", num_times, 1)
    checks.at_least("num_labels", num_labels, 1)
    checks.at_least("num_features", num_features, 1)
    checks.at_least("seed", seed, 0)
    check_start(start)
    blocks = num_labels * num_times
    checks.fits(
        f"{blocks:,} x {blocks:,} probabilities between labels and times",
        24 * blocks**2,
        "use fewer labels or times",
    )
    checks.fits(
        f"features of {num_labels:,} labels", 16 * num_labels * num_features, "use fewer features"
    )
    checks.share("same", same, "a probability")
    checks.share("different", different, "a probability")

    # The first child of the seed; those of nodes, features and edges come after it.
    (first_child,) = np.random.SeedSequence(int(seed)).spawn(1)
    rng = np.random.default_rng(first_child)
    mean = rng.standard_normal((num_labels, num_features))
    # Drawn whether used or not: with one seed, graphs of different decay differ in their edges
    # only.
    random_std = rng.uniform(0, MOST_NOISE, num_labels)
    random_base = _symmetric(rng.uniform(0, 1, (num_labels, num_labels)))
    random_decay = _symmetric(rng.uniform(*DECAY_RANGE, (num_labels, num_labels)))

    base = np.full((num_labels, num_labels), float(different))
    np.fill_diagonal(base, float(same))
    if protocol == "text":
        base = base * random_base
    std = _chosen_std(feature_std, protocol, random_std)
    model = TSBM(
        mean=mean,
        std=std,
        base=base,
        decay=_chosen_decay(decay, random_decay),
        num_nodes=num_nodes,
        num_times=num_times,
        protocol=protocol,
        start=start,
        seed=seed,
    )
    return model if mean_degree is None else _with_mean_degree(model, mean_degree)


def tsbm(
    num_nodes: int = 2000,
    num_times: int = 10,
    num_labels: int = 10,
    num_features: int = 5,
    *,
    decay: float | str = 0.6,
    protocol: str = "text",
    seed: int = 0,
    feature_std: float | str | None = None,
    same: float = 0.6,
    different: float = 0.24,
    mean_degree: float | None = None,
    start: int = 0,
) -> TemporalGraph:
    """Draw a graph of the temporal stochastic block model, with all its true labels.

    P(edge) = base(y, ỹ)·γ(y, ỹ)^|t − t̃| and x = μ(y) + k_y·Z; times run from `start`. Hide the
    labels to be predicted with `graph.masked(cutoff)`.

    - `protocol="text"`, as the paper describes it: base uniform in [0, same] within a label and [0,
      different] between labels, noise k_y in [0, 8], (label, time) blocks of equal size, unordered
      pairs.
    - `protocol="released"`, as its table was computed: base exactly `same` or `different`, noise 4,
      labels and times drawn per node, *ordered* pairs, so that two nodes may be linked twice: two
      parallel edges in each direction.
    - `decay` is γ of all label pairs; "random": uniform in [.4, .7] for each pair of labels;
      "random-zero-diagonal": so, but 0 within a label, whose nodes are then linked at equal times
      only.
    - `feature_std` replaces the protocol's noise k_y; "uniform": in [0, 8] for each label.
    - `mean_degree` scales all probabilities so that nodes have this many edges on average.

    Examples:
        >>> tsbm(num_nodes=1000, num_times=5, num_labels=4, decay=0.5, mean_degree=8, start=2015)
        TemporalGraph(1,000 nodes, ... edges, 5 features, 4 classes, times 2015..2019)
    """
    return tsbm_model(
        num_nodes,
        num_times,
        num_labels,
        num_features,
        decay=decay,
        protocol=protocol,
        seed=seed,
        feature_std=feature_std,
        same=same,
        different=different,
        mean_degree=mean_degree,
        start=start,
    ).sample()


def _expected_pairs(model: TSBM) -> tuple[float, float]:
    """Return expected ordered pairs of two blocks, E[n_a·n_b], and of one block, E[n(n−1)]."""
    blocks = model.num_labels * model.num_times
    nodes = model.num_nodes
    if model.protocol == "released":
        # A node is in each block with the same probability, independent of the others.
        return (nodes * (nodes - 1) / blocks**2,) * 2
    size, extra = divmod(nodes, blocks)  # `extra` blocks, chosen at random, have one node more
    # Probability that two given blocks both have an additional node.
    both = 0.0
    if blocks > 1:
        both = extra * (extra - 1) / (blocks * (blocks - 1))
    # E[(s + a)(s + b)] and E[(s + a)(s + a − 1)], where a and b are 0 or 1.
    once = 2 * size * extra / blocks
    return size * size + once + both, size * (size - 1) + once


def _with_mean_degree(model: TSBM, mean_degree: float) -> TSBM:
    if not (checks.is_number(mean_degree) and mean_degree > 0):
        raise InputError(
            f"mean_degree={mean_degree!r} is not a positive number; "
            "pass the expected number of edges of a node."
        )
    # Edges are stored in both directions, so this is the mean degree.
    now = model.expected_edges / model.num_nodes
    if now == 0:
        raise InputError(
            "mean_degree cannot be reached, because no edge is possible; "
            "use more nodes, or probabilities above 0."
        )
    scale = mean_degree / now
    if model.base.max() * scale > 1:
        raise InputError(
            f"mean_degree={mean_degree:g} needs an edge probability of "
            f"{model.base.max() * scale:.3g}; "
            f"use at most {now / model.base.max():.4g}, or more nodes."
        )
    return replace(model, base=model.base * scale)


def _chosen_std(feature_std: float | str | None, protocol: str, random_std: ndarray) -> ndarray:
    if feature_std is None:
        feature_std = "uniform" if protocol == "text" else RELEASED_NOISE
    if isinstance(feature_std, str) and feature_std == "uniform":
        return random_std
    if not (checks.is_number(feature_std) and float(feature_std) >= 0):
        raise InputError(
            f"feature_std={feature_std!r} is not valid; use a number of at least 0, or 'uniform'."
        )
    return np.full(len(random_std), float(feature_std))


def _chosen_decay(decay: float | str, random_decay: ndarray) -> ndarray:
    if isinstance(decay, str):
        checks.choice("decay", decay, RANDOM_DECAYS)
        if decay == "random-zero-diagonal":
            np.fill_diagonal(random_decay, 0.0)
        return random_decay
    if not (checks.is_number(decay) and 0 <= decay <= 1):
        names = " or ".join(map(repr, RANDOM_DECAYS))
        raise InputError(f"decay={decay!r} is not valid; use a number from 0 to 1, {names}.")
    return np.full(random_decay.shape, float(decay))


def check_start(start: int) -> None:
    """Refuse a first time that is no whole number, or too large."""
    if checks.at_least("start", start, -MAX_TIME) > MAX_TIME:
        raise InputError(f"start={start} is too large for 64-bit times; use at most {MAX_TIME}.")


def _symmetric(values: ndarray) -> ndarray:
    upper = np.triu(values)
    return upper + np.triu(upper, 1).T
