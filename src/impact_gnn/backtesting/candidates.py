"""From the diagnosis to candidates: initial ones, and neighbours of a winner.

Advice sets the order only: every applicable candidate stays on the list, `plain` always. The
back-test decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from impact_gnn import methods
from impact_gnn.backtesting.effort import EFFORTS
from impact_gnn.checks import InputError
from impact_gnn.diagnostics import Diagnosis
from impact_gnn.diagnostics.assumption import HOLDS, NOT_TESTABLE, UNCERTAIN, VIOLATED
from impact_gnn.estimators import MODELS, Candidate, Model, spec_of
from impact_gnn.graph import TemporalGraph
from impact_gnn.methods import Kind, Method, ModelKind, Needs, Part

# What is tried first: different models, with and without the neighbours' labels. Each is smoothed
# as well where there are edges: that needs no other fit.
INITIAL = (
    "plain",
    "trees:features+history",
    "trees:labels",
    "labels",
    "trees:history",
    "linear:labels",
    "features",
    "trees:plain",
    "prior:features+smooth",
    "gcn:plain",
    "trees:features",
    "linear:plain",
    "linear:features",
    "linear:features+history",
)
# With many labels, recent ones are enough: on two past folds of ogbn-arxiv, a network trained on
# the newest third was .7 and .9 points more accurate than one trained on all.
MANY_LABELS = 40_000
INITIAL_WITH_MANY_LABELS = ("plain", "labels+window", "labels")
# Models that may replace that of a winner.
NEIGHBOUR_MODELS = (
    "trees",
    None,
    "sign-wide",
    "linear",
    "sign-light",
    "gamlp",
    "sage",
    "gat",
    "rphgnn",
    "sehgnn",
)
# The paper's question, answered by one cheap model: do these help on this graph?
UNCORRECTED = Candidate.parse("linear:plain")
# Of every row the first method that applies: where target nodes meet through nodes without a time,
# weights depend on both ends of a path.
TIME_CORRECTIONS = (
    ("mmp", "mmp+ends"),
    ("pmp", "pmp+ends"),
    ("genpmp", "genpmp+ends"),
    ("pmp+jjnorm", "pmp+jjnorm+ends"),
    ("center",),
)
HOPELESS = 0.1  # loss above the best from which on a candidate is not worth more work
ASYMMETRIC = 0.1  # from this share on, past and future neighbours count as different
UNEVEN = 0.05  # how much more the sizes of periods must explain to count
LEAST_SHIFT = 0.05  # a smaller shift of messages needs no correction
LEAST_SEPARATION = 0.01  # of the classes, from which on a correction must preserve it
STILL_APART = 0.9  # the share of it to preserve
PER_PART = 0.15  # cost of every part: of two equals the simpler one comes first
# PNY inverts one matrix of features by features for every class and period; beyond these sizes it
# is left out.
PNY_COLUMNS = 128
PNY_NUMBERS = 1 << 24

SIMPLE = ("plain", "recency", "recency-fast", "window", "features")
GRAPH = (
    "labels",
    "pmp",
    "genpmp",
    "mmp",
    "snapshot",
    "labels+snapshot",
    "labels+recency",
    "pmp+labels",
    "genpmp+labels",
)
ALIGNED = (
    "center",
    "standardize",
    "jjnorm",
    "pmp+center",
    "pmp+jjnorm",
    "center+jjnorm",
    "genpmp+center",
    "center+labels",
    "standardize+labels",
    "jjnorm+labels",
    "pmp+center+labels",
    "center+snapshot",
)
PNY = ("pmp+pny", "pmp+center+pny")
# where target nodes are connected through nodes without a time
THROUGH = (
    "pmp+ends",
    "pmp+labels+ends",
    "pmp+center+ends",
)


@dataclass(frozen=True)
class Advised:
    """A method to back-test, its prior score (higher is better) and the reason."""

    method: Method
    score: float
    reason: str


@dataclass(frozen=True)
class Advice:
    """Candidates, the most promising first, and the order in words."""

    candidates: tuple[Advised, ...]
    explanation: str

    @property
    def methods(self) -> list[Method]:
        return [candidate.method for candidate in self.candidates]

    def __str__(self) -> str:
        rows = [f"{c.method!s:22}{c.score:>6.2f}  {c.reason}" for c in self.candidates]
        return "\n".join([self.explanation, "", f"{'candidate':22}{'score':>6}  why", *rows])


def advise(diagnosis: Diagnosis, graph: TemporalGraph) -> Advice:
    """Candidates for the back-test, ranked by the diagnosis; of the graph only sizes are used.

    A method's score is the sum of its parts' (`_prior_scores`), less a little for each; plain is 0.
    Only candidates that equal another one or are not applicable are omitted: time weights by edge
    where no edge has a time at both ends, alignments without features, label hops without edges,
    PNY on large or mixed graphs.

    Examples:
        >>> from impact_gnn.data.tsbm import tsbm
        >>> from impact_gnn.diagnostics import diagnose
        >>> g = tsbm(num_nodes=1000, num_labels=4, feature_std=1, seed=0)
        >>> "labels" in advise(diagnose(g, 8), g).methods[0]
        True
    """
    prior_score = _with_measured_shift(_prior_scores(diagnosis, graph), diagnosis)
    candidates = []
    for method in map(Method.parse, _possible(graph)):
        parts = method.names
        score = sum(prior_score[part][0] - PER_PART for part in parts)
        reason = "; ".join(prior_score[part][1] for part in parts) or "the baseline"
        candidates.append(Advised(method, round(score, 6), reason))
    candidates.sort(key=lambda advised: (-advised.score, len(advised.method.names)))
    first = candidates[0]
    start = f"{first.method} comes first: {first.reason}."
    if first.method == Method():
        start = "No correction is expected to help, so the baseline comes first."
    evidence = ", ".join(f"{check.name}: {check.status.value}" for check in diagnosis.findings)
    order = "The search tries parts in this order; only the back-test decides."
    return Advice(tuple(candidates), f"{start} Evidence: {evidence}. {order}")


def initial_candidates(graph: TemporalGraph) -> list[Candidate]:
    """What to try first on a graph, the baseline at the head."""
    names = list(INITIAL)
    if graph.is_labelled.sum() > MANY_LABELS:
        names = [*INITIAL_WITH_MANY_LABELS, *INITIAL]
    candidates = map(Candidate.parse, dict.fromkeys(names))
    return [candidate for candidate in candidates if is_applicable(candidate, graph)]


def is_network(candidate: Candidate, model: str) -> bool:
    """Whether its model is a neural network, as every user model is; `model` is the default."""
    spec = MODELS.get(candidate.model or model)
    return spec is None or (spec.network is not None and spec.kind is not ModelKind.LINEAR)


def networks_are_behind(losses: Mapping[Candidate, float], model: str) -> bool:
    """Whether all networks have a loss far above the best of trees, linear models and priors."""
    networks = [loss for one, loss in losses.items() if is_network(one, model)]
    others = [loss for one, loss in losses.items() if not is_network(one, model)]
    return bool(networks and others) and min(networks) - min(others) > HOPELESS


def time_corrections(graph: TemporalGraph) -> list[Candidate]:
    """Corrections for time that apply to a graph, with the model of `UNCORRECTED`."""
    corrections: list[Candidate] = []
    for methods_of_row in TIME_CORRECTIONS:
        variants = [Candidate.parse(f"{UNCORRECTED.model}:{method}") for method in methods_of_row]
        corrections += [one for one in variants if is_applicable(one, graph)][:1]
    return corrections


def neighbours_of(
    winner: Candidate, graph: TemporalGraph, advice: Advice | None = None, *, effort: str = "quick"
) -> list[Candidate]:
    """Candidates that differ from a winner in one part of the method or in the model; unsmoothed.

    Parts come in the order of their expected gain by the advice, then of `Part.search_rank`.

    Examples:
        >>> graph = TemporalGraph(x=[[0.0], [1.0]], y=[0, 1], time=[0, 1], edge_index=[[0], [1]])
        >>> [str(one) for one in neighbours_of(Candidate.parse("trees:labels"), graph)][:3]
        ['trees:labels+recency', 'trees:plain', 'trees:pmp+labels']
    """
    models: Sequence[str | None] = ()
    if winner.model != "prior":  # without smoothing it predicts the same for all nodes
        models = NEIGHBOUR_MODELS
        winner = winner.smoothed(False)
    expected = {}
    if advice is not None:
        expected = {str(advised.method): advised.score for advised in advice.candidates}
    toggled = [_toggled(winner.method, part) for part in _searched_parts(effort, expected)]
    neighbours = [Candidate(method, winner.model) for method in toggled if method is not None]
    neighbours += [Candidate(winner.method, model) for model in models]
    return [
        neighbour
        for neighbour in dict.fromkeys(neighbours)
        if neighbour != winner and is_applicable(neighbour, graph)
    ]


def _searched_parts(effort: str, expected: Mapping[str, float]) -> list[Part]:
    """Parts that a search of this effort tries; those of a larger effort come last."""
    parts = [methods.get(name) for name in methods.names()]
    efforts = list(EFFORTS)

    def order(part: Part) -> tuple[int, float, int]:
        method = "+".join([*part.requires, part.name])
        gain = 0.0 if part.min_effort != efforts[0] else expected.get(method, part.prior_score)
        return efforts.index(part.min_effort), -gain, part.search_rank or 0

    allowed = efforts[: efforts.index(effort) + 1]
    searched = [p for p in parts if p.search_rank is not None and p.min_effort in allowed]
    return sorted(searched, key=order)


def _toggled(method: Method, part: Part) -> Method | None:
    """The method with the part, or without it where it has it; None where it does not fit in.

    A new weighting replaces that of the method, and new weights of labels replace others.
    """
    names = {*method.names, *part.requires, part.name}
    if part.name in method:  # it is taken away, with all that requires it
        names = {*method.without(part.name).names}
    elif part.kind is Kind.WEIGHTING:
        names -= {method.weighting}
    elif part.label_weight is not None:
        names -= {
            other.name
            for other in method.parts
            if other.name in part.conflicts or part.name in other.conflicts
        }
    try:
        return Method.join(names)
    except InputError:
        return None


def is_applicable(candidate: Candidate, graph: TemporalGraph, model: Model = "sign") -> bool:
    """Whether a candidate can be computed on a graph, and can differ there from a simpler one.

    `model` is that of candidates that name none.
    """
    method = candidate.method
    spec = spec_of(candidate.model or model)
    if method.refusal(spec.kind, "") is not None or not method.needs <= offers_of(graph):
        return False
    if spec.kind is ModelKind.PRIOR:
        # Without them, all nodes have one prediction.
        return "smooth" in method or "last" in method
    if spec.kind in (ModelKind.GRAPH, ModelKind.USER):
        return not graph.is_hetero and graph.x is not None
    return graph.is_hetero or not spec.several_types


def offers_of(graph: TemporalGraph) -> frozenset[Needs]:
    """What a graph has of the things that parts may need."""
    relations = [triple for triple, part in graph.relations.items() if part.num_edges]
    touching = [triple for triple in relations if graph.target in (triple[0], triple[2])]
    timed = {kind for kind, part in graph.nodes.items() if part.time is not None}
    both_ends = [{source, target} <= timed for source, _, target in touching]
    checks = {
        Needs.EDGES: bool(touching),
        Needs.TIMED_EDGES: any(both_ends),
        Needs.UNTIMED_NEIGHBOURS: not all(both_ends),
        Needs.TIMED_SOURCES: any(source in timed for source, _, _ in relations),
        Needs.FEATURES: graph.x is not None,
        Needs.HISTORY: graph.has_entity_history,
    }
    return frozenset(need for need, is_offered in checks.items() if is_offered)


def _possible(graph: TemporalGraph) -> list[str]:
    """Methods that are applicable to this graph, simple ones first."""
    methods = [*SIMPLE, *GRAPH]
    if graph.x is not None:  # messages of degrees alone are not aligned
        methods += ALIGNED
        columns = graph.x.shape[1]
        numbers = graph.num_labels * len(graph.times) * columns**2
        if columns <= PNY_COLUMNS and numbers <= PNY_NUMBERS and not graph.is_hetero:
            methods += PNY
        methods += THROUGH
    return [method for method in methods if is_applicable(Candidate.parse(method), graph)]


def _prior_scores(diagnosis: Diagnosis, graph: TemporalGraph) -> dict[str, tuple[float, str]]:
    """The prior score of every part and the reason; accuracies are those of early studies."""
    mix = diagnosis.label_mix.status
    drift = diagnosis.feature_drift.status
    connections = diagnosis.separability
    separable = connections.status
    # Alignments remove period means: they lost .011 on ogbn-arxiv, whose label mix changes.
    centered = {HOLDS: 1.5, UNCERTAIN: 0.0, NOT_TESTABLE: 0.3, VIOLATED: -1.5}[mix]
    scaled = {HOLDS: 0.5, UNCERTAIN: -0.1, NOT_TESTABLE: 0.1, VIOLATED: -1.5}[mix]
    scaled += {HOLDS: 0.2, VIOLATED: -0.2}.get(diagnosis.decay.status, 0)
    stable = {
        HOLDS: "the label mix is stable, so period means may be removed",
        UNCERTAIN: "the label mix moves, so period means hold information",
        NOT_TESTABLE: "the stability of the label mix is not testable",
        VIOLATED: "the label mix changes, so period means hold information",
    }[mix]
    # The paper's first choice, if its assumption holds.
    weighted = {HOLDS: 0.8, UNCERTAIN: 0.3, NOT_TESTABLE: 0.3, VIOLATED: 0.0}[separable]
    by_connections = f"separable connectivity: {separable}"
    by_mix = f"label mix: {mix}"
    by_change = f"{by_mix}, feature drift: {drift}"
    forgets = {True: 0.4, False: -0.4}[VIOLATED in (mix, drift)]
    scores = {
        # Neighbours' labels won .5 on the paper's synthetic graphs and .018 on ogbn-arxiv.
        "labels": (1.5, "neighbours' labels are the strongest input on most graphs"),
        "center": (centered, stable),
        "standardize": (centered - 0.1, stable),
        "jjnorm": (scaled, f"{by_mix}, common decay: {diagnosis.decay.status}"),
        "pmp": (weighted, by_connections),
        "genpmp": (weighted - 0.3, "sizes of periods do not explain more of the connections"),
        "mmp": (-0.6, "uses older neighbours only"),
        "pny": (0.6 if separable == HOLDS else 0.0, by_connections),
        # Won .04 on one graph, lost .036 and .045 on two.
        "snapshot": (-0.4, "past and future neighbours are alike"),
        "ends": (0.2, "nodes are connected through nodes without a time"),
        "recency": (-0.3, "older labels are as informative as recent ones"),
        "recency-fast": (forgets, by_change),
        "window": (forgets - 0.1, by_change),
        "features": (-0.6 if separable == VIOLATED else -1.0, "ignores the neighbours"),
    }
    if drift in (VIOLATED, UNCERTAIN):
        scores["standardize"] = (centered + 0.1, stable)
    explained = connections.statistic
    by_size = connections.per_node
    if by_size is not None and explained is not None and by_size.low > explained + UNEVEN:
        scores["genpmp"] = (weighted + 0.2, "sizes of periods explain more of the connections")
    if connections.symmetry is not None and connections.symmetry.high < 1 - ASYMMETRIC:
        scores["snapshot"] = (0.4, "past and future neighbours differ")
    if {VIOLATED, UNCERTAIN} & {mix, drift}:
        why = "labels or features change, so recent nodes are more informative"
        scores["recency"] = (0.5, why)
    if not any(relation.num_edges for relation in graph.relations.values()):
        scores["features"] = (1.0, "there are no edges")
    return scores


def _with_measured_shift(
    scores: dict[str, tuple[float, str]], diagnosis: Diagnosis
) -> dict[str, tuple[float, str]]:
    """Add half of the share of the shift that a part removes, if it keeps the classes apart."""
    removed = _removed(diagnosis)
    for name in scores.keys() & removed.keys():
        score, why = scores[name]
        share, is_apart = removed[name]
        what = f"removes {share:.0%} of the shift"
        if share < 0:
            what = f"adds {-share:.0%} to the shift"
        if not is_apart:
            what += " but mixes the classes"
            share = min(share, 0.0)
        scores[name] = (score + 0.5 * share, f"{why} ({what})")
    return scores


def _removed(diagnosis: Diagnosis) -> dict[str, tuple[float, bool]]:
    """Share of the shift that a method removes, at least −1, and whether classes stay apart."""
    if diagnosis.shift is None:
        return {}
    methods = diagnosis.shift.methods
    plain = methods["plain"]
    if plain.overall < LEAST_SHIFT:
        return {}
    separation = plain.separation or 0.0
    least = 0.0
    if separation >= LEAST_SEPARATION:
        least = STILL_APART * separation
    return {
        name: (max(-1.0, 1 - one.overall / plain.overall), one.separation >= least)
        for name, one in methods.items()
        if name != "plain" and one.separation is not None
    }
