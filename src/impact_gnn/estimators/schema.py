"""`Schema`: what a fitted model needs to read another graph in the same way.

Columns are found by their names and encoded as they were for the fit, labels by their names, and
periods must follow the same rule. Nothing is matched by position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import safetensors.numpy
from numpy import ndarray

from impact_gnn import _files
from impact_gnn._codec import decode, encode
from impact_gnn.checks import InputError, guarded, listing
from impact_gnn.encoding import Encoder
from impact_gnn.graph import Periods, TemporalGraph, Triple
from impact_gnn.graph.parts import class_name
from impact_gnn.graph.periods import LENGTHS, MONTHS

FILE = "schema.json"
ARRAYS = "encoders.safetensors"
CALENDAR = {*MONTHS, *LENGTHS}
JSON_FIELDS = ("periods", "label_names", "num_labels", "types", "relations")


@dataclass(frozen=True, eq=False)
class Schema:
    """Encoders by node type, periods, and the names of classes, types and relations."""

    encoders: dict[str, Encoder]
    periods: Periods | None
    label_names: tuple[Any, ...] | None
    num_labels: int
    types: tuple[str, ...]
    relations: tuple[Triple, ...]

    @classmethod
    def of(cls, view: TemporalGraph) -> Schema:
        """Return the schema of a view, whose columns are encoded by the past before its cutoff."""
        return cls(
            encoders={kind: part.encoder for kind, part in view.nodes.items() if part.encoder},
            periods=view.periods,
            label_names=None if view.label_names is None else tuple(view.label_names),
            num_labels=view.num_labels,
            types=tuple(view.nodes),
            relations=tuple(view.relations),
        )

    def adapted(self, graph: TemporalGraph, cutoff: int) -> TemporalGraph:
        """Return the view with features, classes and periods of the fit; refuse other graphs."""
        if graph.periods != self.periods:
            raise InputError(
                f"the graph has {_periods_text(graph.periods)}, but the model has "
                f"{_periods_text(self.periods)}; load the graph with the model's periods."
            )
        if graph.target not in self.types:
            raise InputError(
                f"the graph's target type {graph.target} is not in the model "
                f"({listing(self.types)}); "
                f"pass a graph of the same types."
            )
        absent = [kind for kind in self.types if kind not in graph.nodes]
        absent_relations = [triple for triple in self.relations if triple not in graph.relations]
        absent += map("-".join, absent_relations)
        if absent:
            raise InputError(
                f"the graph has no {listing(absent)}, which the model was fitted with; "
                f"add the tables."
            )
        view = graph.masked(cutoff)
        if self.label_names is None and view.num_labels > self.num_labels:
            raise InputError(
                f"the graph has {view.num_labels} classes, but the model was fitted with "
                f"{self.num_labels}; retrain it."
            )
        view = self.recode_labels(view)
        if (tuple(view.nodes), tuple(view.relations)) != (self.types, self.relations):
            view = view.only(self.types, self.relations)
        self._check_columns(view)
        return view.encoded(self.encoders)

    def has_features(self, kind: str) -> bool:
        """Tell whether nodes of a type have features after the encoding."""
        encoder = self.encoders.get(kind)
        return encoder is not None and bool(encoder.parts)

    def notes(self, graph: TemporalGraph, cutoff: int) -> list[str]:
        """Return sentences about types, columns and classes that are new since the fit."""
        notes = []
        new_parts = [kind for kind in graph.nodes if kind not in self.types]
        new_relations = [triple for triple in graph.relations if triple not in self.relations]
        new_parts += map("-".join, new_relations)
        if new_parts:
            notes.append(
                f"types and relations that are not in the model are ignored: {listing(new_parts)}."
            )
        for kind, encoder in self.encoders.items():
            columns = graph.nodes[kind].columns if kind in graph.nodes else None
            if columns is None:
                continue
            if new_columns := encoder.new(columns):
                notes.append(
                    f"columns that are not in the model are ignored: {listing(new_columns)}."
                )
            names = {part.name for part in encoder.parts}
            if names <= {*columns.table.column_names} and (silent := encoder.silent(columns)):
                notes.append(
                    f"columns without any value from the training data: {listing(silent)}."
                )
        return notes + self._new_class_notes(graph, cutoff)

    def _new_class_notes(self, graph: TemporalGraph, cutoff: int) -> list[str]:
        """Return a sentence about classes with labels before the cutoff that the fit lacks."""
        names = graph.label_names
        if self.label_names is None or names is None or graph.y is None:
            return []
        known = set(map(class_name, self.label_names))
        past = graph.y[graph.is_labelled & (graph.time < cutoff)]
        new_classes = [k for k in np.unique(past) if class_name(names[k]) not in known]
        if not new_classes:
            return []
        names_of_new = listing([names[k] for k in new_classes])
        count = np.isin(past, new_classes).sum()
        return [
            f"classes that are not in the model count as unknown: {names_of_new} "
            f"({count} nodes); retrain to include them."
        ]

    def class_codes(self, graph: TemporalGraph) -> ndarray:
        """Return the graph's code of every class; the model's if the graph lacks a name."""
        if self.label_names is not None and graph.label_names is not None:
            codes = {class_name(name): code for code, name in enumerate(graph.label_names)}
            names = [class_name(name) for name in self.label_names]
            if codes.keys() >= {*names}:
                return np.array([codes[name] for name in names])
        return np.arange(self.num_labels)

    def recode_labels(self, graph: TemporalGraph) -> TemporalGraph:
        """Return the graph with the model's codes of classes, −1 for classes new to it."""
        if self.label_names is not None:
            if graph.label_names is None and graph.is_labelled.any():
                raise InputError(
                    "the model's classes have names, but the graph's do not; "
                    "pass label_names to match them."
                )
            return graph.with_classes(self.label_names)
        if graph.label_names is not None:
            raise InputError(
                "the graph's classes have names, but the model's do not; "
                "omit label_names, or retrain."
            )
        codes = np.arange(graph.num_labels)
        codes[self.num_labels :] = -1
        return graph.relabeled(codes, self.num_labels, None)

    def _check_columns(self, view: TemporalGraph) -> None:
        """Refuse features without names where the model needs names, and the reverse."""
        for kind, part in view.nodes.items():
            encoder = self.encoders.get(kind)
            if encoder is not None and encoder.is_of_matrix:
                encoder = None
            if part.columns is None and encoder is not None and encoder.parts:
                names = listing([column.name for column in encoder.parts])
                raise InputError(
                    f"the model needs features by column name ({names}); "
                    f"pass tables with these columns."
                )
            if encoder is None and part.columns is not None and part.columns.kinds:
                raise InputError(
                    "the model was fitted on features without names; "
                    "pass them as an array, not as columns."
                )

    # -- disk

    def save(self, folder: Path) -> None:
        """Write JSON, and the arrays of the encoders."""
        arrays = {}
        contents = {}
        for k, (kind, encoder) in enumerate(self.encoders.items()):
            contents[kind] = encoder.content()
            for name, array in encoder.arrays().items():
                arrays[f"{k}.{name}"] = np.ascontiguousarray(array)
        safetensors.numpy.save_file(arrays, folder / ARRAYS)
        fields = {name: encode(getattr(self, name)) for name in JSON_FIELDS}
        _files.write_json(folder / FILE, {"encoders": contents, **fields})

    @classmethod
    def load(cls, folder: Path) -> Schema:
        """Return the schema that `save` wrote."""
        content = _files.read_json(folder / FILE)
        with guarded(folder / FILE):
            arrays = safetensors.numpy.load_file(folder / ARRAYS)
            encoders = {}
            for k, (kind, entry) in enumerate(content["encoders"].items()):
                encoders[kind] = Encoder.restored(entry, arrays_below(f"{k}.", arrays))
            hints = get_type_hints(cls)
            fields = {name: decode(hints[name], content[name], name) for name in JSON_FIELDS}
            schema = cls(encoders, **fields)
        if not schema._is_consistent():
            raise InputError(
                f"{folder / FILE} is inconsistent; restore it or save the model again."
            )
        return schema

    def _is_consistent(self) -> bool:
        """Tell whether types, relations, encoders and classes can belong to one graph."""
        used = {*self.encoders}
        for source, _, target in self.relations:
            used |= {source, target}
        if not self.types or not used <= {*self.types}:
            return False
        if self.label_names is not None:
            distinct = set(map(class_name, self.label_names))
            are_names = all(isinstance(name, str | int | float) for name in self.label_names)
            if not are_names or len(distinct) != self.num_labels:
                return False
        periods = self.periods
        return periods is None or periods.unit in CALENDAR or bool(periods.starts)


def arrays_below(prefix: str, arrays: Mapping[str, ndarray]) -> dict[str, ndarray]:
    """Return the arrays whose names begin with a prefix, by the rest of their names."""
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays[name] for name in names}


def _periods_text(periods: Periods | None) -> str:
    if periods is None:
        return "whole numbers as times"
    if periods.unit == "bins":
        return f"{len(periods.starts)} custom periods"
    return f"periods of a {periods.unit}"
