"""What a method part is: its name and summary, what it needs, and the hooks that do its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from numpy import ndarray

if TYPE_CHECKING:
    from impact_gnn.engines import Engine
    from impact_gnn.engines.hop import Hop
    from impact_gnn.engines.operator import Operator
    from impact_gnn.graph import TemporalGraph
    from impact_gnn.methods.method import Method
    from impact_gnn.nn import Propagation, Task, Term, Training
    from impact_gnn.weighting import Weighting


class Kind(Enum):
    """The step of the data flow that a part changes, in the order in which parts are written."""

    WEIGHTING = "weighting"
    ALIGNMENT = "alignment"
    INPUT = "input"
    TRAINING = "training"
    PREDICTION = "prediction"


class Needs(Enum):
    """What a part needs of a graph."""

    EDGES = "edges at the target nodes"
    TIMED_EDGES = "edges with a time at both ends"
    TIMED_SOURCES = "edges from nodes with a time"
    UNTIMED_NEIGHBOURS = "neighbours without a time"
    FEATURES = "features of the target nodes"
    HISTORY = "entities with several target nodes of different times"


class ModelKind(Enum):
    """What a model reads; a part says which kinds can take it."""

    HOPS = "a network over hops"
    SQUASHED = "a network over randomly projected metapaths"
    GRAPH = "a network over the graph"
    USER = "a user model"
    LINEAR = "a linear model"
    TREES = "boosted trees"
    PRIOR = "the class prior"


NETWORKS = frozenset(
    {ModelKind.HOPS, ModelKind.SQUASHED, ModelKind.GRAPH, ModelKind.USER, ModelKind.LINEAR}
)
READS_HOPS = frozenset({ModelKind.HOPS, ModelKind.SQUASHED, ModelKind.LINEAR, ModelKind.TREES})
ANY_MODEL = frozenset(ModelKind)


@dataclass(frozen=True)
class HopContext:
    """What an alignment may use: row k of every hop belongs to node `nodes[k]` of `graph`.

    Labels of `graph` are masked from its cutoff on. `relation_sizes` counts the hops of each
    relation, in the order of the hops.
    """

    graph: TemporalGraph
    nodes: ndarray
    weighting: Weighting
    engine: Engine
    relation_sizes: Sequence[int]


@dataclass(frozen=True)
class RowContext:
    """The rows of one training: `train` is learned from, `reference` are the rows to predict.

    `read(rows)` is the matrix of everything that the model reads of these rows.
    """

    task: Task
    time: ndarray
    label: ndarray
    train: ndarray
    reference: ndarray
    read: Callable[[ndarray], ndarray]
    seed: int


@dataclass(frozen=True, eq=False)
class PriorEvidence:
    """What the class proportions of targets are estimated from.

    `prior` is the class prior under which the model learned. `confusion` counts [predicted, true]
    on the validation rows (None without such rows), whose best `temperature` is also stored.
    """

    prior: ndarray
    confusion: ndarray | None = None
    temperature: float = 1.0


@dataclass(frozen=True, eq=False)
class Part:
    """One row of the table of method parts.

    Parsing, applicability, refusals, the search, the report and the docs read this row. The hooks
    say what the part does; a part without a hook is a switch that the pipeline itself reads.

    Args:
        name: What users write, such as "pmp".
        kind: The step of the data flow that it changes.
        summary: One clause for the report and the docs.
        needs: What it needs of a graph.
        provides: Needs of other parts that are met by this one.
        requires: Names of parts that it cannot go without.
        conflicts: Names of parts that it cannot be joined with, each with the reason.
        check: A further rule: the reason why a method with this part is refused, or None.
        check_graph: Raises `InputError` for a graph on which it cannot be computed.
        models: Kinds of models that can take it.
        cost: Factor on the cost of a fit.
        patient: Scores may fall before they rise, so early stopping waits longer.
        search_rank: Order in which the search tries it; None if the search never does.
        min_effort: The least effort at which the search tries it.
        prior_score: Expected gain before any evidence, relative to the baseline's 0.
        edge_weights: Hook `(times, nodes per time) → table [T, T]`; or another `Weighting` of
            the engines.
        align: Hook `(hops, HopContext) → hops`.
        all_nodes: The alignment needs the hops of all nodes, not of labelled nodes and targets.
        labelled_only: The alignment changes rows of labelled nodes only, never those of targets.
        inputs: Hook `(masked graph, node index) → further columns [n, k]`.
        steps: Steps along edges, in both directions, that `inputs` reads around a node; None if it
            may read the whole graph.
        input_names: Hook `masked graph → names of these columns`, for explanations.
        proportions: Hook `(masked graph, node index) → matrices of class proportions [n, Y]`, which
            the model reads in place of features and messages.
        label_weight: Hook `(time, label) → weight of every row [n]`.
        row_weight: Hook `RowContext → weight of every row in context.train`.
        loss_term: Hook `RowContext → term of a network's loss`, or None for no term.
        propagation: Hook `(operator, seed) → Propagation` of a network over the graph.
        training: Hook `Training → Training`: another way to train a network.
        adjust: Hook `(probabilities, unsmoothed probabilities, PriorEvidence) → probabilities`.
    """

    name: str
    kind: Kind
    summary: str
    needs: frozenset[Needs] = frozenset()
    provides: frozenset[Needs] = frozenset()
    requires: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Method], str | None] | None = None
    check_graph: Callable[[TemporalGraph], None] | None = None
    models: frozenset[ModelKind] = ANY_MODEL
    cost: float = 1.0
    patient: bool = False
    search_rank: int | None = None
    min_effort: str = "quick"
    prior_score: float = 0.0
    edge_weights: Weighting | None = None
    align: Callable[[list[Hop], HopContext], list[Hop]] | None = None
    all_nodes: bool = False
    labelled_only: bool = False
    inputs: Callable[[TemporalGraph, ndarray], ndarray] | None = None
    steps: int | None = None
    input_names: Callable[[TemporalGraph], list[str]] | None = None
    proportions: Callable[[TemporalGraph, ndarray], list[ndarray]] | None = None
    label_weight: Callable[[ndarray, ndarray], ndarray] | None = None
    row_weight: Callable[[RowContext], ndarray] | None = None
    loss_term: Callable[[RowContext], Term | None] | None = None
    propagation: Callable[[Operator, int], Propagation] | None = None
    training: Callable[[Training], Training] | None = None
    adjust: Callable[[ndarray, ndarray, PriorEvidence], ndarray] | None = None

    @property
    def reads_whole_graph(self) -> bool:
        """Whether the prediction of a node depends on nodes outside its neighbourhood."""
        aligns_targets = self.align is not None and not self.labelled_only
        has_far_inputs = self.inputs is not None and self.steps is None
        hooks = (self.adjust, self.propagation, self.proportions)
        return aligns_targets or has_far_inputs or any(hook is not None for hook in hooks)

    def __repr__(self) -> str:
        return f"Part({self.name!r}, {self.kind.value})"
