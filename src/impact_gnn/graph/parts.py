"""The parts of a graph: nodes of a type and edges of a relation, with their input validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from impact_gnn import checks
from impact_gnn.checks import InputError, listing
from impact_gnn.encoding import Columns, Encoder
from impact_gnn.graph import storage
from impact_gnn.graph.csr import index_type

Triple: TypeAlias = tuple[str, str, str]
"""A relation's name: source type, relation, target type."""

HOMOGENEOUS: Triple = ("node", "to", "node")
"""The only relation of a homogeneous graph."""

# From this largest label on, numbers that do not occur are no classes, if they are most of them.
GAPS_FROM = 1000
NODE_FIELDS = ("x", "y", "time", "ids", "timestamp", "num_nodes")
TIME_MISSING = "time is missing; pass one whole number per node."


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of one type; all but the number may be missing. `ids` are the user's names."""

    num_nodes: int
    features: ndarray | Columns | None = None  # numbers, or raw columns
    y: ndarray | None = None
    time: ndarray | None = None
    ids: ndarray | None = None
    # mask of the nodes before the cutoff of a view, by which features are encoded
    known: ndarray | None = None
    ready: bool = False  # features have been encoded
    # the exact time within the period `time`, in days if it is a date; None where that is all
    timestamp: ndarray | None = None
    # positions of the encoded features that are numbers, not categories or words
    numbers: ndarray | None = None
    # encoded columns [n, outcomes] that are known after the event only; NaN where not known yet
    outcomes: ndarray | None = None
    # mask of the nodes of a view whose label and outcomes are known at the cutoff
    over: ndarray | None = None

    def __post_init__(self) -> None:
        arrays = ["features", "y", "time", "ids", "timestamp", "numbers", "outcomes", "over"]
        _make_read_only(self, arrays)

    @classmethod
    def checked(
        cls,
        kind: str,
        arrays: Mapping[str, Any],
        num_labels: int | None,
        *,
        may_be_empty: bool = False,
    ) -> Nodes:
        """The nodes of a type (nameless in a homogeneous graph) from what a user gave."""
        where = f"{kind}." if kind else ""
        if not isinstance(arrays, Mapping):
            raise InputError(
                f"nodes[{kind!r}] is a {type(arrays).__name__}; pass a mapping with x, y, "
                "time or num_nodes."
            )
        unknown = [name for name in arrays if name not in NODE_FIELDS]
        if unknown:
            raise InputError(
                f"nodes[{kind!r}] has unknown entries {listing(unknown)}; "
                f"use {', '.join(NODE_FIELDS)}."
            )
        count = _node_count(kind, where, arrays)
        if count < 0 or (count == 0 and not may_be_empty):
            of_type = f" of type {kind!r}" if kind else ""
            raise InputError(f"the graph has no nodes{of_type}; pass at least one.")
        time = arrays.get("time")
        if time is None and not kind:
            raise InputError(TIME_MISSING)
        ids = arrays.get("ids")
        if ids is not None:
            ids = checks.ids(f"{where}ids", ids)
            if ids.shape != (count,):
                raise InputError(
                    f"{where}ids has shape {ids.shape} for {count} nodes; pass one id per node."
                )
            checks.distinct(f"{where}ids", ids)
        if time is not None and count == len(time) == 0:  # `node_times` needs a node
            time = np.empty(0, np.int64)
        elif time is not None:
            time = checks.node_times(f"{where}time", time, count)
        timestamp = arrays.get("timestamp")
        if timestamp is not None:
            timestamp = checks.timestamps(f"{where}timestamp", timestamp, time)
        x = arrays.get("x")
        if x is not None and not isinstance(x, Columns):
            x = checks.features(f"{where}x", x, count)
        y = arrays.get("y")
        if y is not None:
            y = checks.labels(f"{where}y", y, count, num_labels)
        return cls(count, features=x, y=y, time=time, ids=ids, timestamp=timestamp)

    @property
    def x(self) -> ndarray | None:
        """Features as numbers; raw columns are encoded by the nodes before the view's cutoff."""
        if isinstance(self.features, Columns):
            return self.features.x if self.num_features else None
        return self.features

    @property
    def num_features(self) -> int | None:
        """How many there are; None without any."""
        if isinstance(self.features, Columns):
            return len(self.features.encoder.outputs) or None  # all may be constant
        return None if self.features is None else self.features.shape[1]

    @property
    def columns(self) -> Columns | None:
        """Raw feature columns, where the nodes came with such."""
        return self.features if isinstance(self.features, Columns) else None

    @cached_property
    def encoder(self) -> Encoder | None:
        """The encoder of raw columns, or of extreme numbers, fitted on the known rows."""
        if self.features is None or self.ready:
            return None
        if isinstance(self.features, Columns):
            return self.features.encoder
        return Encoder.of_matrix(self.features, self.known)

    def encoded(self, encoder: Encoder | None) -> Nodes:
        """The same with features that models can read, by this encoder or the nodes' own."""
        if self.features is None or self.ready:
            return self
        fitted = encoder or self.encoder
        assert fitted is not None
        x = outcomes = None
        if not isinstance(self.features, Columns):
            x = fitted.matrix(self.features)
        elif encoder is None:
            # Raw columns remember what their own encoder made of them.
            x = self.x
        elif fitted.parts:
            x = fitted.encode(self.features)
        if isinstance(self.features, Columns) and fitted.outcomes is not None:
            outcomes = fitted.outcomes.encode(self.features)
            if self.over is not None:
                outcomes[~self.over] = np.nan
        return replace(
            self,
            features=x,
            ready=True,
            numbers=fitted.number_positions,
            outcomes=outcomes,
        )

    def take(self, keep: ndarray) -> Nodes:
        """The nodes at positions `keep`, remembering where they came from in `ids`."""
        features = self.features
        if isinstance(features, Columns):
            features = features.take(keep)
        elif features is not None:
            features = features[keep]
        # Without names, positions in the larger graph are the names.
        parts: dict[str, Any] = {"ids": keep if self.ids is None else self.ids[keep]}
        for name in ("y", "time", "known", "timestamp", "outcomes", "over"):
            values = getattr(self, name)
            if values is not None:
                parts[name] = values[keep]
        return replace(self, num_nodes=len(keep), features=features, **parts)

    def renumbered(self, keep: ndarray | None) -> ndarray | None:
        """For every node its position among those at `keep`, −1 for others; None keeps all."""
        if keep is None:
            return None
        number = np.full(self.num_nodes, -1, index_type(self.num_nodes))
        number[keep] = np.arange(len(keep), dtype=number.dtype)
        return number

    def with_late_outcomes(self) -> Nodes:
        """The same, with columns as outcomes that no node to predict has."""
        if not isinstance(self.features, Columns):
            return self
        return replace(self, features=self.features.with_late_outcomes())

    def masked(self, over: ndarray | None, known: ndarray | None) -> Nodes:
        """The same without labels and outcomes of nodes that are not `over` (None: all are).

        `known` rows fit the encoder (None: all).
        """
        y = self.y
        outcomes = self.outcomes
        features = self.features
        # The one place where labels are hidden; everything downstream reads these arrays.
        if y is not None and over is not None:
            y = np.where(over, y, -1)
        if outcomes is not None and over is not None:
            outcomes = np.where(over[:, None], outcomes, np.float32(np.nan))
        if isinstance(features, Columns):
            features = features.before(known, over)
        return replace(self, y=y, known=known, features=features, outcomes=outcomes, over=over)


@dataclass(frozen=True, eq=False)
class Relation:
    """Edges source → target as positions [2, E], with optional weights and times.

    Without `time` it is not known when edges came: one is taken to be there as soon as both its
    nodes are.
    """

    edge_index: ndarray
    weight: ndarray | None = None
    time: ndarray | None = None

    def __post_init__(self) -> None:
        _make_read_only(self, storage.EDGE_ARRAYS)

    @classmethod
    def checked(
        cls,
        triple: Any,
        arrays: Any,
        nodes: Mapping[str, Nodes],
        name: str = "",
    ) -> Relation:
        """A relation from a mapping of its arrays, its edges, or edges and weights."""
        is_named = isinstance(triple, tuple) and list(map(type, triple)) == [str, str, str]
        if not is_named or not {triple[0], triple[2]} <= nodes.keys():
            raise InputError(
                f"{checks.quoted(triple)} does not name a relation; write "
                f"(source type, name, target type) with types among {listing(list(nodes))}."
            )
        name = name or "-".join(triple)
        if not isinstance(arrays, Mapping):
            pair = arrays if isinstance(arrays, tuple) and len(arrays) == 2 else (arrays,)
            arrays = dict(zip(storage.EDGE_ARRAYS, pair, strict=False))
        unknown = [entry for entry in arrays if entry not in storage.EDGE_ARRAYS]
        if unknown:
            raise InputError(
                f"edges of {name} have unknown entries {listing(unknown)}; "
                f"use {listing(storage.EDGE_ARRAYS)}."
            )
        edge_index, weight, time = (arrays.get(entry) for entry in storage.EDGE_ARRAYS)
        edges = checks.edges(
            name,
            edge_index,
            nodes[triple[0]].num_nodes,
            nodes[triple[2]].num_nodes,
        )
        if weight is not None:
            weight = checks.edge_weights(f"weight of {name}", weight, edges.shape[1])
        if time is not None:
            time = checks.edge_times(f"time of {name}", time, edges.shape[1])
        return cls(edges, weight, time)

    @property
    def num_edges(self) -> int:
        return self.edge_index.shape[1]

    def selected(self, edge_index: ndarray, place: ndarray) -> Relation:
        """The edges at the positions `place`, with new numbers of their nodes."""
        weight = self.weight
        time = self.time
        if weight is not None:
            weight = weight[place]
        if time is not None:
            time = time[place]
        return Relation(edge_index, weight, time)

    def upto(
        self,
        t: int,
        numbers: Sequence[ndarray | None],
        part: slice = slice(None),
    ) -> tuple[ndarray, ndarray]:
        """Return the edges of `part` up to time `t` with new node `numbers`, and their places."""
        ends = []
        for row, new in zip(self.edge_index, numbers, strict=True):
            ends.append(row[part] if new is None else new[row[part]])
        # A node that is left out has the number -1.
        there = (ends[0] >= 0) & (ends[1] >= 0)
        if self.time is not None:
            there &= self.time[part] <= t
        place = np.flatnonzero(there)
        return np.stack([end[place] for end in ends]), place

    def before(
        self,
        cutoff: int,
        times: Sequence[ndarray | None],
        part: slice = slice(None),
    ) -> ndarray:
        """Mask of the edges of `part` before `cutoff`, by their own times and their ends'."""
        there = np.ones(self.edge_index[0, part].shape, bool)
        if self.time is not None:
            there &= self.time[part] < cutoff
        for time, row in zip(times, self.edge_index, strict=True):
            if time is not None:
                there &= time[row[part]] < cutoff
        return there


def edge_type(triple: Triple) -> str:
    """Return the type with a node for every edge of a relation, which has the edges' columns."""
    return f"{triple[1]}_edge"


def _node_count(kind: str, where: str, arrays: Mapping[str, Any]) -> int:
    """Return `num_nodes`, or the length of the first array that has one entry per node."""
    count = arrays.get("num_nodes")
    if count is None:
        present = [name for name in ("time", "x", "y") if arrays.get(name) is not None]
        if not present:
            no_size = f"nodes[{kind!r}] has no size; pass num_nodes, x or time."
            raise InputError(no_size if kind else TIME_MISSING)
        name = present[0]
        first = arrays[name]
        if not isinstance(first, Columns):
            first = checks.array(f"{where}{name}", first)
            if not first.ndim:
                raise InputError(f"{where}{name} is a single value; pass one entry per node.")
        count = len(first)
    return checks.whole_number(f"{where}num_nodes", count)


def classes(
    nodes: Nodes,
    num_labels: int | None,
    label_names: Sequence[Any] | None,
) -> tuple[Nodes, int, Sequence[Any] | None]:
    """The nodes, the number of classes and their names, checked for consistency.

    Labels that are codes with wide gaps are renumbered, and their codes become the names.
    """
    largest = -1 if nodes.y is None else int(nodes.y.max())
    has_classes = num_labels is not None or label_names is not None
    if nodes.y is not None and largest >= GAPS_FROM and not has_classes:
        is_known = nodes.y >= 0
        # Such as postal codes: a table over all numbers would be mostly empty.
        codes = np.unique(nodes.y[is_known])
        if 2 * len(codes) < largest:
            y = np.where(is_known, np.searchsorted(codes, nodes.y), -1)
            return replace(nodes, y=y), len(codes), codes.tolist()
    if label_names is not None:
        num_labels = _check_label_names(label_names, num_labels)
    if num_labels is None:
        num_labels = largest + 1
    if largest >= num_labels:
        raise InputError(
            f"y contains {largest}, but there are {num_labels} classes; "
            f"labels run from 0 to {num_labels - 1}."
        )
    return nodes, num_labels, label_names


def _check_label_names(label_names: Sequence[Any], num_labels: int | None) -> int:
    """Return the number of names; refuse names that do not stand for that many classes."""
    is_vector = isinstance(label_names, ndarray) and label_names.ndim == 1
    if not is_vector and not isinstance(label_names, list | tuple):
        raise InputError(
            f"label_names is a {type(label_names).__name__}; pass a list with one name per class."
        )
    count = len(label_names)
    if num_labels not in (None, count):
        raise InputError(
            f"label_names has {count} names for {num_labels} classes; pass one per class."
        )
    for name in label_names:
        if not isinstance(name, str | int | float | np.number):
            raise InputError(
                f"label_names contains {checks.quoted(name)}; use text, or whole numbers."
            )
    names = [class_name(name) for name in label_names]
    if len(set(names)) < count:
        raise InputError(
            f"label_names contains {max(names, key=names.count)!r} twice; "
            "give every class its own name."
        )
    # As strings they are written to tables, so the same rules hold as for ids.
    if names:
        checks.ids("label_names", names)
    return count


def class_name(name: Any) -> str:
    """A class's name as text: 1, 1.0 and "1" are one class, and so are True and "true"."""
    if isinstance(name, float) and name.is_integer():
        name = int(name)
    text = str(name).strip()
    return text.lower() if text in ("True", "False") else text


def _make_read_only(part: Nodes | Relation, names: Iterable[str]) -> None:
    """Replace arrays of a new part by read-only views; the user's own stay writable."""
    for name in names:
        values = getattr(part, name)
        if isinstance(values, ndarray):
            view = values.view()
            view.flags.writeable = False
            object.__setattr__(part, name, view)
