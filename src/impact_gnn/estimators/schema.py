"""`Schema`: what a graph must be like for a fitted model to read it, and how the next one is made to fit.

Columns are found by their names and encoded as they were for the fit, labels by their names, and
periods must be made by the same rule. Nothing is matched by position.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import safetensors.numpy

from impact_gnn import _files
from impact_gnn._codec import decode, encode
from impact_gnn.checks import InputError, guarded, listing
from impact_gnn.encoding import Encoder
from impact_gnn.graph import Periods, TemporalGraph, Triple
from impact_gnn.graph.parts import class_name
from impact_gnn.graph.periods import LENGTHS, MONTHS

FILE, ARRAYS = "schema.json", "encoders.safetensors"
CALENDAR = {*MONTHS, *LENGTHS}
PLAIN = ("periods", "label_names", "num_labels", "types", "relations")  # what JSON holds as it is


@dataclass(frozen=True, eq=False)
class Schema:
    """How columns were encoded by node type, how periods were made, what classes, types and relations are called."""

    encoders: dict[str, Encoder]
    periods: Periods | None
    label_names: tuple[Any, ...] | None
    num_labels: int
    types: tuple[str, ...]
    relations: tuple[Triple, ...]

    @classmethod
    def of(cls, view: TemporalGraph) -> Schema:
        """That of a view, whose columns are encoded by what is known before its cutoff."""
        encoders = {kind: part.encoder for kind, part in view.nodes.items() if part.encoder}
        names = None if view.label_names is None else tuple(view.label_names)
        return cls(
            encoders, view.periods, names, view.num_labels, tuple(view.nodes), tuple(view.relations)
        )

    def adapted(self, graph: TemporalGraph, cutoff: int) -> TemporalGraph:
        """The view with features, classes and periods as the fit had them; refuses a graph that cannot be made so."""
        if graph.periods != self.periods:
            came, known = (_called(periods) for periods in (graph.periods, self.periods))
            raise InputError(
                f"the graph has {came}, the model knows {known}; load the graph with the model's periods."
            )
        if graph.target not in self.types:
            raise InputError(
                f"the graph classifies {graph.target}, the model knows {listing(self.types)}; "
                f"give a graph of the same types."
            )
        absent = [kind for kind in self.types if kind not in graph.nodes]
        absent += ["-".join(triple) for triple in self.relations if triple not in graph.relations]
        if absent:
            raise InputError(
                f"the graph has no {listing(absent)}, which the model was fitted with; add the tables."
            )
        graph = graph.masked(cutoff)
        if self.label_names is None and graph.num_labels > self.num_labels:
            raise InputError(
                f"the graph has {graph.num_labels} classes, the model was fitted with {self.num_labels}; fit again."
            )
        graph = self.recode_labels(graph)
        if (tuple(graph.nodes), tuple(graph.relations)) != (self.types, self.relations):
            graph = graph.only(self.types, self.relations)
        return graph.encoded(self._encoders(graph))

    def notes(self, graph: TemporalGraph, cutoff: int) -> list[str]:
        """What a person should know about a graph that fits: columns and classes that the model has never seen."""
        extra = [kind for kind in graph.nodes if kind not in self.types]
        extra += ["-".join(triple) for triple in graph.relations if triple not in self.relations]
        out = [f"the model does not know {listing(extra)}, so they are left out."] if extra else []
        for kind, encoder in self.encoders.items():
            columns = graph.nodes[kind].columns if kind in graph.nodes else None
            if columns is not None and (new := encoder.new(columns)):
                out.append(f"columns that the model does not know are left out: {listing(new)}.")
            there = columns is not None and all(
                part.name in columns.table.column_names for part in encoder.parts
            )
            if columns is not None and there and (silent := encoder.silent(columns)):
                out.append(
                    f"columns in which the model finds nothing that it has seen before: {listing(silent)}."
                )
        if self.label_names is not None and graph.label_names is not None and graph.y is not None:
            known, names = set(map(class_name, self.label_names)), graph.label_names
            counts = np.bincount(
                graph.y[(graph.time < cutoff) & (graph.y >= 0)], minlength=len(names)
            )
            if unknown := [
                k for k in np.flatnonzero(counts).tolist() if class_name(names[k]) not in known
            ]:
                what = f"{listing([names[k] for k in unknown])} ({counts[unknown].sum()} nodes)"
                out.append(
                    f"classes that the model has never seen count as unknown: {what}; fit again to learn them."
                )
        return out

    def class_codes(self, graph: TemporalGraph) -> np.ndarray:
        """The graph's own number of every class of the model; the model's where the graph does not name them all."""
        if self.label_names is not None and graph.label_names is not None:
            place = {class_name(name): number for number, name in enumerate(graph.label_names)}
            if all(class_name(name) in place for name in self.label_names):
                return np.array([place[class_name(name)] for name in self.label_names])
        return np.arange(self.num_labels)

    def recode_labels(self, graph: TemporalGraph) -> TemporalGraph:
        """The graph with its labels numbered as the model knows them, −1 where it does not."""
        labelled = graph.y is not None and bool((graph.y >= 0).any())
        if self.label_names is not None and graph.label_names is None and labelled:
            raise InputError(
                "the model's classes have names, the graph's do not; give label_names to match them by."
            )
        if self.label_names is not None:
            return graph.coded_as(self.label_names)
        if graph.label_names is not None:
            raise InputError(
                "the graph's classes have names, the model's do not; leave out label_names, or fit again."
            )
        known = np.arange(graph.num_labels)
        return graph.recoded(np.where(known < self.num_labels, known, -1), self.num_labels, None)

    def _encoders(self, graph: TemporalGraph) -> dict[str, Encoder]:
        for kind, part in graph.nodes.items():
            encoder = self.encoders.get(kind)
            if encoder is not None and encoder.is_of_matrix:
                encoder = None
            if encoder is not None and encoder.parts and part.columns is None:
                needed = listing([one.name for one in encoder.parts])
                raise InputError(
                    f"the model finds features by the names of columns ({needed}); give tables with them."
                )
            if encoder is None and part.columns is not None and part.columns.kinds:
                raise InputError(
                    "the model was fitted on features without names; give an array of them, not columns."
                )
        return self.encoders

    # -- disk

    def save(self, folder: Path) -> None:
        """Writes JSON, and the encoders' arrays if they have any."""
        arrays = {
            f"{k}.{name}": np.ascontiguousarray(array)
            for k, encoder in enumerate(self.encoders.values())
            for name, array in encoder.arrays().items()
        }
        safetensors.numpy.save_file(arrays, folder / ARRAYS)
        content = {"encoders": {kind: encoder.content() for kind, encoder in self.encoders.items()}}
        _files.write_json(
            folder / FILE, content | {name: encode(getattr(self, name)) for name in PLAIN}
        )

    @classmethod
    def load(cls, folder: Path) -> Schema:
        """What `save` wrote."""
        content = _files.read_json(folder / FILE)
        with guarded(folder / FILE):
            arrays = safetensors.numpy.load_file(folder / ARRAYS)
            encoders = {}
            for k, (kind, entry) in enumerate(content["encoders"].items()):
                own = {
                    name.removeprefix(f"{k}."): a
                    for name, a in arrays.items()
                    if name.startswith(f"{k}.")
                }
                encoders[kind] = Encoder.restored(entry, own)
            hints = get_type_hints(cls)
            schema = cls(
                encoders, **{name: decode(hints[name], content[name], name) for name in PLAIN}
            )
        if not schema._is_consistent():
            raise InputError(
                f"{folder / FILE} contradicts itself; restore it or save the model again."
            )
        return schema

    def _is_consistent(self) -> bool:
        """Whether types, relations, encoders and classes can belong to one graph."""
        ends = {kind for source, _, target in self.relations for kind in (source, target)}
        names = self.label_names
        is_named = names is None or (
            len({*map(class_name, names)}) == self.num_labels
            and all(isinstance(name, str | int | float) for name in names)
        )
        is_dated = (
            self.periods is None or self.periods.unit in CALENDAR or bool(self.periods.starts)
        )
        are_known = bool(self.types) and ends | {*self.encoders} <= {*self.types}
        return are_known and is_named and is_dated


def _called(periods: Periods | None) -> str:
    if periods is None:
        return "whole numbers as times"
    return (
        f"{len(periods.starts)} periods of its own"
        if periods.unit == "bins"
        else f"periods of a {periods.unit}"
    )
