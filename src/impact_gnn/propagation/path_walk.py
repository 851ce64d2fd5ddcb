"""Walking metapaths as a tree: shared beginnings once, depth first, on any engine."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path as Folder
from typing import Any, TypeAlias

import numpy as np

from impact_gnn.graph import TemporalGraph, Triple
from impact_gnn.propagation.engine import Engine
from impact_gnn.propagation.hops import along, operator
from impact_gnn.propagation.operator import Operator

Path: TypeAlias = tuple[Triple, ...]
"""Relations in the order in which a message walks them."""

LONGEST_NAME = 120
"""Characters of a path's directory name; longer ones end in a checksum."""


def path_name(path: Path) -> str:
    """Types and relations from the first to the last.

    Example:
        >>> path_name((("paper", "rev_writes", "author"), ("author", "writes", "paper")))
        'paper-rev_writes-author-writes-paper'
    """
    return "-".join([path[0][0], *(part for _, relation, target in path for part in (relation, target))])


@dataclass(frozen=True, eq=False)
class Walk:
    """Metapaths from one type to the target type, with the operation of each relation made once.

    Args:
        graph: The graph.
        paths: Paths that all begin at one type.
        weighting: Name of a method, or a table, for relations between types with a time.
        engine: Where to compute.
    """

    graph: TemporalGraph
    paths: Sequence[Path]
    weighting: str | np.ndarray
    engine: Engine | None = None
    _made: dict[Triple, Any] = field(default_factory=dict, repr=False)

    @property
    def directory(self) -> Folder | None:
        """Where an engine that works on files keeps them."""
        found = getattr(self.engine, "directory", None)
        return None if found is None else Folder(found)

    def operator(self, relation: Triple) -> Any:
        """The operation of a relation, in the engine's form."""
        if relation not in self._made:
            # An engine that works on files describes the operation without loading its edges.
            make = getattr(self.engine, "operator", operator)
            self._made[relation] = make(self.graph, relation, weighting=self.weighting)
        return self._made[relation]

    def loaded(self, relation: Triple) -> Operator:
        """The operation of a relation with its edges in memory."""
        return operator(self.graph, relation, weighting=self.weighting)

    def hops(self, x: np.ndarray) -> Iterator[tuple[Path, np.ndarray]]:
        """Every path with the features `x` of its first type brought along it, in the order of the walk."""
        below = {path[:k] for path in self.paths for k in range(1, len(path) + 1)}
        ahead: dict[Path, list[Path]] = {}
        for prefix in sorted(below, key=self._order):
            ahead.setdefault(prefix[:-1], []).append(prefix)
        yield from self._visit((), x, ahead, set(self.paths))

    @contextmanager
    def scratch(self) -> Iterator[Walk]:
        """The same walk whose files, if there are any, vanish in the end; kept there in double precision."""
        if self.directory is None:
            yield self
            return
        parent = self.directory.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        for path in self.paths:
            for relation in path:
                self.operator(relation)  # edges are sorted in the lasting directory
        place = Folder(tempfile.mkdtemp(prefix=f"{self.directory.name}-work-", dir=parent))
        try:
            yield replace(self, engine=replace(self.engine, directory=place / "hops"))  # type: ignore[type-var]
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _visit(
        self, prefix: Path, x: np.ndarray, ahead: dict[Path, list[Path]], wanted: set[Path]
    ) -> Iterator[tuple[Path, np.ndarray]]:
        for here in ahead.get(prefix, []):
            hop = self._step(here, x)
            if here in wanted:
                yield here, hop
            yield from self._visit(here, hop, ahead, wanted)
            del hop  # not to be held while the next one is made

    def _step(self, path: Path, x: np.ndarray) -> np.ndarray:
        within = getattr(self.engine, "within", None)
        engine = self.engine if within is None else within(folder_name(path_name(path)))
        return along([self.operator(path[-1])], x, engine=engine)[-1]

    def _order(self, path: Path) -> list[int]:
        number = {relation: k for k, relation in enumerate(self.graph.relations)}
        return [number[relation] for relation in path]


def folder_name(name: str) -> str:
    """A name that is safe and short enough for a directory, and its own where it had to be changed."""
    safe = re.sub("[^A-Za-z0-9_-]", "_", name)
    if safe == name and len(name) <= LONGEST_NAME:
        return name
    return f"{safe[:LONGEST_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
